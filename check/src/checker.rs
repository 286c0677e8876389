//! The observer of a checked launch: passes what the machine publishes on to the checkers.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use warpsmith_simt::machine::block::Grid;
use warpsmith_simt::machine::collective::Exchange;
use warpsmith_simt::machine::note::Note;
use warpsmith_simt::machine::{Cx, Flow, Op};
use warpsmith_simt::observer::{Entered, Interest, Launching, LocalCopy, Meeting, Observer, Party};
use warpsmith_simt::{Fault, Memory};

use super::copies::{self, BlockCopies, CopyCheck};
use super::findings::Findings;
use super::history::{self, Ordering};
use super::init::{self, BlockInit, Init, InitCheck};
use super::profile::Counts;
use super::race::{self, BlockRaces, RaceCheck, Races};
use super::raw::Scene;
use super::talk::Conversation;
use super::{Checks, Inspection};

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
    /// The block that runs, and those that have begun and wait for their turn.
    pub block: BlockState,
    resting: FxHashMap<u64, BlockState>,
    pub counts: Counts,
    scene: Arc<Scene>,
}

// SAFETY: the raw pointers point into the program of `scene`'s module, which is on the heap and does not change.
unsafe impl Send for Checker {}

impl Checker {
    /// The checkers of a launch that finds the addresses `cached` in caches; what it does `early`, before it waits for earlier launches,
    /// is kept apart if asked for.
    pub(crate) fn new(
        checks: Checks,
        early: bool,
        talk: Option<Conversation>,
        cached: &[Range<u64>],
        launch: &Launching<'_>,
    ) -> Checker {
        let grid = launch.grid;
        let mut races = if checks.races || checks.sync { Races::new(launch.module, grid) } else { Races::default() };
        let variables = grid.program.globals.iter().zip(launch.globals);
        races.early = early.then(Vec::new);
        races.talk = talk.filter(|_| races.speaks);
        races.statics = variables.map(|(g, &address)| (address, g.size, g.name.clone())).collect();
        let scene = Arc::new(Scene {
            module: Arc::clone(launch.module),
            kernel: launch.kernel.to_owned(),
            grid: grid.grid,
            block: grid.block,
        });
        Checker {
            checks,
            findings: Findings::new(Arc::clone(&scene)),
            init: Init::new(grid),
            races,
            block: BlockState::default(),
            resting: FxHashMap::default(),
            counts: if checks.profile { Counts::new(grid.program, cached) } else { Counts::default() },
            scene,
        }
    }

    /// A block is about to run for the first time.
    fn begin(&self, grid: &Grid<'_>, index: u64) -> BlockState {
        let init = BlockInit::new(grid, self.checks.init);
        BlockState { index, init, races: BlockRaces::new(grid, index), copies: BlockCopies::default() }
    }

    /// The checker of undefined data, of the block that runs.
    fn init_check(&mut self) -> InitCheck<'_> {
        InitCheck {
            notes: &self.scene.module.program.notes,
            launch: &mut self.init,
            block: &mut self.block.init,
            index: self.block.index,
            findings: &mut self.findings,
        }
    }

    /// The checker of asynchronous copies, of the block that runs.
    fn copy_check(&mut self) -> CopyCheck<'_> {
        CopyCheck {
            notes: &self.scene.module.program.notes,
            block: &mut self.block.copies,
            index: self.block.index,
            findings: &mut self.findings,
        }
    }

    /// The checker of races, of the block that runs.
    fn race_check(&mut self) -> RaceCheck<'_> {
        RaceCheck {
            checks: &self.checks,
            notes: &self.scene.module.program.notes,
            launch: &mut self.races,
            block: &mut self.block.races,
            index: self.block.index,
            findings: &mut self.findings,
        }
    }

    /// What the launch was found to have done, in the memory of its device and at its place among others.
    pub(crate) fn finish(self, fault: Option<&Fault>, memory: &Memory, ordering: Option<&Ordering<'_>>) -> Inspection {
        let Checker { checks, mut findings, mut races, counts, init, scene, .. } = self;
        let mut all = Inspection::default();
        let kernel = scene.kernel.as_str();
        init.tell(kernel, &memory.snapshot(), &|pc| findings.explains(pc), &|raw| raw.finish(&scene));
        all.profile = checks.profile.then(|| counts.finish(&scene.module));
        if let Some(fault) = fault.filter(|_| checks.sync) {
            all.fault_told = race::sync_fault(&mut findings, fault);
        }
        all.findings = findings.finish();
        if let Some(ordering) = ordering {
            let uses = match races.talk.take() {
                Some(talk) => talk.end().into_iter().map(|(tag, uses)| (Some(tag), uses)).collect(),
                None => vec![(None, races.uses())],
            };
            all.findings.extend(history::overtaken(memory, &scene, races.early.unwrap_or_default(), ordering));
            for uses in uses {
                all.findings.extend(history::record(memory, &scene, uses, ordering));
            }
        }
        all
    }
}

impl Observer for Checker {
    fn interest(&self) -> Interest {
        let Checks { init, races, sync, profile, .. } = self.checks;
        Interest { accesses: races || sync, operations: profile, definedness: init }
    }

    fn block_begins(&mut self, grid: &Grid<'_>, block: u64) {
        let state = self.begin(grid, block);
        self.resting.insert(block, state);
    }

    fn block_runs(&mut self, block: u64) {
        self.block = self.resting.remove(&block).unwrap_or_default();
    }

    fn block_rests(&mut self, block: u64, done: bool) {
        let state = std::mem::take(&mut self.block);
        if !done {
            self.resting.insert(block, state);
        }
    }

    fn warp_runs(&mut self, cx: &mut Cx) {
        init::resume(&mut self.init_check(), cx);
    }

    unsafe fn guarded(&mut self, cx: &mut Cx, op: &Op, pc: u32, note: &Note) {
        // SAFETY: by the contract.
        unsafe { init::guarded(&mut self.init_check(), cx, op, pc, note) }
    }

    unsafe fn before(&mut self, cx: &mut Cx, op: &Op, pc: u32, note: &Note, watched: bool) {
        if self.checks.profile {
            // SAFETY: by the contract.
            unsafe { self.counts.before(cx, op, pc, note) };
        }
        if !watched {
            return;
        }
        // SAFETY: by the contract.
        unsafe {
            if self.checks.init {
                init::before(&mut self.init_check(), cx, op, pc, note);
            }
            if self.checks.races || self.checks.sync {
                race::before(&mut self.race_check(), cx, op, pc, note);
            }
        }
    }

    unsafe fn after(&mut self, cx: &mut Cx, op: &Op, pc: u32, note: &Note, flow: Flow) {
        if self.checks.profile {
            self.counts.after(cx, pc, note);
        }
        // SAFETY: by the contract.
        unsafe {
            if self.checks.init {
                init::after(&mut self.init_check(), cx, op, pc, note, flow);
            }
            if self.checks.sync {
                copies::after(&mut self.copy_check(), cx, op, pc, note);
            }
        }
    }

    fn skipped(&mut self, cx: &mut Cx, pc: u32) {
        self.counts.skipped(cx, pc);
    }

    fn entered(&mut self, cx: &mut Cx, entered: &Entered<'_>, arguments: &mut dyn Iterator<Item = LocalCopy>) {
        init::entered(&mut self.init_check(), cx, entered, arguments);
    }

    fn left(&mut self, cx: &mut Cx, lanes: u32, results: &mut dyn Iterator<Item = LocalCopy>) {
        init::left(&mut self.init_check(), cx, lanes, results);
    }

    fn local_written(&mut self, cx: &mut Cx, at: u32, bytes: u32, lane: usize) {
        init::given(&mut self.init_check(), cx, at, bytes, lane);
    }

    fn allocations_changed(&mut self) {
        init::forget(&mut self.init_check());
    }

    fn exited(&mut self, warp: u32, lanes: u32) {
        race::exited(&mut self.race_check(), warp, lanes);
    }

    unsafe fn gathered(&mut self, cx: &mut Cx, party: &Party<'_>) {
        // SAFETY: by the contract.
        unsafe { init::bring(&mut self.init_check(), cx, party.op, party.lanes, party.first) }
    }

    unsafe fn scatters(&mut self, cx: &mut Cx, party: &Party<'_>) {
        // SAFETY: by the contract.
        unsafe { race::sources(&mut self.race_check(), cx, party.op, party.pc, party.warp, party.lanes) }
    }

    fn scattered(&mut self, cx: &mut Cx, party: &Party<'_>, exchange: &Exchange) {
        init::give(&mut self.init_check(), cx, party.op, party.lanes, exchange, party.first);
    }

    fn met(&mut self, meeting: &Meeting<'_>) {
        race::met(&mut self.race_check(), meeting.warp, meeting.lanes, meeting.kind, meeting.sites);
    }

    fn barrier_arrived(&mut self, warp: u32, barrier: u32, waits: bool) {
        race::arrived(&mut self.race_check(), warp, barrier, waits);
    }

    fn barrier_opened(&mut self, barrier: u32, warps: u32) {
        race::opened(&mut self.race_check(), barrier, warps);
    }

    fn cluster_waited(&mut self, warp: u32, lanes: u32) {
        race::cluster_waited(&mut self.race_check(), warp, lanes);
    }

    fn phase_ended(&mut self, at: u64) {
        race::phase_ended(&mut self.race_check(), at);
    }
}
