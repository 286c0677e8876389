//! Time of a launch on a GPU, without one: what the launch asks for over what the GPU's data sheet gives. `tune`, `project` and
//! `profile` project by it; nothing of it is a measurement.
//!
//! ```text
//! launch  = edge + waits + max(memory, issue, pipe, latency)
//! edge    = 1.31 us from a launch to the next that depends on it, as nodes of a graph; 0.66 us if it is programmatic
//! waits   = 1.10 us a barrier of the grid; 0.65 us for each way to memory that follows another one
//! memory  = DRAM bytes / (0.933 of the data sheet's bandwidth)
//! issue   = blocks of the fullest multiprocessor * instructions of their warps / (4 a clock)
//! pipe    = the same, with the slots that issue while the busiest pipe works
//! latency = waves of resident blocks * rounds of loads of a block, one after the other * 0.65 us, or 0.2 us where L2 has the bytes
//! ```
//!
//! Where the machine code of sm_90 is there, `project` has in place of that latency the [timeline] of a multiprocessor.
//!
//! A launch of several phases, with barriers of the grid between them, is the sum of its phases: in each of them the slowest of the four
//! counts, and its own ways to memory. That weights are asked for before a barrier counts for nothing.
//!
//! What a step has written itself comes from L2. A block of a product counts its outputs by an atomic
//! and the last one of a group reads them again: two ways to memory, one after the other, in every kernel that has such atomics. A timeline
//! has them in it.

pub mod counted;
pub mod figures;
pub mod timeline;

use warpsmith_arch::{Gpu, PARTITIONS};

use figures::Figures;

/// From a launch to one that depends on it, in microseconds, in a graph on an H200 (gpu-benches, small kernels): with it a way
/// to L2 and back.
pub const EDGE: f64 = 1.31;
/// Of a load from memory, in microseconds.
pub const LATENCY: f64 = 0.65;
/// Of a load that L2 serves, in microseconds, as others measured on an H100: 0.14 to 0.2 from near to far.
pub const CACHED: f64 = 0.2;
/// Of an [`EDGE`] if the launch is programmatic: its blocks are there and have asked for weights when the launch before ends, so
/// one latency is off the way. Assumed.
pub const PROGRAMMATIC: f64 = EDGE - LATENCY;
/// Share of a data sheet's bandwidth that a stream of reads reaches (BabelStream Dot on an H200: 4.48 of 4.8 TB/s).
pub const READS: f64 = 0.933;

/// Share of a launch's time from which on one thing is what takes it.
const MOST: f64 = 0.9;

/// What a launch asks of a GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Blocks of its grid.
    pub blocks: f64,
    /// Blocks that a multiprocessor holds at once.
    pub resident: f64,
    /// Bytes of memory, without those that caches have.
    pub dram: f64,
    /// Bytes that come from L2, as the step wrote them.
    pub cached: f64,
    /// Bytes that a block has on the way while its warps wait; 0: not known.
    pub in_flight: f64,
    /// Instructions of warps.
    pub issue: f64,
    /// Slots that issue while the busiest pipe works.
    pub pipe: f64,
    /// Ways to memory that follow one another, beside those of the loops.
    pub trips: f64,
    /// Barriers of the grid.
    pub barriers: f64,
    /// Microseconds of the fullest multiprocessor by its [timeline], where that is known.
    pub timeline: Option<f64>,
}

/// What is longest of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bound {
    /// The bandwidth of memory.
    Memory,
    /// The rate at which instructions issue.
    Issue,
    /// A pipe that is busy for longer than issuing takes.
    Pipe,
    /// Waiting: for memory, as too few bytes are on the way, or by the [timeline] for whatever else.
    Latency,
    /// The way from launch to launch, and from barrier to barrier.
    Edges,
}

impl Bound {
    /// As reports have it.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Memory => "memory",
            Bound::Issue => "issue",
            Bound::Pipe => "pipe",
            Bound::Latency => "latency",
            Bound::Edges => "edges",
        }
    }
}

/// Time of a launch, by what takes it, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Time {
    /// From the launch before, and between barriers.
    pub edges: f64,
    pub memory: f64,
    pub issue: f64,
    pub pipe: f64,
    pub latency: f64,
    /// Of a launch of several phases, of which each waits for the one before: the sum of what is longest in each, and the other fields
    /// are sums too.
    pub phases: Option<f64>,
}

/// Bytes that memory delivers in a microsecond.
pub fn read_rate(gpu: &Gpu) -> f64 {
    gpu.bandwidth * 1e3 * READS
}

impl Demand {
    /// Blocks on the fullest multiprocessor, one after the other or at once.
    pub fn fullest(&self, gpu: &Gpu) -> f64 {
        (self.blocks / f64::from(gpu.multiprocessors)).ceil().max(1.0)
    }

    /// Microseconds of the ways to memory, unless warps are followed: those of the last block are in that.
    fn ways(&self) -> f64 {
        if self.timeline.is_some() { 0.0 } else { LATENCY * self.trips }
    }

    /// How often the multiprocessors are filled with blocks.
    pub fn waves(&self, gpu: &Gpu) -> f64 {
        (self.blocks / (self.resident.max(1.0) * f64::from(gpu.multiprocessors))).ceil().max(1.0)
    }

    /// Bytes of memory on the way to a multiprocessor, over all of them, while as many blocks are there as fit.
    pub fn on_the_way(&self, gpu: &Gpu) -> f64 {
        let multiprocessors = f64::from(gpu.multiprocessors);
        self.in_flight * self.blocks.min(self.resident * multiprocessors) / multiprocessors
    }

    /// Microseconds in which the fullest multiprocessor issues its share of so many slots.
    pub fn issuing(&self, gpu: &Gpu, slots: f64) -> f64 {
        let each = slots / self.blocks.max(1.0);
        each * self.fullest(gpu) / f64::from(PARTITIONS) / f64::from(gpu.clock_mhz)
    }

    /// Time of the launch behind one that it depends on.
    pub fn time(&self, figures: &Figures, programmatic: bool) -> Time {
        let gpu = figures.gpu;
        let edge = if programmatic { PROGRAMMATIC } else { EDGE };
        let each = |bytes: f64| bytes / self.blocks.max(1.0) / self.in_flight;
        let waiting = || match self.in_flight {
            known if known > 0.0 => (each(self.dram) * LATENCY + each(self.cached) * CACHED).max(LATENCY),
            _ => 0.0,
        };
        Time {
            edges: edge + figures.barrier * self.barriers + self.ways(),
            memory: self.dram / read_rate(gpu),
            issue: self.issuing(gpu, self.issue),
            pipe: self.issuing(gpu, self.pipe),
            latency: self.timeline.unwrap_or_else(|| self.waves(gpu) * waiting()),
            phases: None,
        }
    }

    /// Time of the launch as a phase of another, behind a barrier.
    pub fn time_of_phase(&self, figures: &Figures) -> Time {
        Time { edges: figures.barrier + self.ways(), ..self.time(figures, false) }
    }
}

impl Time {
    /// Of a launch with so many barriers, in which there are so many phases of each kind.
    pub fn of_phases(figures: &Figures, barriers: f64, phases: impl IntoIterator<Item = (f64, Time)>) -> Time {
        let mut sum = Time { edges: EDGE + figures.barrier * barriers, phases: Some(0.0), ..Time::default() };
        for (n, phase) in phases {
            sum.edges += n * (phase.edges - figures.barrier);
            sum.memory += n * phase.memory;
            sum.issue += n * phase.issue;
            sum.pipe += n * phase.pipe;
            sum.latency += n * phase.latency;
            sum.phases = sum.phases.map(|all| all + n * phase.work().1);
        }
        sum
    }
}

impl Time {
    /// What passes beside the edges, and what of it is longest.
    fn work(&self) -> (Bound, f64) {
        let all = [
            (Bound::Issue, self.issue),
            // A pipe binds where it takes longer than issuing.
            (Bound::Pipe, if self.pipe > 1.001 * self.issue { self.pipe } else { 0.0 }),
            (Bound::Latency, self.latency),
            (Bound::Memory, self.memory),
        ];
        let (mut bound, longest) = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((Bound::Memory, 0.0));
        if bound == Bound::Latency {
            // A timeline has the others in it: what is most of it binds.
            let most = all.into_iter().filter(|(of, t)| *of != Bound::Latency && *t >= MOST * longest);
            bound = most.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(bound, |(of, _)| of);
        }
        (bound, self.phases.unwrap_or(longest))
    }

    /// All of it.
    pub fn total(&self) -> f64 {
        self.edges + self.work().1
    }

    /// What takes most of it.
    pub fn bound(&self) -> Bound {
        let (bound, longest) = self.work();
        if self.edges > longest { Bound::Edges } else { bound }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::profile::gpus;

    fn h200() -> Figures {
        gpus::find("h200").unwrap().into()
    }

    /// Four blocks of 9 KiB on the way fit on a multiprocessor; each reads 36 KiB in four rounds.
    fn product(blocks: f64) -> Demand {
        let bytes = 36.0 * 1024.0;
        Demand { blocks, resident: 4.0, dram: blocks * bytes, in_flight: bytes / 4.0, ..Demand::default() }
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-3 * b.abs().max(1e-3), "{a} {b}");
    }

    #[test]
    fn a_wave_waits_for_its_rounds_one_after_the_other() {
        // 132 multiprocessors hold 528 blocks: 4 rounds of 0.65 us, and again with one block more.
        close(product(528.0).time(&h200(), false).latency, 2.6);
        close(product(529.0).time(&h200(), false).latency, 5.2);
        // 528 * 36864 bytes at 4.8 * 0.933 TB/s.
        let time = product(528.0).time(&h200(), false);
        close(time.memory, 4.3463);
        assert_eq!(time.bound(), Bound::Memory);
        close(time.total(), 1.31 + 4.3463);
        // A block for each: 2.6 us for what memory delivers in 1.09.
        let time = product(132.0).time(&h200(), false);
        assert_eq!(time.bound(), Bound::Latency);
        close(time.total(), 1.31 + 2.6);
    }

    #[test]
    fn a_block_waits_once_at_least_and_unknown_bytes_on_the_way_are_no_bound() {
        let all = Demand { in_flight: 1e6, ..product(132.0) };
        close(all.time(&h200(), false).latency, 0.65);
        // One block that reads 400 KiB of L2, 4 at a time.
        let of_cache = Demand { blocks: 1.0, dram: 0.0, cached: 409_600.0, in_flight: 4096.0, ..product(1.0) };
        close(of_cache.time(&h200(), false).latency, 20.0);
        assert_eq!(Demand { in_flight: 0.0, ..product(132.0) }.time(&h200(), false).latency, 0.0);
    }

    #[test]
    fn the_fullest_multiprocessor_issues_longest() {
        // 7920 slots a block are a microsecond: 4 a clock at 1980 MHz.
        let of = |blocks: f64| Demand { blocks, issue: 7920.0 * blocks, ..product(blocks) }.time(&h200(), false).issue;
        close(of(1.0), 1.0);
        close(of(132.0), 1.0);
        close(of(133.0), 2.0);
        close(of(1320.0), 10.0);
    }

    #[test]
    fn a_pipe_binds_where_it_takes_longer_than_issuing() {
        let of = |pipe: f64| Demand { issue: 132.0 * 79_200.0, pipe, ..product(132.0) }.time(&h200(), false);
        assert_eq!(of(132.0 * 79_200.0).bound(), Bound::Issue);
        let time = of(2.0 * 132.0 * 79_200.0);
        assert_eq!(time.bound(), Bound::Pipe);
        close(time.total(), 1.31 + 20.0);
    }

    #[test]
    fn edges_are_what_lies_between_launches_and_barriers() {
        let small = Demand { blocks: 1.0, resident: 1.0, trips: 2.0, ..Demand::default() };
        let time = small.time(&h200(), false);
        close(time.total(), 1.31 + 1.30);
        assert_eq!(time.bound(), Bound::Edges);
        close(small.time(&h200(), true).total(), 0.66 + 1.30);
        close(Demand { barriers: 4.0, trips: 0.0, ..small }.time(&h200(), false).total(), 1.31 + 4.4);
        // Warps that are followed have the ways to memory behind them.
        close(Demand { timeline: Some(2.0), ..small }.time(&h200(), false).total(), 1.31 + 2.0);
    }

    #[test]
    fn phases_take_each_as_long_as_what_is_slowest_in_it() {
        // One is bound by memory (4.35 us), one by issue (10 us) and two ways to memory: a launch would overlap them.
        let issuing = Demand { issue: 132.0 * 79_200.0, dram: 0.0, trips: 2.0, ..product(132.0) };
        let phases = [(3.0, product(528.0).time_of_phase(&h200())), (2.0, issuing.time_of_phase(&h200()))];
        close(phases[0].1.total(), 1.10 + 4.3463);
        let all = Time::of_phases(&h200(), 4.0, phases);
        close(all.total(), 1.31 + 4.0 * 1.10 + 2.0 * 1.30 + 3.0 * 4.3463 + 2.0 * 10.0);
        close(all.memory, 3.0 * 4.3463);
        assert_eq!(all.bound(), Bound::Issue);
    }

    #[test]
    fn bytes_on_the_way_are_those_of_the_blocks_that_are_there() {
        // 66 blocks of 9 KiB among 132; 528 of them; no more however many there are.
        close(product(66.0).on_the_way(h200().gpu), 4.5 * 1024.0);
        close(product(528.0).on_the_way(h200().gpu), 36.0 * 1024.0);
        close(product(5280.0).on_the_way(h200().gpu), 36.0 * 1024.0);
    }
}
