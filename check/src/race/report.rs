//! What a race looks like in a report.

use super::access::Run;
use super::access::{given, held, lane_address, order_name, silent};
use super::order::Clocks;
use super::shadow::{Clash, Conflict, flag};
use super::{Races, bulk};
use crate::checker::{Findings, RawFinding, RawSite};
use crate::{Rule, Severity};
use warpsmith_simt::machine::bounds::Place;
use warpsmith_simt::machine::memory::lookup;
use warpsmith_simt::machine::note::{Access, Does, Order, Role};
use warpsmith_simt::machine::{Cx, LANES, Op};

/// The access that runs, and what is known of the launch.
pub(super) struct Scene<'a> {
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

/// Reports two accesses that clash.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn clash(s: &Scene<'_>, cx: &Cx, findings: &mut Findings, base: u64, c: &Conflict) {
    let theirs = &c.theirs;
    let same_block = bulk::owner(theirs.block, s.clocks.block) == s.clocks.block;
    // A copy that nobody of this thread's past has waited for.
    let under_way = theirs.flags & flag::ASYNC != 0 && same_block;
    let same_warp = same_block && !under_way && u32::from(theirs.warp) == s.warp;
    let at = base + u64::from(c.at);
    let Some(warp) = s.clocks.warp(s.warp as usize) else { return };
    let their_access = s.races.access_at(cx, theirs.pc);
    let missed =
        s.clocks.missed.iter().find(|m| m.clock.epoch(theirs.block, theirs.warp, c.their_lane) >= theirs.epoch);
    let variable = s.races.statics.iter().find(|v| s.run.place == Place::Global && at.wrapping_sub(v.0) < v.1);
    let rule = match c.kind {
        Clash::Stale => Rule::StaleRead,
        Clash::Race if under_way => Rule::MissingWait,
        Clash::Scope => Rule::RaceScope,
        Clash::Race if missed.is_some() => Rule::RaceScope,
        Clash::Race if variable.is_some() && !same_block => Rule::StaticShared,
        Clash::Race if s.run.place == Place::Shared => Rule::RaceShared,
        Clash::Race => Rule::RaceGlobal,
    };
    let lane = c.my_lane as usize % LANES;
    // SAFETY: by the contract.
    let silent = unsafe {
        !s.opaque
            && s.access.does == Does::Store
            && silent(cx, s.op, s.access, lane, s.run.place, lane_address(s.run, lane))
    };
    let lockstep = theirs.flags & flag::WHOLE != 0 || cx.mask >> (c.their_lane & 31) & 1 != 0;
    let intended = warp.intended(theirs.block, theirs.warp, c.their_lane, theirs.epoch);
    let severity = match c.kind {
        Clash::Race if under_way => Severity::Error,
        // What lockstep orders today has had no effect on this run; lanes in different arms of a branch run in any order.
        Clash::Race if same_warp && lockstep => Severity::Warning,
        Clash::Race | Clash::Stale if silent || theirs.flags & flag::SILENT != 0 => Severity::Warning,
        Clash::Race if intended => Severity::Warning,
        _ => Severity::Error,
    };
    if findings.seen(rule, s.pc, theirs.pc, severity) {
        return;
    }
    let my_thread = (s.block, s.warp, c.my_lane);
    let their_thread = (u64::from(bulk::owner(theirs.block, s.clocks.block)), u32::from(theirs.warp), c.their_lane);
    let verb = |a: Option<&Access>, pc: u32, writes: bool| match a.map(|a| a.does) {
        Some(Does::Load) => "read",
        Some(Does::Store) => "write",
        Some(Does::Atomic) => "atomic",
        None if s.races.role(cx, pc) != Role::MatrixAccess => "copy",
        None if writes => "write",
        None => "read",
    };
    let mine = verb(Some(s.access).filter(|_| !s.opaque), s.pc, s.access.writes());
    let other = verb(their_access, theirs.pc, theirs.flags & flag::WRITE != 0);
    let name = place(s.run.place, at);
    let bytes = s.access.bytes();
    let kind = if mine == other { format!("{mine}-{mine}") } else { format!("{other}-{mine}") };
    let message = match c.kind {
        Clash::Stale if mine == "read" => format!("non-coherent load (.nc) of {name}, which this grid has written"),
        Clash::Stale => format!("{mine} of {name}, which this grid reads with non-coherent loads (.nc)"),
        Clash::Scope => format!("{kind} race on {name}: a scope is too narrow"),
        Clash::Race if under_way => format!(
            "{} is {} while an asynchronous copy {} it is under way",
            if s.run.place == Place::Shared { "shared memory" } else { "global memory" },
            if s.access.writes() { "written" } else { "read" },
            if theirs.flags & flag::WRITE != 0 { "to" } else { "from" },
        ),
        Clash::Race => format!("{kind} race on {name} ({bytes} bytes)"),
    };
    // SAFETY: by the contract.
    let values = if s.opaque { String::new() } else { unsafe { values(s, cx, lane) } };
    let their_note = match (their_access, s.access.does) {
        (Some(a), Does::Load) if a.writes() => "wrote what is read now".to_string(),
        (Some(a), _) if a.order.strong() => format!("{} at scope .{}", order_name(a.order), a.scope.name()),
        _ => String::new(),
    };
    let describe = |a: Option<&Access>, what: &str| match a {
        Some(a) => format!("{what} of {} bytes", a.bytes()),
        None => what.to_string(),
    };
    let sites = vec![
        RawSite { label: describe(Some(s.access), mine), thread: Some(my_thread), pc: s.pc, note: values },
        RawSite {
            label: match under_way {
                true => "asynchronous copy".to_string(),
                false => format!("earlier {}", describe(their_access, other)),
            },
            thread: Some(their_thread),
            pc: theirs.pc,
            note: their_note,
        },
    ];
    let edge = match (c.kind, missed) {
        (Clash::Stale, _) => {
            "the read-only cache is not coherent: .nc loads are only for data that no thread of the grid \
                              writes while it runs; use a plain load"
                .to_string()
        }
        (Clash::Scope, _) => scope_edge(s, their_access, theirs.block),
        (Clash::Race, _) if under_way => wait_for(theirs.block, theirs.flags).to_string(),
        (_, Some(m)) => {
            let line =
                |pc: u32| if pc == u32::MAX { String::new() } else { format!(" (PTX line {})", s.races.line(cx, pc)) };
            format!(
                "the release{} and the acquire{} would order them, but one of the two has block scope (.cta), which does not \
                 include the other block: use .gpu",
                line(m.release),
                line(m.acquire)
            )
        }
        (Clash::Race, None) => s.edge(c, same_block, same_warp.then_some(lockstep), intended),
    };
    let mut help = edge;
    if silent || theirs.flags & flag::SILENT != 0 {
        help += "; the value written is the one that was there already";
    }
    if rule == Rule::StaticShared
        && let Some((_, _, name)) = variable
    {
        help += &format!(
            "; `{name}` is one variable in global memory, which all blocks share (as a Rust `static mut` is): if each block \
             was to have its own, it must be in shared memory"
        );
    } else if c.kind == Clash::Race && !same_warp && !under_way && missed.is_none() {
        help += s.races.advice(intended);
    }
    let memory = match s.run.place {
        Place::Shared => format!("{} bytes of shared memory of the block", cx.shared_bytes),
        _ => match (lookup(&cx.memory, at), variable) {
            (_, Some(v)) => format!("byte {} of the variable `{}` ({} bytes)", at - v.0, v.2, v.1),
            (Some(e), None) => format!("byte {} of the allocation of {} bytes at {:#x}", at - e.base, e.size, e.base),
            (None, None) => String::new(),
        },
    };
    let interval = (same_block && !same_warp && !under_way).then_some(s.clocks.openings);
    let addresses = if s.run.place == Place::Global { vec![at] } else { Vec::new() };
    findings.add(RawFinding { rule, severity, message, sites, memory, addresses, help, interval });
}

/// What ends a bulk copy.
fn wait_for(agent: u32, flags: u8) -> &'static str {
    match (bulk::is_object(agent), flags & flag::WRITE != 0) {
        (true, _) => {
            "wait until the phase of the mbarrier that the copy completes at has ended (`mbarrier.try_wait`), or for a barrier \
             behind somebody who has waited"
        }
        (false, true) => {
            "the copying thread must commit the group and wait for it (`cp.async.bulk.wait_group`), and a barrier must \
             follow for other threads"
        }
        (false, false) => {
            "the copying thread must commit the group and wait until it has read its source \
             (`cp.async.bulk.wait_group.read`), and a barrier must follow for other threads"
        }
    }
}

/// Reports lanes that store to one address in one instruction.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn collide(s: &Scene<'_>, cx: &Cx, findings: &mut Findings) {
    let lanes: Vec<usize> = warpsmith_simt::machine::lanes::lanes_of(s.run.lanes).collect();
    // SAFETY: by the contract; the access is a store.
    let value =
        |lane: usize| (0..s.access.count).map(|i| unsafe { given(cx, s.op, s.access, lane, i) }).collect::<Vec<_>>();
    let [first, ..] = lanes[..] else { return };
    let wanted = value(first);
    let other = lanes.iter().copied().find(|&l| value(l) != wanted);
    let severity = if other.is_some() { Severity::Error } else { Severity::Info };
    let rule = if s.run.place == Place::Shared { Rule::RaceShared } else { Rule::RaceGlobal };
    if findings.seen(rule, s.pc, s.pc, severity) {
        return;
    }
    let last = other.or(lanes.last().copied()).unwrap_or(first);
    let show = |v: &[u64]| v.iter().map(|v| format!("{v:#x}")).collect::<Vec<_>>().join(", ");
    let site = |label: &str, lane: usize| RawSite {
        label: label.to_string(),
        thread: Some((s.block, s.warp, lane as u32)),
        pc: s.pc,
        note: format!("writes {}", show(&value(lane))),
    };
    let same = if other.is_some() { "different values" } else { "the same value" };
    let message = format!(
        "{} lanes of a warp write {same} to {} in one instruction",
        lanes.len(),
        place(s.run.place, s.run.first)
    );
    let help = match other {
        Some(_) => "which of the values stays is not defined: let one lane write, or give each lane a place of its own",
        None => "harmless as long as the values are equal; let one lane write",
    };
    let memory = match lookup(&cx.memory, s.run.first).filter(|_| s.run.place == Place::Global) {
        Some(e) => format!("byte {} of the allocation of {} bytes at {:#x}", s.run.first - e.base, e.size, e.base),
        None => String::new(),
    };
    findings.add(RawFinding {
        rule,
        severity,
        message,
        sites: vec![site("write", last), site("write", first)],
        memory,
        help: help.to_string(),
        addresses: if s.run.place == Place::Global { vec![s.run.first] } else { Vec::new() },
        interval: None,
    });
}

/// An address as reports name it.
fn place(place: Place, at: u64) -> String {
    match place {
        Place::Shared => format!("smem+{at:#x}"),
        _ => format!("global memory at {at:#x}"),
    }
}

/// What the running access reads or writes.
unsafe fn values(s: &Scene<'_>, cx: &Cx, lane: usize) -> String {
    let first = lane_address(s.run, lane);
    let list = |f: &dyn Fn(u32) -> Option<u64>| {
        let all: Option<Vec<String>> = (0..s.access.count).map(|i| f(i).map(|v| format!("{v:#x}"))).collect();
        all.map(|v| v.join(", "))
    };
    let old = list(&|i| held(cx, s.run.place, first + u64::from(i * s.access.size), s.access.size.into()));
    match (s.access.does, old) {
        (Does::Load, Some(old)) => format!("reads {old}"),
        (Does::Store, Some(old)) => {
            // SAFETY: by the contract of the callers.
            let new = list(&|i| Some(unsafe { given(cx, s.op, s.access, lane, i) }));
            format!("writes {} over {old}", new.unwrap_or_default())
        }
        (Does::Atomic, Some(old)) => {
            format!("finds {old}, {} at scope .{}", order_name(s.access.order), s.access.scope.name())
        }
        (_, None) => String::new(),
    }
}

fn scope_edge(s: &Scene<'_>, theirs: Option<&Access>, block: u32) -> String {
    let narrow = |a: &Access| !super::order::wide(a.scope);
    let (mine, other) = (narrow(s.access), theirs.is_some_and(narrow));
    match (mine, other) {
        (true, _) => {
            format!("the scope .{} of this access does not include block {block}: use .gpu", s.access.scope.name())
        }
        _ => format!(
            "the scope .{} of the earlier access does not include block {}: use .gpu",
            theirs.map_or("cta", |a| a.scope.name()),
            s.block
        ),
    }
}

impl Scene<'_> {
    /// The order that is missing, in words.
    fn edge(&self, c: &Conflict, same_block: bool, same_warp: Option<bool>, intended: bool) -> String {
        let (theirs, mine) = (c.their_lane, c.my_lane);
        let gone =
            same_block && self.clocks.warp(c.theirs.warp.into()).is_some_and(|w| w.gone(theirs, self.clocks.openings));
        let exited = if gone { "; that lane has exited, and later barriers do not count it" } else { "" };
        if let Some(lockstep) = same_warp {
            let why = match lockstep {
                true => "only execution in lockstep does, which neither PTX nor CUDA promises since sm_70",
                false => "they stand in different arms of a branch, which run in any order",
            };
            return format!("no bar.warp.sync (__syncwarp) orders lane {theirs} before lane {mine}: {why}{exited}");
        }
        if same_block {
            return format!(
                "no bar.sync, and no release and acquire, orders warp {} lane {theirs} before warp {} lane {mine}{exited}",
                c.theirs.warp, self.warp
            );
        }
        if intended {
            return format!(
                "a relaxed atomic has read what block {} released, but does not acquire it for block {}",
                c.theirs.block, self.block
            );
        }
        format!(
            "blocks of a grid run in any order: no release and acquire at gpu scope orders block {} before block {}",
            c.theirs.block, self.block
        )
    }
}

impl Races {
    /// The access at a position.
    pub(super) fn access_at(&self, cx: &Cx, pc: u32) -> Option<&Access> {
        match self.role(cx, pc) {
            Role::Access(i) => self.accesses.get(i as usize),
            _ => None,
        }
    }

    /// What the operation at a position is.
    fn role(&self, cx: &Cx, pc: u32) -> Role {
        // SAFETY: there is a note for every operation, and `ops` of them.
        if (pc as usize) < self.ops { unsafe { &*cx.notes.add(pc as usize) }.role } else { Role::Plain }
    }

    /// PTX line of a position.
    fn line(&self, cx: &Cx, pc: u32) -> u32 {
        if pc as usize >= self.ops {
            return 0;
        }
        // SAFETY: `ops` operations lie there.
        let debug = unsafe { &*cx.code.add(pc as usize) }.debug;
        self.lines.get(debug as usize).copied().unwrap_or(0)
    }

    /// What to do about accesses that are not ordered.
    fn advice(&self, intended: bool) -> &'static str {
        if intended || self.bare && self.orders {
            "; LLVM up to 22 drops the ordering of Rust's atomic read-modify-writes on this target (only loads, stores and \
             compare-exchange keep it): an `AcqRel` swap or fetch_add is relaxed in the PTX, so add a fence \
             (`fence(Ordering::Acquire)` after it, `fence(Ordering::Release)` before it)"
        } else if self.strong && !self.orders {
            "; relaxed and volatile accesses and atomics order nothing by themselves: release before the flag is written, \
             acquire after it is read, with fences or .release and .acquire"
        } else {
            ""
        }
    }
}

/// Whether an atomic has no ordering where the source may have asked for one.
pub(super) fn bare(access: &Access) -> bool {
    access.does == Does::Atomic && access.order == Order::Relaxed && !access.cas
}
