//! Issue slots of machine code, weighed by how often the software driver executed the PTX that it is from.
//!
//! A warp instruction is an issue slot of 32 lanes; a kernel that gives each lane a weight at a time takes as many slots a
//! weight as its loop has instructions. How often a block of machine code runs follows from lines of PTX:
//!
//! 1. The driver counted `e` executions of a PTX line by warps, and the assembler made `n` instructions of it that have
//!    one operation. If some stand in loops, only those in the deepest ones count, and if loops of one depth share a line,
//!    those with the most copies: ptxas unrolls a loop and appends the rest of it, which a run of a real shape hardly enters.
//! 2. Each of the `n` then votes for `e / n`, the copies that do not count for 0, and so do instructions as in 3 of lines that
//!    were never executed.
//! 3. A block runs as often as the median vote of its instructions that touch memory, multiply, shuffle or meet a barrier,
//!    which the assembler neither drops nor splits. Without such it is the median vote of all its instructions, but at
//!    least as often as the blocks that lead nowhere but to it, and as those that only it leads to.
//!
//! The hot loop is the smallest one that loads at least the codes of all weights from global memory and takes at least half
//! of the kernel's slots; where there is none, the one that takes most.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::pipes::{ISSUE, Pipe};
use super::sass::Code;
use warpsmith_driver_api::software::LaunchProfile;
use warpsmith_simt::check::LineProfile;

/// What the code of a run costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Slots {
    /// Executions of every block by a warp.
    pub executions: Vec<f64>,
    /// Slots of the whole kernel: instructions of warps.
    pub kernel: f64,
    /// The hot loop, if the kernel has a loop.
    pub hot: Option<Hot>,
}

/// The hot loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Hot {
    /// Index of the loop.
    pub index: usize,
    /// Iterations, of warps.
    pub iterations: f64,
    /// Instructions of warps.
    pub slots: f64,
    /// The same by pipe.
    pub pipes: BTreeMap<Pipe, f64>,
    /// Slots that would take as long to issue as the pipe takes.
    pub pressure: BTreeMap<Pipe, f64>,
    /// Bytes that its loads from global memory gave.
    pub bytes: u64,
    /// Those by loads of less than 16 bytes a lane.
    pub narrow_bytes: u64,
    /// Bytes that a lane asks for in one iteration.
    pub lane_bytes: f64,
    /// Whether its loads give the codes of all weights.
    pub holds_codes: bool,
}

/// Instructions that are neither dropped nor split, whatever the assembler does to the rest.
fn anchors(pipe: Pipe) -> bool {
    !matches!(pipe, Pipe::Alu | Pipe::Imad | Pipe::Control | Pipe::Uniform | Pipe::Convert)
}

fn median(mut votes: Vec<f64>) -> Option<f64> {
    votes.sort_by(f64::total_cmp);
    votes.get(votes.len() / 2).copied()
}

/// Executions of every block.
fn executions(code: &Code, lines: &HashMap<u32, &LineProfile>) -> Vec<f64> {
    // The copies of a line's operation: block of each.
    let mut copies: HashMap<(u32, &str), Vec<usize>> = HashMap::new();
    for (b, block) in code.blocks.iter().enumerate() {
        for i in &code.instructions[block.range.clone()] {
            // In `lines` are those that were executed.
            let never = i.ptx_line != 0 && anchors(Pipe::of(i));
            if never || lines.contains_key(&i.ptx_line) {
                copies.entry((i.ptx_line, i.stem())).or_default().push(b);
            }
        }
    }
    // Of each, where it counts and for how much.
    let mut shares: HashMap<(u32, &str), (Vec<usize>, f64)> = HashMap::new();
    for (key, of) in copies {
        let deepest = of.iter().map(|b| code.depth(*b)).max().unwrap_or(0);
        let mut counted: Vec<usize> = of.into_iter().filter(|b| code.depth(*b) == deepest).collect();
        let in_loop = |b: usize| code.innermost(b);
        let most = |all: &[usize]| {
            let size = |l: Option<usize>| all.iter().filter(|b| in_loop(**b) == l).count();
            all.iter().map(|b| size(in_loop(*b))).max().unwrap_or(0)
        };
        let most = most(&counted);
        let all = counted.clone();
        counted.retain(|b| all.iter().filter(|o| in_loop(**o) == in_loop(*b)).count() == most);
        let executed = lines.get(&key.0).map_or(0, |l| l.metrics.warp_instructions) as f64;
        let share = executed / counted.len().max(1) as f64;
        shares.insert(key, (counted, share));
    }
    let vote = |b: usize, line: u32, stem: &str| {
        shares.get(&(line, stem)).map(|(counted, share)| if counted.contains(&b) { *share } else { 0.0 })
    };
    let (mut known, mut found) = (Vec::new(), Vec::new());
    for (b, block) in code.blocks.iter().enumerate() {
        let all = &code.instructions[block.range.clone()];
        let votes = |only: fn(Pipe) -> bool| -> Vec<f64> {
            let chosen = all.iter().filter(|i| only(Pipe::of(i)));
            chosen.filter_map(|i| vote(b, i.ptx_line, i.stem())).collect()
        };
        let sure = median(votes(anchors));
        known.push(sure.is_some());
        found.push(sure.or_else(|| median(votes(|_| true))).unwrap_or(0.0));
    }
    // What runs before nothing else, and after nothing else, as often as that.
    let before: Vec<Vec<usize>> =
        (0..found.len()).map(|b| (0..found.len()).filter(|p| code.blocks[*p].next.contains(&b)).collect()).collect();
    for _ in 0..4 {
        for b in (0..found.len()).filter(|b| !known[*b]) {
            let next = &code.blocks[b].next;
            let after: f64 = next.iter().filter(|s| before[**s] == [b]).map(|s| found[*s]).sum();
            let only = |p: &&usize| code.blocks[**p].next == [b] && !code.blocks[**p].leaves;
            let into: f64 = before[b].iter().filter(only).map(|p| found[*p]).sum();
            found[b] = found[b].max(after).max(into);
        }
    }
    found
}

/// Weighs the code by a run that went over `code_bytes` bytes of weight codes.
pub fn weigh(code: &Code, profile: &[LineProfile], code_bytes: u64) -> Slots {
    let lines: HashMap<u32, &LineProfile> = profile.iter().map(|l| (l.ptx_line, l)).collect();
    let executions = executions(code, &lines);
    let slots =
        |blocks: &[usize]| -> f64 { blocks.iter().map(|b| executions[*b] * code.blocks[*b].range.len() as f64).sum() };
    let kernel = slots(&(0..code.blocks.len()).collect::<Vec<_>>());
    // Bytes that loads in these blocks gave: all of them, those of less than 16 bytes.
    let loaded = |blocks: &[usize]| {
        let mut seen: BTreeMap<u32, (u64, bool)> = BTreeMap::new();
        for (b, i) in code.of(blocks).filter(|(_, i)| i.is_global_load()) {
            if let Some(line) = lines.get(&i.ptx_line).filter(|_| executions[b] > 0.0) {
                let bulk = matches!(i.stem(), "UBLKCP" | "UTMALDG");
                let bytes = line.metrics.global_load_bytes + line.metrics.global_copy_bytes;
                seen.insert(i.ptx_line, (bytes, i.width() < 16 && !bulk));
            }
        }
        let all: u64 = seen.values().map(|v| v.0).sum();
        (all, seen.values().filter(|v| v.1).map(|v| v.0).sum::<u64>())
    };
    let candidates: Vec<usize> = (0..code.loops.len()).filter(|l| slots(&code.loops[*l].blocks) > 0.0).collect();
    let of = |l: &usize| &code.loops[*l].blocks[..];
    let holds = |l: &usize| loaded(of(l)).0 >= code_bytes;
    let full = candidates.iter().filter(|l| holds(l) && slots(of(l)) >= kernel / 2.0);
    let size = |l: &usize| code.of(of(l)).count();
    let hot = full
        .min_by_key(|l| size(l))
        .or_else(|| candidates.iter().max_by(|a, b| slots(of(a)).total_cmp(&slots(of(b))).then(size(b).cmp(&size(a)))));
    let hot = hot.map(|&index| {
        let blocks = &code.loops[index].blocks;
        let iterations = executions[code.loops[index].head];
        let (mut pipes, mut pressure) = (BTreeMap::new(), BTreeMap::new());
        let mut lane_bytes = 0.0;
        for (b, i) in code.of(blocks) {
            *pipes.entry(Pipe::of(i)).or_insert(0.0) += executions[b];
            *pressure.entry(Pipe::of(i)).or_insert(0.0) += executions[b] * ISSUE / Pipe::rate(i);
            if i.is_global_load() && iterations > 0.0 {
                lane_bytes += f64::from(i.width()) * executions[b] / iterations;
            }
        }
        // A pass of shared memory takes a clock, in which four warps could have issued.
        let touching: BTreeSet<u32> = code.of(blocks).map(|(_, i)| i.ptx_line).collect();
        let passes: u64 = touching.iter().filter_map(|l| lines.get(l)).map(|l| l.metrics.shared_wavefronts()).sum();
        if passes > 0 {
            let busy = pressure.entry(Pipe::Shared).or_insert(0.0);
            *busy = busy.max(4.0 * passes as f64);
        }
        let (bytes, narrow_bytes) = loaded(blocks);
        let holds_codes = bytes >= code_bytes;
        Hot { index, iterations, slots: slots(blocks), pipes, pressure, bytes, narrow_bytes, lane_bytes, holds_codes }
    });
    Slots { executions, kernel, hot }
}

impl Slots {
    /// Bytes that a multiprocessor that is full of this launch has on the way if each lane waits for the loads of one
    /// iteration.
    pub fn in_flight(&self, launch: &LaunchProfile) -> Option<f64> {
        let threads: u32 = launch.launch.block.iter().product();
        let blocks = launch.occupancy()?.blocks();
        Some(self.hot.as_ref()?.lane_bytes * f64::from(threads) * f64::from(blocks))
    }
}

impl Hot {
    /// What binds the loop: the pipe that takes longer than issuing does, else the issue slots.
    pub fn binding(&self) -> Binding {
        let most = |all: &BTreeMap<Pipe, f64>| all.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(p, n)| (*p, *n));
        match (most(&self.pressure), most(&self.pipes)) {
            (Some((pipe, pressure)), _) if pressure > self.slots * 1.001 => {
                Binding { pipe, slots: pressure, issue: false }
            }
            (_, Some((pipe, slots))) => Binding { pipe, slots, issue: true },
            _ => Binding { pipe: Pipe::Control, slots: 0.0, issue: true },
        }
    }
}

/// What limits a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binding {
    /// The class of instructions with the most slots, or the pipe that is longest busy.
    pub pipe: Pipe,
    /// Its slots, or the slots that issue while it is busy.
    pub slots: f64,
    /// Whether issuing binds, not the pipe.
    pub issue: bool,
}
