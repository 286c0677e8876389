//! Undefined bytes of asynchronous copies, bulk copies and mbarrier objects.

use super::access::row_decides;
use super::bytes::{Left, brought, get, narrowed, set};
use super::origins::UNSET;
use super::state::{InitCheck, warp};
use crate::Rule;
use crate::place::{Place, copy_target};
use warpsmith_simt::machine::atom::{self, via};
use warpsmith_simt::machine::lanes::{lane_of, lanes_of};
use warpsmith_simt::machine::note::Reg;
use warpsmith_simt::machine::remote::{self, Target};
use warpsmith_simt::machine::shadow::low;
use warpsmith_simt::machine::words::{Bulk, CopyAsync, Via, Words};
use warpsmith_simt::machine::{Cx, Op, bounds, bulk, fill};

/// The same of an asynchronous copy.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn copy_decides(c: &mut InitCheck<'_>, cx: &Cx, op: &Op, pc: u32) {
    // SAFETY: by the contract, the operation has a list.
    let wide = unsafe { CopyAsync::of(cx, op) }.wide;
    row_decides(c, cx, pc, op.a, wide, Rule::UndefinedAddress);
    row_decides(c, cx, pc, op.b, true, Rule::UndefinedAddress);
    row_decides(c, cx, pc, op.c, false, Rule::UndefinedOperand);
}

/// Follows an asynchronous copy: the source's bits, and zeros behind them.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn copy_done(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32) {
    // SAFETY: by the contract, as in `exec::mem::copy_async`.
    unsafe {
        let CopyAsync { site, from_offset, .. } = CopyAsync::of(cx, op);
        let offset = from_offset.bits();
        let bytes = op.imm >> 32;
        for lane in lanes_of(cx.active) {
            let to = copy_target(cx, op, lane);
            let from = lane_of::<u64>(cx.src(op.b), lane).wrapping_add(offset);
            let wanted = u64::from(lane_of::<u32>(cx.src(op.c), lane)).min(bytes);
            let bits = match wanted {
                0 => 0,
                n => get(c.block, &mut c.launch.sites, cx, site, Place::Global, from, n, lane),
            };
            let missing = !bits & low(wanted);
            let origin = match missing {
                0 => UNSET,
                _ => brought(c, cx, pc, site, (Place::Global, from, wanted, lane), missing),
            };
            let bits = bits | !low(wanted);
            set(c, cx, &Left { site, pc, place: Place::Shared, at: to, bytes, lane, bits, origin });
        }
    }
}

/// Whether the operands of a bulk copy are undefined.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn bulk_decides(c: &mut InitCheck<'_>, cx: &Cx, op: &Op, pc: u32) {
    // SAFETY: by the contract; the list is a `Bulk`.
    let (Bulk { to, from, masked, .. }, mask) = unsafe { (Bulk::of(cx, op), Bulk::row(cx, op, 1)) };
    row_decides(c, cx, pc, op.a, to.via != via::SHARED32, Rule::UndefinedAddress);
    row_decides(c, cx, pc, op.b, from.via != via::SHARED32, Rule::UndefinedAddress);
    row_decides(c, cx, pc, op.c, false, Rule::UndefinedOperand);
    if masked {
        row_decides(c, cx, pc, mask, false, Rule::UndefinedOperand);
    }
}

/// Follows a bulk copy. A reduction leaves defined what was, and undefined what either side has undefined.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn bulk_done(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32) {
    // SAFETY: by the contract; `exec::bulk` says what the list holds.
    unsafe {
        let list = Bulk::of(cx, op);
        let (to_site, from_site) = (list.to.site, list.from.site);
        let reduces = list.reduction != bulk::NO_REDUCTION;
        for lane in lanes_of(cx.active) {
            let bytes = u64::from(lane_of::<u32>(cx.src(op.c), lane));
            let (to, from) = bulk::ends(cx, op, &list, lane);
            let ((to_place, to), (from_place, from)) = (named(to), named(from));
            let turns = |(first, count): (u64, u64)| {
                (0..count).step_by(64).map(move |done| (first + done, (count - done).min(64)))
            };
            for (done, n) in bulk::parts(bytes, bulk::mask(cx, op, &list, lane)).flat_map(turns) {
                let (block, sites) = (&*c.block, &mut c.launch.sites);
                let (from, at) = (from + done, to + done);
                let mut bits = get(block, sites, cx, from_site, from_place, from, n, lane);
                let mut load = (from_site, from_place, from);
                if reduces {
                    let old = get(block, sites, cx, to_site, to_place, at, n, lane);
                    if bits & low(n) == low(n) {
                        load = (to_site, to_place, at);
                    }
                    bits &= old;
                }
                let missing = !bits & low(n);
                let origin = match missing {
                    0 => UNSET,
                    _ => brought(c, cx, pc, load.0, (load.1, load.2, n, lane), missing),
                };
                set(c, cx, &Left { site: to_site, pc, place: to_place, at, bytes: n, lane, bits, origin });
            }
        }
    }
}

fn named((place, at): (bounds::Place, u64)) -> (Place, u64) {
    match place {
        bounds::Place::Global => (Place::Global, at),
        bounds::Place::Shared => (Place::Shared, at),
        bounds::Place::Local => (Place::Local, at),
        bounds::Place::Param => (Place::Other, at),
    }
}

/// Follows `st.async` and `red.async`. A reduction leaves undefined what either side has undefined.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn stored(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32) {
    for lane in lanes_of(cx.active) {
        // SAFETY: by the contract.
        let target = unsafe { Target::of(cx, op, lane) };
        let (mut undefined, mut origin) = (0, UNSET);
        for j in 0..target.count as usize {
            // SAFETY: by the contract, the list has a row for each element.
            let row = unsafe { remote::element(cx, op, j) };
            let reg = if target.size == 8 { Reg::Wide(row) } else { Reg::Narrow(row) };
            let w = c.block.warps.get(warp(cx)).filter(|_| cx.following);
            let bits = w.map_or(0, |w| narrowed(w.registers.get(cx, reg, lane)));
            undefined |= (bits & low(target.size)) << (j as u64 * target.size);
            if bits != 0 {
                origin = w.map_or(UNSET, |w| w.registers.origin(cx, reg));
            }
        }
        let (bytes, (place, at)) = (target.bytes(), named(target.to));
        if target.reduces() {
            let old = !get(c.block, &mut c.launch.sites, cx, 0, place, at, bytes, lane) & low(bytes);
            if old != 0 {
                origin = brought(c, cx, pc, 0, (place, at, bytes, lane), old);
            }
            undefined |= old;
        }
        let bits = !undefined & low(bytes);
        set(c, cx, &Left { site: 0, pc, place, at, bytes, lane, bits, origin });
    }
}

/// Follows `st.bulk`: zeros are defined.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn filled(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32) {
    for lane in lanes_of(cx.active) {
        // SAFETY: by the contract.
        let ((to, bytes), site) = unsafe { (fill::range(cx, op, lane), Via::of(cx, op).site) };
        let (place, at) = named(to);
        for done in (0..bytes).step_by(64) {
            let bytes = (bytes - done).min(64);
            set(c, cx, &Left { site, pc, place, at: at + done, bytes, lane, bits: low(bytes), origin: UNSET });
        }
    }
}

/// Whatever an operation on an mbarrier object found, now it is an object.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn object_done(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op) {
    for lane in lanes_of(cx.active) {
        // SAFETY: by the contract; addresses are found as those of atomics.
        if let (Place::Shared, at) = named(unsafe { atom::address(cx, op, lane) }) {
            c.block.set_shared(at, 8, low(8), UNSET);
        }
    }
}
