//! Launches that take their time, and who is told of them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A launch that takes its time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StillRunning {
    /// The kernel.
    pub kernel: String,
    /// A block and a thread that run.
    pub block: [u32; 3],
    /// The thread in the block.
    pub thread: [u32; 3],
    /// Where it is in the PTX text; 0 if that is not known.
    pub ptx_line: u32,
    /// `file:line` from `.loc`, with the inline chain where the compiler gave one.
    pub source: Option<String>,
    /// Instructions that its warps have executed together.
    pub instructions: u64,
    /// How long it has run.
    pub time: Duration,
}

impl fmt::Display for StillRunning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "still in kernel `{}`", self.kernel)?;
        if let Some(source) = &self.source {
            write!(f, " at {source}")?;
        }
        if self.ptx_line != 0 {
            let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
            write!(f, " (PTX line {}, block ({bx},{by},{bz}), thread ({tx},{ty},{tz}))", self.ptx_line)?;
        }
        write!(f, ": {} instructions in {:.0} s", self.instructions, self.time.as_secs_f64())
    }
}

/// Takes what a machine says about launches that take their time.
pub(crate) type Sink = Arc<dyn Fn(&StillRunning) + Send + Sync>;

/// The line in the PTX text and the source place of a position in the code; 0 and `None` where there is none.
pub(crate) type PlaceOf = Box<dyn Fn(u32) -> (u32, Option<String>) + Send + Sync>;

/// Where a launch stands: a block, a thread of it, and its position in the code.
pub(crate) struct At {
    pub block: [u32; 3],
    pub thread: [u32; 3],
    /// `u32::MAX` if nobody runs.
    pub pc: u32,
}

/// What a launch has done so far, on all the threads that run its blocks.
pub(crate) struct Pulse {
    kernel: String,
    places: PlaceOf,
    sink: Sink,
    began: Instant,
    after: Duration,
    /// When it is told next, in milliseconds since it began; each time is twice the one before.
    due: AtomicU64,
    instructions: AtomicU64,
}

impl Pulse {
    pub(crate) fn new(kernel: &str, places: PlaceOf, after: Duration, sink: Sink) -> Pulse {
        let due = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        Pulse {
            kernel: kernel.to_owned(),
            places,
            sink,
            began: Instant::now(),
            after,
            due: AtomicU64::new(due),
            instructions: AtomicU64::new(0),
        }
    }

    /// The launch waits: whoever has set it aside says so. It is told again when it has run for as long as at first.
    pub(crate) fn waits(&self) {
        let due = self.began.elapsed().saturating_add(self.after);
        self.due.fetch_max(u64::try_from(due.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Adds instructions, and tells of the launch if that is due.
    pub(super) fn beat(&self, instructions: u64, at: impl FnOnce() -> At) {
        let total = self.instructions.fetch_add(instructions, Ordering::Relaxed) + instructions;
        let (time, due) = (self.began.elapsed(), self.due.load(Ordering::Relaxed));
        if time < Duration::from_millis(due) {
            return;
        }
        let next = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1).saturating_mul(2);
        if self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let At { block, thread, pc } = at();
        let (ptx_line, source) = (self.places)(pc);
        let kernel = self.kernel.clone();
        (self.sink)(&StillRunning { kernel, block, thread, ptx_line, source, instructions: total, time });
    }
}
