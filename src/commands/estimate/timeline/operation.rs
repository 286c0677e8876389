//! What an instruction of machine code does to a multiprocessor: the pipe that it takes, and when its results are there.

use std::collections::HashMap;

use warpsmith_arch::SECTOR;
use warpsmith_check::LineProfile;

use super::multiprocessor::Wait;
use super::operands::{Register, Registers};
use crate::commands::budget::pipes::{ISSUE, Pipe};
use crate::commands::budget::sass::{Code, Instruction};
use crate::commands::budget::slots;
use crate::commands::estimate::figures::Figures;

/// Clocks until what another instruction reads is there. Shared memory's is an H100's (arXiv 2402.13499); the others are assumed.
mod latency {
    pub const ARITHMETIC: u64 = 5;
    pub const UNIFORM: u64 = 10;
    /// Conversions, bit counts, special functions.
    pub const SLOW: u64 = 18;
    pub const SHUFFLE: u64 = 24;
    /// Special registers.
    pub const SPECIAL: u64 = 25;
    /// Of the first pass; each further one takes a clock more.
    pub const SHARED: u64 = 29;
    /// Constants by `LDC`, local memory.
    pub const NEAR: u64 = 30;
    pub const TENSOR: u64 = 33;
    pub const ATOMIC: u64 = 500;
}

/// Bytes of a line of code.
const CODE_LINE: u32 = 128;
/// Bytes of a line that a lane asks for ahead.
const ASKED_LINE: u32 = 128;

/// What an instruction does beside issuing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Its results are there after so many clocks.
    Result(u64, Wait),
    /// A load.
    Load(Load),
    /// Asks for memory ahead.
    Ask(Ask),
    /// Ends a group of copies.
    Commit,
    /// Waits until so many groups of copies are left.
    WaitCopies(usize),
    /// A barrier of the block.
    Barrier,
    /// Waits for the launch before.
    WaitBefore,
    /// A store to memory.
    Store,
    /// Waits until everything that it stored is there.
    Fence,
}

/// A load of a warp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub bytes: f64,
    /// They come from memory; else caches have them, as other warps read them too.
    pub of_memory: bool,
    /// They go to shared memory, and a group of copies waits for them.
    pub copies: bool,
    /// Of its executions by a warp those in which it loads, the first ones: behind them its guard does not hold.
    pub share: f64,
}

/// What a warp asks for ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask {
    pub bytes: f64,
    /// As of a [`Load`].
    pub share: f64,
}

/// An instruction, as a multiprocessor sees it.
#[derive(Clone, Debug)]
pub struct Operation {
    pub reads: Vec<Register>,
    pub writes: Vec<Register>,
    /// Behind each scheduler, or behind all of them.
    pub pipe: Pipe,
    /// Clocks for which it has the pipe.
    pub busy: f64,
    pub effect: Effect,
    /// Line of the instruction cache.
    pub line: u32,
}

/// Whether all schedulers share a pipe: those of memory.
pub fn is_shared(pipe: Pipe) -> bool {
    matches!(pipe, Pipe::Shared | Pipe::Global)
}

/// What each instruction does.
pub fn operations(figures: &Figures, code: &Code, lines: &[LineProfile], executions: &[f64]) -> Vec<Operation> {
    let lines: HashMap<u32, &LineProfile> = lines.iter().map(|l| (l.ptx_line, l)).collect();
    // How often the machine code executes what is of a line.
    let mut executed: HashMap<(u32, &str), f64> = HashMap::new();
    for (block, times) in code.blocks.iter().zip(executions) {
        for i in &code.instructions[block.range.clone()] {
            *executed.entry((i.ptx_line, i.stem())).or_default() += times;
        }
    }
    let has = |stem: &str| code.instructions.iter().any(|i| i.stem() == stem);
    let of = |i: &Instruction| {
        let Registers { reads, writes } = Registers::of(i);
        let (pipe, line) = (Pipe::of(i), lines.get(&i.ptx_line).copied());
        let (mut effect, passes) = effect(i, pipe, line);
        if let (Effect::Load(Load { share, .. }) | Effect::Ask(Ask { share, .. }), Some(line), false) =
            (&mut effect, line, i.guard.is_empty())
        {
            let all = executed.get(&(i.ptx_line, i.stem())).copied().unwrap_or_default();
            *share = line.metrics.warp_instructions as f64 / all.max(1.0);
        }
        let busy = if is_shared(pipe) {
            passes
        } else {
            // A scheduler has a part of the pipe.
            let slots = ISSUE / Pipe::rate(i) * figures.by_pipe(pipe, has);
            if figures.measured_on().is_some() { slots } else { slots / share_of_rate(i.stem()) }
        };
        Operation { reads, writes, pipe, busy: busy.max(1.0), effect, line: i.address / CODE_LINE }
    };
    code.instructions.iter().map(of).collect()
}

/// Share of the rate of a data sheet that an instruction reached on an H200: 1339 of 2048 multiply-additions a clock in f16, 2686 of 4096 in
/// integers of eight bits; of bits 16051 of 16384 (benches/results).
fn share_of_rate(stem: &str) -> f64 {
    match stem {
        "HMMA" | "IMMA" => 0.655,
        _ => 1.0,
    }
}

/// Effect of an instruction, and the clocks that it has shared memory's or the first cache's pipe.
fn effect(i: &Instruction, pipe: Pipe, line: Option<&LineProfile>) -> (Effect, f64) {
    let stem = i.stem();
    let result = |clocks, what| Effect::Result(clocks, what);
    let m = line.map(|l| l.metrics).unwrap_or_default();
    let passes = || line.map_or(1.0, slots::wavefronts);
    match stem {
        "LDG" | "LD" | "LDGSTS" | "UBLKCP" | "UTMALDG" => {
            let requests = (m.global_load_requests + m.global_copy_requests).max(1) as f64;
            let sectors = (m.global_load_sectors + m.global_copy_sectors) as f64 / requests;
            let first = (m.global_first_sectors as f64 / requests).min(sectors);
            let of_memory = 2.0 * first >= sectors;
            let bytes = f64::from(SECTOR) * if of_memory { first } else { sectors };
            let load = Load { bytes, of_memory, copies: stem == "LDGSTS", share: 1.0 };
            (Effect::Load(load), passes())
        }
        "CCTL" if i.opcode.contains("PF") => {
            let lanes = m.lane_instructions as f64 / m.warp_instructions.max(1) as f64;
            (Effect::Ask(Ask { bytes: f64::from(ASKED_LINE) * lanes, share: 1.0 }), 1.0)
        }
        "LDGDEPBAR" => (Effect::Commit, 1.0),
        "DEPBAR" => {
            let left = i.operands.rsplit("0x").next().and_then(|n| usize::from_str_radix(n.trim(), 16).ok());
            (Effect::WaitCopies(left.unwrap_or(0)), 1.0)
        }
        "BAR" => (Effect::Barrier, 1.0),
        "ACQBULK" => (Effect::WaitBefore, 1.0),
        "MEMBAR" => (Effect::Fence, 1.0),
        "ATOM" | "ATOMG" => (result(latency::ATOMIC, Wait::Cache), 1.0),
        "STG" | "ST" | "RED" | "REDG" => (Effect::Store, passes()),
        "S2R" | "S2UR" => (result(latency::SPECIAL, Wait::Arithmetic), 1.0),
        "LDC" => (result(latency::NEAR, Wait::Arithmetic), 1.0),
        _ => match pipe {
            Pipe::Shared => {
                let passes = (m.shared_wavefronts() as f64 / m.warp_instructions.max(1) as f64).max(1.0);
                (result(latency::SHARED + passes as u64 - 1, Wait::Shared), passes)
            }
            Pipe::Shuffle => (result(latency::SHUFFLE, Wait::Shared), 1.0),
            Pipe::Mufu | Pipe::Convert | Pipe::Popc => (result(latency::SLOW, Wait::Arithmetic), 1.0),
            Pipe::Tensor => (result(latency::TENSOR, Wait::Arithmetic), 1.0),
            Pipe::Uniform => (result(latency::UNIFORM, Wait::Arithmetic), 1.0),
            Pipe::Global => (result(latency::NEAR, Wait::Cache), 1.0),
            _ => (result(latency::ARITHMETIC, Wait::Arithmetic), 1.0),
        },
    }
}
