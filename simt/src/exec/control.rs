//! Control flow, special registers, and what only tells the scheduler something.

use super::lanes::{lane_of, lanes_of, set_lane};
use super::{Cx, Flow, Op};
use crate::fault::{FaultKind, Reason};

/// Goes to `x`.
pub(crate) unsafe fn jump(cx: &mut Cx, op: &Op) -> Flow {
    cx.next = op.x;
    Flow::Jump
}

/// Lanes where `q` holds go to `x`, the others to `c`.
pub(crate) unsafe fn branch(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers: `q` is a predicate of the frame.
    let taken = unsafe { cx.pred(op.q) } & cx.mask;
    cx.counters.branches += 1;
    if taken == cx.mask {
        cx.next = op.x;
        return Flow::Jump;
    }
    if taken == 0 {
        cx.next = op.c;
        return Flow::Jump;
    }
    cx.counters.divergent_branches += 1;
    cx.taken = taken;
    cx.next = op.x;
    Flow::Diverge
}

/// The target of a lane in an indexed branch: the list holds the number of targets and then their positions.
pub(crate) unsafe fn indexed_target(cx: &Cx, op: &Op, lane: usize) -> Option<u32> {
    // SAFETY: the contract of handlers: `a` is a row of 32 bits.
    unsafe {
        let index = lane_of::<u32>(cx.src(op.a), lane);
        (index < cx.list(op, 0)).then(|| cx.list(op, 1 + index as usize))
    }
}

/// `brx.idx`.
pub(crate) unsafe fn branch_indexed(cx: &mut Cx, op: &Op) -> Flow {
    cx.counters.branches += 1;
    let mut target = None;
    let mut differ = false;
    for lane in lanes_of(cx.active) {
        // SAFETY: the contract of handlers.
        match unsafe { indexed_target(cx, op, lane) } {
            None => {
                return cx.raise(op, FaultKind::IllegalInstruction, lane as u32, None, Some(Reason::TargetIndex));
            }
            Some(t) => {
                differ |= target.is_some_and(|seen| seen != t);
                target = Some(t);
            }
        }
    }
    if differ || cx.active != cx.mask {
        cx.counters.divergent_branches += 1;
        return Flow::Scatter;
    }
    cx.next = target.unwrap_or(0);
    Flow::Jump
}

/// `call`: `x` is the call site.
pub(crate) unsafe fn call(cx: &mut Cx, _: &Op) -> Flow {
    cx.counters.calls += 1;
    Flow::Call
}

pub(crate) unsafe fn ret(_: &mut Cx, _: &Op) -> Flow {
    Flow::Ret
}

pub(crate) unsafe fn exit(_: &mut Cx, _: &Op) -> Flow {
    Flow::Exit
}

pub(crate) unsafe fn trap(cx: &mut Cx, op: &Op) -> Flow {
    let lane = cx.active.trailing_zeros() & 31;
    cx.raise(op, FaultKind::Trap, lane, None, None)
}

/// A block barrier; `exec::arrival` reads the operands.
pub(crate) unsafe fn barrier(_: &mut Cx, _: &Op) -> Flow {
    Flow::Barrier
}

/// Checks that row `a` names the only block of the cluster.
pub(crate) unsafe fn own_rank(cx: &mut Cx, op: &Op) -> Flow {
    for lane in lanes_of(cx.active) {
        // SAFETY: the contract of handlers: `a` is a row of 32 bits.
        let rank = unsafe { lane_of::<u32>(cx.src(op.a), lane) };
        if rank != 0 {
            return cx.raise(op, FaultKind::IllegalInstruction, lane as u32, None, Some(Reason::Rank { rank }));
        }
    }
    Flow::Next
}

/// Nothing; stands for instructions without effect here.
pub(crate) unsafe fn nop(_: &mut Cx, _: &Op) -> Flow {
    Flow::Next
}

/// A fence beyond the block: what other processes see, too.
pub(crate) unsafe fn fence(cx: &mut Cx, _: &Op) -> Flow {
    if cx.interprocess {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
    Flow::Next
}

/// Notes that the split does what a spin loop would: a volatile, relaxed or acquiring load, a sleep.
pub(crate) unsafe fn note_sync(cx: &mut Cx, _: &Op) -> Flow {
    cx.sync_seen = true;
    Flow::Next
}

/// Where a block that runs beside those before it waits for its turn.
pub(crate) unsafe fn turn(cx: &mut Cx, _: &Op) -> Flow {
    if cx.early { Flow::Turn } else { Flow::Next }
}

/// `d` = thread index in dimension `imm`; `x` != 0: 64 bits.
pub(crate) unsafe fn thread_index(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers; `tid` points to rows of the warp.
    unsafe {
        let from = cx.tid[(op.imm as usize).min(2)];
        let d = cx.dst(op.d);
        for lane in lanes_of(cx.active) {
            let value = from.add(lane).read();
            if op.x == 0 {
                set_lane::<u32>(d, lane, value);
            } else {
                set_lane::<u64>(d, lane, value.into());
            }
        }
    }
    Flow::Next
}

/// `d` = uniform special register `imm`; `x` != 0: 64 bits.
pub(crate) unsafe fn uniform(cx: &mut Cx, op: &Op) -> Flow {
    let value = cx.uniform.get(op.imm as usize).copied().unwrap_or(0);
    // SAFETY: the contract of handlers.
    unsafe { splat(cx, op, value) };
    Flow::Next
}

/// `d` = instructions that the block has executed; `x` != 0: 64 bits; `imm`: shift, for the upper half.
pub(crate) unsafe fn clock(cx: &mut Cx, op: &Op) -> Flow {
    // A loop that waits for time to pass is not a deadlock.
    cx.progress += 1;
    cx.executed += 1;
    cx.sync_seen = true;
    let value = cx.executed >> (op.imm & 63);
    // SAFETY: the contract of handlers.
    unsafe { splat(cx, op, value) };
    Flow::Next
}

unsafe fn splat(cx: &mut Cx, op: &Op, value: u64) {
    // SAFETY: the contract of handlers: `d` is a row of the width that `x` says.
    unsafe {
        let d = cx.dst(op.d);
        for lane in lanes_of(cx.active) {
            if op.x == 0 {
                set_lane::<u32>(d, lane, value as u32);
            } else {
                set_lane::<u64>(d, lane, value);
            }
        }
    }
}

/// Logic on predicates: `p = f(q, the predicate in x)`, `imm`: 0 and, 1 or, 2 xor.
pub(crate) unsafe fn pred_logic(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers: `x` is a predicate operand.
    unsafe {
        let (a, b) = (cx.pred(op.q), cx.pred(op.x as u16));
        let value = match op.imm {
            0 => a & b,
            1 => a | b,
            _ => a ^ b,
        };
        cx.set_pred(op.p, value);
    }
    Flow::Next
}
