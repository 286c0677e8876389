//! Asynchronous copies as writes of shared memory.
//!
//! A copy is recorded where it is issued, as a write of its thread. What its own thread must wait for, `check::copies` looks
//! at; other threads must be ordered after it as after any other write of the thread.

use super::access::{Run, flags, spans};
use super::report::{self, CurrentAccess};
use super::shadow::{Now, Span, flag};
use super::state::RaceCheck;
use crate::place::copy_target;
use warpsmith_simt::machine::bounds::Place;
use warpsmith_simt::machine::lanes::lanes_of;
use warpsmith_simt::machine::note::{Access, Does, Order, Scope, Where};
use warpsmith_simt::machine::{Cx, Op};

/// A weak access of so many bytes.
pub(super) const fn weak(does: Does, bytes: u32) -> Access {
    Access {
        does,
        at: Where::Generic,
        size: bytes,
        count: 1,
        order: Order::Weak,
        scope: Scope::Cta,
        nc: false,
        seed: false,
        cas: false,
        objects: 0,
    }
}

/// Records the copies of the active lanes, lanes side by side together.
///
/// # Safety
/// The contract of handlers; the operation is a `cp.async`.
pub(super) unsafe fn copied(c: &mut RaceCheck<'_>, cx: &Cx, op: &Op, pc: u32, warp: u32) {
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
    let access = weak(Does::Store, bytes as u32);
    // SAFETY: by the contract.
    unsafe { record(c, cx, op, (pc, warp), &access, &runs, None) }
}

/// Records accesses whose values nobody knows yet, by the warp's lanes or by an agent (see `bulk`) in its epoch.
///
/// # Safety
/// The contract of handlers; the operation is at `pc`, and `warp` runs.
pub(super) unsafe fn record(
    c: &mut RaceCheck<'_>,
    cx: &Cx,
    op: &Op,
    (pc, warp): (u32, u32),
    access: &Access,
    runs: &[Run],
    agent: Option<(u32, u32)>,
) {
    let block = &mut *c.block;
    let Some(clock) = block.clocks.warp(warp as usize) else { return };
    let here = (block.clocks.block, warp as u8);
    let now = Now { warp: clock, here, talks: c.launch.talks };
    let (who, epoch) = agent.unwrap_or((here.0, clock.epoch));
    let flags = flags(access) | if agent.is_some() { flag::ASYNC } else { 0 };
    let like = Span { block: who, epoch, pc, warp: warp as u8, flags, ..Span::default() };
    for run in runs {
        let found = &mut c.launch.found;
        if run.place == Place::Shared {
            block.shared.bring(&block.clocks, block.size);
            block.shared.apply(run, like, &now, block.size, found);
        } else {
            let global = &mut c.launch.global;
            spans(run, like, |address, span| global.apply(address, span, &now, found));
        }
        let found = std::mem::take(found);
        let (races, clocks) = (&*c.launch, &block.clocks);
        let current = CurrentAccess { races, clocks, block: c.index, warp, op, pc, access, run, opaque: true };
        for (base, conflict) in &found {
            // SAFETY: by the contract.
            unsafe { report::clash(&current, cx, c.findings, *base, conflict) }
        }
    }
}
