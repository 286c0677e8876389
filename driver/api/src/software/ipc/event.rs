//! Events that processes share.
//!
//! A record gets the next number of the event when it is issued, and notes it as passed when what is in front of it is done. Who waits,
//! in whatever process, waits for the last number that there was when it was told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::platform::{is_alive, me};
use super::{Handle, Kind, Refusal, Segment};
use crate::codes::{Code, Res};

/// An event with `CU_EVENT_INTERPROCESS`.
pub(crate) struct SharedEvent {
    segment: Segment,
    imported: bool,
    /// The last record of this process.
    mine: AtomicU64,
}

/// A record that has been issued. Dropped before it is passed, it has been given up.
pub(crate) struct Mark {
    event: Arc<SharedEvent>,
    number: u64,
    passed: bool,
}

/// What is waited for: a record of another process.
pub(crate) struct Awaited {
    event: Arc<SharedEvent>,
    number: u64,
}

/// How it stands.
pub(crate) enum Look {
    Passed,
    Pending,
    /// It never will be passed, and why.
    Lost(&'static str),
}

impl SharedEvent {
    pub fn new() -> Result<Arc<SharedEvent>, Refusal> {
        Ok(Arc::new(SharedEvent { segment: Segment::new(Kind::Event, 0)?, imported: false, mine: AtomicU64::new(0) }))
    }

    pub fn open(handle: &Handle) -> Result<Arc<SharedEvent>, Refusal> {
        Ok(Arc::new(SharedEvent { segment: Segment::open(handle)?, imported: true, mine: AtomicU64::new(0) }))
    }

    /// The handle that other processes open it by; those that have it have no right to.
    pub fn handle(&self) -> Res<Handle> {
        if self.imported { Err(Code::INVALID_HANDLE) } else { Ok(self.segment.handle()) }
    }

    /// Fails if the process that has made it has destroyed it.
    pub fn check(&self) -> Res {
        if self.imported && self.segment.freed() { Err(Code::INVALID_HANDLE) } else { Ok(()) }
    }

    pub fn record(self: &Arc<Self>) -> Mark {
        let marks = self.segment.marks();
        marks.recorder.store(me(), Ordering::Release);
        let number = marks.recorded.fetch_add(1, Ordering::AcqRel) + 1;
        self.mine.fetch_max(number, Ordering::AcqRel);
        Mark { event: Arc::clone(self), number, passed: false }
    }

    /// Whether another process was the last to record it.
    pub fn is_foreign(&self) -> bool {
        self.segment.marks().recorded.load(Ordering::Acquire) != self.mine.load(Ordering::Acquire)
    }

    /// The record of another process that who waits for the event has to wait for.
    pub fn awaited(self: &Arc<Self>) -> Option<Awaited> {
        let number = self.segment.marks().recorded.load(Ordering::Acquire);
        let awaited = Awaited { event: Arc::clone(self), number };
        (self.is_foreign() && !matches!(awaited.look(), Look::Passed)).then_some(awaited)
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        if !self.imported {
            self.segment.free();
        }
    }
}

impl Mark {
    /// What is in front of the record is done.
    pub fn pass(mut self) {
        self.event.segment.marks().passed.fetch_max(self.number, Ordering::AcqRel);
        self.passed = true;
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if !self.passed {
            self.event.segment.marks().given_up.fetch_max(self.number, Ordering::AcqRel);
        }
    }
}

impl Awaited {
    pub fn look(&self) -> Look {
        let marks = self.event.segment.marks();
        let passed = || marks.passed.load(Ordering::Acquire) >= self.number;
        if passed() {
            return Look::Passed;
        }
        let alive = is_alive(marks.recorder.load(Ordering::Acquire));
        let given_up = marks.given_up.load(Ordering::Acquire) >= self.number;
        match () {
            // A process may have passed it meanwhile, and ended.
            () if passed() => Look::Passed,
            () if given_up => Look::Lost("the process that recorded it gave up the work in front of it"),
            () if !alive => Look::Lost("the process that recorded it has ended"),
            () => Look::Pending,
        }
    }
}
