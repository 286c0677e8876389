//! A launch from its start to its end, with pauses in between: one that waits for something which only the host or another
//! operation can do is set aside and goes on later.

use std::ops::Deref;
use std::sync::Arc;

use super::machine::{Instance, Machine};
use super::prepare::Prepared;
use super::report::Failure;
use super::run::{Flight, Patience, Turned};
use super::start::{Launch, Launching, Start};
use crate::counters::Counters;
use crate::exec::Site;
use crate::fault::{Fault, Stuck};
use crate::memory::{Allocation, lookup};
use crate::observer::Observer;
use crate::program::Overlap;

/// When a launch is said to wait.
const FIRST: Patience = Patience { quiet: 1 << 12, busy: 1 << 28 };
/// The same for one that is asked again.
const AGAIN: Patience = Patience { quiet: 1 << 6, busy: 1 << 22 };

/// A launch that has ended.
#[derive(Default)]
pub struct Ended {
    /// What it did, if nothing stopped it.
    pub counters: Counters,
    /// What stopped it, if something did.
    pub fault: Option<Box<Fault>>,
    /// Who watched it, with what they have seen; `None` if it did not begin.
    #[doc(hidden)]
    pub observer: Option<Box<dyn Observer>>,
}

/// What came of letting a launch run.
pub enum Progress {
    /// It has ended.
    Ended(Box<Ended>),
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

impl Machine {
    /// Runs a kernel to its end. `params` is the parameter block.
    ///
    /// # Errors
    /// The fault that stopped it. Memory then holds what had been written until then.
    pub fn launch(
        &self,
        instance: &Instance,
        kernel: &str,
        launch: &Launch,
        params: &[u8],
    ) -> Result<Counters, Box<Fault>> {
        let ended = self.run(instance, Start::new(kernel, launch, params));
        ended.fault.map_or(Ok(ended.counters), Err)
    }

    /// Begins a launch and lets it run until it has ended, or until all its threads wait for what they do not do themselves.
    pub fn start(&self, instance: &Arc<Instance>, start: Start<'_>) -> Progress {
        let prepared = match self.prepare(Arc::clone(instance), &start) {
            Ok(prepared) => prepared,
            Err(fault) => return Progress::Ended(Box::new(nothing(fault))),
        };
        match self.fly(&prepared, &start, Some(FIRST)) {
            Ok(ended) => Progress::Ended(Box::new(ended)),
            Err((flight, changing)) => {
                Progress::Waiting(Box::new(Waiting { prepared, flight: *flight, looked: false, changing }))
            }
        }
    }

    /// Runs a launch to its end.
    pub fn run(&self, instance: &Instance, start: Start<'_>) -> Ended {
        let prepared = match self.prepare(instance, &start) {
            Ok(prepared) => prepared,
            Err(fault) => return nothing(fault),
        };
        self.fly(&prepared, &start, None).unwrap_or_else(|(flight, _)| self.stop(&prepared, *flight))
    }

    /// Begins; the state comes back if it waits, and whether it changes memory.
    fn fly<I: Deref<Target = Instance>>(
        &self,
        prepared: &Prepared<I>,
        start: &Start<'_>,
        patience: Option<Patience>,
    ) -> Result<Ended, (Box<Flight>, bool)> {
        let grid = prepared.grid();
        let run = prepared.run(self, &grid);
        let pool = if start.watch.is_none() && start.seed == 0 { self.pool() } else { None };
        let mut flight = match pool.filter(|_| run.is_worth_sharing()) {
            Some(pool) => {
                if run.overlap == Overlap::Whole {
                    return Ok(self.shared(prepared, run.parallel(pool)));
                }
                match run.ordered(pool) {
                    Ok(rest) => run.go_on(rest),
                    Err(failure) => return Ok(self.shared(prepared, Err(failure))),
                }
            }
            None => {
                let Instance { module, addresses, .. } = &*prepared.instance;
                let observer = start.watch.map(|watch| {
                    let kernel = &prepared.kernel;
                    watch(&Launching { module, kernel, grid: &grid, globals: addresses })
                });
                run.begin(observer, start.seed)
            }
        };
        match run.turns(&mut flight, patience) {
            Ok(Turned::Waiting { changing }) => Err((Box::new(flight), changing)),
            Ok(Turned::Done) => Ok(self.conclude(prepared, flight, Ok(()))),
            Err(failure) => Ok(self.conclude(prepared, flight, Err(failure))),
        }
    }

    /// Says what came of a launch that several cores have run to its end.
    fn shared<I: Deref<Target = Instance>>(&self, prepared: &Prepared<I>, result: Result<Counters, Failure>) -> Ended {
        // Nobody has followed which bytes the kernel wrote.
        self.memory.define_all();
        self.ended(prepared, result, None)
    }

    /// Ends a launch that waits, as a deadlock.
    fn stop<I: Deref<Target = Instance>>(&self, prepared: &Prepared<I>, flight: Flight) -> Ended {
        let outcome = flight.schedule.deadlock(Stuck::NobodyIsLeft);
        let failed = outcome.map_or(Ok(()), Err);
        self.conclude(prepared, flight, failed)
    }

    /// Gives the buffers back and says what came of the launch.
    fn conclude<I: Deref<Target = Instance>>(
        &self,
        prepared: &Prepared<I>,
        flight: Flight,
        outcome: Result<(), Failure>,
    ) -> Ended {
        let Flight { mut worker, schedule } = flight;
        let counters = Counters { blocks: prepared.blocks(), ..worker.cx.counters };
        let observer = worker.cx.observer.take();
        worker.blocks.extend(schedule.into_blocks());
        self.put_back(worker);
        if !observer.as_ref().is_some_and(|o| o.interest().definedness) {
            // Nobody has followed which bytes the kernel wrote.
            self.memory.define_all();
        }
        self.ended(prepared, outcome.map(|()| counters), observer)
    }

    fn ended<I: Deref<Target = Instance>>(
        &self,
        prepared: &Prepared<I>,
        result: Result<Counters, Failure>,
        observer: Option<Box<dyn Observer>>,
    ) -> Ended {
        match result {
            Ok(counters) => Ended { counters, fault: None, observer },
            Err(failure) => {
                let fault = self.report(&prepared.instance.module, &prepared.kernel, &prepared.grid(), failure);
                Ended { counters: Counters::default(), fault: Some(Box::new(fault)), observer }
            }
        }
    }
}

/// A launch that did not begin.
fn nothing(fault: Box<Fault>) -> Ended {
    Ended { fault: Some(fault), ..Ended::default() }
}

impl Waiting {
    /// Lets the launch look again whether it can go on. It sees what was allocated and freed meanwhile.
    pub fn resume(mut self: Box<Self>, machine: &Machine) -> Progress {
        let cx = &mut self.flight.worker.cx;
        cx.memory = machine.memory.snapshot();
        cx.interprocess = machine.memory.is_interprocess();
        // Cached places may be those of what is gone.
        cx.sites.fill(Site::EMPTY);
        cx.observe(|o, _| o.allocations_changed());
        self.looked = true;
        let grid = self.prepared.grid();
        let run = self.prepared.run(machine, &grid);
        let outcome = match run.turns(&mut self.flight, Some(AGAIN)) {
            Ok(Turned::Waiting { changing }) => {
                self.changing = changing;
                if !changing {
                    self.prepared.waits();
                }
                return Progress::Waiting(self);
            }
            Ok(Turned::Done) => Ok(()),
            Err(failure) => Err(failure),
        };
        Progress::Ended(Box::new(machine.conclude(&self.prepared, self.flight, outcome)))
    }

    /// Ends the launch as a deadlock.
    pub fn deadlock(self: Box<Self>, machine: &Machine) -> Ended {
        machine.stop(&self.prepared, self.flight)
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

    /// Whether it looks at memory that another process may still write.
    pub fn sees_others(&self) -> bool {
        let cx = &self.flight.worker.cx;
        cx.sites.iter().any(|s| s.size != 0 && lookup(&cx.memory, s.base).is_some_and(Allocation::has_others))
    }

    /// Who waits where, in words: a line for each group of lanes.
    pub fn describe(&self, machine: &Machine) -> String {
        let Some(failure) = self.flight.schedule.deadlock(Stuck::AllWait) else { return String::new() };
        let (module, grid) = (&self.prepared.instance.module, self.prepared.grid());
        machine.report(module, &self.prepared.kernel, &grid, failure).detail()
    }
}
