//! A block: its warps, its shared memory, its barriers.

use super::barrier::{self, BARRIERS, Barrier, CLUSTER};
use super::lanes::lanes_of;
use super::warp::{Split, State, Stop, Warp};
use super::{Cx, LANES, RawFault, limit, uniform};
use crate::fault::{FaultKind, Reason, Stuck, Waiter, Waits};
use crate::memory::POISON_KEY;
use crate::program::Grid;

/// Why a block stopped running.
pub enum Outcome {
    Done,
    /// Its warps spin, and a whole round of them has changed nothing.
    Spinning,
    /// No warp can go on before it is the block's turn.
    Turn,
    /// A warp index and what it raised.
    Fault(u32, Box<RawFault>),
}

/// A block in execution; its buffers are used again for the next one.
pub struct Block {
    pub index: u64,
    warps: Vec<Warp>,
    barriers: [Barrier; BARRIERS],
    /// Shared memory in 16-byte units, for its alignment.
    shared: Vec<u128>,
    executed: u64,
    shape: [u32; 3],
}

/// Exits that a report of a deadlock lists.
const EXITS: usize = 16;
/// Rounds of its warps in which a block spins before other blocks get a turn although memory changes.
const PATIENCE: u32 = 4096;

impl Block {
    pub fn new() -> Block {
        Block {
            index: 0,
            warps: Vec::new(),
            barriers: [Barrier::default(); BARRIERS],
            shared: Vec::new(),
            executed: 0,
            shape: [0; 3],
        }
    }

    /// Prepares the block with linear index `index`.
    pub fn start(&mut self, cx: &mut Cx, grid: &Grid<'_>, index: u64) {
        cx.observe(|o, _| o.block_begins(grid, index));
        self.index = index;
        self.executed = 0;
        cx.interrupts = 0;
        self.barriers = [Barrier::default(); BARRIERS];
        let warps = grid.threads.div_ceil(LANES as u32);
        while self.warps.len() < warps as usize {
            self.warps.push(Warp::new(self.warps.len() as u32));
            self.shape = [0; 3];
        }
        self.warps.truncate(warps as usize);
        if self.shape != grid.block {
            self.shape = grid.block;
            for warp in &mut self.warps {
                for lane in 0..LANES {
                    let thread = grid.thread(warp.index, lane as u32);
                    for (row, value) in warp.tid.iter_mut().zip(thread) {
                        row.0[lane] = value;
                    }
                }
            }
        }
        for warp in &mut self.warps {
            let lanes = (grid.threads - warp.index * LANES as u32).min(LANES as u32);
            warp.start(grid.program, grid.entry, u32::MAX >> (32 - lanes));
        }
        let poison = u128::from(POISON_KEY) << 64 | u128::from(POISON_KEY);
        self.shared.clear();
        let own = (grid.shared_bytes - grid.reserved) as usize / 16;
        self.shared.resize((grid.shared_bytes as usize).div_ceil(16), poison);
        if grid.reserved != 0 {
            self.shared[own..].fill(0);
        }
    }

    /// Points the context at this block.
    fn enter(&mut self, cx: &mut Cx, grid: &Grid<'_>) {
        cx.shared = self.shared.as_mut_ptr().cast();
        cx.shared_bytes = grid.shared_bytes;
        cx.executed = self.executed;
        let at = grid.coordinates(self.index);
        for (first, values) in [(uniform::NTID, grid.block), (uniform::CTAID, at), (uniform::NCTAID, grid.grid)] {
            for (to, from) in cx.uniform[first..].iter_mut().zip(values) {
                *to = from.into();
            }
        }
        cx.uniform[uniform::NWARPID] = self.warps.len() as u64;
        cx.uniform[uniform::NSMID] = grid.multiprocessors.into();
        cx.uniform[uniform::SMID] = self.index % u64::from(grid.multiprocessors);
        cx.uniform[uniform::GRIDID] = 1;
        cx.uniform[uniform::DYNAMIC_SHARED] = grid.dynamic_shared.into();
        let own = u64::from(grid.shared_bytes - grid.reserved);
        cx.uniform[uniform::TOTAL_SHARED] = own;
        cx.uniform[uniform::RESERVED] = own;
        let workspace = grid.workspace.unwrap_or(0);
        cx.uniform[uniform::WORKSPACE_HIGH] = workspace >> 32;
        cx.uniform[uniform::WORKSPACE_LOW] = workspace & 0xffff_ffff;
    }

    /// Instructions of its warps so far.
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// Runs the block as far as it goes.
    pub fn run(&mut self, cx: &mut Cx, grid: &Grid<'_>) -> Outcome {
        self.enter(cx, grid);
        cx.observe(|o, _| o.block_runs(self.index));
        let outcome = self.rounds(cx, grid);
        cx.observe(|o, _| o.block_rests(self.index, matches!(outcome, Outcome::Done)));
        self.executed = cx.executed;
        outcome
    }

    fn rounds(&mut self, cx: &mut Cx, grid: &Grid<'_>) -> Outcome {
        for round in 0.. {
            let before = cx.progress;
            let (mut ran, mut spun, mut left, mut early) = (false, false, false, false);
            let count = self.warps.len();
            let first = cx.roll(count);
            for w in (0..count).map(|w| (w + first) % count) {
                let warp = &mut self.warps[w];
                if cx.early && warp.waits_for_turn {
                    (left, early) = (true, true);
                    continue;
                }
                if !warp.ready() {
                    left |= !warp.splits.is_empty();
                    continue;
                }
                ran = true;
                warp.waits_for_turn = false;
                cx.uniform[uniform::WARPID] = w as u64;
                cx.observe(|o, cx| o.warp_runs(cx));
                match warp.run(cx, grid, &mut self.barriers) {
                    Stop::Done => {}
                    Stop::Blocked => left = true,
                    Stop::Spinning => {
                        left = true;
                        spun = true;
                        limit::look(cx, grid, self.index, Some(warp));
                    }
                    Stop::Turn => (left, early) = (true, true),
                    Stop::Fault => {
                        return match cx.fault.take() {
                            Some(fault) => Outcome::Fault(w as u32, fault),
                            None => self.deadlock(Stuck::NothingRaised),
                        };
                    }
                }
                self.release(cx, grid);
            }
            if !left && !self.warps.iter().any(|w| !w.splits.is_empty()) {
                return Outcome::Done;
            }
            if early && (!ran || spun && cx.progress == before) {
                return Outcome::Turn;
            }
            if !ran {
                return self.deadlock(Stuck::NobodyRuns);
            }
            if spun && (cx.progress == before || round > PATIENCE) {
                return Outcome::Spinning;
            }
        }
        Outcome::Spinning
    }

    /// Opens every barrier that all its warps have reached.
    fn release(&mut self, cx: &mut Cx, grid: &Grid<'_>) {
        for id in 0..BARRIERS as u32 {
            let barrier = self.barriers[id as usize];
            if barrier.arrived == 0 {
                continue;
            }
            let open = if barrier.expected == 0 {
                self.warps.iter().all(|w| w.live == 0 || barrier.set >> w.index & 1 != 0)
            } else {
                barrier.arrived * LANES as u32 >= barrier.expected
            };
            if !open {
                continue;
            }
            self.barriers[id as usize] = Barrier::default();
            cx.observe(|o, _| o.barrier_opened(id, barrier.set));
            for warp in self.warps.iter_mut().filter(|w| barrier.set >> w.index & 1 != 0) {
                warp.release(cx, grid.program, grid.pools, id, &barrier);
            }
        }
    }

    /// Describes who waits for what.
    pub fn deadlock(&self, why: Stuck) -> Outcome {
        let mut waiters = Vec::new();
        let mut first = None;
        for warp in &self.warps {
            for split in &warp.splits {
                waiters.push(Waiter::new(warp.index, split.mask, split.pc, self.waits(warp, split)));
                let lane = split.mask.trailing_zeros() & 31;
                if first.is_none() || split.state == State::Ready {
                    first.get_or_insert((warp.index, lane, split.pc));
                }
            }
        }
        // Who has left early, by place: a barrier or a mask may still count on them.
        let exits = self.warps.iter().flat_map(|w| w.exits.iter().map(|&(pc, lanes)| (w.index, lanes, pc)));
        for (warp, lanes, pc) in exits.take(EXITS) {
            waiters.push(Waiter::new(warp, lanes, pc, Waits::HasExited));
        }
        let (warp, lane, pc) = first.unwrap_or((0, 0, 0));
        let (kind, reason) = (FaultKind::Deadlock, Some(Reason::Stuck(why)));
        let raw = RawFault { kind, lane, pc, address: None, access: None, reason, waiters };
        Outcome::Fault(warp, Box::new(raw))
    }

    /// What lanes of a warp that run together do.
    fn waits(&self, warp: &Warp, split: &Split) -> Waits {
        match split.state {
            State::Ready => Waits::Spins,
            State::Barrier { id } => {
                // At the barrier of the cluster, lanes that have arrived need not wait.
                let lanes = if id == CLUSTER { 0 } else { warp.live & !self.lanes_at(warp, id) };
                let barrier = &self.barriers[id as usize];
                let others = self.warps.iter().filter(|w| w.live != 0 && barrier.set >> w.index & 1 == 0);
                Waits::AtBarrier {
                    barrier: barrier::numbered(id),
                    arrived: (barrier.expected != 0).then_some((barrier.arrived * 32, barrier.expected)),
                    lanes,
                    warps: others.map(|w| w.index).collect(),
                }
            }
            State::Collective { mask, .. } => {
                let here = warp.splits.iter().filter(|s| s.state == split.state).fold(0, |m, s| m | s.mask);
                Waits::InCollective { mask, missing: mask & warp.live & !here }
            }
            State::Converge => Waits::ForLanes { lanes: warp.live & !split.mask },
        }
    }

    fn lanes_at(&self, warp: &Warp, id: u32) -> u32 {
        let waiting = warp.splits.iter().filter(|s| s.state == State::Barrier { id });
        lanes_of(waiting.fold(0, |m, s| m | s.mask)).fold(0, |m, l| m | 1 << l)
    }
}
