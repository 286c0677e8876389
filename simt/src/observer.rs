//! What a launch publishes to whoever watches it.
//!
//! [`Machine::start`](crate::Machine::start) and [`Machine::run`](crate::Machine::run) take a function that makes an
//! [`Observer`] of the launch, and give it back at the end with what it has seen. Blocks of a watched launch run one after the
//! other. The machine does not know what an observer looks for; the crate `warpsmith-check` has those that find
//! undefined data and races and count what a kernel does.
//!
//! What an observer is shown is the state of the machine itself ([`machine`](crate::machine)), which is no stable interface.

use std::any::Any;

use crate::exec::exchange::{Collective, Exchange};
use crate::exec::{Cx, Flow, Op};
pub use crate::launch::{Launching, Watch};
pub use crate::memory::MemoryObserver;
use crate::note::Note;
use crate::program::{Function, Grid};

/// What an observer wants to see, asked once, when the launch begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// [`Observer::before`] of everything that accesses memory or synchronises.
    pub accesses: bool,
    /// [`Observer::before`], [`after`](Observer::after) and [`skipped`](Observer::skipped) of every operation.
    pub operations: bool,
    /// It keeps the [bits of undefined bytes](crate::Memory::undefined) itself; otherwise all memory counts as defined when
    /// the launch has ended.
    pub definedness: bool,
}

/// Lanes that have entered a function, and where its frame lies.
#[doc(hidden)]
pub struct Entered<'a> {
    pub row: u32,
    pub pred: u32,
    pub local: u32,
    pub function: &'a Function,
    pub lanes: u32,
}

/// An argument or a return value on its way: offsets in the local memory of a lane.
#[doc(hidden)]
pub struct LocalCopy {
    pub from: u32,
    pub to: u32,
    pub bytes: u32,
}

/// Lanes of a warp that take part in a collective from one place of the code.
#[doc(hidden)]
pub struct Party<'a> {
    pub op: &'a Op,
    pub pc: u32,
    pub warp: u32,
    pub lanes: u32,
    /// It is the first of the collective.
    pub first: bool,
}

/// A collective that all its lanes have executed together.
#[doc(hidden)]
pub struct Meeting<'a> {
    pub warp: u32,
    pub lanes: u32,
    pub kind: Collective,
    /// Where its lanes stood, as position and lanes.
    pub sites: &'a [(u32, u32)],
}

/// Somebody who watches a launch. What it does not implement it does not see.
///
/// Methods that are unsafe are called under the contract of the machine's handlers: what the operation names lies inside the
/// running warp's frame.
#[allow(unused_variables, clippy::missing_safety_doc)]
#[doc(hidden)]
pub trait Observer: Any + Send {
    /// What it wants to see.
    fn interest(&self) -> Interest;

    /// A block is about to run for the first time.
    fn block_begins(&mut self, grid: &Grid<'_>, block: u64) {}
    /// A block that has begun gets a turn.
    fn block_runs(&mut self, block: u64) {}
    /// Its turn is over, for ever if it is `done`.
    fn block_rests(&mut self, block: u64, done: bool) {}
    /// A warp of the running block is about to run.
    fn warp_runs(&mut self, cx: &mut Cx) {}

    /// An operation whose guard may let no lane through, if the observer follows the warp (`Cx::following`).
    unsafe fn guarded(&mut self, cx: &mut Cx, op: &Op, pc: u32, note: &Note) {}
    /// Before `cx.active` lanes execute an operation; it is `watched`, or only counted.
    unsafe fn before(&mut self, cx: &mut Cx, op: &Op, pc: u32, note: &Note, watched: bool) {}
    /// After they have, unless that was a fault.
    unsafe fn after(&mut self, cx: &mut Cx, op: &Op, pc: u32, note: &Note, flow: Flow) {}
    /// Instead of both if the guard is false for all lanes.
    fn skipped(&mut self, cx: &mut Cx, pc: u32) {}

    /// Lanes have entered a function, with these arguments.
    fn entered(&mut self, cx: &mut Cx, entered: &Entered<'_>, arguments: &mut dyn Iterator<Item = LocalCopy>) {}
    /// Lanes have returned from one, with these values.
    fn left(&mut self, cx: &mut Cx, lanes: u32, results: &mut dyn Iterator<Item = LocalCopy>) {}
    /// The machine itself has written local memory of a lane.
    fn local_written(&mut self, cx: &mut Cx, at: u32, bytes: u32, lane: usize) {}
    /// The table of allocations has changed: cached places may be gone.
    fn allocations_changed(&mut self) {}
    /// Lanes of a warp have exited.
    fn exited(&mut self, warp: u32, lanes: u32) {}

    /// A collective has taken what a party brings, if the observer follows the warp.
    unsafe fn gathered(&mut self, cx: &mut Cx, party: &Party<'_>) {}
    /// A collective is about to give a party its result.
    unsafe fn scatters(&mut self, cx: &mut Cx, party: &Party<'_>) {}
    /// It has, if the observer follows the warp.
    fn scattered(&mut self, cx: &mut Cx, party: &Party<'_>, exchange: &Exchange) {}
    /// A collective whose lanes waited for each other is over.
    fn met(&mut self, meeting: &Meeting<'_>) {}

    /// A warp has arrived at a block barrier; it `waits` there, or goes on.
    fn barrier_arrived(&mut self, warp: u32, barrier: u32, waits: bool) {}
    /// A block barrier opens for these warps.
    fn barrier_opened(&mut self, barrier: u32, warps: u32) {}
    /// Lanes of a warp have waited at the barrier of their cluster.
    fn cluster_waited(&mut self, warp: u32, lanes: u32) {}
    /// A phase of the mbarrier object at this offset of shared memory has ended.
    fn phase_ended(&mut self, at: u64) {}
}
