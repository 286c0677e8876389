//! Undefined values in warp collectives.

use super::super::Rule;
use super::super::checker::Checker;
use super::{access, warp};
use warpsmith_simt::machine::collective::{Exchange, Kind, gather, source};
use warpsmith_simt::machine::lanes::{lane_of, lanes_of};
use warpsmith_simt::machine::note::Reg;
use warpsmith_simt::machine::{Cx, LANES, Op};

/// What lanes bring, and the undefined bits of what they get.
pub(super) struct Brought {
    lanes: u32,
    a: [u64; LANES],
    p: u32,
    origin: u32,
    results: [u64; LANES],
    truths: u32,
}

impl Default for Brought {
    fn default() -> Brought {
        Brought { lanes: 0, a: [0; LANES], p: 0, origin: 0, results: [0; LANES], truths: 0 }
    }
}

/// Takes the undefined bits of what `lanes` of the current frame bring.
///
/// # Safety
/// The contract of handlers: the operation is a collective.
unsafe fn take(c: &mut Checker, cx: &Cx, op: &Op, lanes: u32) {
    let kind = Kind::of(op.imm);
    let Some(w) = c.block.init.warps.get(warp(cx)) else { return };
    let brought = &mut c.init.brought;
    brought.lanes |= lanes;
    if kind.has_value() {
        let reg = if kind.wide() { Reg::Wide(op.a) } else { Reg::Narrow(op.a) };
        for lane in lanes_of(lanes) {
            brought.a[lane] = w.registers.get(cx, reg, lane);
            if brought.a[lane] != 0 {
                brought.origin = w.registers.origin(cx, reg);
            }
        }
    } else {
        let slot = cx.frame_pred + u32::from(op.q >> 1);
        brought.p |= w.registers.pred(slot) & lanes;
        if brought.p & lanes != 0 {
            brought.origin = w.registers.pred_origin(slot);
        }
    }
}

/// Works out the undefined bits of the results for the group `present`.
fn compute(brought: &mut Brought, imm: u64, present: u32, x: &Exchange) {
    let any = lanes_of(present).fold(0, |m, l| m | brought.a[l]);
    let truths = brought.p & present;
    let all = |undefined: bool| if undefined { !0u64 } else { 0 };
    for lane in lanes_of(present) {
        let (result, truth) = match Kind::of(imm) {
            kind @ (Kind::ShflUp | Kind::ShflDown | Kind::ShflBfly | Kind::ShflIdx) => {
                let (from, _) = source(kind, lane as u32, x.b[lane], x.c[lane]);
                // A lane that takes no part has nothing defined to give.
                let bits = if present >> from & 1 != 0 { brought.a[from as usize & 31] } else { !0 };
                (bits, false)
            }
            Kind::VoteAll => (0, truths != 0 && present & !truths & !x.p == 0),
            Kind::VoteAny => (0, truths != 0 && present & !truths & x.p == 0),
            Kind::VoteUni => (0, truths != 0),
            Kind::VoteBallot => (truths.into(), false),
            Kind::ReduxAdd => (any | any.wrapping_neg(), false),
            Kind::ReduxAnd | Kind::ReduxOr | Kind::ReduxXor => (any, false),
            Kind::Elect | Kind::WarpSync => (0, false),
            _ => (all(any != 0), any != 0),
        };
        brought.results[lane] = result;
        brought.truths = brought.truths & !(1 << lane) | u32::from(truth) << lane;
    }
}

/// Gives `lanes` of the current frame their results.
fn apply(c: &mut Checker, cx: &Cx, op: &Op, lanes: u32) {
    let kind = Kind::of(op.imm);
    let brought = &c.init.brought;
    let Some(w) = c.block.init.warps.get_mut(warp(cx)) else { return };
    if kind.has_row() {
        let to = Reg::Narrow(op.d);
        let mut any = 0;
        for lane in lanes_of(lanes) {
            any |= brought.results[lane] as u32;
            w.registers.set(cx, to, lane, brought.results[lane] & 0xffff_ffff);
        }
        if any != 0 {
            w.registers.came(cx, to, brought.origin);
        }
    }
    w.registers.set_pred(cx, op.p, lanes, brought.truths, brought.origin);
}

/// Before a collective that the active lanes execute: checks the operands that decide, and works out the results in case
/// that all lanes are here.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn before(c: &mut Checker, cx: &mut Cx, op: &Op, pc: u32) {
    access::reg_decides(c, cx, pc, Reg::Narrow(op.x), Rule::UndefinedOperand);
    if (op.imm as u8) <= Kind::ShflIdx as u8 {
        access::reg_decides(c, cx, pc, Reg::Narrow(op.b), Rule::UndefinedOperand);
        access::reg_decides(c, cx, pc, Reg::Narrow(op.c), Rule::UndefinedOperand);
    }
    c.init.brought = Brought::default();
    // SAFETY: by the contract.
    unsafe {
        take(c, cx, op, cx.active);
        let mut x = Exchange::default();
        gather(cx, op, cx.active, &mut x);
        let mut rest = cx.active;
        while rest != 0 {
            let mask = |l: usize| lane_of::<u32>(cx.src(op.x), l);
            let first = mask(rest.trailing_zeros() as usize & 31);
            let group = lanes_of(rest).filter(|&l| mask(l) == first).fold(0, |m, l| m | 1 << l);
            compute(&mut c.init.brought, op.imm, group, &x);
            rest &= !group;
        }
    }
}

/// After it.
pub(super) fn after(c: &mut Checker, cx: &mut Cx, op: &Op) {
    apply(c, cx, op, cx.active);
}

/// A party to a collective whose lanes meet from several places brings its values; the context stands in its frame.
///
/// # Safety
/// The contract of handlers.
pub(crate) unsafe fn bring(c: &mut Checker, cx: &Cx, op: &Op, lanes: u32, first: bool) {
    if first {
        c.init.brought = Brought::default();
    }
    // SAFETY: by the contract.
    unsafe { take(c, cx, op, lanes) };
}

/// It gets its results.
pub(crate) fn give(c: &mut Checker, cx: &Cx, op: &Op, lanes: u32, x: &Exchange, first: bool) {
    if first {
        let mut brought = std::mem::take(&mut c.init.brought);
        compute(&mut brought, op.imm, x.present, x);
        c.init.brought = brought;
    }
    apply(c, cx, op, lanes);
}
