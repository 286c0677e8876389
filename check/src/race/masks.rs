//! Lanes that execute one collective with masks that disagree.
//!
//! A lane waits until all lanes that its mask names and that have not exited have executed the collective with the same mask
//! (PTX ISA, `bar.warp.sync`, `shfl.sync`, `vote.sync`; CUDA C++ Programming Guide, Warp Vote Functions: else the result is
//! undefined). Lanes that wait for each other for ever are a deadlock. Here are those who are let go because the lane that they
//! named has exited in the meantime, where that lane had executed the same collective without them.

use crate::findings::Findings;
use crate::raw::{RawFinding, RawSite};
use crate::{Defect, Detail, Rule, Severity, SiteKind};
use warpsmith_simt::machine::LANES;
use warpsmith_simt::machine::collective::Collective;
use warpsmith_simt::machine::lanes::lanes_of;

/// What lanes execute: the collective, the mask that they name, and where.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Call {
    imm: u64,
    mask: u32,
    pc: u32,
}

/// What is known of a warp.
#[derive(Clone, Default)]
struct WarpCalls {
    /// The last collective of each lane, unless all lanes have met since.
    last: [Option<Call>; LANES],
    /// Lanes with a last one.
    some: u32,
    /// Who waits.
    waits: Vec<(Call, u32)>,
}

/// What is known of the warps of a block.
#[derive(Default)]
pub(super) struct Masks {
    warps: Vec<WarpCalls>,
}

/// Lanes that were let go, and one that they had named and that had gone on without them.
struct Disagreement {
    call: Call,
    lanes: u32,
    other: Call,
    others: u32,
}

impl Masks {
    fn warp(&mut self, warp: u32) -> &mut WarpCalls {
        let at = warp as usize;
        if self.warps.len() <= at {
            self.warps.resize(at + 1, WarpCalls::default());
        }
        &mut self.warps[at]
    }

    /// All threads of the warps in `set` have met.
    pub(super) fn met(&mut self, set: u32) {
        for at in lanes_of(set) {
            if let Some(warp) = self.warps.get_mut(at) {
                (warp.last, warp.some) = ([None; LANES], 0);
            }
        }
    }
}

impl WarpCalls {
    /// Lanes execute a collective with one mask.
    fn executes(&mut self, call: Call, lanes: u32, live: u32) -> Option<Disagreement> {
        let same = |w: &(Call, u32)| (w.0.imm, w.0.mask) == (call.imm, call.mask);
        let here = match self.waits.iter().position(same) {
            Some(at) => self.waits.swap_remove(at).1 | lanes,
            None => lanes,
        };
        if call.mask & live & !here != 0 {
            self.waits.push((call, here));
            return None;
        }
        self.complete(call, here, live)
    }

    /// Lanes that have met go on.
    fn complete(&mut self, call: Call, lanes: u32, live: u32) -> Option<Disagreement> {
        let mut found: Option<Disagreement> = None;
        for lane in lanes_of(call.mask & !live & self.some) {
            // The same collective, of lanes none of which are here.
            if let Some(other) = self.last[lane].filter(|o| o.imm == call.imm && o.mask & lanes == 0) {
                found.get_or_insert(Disagreement { call, lanes, other, others: 0 }).others |= 1 << lane;
            }
        }
        if lanes == live {
            lanes_of(lanes).for_each(|l| self.last[l] = None);
            self.some &= !lanes;
        } else {
            lanes_of(lanes).for_each(|l| self.last[l] = Some(call));
            self.some |= lanes;
        }
        found
    }
}

/// Lanes of a warp, `live` of which have not exited, execute a collective with one mask.
pub(super) fn executed(
    masks: &mut Masks,
    findings: &mut Findings,
    (block, warp): (u64, u32),
    (imm, mask, pc): (u64, u32, u32),
    lanes: u32,
    live: u32,
) {
    let state = masks.warp(warp);
    // The usual case: all lanes meet, and had met before.
    if state.some == 0 && lanes == live && state.waits.is_empty() {
        return;
    }
    if let Some(found) = state.executes(Call { imm, mask, pc }, lanes, live) {
        report(findings, (block, warp), &found);
    }
}

/// Lanes of a warp have exited, after which those are left that `live` names.
pub(super) fn exited(masks: &mut Masks, findings: &mut Findings, (block, warp): (u64, u32), live: u32) {
    let Some(state) = masks.warps.get_mut(warp as usize).filter(|w| !w.waits.is_empty()) else { return };
    let mut found = Vec::new();
    for (call, lanes) in std::mem::take(&mut state.waits) {
        match call.mask & live & !lanes {
            0 => found.extend(state.complete(call, lanes & live, live)),
            _ => state.waits.push((call, lanes)),
        }
    }
    found.iter().for_each(|f| report(findings, (block, warp), f));
}

fn report(findings: &mut Findings, (block, warp): (u64, u32), found: &Disagreement) {
    let &Disagreement { call, lanes, other, others } = found;
    if findings.seen(Rule::Membermask, call.pc, other.pc, Severity::Error) {
        return;
    }
    let collective = Collective::of(call.imm).name().to_string();
    let side = |lanes: u32, of: Call| {
        let (kind, detail) = (SiteKind::Named(collective.clone()), Detail::Masked { lanes, mask: of.mask });
        RawSite { kind, thread: Some((block, warp, lanes.trailing_zeros() & 31)), pc: of.pc, detail }
    };
    let sites = vec![side(lanes, call), side(others, other)];
    findings.add(RawFinding {
        rule: Rule::Membermask,
        severity: Severity::Error,
        defect: Defect::MasksDisagree { collective, lanes, others },
        sites,
        addresses: Vec::new(),
        interval: None,
    });
}
