//! The allocation that a site of the code accesses, and the range in it that its lanes touch.

use warpsmith_simt::machine::lanes::{Lane, lane_of};
use warpsmith_simt::machine::memory::lookup;
use warpsmith_simt::machine::shadow::Shadow;
use warpsmith_simt::machine::space::{Pattern, classify};
use warpsmith_simt::machine::{Cx, LANES, Op};

/// The allocation that a site accessed last.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub base: u64,
    pub size: u64,
    shadow: *const Shadow,
    /// Stores of this launch to it have been noted.
    pub noted: bool,
}

impl Default for Known {
    fn default() -> Known {
        Known { base: 0, size: 0, shadow: std::ptr::null(), noted: false }
    }
}

/// The lowest and the highest of the active lanes' addresses in a row.
#[inline(always)]
unsafe fn extent<T: Lane + Ord>(row: *const u8, active: u32) -> (T, T) {
    // SAFETY: the caller passes a row of such lanes; some lane is active.
    unsafe {
        let first = lane_of::<T>(row, active.trailing_zeros() as usize & 31);
        let (mut lowest, mut highest) = (first, first);
        for lane in 0..LANES {
            let own = lane_of::<T>(row, lane);
            let address = if active >> lane & 1 != 0 { own } else { first };
            lowest = lowest.min(address);
            highest = highest.max(address);
        }
        (lowest, highest)
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn extent_avx2<T: Lane + Ord>(row: *const u8, active: u32) -> (T, T) {
    // SAFETY: by the caller.
    unsafe { extent(row, active) }
}

pub(super) unsafe fn extent_of<T: Lane + Ord>(cx: &Cx, row: *const u8) -> (T, T) {
    #[cfg(target_arch = "x86_64")]
    if warpsmith_simt::machine::lanes::simd() {
        // SAFETY: `simd` says that the feature is there; the row is the caller's.
        return unsafe { extent_avx2(row, cx.active) };
    }
    // SAFETY: by the caller.
    unsafe { extent(row, cx.active) }
}

/// The range of shared memory that an access with its addresses in a row of 32 bits touches: its start and its length.
pub(super) unsafe fn shared_extent(cx: &Cx, op: &Op, bytes: u64) -> (u64, u64) {
    // SAFETY: by the caller.
    let (lowest, highest) = unsafe { extent_of::<u32>(cx, cx.src(op.a)) };
    (u64::from(lowest).wrapping_add(op.imm), u64::from(highest - lowest) + bytes)
}

/// The range that an access with its addresses in a row of 64 bits touches: its start and its length.
#[inline(always)]
pub(super) unsafe fn range_of(cx: &Cx, op: &Op, bytes: u64) -> (u64, u64) {
    // SAFETY: by the caller.
    unsafe {
        let row = cx.src(op.a);
        #[cfg(target_arch = "x86_64")]
        let pattern = if warpsmith_simt::machine::lanes::simd() {
            classify_avx2(row, cx.active, op.imm, bytes)
        } else {
            classify::<u64, false>(row, cx.active, op.imm, bytes)
        };
        #[cfg(not(target_arch = "x86_64"))]
        let pattern = classify::<u64, false>(row, cx.active, op.imm, bytes);
        match pattern {
            Pattern::Linear(first) => (first, 32 * bytes),
            Pattern::Same(first) => (first, bytes),
            Pattern::Mixed => {
                let (lowest, highest) = extent_of::<u64>(cx, row);
                (lowest.wrapping_add(op.imm), highest - lowest + bytes)
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn classify_avx2(row: *const u8, active: u32, offset: u64, bytes: u64) -> Pattern {
    // SAFETY: by the caller, who has looked for the feature.
    unsafe { classify::<u64, true>(row, active, offset, bytes) }
}

/// The bits of the allocation at a global address, and the offset in it; `None`: everything there is defined.
pub(super) fn global<'a>(sites: &mut [Known], cx: &'a Cx, site: u32, address: u64) -> Option<(&'a Shadow, u64)> {
    let known = sites.get_mut(site as usize)?;
    if address.wrapping_sub(known.base) >= known.size {
        let entry = lookup(&cx.memory, address)?;
        *known = Known {
            base: entry.base,
            size: entry.size,
            shadow: entry.shadow().map_or(std::ptr::null(), std::ptr::from_ref),
            noted: false,
        };
    }
    // SAFETY: the context's snapshot of the allocation table keeps the shadow alive: when that changes, what is known is
    // forgotten (`init::forget`).
    let shadow = unsafe { known.shadow.as_ref() }?;
    Some((shadow, address - known.base))
}
