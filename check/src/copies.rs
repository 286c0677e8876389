//! Asynchronous copies whose destination is used before the wait for them.
//!
//! A `cp.async` belongs to the group that its thread commits next, and is done when that thread has waited for the group; until
//! then nobody may read its destination, nor write there what the copy may still overwrite. (That other threads need a barrier as well is for the race checker.) A copy that a
//! thread hands to an mbarrier is that object's from then on. Bulk copies are followed by the race checker (`race::bulk`).

use super::defect::Verb;
use super::findings::Findings;
use super::pieces;
use super::place::{copy_target, shared_address};
use super::raw::{RawFinding, RawSite};
use super::{Defect, Detail, Rule, Severity, SiteKind};
use warpsmith_simt::machine::bounds::Place;
use warpsmith_simt::machine::lanes::{lane_of, lanes_of};
use warpsmith_simt::machine::note::{Note, Notes, Role, Taint};
use warpsmith_simt::machine::remote::Target;
use warpsmith_simt::machine::words::{Bulk, Words};
use warpsmith_simt::machine::{Cx, LANES, Op, bulk, fill, uniform};

/// A copy under way.
#[derive(Clone, Copy)]
struct Copy {
    warp: u32,
    lane: u32,
    group: u32,
    pc: u32,
    at: u64,
    bytes: u64,
}

/// The copies of a block.
#[derive(Default)]
pub(crate) struct BlockCopies {
    /// Number of the copy under way to each word of shared memory, from 1.
    words: Vec<u32>,
    list: Vec<Copy>,
    free: Vec<u32>,
    /// By warp: its copies under way, and how many groups each lane has committed.
    warps: Vec<(Vec<u32>, [u32; LANES])>,
    under_way: usize,
}

impl BlockCopies {
    fn warp(&mut self, warp: u32) -> &mut (Vec<u32>, [u32; LANES]) {
        let at = warp as usize;
        if self.warps.len() <= at {
            self.warps.resize(at + 1, (Vec::new(), [0; LANES]));
        }
        &mut self.warps[at]
    }

    fn begin(&mut self, mut copy: Copy) {
        copy.group = self.warp(copy.warp).1[copy.lane as usize];
        let id = match self.free.pop() {
            Some(id) => {
                self.list[id as usize - 1] = copy;
                id
            }
            None => {
                self.list.push(copy);
                self.list.len() as u32
            }
        };
        let end = (copy.at + copy.bytes).div_ceil(4) as usize;
        if self.words.len() < end {
            self.words.resize(end, 0);
        }
        self.words[(copy.at / 4) as usize..end].fill(id);
        self.warp(copy.warp).0.push(id);
        self.under_way += 1;
    }

    /// Ends the copies of a warp that `done` says.
    fn end(&mut self, warp: u32, done: impl Fn(&Copy, &[u32; LANES]) -> bool) {
        let (ids, committed) = std::mem::replace(self.warp(warp), (Vec::new(), [0; LANES]));
        let mut left = Vec::with_capacity(ids.len());
        for id in ids {
            let copy = self.list[id as usize - 1];
            if !done(&copy, &committed) {
                left.push(id);
                continue;
            }
            self.forget(id, &copy);
        }
        *self.warp(warp) = (left, committed);
    }

    fn forget(&mut self, id: u32, copy: &Copy) {
        let (from, to) = ((copy.at / 4) as usize, (copy.at + copy.bytes).div_ceil(4) as usize);
        self.words[from..to].iter_mut().filter(|w| **w == id).for_each(|w| *w = 0);
        self.free.push(id);
        self.under_way -= 1;
    }

    /// The copy under way to some of these bytes; it counts as done from then on.
    fn hit(&mut self, at: u64, bytes: u64) -> Option<Copy> {
        let words = (at / 4) as usize..((at + bytes).div_ceil(4) as usize).min(self.words.len());
        let id = self.words.get(words)?.iter().copied().find(|&w| w != 0)?;
        let copy = self.list[id as usize - 1];
        self.warp(copy.warp).0.retain(|&i| i != id);
        self.forget(id, &copy);
        Some(copy)
    }
}

/// The checker at work: what it knows of the block that runs, and where findings go.
pub(crate) struct CopyCheck<'a> {
    /// The program's notes.
    pub notes: &'a Notes,
    pub block: &'a mut BlockCopies,
    /// The block's linear index.
    pub index: u64,
    pub findings: &'a mut Findings,
}

/// After an operation.
///
/// # Safety
/// The contract of handlers; the launch is a checked one.
pub(crate) unsafe fn after(c: &mut CopyCheck<'_>, cx: &Cx, op: &Op, pc: u32, note: &Note) {
    let warp = cx.uniform[uniform::WARPID] as u32;
    let copies = &mut *c.block;
    match note.role {
        Role::CopyAsync => {
            for lane in lanes_of(cx.active) {
                // SAFETY: by the contract.
                let at = unsafe { copy_target(cx, op, lane) };
                copies.begin(Copy { warp, lane: lane as u32, group: 0, pc, at, bytes: op.imm >> 32 });
            }
        }
        Role::CommitGroup => {
            let committed = &mut copies.warp(warp).1;
            lanes_of(cx.active).for_each(|l| committed[l] = committed[l].wrapping_add(1));
        }
        Role::WaitGroup(n) if copies.under_way > 0 => {
            let here = |copy: &Copy| cx.active >> copy.lane & 1 != 0;
            // All but the last `n` groups are done; `wait_all` commits first.
            let old = |copy: &Copy, committed: &[u32; LANES]| {
                n == u32::MAX || u64::from(copy.group) + u64::from(n) < u64::from(committed[copy.lane as usize])
            };
            copies.end(warp, |copy, committed| here(copy) && old(copy, committed));
        }
        // An mbarrier takes over.
        Role::Object if note.taint == Taint::HandOver && copies.under_way > 0 => {
            copies.end(warp, |copy, _| cx.active >> copy.lane & 1 != 0);
        }
        Role::Access(i) if copies.under_way > 0 => {
            let Some(access) = c.notes.accesses.get(i as usize) else { return };
            let what = if access.reads() { Verb::Read } else { Verb::Write };
            for lane in lanes_of(cx.active) {
                // SAFETY: by the contract.
                if let Some(at) = unsafe { shared_address(cx, op, access, lane) } {
                    used(c, what, warp, lane as u32, pc, at, access.bytes());
                }
            }
        }
        Role::MatrixAccess if copies.under_way > 0 => {
            // SAFETY: by the contract.
            let (pieces, stores) = unsafe { pieces::of_matrix(cx, op, note.taint) };
            for p in pieces.iter().filter(|p| p.shared) {
                used(c, if stores { Verb::Write } else { Verb::Read }, warp, p.lane as u32, pc, p.at, p.bytes);
            }
        }
        Role::StoreAsync if copies.under_way > 0 => {
            for lane in lanes_of(cx.active) {
                // SAFETY: by the contract.
                let target = unsafe { Target::of(cx, op, lane) };
                used(c, Verb::Write, warp, lane as u32, pc, target.to.1, target.bytes());
            }
        }
        Role::StoreBulk if copies.under_way > 0 => {
            for lane in lanes_of(cx.active) {
                // SAFETY: by the contract.
                let ((place, at), bytes) = unsafe { fill::range(cx, op, lane) };
                if place == Place::Shared && bytes > 0 {
                    used(c, Verb::Write, warp, lane as u32, pc, at, bytes);
                }
            }
        }
        Role::CopyBulk if copies.under_way > 0 => {
            for lane in lanes_of(cx.active) {
                // SAFETY: by the contract; the list is a `Bulk`.
                let (bytes, (to, from)) = unsafe {
                    let bytes = u64::from(lane_of::<u32>(cx.src(op.c), lane));
                    (bytes, bulk::ends(cx, op, &Bulk::of(cx, op), lane))
                };
                for (what, (place, at)) in [(Verb::Read, from), (Verb::Write, to)] {
                    if place == Place::Shared && bytes > 0 {
                        used(c, what, warp, lane as u32, pc, at, bytes);
                    }
                }
            }
        }
        _ => {}
    }
}

fn used(c: &mut CopyCheck<'_>, verb: Verb, warp: u32, lane: u32, pc: u32, at: u64, bytes: u64) {
    while let Some(copy) = c.block.hit(at, bytes) {
        if c.findings.again(Rule::MissingWait, pc, copy.pc) {
            continue;
        }
        let block = c.index;
        let used = RawSite {
            kind: SiteKind::Access { verb, bytes: None, earlier: false },
            thread: Some((block, warp, lane)),
            pc,
            detail: Detail::Shared { bytes, at, target: false },
        };
        let copied = RawSite {
            kind: SiteKind::AsyncCopy,
            thread: Some((block, copy.warp, copy.lane)),
            pc: copy.pc,
            detail: Detail::Shared { bytes: copy.bytes, at: copy.at, target: true },
        };
        c.findings.add(RawFinding {
            rule: Rule::MissingWait,
            severity: Severity::Error,
            defect: Defect::CopyUnderWay { writes: verb != Verb::Read, at },
            sites: vec![used, copied],
            addresses: Vec::new(),
            interval: None,
        });
    }
}
