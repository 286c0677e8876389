//! A multiprocessor, clock by clock: four schedulers, each of which issues an instruction of one of its warps a clock, pipes behind them,
//! and memory that delivers what its share is.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use warpsmith_arch::PARTITIONS;

use super::operands::REGISTERS;
use super::operation::{Effect, Load, Operation, is_shared};
use super::path::{Event, Path, Step};
use crate::commands::budget::pipes::Pipe;

/// What an instruction waits for.
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

/// Each has the warps of a part of the multiprocessor.
const SCHEDULERS: usize = PARTITIONS as usize;
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
    /// Of each warp of a block, the instructions that it executes.
    pub warps: &'a [Vec<u32>],
    /// The same of the block that begins last.
    pub last: &'a [Vec<u32>],
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
    /// What the end waited for.
    pub path: Path,
}

struct Warp {
    /// Of the resident blocks.
    block: usize,
    /// Which order of instructions it has, and how far it is.
    order: usize,
    at: usize,
    /// Its number among all that began.
    number: usize,
    /// What the next instruction comes behind, where that is not the warp's own one before.
    behind: Option<Step>,
    /// When its next instruction may issue.
    ready: u64,
    /// Since when it waits.
    since: u64,
    wait: Wait,
    /// What it waits for once it is ready: its turn, or its pipe.
    late: Wait,
    registers: Box<[(u64, Wait); REGISTERS]>,
    /// How often each instruction has loaded.
    times: Vec<u32>,
    /// When each group of copies is there, and what there is of the open one.
    copies: Vec<u64>,
    open: u64,
    /// When what it has stored is there.
    stored: u64,
    state: State,
}

impl Warp {
    fn new(operations: usize, block: usize, order: usize, at: u64) -> Warp {
        Warp {
            block,
            order,
            at: 0,
            number: 0,
            behind: None,
            ready: at,
            since: at,
            wait: Wait::Turn,
            late: Wait::Turn,
            registers: Box::new([(0, Wait::Arithmetic); REGISTERS]),
            times: vec![0; operations],
            copies: Vec::new(),
            open: 0,
            stored: 0,
            state: State::Ended,
        }
    }
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
    asked: Asked,
    /// Of what it asks for, bytes that the one before it asked for.
    again: f64,
    /// Bytes of memory that it loaded.
    loaded: f64,
}

/// Bytes that were asked for ahead, by the block itself or by the one that had its place before it, in the order in which they were asked for,
/// in which they are loaded.
#[derive(Clone, Default)]
struct Asked {
    /// How many, and when they are there.
    parts: VecDeque<(f64, u64)>,
    bytes: f64,
}

impl Asked {
    fn put(&mut self, bytes: f64, at: u64) {
        self.parts.push_back((bytes, at));
        self.bytes += bytes;
    }

    /// When bytes are there, if as many were asked for.
    fn take(&mut self, mut bytes: f64) -> Option<u64> {
        if self.bytes < bytes {
            return None;
        }
        self.bytes -= bytes;
        let mut there = 0;
        while let Some((left, at)) = self.parts.front_mut().filter(|_| bytes > 0.0) {
            there = there.max(*at);
            if *left > bytes {
                *left -= bytes;
                break;
            }
            bytes -= *left;
            self.parts.pop_front();
        }
        Some(there)
    }

    /// What is left of them for a block that loads as many: lines end behind what is loaded of them, and that is the oldest.
    fn left(mut self, bytes: f64) -> Asked {
        self.take(self.bytes - bytes.min(self.bytes));
        self
    }
}

struct Multiprocessor<'a> {
    work: &'a MultiprocessorWork<'a>,
    clocks: &'a Clocks,
    /// Of the warps of a block, and behind them of those of the last one.
    orders: Vec<&'a [u32]>,
    now: u64,
    warps: Vec<Warp>,
    /// What each warp that began has issued.
    events: Vec<Vec<Event>>,
    blocks: Vec<ResidentBlock>,
    started: u64,
    ended: u64,
    /// Until when pipes are busy, of each scheduler; those that all share are the first's.
    pipes: [[f64; SCHEDULERS]; Pipe::COUNT],
    memory_at: f64,
    l2_at: f64,
    /// When what several warps read is in the first cache: what an instruction reads that a warp executes for the so manieth time.
    cache: HashMap<(usize, u32), f64>,
    /// When each line of code is there.
    code: Vec<u64>,
    /// How often each order has each instruction.
    totals: Vec<Vec<u32>>,
    ran: MultiprocessorRun,
}

/// Runs it.
pub fn run(work: &MultiprocessorWork<'_>, clocks: &Clocks) -> MultiprocessorRun {
    let lines = work.operations.iter().map(|o| o.line as usize + 1).max().unwrap_or(0);
    let orders: Vec<&[u32]> = work.warps.iter().chain(work.last).map(Vec::as_slice).collect();
    let total = |order: &&[u32]| {
        let mut all = vec![0; work.operations.len()];
        order.iter().for_each(|i| all[*i as usize] += 1);
        all
    };
    let mut m = Multiprocessor {
        work,
        clocks,
        totals: orders.iter().map(total).collect(),
        orders,
        now: 0,
        warps: Vec::new(),
        events: Vec::new(),
        blocks: Vec::new(),
        started: 0,
        ended: 0,
        pipes: [[0.0; SCHEDULERS]; Pipe::COUNT],
        memory_at: 0.0,
        l2_at: 0.0,
        cache: HashMap::new(),
        code: vec![u64::MAX; lines + clocks.code_ahead as usize],
        ran: MultiprocessorRun {
            clocks: 0,
            waits: vec![[0; Wait::ALL.len()]; work.operations.len()],
            issues: vec![0; work.operations.len()],
            path: Path::default(),
        },
    };
    for place in 0..work.blocks.min(work.resident) as usize {
        m.blocks.push(ResidentBlock::default());
        m.warps.extend((0..work.warps.len()).map(|w| Warp::new(work.operations.len(), place, w, 0)));
        m.start(place, 0, None);
    }
    m.run();
    m.ran.path = Path::to_the_end(&m.events);
    m.ran
}

impl Multiprocessor<'_> {
    /// Starts a block, behind what another ended with.
    fn start(&mut self, place: usize, at: u64, behind: Option<Step>) {
        let each = self.work.warps.len();
        self.started += 1;
        let orders = if self.started == self.work.blocks { each } else { 0 };
        let before = std::mem::take(&mut self.blocks[place]);
        let asked = before.asked.left(before.loaded);
        self.blocks[place] = ResidentBlock { again: asked.bytes, asked, ..ResidentBlock::default() };
        for of_block in 0..each {
            let (w, order) = (place * each + of_block, orders + of_block);
            self.warps[w] =
                Warp { number: self.events.len(), behind, ..Warp::new(self.work.operations.len(), place, order, at) };
            self.events.push(Vec::new());
            if !self.orders[order].is_empty() {
                self.warps[w].state = State::Runs;
                self.blocks[place].live += 1;
                self.prepare(w, at);
            }
        }
    }

    fn run(&mut self) {
        while self.ended < self.started {
            let mut issued = false;
            let mut next = u64::MAX;
            for scheduler in 0..SCHEDULERS {
                let mut best: Option<usize> = None;
                for w in (scheduler..self.warps.len()).step_by(SCHEDULERS) {
                    let warp = &self.warps[w];
                    if warp.state != State::Runs {
                        continue;
                    }
                    if warp.ready > self.now {
                        next = next.min(warp.ready);
                        continue;
                    }
                    let operation = &self.work.operations[self.next(w)];
                    let free = self.pipes[operation.pipe as usize][owner(operation, scheduler)];
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
        self.orders[warp.order][warp.at] as usize
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
        let last = self.warps[w].at + 1 == self.orders[self.warps[w].order].len();
        let operation = &self.work.operations[index];
        {
            let warp = &mut self.warps[w];
            let Warp { since, ready, wait, late, .. } = *warp;
            let behind = warp.behind.take();
            self.events[warp.number].push(Event { index: index as u32, since, ready, at: now, wait, late, behind });
            let waits = &mut self.ran.waits[index];
            self.ran.issues[index] += 1;
            waits[warp.wait as usize] += warp.ready.saturating_sub(warp.since);
            waits[warp.late as usize] += now - warp.ready;
        }
        let pipe = &mut self.pipes[operation.pipe as usize][owner(operation, scheduler)];
        *pipe = pipe.max(now as f64) + operation.busy;
        let block = self.warps[w].block;
        let result = match operation.effect {
            Effect::Result(clocks, what) => (now + clocks, what),
            Effect::Load(load) if self.is_off(w, index, load.share) => (now, Wait::Arithmetic),
            Effect::Load(load) => {
                let (at, what) = self.load(w, index, load);
                let warp = &mut self.warps[w];
                warp.times[index] += 1;
                if load.copies {
                    warp.open = warp.open.max(at);
                }
                (at, what)
            }
            Effect::Ask(ask) if self.is_off(w, index, ask.share) => (now, Wait::Arithmetic),
            Effect::Ask(ask) => {
                self.warps[w].times[index] += 1;
                let block = &mut self.blocks[block];
                let again = block.again.min(ask.bytes);
                block.again -= again;
                self.memory_at = self.memory_at.max(now as f64) + (ask.bytes - again) / self.clocks.memory_rate;
                let at = (self.memory_at + self.clocks.memory - self.clocks.l2).max(now as f64) as u64;
                block.asked.put(ask.bytes - again, at);
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
            let warp = self.warps[w].number;
            self.pass(block, Step { warp, event: self.events[warp].len() - 1 });
        }
    }

    /// Lets the warps of a block go on if none is missed at a barrier, and a block end without warps, by what a warp of it did last.
    fn pass(&mut self, place: usize, by: Step) {
        if self.blocks[place].live == 0 {
            self.ended += 1;
            if self.started < self.work.blocks {
                self.start(place, self.now + self.clocks.block, Some(by));
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
                self.warps[w].behind = Some(by);
                self.prepare(w, from);
            }
        }
    }

    /// Whether the guard of a load holds no more: the warp has loaded as often as it does.
    fn is_off(&self, w: usize, index: usize, share: f64) -> bool {
        let warp = &self.warps[w];
        f64::from(warp.times[index]) + 0.5 > share * f64::from(self.totals[warp.order][index])
    }

    /// When what is loaded is there.
    fn load(&mut self, w: usize, index: usize, load: Load) -> (u64, Wait) {
        let (now, c) = (self.now as f64, self.clocks);
        let of_l2 = |at: &mut f64| {
            *at = at.max(now) + load.bytes / c.l2_rate;
            *at + c.l2
        };
        if load.of_memory {
            let block = &mut self.blocks[self.warps[w].block];
            block.loaded += load.bytes;
            let at = if let Some(there) = block.asked.take(load.bytes) {
                of_l2(&mut self.l2_at).max(there as f64 + c.l2)
            } else {
                self.memory_at = self.memory_at.max(now) + load.bytes / c.memory_rate;
                self.memory_at + c.memory
            };
            return (at as u64, Wait::Memory);
        }
        // What another warp has read, or another block here, is in the first cache.
        let at = match self.cache.entry((index, self.warps[w].times[index])) {
            Entry::Occupied(there) => there.get().max(now + c.l1),
            Entry::Vacant(place) => *place.insert(of_l2(&mut self.l2_at)),
        };
        (at as u64, Wait::Cache)
    }
}

/// Whose pipe it is that an operation takes.
fn owner(operation: &Operation, scheduler: usize) -> usize {
    if is_shared(operation.pipe) { 0 } else { scheduler }
}

#[cfg(test)]
mod tests;
