//! Which accesses of each byte a later one must be ordered after.
//!
//! Memory is shadowed in pages of 4 KiB, made when they are first touched, and chunks of 128 bytes. As long as a chunk is only
//! accessed in runs (lanes side by side, again and again the same ones, or all at one place), it holds a few [`Span`]s: of each
//! byte one write and the reads since. Other accesses expand it into cells of 4 bytes with a short list of [`CellAccess`]es each,
//! in which every byte counts by itself.
//! The next access that overwrites the whole chunk makes it a span again.
//!
//! What is kept is what a later access could race with: a write replaces what it is ordered after, a read replaces reads that
//! it is ordered after. Where blocks never synchronise, two readers (or atomic writers) of different blocks stand
//! for all others: whoever writes, one of them is foreign.
//!
//! Cost: 0.63 bytes a byte of touched pages, 16 where chunks are expanded, and lists beyond two entries.

mod chunk;

use super::order::Warp;
use chunk::Chunk;
use rustc_hash::FxHashMap;
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

pub(super) const CHUNK: u64 = 128;
const PAGE: u64 = 4096;
/// `Span::shift` of lanes that all access all bytes.
pub(super) const TOGETHER: u8 = 255;
pub(super) mod flag {
    pub(crate) const WRITE: u8 = 1;
    /// Not weak.
    pub(crate) const STRONG: u8 = 2;
    /// Of a scope beyond the block.
    pub(crate) const WIDE: u8 = 4;
    /// Through the read-only cache.
    pub(crate) const NC: u8 = 8;
    /// A write of what was there already.
    pub(crate) const SILENT: u8 = 16;
    /// By a bulk copy, under way until somebody has waited for it: not ordered even after its own thread.
    pub(crate) const ASYNC: u8 = 32;
    /// By an instruction at which all lanes of the warp that had not exited stood together.
    pub(crate) const WHOLE: u8 = 64;
}

/// Lanes of a warp that access consecutive bytes of a chunk in one instruction. An epoch of 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub block: u32,
    pub epoch: u32,
    pub pc: u32,
    pub lanes: u32,
    pub warp: u8,
    pub flags: u8,
    pub from: u8,
    pub to: u8,
    /// Each lane has `1 << shift` bytes, in order; or [`TOGETHER`].
    pub shift: u8,
    /// Bytes after which the lanes begin again, the last time in full; 0 if they do not.
    pub period: u8,
}

/// Accesses of bytes of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CellAccess {
    pub block: u32,
    pub epoch: u32,
    pub pc: u32,
    pub lanes: u32,
    pub warp: u8,
    pub flags: u8,
    /// Which of the cell's bytes.
    pub bytes: u8,
}

/// Two accesses that must not be, or not be so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conflict {
    pub kind: Clash,
    pub theirs: CellAccess,
    /// Lanes of the two.
    pub their_lane: u32,
    pub my_lane: u32,
    /// First byte, in the chunk.
    pub at: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clash {
    Race,
    /// Both are strong, but a scope does not include the other.
    Scope,
    /// One went through the read-only cache.
    Stale,
}

/// Who accesses now.
pub(super) struct Now<'a> {
    pub warp: &'a Warp,
    pub here: (u32, u8),
    /// Blocks of the kernel may synchronise.
    pub talks: bool,
}

impl Span {
    fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn overlaps(&self, a: &Span) -> bool {
        self.epoch != 0 && self.from < a.to && a.from < self.to
    }

    /// Whether a read of another block is as good as `a` where blocks never synchronise.
    fn stands_for(&self, a: &Span) -> bool {
        self.block != a.block && self.covers(a) && (self.flags ^ a.flags) & (flag::NC | flag::STRONG) == 0
    }

    fn covers(&self, a: &Span) -> bool {
        self.from <= a.from && a.to <= self.to
    }

    /// Lanes that access some of the bytes `from..to`, which lie in the span.
    fn lanes_in(&self, from: u8, to: u8) -> u32 {
        if self.shift == TOGETHER {
            return self.lanes;
        }
        let (mut first, mut last) = (from - self.from, to - 1 - self.from);
        if self.period != 0 {
            (first, last) = (first % self.period, last % self.period);
            if to - from >= self.period || last < first {
                return self.lanes;
            }
        }
        let lane = |at: u8| (self.lanes.trailing_zeros() + u32::from(at >> self.shift)) & 31;
        (u32::MAX >> (31 - lane(last))) & (u32::MAX << lane(first))
    }

    /// Makes the span longer by `a`, the same lanes' access of the bytes behind it in the same instruction at the same time.
    #[inline(always)]
    fn extend(&mut self, a: &Span) -> bool {
        if self.to != a.from || !same_access(self, a) {
            return false;
        }
        let same = (self.block, self.warp, self.shift, self.lanes) == (a.block, a.warp, a.shift, a.lanes);
        if !same {
            return false;
        }
        if a.shift != TOGETHER {
            let period = a.to - a.from;
            let fits = match self.period {
                0 => self.to - self.from == period,
                known => known == period,
            };
            // Cells are cut lane by lane below words.
            if a.shift < 2 || a.period != 0 || !fits {
                return false;
            }
            self.period = period;
        }
        self.to = a.to;
        true
    }

    /// Whether both give each byte to the same lane.
    fn alike(&self, a: &Span) -> bool {
        if (self.block, self.warp, self.shift) != (a.block, a.warp, a.shift) {
            return false;
        }
        if self.shift == TOGETHER {
            return self.lanes == a.lanes;
        }
        if self.period != 0 {
            // One or several rounds of the same lanes.
            let whole = |s: &Span| s.period == self.period || s.period == 0 && s.to - s.from == self.period;
            return self.lanes == a.lanes
                && whole(self)
                && whole(a)
                && a.from.abs_diff(self.from).is_multiple_of(self.period);
        }
        let origin = |s: &Span| i32::from(s.from) - ((s.lanes.trailing_zeros() as i32) << s.shift);
        a.period == 0 && origin(self) == origin(a)
    }

    fn record(&self, lanes: u32, bytes: u8) -> CellAccess {
        let Span { block, epoch, pc, warp, flags, .. } = *self;
        CellAccess { block, epoch, pc, lanes, warp, flags, bytes }
    }

    /// Whether `self` (before) and `a` (now) go together, as far as the runs alone show.
    fn fine(&self, a: &Span, now: &Now<'_>) -> bool {
        if !self.overlaps(a) {
            return true;
        }
        if (self.flags | a.flags) & flag::NC != 0 && (self.flags | a.flags) & flag::WRITE != 0 {
            return false;
        }
        if self.alike(a) && !self.is(flag::ASYNC) && (self.shift != TOGETHER || a.lanes & a.lanes.wrapping_sub(1) == 0)
        {
            return true;
        }
        let (from, to) = (self.from.max(a.from), self.to.min(a.to));
        self.before(self.lanes_in(from, to), a.lanes_in(from, to), now)
    }

    fn before(&self, theirs: u32, mine: u32, now: &Now<'_>) -> bool {
        now.warp.unordered(now.here, (self.block, self.warp, self.epoch), theirs, mine).is_none()
    }
}

/// Boxed, so that a growing list of pages does not move them.
struct Page {
    chunks: Box<[Chunk; (PAGE / CHUNK) as usize]>,
}

impl Page {
    fn new() -> Page {
        let layout = Layout::new::<[Chunk; (PAGE / CHUNK) as usize]>();
        // SAFETY: the layout is not empty. A chunk of zeros is the default one: numbers, and no box.
        let chunks = unsafe {
            let zeros = alloc_zeroed(layout).cast::<[Chunk; (PAGE / CHUNK) as usize]>();
            if zeros.is_null() {
                handle_alloc_error(layout);
            }
            Box::from_raw(zeros)
        };
        Page { chunks }
    }
}

/// The shadow of a space.
#[derive(Default)]
pub(super) struct Shadow {
    pages: Vec<Page>,
    index: FxHashMap<u64, u32>,
    /// Pages found last, by the low bits of their number.
    recent: Vec<(u64, u32)>,
}

const RECENT: usize = 256;

impl Shadow {
    #[inline(always)]
    fn chunk(&mut self, address: u64) -> &mut Chunk {
        let page = address / PAGE;
        let at = match self.recent.get(page as usize % RECENT) {
            Some(recent) if recent.0 == page => recent.1,
            _ => self.find(page),
        };
        &mut self.pages[at as usize].chunks[(address % PAGE / CHUNK) as usize]
    }

    /// The index of a page, which is made if there is none.
    #[inline(never)]
    fn find(&mut self, page: u64) -> u32 {
        if self.recent.is_empty() {
            self.recent.resize(RECENT, (u64::MAX, 0));
        }
        let next = self.pages.len() as u32;
        let at = *self.index.entry(page).or_insert(next);
        if at == next {
            self.pages.push(Page::new());
        }
        self.recent[page as usize % RECENT] = (page, at);
        at
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        if !self.pages.is_empty() {
            *self = Shadow::default();
        }
    }

    /// An access of the chunk at `address`.
    #[inline(always)]
    pub(super) fn apply(&mut self, address: u64, a: &Span, now: &Now<'_>, out: &mut Vec<(u64, Conflict)>) {
        let chunk = self.chunk(address);
        if !chunk.simple(a, now) {
            chunk.exact(address, a, now, out);
        }
    }

    /// Calls `f` with first address, length, access and whether it writes, for all that is recorded; not in order.
    pub(super) fn each(&self, mut f: impl FnMut(u64, u64, &CellAccess)) {
        for (&page, &at) in &self.index {
            let Some(page_chunks) = self.pages.get(at as usize) else { continue };
            for (chunk, base) in page_chunks.chunks.iter().zip((page * PAGE..).step_by(CHUNK as usize)) {
                for s in chunk.spans().filter(|s| s.epoch != 0) {
                    let first = s.lanes & s.lanes.wrapping_neg();
                    f(base + u64::from(s.from), u64::from(s.to - s.from), &s.record(first, 15));
                }
                for (cell, at) in chunk.cells().iter().zip((base..).step_by(4)) {
                    for r in cell.few.iter().chain(&cell.more).filter(|r| r.epoch != 0) {
                        for byte in 0..4 {
                            if r.bytes >> byte & 1 != 0 {
                                f(at + byte, 1, r);
                            }
                        }
                    }
                }
            }
        }
    }
}

fn same_access(s: &Span, a: &Span) -> bool {
    (s.epoch, s.pc, s.flags) == (a.epoch, a.pc, a.flags)
}

#[cfg(test)]
mod tests;
