//! What a race looks like in a report.

use super::access::Run;
use super::access::{given, held, lane_address, silent};
use super::agents::{is_object, owner};
use super::order::{Clocks, Missed};
use super::shadow::{Clash, Conflict, flag};
use super::state::Races;
use crate::defect::{Advice, Missing, Race, Verb, Within};
use crate::findings::Findings;
use crate::raw::{RawFinding, RawSite};
use crate::{Defect, Detail, Rule, Severity, SiteKind};
use warpsmith_simt::machine::bounds::Place;
use warpsmith_simt::machine::note::{Access, Does, Role, Scope};
use warpsmith_simt::machine::{Cx, LANES, Op};

/// The access that runs, and what is known of the launch.
pub(super) struct CurrentAccess<'a> {
    pub races: &'a Races,
    pub clocks: &'a Clocks,
    /// Linear index of the block.
    pub block: u64,
    pub warp: u32,
    pub op: &'a Op,
    pub pc: u32,
    pub access: &'a Access,
    pub run: &'a Run,
    /// It is an asynchronous copy or a matrix access, whose values are not looked at.
    pub opaque: bool,
}

/// Two accesses that clash, and what is known of both.
struct Pair<'s, 'c> {
    current: &'s CurrentAccess<'s>,
    conflict: &'c Conflict,
    /// Address, or offset in the space, of the first byte of both.
    at: u64,
    /// The earlier access, unless it is a copy or an access of a matrix.
    earlier: Option<&'s Access>,
    same_block: bool,
    same_warp: bool,
    /// The earlier one is a copy that nobody of this thread's past has waited for.
    under_way: bool,
    /// Both lanes execute the instruction together, as hardware does today.
    lockstep: bool,
    /// An atomic has read what the other block released.
    intended: bool,
    /// The value that is written was there already.
    silent: bool,
    /// A release and an acquire that would order the two if their scopes were wider.
    missed: Option<&'s Missed>,
    /// The variable of the module that the bytes are in: address, size, name.
    variable: Option<&'s (u64, u64, String)>,
}

/// Reports two accesses that clash.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn clash(s: &CurrentAccess<'_>, cx: &Cx, findings: &mut Findings, base: u64, c: &Conflict) {
    // SAFETY: by the contract.
    let Some(pair) = (unsafe { Pair::new(s, cx, base, c) }) else { return };
    let (rule, severity) = (pair.rule(), pair.severity());
    if findings.seen(rule, s.pc, c.theirs.pc, severity) {
        return;
    }
    let (access, earlier) = pair.verbs(cx);
    // SAFETY: by the contract.
    let mine = if s.opaque { Detail::None } else { unsafe { values(s, cx, c.my_lane as usize % LANES) } };
    let sites = pair.sites(access, earlier, mine);
    let alone = c.kind == Clash::Race && !pair.same_warp && !pair.under_way && pair.missed.is_none();
    let is_static = rule == Rule::StaticShared;
    let race = Race {
        access,
        earlier,
        writes: s.access.writes(),
        space: s.run.place,
        at: pair.at,
        bytes: s.access.bytes(),
        within: pair.within(cx),
        missing: pair.missing(cx),
        silent: pair.silent,
        variable: pair.variable.filter(|_| is_static).map(|v| v.2.clone()),
        advice: if alone && !is_static { advice(s.races, pair.intended) } else { Advice::None },
    };
    let interval = (pair.same_block && !pair.same_warp && !pair.under_way).then_some(s.clocks.openings);
    let addresses = if s.run.place == Place::Global { vec![pair.at] } else { Vec::new() };
    let defect = Defect::Race(Box::new(race));
    findings.add(RawFinding { rule, severity, defect, sites, addresses, interval });
}

impl<'s, 'c> Pair<'s, 'c> {
    /// # Safety
    /// The contract of handlers.
    unsafe fn new(s: &'s CurrentAccess<'s>, cx: &Cx, base: u64, c: &'c Conflict) -> Option<Pair<'s, 'c>> {
        let theirs = &c.theirs;
        let same_block = owner(theirs.block, s.clocks.block) == s.clocks.block;
        let under_way = theirs.flags & flag::ASYNC != 0 && same_block;
        let at = base + u64::from(c.at);
        let warp = s.clocks.warp(s.warp as usize)?;
        let lane = c.my_lane as usize % LANES;
        // SAFETY: by the contract.
        let mine_is_silent = unsafe {
            !s.opaque
                && s.access.does == Does::Store
                && silent(cx, s.op, s.access, lane, s.run.place, lane_address(s.run, lane))
        };
        let past = |m: &&Missed| m.clock.epoch(theirs.block, theirs.warp, c.their_lane) >= theirs.epoch;
        Some(Pair {
            current: s,
            conflict: c,
            at,
            earlier: s.races.access_at(cx, theirs.pc),
            same_block,
            same_warp: same_block && !under_way && u32::from(theirs.warp) == s.warp,
            under_way,
            lockstep: theirs.flags & flag::WHOLE != 0 || cx.mask >> (c.their_lane & 31) & 1 != 0,
            intended: warp.intended(theirs.block, theirs.warp, c.their_lane, theirs.epoch),
            silent: mine_is_silent || theirs.flags & flag::SILENT != 0,
            missed: s.clocks.missed.iter().find(past),
            variable: s.races.statics.iter().find(|v| s.run.place == Place::Global && at.wrapping_sub(v.0) < v.1),
        })
    }

    fn rule(&self) -> Rule {
        match self.conflict.kind {
            Clash::Stale => Rule::StaleRead,
            Clash::Race if self.under_way => Rule::MissingWait,
            Clash::Scope => Rule::RaceScope,
            Clash::Race if self.missed.is_some() => Rule::RaceScope,
            Clash::Race if self.variable.is_some() && !self.same_block => Rule::StaticShared,
            Clash::Race if self.current.run.place == Place::Shared => Rule::RaceShared,
            Clash::Race => Rule::RaceGlobal,
        }
    }

    fn severity(&self) -> Severity {
        match self.conflict.kind {
            Clash::Race if self.under_way => Severity::Error,
            // What lockstep orders today has had no effect on this run; lanes in different arms of a branch run in any order.
            Clash::Race if self.same_warp && self.lockstep => Severity::Warning,
            Clash::Race | Clash::Stale if self.silent => Severity::Warning,
            Clash::Race if self.intended => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// What the access at hand does, and what the earlier one did.
    fn verbs(&self, cx: &Cx) -> (Verb, Verb) {
        let races = self.current.races;
        let verb = |access: Option<&Access>, pc: u32, writes: bool| match access.map(|a| a.does) {
            Some(Does::Load) => Verb::Read,
            Some(Does::Store) => Verb::Write,
            Some(Does::Atomic) => Verb::Atomic,
            None if races.role(cx, pc) != Role::MatrixAccess => Verb::Copy,
            None if writes => Verb::Write,
            None => Verb::Read,
        };
        let (s, theirs) = (self.current, &self.conflict.theirs);
        let mine = verb(Some(s.access).filter(|_| !s.opaque), s.pc, s.access.writes());
        (mine, verb(self.earlier, theirs.pc, theirs.flags & flag::WRITE != 0))
    }

    fn sites(&self, access: Verb, earlier: Verb, mine: Detail) -> Vec<RawSite> {
        let (s, c, theirs) = (self.current, self.conflict, &self.conflict.theirs);
        let their_thread = (u64::from(owner(theirs.block, s.clocks.block)), u32::from(theirs.warp), c.their_lane);
        let detail = match (self.earlier, s.access.does) {
            (Some(a), Does::Load) if a.writes() => Detail::WroteThis,
            (Some(a), _) if a.order.strong() => Detail::Strong { order: a.order, scope: a.scope },
            _ => Detail::None,
        };
        let kind = match self.under_way {
            true => SiteKind::AsyncCopy,
            false => SiteKind::Access { verb: earlier, bytes: self.earlier.map(Access::bytes), earlier: true },
        };
        vec![
            RawSite {
                kind: SiteKind::Access { verb: access, bytes: Some(s.access.bytes()), earlier: false },
                thread: Some((s.block, s.warp, c.my_lane)),
                pc: s.pc,
                detail: mine,
            },
            RawSite { kind, thread: Some(their_thread), pc: theirs.pc, detail },
        ]
    }

    /// What the bytes lie in.
    fn within(&self, cx: &Cx) -> Within {
        match (self.current.run.place, self.variable) {
            (Place::Shared, _) => Within::Shared { bytes: cx.shared_bytes.into() },
            (_, Some((base, bytes, name))) => Within::Variable { name: name.clone(), base: *base, bytes: *bytes },
            (_, None) => Within::allocation(&cx.memory, self.at),
        }
    }

    /// The order that is missing.
    fn missing(&self, cx: &Cx) -> Missing {
        let (s, theirs) = (self.current, &self.conflict.theirs);
        match (self.conflict.kind, self.missed) {
            (Clash::Stale, _) => Missing::Coherence,
            (Clash::Scope, _) => self.wider_scope(),
            (Clash::Race, _) if self.under_way => {
                Missing::Wait { object: is_object(theirs.block), target: theirs.flags & flag::WRITE != 0 }
            }
            (Clash::Race, Some(m)) => {
                let line = |pc: u32| (pc != u32::MAX).then(|| s.races.line(cx, pc));
                Missing::WiderSynchronisation { release: line(m.release), acquire: line(m.acquire) }
            }
            (Clash::Race, None) => self.edge(),
        }
    }

    fn wider_scope(&self) -> Missing {
        let (s, block) = (self.current, self.conflict.theirs.block);
        match self.earlier {
            _ if !super::order::wide(s.access.scope) => {
                Missing::WiderScope { scope: s.access.scope, earlier: false, block: block.into() }
            }
            theirs => {
                let scope = theirs.map_or(Scope::Cta, |a| a.scope);
                Missing::WiderScope { scope, earlier: true, block: s.block }
            }
        }
    }

    fn edge(&self) -> Missing {
        let (s, c) = (self.current, self.conflict);
        let (earlier_lane, lane) = (c.their_lane, c.my_lane);
        let (earlier_warp, earlier_block) = (u32::from(c.theirs.warp), u64::from(c.theirs.block));
        let gone = |w: &super::order::Warp| w.gone(earlier_lane, s.clocks.openings);
        let exited = self.same_block && s.clocks.warp(c.theirs.warp.into()).is_some_and(gone);
        if self.same_warp {
            return Missing::WarpBarrier { earlier_lane, lane, lockstep: self.lockstep, exited };
        }
        if self.same_block {
            return Missing::BlockBarrier { earlier: (earlier_warp, earlier_lane), now: (s.warp, lane), exited };
        }
        match self.intended {
            true => Missing::Acquire { earlier_block, block: s.block },
            false => Missing::BlockOrder { earlier_block, block: s.block },
        }
    }
}

/// Reports lanes that store to one address in one instruction.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn collide(s: &CurrentAccess<'_>, cx: &Cx, findings: &mut Findings) {
    let lanes: Vec<usize> = warpsmith_simt::machine::lanes::lanes_of(s.run.lanes).collect();
    // SAFETY: by the contract; the access is a store.
    let value =
        |lane: usize| (0..s.access.count).map(|i| unsafe { given(cx, s.op, s.access, lane, i) }).collect::<Vec<_>>();
    let [first, ..] = lanes[..] else { return };
    let wanted = value(first);
    let other = lanes.iter().copied().find(|&l| value(l) != wanted);
    let severity = if other.is_some() { Severity::Error } else { Severity::Info };
    let (space, at) = (s.run.place, s.run.first);
    let rule = if space == Place::Shared { Rule::RaceShared } else { Rule::RaceGlobal };
    if findings.seen(rule, s.pc, s.pc, severity) {
        return;
    }
    let last = other.or(lanes.last().copied()).unwrap_or(first);
    let site = |lane: usize| RawSite {
        kind: SiteKind::Access { verb: Verb::Write, bytes: None, earlier: false },
        thread: Some((s.block, s.warp, lane as u32)),
        pc: s.pc,
        detail: Detail::Writes { new: value(lane), over: None },
    };
    let global = space == Place::Global;
    let within = if global { Within::allocation(&cx.memory, at) } else { Within::Unknown };
    findings.add(RawFinding {
        rule,
        severity,
        defect: Defect::SameAddress { lanes: lanes.len() as u32, different: other.is_some(), space, at, within },
        sites: vec![site(last), site(first)],
        addresses: if global { vec![at] } else { Vec::new() },
        interval: None,
    });
}

/// What the running access reads or writes.
unsafe fn values(s: &CurrentAccess<'_>, cx: &Cx, lane: usize) -> Detail {
    let first = lane_address(s.run, lane);
    let at = |i: u32| held(cx, s.run.place, first + u64::from(i * s.access.size), s.access.size.into());
    let Some(old) = (0..s.access.count).map(at).collect::<Option<Vec<u64>>>() else { return Detail::None };
    match s.access.does {
        Does::Load => Detail::Reads(old),
        Does::Store => {
            // SAFETY: by the contract of the callers.
            let new = (0..s.access.count).map(|i| unsafe { given(cx, s.op, s.access, lane, i) }).collect();
            Detail::Writes { new, over: Some(old) }
        }
        Does::Atomic => Detail::Finds { old, order: s.access.order, scope: s.access.scope },
    }
}

/// What to do about accesses that are not ordered.
fn advice(races: &Races, intended: bool) -> Advice {
    if intended || races.bare && races.orders {
        Advice::DroppedOrdering
    } else if races.strong && !races.orders {
        Advice::RelaxedOnly
    } else {
        Advice::None
    }
}
