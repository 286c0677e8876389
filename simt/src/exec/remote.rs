//! `st.async` and `red.async`: stores and reductions that complete at an mbarrier, as bulk copies do. They are for the
//! shared memory of a cluster, which is one block here, and are done at once.
//!
//! **Where addresses are.** The destination: row `op.a` plus `op.imm`, as for atomics; the rest is in the list ([`StoreAsync`]).

use super::atom::{Reduce, reduce};
use super::bounds::{Place, refuse};
use super::bulk::{NO_REDUCTION, address};
use super::lanes::{lane_of, lanes_of};
use super::space::{Shared, Space};
use super::words::{StoreAsync, Words};
use super::{Cx, Flow, Op, mbarrier};
use crate::fault::AccessKind;

/// The row of element `j`; that of the mbarrier's address stands before them.
///
/// # Safety
/// The contract of handlers: the operation is `store_async` of as many elements.
pub unsafe fn element(cx: &Cx, op: &Op, j: usize) -> u32 {
    // SAFETY: by the contract.
    unsafe { StoreAsync::row(cx, op, 1 + j) }
}

/// What one lane stores.
#[derive(Clone, Copy)]
pub struct Target {
    pub to: (Place, u64),
    pub size: u64,
    pub count: u64,
    pub barrier: (Place, u64),
    pub reduction: u32,
}

impl Target {
    /// # Safety
    /// The contract of handlers: the operation is [`store_async`].
    pub unsafe fn of(cx: &Cx, op: &Op, lane: usize) -> Target {
        // SAFETY: by the contract, the list is as the module's documentation says.
        unsafe {
            let list = StoreAsync::of(cx, op);
            let barrier = StoreAsync::row(cx, op, 0);
            Target {
                to: address(cx, op.a, op.imm, list.at.via, lane),
                size: list.size.into(),
                count: list.count.into(),
                barrier: address(cx, barrier, list.barrier_offset.bits(), list.barrier_via, lane),
                reduction: list.reduction,
            }
        }
    }

    pub fn bytes(&self) -> u64 {
        self.size * self.count
    }

    pub fn reduces(&self) -> bool {
        self.reduction != NO_REDUCTION
    }
}

/// `st.async`, `red.async`.
pub unsafe fn store_async(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers; `resolve` vouches for the range that it returns.
    unsafe {
        for lane in lanes_of(cx.active) {
            let target = Target::of(cx, op, lane);
            let ((place, at), bytes) = (target.to, target.bytes());
            let inside = place == Place::Shared && at % bytes == 0;
            let Some((host, _)) = (if inside { Shared::<u64>::resolve::<true>(cx, 0, at, bytes) } else { None }) else {
                return refuse(cx, op, place, lane, at, bytes, AccessKind::AsyncStore);
            };
            for j in 0..target.count as usize {
                let row = cx.src(element(cx, op, j));
                let value = if target.size == 8 { lane_of::<u64>(row, lane) } else { lane_of::<u32>(row, lane).into() };
                let host = host.add(j * target.size as usize);
                let mut old = [0u8; 8];
                host.copy_to_nonoverlapping(old.as_mut_ptr(), target.size as usize);
                let new = match target.reduces() {
                    true => reduce(Reduce::of(target.reduction), u64::from_le_bytes(old), value),
                    false => value,
                };
                host.copy_from_nonoverlapping(new.to_le_bytes().as_ptr(), target.size as usize);
            }
            cx.counters.shared_store_bytes += bytes;
            if let Some(flow) = mbarrier::complete(cx, op, lane, target.barrier, bytes) {
                return flow;
            }
        }
    }
    cx.counters.shared_requests += 1;
    cx.progress += 1;
    Flow::Next
}
