//! Undefined bytes of memory: what loads bring, what stores leave.

use super::allocation::{Known, extent_of, global, range_of, shared_extent};
use super::bytes::{Left, brought, get, narrowed, note_writer, set, widened};
use super::origins::UNSET;
use super::report;
use super::state::{InitCheck, warp};
use crate::Rule;
use crate::defect::Decides;
use crate::place::address;
use warpsmith_simt::machine::lanes::{lane_of, lanes_of};
use warpsmith_simt::machine::note::{Access, Does, Note, Reg, Taint, Where};
use warpsmith_simt::machine::shadow::low;
use warpsmith_simt::machine::words::{Atomic, Plain, Via, Words};
use warpsmith_simt::machine::{Cx, LANES, Op};

/// Whether a site's global accesses all lie in one allocation all of whose touched range is defined.
unsafe fn plainly_defined(sites: &mut [Known], cx: &Cx, op: &Op, site: u32, bytes: u64) -> bool {
    // SAFETY: the caller's operation has its addresses in a row of 64 bits.
    let (first, span) = unsafe { range_of(cx, op, bytes) };
    match global(sites, cx, site, first) {
        None => sites.get(site as usize).is_some_and(|k| first.wrapping_sub(k.base) < k.size && span <= k.size),
        Some((shadow, at)) => {
            let inside = sites.get(site as usize).is_some_and(|k| span <= k.size - at);
            inside && (shadow.full() || span <= 8192 && shadow.all(at, span))
        }
    }
}

/// Reports a register that decides something, and counts it as defined from then on.
pub(super) fn reg_decides(c: &mut InitCheck<'_>, cx: &Cx, pc: u32, reg: Reg, rule: Rule) {
    let Some(w) = c.block.warps.get_mut(warp(cx)) else { return };
    let lanes = w.registers.undefined(cx, reg, cx.active);
    if lanes == 0 {
        return;
    }
    let origin = w.registers.origin(cx, reg);
    w.registers.define(cx, reg, lanes);
    let what = match rule {
        Rule::UndefinedBranch => Decides::ControlFlow,
        Rule::UndefinedAddress => Decides::Address,
        _ => Decides::Operand,
    };
    report::deciding(c, cx, rule, pc, lanes, origin, what);
}

pub(super) fn row_decides(c: &mut InitCheck<'_>, cx: &Cx, pc: u32, at: u32, wide: bool, rule: Rule) {
    reg_decides(c, cx, pc, if wide { Reg::Wide(at) } else { Reg::Narrow(at) }, rule);
}

/// Whether an access's address, or what a compare-and-swap compares with, is undefined.
pub(super) fn decides(c: &mut InitCheck<'_>, cx: &Cx, op: &Op, pc: u32, access: &Access) {
    let wide = match access.at {
        Where::Frame | Where::Param | Where::Const => return,
        Where::Shared32 | Where::Local32 => false,
        _ => true,
    };
    row_decides(c, cx, pc, op.a, wide, Rule::UndefinedAddress);
    if access.cas && access.size <= 8 {
        row_decides(c, cx, pc, op.b, access.size == 8, Rule::UndefinedOperand);
    }
}

/// Follows an access that has been executed.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn done(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32, note: &Note, access: &Access) {
    // SAFETY: by the contract.
    unsafe {
        match (access.does, note.taint) {
            (Does::Load, _) => load(c, cx, op, pc, access),
            (Does::Store, _) => store(c, cx, op, pc, access),
            (Does::Atomic, taint) => atomic(c, cx, op, pc, access, taint == Taint::Exchange),
        }
    }
}

fn element(access: &Access, at: u32) -> Reg {
    if access.size == 8 { Reg::Wide(at) } else { Reg::Narrow(at) }
}

unsafe fn load(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32, access: &Access) {
    let bytes = access.bytes();
    // SAFETY: by the contract of `done`.
    unsafe {
        let site = Plain::of(cx, op).site;
        let easy = match access.at {
            Where::Param | Where::Const => true,
            Where::Global => plainly_defined(&mut c.launch.sites, cx, op, site, bytes),
            Where::Shared32 => c.block.shared_defined(shared_extent(cx, op, bytes)),
            _ => false,
        };
        if easy && !cx.following {
            return;
        }
        let mut missing = [0u32; LANES];
        let mut lanes = 0;
        if !easy {
            for lane in lanes_of(cx.active) {
                let (place, at) = address(cx, op, access.at, lane);
                let bits = get(c.block, &mut c.launch.sites, cx, site, place, at, bytes, lane);
                missing[lane] = (!bits & low(bytes)) as u32;
                lanes |= u32::from(missing[lane] != 0) << lane;
            }
        }
        if lanes == 0 && !cx.following {
            return;
        }
        let mut origin = 0;
        if lanes != 0 {
            let lane = lanes.trailing_zeros() as usize & 31;
            let (place, at) = address(cx, op, access.at, lane);
            origin = brought(c, cx, pc, site, (place, at, bytes, lane), missing[lane].into());
        }
        let Some(w) = c.block.warps.get_mut(warp(cx)) else { return };
        if lanes != 0 {
            w.registers.make();
            (w.tainted, cx.following) = (true, true);
        }
        for j in 0..access.count {
            let to = element(access, Plain::row(cx, op, j as usize));
            if lanes == 0 {
                w.registers.define(cx, to, cx.active);
                continue;
            }
            let mut any = false;
            for lane in lanes_of(cx.active) {
                let bits = widened(u64::from(missing[lane]) >> (j * access.size) & low(access.size.into()));
                any |= bits != 0;
                w.registers.set(cx, to, lane, bits);
            }
            if any {
                w.registers.came(cx, to, origin);
            }
        }
    }
}

unsafe fn store(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32, access: &Access) {
    let bytes = access.bytes();
    // SAFETY: by the contract of `done`.
    unsafe {
        let site = Plain::of(cx, op).site;
        let rows: [Reg; 8] =
            std::array::from_fn(|j| element(access, if j < access.count as usize { Plain::row(cx, op, j) } else { 0 }));
        let rows = &rows[..(access.count as usize).min(8)];
        let clean = !cx.following
            || c.block.warps.get(warp(cx)).is_none_or(|w| rows.iter().all(|&r| !w.registers.touched(cx, r)));
        if clean
            && access.at == Where::Global
            && cx.active == !0
            && plain_store(&mut c.launch.sites, cx, op, site, bytes)
        {
            let thread = (c.index, warp(cx) as u32, 0);
            return note_writer(c, cx, site, lane_of::<u64>(cx.src(op.a), 0).wrapping_add(op.imm), pc, thread);
        }
        for lane in lanes_of(cx.active) {
            let (place, at) = address(cx, op, access.at, lane);
            let (mut undefined, mut origin) = (0, UNSET);
            if let Some(w) = c.block.warps.get(warp(cx)).filter(|_| !clean) {
                for (j, &row) in rows.iter().enumerate() {
                    let bits = narrowed(w.registers.get(cx, row, lane)) & low(access.size.into());
                    undefined |= bits << (j as u32 * access.size);
                    if bits != 0 {
                        origin = w.registers.origin(cx, row);
                    }
                }
            }
            set(c, cx, &Left { site, pc, place, at, bytes, lane, bits: !undefined, origin });
        }
    }
}

/// A store of defined values to consecutive places, or to memory that is defined already.
unsafe fn plain_store(sites: &mut [Known], cx: &Cx, op: &Op, site: u32, bytes: u64) -> bool {
    // SAFETY: by the contract of `done`, `a` is a row of 64 bits.
    unsafe {
        let (lowest, highest) = extent_of::<u64>(cx, cx.src(op.a));
        let (first, span) = (lowest.wrapping_add(op.imm), highest - lowest + bytes);
        let Some((shadow, at)) = global(sites, cx, site, first) else {
            return sites.get(site as usize).is_some_and(|k| first.wrapping_sub(k.base) < k.size && span <= k.size);
        };
        if sites.get(site as usize).is_none_or(|k| span > k.size - at) {
            return false;
        }
        let linear = || (0..LANES).all(|l| lane_of::<u64>(cx.src(op.a), l) == lowest.wrapping_add(l as u64 * bytes));
        if shadow.full() {
            return true;
        }
        if span != 32 * bytes || !linear() {
            return false;
        }
        shadow.define(at, span);
        true
    }
}

unsafe fn atomic(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32, access: &Access, exchange: bool) {
    let bytes = access.bytes();
    if bytes == 16 {
        // SAFETY: as for this.
        return unsafe { atomic128(c, cx, op, pc, access) };
    }
    // SAFETY: by the contract of `done`; the list says whether there is a result.
    unsafe {
        let Atomic { at: Via { site, .. }, result, .. } = Atomic::of(cx, op);
        let (operand, other) = (element(access, op.b), element(access, op.c));
        let mut compared = 0;
        let mut origin = 0;
        for lane in lanes_of(cx.active) {
            let (place, at) = address(cx, op, access.at, lane);
            let old = !get(c.block, &mut c.launch.sites, cx, site, place, at, bytes, lane) & low(bytes);
            let w = c.block.warps.get(warp(cx));
            let of = |reg| w.map_or(0, |w| narrowed(w.registers.get(cx, reg, lane)));
            let all = if cx.following { of(operand) } else { 0 };
            let swapped = if access.cas && cx.following { of(other) } else { 0 };
            let given_from = w.map_or(UNSET, |w| w.registers.origin(cx, if access.cas { other } else { operand }));
            if old != 0 && origin == 0 {
                origin = brought(c, cx, pc, site, (place, at, bytes, lane), old);
            }
            // What is compared decides, and is reported; afterwards memory holds what it was given.
            let new = if access.cas {
                compared |= u32::from(old != 0) << lane;
                swapped
            } else if exchange {
                all
            } else if old | all != 0 {
                low(bytes)
            } else {
                0
            };
            if old != 0 || new != 0 {
                // What was there stays in the sum; what was not defined by the operand came from there.
                let from = if old != 0 && !access.cas && !exchange { origin } else { given_from };
                set(c, cx, &Left { site, pc, place, at, bytes, lane, bits: !new, origin: from });
            }
            let given = if access.cas { 0 } else { old };
            let Some(w) = c.block.warps.get_mut(warp(cx)) else { return };
            if result && given != 0 {
                w.registers.make();
                (w.tainted, cx.following) = (true, true);
            }
            if result && cx.following {
                let to = element(access, op.d);
                w.registers.set(cx, to, lane, widened(given));
                if given != 0 {
                    w.registers.came(cx, to, origin);
                }
            }
        }
        if compared != 0 {
            let what = Decides::Comparison;
            report::deciding(c, cx, Rule::UndefinedOperand, pc, compared, origin, what);
        }
    }
}

/// An exchange or compare-and-swap of 128 bits, in pairs of rows: memory's bits go to the result, what is written is
/// undefined if some register is.
unsafe fn atomic128(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32, access: &Access) {
    // SAFETY: by the contract of `done`.
    let (site, note) = unsafe { (Via::of(cx, op).site, &*cx.notes.add(pc as usize)) };
    let notes = c.notes;
    let (mut compared, mut origin) = (0, 0);
    for lane in lanes_of(cx.active) {
        // SAFETY: as above.
        let (place, at) = unsafe { address(cx, op, access.at, lane) };
        let old = !get(c.block, &mut c.launch.sites, cx, site, place, at, 16, lane) & low(16);
        let w = c.block.warps.get(warp(cx)).filter(|_| cx.following);
        let given = w.and_then(|w| {
            let reads = notes.reads(note).iter();
            reads.copied().find(|&r| w.registers.get(cx, r, lane) != 0).map(|r| w.registers.origin(cx, r))
        });
        let bits = if given.is_some() { 0 } else { low(16) };
        if old != 0 && origin == 0 {
            origin = brought(c, cx, pc, site, (place, at, 16, lane), old);
        }
        set(c, cx, &Left { site, pc, place, at, bytes: 16, lane, bits, origin: given.unwrap_or(UNSET) });
        compared |= u32::from(access.cas && old != 0) << lane;
        let Some(w) = c.block.warps.get_mut(warp(cx)) else { return };
        let old = if access.cas { 0 } else { old };
        if old != 0 && note.writes != 0 {
            w.registers.make();
            (w.tainted, cx.following) = (true, true);
        }
        for (half, &to) in notes.writes(note).iter().enumerate().filter(|_| cx.following) {
            w.registers.set(cx, to, lane, widened(old >> (8 * half) & 0xff));
            if old != 0 {
                w.registers.came(cx, to, origin);
            }
        }
    }
    let what = Decides::Comparison;
    report::deciding(c, cx, Rule::UndefinedOperand, pc, compared, origin, what);
}
