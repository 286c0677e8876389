//! The accesses of a block's shared memory since its threads last met.
//!
//! A barrier at which all threads of the block wait orders whatever came before it before whatever comes after it: then
//! everything is forgotten. Until then most kernels either only read a place or write it once. Such accesses go, a warp's
//! whole instruction at a time, to a list, and nothing is compared: bits for every 4 bytes say what has been accessed and
//! what has been written. The first access that needs a comparison (of what has been written, or a write of what has been
//! accessed) first brings the list to the shadow, which then knows every single access, as it does in global memory.
//!
//! An access of the list is brought there with what its warp knew then: other warps tell it nothing new but at barriers
//! of a part of the block, before which the list is brought over too.
//!
//! Cost: 1/16 byte a byte of shared memory, and 160 bytes for each access in the list.

use std::array::from_fn;

use super::access::{Run, gather, silent, spans};
use super::order::{Clocks, Warp};
use super::shadow::{Conflict, Now, Shadow, Span, flag};
use warpsmith_simt::machine::bounds::Place;
use warpsmith_simt::machine::lanes::{lane_of, lanes_of};
use warpsmith_simt::machine::note::{Access, Does, Order, Where};
use warpsmith_simt::machine::{Cx, LANES, Op};

/// Accesses beyond which the list is brought to the shadow.
const MOST: usize = 8192;

/// An instruction of a warp.
struct Entry {
    /// Where each active lane accesses `bytes` bytes.
    at: [u32; LANES],
    bytes: u32,
    lanes: u32,
    /// Of them, those that store what is there already.
    silent: u32,
    /// Up to which epoch its lanes knew each other, and lanes that had exited.
    settled: u32,
    gone: u32,
    like: Span,
}

/// The shared memory of a block.
#[derive(Default)]
pub(super) struct Shared {
    exact: Shadow,
    list: Vec<Entry>,
    /// Entries of the list that have been marked as accessed.
    marked: usize,
    accessed: Vec<u64>,
    written: Vec<u64>,
    writes: bool,
    /// Warps that have accessed anything.
    pub warps: u32,
    /// Copies are or were under way, which barriers do not order.
    copies: bool,
    /// Of the accesses that are brought over: nothing, as they were let on the list.
    none: Vec<(u64, Conflict)>,
    runs: Vec<Run>,
}

/// The words of the bits of `bytes` bytes, aligned, at an offset: which one, and the bits there.
#[inline(always)]
fn bits(at: u32, bytes: u32) -> (usize, u64) {
    let granules = bytes.div_ceil(4).min(63);
    ((at / 256) as usize, ((1 << granules) - 1) << (at / 4 % 64))
}

/// Where the active lanes access `bytes` bytes; `None` if some of them will be refused.
#[inline(always)]
unsafe fn offsets(cx: &Cx, op: &Op, access: &Access, bytes: u64) -> Option<[u32; LANES]> {
    let last = u64::from(cx.shared_bytes).checked_sub(bytes)?;
    // SAFETY: the contract of handlers; `at` says what kind of row `a` is.
    let at: [u64; LANES] = unsafe {
        let row = cx.src(op.a);
        match access.at {
            Where::Shared32 => from_fn(|lane| u64::from(lane_of::<u32>(row, lane)).wrapping_add(op.imm)),
            _ => from_fn(|lane| lane_of::<u64>(row, lane).wrapping_add(op.imm)),
        }
    };
    let mut wrong = 0;
    for (lane, &at) in at.iter().enumerate() {
        let refused = (at & (bytes - 1)) | u64::from(at > last);
        wrong |= if cx.active >> lane & 1 != 0 { refused } else { 0 };
    }
    (wrong == 0).then(|| at.map(|at| at as u32))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn offsets_fast(cx: &Cx, op: &Op, access: &Access, bytes: u64) -> Option<[u32; LANES]> {
    // SAFETY: by the contract.
    unsafe { offsets(cx, op, access, bytes) }
}

#[cfg(not(target_arch = "x86_64"))]
use offsets as offsets_fast;

impl Shared {
    /// Puts an access on the list; `false` if it must be compared with others.
    ///
    /// # Safety
    /// The contract of handlers; `access` is the operation's, by `warp`, and `like` says who and when; with `fast`, the CPU
    /// has AVX2.
    pub(super) unsafe fn listed(
        &mut self,
        cx: &Cx,
        op: &Op,
        access: &Access,
        warp: &Warp,
        like: Span,
        fast: bool,
    ) -> bool {
        let bytes = access.bytes();
        let plain = access.order == Order::Weak && !access.seed && access.does != Does::Atomic;
        let here = matches!(access.at, Where::Shared32 | Where::Shared64);
        if !(plain && here && bytes.is_power_of_two() && bytes <= 128) || self.list.len() >= MOST {
            return false;
        }
        // SAFETY: by the contract.
        let found = unsafe { if fast { offsets_fast(cx, op, access, bytes) } else { offsets(cx, op, access, bytes) } };
        let Some(at) = found else { return false };
        let lanes = cx.active;
        let granules = bytes as u32;
        self.warps |= 1 << (like.warp & 31);
        let mut quiet = 0;
        if access.does == Does::Store {
            self.mark(cx.shared_bytes);
            let mut clash = 0;
            for lane in lanes_of(lanes) {
                let (word, bits) = bits(at[lane], granules);
                let (Some(accessed), Some(written)) = (self.accessed.get_mut(word), self.written.get_mut(word)) else {
                    return false;
                };
                clash |= *accessed & bits;
                *accessed |= bits;
                *written |= bits;
            }
            self.writes = true;
            if clash != 0 {
                return false;
            }
            for lane in lanes_of(lanes) {
                // SAFETY: by the contract.
                let same = unsafe { silent(cx, op, access, lane, Place::Shared, at[lane].into()) };
                quiet |= u32::from(same) << lane;
            }
            self.marked += 1;
        } else if self.writes {
            let mut clash = 0;
            for lane in lanes_of(lanes) {
                let (word, bits) = bits(at[lane], granules);
                clash |= self.written.get(word).map_or(0, |w| w & bits);
            }
            if clash != 0 {
                return false;
            }
        }
        let (settled, gone) = warp.settled();
        self.list.push(Entry { at, bytes: granules, lanes, silent: quiet, settled, gone, like });
        true
    }

    /// Marks what the entries of the list access.
    fn mark(&mut self, size: u32) {
        let words = size.div_ceil(256) as usize;
        if self.accessed.len() < words {
            self.accessed.resize(words, 0);
            self.written.resize(words, 0);
        }
        for entry in &self.list[self.marked..] {
            for lane in lanes_of(entry.lanes) {
                let (word, bits) = bits(entry.at[lane], entry.bytes);
                if let Some(accessed) = self.accessed.get_mut(word) {
                    *accessed |= bits;
                }
            }
        }
        self.marked = self.list.len();
    }

    /// Brings the list to the shadow.
    pub(super) fn bring(&mut self, clocks: &Clocks, size: u32) {
        if self.list.is_empty() {
            return;
        }
        self.mark(size);
        for entry in &self.list {
            let like = entry.like;
            let Some(warp) = clocks.warp(like.warp.into()) else { continue };
            let warp = warp.then(like.epoch, entry.settled, entry.gone);
            let now = Now { warp: &warp, here: (like.block, like.warp), talks: true };
            let lanes = lanes_of(entry.lanes).map(|lane| (lane, Place::Shared, entry.at[lane].into()));
            self.runs.clear();
            gather(lanes, entry.bytes.into(), &mut self.runs);
            for run in &self.runs {
                let silent = if entry.silent & run.lanes == run.lanes { flag::SILENT } else { 0 };
                let like = Span { flags: like.flags | silent, ..like };
                spans(run, like, |address, span| self.exact.apply(address, span, &now, &mut self.none));
            }
        }
        debug_assert!(self.none.is_empty(), "an access was let on the list that races");
        self.list.clear();
        self.marked = 0;
    }

    /// Compares an access with all before, after [`bring`](Shared::bring).
    pub(super) fn apply(&mut self, run: &Run, like: Span, now: &Now<'_>, size: u32, found: &mut Vec<(u64, Conflict)>) {
        self.mark(size);
        self.warps |= 1 << (like.warp & 31);
        self.copies |= like.flags & flag::ASYNC != 0;
        let writes = like.flags & flag::WRITE != 0;
        self.writes |= writes;
        for granule in run.first / 4..run.first.saturating_add(run.bytes).min(size.into()).div_ceil(4) {
            let (word, bit) = ((granule / 64) as usize, 1 << (granule % 64));
            if let (Some(accessed), Some(written)) = (self.accessed.get_mut(word), self.written.get_mut(word)) {
                *accessed |= bit;
                *written |= if writes { bit } else { 0 };
            }
        }
        spans(run, like, |address, span| self.exact.apply(address, span, now, found));
    }

    /// A barrier is about to open; whether it `joins` all threads that have accessed anything or will.
    pub(super) fn barrier(&mut self, clocks: &Clocks, joins: bool, size: u32) {
        if !joins || self.copies {
            self.bring(clocks, size);
            return;
        }
        self.exact.clear();
        self.list.clear();
        self.marked = 0;
        self.warps = 0;
        self.accessed.fill(0);
        self.written.fill(0);
        self.writes = false;
    }
}
