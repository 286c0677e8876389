//! Barriers and collectives: what orders lanes, and what is wrong with how they are used.

use super::masks;
use crate::checker::{Checker, Findings, RawFinding, RawSite};
use crate::{Rule, Severity};
use warpsmith_simt::machine::barrier::bar;
use warpsmith_simt::machine::collective::{Kind, named, source};
use warpsmith_simt::machine::lanes::{lane_of, lanes_of};
use warpsmith_simt::machine::{Cx, LANES, Op};
use warpsmith_simt::{Fault, FaultKind, Waiter, Waits};

/// Places that a report about waiting names.
const PLACES: usize = 6;

/// Barriers of a block that warps have arrived at and that have not opened.
#[derive(Default)]
pub(super) struct State {
    barriers: [Pending; 16],
}

#[derive(Clone, Copy, Default)]
struct Pending {
    /// What the first one executed, and who that was; `None` if nobody has yet.
    first: Option<(u64, u32, u32, u32)>,
    /// Warps that have arrived, and the last one's position.
    arrived: u32,
}

impl State {
    /// Who arrived first at a barrier that has not opened: warp, lane and position.
    pub(super) fn first(&self, id: u32) -> Option<(u32, u32, u32)> {
        self.barriers.get(id as usize)?.first.map(|(_, warp, lane, pc)| (warp, lane, pc))
    }

    pub(super) fn opened(&mut self, id: u32) {
        if let Some(b) = self.barriers.get_mut(id as usize) {
            *b = Pending::default();
        }
    }
}

pub(super) fn site(c: &Checker, label: &str, warp: u32, lane: u32, pc: u32, note: String) -> RawSite {
    RawSite { label: label.to_string(), thread: Some((c.block.index, warp, lane)), pc, note }
}

/// Before a collective: orders the lanes of groups that are complete, and looks at what shuffles read.
///
/// # Safety
/// The contract of handlers; the operation is a collective.
pub(super) unsafe fn collective(c: &mut Checker, cx: &Cx, op: &Op, pc: u32, warp: u32) {
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
            masks::executed(c, warp, (op.imm, mask, pc), group, cx.live);
            rest &= !group;
        }
    }
    // Otherwise they wait for others, and are looked at when these have come.
    let complete = lanes_of(active).all(|l| mask_of(l) & cx.live & !active == 0);
    if c.checks.races {
        if uniform {
            if mask & cx.live == active {
                c.block.races.clocks.met(warp as usize, active);
            }
        } else {
            let mut rest = active;
            while rest != 0 {
                let mask = mask_of(rest.trailing_zeros() as usize % LANES);
                let group = lanes_of(rest).filter(|&l| mask_of(l) == mask).fold(0, |m, l| m | 1 << l);
                if group == mask & cx.live {
                    c.block.races.clocks.met(warp as usize, group);
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
pub(crate) unsafe fn sources(c: &mut Checker, cx: &Cx, op: &Op, pc: u32, warp: u32, lanes: u32) {
    let kind = Kind::of(op.imm);
    if !c.checks.sync || !matches!(kind, Kind::ShflUp | Kind::ShflDown | Kind::ShflBfly | Kind::ShflIdx) {
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
        let why = if mask >> from & 1 == 0 {
            format!("which the membermask {mask:#010x} does not name")
        } else {
            "which has exited".to_string()
        };
        let finding = RawFinding {
            rule: Rule::InactiveSource,
            severity: Severity::Warning,
            message: format!("a shuffle reads lane {from}, {why}"),
            sites: vec![site(c, "shuffle", warp, lane as u32, pc, String::new())],
            memory: String::new(),
            help: "the value is undefined: name the lane and let it execute the shuffle, or do not use the result"
                .into(),
            addresses: Vec::new(),
            interval: None,
        };
        c.findings.add(finding);
    }
}

/// After a collective of `lanes` of a warp that met from several places: their positions and lanes.
pub(crate) fn met(c: &mut Checker, warp: u32, lanes: u32, kind: Kind, sites: &[(u32, u32)]) {
    if c.checks.races {
        c.block.races.clocks.met(warp as usize, lanes);
    }
    let mut places: Vec<(u32, u32)> = Vec::new();
    for &(pc, mask) in sites {
        match places.iter_mut().find(|p| p.0 == pc) {
            Some(place) => place.1 |= mask,
            None => places.push((pc, mask)),
        }
    }
    // A warp barrier means the same wherever a lane stands; other collectives read what other lanes bring.
    if !c.checks.sync || places.len() < 2 || kind == Kind::WarpSync {
        return;
    }
    places.sort_unstable();
    if c.findings.seen(Rule::SplitCollective, places[0].0, places[1].0, Severity::Error) {
        return;
    }
    let of = |&(pc, mask): &(u32, u32)| {
        site(c, "part of it", warp, mask.trailing_zeros() & 31, pc, format!("lanes {mask:#010x}"))
    };
    let help = "on a GPU each part runs by itself, and waits for the others or exchanges nothing with them; if the source has one \
                call, the compiler has copied it into the arms of a branch, because it does not know that it is convergent \
                (stock rustc and inline assembly: rust#149637)";
    let finding = RawFinding {
        rule: Rule::SplitCollective,
        severity: Severity::Error,
        message: format!(
            "the lanes {lanes:#010x} of one collective ({}) arrive from {} places of the code",
            kind.name(),
            places.len()
        ),
        sites: places.iter().map(of).collect(),
        memory: String::new(),
        help: help.into(),
        addresses: Vec::new(),
        interval: None,
    };
    c.findings.add(finding);
}

/// Before a block barrier instruction.
///
/// # Safety
/// The contract of handlers; the operation is a block barrier.
pub(super) unsafe fn barrier(c: &mut Checker, cx: &Cx, op: &Op, pc: u32, warp: u32) {
    let lane = cx.active.trailing_zeros() & 31;
    // SAFETY: by the contract: `a` is a row of 32 bits.
    let id = unsafe { lane_of::<u32>(cx.src(op.a), lane as usize) };
    let Some(pending) = c.block.races.sync.barriers.get_mut(id as usize) else { return };
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
    let (message, help) = if mixed {
        (
            format!("{} and {} on barrier {id} at the same time", name(first), name(kind)),
            "all warps of one round of a barrier must execute the same kind: reductions do not mix with sync, arrive or each other",
        )
    } else {
        (
            format!("a warp arrives at barrier {id} again before it has opened"),
            "after bar.arrive a warp must not come to the same barrier again until the others have been there: use two barriers in turn",
        )
    };
    let sites = vec![
        site(c, name(kind), warp, lane, pc, String::new()),
        site(c, name(first), first_warp, first_lane, first_pc, "the first to arrive".into()),
    ];
    let help = help.to_string();
    let (rule, severity, memory) = (Rule::BarrierDivergence, Severity::Error, String::new());
    c.findings.add(RawFinding { rule, severity, message, sites, memory, help, addresses: Vec::new(), interval: None });
}

/// A fault that is about barriers, masks or waiting, as a finding with everybody who waits; `false` for any other.
pub(crate) fn fault(findings: &mut Findings, fault: &Fault) -> bool {
    let some = |does: Waits| fault.waiters.iter().any(|w| w.does == does);
    let (rule, help) = match fault.kind {
        FaultKind::DivergentBarrier => (
            Rule::BarrierDivergence,
            "all threads of the warps that a barrier counts must execute the same barrier, with the same operands",
        ),
        FaultKind::MaskMisuse => (
            Rule::Membermask,
            "a lane may only execute a collective whose membermask names it, and all lanes must name the same lanes",
        ),
        FaultKind::Deadlock if some(Waits::Spins) => (
            Rule::Deadlock,
            "a loop that waits needs somebody who ends it: whoever should change what it reads waits for it, has exited, or never \
             gets there",
        ),
        FaultKind::Deadlock if some(Waits::AtBarrier) => (
            Rule::BarrierMissing,
            "the threads that are missing took another way or have exited: move the barrier out of the branch, or count them out",
        ),
        FaultKind::Deadlock => {
            (Rule::Deadlock, "a collective waits for all lanes that its membermask names and that have not exited")
        }
        _ => return false,
    };
    let mut sites = waiting(fault.linear_block, &fault.waiters);
    if sites.is_empty() {
        let thread = Some((fault.linear_block, fault.warp, fault.lane));
        sites.push(RawSite { label: "here".into(), thread, pc: fault.pc, note: String::new() });
    }
    let (severity, message, memory) = (Severity::Error, fault.message(), String::new());
    findings.add(RawFinding {
        rule,
        severity,
        message,
        sites,
        memory,
        help: help.into(),
        addresses: Vec::new(),
        interval: None,
    });
    true
}

/// Who waits, once for each place, those first who spin; at most [`PLACES`].
fn waiting(block: u64, waiters: &[Waiter]) -> Vec<RawSite> {
    let mut order: Vec<&Waiter> = waiters.iter().collect();
    order.sort_by_key(|w| w.does);
    let mut places: Vec<(&Waiter, usize)> = Vec::new();
    for w in order {
        match places.iter_mut().find(|p| (p.0.pc, p.0.does) == (w.pc, w.does)) {
            Some(known) => known.1 += 1,
            None => places.push((w, 0)),
        }
    }
    let site = |&(w, more): &(&Waiter, usize)| {
        let others = match more {
            0 => String::new(),
            1 => "; so does another group of lanes".to_string(),
            n => format!("; so do {n} more groups of lanes"),
        };
        RawSite {
            label: format!("warp {}, lanes {:#010x}: {}{others}", w.warp, w.lanes, w.what),
            thread: Some((block, w.warp, w.lanes.trailing_zeros() & 31)),
            pc: w.pc,
            note: String::new(),
        }
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
pub(crate) fn arrived(c: &mut Checker, warp: u32, id: u32, waits: bool) {
    if let Some(b) = c.block.races.sync.barriers.get_mut(id as usize) {
        b.arrived |= 1 << (warp & 31);
    }
    // Behind the barrier all have waited if one had: what it waited for is visible to the grid.
    if c.block.races.waited != 0 {
        c.block.races.waited = !0;
    }
    c.block.races.clocks.arrived(warp as usize, id as usize, waits);
}

/// Lanes have waited at the barrier of their cluster.
pub(crate) fn cluster_waited(c: &mut Checker, warp: u32, lanes: u32) {
    c.block.races.clocks.cluster_waited(warp as usize, lanes);
}
