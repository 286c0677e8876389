//! A launch in progress: which blocks run when, and where.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::machine::{Machine, PARALLEL_THREADS, Worker, resident};
use super::ordered::Rest;
use super::report::Failure;
use crate::counters::Counters;
use crate::exec::block::{Block, Outcome};
use crate::exec::context::Sample;
use crate::exec::progress::Pulse;
use crate::exec::{Cx, Site, limit};
use crate::fault::Stuck;
use crate::memory::Snapshot;
use crate::observer::Observer;
use crate::program::{Grid, Overlap};

/// A launch in progress.
pub(super) struct Run<'a> {
    pub machine: &'a Machine,
    pub grid: &'a Grid<'a>,
    pub params: &'a [u8],
    pub param_bytes: u32,
    pub memory: Snapshot,
    pub blocks: u64,
    pub overlap: Overlap,
    /// Instructions that one block may execute.
    pub limit: u64,
    pub pulse: Option<Arc<Pulse>>,
}

/// How long blocks run that only spin.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// Turns in which nothing changes, beyond one for each resident block.
    pub quiet: u64,
    /// Instructions, if they change memory meanwhile.
    pub busy: u64,
}

/// How letting blocks run went.
pub(super) enum Turned {
    Done,
    /// All threads wait for what they do not do themselves; `changing` memory, or not.
    Waiting {
        changing: bool,
    },
}

/// Which blocks are resident, and whose turn it is.
#[derive(Default)]
pub(super) struct Schedule {
    resident: Vec<Block>,
    started: u64,
    seed: u64,
    turn: usize,
    /// Turns in a row in which a block only spun; those in which nothing changed.
    idle_turns: u64,
    stale: u64,
}

impl Schedule {
    /// The fault that a deadlock is, as the block whose turn it is sees it.
    pub fn deadlock(&self, why: Stuck) -> Option<Failure> {
        let block = self.resident.get(self.turn).or(self.resident.first())?;
        match block.deadlock(why) {
            Outcome::Fault(warp, raw) => Some((block.index, warp, raw)),
            Outcome::Done | Outcome::Spinning | Outcome::Turn => None,
        }
    }

    /// Whether nothing has changed for more than `limit` turns.
    pub fn is_stale(&self, limit: u64) -> bool {
        self.stale > limit.saturating_add(self.resident.len() as u64)
    }

    /// The buffers.
    pub fn into_blocks(self) -> Vec<Block> {
        self.resident
    }
}

/// The state of a launch between two turns.
pub(super) struct Flight {
    pub worker: Worker,
    pub schedule: Schedule,
}

// SAFETY: the raw pointers of context and blocks point into their own buffers and into the program, parameters and
// constants of the launch, all on the heap and kept by it, or are set anew before each use; observers can be sent.
unsafe impl Send for Flight {}

impl Run<'_> {
    pub(super) fn prepare(&self, worker: &mut Worker) {
        let program = self.grid.program;
        let cx = &mut worker.cx;
        cx.code = program.ops.as_ptr();
        cx.lists = program.lists.as_ptr();
        cx.weights = program.weights.as_ptr();
        cx.memory = self.memory.clone();
        cx.interprocess = self.machine.memory.is_interprocess();
        cx.sites.clear();
        cx.sites.resize(program.sites as usize, Site::EMPTY);
        cx.params = self.params.as_ptr();
        cx.param_bytes = self.param_bytes;
        cx.counters = Counters::default();
        cx.fault = None;
        cx.services = Some(Arc::clone(&self.machine.services));
        cx.limit = self.limit;
        cx.sample = Sample::default();
        cx.pulse = self.pulse.clone();
        (cx.looked, cx.look_at) = (0, if self.pulse.is_some() { 0 } else { u64::MAX });
    }

    /// Whether its blocks are to run on several cores.
    pub fn is_worth_sharing(&self) -> bool {
        let threads = u64::from(self.grid.threads);
        self.overlap != Overlap::None && self.blocks > 1 && self.blocks.saturating_mul(threads) >= PARALLEL_THREADS
    }

    /// A launch whose blocks run in order, further ones beside those that only spin.
    pub fn begin(&self, observer: Option<Box<dyn Observer>>, seed: u64) -> Flight {
        let mut worker = self.machine.worker();
        self.prepare(&mut worker);
        let interest = observer.as_ref().map(|o| o.interest()).unwrap_or_default();
        (worker.cx.counting, worker.cx.watching) = (interest.operations, interest.accesses);
        worker.cx.dice = seed;
        worker.cx.notes = self.grid.program.notes.notes.as_ptr();
        worker.cx.observer = observer;
        let schedule = Schedule { seed, ..Schedule::default() };
        Flight { worker, schedule }
    }

    /// The rest of a launch some of whose blocks have run on other cores.
    pub fn go_on(&self, rest: Rest) -> Flight {
        let mut flight = self.begin(None, 0);
        flight.worker.cx.counters = rest.counters;
        flight.schedule = Schedule { resident: rest.blocks, started: rest.started, ..Schedule::default() };
        flight
    }

    /// Lets blocks run: to the end, or until all of them have only spun for longer than `patience`.
    pub fn turns(&self, flight: &mut Flight, patience: Option<Patience>) -> Result<Turned, Failure> {
        let Flight { worker: Worker { cx, blocks: spare }, schedule: s } = flight;
        let limit = self.machine.config.spin_limit;
        let (mut quiet, mut busy) = (0, cx.counters.warp_instructions);
        // As many as a device would hold.
        let most = resident(self.machine.config.sm, self.grid.threads) as usize;
        loop {
            let all_spin = s.idle_turns >= s.resident.len() as u64;
            if all_spin && s.started < self.blocks && s.resident.len() < most {
                let mut block = spare.pop().unwrap_or_else(Block::new);
                block.start(cx, self.grid, nth(s.started, self.blocks, s.seed));
                s.started += 1;
                s.turn = s.resident.len();
                s.resident.push(block);
                s.idle_turns = s.idle_turns.min(s.resident.len() as u64 - 1);
                (quiet, busy) = (0, cx.counters.warp_instructions);
            }
            if s.resident.is_empty() {
                return Ok(Turned::Done);
            }
            s.turn %= s.resident.len();
            let before = cx.progress;
            let block = &mut s.resident[s.turn];
            match block.run(cx, self.grid) {
                // Nobody is early here.
                Outcome::Turn => {}
                Outcome::Done => {
                    limit::look(cx, self.grid, block.index, None);
                    spare.push(s.resident.remove(s.turn));
                    (s.stale, quiet, busy) = (0, 0, cx.counters.warp_instructions);
                    let others = s.resident.len() as u64;
                    s.idle_turns = if others == 0 { 0 } else { s.idle_turns.min(others - 1) };
                }
                Outcome::Spinning => {
                    s.idle_turns += 1;
                    let changed = cx.progress != before;
                    (s.stale, quiet) = if changed { (0, 0) } else { (s.stale + 1, quiet + 1) };
                    let waits = |p: Patience| {
                        let (still, most) =
                            (p.quiet.saturating_add(s.resident.len() as u64), busy.saturating_add(p.busy));
                        // Blocks that have not begun may be what the others wait for.
                        all_spin && (quiet > still || cx.counters.warp_instructions > most)
                    };
                    match patience {
                        None if limit != 0 && s.is_stale(limit) => {
                            if let Some(failure) = s.deadlock(Stuck::LaunchIsStale) {
                                return Err(failure);
                            }
                        }
                        Some(patience) if waits(patience) => {
                            s.turn += 1;
                            return Ok(Turned::Waiting { changing: quiet <= patience.quiet });
                        }
                        _ => {}
                    }
                    s.turn += 1;
                }
                Outcome::Fault(warp, raw) => return Err((block.index, warp, raw)),
            }
        }
    }

    /// Independent blocks on several cores.
    pub fn parallel(&self, pool: &rayon::ThreadPool) -> Result<Counters, Failure> {
        debug_assert!(self.overlap == Overlap::Whole);
        let next = AtomicU64::new(0);
        // Blocks beyond the lowest one that has failed need not run.
        let end = AtomicU64::new(self.blocks);
        let total = Mutex::new((Counters::default(), None::<Failure>));
        let threads = pool.current_num_threads() as u64;
        // Small enough that all end at about the same time.
        let chunk = (self.blocks / (threads * 32)).clamp(1, 64);
        pool.broadcast(|_| {
            let mut worker = self.machine.worker();
            self.prepare(&mut worker);
            worker.cx.parallel = true;
            let Worker { cx, blocks } = &mut worker;
            if blocks.is_empty() {
                blocks.push(Block::new());
            }
            let mut failure: Option<Failure> = None;
            'work: loop {
                let from = next.fetch_add(chunk, Ordering::Relaxed);
                for index in from..from.saturating_add(chunk) {
                    if index >= end.load(Ordering::Relaxed) {
                        break 'work;
                    }
                    if let Err(f) = self.one(cx, &mut blocks[0], index) {
                        end.fetch_min(index, Ordering::Relaxed);
                        failure = Some(f);
                        break 'work;
                    }
                }
            }
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            total.0 += cx.counters;
            let earlier = |f: &Failure| total.1.as_ref().is_none_or(|t| f.0 < t.0);
            if failure.as_ref().is_some_and(earlier) {
                total.1 = failure;
            }
            drop(total);
            self.machine.put_back(worker);
        });
        match total.into_inner().unwrap_or_else(PoisonError::into_inner) {
            (_, Some(failure)) => Err(failure),
            (counters, None) => Ok(Counters { blocks: self.blocks, ..counters }),
        }
    }

    fn one(&self, cx: &mut Cx, block: &mut Block, index: u64) -> Result<(), Failure> {
        block.start(cx, self.grid, index);
        let limit = self.machine.config.spin_limit;
        let mut idle_turns = 0;
        loop {
            let before = cx.progress;
            match block.run(cx, self.grid) {
                Outcome::Done => {
                    limit::look(cx, self.grid, index, None);
                    return Ok(());
                }
                // Nobody is early here.
                Outcome::Turn => {}
                Outcome::Fault(warp, raw) => return Err((index, warp, raw)),
                Outcome::Spinning => {
                    idle_turns = if cx.progress == before { idle_turns + 1 } else { 0 };
                    if limit != 0
                        && idle_turns > limit
                        && let Outcome::Fault(warp, raw) = block.deadlock(Stuck::BlockIsStale)
                    {
                        return Err((index, warp, raw));
                    }
                }
            }
        }
    }
}

/// The block that runs as the `i`th of `n`: in order, or as a seed shuffles them (an affine permutation).
fn nth(i: u64, n: u64, seed: u64) -> u64 {
    if seed == 0 || n < 2 {
        return i;
    }
    fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let mut step = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) % n;
    while gcd(step, n) != 1 {
        step = (step + 1) % n;
    }
    let product = u128::from(i) * u128::from(step) + u128::from(seed);
    (product % u128::from(n)) as u64
}

#[cfg(test)]
mod tests {
    use super::nth;

    #[test]
    fn shuffles_are_permutations() {
        for n in [1, 2, 3, 7, 8, 30, 1000] {
            for seed in [0, 1, 2, 99, u64::MAX] {
                let mut order: Vec<u64> = (0..n).map(|i| nth(i, n, seed)).collect();
                assert!(seed != 0 || order.is_sorted());
                order.sort_unstable();
                assert_eq!(order, (0..n).collect::<Vec<_>>(), "{n} blocks, seed {seed}");
            }
        }
        assert_ne!(nth(0, 100, 1), nth(0, 100, 2));
    }
}
