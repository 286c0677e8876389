//! Where splits of one warp meet for a collective.
//!
//! Arrivals match by the kind of the collective and its membermask, not by position: a shuffle
//! that a compiler copied into both arms of a branch still exchanges values between them.

use super::collective::{compute, gather, named, scatter, unnamed};
use super::exchange::{COLLECTIVE, Collective, Exchange};
use super::lanes::lanes_of;
use super::layout::Row;
use super::warp::{Split, State, Warp};
use super::{Cx, Flow};
use crate::observer::{Meeting, Party};
use crate::program::Program;

/// Lanes arrive at the collective at `pc`; the context stands in their frame.
pub(crate) fn arrive(
    warp: &mut Warp,
    cx: &mut Cx,
    program: &Program,
    pools: &[Vec<Row>],
    pc: u32,
    lanes: u32,
    frame: u32,
) -> Flow {
    let op = &program.ops[pc as usize];
    if op.imm & COLLECTIVE == 0 {
        warp.add(pc, lanes, frame, State::Converge);
        complete(warp, cx, program, pools);
        return Flow::Next;
    }
    for lane in lanes_of(lanes) {
        // SAFETY: the operation is a collective, and the context stands in the lanes' frame.
        let mask = unsafe { named(cx, op, lane) };
        if mask >> lane & 1 == 0 {
            return unnamed(cx, op, lane, mask);
        }
        warp.add(pc, 1 << lane, frame, State::Collective { imm: op.imm, mask });
    }
    complete(warp, cx, program, pools);
    Flow::Next
}

/// Performs every collective that all its lanes have reached.
pub(crate) fn complete(warp: &mut Warp, cx: &mut Cx, program: &Program, pools: &[Vec<Row>]) {
    let mut i = 0;
    while i < warp.splits.len() {
        let state = warp.splits[i].state;
        let done = match state {
            State::Collective { mask, .. } => {
                let here = warp.splits.iter().filter(|s| s.state == state).fold(0, |m, s| m | s.mask);
                let all = here == mask & warp.live;
                if all {
                    perform(warp, cx, program, pools, state);
                }
                all
            }
            State::Converge => {
                let split = warp.splits[i];
                let all = split.mask == warp.live;
                if all {
                    warp.splits[i].state = State::Ready;
                }
                all
            }
            State::Ready | State::Barrier { .. } => false,
        };
        if !done {
            i += 1;
        }
    }
}

/// What the observer is told of a split in a collective.
fn party<'a>(warp: &Warp, program: &'a Program, split: Split, first: bool) -> Party<'a> {
    Party { op: &program.ops[split.pc as usize], pc: split.pc, warp: warp.index, lanes: split.mask, first }
}

fn perform(warp: &mut Warp, cx: &mut Cx, program: &Program, pools: &[Vec<Row>], state: State) {
    let State::Collective { imm, .. } = state else { return };
    let mut exchange = Exchange::default();
    let parties: Vec<usize> = (0..warp.splits.len()).filter(|&i| warp.splits[i].state == state).collect();
    for &i in &parties {
        let split = warp.splits[i];
        warp.enter(cx, program, pools, split.frame);
        // SAFETY: the split waits at a collective, and the context stands in its frame.
        unsafe { gather(cx, &program.ops[split.pc as usize], split.mask, &mut exchange) };
        if cx.following {
            let party = party(warp, program, split, i == parties[0]);
            // SAFETY: as above.
            cx.observe(|o, cx| unsafe { o.gathered(cx, &party) });
        }
    }
    compute(imm, &mut exchange);
    for &i in &parties {
        let split = warp.splits[i];
        warp.enter(cx, program, pools, split.frame);
        let party = party(warp, program, split, i == parties[0]);
        // SAFETY: as above.
        cx.observe(|o, cx| unsafe { o.scatters(cx, &party) });
        // SAFETY: as above.
        unsafe { scatter(cx, &program.ops[split.pc as usize], split.mask, &exchange) };
        if cx.following {
            cx.observe(|o, cx| o.scattered(cx, &party, &exchange));
        }
        warp.splits[i].state = State::Ready;
        warp.splits[i].pc = split.pc + 1;
    }
    if cx.observer.is_some() {
        let sites: Vec<(u32, u32)> = parties.iter().map(|&i| (warp.splits[i].pc - 1, warp.splits[i].mask)).collect();
        let meeting = Meeting { warp: warp.index, lanes: exchange.present, kind: Collective::of(imm), sites: &sites };
        cx.observe(|o, _| o.met(&meeting));
    }
    cx.counters.collectives += 1;
    cx.progress += 1;
}
