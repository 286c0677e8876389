//! What callers hold, as data: handles and what they stand for, the order of operations, the tasks that wait, and the records that
//! checks need; and the lock around it all (`software`). Nothing here knows a function of the driver API, or how work runs.

pub(crate) mod allocations;
pub(crate) mod device;
pub(crate) mod graph_allocations;
pub(crate) mod graphs;
pub(crate) mod members;
pub(crate) mod objects;
pub(crate) mod ops;
pub(crate) mod order;
pub(crate) mod plan;
pub(crate) mod queue;
pub(crate) mod ranges;
pub(crate) mod records;
pub(crate) mod software;
pub(crate) mod state;
pub(crate) mod work;
