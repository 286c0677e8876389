//! A multiprocessor, clock by clock: four schedulers, each of which issues an instruction of one of its warps a clock, pipes behind them,
//! and memory that delivers what its share is.

use std::collections::HashMap;

use super::operands::{REGISTERS, Register};

/// What an instruction waits for, or what issues it late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wait {
    /// A load from memory.
    Memory,
    /// A load that L2 or the first cache serves, an atomic, a fence.
    Cache,
    /// Shared memory and shuffles.
    Shared,
    /// The result of arithmetic.
    Arithmetic,
    /// A pipe that is busy.
    Pipe,
    /// The other warps of the block.
    Barrier,
    /// Its own code.
    Code,
    /// The launch before.
    Before,
    /// That the scheduler issues for another warp.
    Turn,
}

impl Wait {
    /// All of them.
    pub const ALL: [Wait; 9] = [
        Wait::Memory,
        Wait::Cache,
        Wait::Shared,
        Wait::Arithmetic,
        Wait::Pipe,
        Wait::Barrier,
        Wait::Code,
        Wait::Before,
        Wait::Turn,
    ];

    /// As reports have it.
    pub fn name(self) -> &'static str {
        match self {
            Wait::Memory => "memory",
            Wait::Cache => "cache",
            Wait::Shared => "shared",
            Wait::Arithmetic => "arithmetic",
            Wait::Pipe => "pipe",
            Wait::Barrier => "barrier",
            Wait::Code => "code",
            Wait::Before => "launch before",
            Wait::Turn => "turn",
        }
    }
}

/// What an instruction does beside issuing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Its results are there after so many clocks.
    Result(u64, Wait),
    /// A load: of memory, so many bytes; of caches; into registers, or into shared memory, which a group of copies waits for.
    /// A load of which a warp executes the first `times` for each of its executions: behind them its guard does not hold.
    Load { memory: f64, cached: f64, copies: bool, share: f64 },
    /// Asks for bytes of memory ahead.
    Ask(f64),
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

/// An instruction, as a multiprocessor sees it.
#[derive(Clone, Debug)]
pub struct Operation {
    pub reads: Vec<Register>,
    pub writes: Vec<Register>,
    /// The pipe behind the scheduler, or behind all four of them.
    pub pipe: usize,
    /// Clocks for which it has the pipe.
    pub busy: f64,
    pub effect: Effect,
    /// Line of the instruction cache.
    pub line: u32,
}

/// Pipes that all schedulers share come behind those of each.
pub const SHARED_PIPES: usize = 16;
/// Of both kinds.
pub const PIPES: usize = 2 * SHARED_PIPES;
/// Clocks from the last warp at a barrier to the first instruction behind it.
const BARRIER: u64 = 12;

/// What a multiprocessor takes for what, in clocks and bytes a clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clocks {
    /// From a load to its result: from memory, from L2, from the first cache.
    pub memory: f64,
    pub l2: f64,
    pub l1: f64,
    /// Bytes a clock that memory and L2 deliver to it.
    pub memory_rate: f64,
    pub l2_rate: f64,
    /// Until code comes that is not there, and until the lines behind it do.
    pub code: u64,
    pub next_code: u64,
    /// Lines that are asked for at once.
    pub code_ahead: u32,
    /// From the end of a block to the first instruction of the next.
    pub block: u64,
    /// When the launch before has ended.
    pub before: u64,
}

/// A launch, as one multiprocessor sees it.
pub struct MultiprocessorWork<'a> {
    pub operations: &'a [Operation],
    /// Of each warp of a block.
    pub warps: &'a [Vec<u32>],
    pub blocks: u64,
    pub resident: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct MultiprocessorRun {
    pub clocks: u64,
    /// Clocks of warps, by instruction: issues, and what was waited for.
    pub waits: Vec<[u64; Wait::ALL.len()]>,
    pub issues: Vec<u64>,
}

struct Warp {
    /// Of the resident blocks.
    block: usize,
    trace: usize,
    at: usize,
    ready: u64,
    /// Since when it waits.
    since: u64,
    wait: Wait,
    /// Its pipe was busy when it was ready.
    late: Wait,
    registers: Box<[(u64, Wait); REGISTERS]>,
    /// How often it has executed each instruction.
    times: Vec<u32>,
    copies: Vec<u64>,
    open: u64,
    stored: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Runs,
    AtBarrier,
    Ended,
}

#[derive(Clone, Default)]
struct ResidentBlock {
    live: usize,
    arrived: usize,
    /// Bytes that were asked for ahead, and when they are there.
    asked: f64,
    asked_until: u64,
}

struct Multiprocessor<'a> {
    work: &'a MultiprocessorWork<'a>,
    clocks: &'a Clocks,
    now: u64,
    warps: Vec<Warp>,
    blocks: Vec<ResidentBlock>,
    started: u64,
    ended: u64,
    pipes: Vec<[f64; PIPES]>,
    memory_at: f64,
    l2_at: f64,
    /// When what several warps read is in the first cache: what an instruction reads that a warp executes for the so manieth time.
    cache: HashMap<(usize, u32), f64>,
    /// When each line of code is there.
    code: Vec<u64>,
    /// How often the warps of a block execute each instruction.
    totals: Vec<Vec<u32>>,
    ran: MultiprocessorRun,
}

/// Runs it.
pub fn run(work: &MultiprocessorWork<'_>, clocks: &Clocks) -> MultiprocessorRun {
    let lines = work.operations.iter().map(|o| o.line as usize + 1).max().unwrap_or(0);
    let mut m = Multiprocessor {
        work,
        clocks,
        now: 0,
        warps: Vec::new(),
        blocks: Vec::new(),
        started: 0,
        ended: 0,
        pipes: vec![[0.0; PIPES]; 4],
        memory_at: 0.0,
        l2_at: 0.0,
        cache: HashMap::new(),
        code: vec![u64::MAX; lines + 64],
        totals: work
            .warps
            .iter()
            .map(|order| {
                let mut all = vec![0; work.operations.len()];
                order.iter().for_each(|i| all[*i as usize] += 1);
                all
            })
            .collect(),
        ran: MultiprocessorRun {
            clocks: 0,
            waits: vec![[0; Wait::ALL.len()]; work.operations.len()],
            issues: vec![0; work.operations.len()],
        },
    };
    while m.started < work.blocks.min(work.resident) {
        let place = m.blocks.len();
        m.blocks.push(ResidentBlock::default());
        m.start(place, true);
    }
    m.run();
    m.ran
}

impl Multiprocessor<'_> {
    fn start(&mut self, place: usize, first: bool) {
        let at = if first { 0 } else { self.now + self.clocks.block };
        self.blocks[place] = ResidentBlock { live: self.work.warps.len(), ..ResidentBlock::default() };
        for (trace, order) in self.work.warps.iter().enumerate() {
            let warp = Warp {
                block: place,
                trace,
                at: 0,
                ready: at,
                since: at,
                wait: Wait::Turn,
                late: Wait::Turn,
                registers: Box::new([(0, Wait::Arithmetic); REGISTERS]),
                times: vec![0; self.work.operations.len()],
                copies: Vec::new(),
                open: 0,
                stored: 0,
                state: if order.is_empty() { State::Ended } else { State::Runs },
            };
            let slot = if first {
                self.warps.push(warp);
                self.warps.len() - 1
            } else {
                let slot = place * self.work.warps.len() + trace;
                self.warps[slot] = warp;
                slot
            };
            if self.warps[slot].state == State::Ended {
                self.blocks[place].live -= 1;
            } else {
                self.prepare(slot, at);
            }
        }
        self.started += 1;
    }

    fn run(&mut self) {
        while self.ended < self.work.blocks.min(self.started) {
            let mut issued = false;
            let mut next = u64::MAX;
            for scheduler in 0..4 {
                let mut best: Option<usize> = None;
                for w in (scheduler..self.warps.len()).step_by(4) {
                    let warp = &self.warps[w];
                    if warp.state != State::Runs {
                        continue;
                    }
                    if warp.ready > self.now {
                        next = next.min(warp.ready);
                        continue;
                    }
                    let operation = &self.work.operations[self.next(w)];
                    let free = self.pipes[scheduler_of(operation.pipe, scheduler)][operation.pipe];
                    if free > self.now as f64 {
                        next = next.min(free.ceil() as u64);
                        self.warps[w].late = Wait::Pipe;
                        continue;
                    }
                    // The one that has been ready for longest.
                    if best.is_none_or(|b| self.warps[b].ready > warp.ready) {
                        best = Some(w);
                    }
                }
                if let Some(w) = best {
                    self.issue(w, scheduler);
                    issued = true;
                }
            }
            if issued {
                self.now += 1;
            } else if next == u64::MAX {
                break;
            } else {
                self.now = next.max(self.now + 1);
            }
        }
        self.ran.clocks = self.now;
    }

    /// Index of a warp's next instruction.
    fn next(&self, w: usize) -> usize {
        let warp = &self.warps[w];
        self.work.warps[warp.trace][warp.at] as usize
    }

    /// When a warp's next instruction may issue at the earliest, and what it waits for until then.
    fn prepare(&mut self, w: usize, from: u64) {
        let warp = &self.warps[w];
        let operation = &self.work.operations[self.next(w)];
        let (mut ready, mut wait) = (from, Wait::Turn);
        let mut later = |at: u64, what: Wait| {
            if at > ready {
                (ready, wait) = (at, what);
            }
        };
        for r in operation.reads.iter().chain(&operation.writes) {
            let (at, what) = warp.registers[usize::from(*r)];
            later(at, what);
        }
        match operation.effect {
            Effect::WaitCopies(left) => {
                let groups = warp.copies.len().saturating_sub(left);
                if let Some(at) = warp.copies[..groups].iter().max() {
                    later(*at, Wait::Memory);
                }
            }
            Effect::WaitBefore => later(self.clocks.before, Wait::Before),
            Effect::Fence => later(warp.stored, Wait::Cache),
            _ => {}
        }
        // Code that is not there is asked for, with what lies behind it.
        let line = operation.line as usize;
        if self.code[line] == u64::MAX {
            for ahead in 0..self.clocks.code_ahead as usize {
                let at = from + self.clocks.code + ahead as u64 * self.clocks.next_code;
                self.code[line + ahead] = self.code[line + ahead].min(at);
            }
        }
        later(self.code[line], Wait::Code);
        let warp = &mut self.warps[w];
        (warp.ready, warp.wait, warp.since, warp.late) = (ready, wait, from, Wait::Turn);
    }

    fn issue(&mut self, w: usize, scheduler: usize) {
        let now = self.now;
        let index = self.next(w);
        let last = self.warps[w].at + 1 == self.work.warps[self.warps[w].trace].len();
        let operation = &self.work.operations[index];
        {
            let warp = &self.warps[w];
            let waits = &mut self.ran.waits[index];
            self.ran.issues[index] += 1;
            waits[warp.wait as usize] += warp.ready.saturating_sub(warp.since);
            waits[warp.late as usize] += now - warp.ready;
        }
        let pipe = &mut self.pipes[scheduler_of(operation.pipe, scheduler)][operation.pipe];
        *pipe = pipe.max(now as f64) + operation.busy;
        let block = self.warps[w].block;
        let result = match operation.effect {
            Effect::Result(clocks, what) => (now + clocks, what),
            Effect::Load { share, .. }
                if f64::from(self.warps[w].times[index]) + 0.5 > share * f64::from(self.total(w, index)) =>
            {
                (now, Wait::Arithmetic)
            }
            Effect::Load { memory, cached, copies, .. } => {
                let key = (index, self.warps[w].times[index]);
                self.warps[w].times[index] += 1;
                let (at, what) = self.load(block, key, memory, cached);
                if copies {
                    let warp = &mut self.warps[w];
                    warp.open = warp.open.max(at);
                }
                (at, what)
            }
            Effect::Ask(bytes) => {
                self.memory_at = self.memory_at.max(now as f64) + bytes / self.clocks.memory_rate;
                let at = (self.memory_at + self.clocks.memory - self.clocks.l2).max(now as f64) as u64;
                let block = &mut self.blocks[block];
                block.asked += bytes;
                block.asked_until = block.asked_until.max(at);
                (now + 1, Wait::Cache)
            }
            Effect::Commit => {
                let warp = &mut self.warps[w];
                let at = std::mem::take(&mut warp.open);
                warp.copies.push(at);
                (now + 1, Wait::Memory)
            }
            Effect::Store => {
                self.warps[w].stored = now + self.clocks.l2 as u64;
                (now + 1, Wait::Arithmetic)
            }
            Effect::Fence | Effect::WaitCopies(_) | Effect::WaitBefore | Effect::Barrier => (now + 1, Wait::Arithmetic),
        };
        for r in &operation.writes {
            let known = &mut self.warps[w].registers[usize::from(*r)];
            if result.0 > known.0 {
                *known = result;
            }
        }
        self.warps[w].at += 1;
        let at_barrier = operation.effect == Effect::Barrier;
        if last {
            self.warps[w].state = State::Ended;
            self.blocks[block].live -= 1;
        } else if at_barrier {
            let warp = &mut self.warps[w];
            (warp.state, warp.since) = (State::AtBarrier, now);
            self.blocks[block].arrived += 1;
        } else {
            self.prepare(w, now + 1);
        }
        if last || at_barrier {
            self.pass(block);
        }
    }

    /// Lets the warps of a block go on if none is missed at a barrier, and a block end without warps.
    fn pass(&mut self, place: usize) {
        if self.blocks[place].live == 0 {
            self.ended += 1;
            if self.started < self.work.blocks {
                self.start(place, false);
            }
            return;
        }
        if self.blocks[place].arrived < self.blocks[place].live {
            return;
        }
        self.blocks[place].arrived = 0;
        let each = self.work.warps.len();
        for w in place * each..(place + 1) * each {
            if self.warps[w].state == State::AtBarrier {
                self.warps[w].state = State::Runs;
                let (arrived, from) = (self.warps[w].since, self.now + BARRIER);
                let index = self.next(w);
                self.ran.waits[index][Wait::Barrier as usize] += from - arrived;
                self.prepare(w, from);
            }
        }
    }

    /// How often a warp executes an instruction.
    fn total(&self, w: usize, index: usize) -> u32 {
        self.totals[self.warps[w].trace][index]
    }

    /// When what is loaded is there.
    fn load(&mut self, block: usize, key: (usize, u32), memory: f64, cached: f64) -> (u64, Wait) {
        let (now, c) = (self.now as f64, self.clocks);
        let place = &mut self.blocks[block];
        let of_l2 = |at: &mut f64, bytes: f64| {
            *at = at.max(now) + bytes / c.l2_rate;
            *at + c.l2
        };
        if memory > 0.0 {
            if place.asked >= memory {
                place.asked -= memory;
                let at = of_l2(&mut self.l2_at, memory + cached).max(place.asked_until as f64 + c.l2);
                return (at as u64, Wait::Memory);
            }
            self.memory_at = self.memory_at.max(now) + memory / c.memory_rate;
            return ((self.memory_at + c.memory) as u64, Wait::Memory);
        }
        // What a block has read, the next one on the multiprocessor finds in the first cache.
        let at = match self.cache.get(&key) {
            Some(at) => at.max(now + c.l1),
            None => {
                let at = of_l2(&mut self.l2_at, cached);
                self.cache.insert(key, at);
                at
            }
        };
        (at as u64, Wait::Cache)
    }
}

/// Whose pipe it is.
fn scheduler_of(pipe: usize, scheduler: usize) -> usize {
    if pipe >= SHARED_PIPES { 0 } else { scheduler }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCKS: Clocks = Clocks {
        memory: 800.0,
        l2: 200.0,
        l1: 40.0,
        memory_rate: 16.0,
        l2_rate: 32.0,
        code: 0,
        next_code: 0,
        code_ahead: 1,
        block: 100,
        before: 0,
    };

    fn operation(effect: Effect, reads: &[Register], writes: &[Register]) -> Operation {
        Operation { reads: reads.to_vec(), writes: writes.to_vec(), pipe: 0, busy: 1.0, effect, line: 0 }
    }

    /// `R1 = R1 + 1`.
    fn add() -> Operation {
        operation(Effect::Result(5, Wait::Arithmetic), &[1], &[1])
    }

    fn load(bytes: f64, from: Register, to: Register) -> Operation {
        let effect = Effect::Load { memory: bytes, cached: 0.0, copies: false, share: 1.0 };
        operation(effect, &[from], &[to])
    }

    fn ran(
        operations: &[Operation],
        warps: &[Vec<u32>],
        (blocks, resident): (u64, u64),
        clocks: &Clocks,
    ) -> MultiprocessorRun {
        run(&MultiprocessorWork { operations, warps, blocks, resident }, clocks)
    }

    /// One warp, all operations in order.
    fn alone(operations: &[Operation]) -> MultiprocessorRun {
        let order = (0..operations.len() as u32).collect();
        ran(operations, &[order], (1, 1), &CLOCKS)
    }

    fn waited(ran: &MultiprocessorRun, wait: Wait) -> u64 {
        ran.waits.iter().map(|w| w[wait as usize]).sum()
    }

    #[test]
    fn an_instruction_waits_for_the_results_that_it_reads() {
        let ran = alone(&[add(), add(), add(), add()]);
        // Issued at 0, 5, 10 and 15.
        assert_eq!((ran.clocks, waited(&ran, Wait::Arithmetic)), (16, 3 * 4));
        let apart: Vec<Operation> =
            (2..6).map(|r| operation(Effect::Result(5, Wait::Arithmetic), &[1], &[r])).collect();
        assert_eq!(alone(&apart).clocks, 4);
    }

    #[test]
    fn loads_that_are_asked_for_together_are_waited_for_once() {
        let used = |r: Register| operation(Effect::Result(5, Wait::Arithmetic), &[r], &[9]);
        // 512 bytes take memory 32 clocks.
        let together = alone(&[load(512.0, 1, 2), load(512.0, 1, 3), used(2), used(3)]);
        assert_eq!(together.clocks, 64 + 800 + 1);
        let one_by_one = alone(&[load(512.0, 1, 2), used(2), load(512.0, 9, 3), used(3)]);
        assert!(one_by_one.clocks > 2 * (32 + 800), "{}", one_by_one.clocks);
        assert!(waited(&one_by_one, Wait::Memory) > 2 * 820);
    }

    #[test]
    fn memory_delivers_its_share_however_many_warps_ask() {
        let operations = [load(512.0, 1, 2), operation(Effect::Result(5, Wait::Arithmetic), &[2], &[9])];
        let of = |warps: usize| ran(&operations, &vec![vec![0, 1]; warps], (1, 1), &CLOCKS).clocks;
        assert_eq!(of(32) - of(16), 16 * 32);
    }

    #[test]
    fn what_another_warp_has_loaded_is_in_the_first_cache() {
        let shared = Effect::Load { memory: 0.0, cached: 512.0, copies: false, share: 1.0 };
        let operations = [operation(shared, &[1], &[2]), operation(Effect::Result(5, Wait::Arithmetic), &[2], &[9])];
        let ran = ran(&operations, &vec![vec![0, 1]; 16], (1, 1), &CLOCKS);
        // One way to L2, not sixteen.
        assert!((200 + 16..260).contains(&ran.clocks), "{}", ran.clocks);
        assert!(waited(&ran, Wait::Cache) > 16 * 150);
    }

    #[test]
    fn a_load_whose_guard_does_not_hold_loads_nothing() {
        let ahead = Effect::Load { memory: 512.0, cached: 0.0, copies: false, share: 0.5 };
        let operations = [operation(ahead, &[1], &[2]), operation(Effect::Result(5, Wait::Arithmetic), &[2], &[1])];
        let of = |turns: usize| ran(&operations, &[[0, 1].repeat(turns)], (1, 1), &CLOCKS).clocks;
        // The second of two turns is behind the guard.
        assert!(of(2) < of(1) + 800 && of(4) > of(2) + 800, "{} {} {}", of(1), of(2), of(4));
    }

    #[test]
    fn warps_at_a_barrier_wait_for_the_last_of_them() {
        let operations = [add(), operation(Effect::Barrier, &[], &[]), add()];
        let long: Vec<u32> = vec![0, 0, 0, 0, 0, 0, 1, 2];
        let all = ran(&operations, &[vec![1, 2], long.clone()], (1, 1), &CLOCKS);
        let only = ran(&operations, &[long], (1, 1), &CLOCKS);
        assert_eq!(all.clocks, only.clocks);
        assert!(waited(&all, Wait::Barrier) > waited(&only, Wait::Barrier) + 20);
        // Who has ended is not waited for.
        assert!(ran(&operations, &[vec![0], vec![1, 2]], (1, 1), &CLOCKS).clocks < 40);
    }

    #[test]
    fn code_comes_once_for_all_warps_and_ahead_of_its_use() {
        let line = |line: u32| Operation { line, ..operation(Effect::Result(1, Wait::Arithmetic), &[], &[]) };
        let operations: Vec<Operation> = (0..8).map(line).collect();
        let order: Vec<u32> = (0..8).collect();
        let cold = |ahead: u32| Clocks { code: 100, next_code: 10, code_ahead: ahead, ..CLOCKS };
        let of = |warps: usize, ahead: u32| ran(&operations, &vec![order.clone(); warps], (1, 1), &cold(ahead)).clocks;
        assert_eq!(of(1, 1), 8 * 100 + 8);
        assert!(of(1, 4) < 2 * 150 && of(4, 1) <= of(1, 1) + 4, "{} {}", of(1, 4), of(4, 1));
    }

    #[test]
    fn a_block_begins_where_another_has_ended() {
        let of = |blocks, resident| ran(&[add(), add()], &[vec![0, 1]], (blocks, resident), &CLOCKS).clocks;
        assert_eq!((of(1, 1), of(2, 2), of(2, 1)), (6, 6, 5 + 100 + 6));
    }

    #[test]
    fn groups_of_copies_are_waited_for_in_order() {
        let copy = Effect::Load { memory: 512.0, cached: 0.0, copies: true, share: 1.0 };
        let all = |left: usize| {
            let copies = [copy, Effect::Commit, copy, Effect::Commit, Effect::WaitCopies(left)];
            alone(&copies.map(|effect| operation(effect, &[], &[]))).clocks
        };
        assert_eq!((all(2), all(1), all(0)), (5, 32 + 800 + 1, 64 + 800 + 1));
    }

    #[test]
    fn a_fence_waits_for_stores() {
        let of = |first: Effect| alone(&[first, Effect::Fence].map(|effect| operation(effect, &[], &[]))).clocks;
        assert_eq!((of(Effect::Store), of(Effect::Result(1, Wait::Arithmetic))), (201, 2));
    }

    #[test]
    fn what_was_asked_for_ahead_is_nearer() {
        let used = || operation(Effect::Result(5, Wait::Arithmetic), &[2], &[9]);
        let wait = || operation(Effect::WaitBefore, &[], &[]);
        let clocks = Clocks { before: 1000, ..CLOCKS };
        let of = |all: Vec<Operation>| {
            let order = (0..all.len() as u32).collect();
            ran(&all, &[order], (1, 1), &clocks).clocks
        };
        let asked = of(vec![operation(Effect::Ask(512.0), &[], &[]), wait(), load(512.0, 1, 2), used()]);
        let not = of(vec![wait(), load(512.0, 1, 2), used()]);
        assert!((1200..1240).contains(&asked) && not > 1800, "{asked} {not}");
    }
}
