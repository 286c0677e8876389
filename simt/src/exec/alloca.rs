//! `alloca`, `stacksave` and `stackrestore`: the handlers of the [`stack`](super::stack).

use super::lanes::{lane_of, lanes_of, set_lane};
use super::stack::MOST;
use super::{Cx, Flow, Op};
use crate::fault::{FaultKind, Reason};

/// `alloca`: row `d` (64 bits, or 32 if `x` is 0) gets the local address of row `a` bytes (of the same width), aligned to `imm`.
pub(crate) unsafe fn alloca(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers; the stack is that of the running warp.
    unsafe {
        for lane in lanes_of(cx.active) {
            let wide = op.x != 0;
            let bytes =
                if wide { lane_of::<u64>(cx.src(op.a), lane) } else { lane_of::<u32>(cx.src(op.a), lane).into() };
            match (*cx.stack).take(lane, bytes, op.imm) {
                Ok(address) => put(cx, op, lane, address),
                Err(used) => {
                    let reason = Reason::Alloca { bytes, most: MOST, used };
                    return cx.raise(op, FaultKind::StackOverflow, lane as u32, None, Some(reason));
                }
            }
        }
    }
    Flow::Next
}

unsafe fn put(cx: &mut Cx, op: &Op, lane: usize, value: u64) {
    // SAFETY: the contract of handlers: `d` has the width that `x` says.
    unsafe {
        if op.x == 0 {
            set_lane::<u32>(cx.dst(op.d), lane, value as u32);
        } else {
            set_lane::<u64>(cx.dst(op.d), lane, value);
        }
    }
}

/// `stacksave`: row `d` (64 bits, or 32 if `x` is 0) gets the stack pointer.
pub(crate) unsafe fn save(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers; the stack is that of the running warp.
    unsafe {
        for lane in lanes_of(cx.active) {
            let value = (*cx.stack).pointer(lane);
            put(cx, op, lane, value);
        }
    }
    Flow::Next
}

/// `stackrestore`: the stack pointer becomes what row `a` says.
pub(crate) unsafe fn restore(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers; the stack is that of the running warp.
    unsafe {
        for lane in lanes_of(cx.active) {
            let value =
                if op.x == 0 { lane_of::<u32>(cx.src(op.a), lane).into() } else { lane_of::<u64>(cx.src(op.a), lane) };
            if !(*cx.stack).restore(lane, value) {
                let reason = Some(Reason::StackRestore { value });
                return cx.raise(op, FaultKind::IllegalInstruction, lane as u32, None, reason);
            }
        }
    }
    Flow::Next
}
