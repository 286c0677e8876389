//! How long a launch waits: a multiprocessor that is simulated clock by clock, on the machine code of the kernel.
//!
//! Counts of bytes and of instructions say how long a launch takes at least. What it takes is longer, as its warps wait: for loads that
//! none was asked for behind, for barriers, for results, and for their own code. All of that is in the order of the instructions, which
//! ptxas has chosen, and in which registers each reads and writes. So warps are followed through it:
//!
//! | | |
//! |---|---|
//! | [`walk`] | what a warp executes, one instruction after the other: each block of machine code as often as it ran on the software driver |
//! | [`operation`] | what an instruction does: its pipe, its results, the bytes that it loads |
//! | [`operands`] | the registers that it reads and writes |
//! | [`multiprocessor`] | four schedulers, pipes, a share of memory's rate, latencies, an instruction cache |
//! | [`path`] | which of all that the end waited for |
//!
//! The fullest multiprocessor is simulated, with the blocks that it gets, as many at a time as are resident. Each warp does what the warp of
//! its place did in the first block of the launch; of the block that begins last, in the block whose warps did most, such as the one that
//! adds up what all parts have. That others share memory with it is in its share of the rate alone. Addresses are not known, only how many
//! bytes and sectors each load had on average: what is mostly touched for the first time comes from memory; all else comes from L2 for the
//! warp that asks for it first, and from the first cache for the others, of which an instruction is taken to read the same when they execute
//! it for the same time.

mod multiprocessor;
mod operands;
mod operation;
mod path;
mod walk;

use std::collections::HashMap;

use warpsmith_arch::{Gpu, WARP};
use warpsmith_check::{BlockByWarp, ByWarp, LineProfile};

pub use self::multiprocessor::Wait;
use self::multiprocessor::{Clocks, MultiprocessorRun, MultiprocessorWork};
use self::walk::Walk;
use super::figures::Figures;
use super::read_rate;
use crate::commands::budget::sass::Code;
use crate::commands::budget::slots::{self, Division};

/// Blocks of one multiprocessor are simulated up to so many fillings of it; those behind take as long as the last.
const FILLINGS: u64 = 4;

/// A launch of a kernel on the software driver, beside its machine code.
pub struct Launched<'a> {
    pub code: &'a Code,
    pub lines: &'a [LineProfile],
    /// What single warps did.
    pub by_warp: &'a ByWarp,
    /// Blocks of the grid, threads of each, and blocks that a multiprocessor holds.
    pub blocks: u64,
    pub threads: u32,
    pub resident: u64,
    /// The launch before has not ended when this begins.
    pub programmatic: bool,
}

/// What it takes on the fullest multiprocessor.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Microseconds from when the launch before has ended.
    pub us: f64,
    /// Shares of that, by what the end waited for, the largest first; in the rest it issued.
    pub path: Vec<(Wait, f64)>,
    /// Shares of the clocks of all warps, by what they waited for.
    pub warps: Vec<(Wait, f64)>,
    /// Instructions at which warps waited, those first for which the end waited longest.
    pub instructions: Vec<InstructionWaits>,
}

/// What warps waited for before an instruction issued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstructionWaits {
    /// Its place in the code.
    pub index: usize,
    /// Share of the time to the end.
    pub path: f64,
    /// Share of all clocks of warps.
    pub warps: f64,
    /// What took most of it, to the end if that waited there.
    pub wait: Wait,
}

/// The architecture whose latencies are known here.
pub const SM: u32 = 90;

/// Of a load from memory that is not waited for by others, in microseconds: of 0.35 and 0.45 the one that is nearer to what products of one column
/// took on an H200 (benches/results).
pub const MEMORY: f64 = 0.45;
/// When blocks of a programmatic launch begin, before the launch before has ended, in microseconds. Assumed.
const BEFORE: f64 = 0.5;
/// Bytes that L2 of an H200 delivers in a microsecond to all multiprocessors (gpu-benches, L2: 9.7 to 9.8 TB/s of 20 to 30 MB).
const L2_READS: f64 = 9.8e6;
/// Bytes that one multiprocessor gets in a clock where few others ask. Assumed.
const PORT: f64 = 64.0;

/// Clocks of a GPU of [`SM`]. Latencies of caches as others measured them on an H100 (arXiv 2402.13499); those of code and of the next block are
/// chosen by what steps took on an H200, whose launches each find other code in the caches. `busy` multiprocessors share what memory and L2 deliver.
fn clocks(gpu: &Gpu, busy: u64, programmatic: bool) -> Clocks {
    let clock = f64::from(gpu.clock_mhz);
    let share = |rate: f64| (rate / busy as f64 / clock).min(PORT);
    Clocks {
        memory: MEMORY * clock,
        l2: 263.0,
        l1: 41.0,
        memory_rate: share(read_rate(gpu)),
        l2_rate: share(L2_READS),
        code: 120,
        next_code: 12,
        code_ahead: 4,
        block: 400,
        before: if programmatic { (BEFORE * clock) as u64 } else { 0 },
    }
}

impl Timeline {
    /// Of a launch on a GPU of [`SM`].
    pub fn of(figures: &Figures, launch: &Launched<'_>) -> Timeline {
        let gpu = figures.gpu;
        let executions = slots::weigh(launch.code, launch.lines, 0).executions;
        let operations = operation::operations(figures, launch.code, launch.lines, &executions);
        let [first, longest] = [&launch.by_warp.first, &launch.by_warp.longest].map(|block| traces(launch, block));
        let multiprocessors = u64::from(gpu.multiprocessors);
        let clocks = clocks(gpu, launch.blocks.clamp(1, multiprocessors), launch.programmatic);
        let fullest = launch.blocks.div_ceil(multiprocessors).max(1);
        let resident = launch.resident.max(1);
        let run = |blocks: u64| {
            let work = MultiprocessorWork { operations: &operations, warps: &first, last: &longest, blocks, resident };
            multiprocessor::run(&work, &clocks)
        };
        let followed = fullest.min(FILLINGS * resident);
        let ran = run(followed);
        let mut all = ran.clocks as f64;
        if fullest > followed {
            let filling = all - run(followed - resident).clocks as f64;
            all += filling * (fullest - followed) as f64 / resident as f64;
        }
        let us = (all - clocks.before as f64).max(0.0) / f64::from(gpu.clock_mhz);
        let path = waits(
            |wait| ran.path.clocks.iter().filter(|(of, _)| of.1 == Some(wait)).map(|(_, n)| n).sum(),
            ran.path.total(),
        );
        let warps = waits(|wait| ran.waits.iter().map(|w| w[wait as usize]).sum(), of_warps(&ran));
        Timeline { us, path, warps, instructions: by_instruction(&ran) }
    }
}

/// What each warp of a block executes, one instruction after the other.
fn traces(launch: &Launched<'_>, block: &BlockByWarp) -> Vec<Vec<u32>> {
    let walk = Walk::new(launch.code);
    // What others executed, and the warp did not, is known of it.
    let none: HashMap<u32, u64> = launch.lines.iter().map(|l| (l.ptx_line, 0)).collect();
    let of = |warp: u32| {
        let mut counts = none.clone();
        counts.extend(block.warps.get(warp as usize).into_iter().flatten().map(|(line, n)| (*line, *n)));
        walk.of_warp(&slots::executions(launch.code, &counts, Division::Whole))
    };
    (0..launch.threads.div_ceil(WARP)).map(of).collect()
}

/// Clocks of all warps: those of waiting and of issuing.
fn of_warps(ran: &MultiprocessorRun) -> u64 {
    ran.waits.iter().flatten().sum::<u64>() + ran.issues.iter().sum::<u64>()
}

/// What was waited for, as shares of so many clocks, the largest first.
fn waits(clocks: impl Fn(Wait) -> u64, all: u64) -> Vec<(Wait, f64)> {
    let shares = Wait::ALL.into_iter().map(|w| (w, clocks(w) as f64 / all.max(1) as f64));
    let mut waits: Vec<(Wait, f64)> = shares.filter(|(_, share)| *share > 0.0).collect();
    waits.sort_by(|a, b| b.1.total_cmp(&a.1));
    waits
}

fn by_instruction(ran: &MultiprocessorRun) -> Vec<InstructionWaits> {
    let [of_path, of_warps] = [ran.path.total(), of_warps(ran)].map(|all| all.max(1) as f64);
    let of = |(index, waits): (usize, &[u64; Wait::ALL.len()])| {
        let to_the_end = |w: Wait| ran.path.clocks.get(&(index as u32, Some(w))).copied().unwrap_or_default();
        let most = Wait::ALL.into_iter().max_by_key(|w| (to_the_end(*w), waits[*w as usize]));
        InstructionWaits {
            index,
            path: Wait::ALL.into_iter().map(to_the_end).sum::<u64>() as f64 / of_path,
            warps: waits.iter().sum::<u64>() as f64 / of_warps,
            wait: most.unwrap_or(Wait::Turn),
        }
    };
    let mut all: Vec<InstructionWaits> =
        ran.waits.iter().enumerate().map(of).filter(|i| i.path.max(i.warps) > 0.0).collect();
    all.sort_by(|a, b| b.path.total_cmp(&a.path).then(b.warps.total_cmp(&a.warps)).then(a.index.cmp(&b.index)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::budget::sass;
    use warpsmith_check::{Class, Metrics};

    /// A warp loads 512 bytes a turn, and adds them up.
    const TEXT: &str = r#"
.text.k:
	//## File ".nv_debug_ptx_txt", line 1
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_0:
	//## File ".nv_debug_ptx_txt", line 2
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
	//## File ".nv_debug_ptx_txt", line 3
        /*0020*/                   FADD R8, R8, R4 ;
	//## File ".nv_debug_ptx_txt", line 4
        /*0030*/               @P0 BRA `(.L_x_0) ;
	//## File ".nv_debug_ptx_txt", line 5
        /*0040*/                   EXIT ;
"#;

    fn line(ptx_line: u32, warps: u64, with: impl Fn(&mut Metrics)) -> LineProfile {
        let mut metrics = Metrics::default();
        metrics.warp_instructions = warps;
        with(&mut metrics);
        LineProfile { ptx_line, ptx_text: String::new(), source: Vec::new(), class: Class::Fp32, metrics }
    }

    /// `blocks` blocks of so many warps, each of which takes `turns` turns; `first`: whether what is loaded was not loaded before.
    fn of(blocks: u64, warps: u32, resident: u64, turns: u64, first: bool) -> Timeline {
        let code = sass::read(TEXT, "k").unwrap();
        let all = blocks * u64::from(warps);
        let loads = |m: &mut Metrics| {
            m.global_load_requests = all * turns;
            m.global_load_sectors = 16 * all * turns;
            m.global_load_bytes = 512 * all * turns;
            m.global_first_sectors = if first { 16 * all * turns } else { 16 };
        };
        let of_turns = |n: u32| line(n, all * turns, |_| ());
        let lines = [line(1, all, |_| ()), line(2, all * turns, loads), of_turns(3), of_turns(4), line(5, all, |_| ())];
        let of_warp = lines.iter().map(|l| (l.ptx_line, l.metrics.warp_instructions / all)).collect();
        let block = BlockByWarp { block: 0, warps: vec![of_warp; warps as usize] };
        let by_warp = ByWarp { first: block.clone(), longest: block };
        let (code, lines, threads) = (&code, &lines[..], 32 * warps);
        let launched = Launched { code, lines, by_warp: &by_warp, blocks, threads, resident, programmatic: false };
        Timeline::of(&Gpu::find("h200").unwrap().into(), &launched)
    }

    #[test]
    fn one_warp_waits_for_each_load_and_many_for_what_memory_delivers() {
        // One after the other: 10 ways to memory.
        let alone = of(132, 1, 1, 10, true);
        assert!((4.5..5.2).contains(&alone.us), "{}", alone.us);
        let (wait, share) = alone.path[0];
        assert!(wait == Wait::Memory && share > 0.9, "{wait:?} {share}");
        assert_eq!((alone.instructions[0].index, alone.instructions[0].wait), (2, Wait::Memory));
        // 64 warps: 132 * 64 * 40 * 512 bytes at 4.48 TB/s are 38.6 us.
        let many = of(132, 64, 1, 40, true);
        assert!((38.6..42.0).contains(&many.us), "{}", many.us);
        // Caches are nearer.
        let cached = of(132, 1, 1, 10, false);
        assert!(cached.us < 0.4 * alone.us && cached.path[0].0 == Wait::Cache, "{}", cached.us);
    }

    #[test]
    fn the_fullest_multiprocessor_counts_and_fillings_behind_the_fourth_take_as_long_as_it() {
        let us = |blocks: u64| of(blocks, 4, 1, 10, true).us;
        // Few blocks share what memory delivers among themselves, up to what one gets at most.
        assert!(us(1) == us(35) && us(35) < us(60) && us(60) < us(132), "{} {} {}", us(35), us(60), us(132));
        assert!((us(133) / us(132) - 2.0).abs() < 0.1);
        let (four, five, forty) = (us(4 * 132), us(5 * 132), us(40 * 132));
        assert!((forty - four - 36.0 * (five - four)).abs() < 1e-6 * forty, "{four} {five} {forty}");
        assert!((us(4 * 132) - us(3 * 132) - (five - four)).abs() < 1e-9);
    }

    #[test]
    fn shares_are_of_all_clocks() {
        let all = of(132, 8, 1, 10, true);
        let sum = |of: &mut dyn Iterator<Item = f64>| of.sum::<f64>();
        let of_path = (sum(&mut all.path.iter().map(|w| w.1)), sum(&mut all.instructions.iter().map(|i| i.path)));
        let of_warps = (sum(&mut all.warps.iter().map(|w| w.1)), sum(&mut all.instructions.iter().map(|i| i.warps)));
        for (waited, by_instruction) in [of_path, of_warps] {
            assert!(waited < 1.0 && (waited - by_instruction).abs() < 1e-9, "{waited} {by_instruction}");
        }
    }
}
