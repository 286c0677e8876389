//! Where the bits of bytes lie: global memory in its allocation, shared memory in the block, local memory in the warp.

use super::report::{Origin, Past};
use super::{BlockInit, warp};
use crate::checker::Checker;
use crate::place::Place;
use warpsmith_simt::machine::lanes::{Lane, lane_of};
use warpsmith_simt::machine::memory::lookup;
use warpsmith_simt::machine::shadow::{Shadow, low};
use warpsmith_simt::machine::space::{Pattern, classify};
use warpsmith_simt::machine::{Cx, LANES, Op};

/// The allocation that a site accessed last.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub base: u64,
    pub size: u64,
    shadow: *const Shadow,
    /// Stores of this launch to it have been noted.
    noted: bool,
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

/// The defined bytes of a lane's access, one bit each.
#[allow(clippy::too_many_arguments)]
pub(super) fn get(
    block: &BlockInit,
    sites: &mut [Known],
    cx: &Cx,
    site: u32,
    place: Place,
    at: u64,
    n: u64,
    lane: usize,
) -> u64 {
    match place {
        Place::Global => global(sites, cx, site, at).map_or(low(n), |(shadow, at)| shadow.get(at, n)),
        Place::Shared => block.shared(at, n),
        Place::Local => {
            let Some(w) = block.warps.get(warp(cx)) else { return low(n) };
            let nibble = |word: u64| w.local.get(word as usize * LANES + lane).map_or(15, |&m| u64::from(!m & 15));
            let (first, last) = (at / 4, (at + n - 1) / 4);
            let bits = (first..=last).fold(0, |m, word| m | nibble(word) << (4 * (word - first)));
            bits >> (at & 3) & low(n)
        }
        Place::Other => low(n),
    }
}

/// What a lane's access leaves in memory.
pub(super) struct Left {
    pub site: u32,
    pub pc: u32,
    pub place: Place,
    pub at: u64,
    pub bytes: u64,
    pub lane: usize,
    /// Which of the bytes are defined, and where the others came from.
    pub bits: u64,
    pub origin: u32,
}

/// Sets the defined bytes of a lane's access.
pub(super) fn set(c: &mut Checker, cx: &Cx, left: &Left) {
    let &Left { site, pc, place, at, bytes, lane, bits, origin } = left;
    let missing = bits & low(bytes) != low(bytes);
    match place {
        Place::Global => {
            let thread = (c.block.index, warp(cx) as u32, lane as u32);
            note_writer(c, cx, site, at, pc, thread);
            let Some((shadow, at)) = global(&mut c.init.sites, cx, site, at) else { return };
            let story = if missing { c.init.origins.stored(c.init.program(), origin, pc, thread) } else { 0 };
            shadow.put(at, bytes, bits, story);
        }
        Place::Shared => c.block.init.set_shared(at, bytes, bits, origin),
        Place::Local => {
            let Some(w) = c.block.init.warps.get_mut(warp(cx)) else { return };
            w.set_local(at, bytes, lane, bits, origin);
        }
        Place::Other => {}
    }
}

/// Notes that the launch stores to the allocation at an address, the first time that a site does.
pub(super) fn note_writer(c: &mut Checker, cx: &Cx, site: u32, at: u64, pc: u32, thread: (u64, u32, u32)) {
    let program = c.init.program();
    if let Some((shadow, _)) = global(&mut c.init.sites, cx, site, at) {
        let writer = shadow;
        if c.init.sites.get(site as usize).is_some_and(|k| !k.noted) {
            writer.written(c.init.origins.wrote(program, pc, thread));
            if let Some(known) = c.init.sites.get_mut(site as usize) {
                known.noted = true;
            }
        }
    }
}

/// Records that a lane's load at `pc` brings undefined bytes; the number of their origin.
pub(super) fn brought(
    c: &mut Checker,
    cx: &Cx,
    pc: u32,
    site: u32,
    load: (Place, u64, u64, usize),
    missing: u64,
) -> u32 {
    let (place, address, bytes, lane) = load;
    let first = address.wrapping_add(u64::from(missing.trailing_zeros()));
    let past = match place {
        Place::Global => match global(&mut c.init.sites, cx, site, first).map_or(0, |(shadow, at)| shadow.story(at)) {
            0 => Past::Unwritten,
            number => Past::Told(number),
        },
        Place::Shared => c.block.init.past_of_shared(first),
        Place::Local => c.block.init.warps.get(warp(cx)).map_or(Past::Unwritten, |w| w.past_of_local(first, lane)),
        Place::Other => Past::Unwritten,
    };
    let thread = (c.block.index, warp(cx) as u32, lane as u32);
    c.init.origins.add(Origin { pc, thread, place, address, bytes, missing, past })
}

/// Bits of bytes, widened to bits of bits.
pub(super) fn widened(bytes: u64) -> u64 {
    (0..8).filter(|i| bytes >> i & 1 != 0).fold(0, |m, i| m | 0xff << (8 * i))
}

/// Bits of bits, a byte being undefined if one of its bits is.
pub(super) fn narrowed(bits: u64) -> u64 {
    (0..8).filter(|i| bits >> (8 * i) & 0xff != 0).fold(0, |m, i| m | 1 << i)
}
