//! The defined bytes of memory, one bit each: global memory has them in its allocation, shared memory in the block, local
//! memory in the warp.

use super::allocation::{Known, global};
use super::origins::{Origin, Provenance};
use super::state::{BlockInit, InitCheck, warp};
use crate::place::Place;
use warpsmith_simt::machine::shadow::low;
use warpsmith_simt::machine::{Cx, LANES};

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
pub(super) fn set(c: &mut InitCheck<'_>, cx: &Cx, left: &Left) {
    let &Left { site, pc, place, at, bytes, lane, bits, origin } = left;
    let missing = bits & low(bytes) != low(bytes);
    match place {
        Place::Global => {
            let thread = (c.index, warp(cx) as u32, lane as u32);
            note_writer(c, cx, site, at, pc, thread);
            let Some((shadow, at)) = global(&mut c.launch.sites, cx, site, at) else { return };
            let story = if missing { c.launch.origins.stored(c.launch.program(), origin, pc, thread) } else { 0 };
            shadow.put(at, bytes, bits, story);
        }
        Place::Shared => c.block.set_shared(at, bytes, bits, origin),
        Place::Local => {
            let Some(w) = c.block.warps.get_mut(warp(cx)) else { return };
            w.set_local(at, bytes, lane, bits, origin);
        }
        Place::Other => {}
    }
}

/// Notes that the launch stores to the allocation at an address, the first time that a site does.
pub(super) fn note_writer(c: &mut InitCheck<'_>, cx: &Cx, site: u32, at: u64, pc: u32, thread: (u64, u32, u32)) {
    let program = c.launch.program();
    if let Some((shadow, _)) = global(&mut c.launch.sites, cx, site, at) {
        let writer = shadow;
        if c.launch.sites.get(site as usize).is_some_and(|k| !k.noted) {
            writer.written(c.launch.origins.wrote(program, pc, thread));
            if let Some(known) = c.launch.sites.get_mut(site as usize) {
                known.noted = true;
            }
        }
    }
}

/// Records that a lane's load at `pc` brings undefined bytes; the number of their origin.
pub(super) fn brought(
    c: &mut InitCheck<'_>,
    cx: &Cx,
    pc: u32,
    site: u32,
    load: (Place, u64, u64, usize),
    missing: u64,
) -> u32 {
    let (place, address, bytes, lane) = load;
    let first = address.wrapping_add(u64::from(missing.trailing_zeros()));
    let past = match place {
        Place::Global => {
            match global(&mut c.launch.sites, cx, site, first).map_or(0, |(shadow, at)| shadow.story(at)) {
                0 => Provenance::Unwritten,
                number => Provenance::Told(number),
            }
        }
        Place::Shared => c.block.past_of_shared(first),
        Place::Local => c.block.warps.get(warp(cx)).map_or(Provenance::Unwritten, |w| w.past_of_local(first, lane)),
        Place::Other => Provenance::Unwritten,
    };
    let thread = (c.index, warp(cx) as u32, lane as u32);
    c.launch.origins.add(Origin { pc, thread, place, address, bytes, missing, past })
}

/// Bits of bytes, widened to bits of bits.
pub(super) fn widened(bytes: u64) -> u64 {
    (0..8).filter(|i| bytes >> i & 1 != 0).fold(0, |m, i| m | 0xff << (8 * i))
}

/// Bits of bits, a byte being undefined if one of its bits is.
pub(super) fn narrowed(bits: u64) -> u64 {
    (0..8).filter(|i| bits >> (8 * i) & 0xff != 0).fold(0, |m, i| m | 1 << i)
}
