//! The accesses of 4 bytes, each byte by itself.

use super::shadow::{CellAccess, Clash, Conflict, Now, flag};

/// Records of a cell beyond which the oldest ones are forgotten.
const RECORDS: usize = 96;

/// The accesses of 4 bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub few: [CellAccess; 2],
    pub more: Vec<CellAccess>,
}

impl Cell {
    pub(super) fn push(&mut self, record: CellAccess) {
        match self.few.iter_mut().find(|r| r.epoch == 0) {
            Some(free) => *free = record,
            None => self.more.push(record),
        }
    }

    /// Removes the records that `keep` refuses.
    fn retain(&mut self, mut keep: impl FnMut(&mut CellAccess) -> bool) {
        for slot in &mut self.few {
            if slot.epoch != 0 && !keep(slot) {
                *slot = CellAccess::default();
            }
        }
        self.more.retain_mut(keep);
        for slot in &mut self.few {
            if slot.epoch == 0
                && let Some(record) = self.more.pop()
            {
                *slot = record;
            }
        }
        if self.few[0].epoch == 0 {
            self.few.swap(0, 1);
        }
    }

    pub(super) fn apply(&mut self, a: &CellAccess, now: &Now<'_>, mut report: impl FnMut(Conflict)) {
        let mut merged = false;
        self.retain(|r| {
            let common = r.bytes & a.bytes;
            if common == 0 {
                return true;
            }
            let pair = now.warp.unordered(now.here, (r.block, r.warp, r.epoch), r.lanes, a.lanes);
            let (kept, conflict) = weigh(r, a, pair.is_none());
            if let Some(kind) = conflict {
                let (their_lane, my_lane) = pair.unwrap_or((r.lanes.trailing_zeros(), a.lanes.trailing_zeros()));
                report(Conflict { kind, theirs: *r, their_lane, my_lane, at: common.trailing_zeros() as u8 });
            }
            if kept {
                let same = (r.block, r.warp, r.epoch, r.pc) == (a.block, a.warp, a.epoch, a.pc);
                if same && (r.flags, r.bytes) == (a.flags, a.bytes) {
                    r.lanes |= a.lanes;
                    merged = true;
                }
                return true;
            }
            r.bytes &= !a.bytes;
            r.bytes != 0
        });
        if merged {
            return;
        }
        let class = |r: &CellAccess| r.flags & !(flag::SILENT | flag::WIDE | flag::WHOLE);
        let stands =
            |r: &CellAccess| r.epoch != 0 && r.block != a.block && class(r) == class(a) && r.bytes & a.bytes == a.bytes;
        let shared = !now.talks && (a.flags & flag::WRITE == 0 || a.flags & flag::STRONG != 0);
        if shared {
            let mut foreign = self.few.iter().chain(&self.more).filter(|r| stands(r)).map(|r| r.block);
            if let Some(first) = foreign.next()
                && foreign.any(|b| b != first)
            {
                return;
            }
            if self.more.len() > RECORDS / 4 {
                let mut known = Vec::new();
                self.retain(|r| {
                    let repeats = stands(r) && r.bytes == a.bytes && known.contains(&r.block);
                    if stands(r) {
                        known.push(r.block);
                    }
                    !repeats
                });
            }
        }
        if self.more.len() >= RECORDS {
            self.more.remove(0);
        }
        self.push(*a);
    }
}

/// Whether an earlier record must be kept beside a new one of the same bytes, and what is wrong with the two.
fn weigh(r: &CellAccess, a: &CellAccess, ordered: bool) -> (bool, Option<Clash>) {
    let is = |flags: u8, flag: u8| flags & flag != 0;
    let (read, write) = (!is(r.flags, flag::WRITE), is(a.flags, flag::WRITE));
    if read && !write {
        let nc = is(a.flags, flag::NC) || !is(r.flags, flag::NC);
        let replaces = nc && (is(r.flags, flag::STRONG) || !is(a.flags, flag::STRONG));
        return (!(ordered && replaces), None);
    }
    if is(r.flags | a.flags, flag::NC) {
        return (!write, Some(Clash::Stale));
    }
    if ordered {
        return (!write, None);
    }
    if is(r.flags & a.flags, flag::STRONG) {
        let included = r.block == a.block || is(r.flags & a.flags, flag::WIDE);
        return (true, (!included).then_some(Clash::Scope));
    }
    // A strong write does not stand for a weak access: other strong ones race with that alone.
    (!write || is(a.flags, flag::STRONG), Some(Clash::Race))
}
