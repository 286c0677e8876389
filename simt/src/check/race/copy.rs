//! Asynchronous copies as writes of shared memory.
//!
//! A copy is recorded where it is issued, as a write of its thread. What its own thread must wait for, `check::copies` looks
//! at; other threads must be ordered after it as after any other write of the thread.

use super::access::{Run, flags, spans};
use super::report::{self, Scene};
use super::shadow::{Now, Span};
use crate::check::checker::Checker;
use crate::check::init::copy_target;
use crate::check::note::{Access, Does, Order, Scope, Where};
use crate::exec::bounds::Place;
use crate::exec::lanes::lanes_of;
use crate::exec::{Cx, Op};

/// Records the copies of the active lanes, lanes side by side together.
///
/// # Safety
/// The contract of handlers; the operation is a `cp.async`.
pub(super) unsafe fn copied(c: &mut Checker, cx: &Cx, op: &Op, pc: u32, warp: u32) {
    let bytes = op.imm >> 32;
    if !bytes.is_power_of_two() {
        return;
    }
    let mut runs: Vec<Run> = Vec::new();
    for lane in lanes_of(cx.active) {
        // SAFETY: by the contract.
        let first = unsafe { copy_target(cx, op, lane) };
        if first % bytes != 0 || first.checked_add(bytes).is_none_or(|end| end > cx.shared_bytes.into()) {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.first + run.bytes == first && run.lanes.leading_zeros() == 32 - lane as u32 => {
                run.lanes |= 1 << lane;
                run.bytes += bytes;
            }
            _ => {
                let shift = bytes.trailing_zeros() as u8;
                runs.push(Run { place: Place::Shared, first, bytes, lanes: 1 << lane, shift });
            }
        }
    }
    let access = Access {
        does: Does::Store,
        at: Where::Shared32,
        size: bytes as u32,
        count: 1,
        order: Order::Weak,
        scope: Scope::Cta,
        nc: false,
        seed: false,
        cas: false,
    };
    let block = &mut c.block.races;
    let Some(clock) = block.clocks.warp(warp as usize) else { return };
    let now = Now { warp: clock, here: (block.clocks.block, warp as u8), talks: c.races.talks };
    let like = Span {
        block: block.clocks.block,
        epoch: clock.epoch,
        pc,
        warp: warp as u8,
        flags: flags(&access),
        ..Span::default()
    };
    for run in &runs {
        let (shadow, found) = (&mut block.shared, &mut c.races.found);
        spans(run, like, |address, span| shadow.apply(address, span, &now, found));
        let found = std::mem::take(found);
        let (races, clocks, access) = (&c.races, &block.clocks, &access);
        let scene = Scene { races, clocks, block: c.block.index, warp, op, pc, access, run, copy: true };
        for (base, conflict) in &found {
            // SAFETY: by the contract.
            unsafe { report::clash(&scene, cx, &mut c.findings, *base, conflict) }
        }
    }
}
