//! A warp: its splits, its frames, and the choice of what runs next.
//!
//! A *split* is a set of lanes at one position. Code is laid out so that lower positions come
//! first (loops are contiguous, before what follows them), and of the splits that can run the one
//! with the deepest call and then the lowest position does: lanes that left a loop early wait for
//! the others behind it. Splits at one position merge. A split that jumps backwards long enough
//! while it looks like a spin loop makes way for the one that has waited longest, so that the lane
//! that holds a lock gets to release it.

use std::collections::HashMap;

use super::barrier::{BARRIERS, Barrier};
use super::lanes::lanes_of;
use super::stack::Stack;
use super::{Cx, Flow, LANES, PRED_CARRY, PRED_TRUE, ROW, limit, publish, rendezvous};
use crate::memory::POISON_KEY;
use crate::program::{Function, Program};

/// A row of 32-bit registers.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Row(pub [u32; LANES]);

pub const POISON_ROW: Row = Row([POISON_KEY as u32; LANES]);

/// Scheduling decisions for which a split that was let through keeps its preference.
const FAVOUR: u32 = 256;
/// Backward jumps before a split that looks like a spin loop makes way; and one that does not.
pub(super) const SPINS: u32 = 32;
const LONG_SPINS: u32 = 1 << 20;
/// Interruptions of a block's warps by a shuffled schedule.
const INTERRUPTS: u32 = 4096;

/// Why a split does not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Ready,
    /// In a collective of this kind and mask.
    Collective {
        imm: u64,
        mask: u32,
    },
    /// Before an instruction that the whole warp executes together.
    Converge,
    /// At a block barrier.
    Barrier {
        id: u32,
    },
}

/// Lanes at one position.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    pub pc: u32,
    pub mask: u32,
    pub frame: u32,
    pub state: State,
    /// When it last ran.
    stamp: u64,
    favour: u32,
}

/// An activation of a function; the same for all lanes that came the same way.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub(super) parent: u32,
    pub function: u32,
    pub(super) call: u32,
    pub(super) return_to: u32,
    pub(super) depth: u32,
    pub(super) row: u32,
    pub(super) pred: u32,
    pub(super) local: u32,
}

/// Why a warp stopped running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// All lanes have exited.
    Done,
    /// No split can run before other warps have.
    Blocked,
    /// It spins.
    Spinning,
    Fault,
}

/// A warp of a block.
pub struct Warp {
    pub index: u32,
    pub live: u32,
    pub splits: Vec<Split>,
    pub(super) frames: Vec<Frame>,
    pub(super) known: HashMap<(u32, u32, u32), u32>,
    pub(super) regs: Vec<Row>,
    pub(super) preds: Vec<u32>,
    pub(super) local: Vec<Row>,
    /// One, on the heap: handlers reach it through the context.
    stack: Vec<Stack>,
    pub tid: [Row; 3],
    /// Lanes that have arrived at each barrier while others of the warp have not.
    pub at_barrier: [u32; BARRIERS],
    /// Lanes that have arrived at the barrier of the cluster and not waited yet, and those whose phase is not complete.
    pub(super) owed: u32,
    pub(super) pending: u32,
    /// Where lanes have exited.
    pub exits: Vec<(u32, u32)>,
    stamp: u64,
}

impl Warp {
    pub fn new(index: u32) -> Warp {
        Warp {
            index,
            live: 0,
            splits: Vec::new(),
            frames: Vec::new(),
            known: HashMap::new(),
            regs: Vec::new(),
            preds: Vec::new(),
            local: Vec::new(),
            stack: vec![Stack::default()],
            tid: [Row([0; LANES]); 3],
            at_barrier: [0; BARRIERS],
            owed: 0,
            pending: 0,
            exits: Vec::new(),
            stamp: 0,
        }
    }

    /// Prepares the warp to run a kernel from its start.
    pub fn start(&mut self, program: &Program, entry: u32, live: u32) {
        let Some(function) = program.functions.get(entry as usize) else { return };
        self.live = live;
        self.at_barrier = [0; BARRIERS];
        (self.owed, self.pending) = (0, 0);
        self.exits.clear();
        self.stamp = 0;
        self.frames.clear();
        self.known.clear();
        self.splits.clear();
        self.stack.iter_mut().for_each(Stack::clear);
        let root = Frame { parent: 0, function: entry, call: 0, return_to: 0, depth: 0, row: 0, pred: 0, local: 0 };
        self.frames.push(root);
        self.reserve(&root, function);
        self.clear(&root, function, !0);
        if live != 0 {
            let pc = function.entry;
            self.splits.push(Split { pc, mask: live, frame: 0, state: State::Ready, stamp: 0, favour: 0 });
        }
    }

    pub(super) fn reserve(&mut self, frame: &Frame, function: &Function) {
        let rows = ((frame.row + function.row_bytes) / ROW) as usize;
        if self.regs.len() < rows {
            self.regs.resize(rows, Row([0; LANES]));
        }
        let preds = (frame.pred + function.preds) as usize;
        if self.preds.len() < preds {
            self.preds.resize(preds, 0);
        }
        let words = (frame.local + function.local_bytes).div_ceil(4) as usize;
        if self.local.len() < words {
            self.local.resize(words, POISON_ROW);
        }
    }

    /// Gives lanes that enter a frame defined contents for what they may read before they write it.
    pub(super) fn clear(&mut self, frame: &Frame, function: &Function, lanes: u32) {
        let blank = |row: &mut Row, value: u32| {
            if lanes == !0 {
                *row = Row([value; LANES]);
            } else {
                lanes_of(lanes).for_each(|l| row.0[l] = value);
            }
        };
        for &(at, wide) in &function.unset_rows {
            let first = ((frame.row + at) / ROW) as usize;
            match &mut self.regs[first..first + 1 + usize::from(wide)] {
                // Lane `l` of 64 bits has words `2 l` and `2 l + 1` of the two rows.
                [low, high] => {
                    for l in lanes_of(lanes) {
                        let row = if l < LANES / 2 { &mut *low } else { &mut *high };
                        row.0[2 * l % LANES..][..2].fill(0);
                    }
                }
                rows => rows.iter_mut().for_each(|r| blank(r, 0)),
            }
        }
        let preds = &mut self.preds[frame.pred as usize..];
        // Of these lanes only: here may be a predicate of another function, where other lanes are.
        preds[PRED_TRUE as usize] |= lanes;
        preds[PRED_CARRY as usize] &= !lanes;
        for &p in &function.unset_preds {
            preds[p as usize] &= !lanes;
        }
        let (from, to) = (frame.local / 4, (frame.local + function.local_bytes).div_ceil(4));
        self.local[from as usize..to as usize].iter_mut().for_each(|r| blank(r, POISON_KEY as u32));
    }

    /// Points the context at a frame of this warp.
    pub fn enter(&mut self, cx: &mut Cx, program: &Program, pools: &[Vec<Row>], frame: u32) {
        let frame = self.frames[frame as usize];
        let function = &program.functions[frame.function as usize];
        // SAFETY: `reserve` made room for the frame behind each of these offsets.
        unsafe {
            cx.regs = self.regs.as_mut_ptr().cast::<u8>().add(frame.row as usize);
            cx.preds = self.preds.as_mut_ptr().add(frame.pred as usize);
        }
        (cx.frame_row, cx.frame_pred) = (frame.row, frame.pred);
        cx.local = self.local.as_mut_ptr().cast();
        cx.stack = self.stack.as_mut_ptr();
        cx.local_base = frame.local;
        cx.local_top = frame.local + function.local_bytes;
        cx.consts = pools[frame.function as usize].as_ptr().cast();
        cx.live = self.live;
    }

    fn depth(&self, split: &Split) -> u32 {
        self.frames[split.frame as usize].depth
    }

    /// Whether some split can run.
    pub fn ready(&self) -> bool {
        self.splits.iter().any(|s| s.state == State::Ready)
    }

    /// Adds lanes at a position, with those that are there already.
    pub fn add(&mut self, pc: u32, mask: u32, frame: u32, state: State) {
        if mask == 0 {
            return;
        }
        let same = self.splits.iter_mut().find(|s| s.pc == pc && s.frame == frame && s.state == state);
        match same {
            Some(split) => split.mask |= mask,
            None => self.splits.push(Split { pc, mask, frame, state, stamp: self.stamp, favour: 0 }),
        }
    }

    /// Takes out the split that shall run.
    fn pick(&mut self, cx: &mut Cx) -> Option<Split> {
        if self.splits.len() > 1 {
            self.merge();
        }
        if cx.dice != 0 && self.splits.len() > 1 && cx.roll(2) == 1 {
            let ready: Vec<usize> = (0..self.splits.len()).filter(|&i| self.splits[i].state == State::Ready).collect();
            let chosen = ready.get(cx.roll(ready.len())).copied()?;
            return Some(self.splits.swap_remove(chosen));
        }
        let ready = self.splits.iter().enumerate().filter(|(_, s)| s.state == State::Ready);
        let key = |s: &Split| (s.favour == 0, u32::MAX - self.depth(s), s.pc);
        let best = ready.min_by_key(|(_, s)| key(s)).map(|(i, _)| i)?;
        Some(self.splits.swap_remove(best))
    }

    fn merge(&mut self) {
        let mut i = 0;
        while i < self.splits.len() {
            let mut j = i + 1;
            while j < self.splits.len() {
                let (a, b) = (self.splits[i], self.splits[j]);
                if a.pc == b.pc && a.frame == b.frame && a.state == b.state {
                    self.splits[i].mask |= b.mask;
                    self.splits[i].stamp = a.stamp.min(b.stamp);
                    self.splits[i].favour = 0;
                    self.splits.swap_remove(j);
                } else {
                    j += 1;
                }
            }
            i += 1;
        }
    }

    /// Runs until no split can.
    pub fn run(
        &mut self,
        cx: &mut Cx,
        program: &Program,
        pools: &[Vec<Row>],
        barriers: &mut [Barrier; BARRIERS],
    ) -> Stop {
        cx.tid = [0, 1, 2].map(|i| self.tid[i].0.as_ptr());
        cx.spins = 0;
        cx.sync_seen = false;
        loop {
            let Some(mut split) = self.pick(cx) else {
                return if self.splits.is_empty() { Stop::Done } else { Stop::Blocked };
            };
            self.stamp += 1;
            split.stamp = self.stamp;
            self.enter(cx, program, pools, split.frame);
            let depth = self.depth(&split);
            let others = self.splits.iter().filter(|s| s.state == State::Ready && self.depth(s) == depth);
            cx.stop = if split.favour > 0 { 0 } else { others.map(|s| s.pc).min().unwrap_or(u32::MAX) };
            cx.mask = split.mask;
            let (flow, pc) = run_split(cx, split.pc);
            split.favour = split.favour.saturating_sub(1);
            let lanes = cx.active;
            let rest = split.mask & !lanes;
            // In its place: faults are located by it.
            let op = &program.ops[pc as usize];
            match flow {
                Flow::Next | Flow::Jump => {
                    split.pc = cx.next;
                    self.splits.push(split);
                }
                Flow::Diverge => {
                    let other = Split { pc: op.c, mask: split.mask & !cx.taken, ..split };
                    self.splits.push(Split { pc: cx.next, mask: cx.taken, ..split });
                    self.splits.push(other);
                }
                Flow::Scatter => {
                    for lane in lanes_of(lanes) {
                        // SAFETY: the handler has checked every active lane's index.
                        let target = unsafe { super::control::indexed_target(cx, op, lane) };
                        self.add(target.unwrap_or(pc + 1), 1 << lane, split.frame, State::Ready);
                    }
                    self.add(pc + 1, rest, split.frame, State::Ready);
                }
                Flow::Yield => {
                    split.pc = cx.next;
                    split.favour = 0;
                    self.splits.push(split);
                    self.let_through(split.stamp);
                    return Stop::Spinning;
                }
                Flow::Rendezvous => {
                    self.add(pc + 1, rest, split.frame, State::Ready);
                    if rendezvous::arrive(self, cx, program, pools, pc, lanes, split.frame) == Flow::Fault {
                        return Stop::Fault;
                    }
                }
                Flow::Barrier => {
                    self.add(pc + 1, rest, split.frame, State::Ready);
                    if self.arrive(cx, op, pc, lanes, split.frame, barriers) == Flow::Fault {
                        return Stop::Fault;
                    }
                }
                Flow::Call => {
                    self.add(pc + 1, rest, split.frame, State::Ready);
                    if self.call(cx, program, pools, op, pc, lanes, split.frame) == Flow::Fault {
                        return Stop::Fault;
                    }
                }
                Flow::Ret if split.frame != 0 => {
                    self.add(pc + 1, rest, split.frame, State::Ready);
                    self.give_back(program, lanes, split.frame);
                    self.left(cx, program, lanes, split.frame);
                }
                Flow::Ret | Flow::Exit => {
                    self.add(pc + 1, rest, split.frame, State::Ready);
                    self.live &= !lanes;
                    self.exits.push((pc, lanes));
                    cx.observe(|o, _| o.exited(self.index, lanes));
                    cx.live = self.live;
                    cx.progress += 1;
                    rendezvous::complete(self, cx, program, pools);
                    if self.arrivals(cx, program, barriers) == Flow::Fault {
                        return Stop::Fault;
                    }
                }
                Flow::Fault => {
                    self.splits.push(split);
                    return Stop::Fault;
                }
            }
        }
    }

    /// Prefers the split that has waited longest.
    fn let_through(&mut self, current: u64) {
        let waiting = self.splits.iter_mut().filter(|s| s.state == State::Ready && s.stamp != current);
        if let Some(split) = waiting.min_by_key(|s| s.stamp) {
            split.favour = FAVOUR;
        }
    }
}

/// Executes a split until something needs the scheduler; gives that and where it happened.
fn run_split(cx: &mut Cx, pc: u32) -> (Flow, u32) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "popcnt")]
    unsafe fn with_popcnt<const CHECKED: bool>(cx: &mut Cx, pc: u32) -> (Flow, u32) {
        // SAFETY: as for the portable call.
        unsafe { run_body::<CHECKED>(cx, pc) }
    }
    let checked = cx.observer.is_some() || cx.dice != 0;
    #[cfg(target_arch = "x86_64")]
    if super::lanes::simd() {
        // SAFETY: `simd` says that the feature is there; a checked launch has a note for every operation.
        return unsafe { if checked { with_popcnt::<true>(cx, pc) } else { with_popcnt::<false>(cx, pc) } };
    }
    if checked {
        // SAFETY: as above.
        return unsafe { run_body::<true>(cx, pc) };
    }
    // SAFETY: splits only ever stand at positions that lowering made.
    unsafe { run_body::<false>(cx, pc) }
}

/// Whether a shuffled schedule lets other warps in between here; not so often that a loop would look like one that spins.
fn interrupts(cx: &mut Cx) -> bool {
    if cx.dice == 0 || cx.interrupts >= INTERRUPTS || cx.roll(8) != 1 {
        return false;
    }
    cx.interrupts += 1;
    true
}

/// # Safety
/// `pc` is a position in the code, the context stands in a frame of that code's function, and the host has
/// the features that the code's handlers were chosen for; if `CHECKED`, there is a note for every operation.
#[inline(always)]
unsafe fn run_body<const CHECKED: bool>(cx: &mut Cx, mut pc: u32) -> (Flow, u32) {
    let mut start = pc;
    loop {
        // SAFETY: every path through a function ends in an operation that jumps or stops, so `pc` stays inside the code.
        let op = unsafe { &*cx.code.add(pc as usize) };
        // SAFETY: guards are predicates of the frame.
        let active = cx.mask & unsafe { cx.pred(op.guard) };
        cx.active = active;
        if CHECKED && cx.following && op.guard >> 1 != PRED_TRUE {
            // SAFETY: as below.
            unsafe { publish::guarded(cx, op, pc) }
        }
        if active != cx.mask {
            // SAFETY: there is one weight more than there are operations.
            let weight = unsafe { *cx.weights.add(pc as usize + 1) - *cx.weights.add(pc as usize) };
            let off = u64::from((cx.mask & !active).count_ones()) * u64::from(weight);
            cx.counters.lane_instructions = cx.counters.lane_instructions.wrapping_sub(off);
            if active == 0 {
                if CHECKED {
                    publish::skipped(cx, pc);
                }
                pc += 1;
                continue;
            }
        }
        if CHECKED {
            // SAFETY: as below; `run_split` takes this way only with notes.
            unsafe { publish::before(cx, op, pc) }
        }
        // SAFETY: the contract of handlers, which lowering established for this operation.
        let flow = unsafe { (op.f)(cx, op) };
        if CHECKED && flow != Flow::Fault {
            // SAFETY: as above.
            unsafe { publish::after(cx, op, pc, flow) }
        }
        if flow == Flow::Next {
            pc += 1;
            continue;
        }
        // SAFETY: there is one weight more than there are operations.
        let issued = u64::from(unsafe { *cx.weights.add(pc as usize + 1) - *cx.weights.add(start as usize) });
        cx.counters.warp_instructions += issued;
        cx.counters.lane_instructions =
            cx.counters.lane_instructions.wrapping_add(issued * u64::from(cx.mask.count_ones()));
        cx.executed += issued;
        if flow != Flow::Jump {
            return (flow, pc);
        }
        let next = cx.next;
        if next <= pc {
            cx.spins += 1;
            if cx.executed > cx.limit && limit::passed(cx, next, pc) {
                return (Flow::Fault, pc);
            }
            let patience = if cx.sync_seen { SPINS } else { LONG_SPINS };
            if cx.spins >= patience || (CHECKED && interrupts(cx)) {
                return (Flow::Yield, pc);
            }
        }
        if next >= cx.stop {
            return (Flow::Jump, pc);
        }
        pc = next;
        start = next;
    }
}
