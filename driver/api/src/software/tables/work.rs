//! Work as it runs: the steps of operations, with everything that they need.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use warpsmith_check::Waiting;
use warpsmith_simt::{Instance, Launch};

use crate::software::ipc::{Awaited, Look, Mark};
use crate::software::params::Params;
use crate::software::tables::{
    device::Device,
    ops::{Copy, Fill, GraphAllocation, HostCall},
    order::{OpId, Ordering},
};

/// A step with its place in the order of operations, where checks are on.
pub(crate) struct Todo {
    pub step: Step,
    /// Which earlier operations the step may rely on; what a checked launch is given.
    pub ordering: Option<Ordering>,
}

/// Work with everything it needs, so that handles that are destroyed meanwhile do not matter.
pub(crate) enum Step {
    Kernel {
        device: &'static Device,
        context: u64,
        instance: Arc<Instance>,
        name: Arc<str>,
        launch: Launch,
        params: Arc<Params>,
    },
    Copy(Copy),
    /// A copy whose source in host memory was read when it was issued.
    Staged(Copy, Vec<u8>),
    Fill(Fill),
    Host(HostCall),
    /// An event is passed; of one that processes share also its mark.
    Record(u64, Option<Mark>),
    /// Waits for another process's record of an event.
    Await(Awaited),
    Alloc(Arc<GraphAllocation>),
    Free(i32, u64),
    /// Gives memory of a pool back: its context, address, and the operation that frees it.
    GiveBack(u64, u64, OpId),
}

/// A launch that waits, with what is to be said of it.
pub(crate) struct InFlight {
    pub device: &'static Device,
    pub context: u64,
    pub instance: Arc<Instance>,
    pub name: Arc<str>,
    pub launch: Launch,
    pub ordering: Option<Ordering>,
    pub started: Instant,
    pub waiting: Box<Waiting>,
}

impl InFlight {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_changing(&self) -> bool {
        self.waiting.is_changing()
    }

    pub fn is_stale(&self) -> bool {
        self.waiting.is_stale(&self.device.machine)
    }

    pub fn sees_host(&self) -> bool {
        self.waiting.sees_host()
    }

    pub fn sees_others(&self) -> bool {
        self.waiting.sees_others()
    }

    pub fn is_limited(&self) -> bool {
        self.waiting.is_limited()
    }

    pub fn describe(&self) -> String {
        self.waiting.describe(&self.device.machine)
    }
}

impl Todo {
    /// Whether it waits for another process.
    pub fn is_pending(&self) -> bool {
        matches!(&self.step, Step::Await(awaited) if matches!(awaited.look(), Look::Pending))
    }
}

/// What is left of an operation.
#[derive(Default)]
pub(crate) struct Rest {
    /// A launch that waits.
    pub launch: Option<Box<InFlight>>,
    pub todos: VecDeque<Todo>,
}

impl Rest {
    pub fn of(todos: impl IntoIterator<Item = Todo>) -> Rest {
        Rest { launch: None, todos: todos.into_iter().collect() }
    }
}
