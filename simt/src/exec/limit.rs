//! Long launches: how far they are, and where they are stopped.
//!
//! The executor looks at the clock only when a warp has spun or a block is done, and only every [`STRIDE`] instructions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::block::Grid;
use super::warp::{State, Warp};
use super::{Cx, Op, uniform};
use crate::fault::{FaultKind, Waiter, Waits};
use crate::module::Module;

/// Instructions between two looks at the clock.
const STRIDE: u64 = 1 << 22;
/// Backward jumps beyond the limit that are looked at for the outermost loop.
const SAMPLE: u32 = 1 << 16;

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

/// What a launch has done so far, on all the threads that run its blocks.
pub(crate) struct Pulse {
    module: Arc<Module>,
    kernel: String,
    sink: Sink,
    began: Instant,
    after: Duration,
    /// When it is told next, in milliseconds since it began; each time is twice the one before.
    due: AtomicU64,
    instructions: AtomicU64,
}

impl Pulse {
    pub(crate) fn new(module: Arc<Module>, kernel: &str, after: Duration, sink: Sink) -> Pulse {
        let due = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        Pulse {
            module,
            kernel: kernel.to_owned(),
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
    fn beat(&self, instructions: u64, grid: &Grid<'_>, block: u64, at: Option<(u32, u32, u32)>) {
        let total = self.instructions.fetch_add(instructions, Ordering::Relaxed) + instructions;
        let (time, due) = (self.began.elapsed(), self.due.load(Ordering::Relaxed));
        if time < Duration::from_millis(due) {
            return;
        }
        let next = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1).saturating_mul(2);
        if self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let program = grid.program;
        let (warp, lane, pc) = at.unwrap_or((0, 0, u32::MAX));
        let debug = program.ops.get(pc as usize).and_then(|op| program.debug.get(op.debug as usize));
        let location = debug.and_then(|d| program.locations.get(d.location as usize));
        (self.sink)(&StillRunning {
            kernel: self.kernel.clone(),
            block: grid.coordinates(block),
            thread: grid.thread(warp, lane),
            ptx_line: debug.map_or(0, |d| d.line),
            source: location.map(|l| self.module.source(l)),
            instructions: total,
            time,
        });
    }
}

/// Looks at the clock, if enough has been executed since the last look. `warp` is one that runs.
#[inline]
pub(crate) fn look(cx: &mut Cx, grid: &Grid<'_>, block: u64, warp: Option<&Warp>) {
    if cx.counters.warp_instructions >= cx.look_at {
        look_now(cx, grid, block, warp);
    }
}

#[cold]
fn look_now(cx: &mut Cx, grid: &Grid<'_>, block: u64, warp: Option<&Warp>) {
    let done = cx.counters.warp_instructions;
    let since = done.saturating_sub(cx.looked);
    (cx.looked, cx.look_at) = (done, done.saturating_add(STRIDE));
    if let Some(pulse) = cx.pulse.clone() {
        let ready = |w: &Warp| {
            let split = w.splits.iter().find(|s| s.state == State::Ready)?;
            Some((w.index, split.mask.trailing_zeros() & 31, split.pc))
        };
        pulse.beat(since, grid, block, warp.and_then(ready));
    }
}

/// Backward jumps of a warp that is beyond the limit.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sample {
    jumps: u32,
    warp: u64,
    /// The longest: from where, and where to.
    from: u32,
    to: u32,
}

/// A warp jumps from `pc` back to `next` when the limit has been passed. It goes on until the loop is known in which it is; then
/// this raises the fault.
#[cold]
pub(crate) fn passed(cx: &mut Cx, next: u32, pc: u32) -> bool {
    let warp = cx.uniform[uniform::WARPID];
    let sample = &mut cx.sample;
    if sample.jumps == 0 {
        *sample = Sample { jumps: 0, warp, from: pc, to: next };
    }
    sample.jumps += 1;
    if sample.warp == warp && pc - next > sample.from - sample.to {
        (sample.from, sample.to) = (pc, next);
    }
    let own = sample.warp == warp;
    // The others of the block may be all that still runs.
    if sample.jumps < if own { SAMPLE } else { 2 * SAMPLE } {
        return false;
    }
    let (from, to) = if own { (sample.from, sample.to) } else { (pc, next) };
    let (executed, limit) = (cx.executed, cx.limit);
    let lane = cx.mask.trailing_zeros() & 31;
    // SAFETY: both are positions of a jump that was executed.
    let op: &Op = unsafe { &*cx.code.add(from as usize) };
    let detail = format!("a block has executed {executed} instructions; the limit is {limit}");
    cx.raise(op, FaultKind::InstructionLimit, lane, None, detail);
    let (lanes, does) = (cx.mask, Waits::Spins);
    let waiter = |pc, what: &str| Waiter::new(warp as u32, lanes, pc, does, what.to_owned());
    let waiters = vec![waiter(to, "the loop begins here"), waiter(from, "and goes back from here")];
    if let Some(fault) = &mut cx.fault {
        fault.waiters = waiters;
    }
    true
}
