//! How often each warp of a block executed each line: of the first block, and of the one that executed most.
//!
//! A [profile](super::profile) sums over all warps, of which each may do something else. Who follows a warp through its code asks here
//! what it did. Blocks of a launch mostly do the same; where one of them does more, such as the last one that finishes what all have
//! left, the launch ends with it.

use std::any::Any;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use warpsmith_simt::machine::note::Note;
use warpsmith_simt::machine::{Cx, Op};
use warpsmith_simt::observer::{Interest, Observer};
use warpsmith_simt::program::Grid;
use warpsmith_simt::{self as simt, Ended, Fault, Instance, Machine, Module};

use super::Start;
use super::init::warp;
use super::profile::weight;

/// What the warps of a block executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockByWarp {
    /// The block's linear index.
    pub block: u64,
    /// For each warp that ran, in their order: executions of each line of the PTX text, as
    /// [`Metrics::warp_instructions`](super::Metrics::warp_instructions) counts them.
    pub warps: Vec<BTreeMap<u32, u64>>,
}

/// The blocks of a launch that are followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByWarp {
    /// Block 0.
    pub first: BlockByWarp,
    /// The one whose warps executed most instructions, the first of several.
    pub longest: BlockByWarp,
}

impl ByWarp {
    /// Runs a launch to its end, serially, and counts. Checks that `start` asks for are not made.
    ///
    /// # Errors
    /// What stopped the launch.
    pub fn of(machine: &Machine, instance: &Instance, start: &Start<'_>) -> Result<ByWarp, Box<Fault>> {
        let &Start { kernel, launch, params, instruction_limit, first_blocks, .. } = start;
        let watch = |launching: &simt::observer::Launching<'_>| -> Box<dyn Observer> {
            Box::new(Counter { operations: launching.grid.program.ops.len(), ..Counter::default() })
        };
        let ended = machine.run(
            instance,
            simt::Start {
                watch: Some(&watch),
                instruction_limit,
                first_blocks,
                ..simt::Start::new(kernel, launch, params)
            },
        );
        let Ended { fault, observer, .. } = ended;
        if let Some(fault) = fault {
            return Err(fault);
        }
        let counter = observer.and_then(|o| (o as Box<dyn Any>).downcast::<Counter>().ok());
        Ok(counter.map(|c| c.finish(instance.module())).unwrap_or_default())
    }
}

/// A block's counts.
#[derive(Default)]
struct Block {
    index: u64,
    /// Instructions of all its warps.
    total: u64,
    /// By operation, a warp after the other.
    executed: Vec<u64>,
}

#[derive(Default)]
struct Counter {
    operations: usize,
    running: Block,
    /// Blocks that have begun and do not run.
    resting: FxHashMap<u64, Block>,
    first: Option<Block>,
    longest: Option<Block>,
}

impl Counter {
    fn count(&mut self, cx: &Cx, pc: u32) {
        let at = warp(cx) * self.operations + pc as usize;
        let block = &mut self.running;
        if block.executed.len() <= at {
            block.executed.resize((warp(cx) + 1) * self.operations, 0);
        }
        let weight = weight(cx, pc);
        block.total += weight;
        if let Some(n) = block.executed.get_mut(at) {
            *n += weight;
        }
    }

    fn finish(self, module: &Module) -> ByWarp {
        let of = |block: Option<&Block>| block.map(|b| b.by_line(module, self.operations)).unwrap_or_default();
        // One block may be both.
        let total = |block: &Option<Block>| block.as_ref().map_or(0, |b| b.total);
        let longest = if total(&self.longest) > total(&self.first) { &self.longest } else { &self.first };
        ByWarp { first: of(self.first.as_ref()), longest: of(longest.as_ref()) }
    }
}

impl Block {
    fn by_line(&self, module: &Module, operations: usize) -> BlockByWarp {
        let program = &module.program;
        let of_warp = |executed: &[u64]| {
            let mut lines = BTreeMap::new();
            for (op, n) in program.ops.iter().zip(executed).filter(|(_, n)| **n > 0) {
                let line = program.debug.get(op.debug as usize).map(|d| d.line).unwrap_or_default();
                *lines.entry(line).or_insert(0) += n;
            }
            lines
        };
        BlockByWarp { block: self.index, warps: self.executed.chunks(operations.max(1)).map(of_warp).collect() }
    }
}

impl Observer for Counter {
    fn interest(&self) -> Interest {
        Interest { accesses: false, operations: true, definedness: false }
    }

    fn block_begins(&mut self, _: &Grid<'_>, block: u64) {
        self.resting.insert(block, Block { index: block, ..Block::default() });
    }

    fn block_runs(&mut self, block: u64) {
        self.running = self.resting.remove(&block).unwrap_or_default();
    }

    fn block_rests(&mut self, block: u64, done: bool) {
        let counted = std::mem::take(&mut self.running);
        if !done {
            self.resting.insert(block, counted);
            return;
        }
        if block == 0 {
            self.first = Some(counted);
        } else if self.longest.as_ref().is_none_or(|b| counted.total > b.total) {
            self.longest = Some(counted);
        }
    }

    unsafe fn before(&mut self, cx: &mut Cx, _: &Op, pc: u32, _: &Note, _: bool) {
        self.count(cx, pc);
    }

    fn skipped(&mut self, cx: &mut Cx, pc: u32) {
        self.count(cx, pc);
    }
}
