//! Arrivals at block barriers, and how waiting splits go on.
//!
//! A warp arrives when all its lanes that have not exited are at the barrier: for `.aligned` ones at
//! the same instruction, else anywhere. `block` opens a barrier when all its warps, or as many threads as
//! were asked for, have arrived.

use super::barrier::{BARRIERS, Barrier, CLUSTER, bar, numbered};
use super::lanes::{lane_of, lanes_of, set_lane};
use super::layout::Row;
use super::warp::{State, Warp};
use super::{Cx, Flow, Op};
use crate::fault::{BarrierDispute, FaultKind, Reason, Waiter, Waits};
use crate::program::Program;

impl Warp {
    /// Lanes come to a block barrier.
    pub(super) fn arrive(
        &mut self,
        cx: &mut Cx,
        op: &Op,
        pc: u32,
        lanes: u32,
        frame: u32,
        barriers: &mut [Barrier; BARRIERS],
    ) -> Flow {
        if op.imm & bar::CLUSTER != 0 {
            return self.cluster(cx, op, pc, lanes, frame, barriers);
        }
        let lane = lanes.trailing_zeros() as usize & 31;
        let counted = op.imm & bar::COUNT != 0;
        // SAFETY: lowering made `a` and, with a count, `b` rows of 32 bits; the frame is current.
        let (id, count, alike) = unsafe {
            let (ids, counts) = (cx.src(op.a), cx.src(if counted { op.b } else { op.a }));
            let (id, count) = (lane_of::<u32>(ids, lane), lane_of::<u32>(counts, lane));
            let alike = |l| lane_of::<u32>(ids, l) == id && lane_of::<u32>(counts, l) == count;
            (id, if counted { count } else { 0 }, lanes_of(lanes).all(alike))
        };
        let wrong = if !alike {
            Some(BarrierDispute::Operands)
        } else if id >= CLUSTER {
            Some(BarrierDispute::Number { barrier: id, last: CLUSTER - 1 })
        } else if count % 32 != 0 || (count == 0 && counted) {
            Some(BarrierDispute::Threads { threads: count })
        } else {
            None
        };
        if let Some(dispute) = wrong {
            return disputed(cx, op, lane as u32, dispute);
        }
        let barrier = &mut barriers[id as usize];
        let first = barrier.set == 0 && barrier.arrived == 0 && self.at_barrier[id as usize] == 0;
        if first {
            barrier.expected = count;
        } else if barrier.expected != count {
            let dispute = BarrierDispute::Counts { barrier: id, first: barrier.expected, now: count };
            return disputed(cx, op, lane as u32, dispute);
        }
        if op.imm & bar::KIND >= bar::RED_POPC {
            // SAFETY: lowering made `q` a predicate of the frame.
            let yes = (unsafe { cx.pred(op.q) } & lanes).count_ones();
            barrier.yes += yes;
            barrier.no += lanes.count_ones() - yes;
        }
        self.at_barrier[id as usize] |= lanes;
        if op.imm & bar::KIND == bar::ARRIVE {
            self.add(pc + 1, lanes, frame, State::Ready);
        } else {
            self.add(pc, lanes, frame, State::Barrier { id });
        }
        self.arrived(cx, id, op.imm & bar::ALIGNED != 0, barriers)
    }

    /// Lanes come to the barrier of their cluster, which is one block: they arrive, or wait until all threads that have not
    /// exited have arrived.
    fn cluster(
        &mut self,
        cx: &mut Cx,
        op: &Op,
        pc: u32,
        lanes: u32,
        frame: u32,
        barriers: &mut [Barrier; BARRIERS],
    ) -> Flow {
        let arrives = op.imm & bar::KIND == bar::ARRIVE;
        let wrong = if arrives { lanes & self.owed } else { lanes & !self.owed };
        if wrong != 0 {
            let dispute = if arrives { BarrierDispute::ArrivesAgain } else { BarrierDispute::NotArrived };
            return disputed(cx, op, wrong.trailing_zeros() & 31, dispute);
        }
        if arrives {
            self.owed |= lanes;
            self.pending |= lanes;
            self.at_barrier[CLUSTER as usize] |= lanes;
            if op.imm & bar::RELAXED != 0 {
                barriers[CLUSTER as usize].relaxed |= 1 << self.index;
            }
            self.add(pc + 1, lanes, frame, State::Ready);
            return self.arrived(cx, CLUSTER, false, barriers);
        }
        self.owed &= !lanes;
        cx.progress += 1;
        let (late, done) = (lanes & self.pending, lanes & !self.pending);
        self.add(pc, late, frame, State::Barrier { id: CLUSTER });
        self.add(pc + 1, done, frame, State::Ready);
        if done != 0 {
            cx.observe(|o, _| o.cluster_waited(self.index, done));
        }
        Flow::Next
    }

    /// Counts the warp's arrival at a barrier if all its lanes are there.
    fn arrived(&mut self, cx: &mut Cx, id: u32, aligned: bool, barriers: &mut [Barrier; BARRIERS]) -> Flow {
        let lanes = self.at_barrier[id as usize];
        if lanes == 0 || self.live & !lanes != 0 {
            return Flow::Next;
        }
        let mut waiting = self.splits.iter().filter(|s| s.state == State::Barrier { id });
        if aligned
            && let Some(first) = waiting.next()
            && let Some(other) = waiting.find(|s| (s.pc, s.frame) != (first.pc, first.frame))
        {
            let (here, elsewhere) = (first.mask, other.mask);
            let dispute = BarrierDispute::Places { here, elsewhere };
            // SAFETY: positions of splits lie inside the code.
            let op = unsafe { &*cx.code.add(first.pc as usize) };
            let flow = disputed(cx, op, here.trailing_zeros() & 31, dispute);
            let waiters = self.splits.iter().filter(|s| s.state == State::Barrier { id });
            let warp = self.index;
            let does = Waits::AtBarrier { barrier: numbered(id), arrived: None, lanes: 0, warps: Vec::new() };
            let waiters = waiters.map(|s| Waiter::new(warp, s.mask, s.pc, does.clone()));
            if let Some(fault) = &mut cx.fault {
                fault.waiters = waiters.collect();
            }
            return flow;
        }
        self.at_barrier[id as usize] = 0;
        let barrier = &mut barriers[id as usize];
        barrier.set |= 1 << self.index;
        barrier.arrived += 1;
        cx.counters.barriers += 1;
        cx.progress += 1;
        if cx.observer.is_some() && barrier.relaxed >> self.index & 1 == 0 {
            let waits = self.splits.iter().any(|s| s.state == State::Barrier { id });
            cx.observe(|o, _| o.barrier_arrived(self.index, id, waits));
        }
        Flow::Next
    }

    /// After an exit, arrivals that waited for the lanes that are gone.
    pub(super) fn arrivals(&mut self, cx: &mut Cx, program: &Program, barriers: &mut [Barrier; BARRIERS]) -> Flow {
        for id in 0..BARRIERS as u32 {
            if self.at_barrier[id as usize] == 0 {
                continue;
            }
            let aligned = self
                .splits
                .iter()
                .any(|s| s.state == State::Barrier { id } && program.ops[s.pc as usize].imm & bar::ALIGNED != 0);
            if self.arrived(cx, id, aligned, barriers) == Flow::Fault {
                return Flow::Fault;
            }
        }
        Flow::Next
    }

    /// Lets the splits that wait at a barrier go on.
    pub fn release(&mut self, cx: &mut Cx, program: &Program, pools: &[Vec<Row>], id: u32, barrier: &Barrier) {
        if id == CLUSTER {
            self.pending = 0;
        }
        for i in 0..self.splits.len() {
            let split = self.splits[i];
            if split.state != (State::Barrier { id }) {
                continue;
            }
            if id == CLUSTER {
                cx.observe(|o, _| o.cluster_waited(self.index, split.mask));
            }
            self.splits[i].state = State::Ready;
            self.splits[i].pc = split.pc + 1;
            let op = &program.ops[split.pc as usize];
            if op.imm & bar::KIND < bar::RED_POPC {
                continue;
            }
            self.enter(cx, program, pools, split.frame);
            cx.active = split.mask;
            // SAFETY: lowering made `d` a row of 32 bits for popc, and `p` a predicate.
            unsafe {
                match op.imm & bar::KIND {
                    bar::RED_POPC => lanes_of(split.mask).for_each(|l| set_lane(cx.dst(op.d), l, barrier.yes)),
                    bar::RED_AND => cx.set_pred(op.p, if barrier.no == 0 { !0 } else { 0 }),
                    _ => cx.set_pred(op.p, if barrier.yes != 0 { !0 } else { 0 }),
                }
            }
        }
    }
}

/// Raises the fault of threads that disagree about a barrier.
fn disputed(cx: &mut Cx, op: &Op, lane: u32, dispute: BarrierDispute) -> Flow {
    cx.raise(op, FaultKind::DivergentBarrier, lane, None, Some(Reason::Barrier(dispute)))
}
