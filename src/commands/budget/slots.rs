//! Issue slots of machine code, weighed by how often the software driver executed the PTX that it is from.
//!
//! A warp instruction is an issue slot of 32 lanes; a kernel that gives each lane a weight at a time takes as many slots a
//! weight as its loop has instructions. How often a block of machine code runs follows from lines of PTX:
//!
//! 1. The driver counted `e` executions of a PTX line by warps, and the assembler made `n` instructions of it that have
//!    one operation. If some stand in loops, only those in the deepest ones count, and if loops of one depth share a line,
//!    those with the most copies: ptxas unrolls a loop and appends the rest of it, which a run of a real shape hardly enters.
//! 2. Each of the `n` then votes for `e / n`, the copies that do not count for 0, and so do instructions as in 3 of lines that
//!    were never executed. Where lanes of a divided warp would be gathered before a shuffle, nothing runs.
//! 3. A block runs as often as the median vote of its instructions that touch memory, multiply, shuffle or meet a barrier,
//!    which the assembler neither drops nor splits. Without such it is the median vote of all its instructions, but at
//!    least as often as the blocks that lead nowhere but to it, and as those that only it leads to.
//!
//! A figure for each weight is that of all loops that ran: work that is split over several costs what they cost together. The
//! hot loop, which is shown, is the smallest one that loads at least the codes of all weights and takes at least half of the
//! kernel's slots; where there is none, the one that takes most.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::pipes::{ISSUE, Pipe};
use super::sass::Code;
use warpsmith_arch::{SECTOR, WARP};
use warpsmith_check::LineProfile;

/// What the code of a run costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Slots {
    /// Executions of every block by a warp.
    pub executions: Vec<f64>,
    /// Slots of the whole kernel: instructions of warps.
    pub kernel: f64,
    /// All loops together, if any ran.
    pub loops: Option<Work>,
    /// The hot loop, if any ran.
    pub hot: Option<Hot>,
    /// Bytes of memory that a warp asks for before it waits for them; 0: it asks for none.
    pub round: f64,
}

/// Work of blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
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
    /// Whether its loads give the codes of all weights.
    pub holds_codes: bool,
}

/// The hot loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Hot {
    /// Index of the loop.
    pub index: usize,
    /// Iterations, of warps.
    pub iterations: f64,
    /// What it does.
    pub work: Work,
}

/// Instructions that are neither dropped nor split, whatever the assembler does to the rest.
fn anchors(pipe: Pipe) -> bool {
    !matches!(pipe, Pipe::Alu | Pipe::Imad | Pipe::Control | Pipe::Uniform | Pipe::Convert)
}

fn median(mut votes: Vec<f64>) -> Option<f64> {
    votes.sort_by(f64::total_cmp);
    votes.get(votes.len() / 2).copied()
}

/// How the executions of a line are divided among its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// In equal parts: of many warps, some take one copy and some another.
    Even,
    /// In whole numbers, the first copies more: a warp that executes a line once takes one copy.
    Whole,
}

/// Executions of every block, where lines of PTX were executed so many times by warps. A line without a number was never executed.
pub fn executions(code: &Code, lines: &HashMap<u32, u64>, division: Division) -> Vec<f64> {
    // The copies of a line's operation: block of each.
    let mut copies: HashMap<(u32, &str), Vec<usize>> = HashMap::new();
    for (b, block) in code.blocks.iter().enumerate().filter(|(b, _)| !code.is_divided(*b)) {
        for i in &code.instructions[block.range.clone()] {
            // In `lines` are those that were executed.
            let never = i.ptx_line != 0 && anchors(Pipe::of(i));
            if never || lines.contains_key(&i.ptx_line) {
                copies.entry((i.ptx_line, i.stem())).or_default().push(b);
            }
        }
    }
    // Of each, how much every copy counts that does, by its block: of several in one the first.
    let mut shares: HashMap<(u32, &str), HashMap<usize, f64>> = HashMap::new();
    for (key, of) in copies {
        let deepest = of.iter().map(|b| code.depth(*b)).max().unwrap_or(0);
        let mut counted: Vec<usize> = of.into_iter().filter(|b| code.depth(*b) == deepest).collect();
        // Of the loops that have most of them.
        let mut in_loop: HashMap<Option<usize>, usize> = HashMap::new();
        counted.iter().for_each(|b| *in_loop.entry(code.innermost(*b)).or_default() += 1);
        let most = in_loop.values().copied().max().unwrap_or(0);
        counted.retain(|b| in_loop[&code.innermost(*b)] == most);
        let (executed, n) = (lines.get(&key.0).copied().unwrap_or_default(), counted.len().max(1) as u64);
        let share = |copy: usize| match division {
            Division::Even => executed as f64 / n as f64,
            Division::Whole => (executed / n + u64::from((copy as u64) < executed % n)) as f64,
        };
        let mut of_blocks = HashMap::new();
        for (copy, b) in counted.into_iter().enumerate() {
            of_blocks.entry(b).or_insert_with(|| share(copy));
        }
        shares.insert(key, of_blocks);
    }
    let vote = |b: usize, line: u32, stem: &str| {
        shares.get(&(line, stem)).map(|of_blocks| of_blocks.get(&b).copied().unwrap_or_default())
    };
    let (mut known, mut found) = (Vec::new(), Vec::new());
    for (b, block) in code.blocks.iter().enumerate() {
        let all = &code.instructions[block.range.clone()];
        let votes = |only: fn(Pipe) -> bool| -> Vec<f64> {
            let chosen = all.iter().filter(|i| only(Pipe::of(i)));
            chosen.filter_map(|i| vote(b, i.ptx_line, i.stem())).collect()
        };
        let sure = if code.is_divided(b) { Some(0.0) } else { median(votes(anchors)) };
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

/// Lines of PTX that ran, by number.
type LineCounts<'a> = HashMap<u32, &'a LineProfile>;

/// Weighs the code by a run that went over `code_bytes` bytes of weight codes.
pub fn weigh(code: &Code, profile: &[LineProfile], code_bytes: u64) -> Slots {
    let lines: LineCounts<'_> = profile.iter().map(|l| (l.ptx_line, l)).collect();
    let executed = profile.iter().map(|l| (l.ptx_line, l.metrics.warp_instructions)).collect();
    let executions = executions(code, &executed, Division::Even);
    let slots =
        |blocks: &[usize]| -> f64 { blocks.iter().map(|b| executions[*b] * code.blocks[*b].range.len() as f64).sum() };
    let all: Vec<usize> = (0..code.blocks.len()).collect();
    let kernel = slots(&all);
    let candidates: Vec<usize> = (0..code.loops.len()).filter(|l| slots(&code.loops[*l].blocks) > 0.0).collect();
    let of = |l: &usize| &code.loops[*l].blocks[..];
    let holds = |l: &usize| loaded(code, &lines, &executions, of(l)).0 >= code_bytes;
    let full = candidates.iter().filter(|l| holds(l) && slots(of(l)) >= kernel / 2.0);
    let size = |l: &usize| code.of(of(l)).count();
    let hot = full
        .min_by_key(|l| size(l))
        .or_else(|| candidates.iter().max_by(|a, b| slots(of(a)).total_cmp(&slots(of(b))).then(size(b).cmp(&size(a)))));
    let weighed = |blocks: &[usize]| work(code, &lines, &executions, blocks, code_bytes);
    let hot = hot.map(|&index| {
        let iterations = executions[code.loops[index].head];
        Hot { index, iterations, work: weighed(&code.loops[index].blocks) }
    });
    let looped: Vec<usize> = all.into_iter().filter(|b| executions[*b] > 0.0 && code.depth(*b) > 0).collect();
    let loops = (!looped.is_empty()).then(|| weighed(&looped));
    let round = round(code, &lines, &executions);
    Slots { executions, kernel, loops, hot, round }
}

/// Bytes that loads in these blocks gave: all of them, and those of less than 16 bytes.
fn loaded(code: &Code, lines: &LineCounts<'_>, executions: &[f64], blocks: &[usize]) -> (u64, u64) {
    let mut seen: BTreeMap<u32, (u64, bool)> = BTreeMap::new();
    for (b, i) in code.of(blocks).filter(|(_, i)| i.is_global_load()) {
        if let Some(line) = lines.get(&i.ptx_line).filter(|_| executions[b] > 0.0) {
            let bulk = matches!(i.stem(), "UBLKCP" | "UTMALDG");
            let bytes = line.metrics.global_load_bytes + line.metrics.global_copy_bytes;
            seen.insert(i.ptx_line, (bytes, i.width() < 16 && !bulk));
        }
    }
    let all: u64 = seen.values().map(|v| v.0).sum();
    (all, seen.values().filter(|v| v.1).map(|v| v.0).sum())
}

fn work(code: &Code, lines: &LineCounts<'_>, executions: &[f64], blocks: &[usize], code_bytes: u64) -> Work {
    let (mut slots, mut pipes, mut pressure) = (0.0, BTreeMap::new(), BTreeMap::new());
    for (b, i) in code.of(blocks) {
        slots += executions[b];
        *pipes.entry(Pipe::of(i)).or_insert(0.0) += executions[b];
        let wavefronts = lines.get(&i.ptx_line).filter(|_| Pipe::of(i) == Pipe::Global).map_or(1.0, |l| wavefronts(l));
        *pressure.entry(Pipe::of(i)).or_insert(0.0) += executions[b] * wavefronts * ISSUE / Pipe::rate(i);
    }
    // A pass of shared memory takes a clock, in which four warps could have issued.
    let touching: BTreeSet<u32> = code.of(blocks).map(|(_, i)| i.ptx_line).collect();
    let passes: u64 = touching.iter().filter_map(|l| lines.get(l)).map(|l| l.metrics.shared_wavefronts()).sum();
    if passes > 0 {
        let busy = pressure.entry(Pipe::Shared).or_insert(0.0);
        *busy = busy.max(4.0 * passes as f64);
    }
    let (bytes, narrow_bytes) = loaded(code, lines, executions, blocks);
    Work { slots, pipes, pressure, bytes, narrow_bytes, holds_codes: bytes >= code_bytes }
}

/// Clocks of the first cache for a request of a line: it takes one request a clock, however narrow, and gives four sectors.
pub fn wavefronts(line: &LineProfile) -> f64 {
    let m = &line.metrics;
    let requests = m.global_load_requests + m.global_copy_requests + m.global_store_requests;
    let sectors = m.global_load_sectors + m.global_copy_sectors + m.global_store_sectors;
    if requests == 0 { 1.0 } else { (sectors as f64 / requests as f64 / 4.0).max(1.0) }
}

/// Bytes of memory that a warp has on the way when it waits: those of one iteration, which is the mean of the loops that read
/// memory, each as long as it takes part. A load whose bytes were mostly asked for before is served by a cache. Where less than
/// half of what is read is read in loops, what is read outside of them is asked for in one round more.
fn round(code: &Code, lines: &LineCounts<'_>, executions: &[f64]) -> f64 {
    let mut copies: HashMap<u32, f64> = HashMap::new();
    let all = || code.blocks.iter().enumerate().flat_map(|(b, block)| block.range.clone().map(move |i| (b, i)));
    let loads = || all().filter(|(_, i)| code.instructions[*i].is_global_load());
    loads().for_each(|(b, i)| *copies.entry(code.instructions[i].ptx_line).or_default() += executions[b]);
    let mut read: BTreeMap<Option<usize>, f64> = BTreeMap::new();
    for (b, i) in loads() {
        let line = code.instructions[i].ptx_line;
        let (Some(profile), Some(copies)) = (lines.get(&line), copies.get(&line).filter(|n| **n > 0.0)) else {
            continue;
        };
        let asked = profile.metrics.global_load_bytes + profile.metrics.global_copy_bytes;
        let bytes = u64::from(SECTOR) * profile.metrics.global_first_sectors;
        if 2 * bytes >= asked {
            *read.entry(code.innermost(b)).or_default() += bytes as f64 * executions[b] / copies;
        }
    }
    let straight = read.remove(&None).unwrap_or(0.0);
    read.retain(|_, bytes| *bytes > 0.0);
    let mut bytes: f64 = read.values().sum();
    let mut rounds: f64 = read.keys().flatten().map(|l| executions[code.loops[*l].head]).sum();
    if straight > bytes {
        bytes += straight;
        rounds += executions.first().copied().unwrap_or(0.0);
    }
    if rounds > 0.0 { bytes / rounds } else { 0.0 }
}

impl Slots {
    /// Bytes of memory that a block of so many threads has on the way if each of its warps waits for one iteration's.
    pub fn block_in_flight(&self, threads: u32) -> f64 {
        self.round * f64::from(threads.div_ceil(WARP))
    }
}

impl Work {
    /// What binds: the pipe that takes longer than issuing does, else the issue slots.
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

    /// Slots that pass until it is done: those that it issues, or while the busiest pipe works if that takes longer.
    pub fn time(&self) -> f64 {
        self.pressure.values().fold(self.slots, |most, p| most.max(*p))
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
