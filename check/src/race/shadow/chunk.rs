//! The accesses of 128 bytes: as spans as long as they can tell, then as cells.

use super::super::cell::Cell;
use super::{CHUNK, CellAccess, Conflict, Now, Span, flag};
use warpsmith_simt::machine::lanes::lanes_of;

/// Reads of a chunk beyond which it is expanded.
const SPANS: usize = 40;
/// Writes of parts of a chunk, but the last one, beyond which it is expanded.
const PARTS: usize = 7;

/// What of a chunk does not fit into three spans.
#[derive(Clone, Debug, Default)]
struct More {
    reads: Vec<Span>,
    /// Of other bytes than the last write's, and each other's.
    writes: Vec<Span>,
    /// Empty, or the chunk's 32 cells, which then hold everything.
    cells: Vec<Cell>,
}

/// The accesses of a chunk of memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    /// The last one.
    write: Span,
    reads: [Span; 2],
    more: Option<Box<More>>,
}

impl Chunk {
    /// Takes an access that spans can tell; `false`, and nothing has changed, if it needs the cells.
    #[inline(always)]
    pub(super) fn simple(&mut self, a: &Span, now: &Now<'_>) -> bool {
        if self.write.epoch == 0 && !a.is(flag::WRITE) && self.more.is_none() {
            let first = &mut self.reads[0];
            if first.epoch == 0 {
                *first = *a;
                return true;
            }
            if first.extend(a) {
                return true;
            }
        }
        if !now.talks && self.write.epoch == 0 && !a.is(flag::WRITE) && self.stood_for(a) {
            return true;
        }
        self.usual(a, now)
    }

    /// Whether reads of two other blocks stand for one.
    #[inline(always)]
    fn stood_for(&self, a: &Span) -> bool {
        let [first, second] = &self.reads;
        second.epoch != 0 && first.block != second.block && first.stands_for(a) && second.stands_for(a)
    }

    /// Writes and reads; none if it is expanded.
    pub(super) fn spans(&self) -> impl Iterator<Item = &Span> {
        self.writes().chain(self.all_reads())
    }

    /// Its cells; none unless it is expanded.
    pub(super) fn cells(&self) -> &[Cell] {
        self.more.as_ref().map_or(&[], |more| &more.cells)
    }

    fn writes(&self) -> impl Iterator<Item = &Span> {
        let more = self.more.as_ref().map_or(&[][..], |m| &m.writes[..]);
        std::iter::once(&self.write).chain(more)
    }

    fn all_reads(&self) -> impl Iterator<Item = &Span> {
        let more = self.more.as_ref().map_or(&[][..], |m| &m.reads[..]);
        self.reads.iter().chain(more)
    }

    #[inline(never)]
    fn usual(&mut self, a: &Span, now: &Now<'_>) -> bool {
        if !self.cells().is_empty() || !self.writes().all(|s| s.fine(a, now)) {
            return false;
        }
        if a.is(flag::WRITE) { self.simple_write(a, now) } else { self.simple_read(a, now) }
    }

    fn simple_write(&mut self, a: &Span, now: &Now<'_>) -> bool {
        let stays = |s: &Span| s.epoch != 0 && !s.overlaps(a);
        let gives_way = |s: &Span| !s.overlaps(a) || a.covers(s) && s.fine(a, now);
        if !self.spans().all(gives_way) {
            return false;
        }
        if !self.spans().any(stays) {
            *self = Chunk { write: *a, ..Chunk::default() };
            return true;
        }
        let last = std::mem::replace(&mut self.write, *a);
        self.reads.iter_mut().filter(|s| !stays(s)).for_each(|s| *s = Span::default());
        let more = self.more.get_or_insert_default();
        more.reads.retain(stays);
        more.writes.retain(stays);
        if stays(&last) {
            more.writes.push(last);
        }
        if more.writes.len() > PARTS {
            self.expand();
        }
        true
    }

    fn simple_read(&mut self, a: &Span, now: &Now<'_>) -> bool {
        let nc = a.flags & flag::NC;
        let stands = |s: &Span| s.stands_for(a);
        if !now.talks && self.stood_for(a) {
            return true;
        }
        let replaces = |s: &Span| {
            (nc != 0 || !s.is(flag::NC))
                && (s.is(flag::STRONG) || !a.is(flag::STRONG))
                && a.covers(s)
                && (s.alike(a) || s.before(s.lanes, a.lanes, now))
        };
        let mut free = None;
        let more = self.more.as_mut().map_or(&mut [][..], |m| &mut m.reads[..]);
        for (i, s) in self.reads.iter_mut().chain(more).enumerate() {
            if s.epoch == 0 {
                free = free.or(Some(i));
            } else if s.alike(a) && s.epoch == a.epoch && s.flags == a.flags && s.covers(a) {
                return true;
            } else if replaces(s) {
                *s = *a;
                return true;
            } else if s.extend(a) {
                return true;
            }
        }
        if let Some(slot) = free.and_then(|i| self.reads.get_mut(i)) {
            *slot = *a;
            return true;
        }
        let more = self.more.get_or_insert_default();
        if !now.talks {
            // Of another block's reads of the same bytes, the first stands for all. Those come first, where they are looked for.
            // There are so few that nothing is allocated: this is done for every read of what many blocks share.
            let (mut all, mut n) = ([Span::default(); SPANS + 3], 0);
            let there = || self.reads.iter().chain(&more.reads).filter(|s| s.epoch != 0);
            for s in there().filter(|s| stands(s)) {
                let stood_for = a.covers(s) && all[..n].iter().any(|known| known.block == s.block);
                if !stood_for {
                    (all[n], n) = (*s, n + 1);
                }
            }
            for s in there().filter(|s| !stands(s)).chain([a]) {
                (all[n], n) = (*s, n + 1);
            }
            // Those that there are not have no epoch.
            self.reads = [all[0], all[1]];
            more.reads.clear();
            more.reads.extend_from_slice(all.get(2..n).unwrap_or_default());
        } else {
            more.reads.push(*a);
        }
        if more.reads.len() > SPANS {
            self.expand();
        }
        true
    }

    /// Turns the spans into cells.
    fn expand(&mut self) {
        let more = self.more.get_or_insert_default();
        if !more.cells.is_empty() {
            return;
        }
        more.cells.resize(32, Cell::default());
        let (reads, writes) = (std::mem::take(&mut more.reads), std::mem::take(&mut more.writes));
        let spans = writes.into_iter().chain([self.write]).chain(self.reads).chain(reads);
        for span in spans.filter(|s| s.epoch != 0) {
            pieces(&span, |cell, record| more.cells[cell].push(record));
        }
        (self.write, self.reads) = Default::default();
    }

    /// Takes an access cell by cell.
    pub(super) fn exact(&mut self, address: u64, a: &Span, now: &Now<'_>, out: &mut Vec<(u64, Conflict)>) {
        self.expand();
        let Some(more) = &mut self.more else { return };
        let mut alone = true;
        pieces(a, |at, record| {
            let cell = &mut more.cells[at];
            cell.apply(&record, now, |mut conflict| {
                conflict.at += 4 * at as u8;
                note(out, address, conflict);
            });
            alone &= cell.few[1].epoch == 0 && cell.more.is_empty();
        });
        let full = a.is(flag::WRITE) && !a.is(flag::STRONG) && (a.from, a.to) == (0, CHUNK as u8);
        if full && alone && a.shift >= 2 {
            *self = Chunk { write: *a, ..Chunk::default() };
        }
    }
}

/// Keeps the first conflict of each kind with each place.
fn note(out: &mut Vec<(u64, Conflict)>, address: u64, c: Conflict) {
    let alike = |o: &Conflict| {
        (o.kind, o.theirs.pc, o.theirs.warp, o.theirs.flags) == (c.kind, c.theirs.pc, c.theirs.warp, c.theirs.flags)
            && o.theirs.block == c.theirs.block
    };
    if out.len() < 64 && !out.iter().any(|(_, o)| alike(o)) {
        out.push((address, c));
    }
}

/// Cuts a span into records of cells.
fn pieces(span: &Span, mut f: impl FnMut(usize, CellAccess)) {
    for cell in usize::from(span.from) / 4..usize::from(span.to).div_ceil(4) {
        let (low, high) = ((4 * cell) as u8, (4 * cell + 4) as u8);
        let (from, to) = (span.from.max(low), span.to.min(high));
        if span.shift < 2 {
            for lane in lanes_of(span.lanes_in(from, to)) {
                let index = lane as u8 - span.lanes.trailing_zeros() as u8;
                let start = span.from + (index << span.shift);
                let bytes = ((1 << (1u8 << span.shift)) - 1) << (start - low);
                f(cell, span.record(1 << lane, bytes));
            }
        } else {
            let bytes = ((1u8 << (to - from)) - 1) << (from - low);
            f(cell, span.record(span.lanes_in(from, to), bytes));
        }
    }
}
