//! The functions of the driver API: one a row of `crate::api`, which checks its arguments, asks the rules, and changes the tables
//! or issues work.

pub(crate) mod array;
pub(crate) mod array_copy;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod exec;
pub(crate) mod fill;
pub(crate) mod function;
pub(crate) mod graph;
pub(crate) mod graph_memory;
pub(crate) mod host;
pub(crate) mod ipc;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod node_params;
pub(crate) mod nodes;
pub(crate) mod objects;
pub(crate) mod occupancy;
pub(crate) mod pool;
pub(crate) mod stream;
