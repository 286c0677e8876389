//! The hooks of a checked launch: called by the run loop and the scheduler, they pass on to the checkers.

use std::collections::HashMap;

use super::copies::{self, BlockCopies};
use super::finding::Also;
use super::init::{BlockInit, Init};
use super::note::{Note, Role};
use super::profile::Counts;
use super::race::{BlockRaces, Races};
use super::{Checks, Finding, Rule, Severity, Site, fold};
use crate::exec::block::Grid;
use crate::exec::{Cx, Flow, Op};
use crate::module::Module;

/// Findings of one launch beyond which further groups are only counted.
const MOST: usize = 256;

/// One side of a finding as the checkers see it.
#[derive(Clone, Debug)]
pub(crate) struct RawSite {
    pub label: String,
    /// Linear block index, warp and lane; `None` for what no thread of this launch did.
    pub thread: Option<(u64, u32, u32)>,
    /// Position in the code; `u32::MAX` if none.
    pub pc: u32,
    pub note: String,
}

impl RawSite {
    /// The site with its place named.
    pub(crate) fn finish(self, module: &Module, grid: &Grid<'_>) -> Site {
        let program = grid.program;
        let debug = program.ops.get(self.pc as usize).and_then(|op| program.debug.get(op.debug as usize));
        let line = debug.map_or(0, |d| d.line);
        let location = debug.and_then(|d| program.locations.get(d.location as usize));
        Site {
            label: self.label,
            block: self.thread.map(|(block, _, _)| grid.coordinates(block)),
            thread: self.thread.map(|(_, warp, lane)| grid.thread(warp, lane)),
            lane: self.thread.map_or(0, |t| t.2),
            ptx_line: line,
            ptx_text: module.line(line).to_string(),
            source: location.map(|l| module.frames(l)).unwrap_or_default(),
            note: self.note,
        }
    }
}

/// A finding before its places have names.
#[derive(Clone, Debug)]
pub(crate) struct RawFinding {
    pub rule: Rule,
    pub severity: Severity,
    pub message: String,
    pub sites: Vec<RawSite>,
    pub memory: String,
    pub help: String,
    /// For accesses of one block that its barriers could have ordered: how many had opened when they clashed.
    pub interval: Option<u32>,
}

/// Findings, grouped by rule and the positions of their sites.
#[derive(Default)]
pub(crate) struct Findings {
    known: HashMap<(Rule, u32, u32), usize>,
    list: Vec<(RawFinding, u64)>,
}

impl Findings {
    /// Counts a finding of a group that is known already; `false` if it is not known and must be described.
    pub(crate) fn again(&mut self, rule: Rule, pc: u32, other: u32) -> bool {
        if let Some(&i) = self.known.get(&(rule, pc, other)) {
            self.list[i].1 += 1;
            return true;
        }
        self.list.len() >= MOST
    }

    /// As [`again`](Findings::again) for rules that grade: a graver finding of a known group replaces its description.
    pub(crate) fn seen(&mut self, rule: Rule, pc: u32, other: u32, severity: Severity) -> bool {
        let known = self.known.get(&(rule, pc, other));
        if known.is_some_and(|&i| self.list[i].0.severity < severity) {
            return false;
        }
        self.again(rule, pc, other)
    }

    /// Adds the first finding of a group, keyed by the positions of its first two sites.
    pub(crate) fn add(&mut self, finding: RawFinding) {
        let at = |i: usize| finding.sites.get(i).map_or(u32::MAX, |s| s.pc);
        let key = (finding.rule, at(0), at(1));
        if let Some((known, count)) = self.known.get(&key).map(|&i| &mut self.list[i]) {
            *count += 1;
            if known.severity < finding.severity {
                *known = finding;
            }
        } else if self.list.len() < MOST {
            self.known.insert(key, self.list.len());
            self.list.push((finding, 1));
        }
    }

    /// The rule of an error that explains why what the operation at `pc` reads is undefined.
    pub(crate) fn explains(&self, pc: u32) -> Option<Rule> {
        let reads = |f: &RawFinding| {
            let unordered = fold::is_race(f.rule) || f.rule == Rule::MissingWait;
            unordered && f.severity == Severity::Error && f.sites.iter().any(|s| s.pc == pc)
        };
        self.list.iter().map(|f| &f.0).find(|f| reads(f)).map(|f| f.rule)
    }

    /// The findings, each with what follows from it, with their places named; errors first.
    pub(crate) fn finish(self, module: &Module, kernel: &str, grid: &Grid<'_>) -> Vec<Finding> {
        let sites = |raw: Vec<RawSite>| raw.into_iter().map(|site| site.finish(module, grid)).collect();
        let also = |(raw, count): (RawFinding, u64)| Also {
            rule: raw.rule,
            severity: raw.severity,
            message: raw.message,
            sites: sites(raw.sites),
            count,
        };
        fold::fold(self.list)
            .into_iter()
            .map(|fold::Folded { finding: raw, count, also: rest }| Finding {
                rule: raw.rule,
                severity: raw.severity,
                kernel: kernel.to_string(),
                message: raw.message,
                sites: sites(raw.sites),
                memory: raw.memory,
                help: raw.help,
                count,
                also: rest.into_iter().map(also).collect(),
            })
            .collect()
    }
}

/// The checkers' state of one block in execution.
#[derive(Default)]
pub(crate) struct BlockState {
    pub index: u64,
    pub init: BlockInit,
    pub races: BlockRaces,
    pub copies: BlockCopies,
}

/// The checkers of one launch.
pub(crate) struct Checker {
    pub checks: Checks,
    pub findings: Findings,
    pub init: Init,
    pub races: Races,
    /// The block that runs.
    pub block: BlockState,
    pub counts: Counts,
}

impl Checker {
    pub(crate) fn new(checks: Checks, grid: &Grid<'_>) -> Checker {
        Checker {
            checks,
            findings: Findings::default(),
            init: Init::new(grid),
            races: if checks.races || checks.sync { Races::new(grid) } else { Races::default() },
            block: BlockState::default(),
            counts: if checks.profile { Counts::new(grid.program) } else { Counts::default() },
        }
    }

    /// A block is about to run for the first time.
    pub(crate) fn begin(&mut self, grid: &Grid<'_>, index: u64) -> BlockState {
        let init = BlockInit::new(grid, self.checks.init);
        BlockState { index, init, races: BlockRaces::new(grid, index), copies: BlockCopies::default() }
    }
}

/// Called before an operation is executed by `cx.active` lanes.
///
/// # Safety
/// The contract of handlers, and `cx.notes` has a note for every operation.
#[inline(always)]
pub(crate) unsafe fn before(cx: &mut Cx, op: &Op, pc: u32) {
    // SAFETY: by the contract.
    let note = unsafe { &*cx.notes.add(pc as usize) };
    // One test for most operations of most launches.
    if !(note.busy | cx.tainted | cx.counting) {
        return;
    }
    let watched = cx.tainted || note.busy && (cx.watching || matches!(note.role, Role::Divide(_)));
    if watched || cx.counting {
        // SAFETY: by the contract.
        unsafe { watch(cx, op, pc, note, watched) }
    }
}

/// Called after it, unless it faulted.
///
/// # Safety
/// As for [`before`].
#[inline(always)]
pub(crate) unsafe fn after(cx: &mut Cx, op: &Op, pc: u32, flow: Flow) {
    // SAFETY: by the contract.
    let note = unsafe { &*cx.notes.add(pc as usize) };
    if note.busy && (cx.counting || note.role.leaves_something()) {
        // SAFETY: by the contract.
        unsafe { follow(cx, op, pc, note, flow) }
    }
}

/// Called first of all if some register of the warp is undefined, before it is known whether any lane executes the operation.
///
/// # Safety
/// As for [`before`].
#[inline(never)]
pub(crate) unsafe fn guarded(cx: &mut Cx, op: &Op, pc: u32) {
    // SAFETY: by the contract.
    let note = unsafe { &*cx.notes.add(pc as usize) };
    // SAFETY: by the contract.
    with(cx, |c, cx| unsafe { super::init::guarded(c, cx, op, pc, note) });
}

/// Called instead of both if no lane executes the operation.
#[inline(always)]
pub(crate) fn skipped(cx: &mut Cx, pc: u32) {
    if cx.counting
        && let Some(mut checker) = cx.checker.take()
    {
        checker.counts.skipped(cx, pc);
        cx.checker = Some(checker);
    }
}

#[inline(never)]
unsafe fn watch(cx: &mut Cx, op: &Op, pc: u32, note: &Note, watched: bool) {
    let Some(mut checker) = cx.checker.take() else { return };
    if checker.checks.profile {
        // SAFETY: by the contract of `before`.
        unsafe { checker.counts.before(cx, op, pc, note) };
    }
    if !watched {
        cx.checker = Some(checker);
        return;
    }
    // SAFETY: by the contract of `before`.
    unsafe {
        if checker.checks.init {
            super::init::before(&mut checker, cx, op, pc, note);
        }
        if checker.checks.races || checker.checks.sync {
            super::race::before(&mut checker, cx, op, pc, note);
        }
    }
    cx.checker = Some(checker);
}

#[inline(never)]
unsafe fn follow(cx: &mut Cx, op: &Op, pc: u32, note: &Note, flow: Flow) {
    let Some(mut checker) = cx.checker.take() else { return };
    if checker.checks.profile {
        checker.counts.after(cx, pc, note);
    }
    // SAFETY: by the contract of `after`.
    unsafe {
        if checker.checks.init {
            super::init::after(&mut checker, cx, op, pc, note, flow);
        }
        if checker.checks.sync {
            let notes = checker.init.notes();
            copies::after(&mut checker, notes, cx, op, pc, note);
        }
    }
    cx.checker = Some(checker);
}

/// Runs `f` on the checker of a checked launch.
pub(crate) fn with(cx: &mut Cx, f: impl FnOnce(&mut Checker, &mut Cx)) {
    if let Some(mut checker) = cx.checker.take() {
        f(&mut checker, cx);
        cx.checker = Some(checker);
    }
}
