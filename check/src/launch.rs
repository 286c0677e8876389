//! Launches under the checks.

use std::any::Any;
use std::ops::{Deref, Range};
use std::sync::Arc;

use warpsmith_simt::observer::Observer;
use warpsmith_simt::{self as simt, Ended, Instance, Launch, Machine, Memory};

use super::checker::Checker;
use super::talk::Conversation;
use super::{Checks, Inspection, Ordering};

/// What is to be launched, and watched.
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
    pub ordering: Option<&'a Ordering<'a>>,
    /// Instructions that one block may execute, 0 for no limit; `None`: as the machine's configuration says.
    pub instruction_limit: Option<u64>,
    /// Runs only so many blocks, the first ones; `None` runs all.
    pub first_blocks: Option<u64>,
    /// Addresses that caches have when it begins, in order and apart: in [`Metrics::global_first_sectors`](super::Metrics) their loads do
    /// not count.
    pub cached: &'a [Range<u64>],
}

impl<'a> Start<'a> {
    /// A launch that nobody watches.
    pub fn new(kernel: &'a str, launch: &'a Launch, params: &'a [u8]) -> Start<'a> {
        let (checks, ordering, instruction_limit, first_blocks, cached) = Default::default();
        Start { kernel, launch, params, checks, ordering, instruction_limit, first_blocks, cached }
    }

    /// Lets `run` have the launch as the machine wants it.
    fn with<R>(&self, run: impl FnOnce(simt::Start<'_>) -> R) -> R {
        let &Start { kernel, launch, params, checks, ordering, instruction_limit, first_blocks, cached } = self;
        let early = ordering.is_some_and(|o| o.early.is_some());
        let talk = || ordering.and_then(|o| Some(Conversation::new(o.speaker.clone()?, o.op)));
        let watch = |launching: &simt::observer::Launching<'_>| -> Box<dyn Observer> {
            Box::new(Checker::new(checks, early, talk(), cached, launching))
        };
        let watched = Checks { seed: 0, ..checks } != Checks::default();
        run(simt::Start {
            watch: if watched { Some(&watch) } else { None },
            seed: checks.seed,
            instruction_limit,
            first_blocks,
            ..simt::Start::new(kernel, launch, params)
        })
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
pub struct Waiting(Box<simt::Waiting>);

impl Deref for Waiting {
    type Target = simt::Waiting;
    fn deref(&self) -> &simt::Waiting {
        &self.0
    }
}

impl Waiting {
    /// Lets the launch look again whether it can go on. It sees what was allocated and freed meanwhile.
    pub fn resume(self, machine: &Machine, ordering: Option<&Ordering<'_>>) -> Progress {
        progress(self.0.resume(machine), machine.memory(), ordering)
    }

    /// Ends the launch as a deadlock.
    pub fn deadlock(self, machine: &Machine, ordering: Option<&Ordering<'_>>) -> Inspection {
        inspection(self.0.deadlock(machine), machine.memory(), ordering)
    }
}

/// Launches under the checks.
pub trait Inspect {
    /// Begins a launch and lets it run until it has ended, or until all its threads wait for what they do not do themselves.
    fn begin(&self, instance: &Arc<Instance>, start: Start<'_>) -> Progress;

    /// Runs a launch to its end.
    fn inspect_start(&self, instance: &Instance, start: Start<'_>) -> Inspection;

    /// Runs a kernel as [`Machine::launch`] does, serially, and watches it.
    fn inspect(
        &self,
        instance: &Instance,
        kernel: &str,
        launch: &Launch,
        params: &[u8],
        checks: &Checks,
    ) -> Inspection {
        self.inspect_start(instance, Start { checks: *checks, ..Start::new(kernel, launch, params) })
    }

    /// As [`inspect`](Inspect::inspect), for a launch that other operations of the host program may overlap: with
    /// [`Checks::races`], what it accesses in global memory is compared with what earlier operations did that are not ordered
    /// before it, and recorded for later ones.
    fn inspect_ordered(
        &self,
        instance: &Instance,
        kernel: &str,
        launch: &Launch,
        params: &[u8],
        checks: &Checks,
        ordering: &Ordering<'_>,
    ) -> Inspection {
        let start = Start { checks: *checks, ordering: Some(ordering), ..Start::new(kernel, launch, params) };
        self.inspect_start(instance, start)
    }
}

impl Inspect for Machine {
    fn begin(&self, instance: &Arc<Instance>, start: Start<'_>) -> Progress {
        progress(start.with(|s| self.start(instance, s)), self.memory(), start.ordering)
    }

    fn inspect_start(&self, instance: &Instance, start: Start<'_>) -> Inspection {
        inspection(start.with(|s| self.run(instance, s)), self.memory(), start.ordering)
    }
}

fn progress(progress: simt::Progress, memory: &Memory, ordering: Option<&Ordering<'_>>) -> Progress {
    match progress {
        simt::Progress::Ended(ended) => Progress::Ended(Box::new(inspection(*ended, memory, ordering))),
        simt::Progress::Waiting(waiting) => Progress::Waiting(Box::new(Waiting(waiting))),
    }
}

/// What the observer of a launch that has ended has to say.
fn inspection(ended: Ended, memory: &Memory, ordering: Option<&Ordering<'_>>) -> Inspection {
    let Ended { counters, fault, observer } = ended;
    let checker = observer.and_then(|o| (o as Box<dyn Any>).downcast::<Checker>().ok());
    let told = checker.map(|c| c.finish(fault.as_deref(), memory, ordering)).unwrap_or_default();
    Inspection { counters, fault, ..told }
}
