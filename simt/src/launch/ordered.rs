//! Blocks that talk to each other, on several cores, with the result that they have one after the other.
//!
//! A block runs beside those before it until it would order or combine its accesses with those of others (`control::turn`).
//! There it waits until all before it have ended, so that whatever blocks tell each other is told in order of their
//! indices, as when they run one after the other. What a block does before it first talks nobody can have told it, so if blocks
//! do not race, it does not matter when.
//!
//! If the block whose turn it is only spins, it waits for a later one. All stop then where they wait, and go on
//! beside each other on one core, as [`Run::turns`] does it. So do those of a kernel that talks as soon as it begins: there is
//! nothing to gain.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::machine::Worker;
use super::report::Failure;
use super::run::Run;
use crate::counters::Counters;
use crate::exec::block::{Block, Outcome};
use crate::exec::{Cx, LANES, limit};

/// Instructions of a warp before its block's turn below which others gain nothing from running meanwhile.
const WORTHWHILE: u64 = 64;

/// A block that has begun, in whatever thread it did.
struct Begun(Block);

// SAFETY: a block's pointers go into its own buffers, on the heap; the context has those that a handler follows, and a block
// sets them anew whenever it runs.
unsafe impl Send for Begun {}

/// Who runs, and whose turn it is.
#[derive(Default)]
struct Dispatch {
    /// The next block to begin, and the end of those that may.
    next: u64,
    end: u64,
    /// All blocks before this one have ended.
    turn: u64,
    /// Later ones that have ended.
    ended: BTreeSet<u64>,
    /// What is left is for one core.
    alone: bool,
    /// Blocks that have begun and are for one core.
    left: Vec<Begun>,
    counters: Counters,
    failure: Option<Failure>,
}

/// What is left to be done on one core.
pub(super) struct Rest {
    /// Blocks that have begun, in order.
    pub blocks: Vec<Block>,
    /// How many have begun in all.
    pub started: u64,
    pub counters: Counters,
}

struct Turns {
    state: Mutex<Dispatch>,
    /// Told whenever a block ends, or what is left is for one core.
    changed: Condvar,
}

/// What a thread does with its block next.
enum Next {
    /// It runs on.
    On,
    /// It has ended.
    Another,
    /// It is left to one core, or need not run any more.
    Leave { keep: bool },
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, Dispatch> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next block to begin.
    fn claim(&self) -> Option<u64> {
        let mut state = self.lock();
        let index = state.next;
        if state.alone || index >= state.end {
            return None;
        }
        state.next += 1;
        Some(index)
    }

    fn end(&self, index: u64) {
        let mut state = self.lock();
        state.ended.insert(index);
        loop {
            let turn = state.turn;
            if !state.ended.remove(&turn) {
                break;
            }
            state.turn += 1;
        }
        self.changed.notify_all();
    }

    /// A block has failed: later ones need not end.
    fn fail(&self, failure: Failure) {
        let mut state = self.lock();
        state.end = state.end.min(failure.0);
        if state.failure.as_ref().is_none_or(|f| failure.0 < f.0) {
            state.failure = Some(failure);
        }
        self.changed.notify_all();
    }

    /// What is left is for one core.
    fn leave(&self) -> Next {
        self.lock().alone = true;
        self.changed.notify_all();
        Next::Leave { keep: true }
    }

    /// Waits for the turn of a block.
    fn wait(&self, index: u64) -> Next {
        let mut state = self.lock();
        loop {
            if index >= state.end {
                return Next::Leave { keep: false };
            }
            // Asked before `alone`: whose turn it is runs on here, whatever the others do.
            if state.turn == index {
                return Next::On;
            }
            if state.alone {
                return Next::Leave { keep: true };
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Lets the others leave if the thread that holds it panics: its block never ends, and they would wait for that.
struct Unwinding<'a>(&'a Turns);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.leave();
        }
    }
}

impl Run<'_> {
    /// Blocks that talk to each other, on several cores as far as that goes.
    pub(super) fn ordered(&self, pool: &rayon::ThreadPool) -> Result<Rest, Failure> {
        let state = Mutex::new(Dispatch { end: self.blocks, ..Dispatch::default() });
        let turns = Turns { state, changed: Condvar::new() };
        pool.broadcast(|_| {
            let _unwinding = Unwinding(&turns);
            let mut worker = self.machine.worker();
            self.prepare(&mut worker);
            let Worker { cx, blocks } = &mut worker;
            while let Some(index) = turns.claim() {
                let mut block = blocks.pop().unwrap_or_else(Block::new);
                block.start(cx, self.grid, index);
                cx.early = true;
                let keep = loop {
                    match self.step(cx, &mut block, &turns) {
                        Next::On => {}
                        Next::Another => break None,
                        Next::Leave { keep } => break Some(keep),
                    }
                };
                match keep {
                    Some(true) => turns.lock().left.push(Begun(block)),
                    _ => blocks.push(block),
                }
            }
            turns.lock().counters += cx.counters;
            self.machine.put_back(worker);
        });
        let state = turns.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = state.failure {
            return Err(failure);
        }
        let mut blocks: Vec<Block> = state.left.into_iter().map(|begun| begun.0).collect();
        blocks.sort_by_key(|block| block.index);
        Ok(Rest { blocks, started: state.next, counters: state.counters })
    }

    /// Lets a block run until it ends, waits for its turn, or spins.
    fn step(&self, cx: &mut Cx, block: &mut Block, turns: &Turns) -> Next {
        match block.run(cx, self.grid) {
            Outcome::Done => {
                limit::look(cx, self.grid, block.index, None);
                turns.end(block.index);
                Next::Another
            }
            Outcome::Fault(warp, raw) => {
                turns.fail((block.index, warp, raw));
                Next::Leave { keep: false }
            }
            Outcome::Turn => {
                let warps = u64::from(self.grid.threads.div_ceil(LANES as u32));
                if block.executed() < WORTHWHILE * warps {
                    return turns.leave();
                }
                let next = turns.wait(block.index);
                cx.early = !matches!(next, Next::On);
                next
            }
            Outcome::Spinning => turns.leave(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_panics_lets_the_others_leave() {
        let state = Mutex::new(Dispatch { end: 2, next: 2, ..Dispatch::default() });
        let turns = Turns { state, changed: Condvar::new() };
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| turns.wait(1));
            let fails = scope.spawn(|| {
                let _unwinding = Unwinding(&turns);
                // No report of it: it is meant.
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(fails.join().is_err());
            assert!(matches!(waiting.join(), Ok(Next::Leave { keep: true })));
        });
    }
}
