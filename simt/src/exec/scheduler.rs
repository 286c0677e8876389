//! Which split of a warp runs next, how far, and where its lanes go then.
//!
//! Of the splits that can run, the one with the deepest call and then the lowest position does. A split that jumps backwards long
//! enough while it looks like a spin loop makes way for the one that has waited longest.

use super::barrier::{BARRIERS, Barrier};
use super::context::SPINS;
use super::control::indexed_target;
use super::lanes::lanes_of;
use super::layout::PRED_TRUE;
use super::warp::{Split, State, Stop, Warp};
use super::{Cx, Flow, Op, limit, publish, rendezvous};
use crate::program::Grid;

/// Scheduling decisions for which a split that was let through keeps its preference.
const FAVOUR: u32 = 256;
/// Backward jumps before a split that does not look like a spin loop makes way.
const LONG_SPINS: u32 = 1 << 20;
/// Interruptions of a block's warps by a shuffled schedule.
const INTERRUPTS: u32 = 4096;

impl Warp {
    /// Runs until no split can.
    pub fn run(&mut self, cx: &mut Cx, grid: &Grid<'_>, barriers: &mut [Barrier; BARRIERS]) -> Stop {
        cx.tid = [0, 1, 2].map(|i| self.tid[i].0.as_ptr());
        cx.spins = 0;
        cx.sync_seen = false;
        loop {
            let Some(mut split) = self.pick(cx) else {
                return if self.splits.is_empty() { Stop::Done } else { Stop::Blocked };
            };
            self.stamp += 1;
            split.stamp = self.stamp;
            self.enter(cx, grid.program, grid.pools, split.frame);
            let depth = self.depth(&split);
            let others = self.splits.iter().filter(|s| s.state == State::Ready && self.depth(s) == depth);
            cx.stop = if split.favour > 0 { 0 } else { others.map(|s| s.pc).min().unwrap_or(u32::MAX) };
            cx.mask = split.mask;
            let (flow, pc) = run_split(cx, split.pc);
            split.favour = split.favour.saturating_sub(1);
            let stop = match flow {
                Flow::Next | Flow::Jump | Flow::Diverge | Flow::Scatter | Flow::Yield | Flow::Turn => {
                    self.go_on(cx, &grid.program.ops[pc as usize], pc, split, flow)
                }
                _ => self.leave(cx, grid, pc, split, flow, barriers),
            };
            if let Some(stop) = stop {
                return stop;
            }
        }
    }

    /// Puts a split back that has stopped at `pc`, in parts where its lanes go different ways.
    #[inline]
    fn go_on(&mut self, cx: &mut Cx, op: &Op, pc: u32, mut split: Split, flow: Flow) -> Option<Stop> {
        match flow {
            Flow::Diverge => {
                let other = Split { pc: op.c, mask: split.mask & !cx.taken, ..split };
                self.splits.push(Split { pc: cx.next, mask: cx.taken, ..split });
                self.splits.push(other);
            }
            Flow::Scatter => {
                for lane in lanes_of(cx.active) {
                    // SAFETY: the handler has checked every active lane's index.
                    let target = unsafe { indexed_target(cx, op, lane) };
                    self.add(target.unwrap_or(pc + 1), 1 << lane, split.frame, State::Ready);
                }
                self.add(pc + 1, split.mask & !cx.active, split.frame, State::Ready);
            }
            Flow::Yield => {
                split.pc = cx.next;
                split.favour = 0;
                self.splits.push(split);
                self.let_through(split.stamp);
                return Some(Stop::Spinning);
            }
            Flow::Turn => {
                // It goes on before others of its warp, as if it had not stopped.
                (split.pc, split.favour) = (pc + 1, split.favour + 1);
                self.splits.push(split);
                self.waits_for_turn = true;
                return Some(Stop::Turn);
            }
            _ => {
                split.pc = cx.next;
                self.splits.push(split);
            }
        }
        None
    }

    /// Takes the active lanes of a split where the operation at `pc` sends them: to others that they meet, into a function or out
    /// of one, or to the end. The rest of the split goes on behind it.
    #[inline]
    fn leave(
        &mut self,
        cx: &mut Cx,
        grid: &Grid<'_>,
        pc: u32,
        split: Split,
        flow: Flow,
        barriers: &mut [Barrier; BARRIERS],
    ) -> Option<Stop> {
        if flow == Flow::Fault {
            self.splits.push(split);
            return Some(Stop::Fault);
        }
        let (program, pools, lanes, frame) = (grid.program, grid.pools, cx.active, split.frame);
        // In its place: faults are located by it.
        let op = &program.ops[pc as usize];
        self.add(pc + 1, split.mask & !lanes, frame, State::Ready);
        let after = match flow {
            Flow::Rendezvous => rendezvous::arrive(self, cx, program, pools, pc, lanes, frame),
            Flow::Barrier => self.arrive(cx, op, pc, lanes, frame, barriers),
            Flow::Call => self.call(cx, program, pools, op, pc, lanes, frame),
            Flow::Ret if frame != 0 => {
                self.give_back(program, lanes, frame);
                self.left(cx, program, lanes, frame);
                Flow::Next
            }
            _ => self.exit(cx, grid, pc, lanes, barriers),
        };
        (after == Flow::Fault).then_some(Stop::Fault)
    }

    /// Lanes exit, and with that may complete what others wait for.
    fn exit(&mut self, cx: &mut Cx, grid: &Grid<'_>, pc: u32, lanes: u32, barriers: &mut [Barrier; BARRIERS]) -> Flow {
        self.live &= !lanes;
        self.exits.push((pc, lanes));
        cx.observe(|o, _| o.exited(self.index, lanes));
        cx.live = self.live;
        cx.progress += 1;
        rendezvous::complete(self, cx, grid.program, grid.pools);
        self.arrivals(cx, grid.program, barriers)
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

/// The guard that holds in every lane.
const UNGUARDED: u16 = PRED_TRUE << 1;

/// # Safety
/// `pc` is a position in the code, the context stands in a frame of that code's function, and the host has
/// the features that the code's handlers were chosen for; if `CHECKED`, there is a note for every operation.
#[inline(always)]
unsafe fn run_body<const CHECKED: bool>(cx: &mut Cx, mut pc: u32) -> (Flow, u32) {
    let mut start = pc;
    loop {
        // SAFETY: every path through a function ends in an operation that jumps or stops, so `pc` stays inside the code.
        let op = unsafe { &*cx.code.add(pc as usize) };
        // Most operations have no guard, which is looked at first: asking for its predicate would be half of the loop.
        // SAFETY: guards are predicates of the frame.
        let active = if op.guard == UNGUARDED { cx.mask } else { cx.mask & unsafe { cx.pred(op.guard) } };
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
