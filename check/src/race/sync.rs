//! Barriers and collectives: what orders lanes, and what is wrong with how they are used.

use super::masks;
use super::state::RaceCheck;
use crate::findings::Findings;
use crate::raw::{RawFinding, RawSite};
use crate::{Defect, Detail, Rule, Severity, SiteKind};
use warpsmith_simt::machine::barrier::bar;
use warpsmith_simt::machine::collective::{Collective, named, source};
use warpsmith_simt::machine::lanes::{lane_of, lanes_of};
use warpsmith_simt::machine::{Cx, LANES, Op};
use warpsmith_simt::{Fault, FaultKind, Waiter, Waits};

/// Places that a report about waiting names.
const PLACES: usize = 6;

/// A side of a finding: a lane of the block that runs.
fn site(c: &RaceCheck<'_>, kind: SiteKind, warp: u32, lane: u32, pc: u32, detail: Detail) -> RawSite {
    RawSite { kind, thread: Some((c.index, warp, lane)), pc, detail }
}

/// Before a collective: orders the lanes of groups that are complete, and looks at what shuffles read.
///
/// # Safety
/// The contract of handlers; the operation is a collective.
pub(super) unsafe fn collective(c: &mut RaceCheck<'_>, cx: &Cx, op: &Op, pc: u32, warp: u32) {
    let active = cx.active;
    let first = active.trailing_zeros() as usize % LANES;
    // SAFETY: by the contract.
    let mask_of = |lane: usize| unsafe { named(cx, op, lane) };
    let mask = mask_of(first);
    let uniform = lanes_of(active).all(|l| mask_of(l) == mask);
    if c.checks.sync {
        let mut rest = active;
        while rest != 0 {
            let mask = mask_of(rest.trailing_zeros() as usize % LANES);
            let group =
                if uniform { rest } else { lanes_of(rest).filter(|&l| mask_of(l) == mask).fold(0, |m, l| m | 1 << l) };
            masks::executed(&mut c.block.masks, c.findings, (c.index, warp), (op.imm, mask, pc), group, cx.live);
            rest &= !group;
        }
    }
    // Otherwise they wait for others, and are looked at when these have come.
    let complete = lanes_of(active).all(|l| mask_of(l) & cx.live & !active == 0);
    if c.checks.races {
        if uniform {
            if mask & cx.live == active {
                c.block.clocks.met(warp as usize, active);
            }
        } else {
            let mut rest = active;
            while rest != 0 {
                let mask = mask_of(rest.trailing_zeros() as usize % LANES);
                let group = lanes_of(rest).filter(|&l| mask_of(l) == mask).fold(0, |m, l| m | 1 << l);
                if group == mask & cx.live {
                    c.block.clocks.met(warp as usize, group);
                }
                rest &= !group;
            }
        }
    }
    if complete && !(uniform && mask == !0 && cx.live == !0) {
        // SAFETY: by the contract.
        unsafe { sources(c, cx, op, pc, warp, active) }
    }
}

/// Looks at what the shuffle of `lanes` reads, if it is one.
///
/// # Safety
/// The contract of handlers; the operation is a collective.
pub(crate) unsafe fn sources(c: &mut RaceCheck<'_>, cx: &Cx, op: &Op, pc: u32, warp: u32, lanes: u32) {
    let kind = Collective::of(op.imm);
    if !c.checks.sync
        || !matches!(kind, Collective::ShflUp | Collective::ShflDown | Collective::ShflBfly | Collective::ShflIdx)
    {
        return;
    }
    // SAFETY: by the contract.
    let mask_of = |lane: usize| unsafe { named(cx, op, lane) };
    for lane in lanes_of(lanes) {
        // SAFETY: by the contract: `b` and `c` are rows of 32 bits.
        let (b, clamp) = unsafe { (lane_of::<u32>(cx.src(op.b), lane), lane_of::<u32>(cx.src(op.c), lane)) };
        let (from, inside) = source(kind, lane as u32, b, clamp);
        let mask = mask_of(lane);
        if !inside || mask & cx.live & (1 << from) != 0 {
            continue;
        }
        if c.findings.seen(Rule::InactiveSource, pc, u32::MAX, Severity::Warning) {
            continue;
        }
        let finding = RawFinding {
            rule: Rule::InactiveSource,
            severity: Severity::Warning,
            defect: Defect::ShuffleSource { lane: from, mask: (mask >> from & 1 == 0).then_some(mask) },
            sites: vec![site(c, SiteKind::Shuffle, warp, lane as u32, pc, Detail::None)],
            addresses: Vec::new(),
            interval: None,
        };
        c.findings.add(finding);
    }
}

/// After a collective of `lanes` of a warp that met from several places: their positions and lanes.
pub(crate) fn met(c: &mut RaceCheck<'_>, warp: u32, lanes: u32, kind: Collective, sites: &[(u32, u32)]) {
    if c.checks.races {
        c.block.clocks.met(warp as usize, lanes);
    }
    let mut places: Vec<(u32, u32)> = Vec::new();
    for &(pc, mask) in sites {
        match places.iter_mut().find(|p| p.0 == pc) {
            Some(place) => place.1 |= mask,
            None => places.push((pc, mask)),
        }
    }
    // A warp barrier means the same wherever a lane stands; other collectives read what other lanes bring.
    if !c.checks.sync || places.len() < 2 || kind == Collective::WarpSync {
        return;
    }
    places.sort_unstable();
    if c.findings.seen(Rule::SplitCollective, places[0].0, places[1].0, Severity::Error) {
        return;
    }
    let of = |&(pc, lanes): &(u32, u32)| {
        site(c, SiteKind::Part, warp, lanes.trailing_zeros() & 31, pc, Detail::Lanes(lanes))
    };
    let collective = kind.name().to_string();
    let finding = RawFinding {
        rule: Rule::SplitCollective,
        severity: Severity::Error,
        defect: Defect::SplitCollective { collective, lanes, places: places.len() },
        sites: places.iter().map(of).collect(),
        addresses: Vec::new(),
        interval: None,
    };
    c.findings.add(finding);
}

/// Before a block barrier instruction.
///
/// # Safety
/// The contract of handlers; the operation is a block barrier.
pub(super) unsafe fn barrier(c: &mut RaceCheck<'_>, cx: &Cx, op: &Op, pc: u32, warp: u32) {
    let lane = cx.active.trailing_zeros() & 31;
    // SAFETY: by the contract: `a` is a row of 32 bits.
    let id = unsafe { lane_of::<u32>(cx.src(op.a), lane as usize) };
    let Some(pending) = c.block.barriers.get_mut(id) else { return };
    let kind = op.imm & bar::KIND;
    let Some((first, first_warp, first_lane, first_pc)) = pending.first else {
        pending.first = Some((kind, warp, lane, pc));
        return;
    };
    let again = pending.arrived >> warp & 1 != 0;
    let mixed = kind != first && (kind >= bar::RED_POPC || first >= bar::RED_POPC);
    if !(mixed || again) || c.findings.seen(Rule::BarrierDivergence, pc, first_pc, Severity::Error) {
        return;
    }
    let (first, now) = (name(first).to_string(), name(kind).to_string());
    let sites = vec![
        site(c, SiteKind::Named(now.clone()), warp, lane, pc, Detail::None),
        site(c, SiteKind::Named(first.clone()), first_warp, first_lane, first_pc, Detail::FirstToArrive),
    ];
    let defect = match mixed {
        true => Defect::BarrierKinds { barrier: id, first, now },
        false => Defect::BarrierAgain { barrier: id },
    };
    let (rule, severity) = (Rule::BarrierDivergence, Severity::Error);
    c.findings.add(RawFinding { rule, severity, defect, sites, addresses: Vec::new(), interval: None });
}

/// A fault that is about barriers, masks or waiting, as a finding with everybody who waits; `false` for any other.
pub(crate) fn fault(findings: &mut Findings, fault: &Fault) -> bool {
    let some = |is: fn(&Waits) -> bool| fault.waiters.iter().any(|w| is(&w.does));
    let spinning = some(|waits| matches!(waits, Waits::Spins));
    let at_barrier = some(|waits| matches!(waits, Waits::AtBarrier { .. }));
    let rule = match fault.kind {
        FaultKind::DivergentBarrier => Rule::BarrierDivergence,
        FaultKind::MaskMisuse => Rule::Membermask,
        FaultKind::Deadlock if at_barrier && !spinning => Rule::BarrierMissing,
        FaultKind::Deadlock => Rule::Deadlock,
        _ => return false,
    };
    let mut sites = waiting(fault.linear_block, &fault.waiters);
    if sites.is_empty() {
        let thread = Some((fault.linear_block, fault.warp, fault.lane));
        sites.push(RawSite { kind: SiteKind::Here, thread, pc: fault.pc, detail: Detail::None });
    }
    let defect = Defect::Stuck { fault: fault.kind.clone(), reason: fault.reason.clone(), spinning, at_barrier };
    let severity = Severity::Error;
    findings.add(RawFinding { rule, severity, defect, sites, addresses: Vec::new(), interval: None });
    true
}

/// Who waits, once for each place, those first who spin; at most [`PLACES`].
fn waiting(block: u64, waiters: &[Waiter]) -> Vec<RawSite> {
    let mut order: Vec<&Waiter> = waiters.iter().collect();
    order.sort_by_key(|w| w.does.rank());
    let mut places: Vec<(&Waiter, usize)> = Vec::new();
    for w in order {
        match places.iter_mut().find(|p| p.0.pc == w.pc && p.0.does.rank() == w.does.rank()) {
            Some(known) => known.1 += 1,
            None => places.push((w, 0)),
        }
    }
    let site = |&(w, more): &(&Waiter, usize)| RawSite {
        kind: SiteKind::Waits { warp: w.warp, lanes: w.lanes, waits: w.does.clone(), more },
        thread: Some((block, w.warp, w.lanes.trailing_zeros() & 31)),
        pc: w.pc,
        detail: Detail::None,
    };
    places.iter().take(PLACES).map(site).collect()
}

fn name(kind: u64) -> &'static str {
    match kind {
        bar::SYNC => "bar.sync",
        bar::ARRIVE => "bar.arrive",
        bar::RED_POPC => "bar.red.popc",
        bar::RED_AND => "bar.red.and",
        _ => "bar.red.or",
    }
}

/// A warp has arrived at a block barrier, to wait for the others or not.
pub(crate) fn arrived(c: &mut RaceCheck<'_>, warp: u32, id: u32, waits: bool) {
    if let Some(b) = c.block.barriers.get_mut(id) {
        b.arrived |= 1 << (warp & 31);
    }
    // Behind the barrier all have waited if one had: what it waited for is visible to the grid.
    if c.block.waited != 0 {
        c.block.waited = !0;
    }
    c.block.clocks.arrived(warp as usize, id as usize, waits);
}

/// Lanes have waited at the barrier of their cluster.
pub(crate) fn cluster_waited(c: &mut RaceCheck<'_>, warp: u32, lanes: u32) {
    c.block.clocks.cluster_waited(warp as usize, lanes);
}
