//! Bulk copies: `cp.async.bulk`, `cp.reduce.async.bulk`. They are done at once; waiting for their groups is nothing, and
//! an `mbarrier` that they complete at gets their bytes as they end.
//!
//! **Where addresses are.** In rows `op.a` and `op.b`, read as the list ([`Bulk`]) says. Bytes: row `op.c`, of 32 bits.

use super::atom::{Reduce, reduce, reduce_together, via};
use super::bounds::{Place, refuse_aligned};
use super::lanes::{lane_of, lanes_of};
use super::layout::SHARED_WINDOW;
use super::space::{Global, Shared, Space, place_of};
use super::words::{Bulk, Words};
use super::{Cx, Flow, Op, mbarrier};
use crate::fault::{AccessKind, FaultKind, Reason};
use crate::memory::lookup;

pub const NO_BARRIER: u32 = u32::MAX;
pub const NO_REDUCTION: u32 = u32::MAX;

/// The address in a row, as `how` says.
pub unsafe fn address(cx: &Cx, row: u32, offset: u64, how: u32, lane: usize) -> (Place, u64) {
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
pub fn reaches(cx: &Cx, at: u64, bytes: u64) -> bool {
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
fn refuse_range(cx: &mut Cx, op: &Op, lane: usize, at: (Place, u64), bytes: u64) -> Flow {
    let bytes = if at.1 & 15 != 0 { 16 } else { bytes };
    refuse_aligned(cx, op, lane, at, bytes, 16, AccessKind::BulkCopy)
}

/// Where a lane's copy goes, and where it comes from.
///
/// # Safety
/// The contract of handlers; the list is the operation's.
pub unsafe fn ends(cx: &Cx, op: &Op, list: &Bulk, lane: usize) -> ((Place, u64), (Place, u64)) {
    // SAFETY: by the contract.
    unsafe {
        let to = address(cx, op.a, op.imm, list.to.via, lane);
        (to, address(cx, op.b, list.from_offset.bits(), list.from.via, lane))
    }
}

/// The mbarrier that is told of a lane's copy.
///
/// # Safety
/// As for [`ends`].
pub unsafe fn barrier(cx: &Cx, op: &Op, list: &Bulk, lane: usize) -> Option<(Place, u64)> {
    // SAFETY: by the contract.
    let at = || unsafe { address(cx, Bulk::row(cx, op, 0), list.barrier_offset.bits(), list.barrier_via, lane) };
    (list.barrier_via != NO_BARRIER).then(at)
}

/// Which bytes of each 16 a lane's copy writes: a bit for each.
///
/// # Safety
/// As for [`ends`].
pub unsafe fn mask(cx: &Cx, op: &Op, list: &Bulk, lane: usize) -> u16 {
    if !list.masked {
        return !0;
    }
    // SAFETY: by the contract; the row of the mask is behind that of the mbarrier.
    unsafe { lane_of::<u32>(cx.src(Bulk::row(cx, op, 1)), lane) as u16 }
}

/// The parts of a copy that a mask lets through, in order: where each begins, and how many bytes it has.
pub fn parts(bytes: u64, mask: u16) -> impl Iterator<Item = (u64, u64)> {
    let whole = (mask == !0 && bytes > 0).then_some((0, bytes));
    let units = if mask == !0 { 0 } else { bytes / 16 };
    let of_unit = move |unit: u64| {
        let mut left = mask;
        std::iter::from_fn(move || {
            let first = left.trailing_zeros();
            let count = (left >> first.min(15)).trailing_ones();
            // What is added to the lowest bit of a run of ones carries over it.
            left &= left.wrapping_add(1u16.checked_shl(first)?);
            Some((16 * unit + u64::from(first), u64::from(count)))
        })
    };
    whole.into_iter().chain((0..units).flat_map(of_unit))
}

/// `cp.async.bulk` and `cp.reduce.async.bulk`.
pub unsafe fn bulk_copy(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers: the list is a `Bulk`; ranges are checked.
    unsafe {
        let list = Bulk::of(cx, op);
        for lane in lanes_of(cx.active) {
            let bytes = u64::from(lane_of::<u32>(cx.src(op.c), lane));
            if bytes % 16 != 0 {
                let reason = Some(Reason::CopySize { bytes, unit: 16 });
                return cx.raise(op, FaultKind::IllegalInstruction, lane as u32, None, reason);
            }
            let (to_at, from_at) = ends(cx, op, &list, lane);
            let mask = mask(cx, op, &list, lane);
            if bytes > 0 {
                let Some((from, from_key)) = range::<false>(cx, list.from.site, from_at, bytes) else {
                    return refuse_range(cx, op, lane, from_at, bytes);
                };
                let mut data = vec![0u8; bytes as usize];
                from.copy_to_nonoverlapping(data.as_mut_ptr(), data.len());
                data.iter_mut().for_each(|b| *b ^= from_key as u8);
                let Some((to, to_key)) = range::<true>(cx, list.to.site, to_at, bytes) else {
                    return refuse_range(cx, op, lane, to_at, bytes);
                };
                let (reduces, element) = (list.reduction != NO_REDUCTION, list.element as usize);
                if reduces && cx.interprocess && to_at.0 == Place::Global {
                    reduce_together(Reduce::of(list.reduction), element, to, to_key, &data);
                } else {
                    if reduces {
                        let mut old = vec![0u8; data.len()];
                        to.copy_to_nonoverlapping(old.as_mut_ptr(), old.len());
                        old.iter_mut().for_each(|b| *b ^= to_key as u8);
                        combine(Reduce::of(list.reduction), element, &old, &mut data);
                    }
                    data.iter_mut().for_each(|b| *b ^= to_key as u8);
                    for (first, count) in parts(bytes, mask) {
                        let at = first as usize;
                        to.add(at).copy_from_nonoverlapping(data[at..].as_ptr(), count as usize);
                    }
                }
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
                        c.global_store_bytes += bytes / 16 * u64::from(mask.count_ones());
                        c.global_store_sectors += (at + bytes).div_ceil(32) - at / 32;
                    }
                }
                if place == Place::Shared { c.shared_requests += 1 } else { c.global_requests += 1 }
            }
            if let Some(at) = barrier(cx, op, &list, lane)
                && let Some(flow) = mbarrier::complete(cx, op, lane, at, bytes)
            {
                return flow;
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

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn parts_are_the_bytes_of_the_mask() {
        for mask in 0..=u16::MAX {
            let got: Vec<u64> = parts(48, mask).flat_map(|(first, count)| first..first + count).collect();
            let want: Vec<u64> = (0..48).filter(|b| mask >> (b % 16) & 1 == 1).collect();
            assert_eq!(got, want, "{mask:#x}");
        }
        assert_eq!(parts(48, 0x0ff0).collect::<Vec<_>>(), [(4, 8), (20, 8), (36, 8)]);
        assert_eq!((parts(48, !0).collect::<Vec<_>>(), parts(0, !0).count()), (vec![(0, 48)], 0));
    }
}
