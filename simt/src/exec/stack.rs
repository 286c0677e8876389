//! `alloca`: local memory of a thread that grows at run time.
//!
//! It has a window of its own in the local space, above all frames, so that frames need not move. What a function
//! took is given back when it returns: lowering saves and restores the stack pointer around it.

use super::lanes::{lane_of, lanes_of, set_lane};
use super::warp::{POISON_ROW, Row};
use super::{Cx, Flow, LANES, Op};
use crate::fault::FaultKind;

/// Local address of the first byte.
pub(crate) const START: u64 = 1 << 20;
/// Bytes of a thread.
const MOST: u64 = 512 << 10;

/// The stacks of a warp's threads: word `w` of lane `l` is word `32 w + l`, as in the rest of local memory.
#[derive(Default)]
pub(crate) struct Stack {
    rows: Vec<Row>,
    /// Bytes in use.
    top: [u64; LANES],
}

impl Stack {
    /// Gives all of it back.
    pub(crate) fn clear(&mut self) {
        self.top = [0; LANES];
    }

    /// Host address of a byte of a lane, if `bytes` bytes from there are its own.
    pub(crate) fn at(&mut self, lane: usize, address: u64, bytes: u64) -> Option<*mut u8> {
        let offset = address.checked_sub(START)?;
        let top = *self.top.get(lane)?;
        let row = self.rows.get_mut((offset / 4) as usize)?;
        let inside = offset < top && bytes <= top - offset;
        // SAFETY: the row has a word for each lane, and the offset is below 4.
        inside.then(|| unsafe { row.0.as_mut_ptr().cast::<u8>().add(lane * 4 + (offset & 3) as usize) })
    }
}

/// `alloca`: row `d` (64 bits, or 32 if `x` is 0) gets the local address of row `a` bytes (of the same width), aligned to `imm`.
pub(crate) unsafe fn alloca(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers; the stack is that of the running warp.
    unsafe {
        for lane in lanes_of(cx.active) {
            let wide = op.x != 0;
            let bytes =
                if wide { lane_of::<u64>(cx.src(op.a), lane) } else { lane_of::<u32>(cx.src(op.a), lane).into() };
            let stack = &mut *cx.stack;
            let start = stack.top[lane].next_multiple_of(op.imm.max(1));
            let end = start.saturating_add(bytes);
            if end > MOST {
                let detail = format!("alloca of {bytes} bytes; a thread has {MOST}, of which {start} are in use");
                return cx.raise(op, FaultKind::StackOverflow, lane as u32, None, detail);
            }
            let rows = (end as usize).div_ceil(4);
            if stack.rows.len() < rows {
                stack.rows.resize(rows, POISON_ROW);
            }
            let fresh = (start / 4) as usize..rows;
            stack.rows[fresh].iter_mut().for_each(|r| r.0[lane] = POISON_ROW.0[lane]);
            stack.top[lane] = end;
            put(cx, op, lane, START + start);
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
            let value = START + (*cx.stack).top[lane];
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
            let top = (*cx.stack).top[lane];
            match value.checked_sub(START) {
                Some(offset) if offset <= top => (&mut *cx.stack).top[lane] = offset,
                _ => {
                    let detail = format!("stackrestore of {value:#x}, which no stacksave gave");
                    return cx.raise(op, FaultKind::IllegalInstruction, lane as u32, None, detail);
                }
            }
        }
    }
    Flow::Next
}
