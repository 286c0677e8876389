//! The engine: its devices, the tables behind their lock, and waiting for the work that they tell of.

use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::device::Device;
use super::objects::Ticket;
use super::state::State;
use crate::codes::{Code, Res};
use crate::lock::lock;
use crate::software::checks::is_acting;
use crate::software::thread;

/// The engine: its devices, and the tables of everything that callers hold.
pub(crate) struct Software {
    pub devices: &'static [Device],
    pub state: Mutex<State>,
    /// Something that an engine thread or a call that waits may look for has happened to the tables.
    pub changed: Condvar,
    pub sm: u32,
    /// How long a kernel runs or waits before somebody is told.
    pub progress: Duration,
}

static SOFTWARE: OnceLock<Software> = OnceLock::new();

/// Makes it the engine of the process, once.
pub(crate) fn install(software: Software) {
    // The choice of an engine is made once, under a lock of its own.
    let _ = SOFTWARE.set(software);
}

/// The engine that runs; its functions are only reached while it does.
pub(crate) fn engine() -> Res<&'static Software> {
    SOFTWARE.get().ok_or(Code::NOT_INITIALIZED)
}

/// Runs `f` on the tables. Nothing that calls back into the API may run in it.
pub(crate) fn with<R>(f: impl FnOnce(&mut State, &'static Software) -> Res<R>) -> Res<R> {
    let software = engine()?;
    f(&mut lock(&software.state), software)
}

/// Runs `f` on the tables with the calling thread's context, which must be alive and without error.
pub(crate) fn with_context<R>(f: impl FnOnce(&mut State, &'static Software, u64) -> Res<R>) -> Res<R> {
    with(|state, software| {
        let context = state.usable_context()?;
        f(state, software, context)
    })
}

/// Waits for operations that did not run in the calls that issued them; not for what waits for the host.
pub(crate) fn settled() {
    if let Ok(engine) = engine() {
        engine.settled();
    }
}

impl Software {
    pub fn sm(&self) -> u32 {
        self.sm
    }

    pub fn device(&self, ordinal: i32) -> Res<&'static Device> {
        usize::try_from(ordinal).ok().and_then(|at| self.devices.get(at)).ok_or(Code::INVALID_DEVICE)
    }

    /// Waits until these tasks are done.
    pub(crate) fn wait(&self, tickets: &[Ticket]) {
        let mut state = lock(&self.state);
        let done = |state: &State| state.queue.over || tickets.iter().all(|t| state.queue.is_done(*t));
        if done(&state) {
            return;
        }
        state.queue.waiting += 1;
        self.changed.notify_all();
        while !done(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.queue.waiting -= 1;
    }

    /// Waits until only host functions run, and kernels that wait for the host.
    pub(crate) fn settled(&self) {
        if is_acting() || thread::in_callback() {
            return;
        }
        let mut state = lock(&self.state);
        while state.queue.is_active() && !state.queue.over {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends what is left of a context's work: what can run does, what waits is given up.
    pub(crate) fn close(&self, context: u64) {
        let mut state = lock(&self.state);
        let busy = |state: &State| !state.queue.over && !state.queue.of_contexts(|c| c == context).is_empty();
        if !busy(&state) {
            return;
        }
        state.queue.closing.insert(context);
        self.changed.notify_all();
        while busy(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.queue.closing.remove(&context);
    }
}
