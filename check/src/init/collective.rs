//! Undefined values in warp collectives.

use super::access;
use super::exchange::{Brought, compute};
use super::state::{InitCheck, warp};
use crate::Rule;
use warpsmith_simt::machine::collective::{Collective, Exchange, gather};
use warpsmith_simt::machine::lanes::{lane_of, lanes_of};
use warpsmith_simt::machine::note::Reg;
use warpsmith_simt::machine::{Cx, Op};

/// Takes the undefined bits of what `lanes` of the current frame bring.
///
/// # Safety
/// The contract of handlers: the operation is a collective.
unsafe fn take(c: &mut InitCheck<'_>, cx: &Cx, op: &Op, lanes: u32) {
    let kind = Collective::of(op.imm);
    let Some(w) = c.block.warps.get(warp(cx)) else { return };
    let brought = &mut c.launch.brought;
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

/// Gives `lanes` of the current frame their results.
fn apply(c: &mut InitCheck<'_>, cx: &Cx, op: &Op, lanes: u32) {
    let kind = Collective::of(op.imm);
    let brought = &c.launch.brought;
    let Some(w) = c.block.warps.get_mut(warp(cx)) else { return };
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
pub(super) unsafe fn before(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32) {
    access::reg_decides(c, cx, pc, Reg::Narrow(op.x), Rule::UndefinedOperand);
    if (op.imm as u8) <= Collective::ShflIdx as u8 {
        access::reg_decides(c, cx, pc, Reg::Narrow(op.b), Rule::UndefinedOperand);
        access::reg_decides(c, cx, pc, Reg::Narrow(op.c), Rule::UndefinedOperand);
    }
    c.launch.brought = Brought::default();
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
            compute(&mut c.launch.brought, op.imm, group, &x);
            rest &= !group;
        }
    }
}

/// After it.
pub(super) fn after(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op) {
    apply(c, cx, op, cx.active);
}

/// A party to a collective whose lanes meet from several places brings its values; the context stands in its frame.
///
/// # Safety
/// The contract of handlers.
pub(crate) unsafe fn bring(c: &mut InitCheck<'_>, cx: &Cx, op: &Op, lanes: u32, first: bool) {
    if first {
        c.launch.brought = Brought::default();
    }
    // SAFETY: by the contract.
    unsafe { take(c, cx, op, lanes) };
}

/// It gets its results.
pub(crate) fn give(c: &mut InitCheck<'_>, cx: &Cx, op: &Op, lanes: u32, x: &Exchange, first: bool) {
    if first {
        let mut brought = std::mem::take(&mut c.launch.brought);
        compute(&mut brought, op.imm, x.present, x);
        c.launch.brought = brought;
    }
    apply(c, cx, op, lanes);
}
