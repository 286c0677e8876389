//! `st.bulk`: a thread sets a range of shared memory to zero.
//!
//! **Where the range is.** Row `op.a` plus `op.imm`, read as the list ([`Via`]) says. Bytes: row `op.b`, of 64 bits.

use super::bounds::refuse_aligned;
use super::bulk::address;
use super::lanes::{lane_of, lanes_of};
use super::space::{Shared, Space};
use super::words::{Via, Words};
use super::{Cx, Flow, Op};
use crate::fault::{AccessKind, FaultKind, Place, Reason};

/// Bytes that one thread sets at most, and of which their number and their address are multiples.
const MOST: u64 = 16 << 20;
const UNIT: u64 = 8;

/// The range that a lane sets: where it begins, and its bytes.
///
/// # Safety
/// The contract of handlers: the operation is `fill`.
pub unsafe fn range(cx: &Cx, op: &Op, lane: usize) -> ((Place, u64), u64) {
    // SAFETY: by the contract, the list is a `Via`, and `b` is a row of 64 bits.
    unsafe { (address(cx, op.a, op.imm, Via::of(cx, op).via, lane), lane_of::<u64>(cx.src(op.b), lane)) }
}

/// `st.bulk`.
pub unsafe fn fill(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers; `resolve` vouches for the range that it returns.
    unsafe {
        for lane in lanes_of(cx.active) {
            let ((place, at), bytes) = range(cx, op, lane);
            if bytes % UNIT != 0 || bytes > MOST {
                let reason = Reason::FillSize { bytes, unit: UNIT, most: MOST };
                return cx.raise(op, FaultKind::IllegalInstruction, lane as u32, Some(at), Some(reason));
            }
            if bytes == 0 {
                continue;
            }
            let inside = place == Place::Shared && at % UNIT == 0;
            let Some((host, _)) = (if inside { Shared::<u64>::resolve::<true>(cx, 0, at, bytes) } else { None }) else {
                return refuse_aligned(cx, op, lane, (place, at), bytes, UNIT, AccessKind::BulkStore);
            };
            host.write_bytes(0, bytes as usize);
            cx.counters.shared_store_bytes += bytes;
        }
    }
    cx.counters.shared_requests += 1;
    cx.progress += 1;
    Flow::Next
}
