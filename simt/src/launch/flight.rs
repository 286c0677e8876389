//! A launch from its start to its end, with pauses in between: one that waits for something which only the host or another
//! operation can do is set aside and goes on later.

use std::ops::Deref;
use std::sync::Arc;

use super::prepare::Prepared;
use super::run::{Ended, Failure, Patience, Schedule};
use super::{Instance, Launch, Machine, Worker};
use crate::check::checker::{self, Checker, RawSite};
use crate::check::race::sync_fault;
use crate::check::{self, Checks, Inspection};
use crate::counters::Counters;
use crate::exec::Site;
use crate::fault::Fault;

/// When a launch is said to wait.
const FIRST: Patience = Patience { quiet: 1 << 12, busy: 1 << 28 };
/// The same for one that is asked again.
const AGAIN: Patience = Patience { quiet: 1 << 6, busy: 1 << 22 };

/// What is to be launched.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// The kernel.
    pub kernel: &'a str,
    /// Its geometry.
    pub launch: &'a Launch,
    /// The parameter block.
    pub params: &'a [u8],
    /// What it is watched for.
    pub checks: Checks,
    /// Its place among the operations of the host program, where that is known.
    pub ordering: Option<&'a check::Ordering<'a>>,
    /// Instructions that one block may execute, 0 for no limit; `None`: as the machine's configuration says.
    pub instruction_limit: Option<u64>,
}

impl<'a> Start<'a> {
    /// A launch that nobody watches.
    pub fn new(kernel: &'a str, launch: &'a Launch, params: &'a [u8]) -> Start<'a> {
        Start { kernel, launch, params, checks: Checks::default(), ordering: None, instruction_limit: None }
    }
}

/// What came of letting a launch run.
pub enum Progress {
    /// It has ended.
    Ended(Box<Inspection>),
    /// All its threads wait for something that they do not do themselves.
    Waiting(Box<Waiting>),
}

/// A launch that waits. Dropping it ends the launch where it stands.
pub struct Waiting {
    prepared: Prepared<Arc<Instance>>,
    flight: Flight,
    /// It was asked again, with its cached places forgotten.
    looked: bool,
    /// It has changed memory when it was last asked.
    changing: bool,
}

/// The state of a launch between two turns.
pub(super) struct Flight {
    pub worker: Worker,
    pub schedule: Schedule,
}

// SAFETY: the raw pointers of context, blocks and checker point into their own buffers and into the program, parameters and
// constants of the launch, all on the heap and kept by it, or are set anew before each use.
unsafe impl Send for Flight {}

impl Machine {
    /// Begins a launch and lets it run until it has ended, or until all its threads wait for what they do not do themselves.
    pub fn start(&self, instance: &Arc<Instance>, start: Start<'_>) -> Progress {
        let prepared = match self.prepare(Arc::clone(instance), &start) {
            Ok(prepared) => prepared,
            Err(fault) => return Progress::Ended(Box::new(nothing(fault))),
        };
        match self.fly(&prepared, &start, Some(FIRST)) {
            Ok(inspection) => Progress::Ended(Box::new(inspection)),
            Err((flight, changing)) => {
                Progress::Waiting(Box::new(Waiting { prepared, flight: *flight, looked: false, changing }))
            }
        }
    }

    /// Runs a launch to its end.
    pub(super) fn to_the_end(&self, instance: &Instance, start: Start<'_>) -> Inspection {
        let prepared = match self.prepare(instance, &start) {
            Ok(prepared) => prepared,
            Err(fault) => return nothing(fault),
        };
        self.fly(&prepared, &start, None).unwrap_or_else(|(flight, _)| self.stop(&prepared, *flight, start.ordering))
    }

    /// Begins; the state comes back if it waits, and whether it changes memory.
    fn fly<I: Deref<Target = Instance>>(
        &self,
        prepared: &Prepared<I>,
        start: &Start<'_>,
        patience: Option<Patience>,
    ) -> Result<Inspection, (Box<Flight>, bool)> {
        let grid = prepared.grid();
        let run = prepared.run(self, &grid);
        if start.checks == Checks::default()
            && let Some(pool) = self.pool().filter(|_| run.is_worth_sharing())
        {
            let ended = run.parallel(pool);
            self.memory.define_all();
            return Ok(self.inspection(prepared, ended, None, None));
        }
        let checker = (start.checks != Checks::default()).then(|| {
            let mut checker = Box::new(Checker::new(start.checks, &grid));
            let variables = grid.program.globals.iter().zip(&prepared.instance.addresses);
            checker.races.early = start.ordering.and_then(|o| o.early).map(|_| Vec::new());
            checker.races.statics = variables.map(|(g, &address)| (address, g.size, g.name.clone())).collect();
            checker
        });
        let mut flight = run.begin(checker);
        match run.turns(&mut flight, patience) {
            Ok(Ended::Waiting { changing }) => Err((Box::new(flight), changing)),
            Ok(Ended::Done) => Ok(self.conclude(prepared, flight, Ok(()), start.ordering)),
            Err(failure) => Ok(self.conclude(prepared, flight, Err(failure), start.ordering)),
        }
    }

    /// Ends a launch that waits, as a deadlock.
    fn stop<I: Deref<Target = Instance>>(
        &self,
        prepared: &Prepared<I>,
        flight: Flight,
        ordering: Option<&check::Ordering<'_>>,
    ) -> Inspection {
        let outcome =
            flight.schedule.deadlock("all resident threads spin or wait, and nobody is left who could end that");
        let failed = outcome.map_or(Ok(()), Err);
        self.conclude(prepared, flight, failed, ordering)
    }

    /// Gives the buffers back and says what came of the launch.
    fn conclude<I: Deref<Target = Instance>>(
        &self,
        prepared: &Prepared<I>,
        flight: Flight,
        outcome: Result<(), Failure>,
        ordering: Option<&check::Ordering<'_>>,
    ) -> Inspection {
        let Flight { mut worker, schedule } = flight;
        let blocks = prepared.grid().grid.iter().fold(1u64, |p, &n| p.saturating_mul(n.into()));
        let counters = Counters { blocks, ..worker.cx.counters };
        let checker = worker.cx.checker.take();
        worker.blocks.extend(schedule.into_blocks());
        self.put_back(worker);
        if !prepared.checks.init {
            // Nobody has followed which bytes the kernel wrote.
            self.memory.define_all();
        }
        self.inspection(prepared, outcome.map(|()| counters), checker, ordering)
    }

    fn inspection<I: Deref<Target = Instance>>(
        &self,
        prepared: &Prepared<I>,
        result: Result<Counters, Failure>,
        checker: Option<Box<Checker>>,
        ordering: Option<&check::Ordering<'_>>,
    ) -> Inspection {
        let (grid, module, kernel) = (prepared.grid(), &prepared.instance.module, prepared.kernel.as_str());
        let mut all = Inspection::default();
        if let Some(checker) = checker {
            let checks = prepared.checks;
            let Checker { mut findings, races, counts, init, .. } = *checker;
            init.tell(kernel, &self.memory.snapshot(), &|pc| findings.explains(pc), &|raw| raw.finish(module, &grid));
            all.profile = checks.profile.then(|| counts.finish(module, grid.program));
            if let Err((block, warp, raw)) = &result
                && checks.sync
            {
                all.fault_told = sync_fault(&mut findings, *block, *warp, raw);
            }
            all.findings = findings.finish(module, kernel, &grid);
            if let Some(ordering) = ordering {
                let label = |write| format!("{} by kernel `{kernel}`", if write { "write" } else { "read" });
                let site = |(pc, thread), write| {
                    RawSite { label: label(write), thread: Some(thread), pc, note: String::new() }.finish(module, &grid)
                };
                let uses = races.uses();
                let early = check::race::joined(races.early.unwrap_or_default());
                all.findings.extend(self.memory.overtaken(kernel, &early, ordering, &site));
                all.findings.extend(self.memory.record(kernel, &uses, ordering, &site));
            }
        }
        match result {
            Ok(counters) => all.counters = counters,
            Err(failure) => all.fault = Some(Box::new(self.report(module, kernel, &grid, failure))),
        }
        all
    }
}

/// A launch that did not begin.
fn nothing(fault: Box<Fault>) -> Inspection {
    Inspection { fault: Some(fault), ..Inspection::default() }
}

impl Waiting {
    /// Lets the launch look again whether it can go on. It sees what was allocated and freed meanwhile.
    pub fn resume(mut self: Box<Self>, machine: &Machine, ordering: Option<&check::Ordering<'_>>) -> Progress {
        let cx = &mut self.flight.worker.cx;
        cx.memory = machine.memory.snapshot();
        // Cached places may be those of what is gone.
        cx.sites.fill(Site::EMPTY);
        checker::with(cx, |c, _| check::init::forget(c));
        self.looked = true;
        let grid = self.prepared.grid();
        let run = self.prepared.run(machine, &grid);
        let outcome = match run.turns(&mut self.flight, Some(AGAIN)) {
            Ok(Ended::Waiting { changing }) => {
                self.changing = changing;
                if !changing {
                    self.prepared.waits();
                }
                return Progress::Waiting(self);
            }
            Ok(Ended::Done) => Ok(()),
            Err(failure) => Err(failure),
        };
        Progress::Ended(Box::new(machine.conclude(&self.prepared, self.flight, outcome, ordering)))
    }

    /// Ends the launch as a deadlock.
    pub fn deadlock(self: Box<Self>, machine: &Machine, ordering: Option<&check::Ordering<'_>>) -> Inspection {
        machine.stop(&self.prepared, self.flight, ordering)
    }

    /// The kernel.
    pub fn kernel(&self) -> &str {
        &self.prepared.kernel
    }

    /// Whether it changes memory while it waits, so that it may be getting on.
    pub fn is_changing(&self) -> bool {
        self.changing
    }

    /// Whether it has an instruction limit.
    pub fn is_limited(&self) -> bool {
        self.prepared.is_limited()
    }

    /// Whether the machine's configuration calls what it does a deadlock: nothing has changed for so long.
    pub fn is_stale(&self, machine: &Machine) -> bool {
        let limit = machine.config.spin_limit;
        limit != 0 && self.flight.schedule.is_stale(limit)
    }

    /// Whether it looks at memory of the host, or nobody knows yet.
    pub fn sees_host(&self) -> bool {
        let sites = &self.flight.worker.cx.sites;
        !self.looked || sites.iter().any(|s| s.size != 0 && s.key == 0)
    }

    /// Who waits where, in words: a line for each group of lanes.
    pub fn describe(&self, machine: &Machine) -> String {
        let Some(failure) = self.flight.schedule.deadlock("all its threads wait") else { return String::new() };
        let (module, grid) = (&self.prepared.instance.module, self.prepared.grid());
        machine.report(module, &self.prepared.kernel, &grid, failure).detail
    }
}
