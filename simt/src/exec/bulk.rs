//! Bulk copies: `cp.async.bulk`, `cp.reduce.async.bulk`. They are done at once; waiting for their groups is nothing, and
//! an `mbarrier` that they complete at gets their bytes as they end.
//!
//! **Where addresses are.** The destination: row `op.a` plus `op.imm`, read as the second word of the list says, as
//! for atomics. The source: row `op.b` plus the fifth word of the list (signed), read as the fourth says. Bytes: row
//! `op.c`, of 32 bits. The list: site and [`via`] of the destination, site and `via` of the source, offset of the source,
//! `via` of the mbarrier (or [`NO_BARRIER`]) and its offset, the [`Reduce`] operation (or [`NO_REDUCTION`]) and the bytes of its elements, and the
//! row of the mbarrier's address.

use super::atom::{Reduce, reduce, via};
use super::bounds::{Place, refuse};
use super::lanes::{lane_of, lanes_of};
use super::space::{Global, SHARED_WINDOW, Shared, Space, place_of};
use super::{Cx, Flow, Op, mbarrier};
use crate::fault::FaultKind;
use crate::memory::lookup;

pub(crate) const NO_BARRIER: u32 = u32::MAX;
pub(crate) const NO_REDUCTION: u32 = u32::MAX;

/// Words of the list before the row of the mbarrier's address.
pub(crate) const BARRIER_ROW: usize = 9;

/// The address in a row, as `how` says.
pub(crate) unsafe fn address(cx: &Cx, row: u32, offset: u64, how: u32, lane: usize) -> (Place, u64) {
    // SAFETY: the contract of handlers: `how` says how wide the row is.
    let at = unsafe {
        match how {
            via::SHARED32 => u64::from(lane_of::<u32>(cx.src(row), lane)),
            _ => lane_of::<u64>(cx.src(row), lane),
        }
    };
    let at = at.wrapping_add(offset);
    match how {
        via::GLOBAL => (Place::Global, at),
        via::SHARED32 | via::SHARED64 => (Place::Shared, at),
        _ => match place_of(at) {
            Place::Shared => (Place::Shared, at.wrapping_sub(SHARED_WINDOW)),
            place => (place, at),
        },
    }
}

/// Whether an allocation holds all of a range of global memory.
pub(crate) fn reaches(cx: &Cx, at: u64, bytes: u64) -> bool {
    lookup(&cx.memory, at).is_some_and(|e| bytes <= e.size - (at - e.base))
}

/// Host address and key of a range.
unsafe fn range<const WRITE: bool>(
    cx: &mut Cx,
    site: u32,
    (place, at): (Place, u64),
    bytes: u64,
) -> Option<(*mut u8, u64)> {
    if at & 15 != 0 {
        return None;
    }
    // SAFETY: the site is one of the running program.
    unsafe {
        match place {
            Place::Global => Global::resolve::<WRITE>(cx, site as usize, at, bytes),
            Place::Shared => Shared::<u64>::resolve::<WRITE>(cx, 0, at, bytes),
            _ => None,
        }
    }
}

/// Refuses a range: its start if that is wrong, else its end.
fn refuse_range(cx: &mut Cx, op: &Op, lane: usize, (place, at): (Place, u64), bytes: u64) -> Flow {
    if at & 15 != 0 {
        return refuse(cx, op, place, lane, at, 16, "bulk copy");
    }
    let flow = refuse(cx, op, place, lane, at, 16, "bulk copy");
    if let Some(fault) = &mut cx.fault {
        fault.detail = fault.detail.replace("of 16 bytes", &format!("of {bytes} bytes"));
    }
    flow
}

/// `cp.async.bulk` and `cp.reduce.async.bulk`.
pub(crate) unsafe fn bulk_copy(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers: the module's documentation says what the list holds; ranges are checked.
    unsafe {
        let [to_site, to_via, from_site, from_via] = [0, 1, 2, 3].map(|i| cx.list(op, i));
        let from_offset = cx.list(op, 4) as i32 as i64 as u64;
        let (barrier_via, barrier_offset) = (cx.list(op, 5), cx.list(op, 6) as i32 as i64 as u64);
        let reduction = (cx.list(op, 7), cx.list(op, 8));
        for lane in lanes_of(cx.active) {
            let bytes = u64::from(lane_of::<u32>(cx.src(op.c), lane));
            if bytes % 16 != 0 {
                let detail = format!("a bulk copy moves multiples of 16 bytes, not {bytes}");
                return cx.raise(op, FaultKind::IllegalInstruction, lane as u32, None, detail);
            }
            let to_at = address(cx, op.a, op.imm, to_via, lane);
            let from_at = address(cx, op.b, from_offset, from_via, lane);
            if bytes > 0 {
                let Some((from, from_key)) = range::<false>(cx, from_site, from_at, bytes) else {
                    return refuse_range(cx, op, lane, from_at, bytes);
                };
                let mut data = vec![0u8; bytes as usize];
                from.copy_to_nonoverlapping(data.as_mut_ptr(), data.len());
                data.iter_mut().for_each(|b| *b ^= from_key as u8);
                let Some((to, to_key)) = range::<true>(cx, to_site, to_at, bytes) else {
                    return refuse_range(cx, op, lane, to_at, bytes);
                };
                if reduction.0 != NO_REDUCTION {
                    let mut old = vec![0u8; data.len()];
                    to.copy_to_nonoverlapping(old.as_mut_ptr(), old.len());
                    old.iter_mut().for_each(|b| *b ^= to_key as u8);
                    combine(Reduce::of(reduction.0), reduction.1 as usize, &old, &mut data);
                }
                data.iter_mut().for_each(|b| *b ^= to_key as u8);
                to.copy_from_nonoverlapping(data.as_ptr(), data.len());
            }
            for (place, at, store) in [(from_at.0, from_at.1, false), (to_at.0, to_at.1, true)] {
                let c = &mut cx.counters;
                match (place, store) {
                    (Place::Shared, false) => c.shared_load_bytes += bytes,
                    (Place::Shared, true) => c.shared_store_bytes += bytes,
                    (_, false) => {
                        c.global_load_bytes += bytes;
                        c.global_load_sectors += (at + bytes).div_ceil(32) - at / 32;
                    }
                    (_, true) => {
                        c.global_store_bytes += bytes;
                        c.global_store_sectors += (at + bytes).div_ceil(32) - at / 32;
                    }
                }
                if place == Place::Shared { c.shared_requests += 1 } else { c.global_requests += 1 }
            }
            if barrier_via != NO_BARRIER {
                let at = address(cx, cx.list(op, BARRIER_ROW), barrier_offset, barrier_via, lane);
                if let Some(flow) = mbarrier::complete(cx, op, lane, at, bytes) {
                    return flow;
                }
            }
        }
    }
    cx.progress += 1;
    Flow::Next
}

/// Reduces `new` into `old`, element by element; the result replaces `new`.
fn combine(how: Reduce, size: usize, old: &[u8], new: &mut [u8]) {
    for (old, new) in old.chunks_exact(size).zip(new.chunks_exact_mut(size)) {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |w, &b| w << 8 | u64::from(b));
        let value = reduce(how, word(old), word(new));
        new.copy_from_slice(&value.to_le_bytes()[..size]);
    }
}
