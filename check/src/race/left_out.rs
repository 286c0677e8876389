//! Barriers in a branch: threads go around them, do more, and exit.
//!
//! A barrier counts all threads that have not exited (PTX ISA, `bar`), so that it opens once those who have left it out are
//! gone, and the run goes on. `__syncthreads` in conditional code is allowed only where all threads of the block take the same
//! way (CUDA C++ Programming Guide, Synchronization Functions). Threads that leave the kernel in front of the barrier are
//! something else, see `lower::behind`.

use super::order::Clocks;
use crate::findings::Findings;
use crate::raw::{RawFinding, RawSite};
use crate::{Defect, Detail, Rule, Severity, SiteKind};
use rustc_hash::FxHashMap;
use warpsmith_simt::machine::lanes::lanes_of;
use warpsmith_simt::machine::note::{Mark, Notes};
use warpsmith_simt::machine::{Cx, LANES};

/// How often each lane of a warp has been at the barriers of a group, and behind them.
#[derive(Clone, Copy, Default)]
struct Visits {
    at: [u32; LANES],
    behind: [u32; LANES],
    /// Where that is.
    pc: u32,
}

/// What is known of a block, by group and warp.
#[derive(Default)]
pub(super) struct LeftOut {
    counts: FxHashMap<(u32, u32), Box<Visits>>,
}

/// A warp comes to an operation that has marks.
pub(super) fn came_by(left_out: &mut LeftOut, notes: &Notes, cx: &Cx, pc: u32, warp: u32) {
    for mark in notes.marks.get(&pc).into_iter().flatten() {
        let (Mark::Barrier(group) | Mark::Behind(group)) = *mark;
        let counts = left_out.counts.entry((group, warp)).or_default();
        match mark {
            Mark::Barrier(_) => lanes_of(cx.active).for_each(|l| counts.at[l] = counts.at[l].saturating_add(1)),
            // Its guard, if it has one, has nothing to do with the way that led there.
            Mark::Behind(_) => {
                counts.pc = pc;
                lanes_of(cx.mask).for_each(|l| counts.behind[l] = counts.behind[l].saturating_add(1));
            }
        }
    }
}

/// A barrier opens that somebody waited for at `pc`.
pub(super) fn opened(
    left_out: &LeftOut,
    notes: &Notes,
    clocks: &Clocks,
    findings: &mut Findings,
    block: u64,
    (warp, lane, pc): (u32, u32, u32),
) {
    if left_out.counts.is_empty() {
        return;
    }
    let group = notes.marks.get(&pc).into_iter().flatten().find_map(|m| match m {
        Mark::Barrier(group) => Some(*group),
        Mark::Behind(_) => None,
    });
    let Some(group) = group else { return };
    let (mut missing, mut first) = (0, None);
    for (index, clock) in clocks.warps.iter().enumerate() {
        let Some(counts) = left_out.counts.get(&(group, index as u32)) else { continue };
        let gone = clock.settled().1;
        for lane in lanes_of(gone).filter(|&l| counts.behind[l] > counts.at[l]) {
            missing += 1;
            first.get_or_insert((index as u32, lane as u32, counts.pc));
        }
    }
    let Some((other_warp, other_lane, behind)) = first else { return };
    if findings.seen(Rule::BarrierMissing, pc, behind, Severity::Warning) {
        return;
    }
    let others = if missing == 1 { Detail::None } else { Detail::OtherThreads(missing - 1) };
    let sites = vec![
        RawSite { kind: SiteKind::Barrier, thread: Some((block, warp, lane)), pc, detail: Detail::None },
        RawSite { kind: SiteKind::LeftOut, thread: Some((block, other_warp, other_lane)), pc: behind, detail: others },
    ];
    findings.add(RawFinding {
        rule: Rule::BarrierMissing,
        severity: Severity::Warning,
        defect: Defect::BarrierLeftOut { threads: missing },
        sites,
        addresses: Vec::new(),
        interval: None,
    });
}
