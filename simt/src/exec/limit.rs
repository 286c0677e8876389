//! Long launches: how far they are, and where they are stopped.
//!
//! The executor looks at the clock only when a warp has spun or a block is done, and only every [`STRIDE`] instructions.

use super::context::Sample;
use super::progress::At;
use super::warp::{State, Warp};
use super::{Cx, Op, uniform};
use crate::fault::{FaultKind, Reason, Waiter, Waits};
use crate::program::Grid;

/// Instructions between two looks at the clock.
const STRIDE: u64 = 1 << 22;
/// Backward jumps beyond the limit that are looked at for the outermost loop.
const SAMPLE: u32 = 1 << 16;

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
        pulse.beat(since, || {
            let (warp, lane, pc) = warp.and_then(ready).unwrap_or((0, 0, u32::MAX));
            At { block: grid.coordinates(block), thread: grid.thread(warp, lane), pc }
        });
    }
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
    cx.raise(op, FaultKind::InstructionLimit, lane, None, Some(Reason::Instructions { executed, limit }));
    let lanes = cx.mask;
    let waiter = |pc, does| Waiter::new(warp as u32, lanes, pc, does);
    let waiters = vec![waiter(to, Waits::LoopBegins), waiter(from, Waits::LoopEnds)];
    if let Some(fault) = &mut cx.fault {
        fault.waiters = waiters;
    }
    true
}
