//! Undefined bytes of memory: what loads bring, what stores leave.

use super::super::Rule;
use super::super::checker::Checker;
use super::super::note::{Access, Does, Note, Reg, Taint, Where};
use super::report::{self, Origin};
use super::{BlockInit, warp};
use crate::exec::atom::{self, via};
use crate::exec::lanes::{lane_of, lanes_of};
use crate::exec::space::{LOCAL_WINDOW, PARAM_WINDOW, Pattern, SHARED_WINDOW, classify};
use crate::exec::{Cx, LANES, Op, bounds, bulk};
use crate::memory::lookup;
use crate::shadow::{Shadow, low};

/// What holds a byte that a thread accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Global,
    Shared,
    Local,
    /// Parameters and constants: always defined.
    Other,
}

/// The allocation that a site accessed last.
#[derive(Clone, Copy)]
pub(super) struct Known {
    base: u64,
    size: u64,
    shadow: *const Shadow,
}

impl Default for Known {
    fn default() -> Known {
        Known { base: 0, size: 0, shadow: std::ptr::null() }
    }
}

/// The address of a lane's access.
#[inline(always)]
unsafe fn address(cx: &Cx, op: &Op, at: Where, lane: usize) -> (Place, u64) {
    // SAFETY: the contract of handlers: `a` is a row of the width that the note says.
    unsafe {
        let narrow = || u64::from(lane_of::<u32>(cx.src(op.a), lane)).wrapping_add(op.imm);
        let wide = || lane_of::<u64>(cx.src(op.a), lane).wrapping_add(op.imm);
        match at {
            Where::Global => (Place::Global, wide()),
            Where::Shared32 => (Place::Shared, narrow()),
            Where::Shared64 => (Place::Shared, wide()),
            Where::Generic => generic(wide()),
            Where::Local32 => (Place::Local, narrow()),
            Where::Local64 => (Place::Local, wide()),
            Where::Frame => (Place::Local, u64::from(cx.local_base).wrapping_add(op.imm)),
            Where::Param | Where::Const => (Place::Other, 0),
        }
    }
}

fn generic(address: u64) -> (Place, u64) {
    match address >> 32 {
        w if w == SHARED_WINDOW >> 32 => (Place::Shared, address - SHARED_WINDOW),
        w if w == LOCAL_WINDOW >> 32 => (Place::Local, address - LOCAL_WINDOW),
        w if w == PARAM_WINDOW >> 32 => (Place::Other, 0),
        _ => (Place::Global, address),
    }
}

/// The lowest and the highest of the active lanes' addresses in a row of 64 bits.
#[inline(always)]
unsafe fn extent(row: *const u8, active: u32) -> (u64, u64) {
    // SAFETY: the caller passes a row of 64-bit lanes; some lane is active.
    unsafe {
        let first = lane_of::<u64>(row, active.trailing_zeros() as usize & 31);
        let (mut lowest, mut highest) = (first, first);
        for lane in 0..LANES {
            let own = lane_of::<u64>(row, lane);
            let address = if active >> lane & 1 != 0 { own } else { first };
            lowest = lowest.min(address);
            highest = highest.max(address);
        }
        (lowest, highest)
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn extent_avx2(row: *const u8, active: u32) -> (u64, u64) {
    // SAFETY: by the caller.
    unsafe { extent(row, active) }
}

unsafe fn extent_of(cx: &Cx, row: *const u8) -> (u64, u64) {
    #[cfg(target_arch = "x86_64")]
    if crate::exec::lanes::simd() {
        // SAFETY: `simd` says that the feature is there; the row is the caller's.
        return unsafe { extent_avx2(row, cx.active) };
    }
    // SAFETY: by the caller.
    unsafe { extent(row, cx.active) }
}

/// The range that an access with its addresses in a row of 64 bits touches: its start and its length.
#[inline(always)]
unsafe fn range_of(cx: &Cx, op: &Op, bytes: u64) -> (u64, u64) {
    // SAFETY: by the caller.
    unsafe {
        let row = cx.src(op.a);
        #[cfg(target_arch = "x86_64")]
        let pattern = if crate::exec::lanes::simd() {
            classify_avx2(row, cx.active, op.imm, bytes)
        } else {
            classify::<u64, false>(row, cx.active, op.imm, bytes)
        };
        #[cfg(not(target_arch = "x86_64"))]
        let pattern = classify::<u64, false>(row, cx.active, op.imm, bytes);
        match pattern {
            Pattern::Linear(first) => (first, 32 * bytes),
            Pattern::Same(first) => (first, bytes),
            Pattern::Mixed => {
                let (lowest, highest) = extent_of(cx, row);
                (lowest.wrapping_add(op.imm), highest - lowest + bytes)
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn classify_avx2(row: *const u8, active: u32, offset: u64, bytes: u64) -> Pattern {
    // SAFETY: by the caller, who has looked for the feature.
    unsafe { classify::<u64, true>(row, active, offset, bytes) }
}

/// The bits of the allocation at a global address, and the offset in it; `None`: everything there is defined.
fn global<'a>(sites: &mut [Known], cx: &'a Cx, site: u32, address: u64) -> Option<(&'a Shadow, u64)> {
    let known = sites.get_mut(site as usize)?;
    if address.wrapping_sub(known.base) >= known.size {
        let entry = lookup(&cx.memory, address)?;
        *known = Known {
            base: entry.base,
            size: entry.size,
            shadow: entry.shadow().map_or(std::ptr::null(), std::ptr::from_ref),
        };
    }
    // SAFETY: the context's snapshot of the allocation table keeps the shadow alive: when that changes, what is known is
    // forgotten (`init::forget`).
    let shadow = unsafe { known.shadow.as_ref() }?;
    Some((shadow, address - known.base))
}

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
pub(super) fn reg_decides(c: &mut Checker, cx: &Cx, pc: u32, reg: Reg, rule: Rule) {
    let Some(w) = c.block.init.warps.get_mut(warp(cx)) else { return };
    let lanes = w.registers.undefined(cx, reg, cx.active);
    if lanes == 0 {
        return;
    }
    let origin = w.registers.origin(cx, reg);
    w.registers.define(cx, reg, lanes);
    let what = match rule {
        Rule::UndefinedBranch => "where control goes",
        Rule::UndefinedAddress => "the address of a memory access",
        _ => "what the instruction does",
    };
    report::deciding(c, cx, rule, pc, lanes, origin, what);
}

pub(super) fn row_decides(c: &mut Checker, cx: &Cx, pc: u32, at: u32, wide: bool, rule: Rule) {
    reg_decides(c, cx, pc, if wide { Reg::Wide(at) } else { Reg::Narrow(at) }, rule);
}

/// Whether an access's address, or what a compare-and-swap compares with, is undefined.
pub(super) fn decides(c: &mut Checker, cx: &Cx, op: &Op, pc: u32, access: &Access) {
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

/// The same of an asynchronous copy.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn copy_decides(c: &mut Checker, cx: &Cx, op: &Op, pc: u32) {
    // SAFETY: by the contract, the operation has a list.
    let wide = unsafe { cx.list(op, 2) } != 0;
    row_decides(c, cx, pc, op.a, wide, Rule::UndefinedAddress);
    row_decides(c, cx, pc, op.b, true, Rule::UndefinedAddress);
    row_decides(c, cx, pc, op.c, false, Rule::UndefinedOperand);
}

/// The defined bytes of a lane's access, one bit each.
#[allow(clippy::too_many_arguments)]
pub(super) fn get(
    block: &BlockInit,
    sites: &mut [Known],
    cx: &Cx,
    site: u32,
    place: Place,
    at: u64,
    n: u64,
    lane: usize,
) -> u64 {
    match place {
        Place::Global => global(sites, cx, site, at).map_or(low(n), |(shadow, at)| shadow.get(at, n)),
        Place::Shared => block.shared(at, n),
        Place::Local => {
            let Some(w) = block.warps.get(warp(cx)) else { return low(n) };
            let nibble = |word: u64| w.local.get(word as usize * LANES + lane).map_or(15, |&m| u64::from(!m & 15));
            let (first, last) = (at / 4, (at + n - 1) / 4);
            let bits = (first..=last).fold(0, |m, word| m | nibble(word) << (4 * (word - first)));
            bits >> (at & 3) & low(n)
        }
        Place::Other => low(n),
    }
}

/// Sets them.
#[allow(clippy::too_many_arguments)]
pub(super) fn set(
    block: &mut BlockInit,
    sites: &mut [Known],
    cx: &Cx,
    site: u32,
    place: Place,
    at: u64,
    n: u64,
    lane: usize,
    bits: u64,
) {
    match place {
        Place::Global => {
            if let Some((shadow, at)) = global(sites, cx, site, at) {
                shadow.put(at, n, bits);
            }
        }
        Place::Shared => block.set_shared(at, n, bits),
        Place::Local => {
            let Some(w) = block.warps.get_mut(warp(cx)) else { return };
            for i in 0..n {
                let at = at + i;
                if let Some(word) = w.local.get_mut((at / 4) as usize * LANES + lane) {
                    let bit = 1 << (at & 3);
                    *word = if bits >> i & 1 != 0 { *word & !bit } else { *word | bit };
                }
            }
        }
        Place::Other => {}
    }
}

/// Declares bytes of a lane's local memory defined.
pub(super) fn set_local(block: &mut BlockInit, cx: &Cx, at: u64, n: u64, lane: usize) {
    set(block, &mut [], cx, 0, Place::Local, at, n, lane, !0);
}

/// Bits of bytes, widened to bits of bits.
pub(super) fn widened(bytes: u64) -> u64 {
    (0..8).filter(|i| bytes >> i & 1 != 0).fold(0, |m, i| m | 0xff << (8 * i))
}

/// Bits of bits, a byte being undefined if one of its bits is.
pub(super) fn narrowed(bits: u64) -> u64 {
    (0..8).filter(|i| bits >> (8 * i) & 0xff != 0).fold(0, |m, i| m | 1 << i)
}

/// Follows an access that has been executed.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn done(c: &mut Checker, cx: &mut Cx, op: &Op, pc: u32, note: &Note, access: &Access) {
    // SAFETY: by the contract.
    unsafe {
        match (access.does, note.taint) {
            (Does::Load, _) => load(c, cx, op, pc, access),
            (Does::Store, _) => store(c, cx, op, access),
            (Does::Atomic, taint) => atomic(c, cx, op, pc, access, taint == Taint::Exchange),
        }
    }
}

fn element(access: &Access, at: u32) -> Reg {
    if access.size == 8 { Reg::Wide(at) } else { Reg::Narrow(at) }
}

unsafe fn load(c: &mut Checker, cx: &mut Cx, op: &Op, pc: u32, access: &Access) {
    let bytes = access.bytes();
    // SAFETY: by the contract of `done`.
    unsafe {
        let site = cx.list(op, 0);
        let easy = match access.at {
            Where::Param | Where::Const => true,
            Where::Global => plainly_defined(&mut c.init.sites, cx, op, site, bytes),
            _ => false,
        };
        if easy && !cx.tainted {
            return;
        }
        let mut missing = [0u32; LANES];
        let mut lanes = 0;
        if !easy {
            for lane in lanes_of(cx.active) {
                let (place, at) = address(cx, op, access.at, lane);
                let bits = get(&c.block.init, &mut c.init.sites, cx, site, place, at, bytes, lane);
                missing[lane] = (!bits & low(bytes)) as u32;
                lanes |= u32::from(missing[lane] != 0) << lane;
            }
        }
        if lanes == 0 && !cx.tainted {
            return;
        }
        let mut origin = 0;
        if lanes != 0 {
            let lane = lanes.trailing_zeros() as usize & 31;
            let (place, at) = address(cx, op, access.at, lane);
            let thread = (c.block.index, warp(cx) as u32, lane as u32);
            origin = c.init.origins.add(Origin { pc, thread, place, address: at, bytes, missing: missing[lane] });
        }
        let Some(w) = c.block.init.warps.get_mut(warp(cx)) else { return };
        if lanes != 0 {
            w.registers.make();
            (w.tainted, cx.tainted) = (true, true);
        }
        for j in 0..access.count {
            let to = element(access, cx.list(op, 1 + j as usize));
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

unsafe fn store(c: &mut Checker, cx: &mut Cx, op: &Op, access: &Access) {
    let bytes = access.bytes();
    // SAFETY: by the contract of `done`.
    unsafe {
        let site = cx.list(op, 0);
        let rows: [Reg; 8] =
            std::array::from_fn(|j| element(access, if j < access.count as usize { cx.list(op, 1 + j) } else { 0 }));
        let rows = &rows[..(access.count as usize).min(8)];
        let clean = !cx.tainted
            || c.block.init.warps.get(warp(cx)).is_none_or(|w| rows.iter().all(|&r| !w.registers.touched(cx, r)));
        if clean && access.at == Where::Global && cx.active == !0 && plain_store(&mut c.init.sites, cx, op, site, bytes)
        {
            return;
        }
        for lane in lanes_of(cx.active) {
            let (place, at) = address(cx, op, access.at, lane);
            let mut undefined = 0;
            if let Some(w) = c.block.init.warps.get(warp(cx)).filter(|_| !clean) {
                for (j, &row) in rows.iter().enumerate() {
                    let bits = narrowed(w.registers.get(cx, row, lane)) & low(access.size.into());
                    undefined |= bits << (j as u32 * access.size);
                }
            }
            set(&mut c.block.init, &mut c.init.sites, cx, site, place, at, bytes, lane, !undefined);
        }
    }
}

/// A store of defined values to consecutive places, or to memory that is defined already.
unsafe fn plain_store(sites: &mut [Known], cx: &Cx, op: &Op, site: u32, bytes: u64) -> bool {
    // SAFETY: by the contract of `done`, `a` is a row of 64 bits.
    unsafe {
        let (lowest, highest) = extent_of(cx, cx.src(op.a));
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

unsafe fn atomic(c: &mut Checker, cx: &mut Cx, op: &Op, pc: u32, access: &Access, exchange: bool) {
    let bytes = access.bytes();
    if bytes == 16 {
        // SAFETY: as for this.
        return unsafe { atomic128(c, cx, op, pc, access) };
    }
    // SAFETY: by the contract of `done`; the list says whether there is a result.
    unsafe {
        let (site, result) = (cx.list(op, 0), cx.list(op, 2) != 0);
        let (operand, other) = (element(access, op.b), element(access, op.c));
        let mut compared = 0;
        let mut origin = 0;
        for lane in lanes_of(cx.active) {
            let (place, at) = address(cx, op, access.at, lane);
            let old = !get(&c.block.init, &mut c.init.sites, cx, site, place, at, bytes, lane) & low(bytes);
            let w = c.block.init.warps.get(warp(cx));
            let of = |reg| w.map_or(0, |w| narrowed(w.registers.get(cx, reg, lane)));
            let all = if cx.tainted { of(operand) } else { 0 };
            if old != 0 && origin == 0 {
                let thread = (c.block.index, warp(cx) as u32, lane as u32);
                let missing = old as u32;
                origin = c.init.origins.add(Origin { pc, thread, place, address: at, bytes, missing });
            }
            // What is compared decides, and is reported; afterwards memory holds what it was given.
            let new = if access.cas {
                compared |= u32::from(old != 0) << lane;
                if cx.tainted { of(other) } else { 0 }
            } else if exchange {
                all
            } else if old | all != 0 {
                low(bytes)
            } else {
                0
            };
            if old != 0 || new != 0 {
                set(&mut c.block.init, &mut c.init.sites, cx, site, place, at, bytes, lane, !new);
            }
            let given = if access.cas { 0 } else { old };
            let Some(w) = c.block.init.warps.get_mut(warp(cx)) else { return };
            if result && given != 0 {
                w.registers.make();
                (w.tainted, cx.tainted) = (true, true);
            }
            if result && cx.tainted {
                let to = element(access, op.d);
                w.registers.set(cx, to, lane, widened(given));
                if given != 0 {
                    w.registers.came(cx, to, origin);
                }
            }
        }
        if compared != 0 {
            let what = "which way a compare-and-swap goes";
            report::deciding(c, cx, Rule::UndefinedOperand, pc, compared, origin, what);
        }
    }
}

/// An exchange or compare-and-swap of 128 bits, in pairs of rows: memory's bits go to the result, what is written is
/// undefined if some register is.
unsafe fn atomic128(c: &mut Checker, cx: &mut Cx, op: &Op, pc: u32, access: &Access) {
    // SAFETY: by the contract of `done`; a checked launch runs.
    let (site, note, notes) = unsafe { (cx.list(op, 0), &*cx.notes.add(pc as usize), c.init.notes()) };
    let (mut compared, mut origin) = (0, 0);
    for lane in lanes_of(cx.active) {
        // SAFETY: as above.
        let (place, at) = unsafe { address(cx, op, access.at, lane) };
        let old = !get(&c.block.init, &mut c.init.sites, cx, site, place, at, 16, lane) & low(16);
        let w = c.block.init.warps.get(warp(cx)).filter(|_| cx.tainted);
        let given = w.is_some_and(|w| notes.reads(note).iter().any(|&r| w.registers.get(cx, r, lane) != 0));
        let bits = if given { 0 } else { low(16) };
        set(&mut c.block.init, &mut c.init.sites, cx, site, place, at, 16, lane, bits);
        if old != 0 && origin == 0 {
            let thread = (c.block.index, warp(cx) as u32, lane as u32);
            origin = c.init.origins.add(Origin { pc, thread, place, address: at, bytes: 16, missing: old as u32 });
        }
        compared |= u32::from(access.cas && old != 0) << lane;
        let Some(w) = c.block.init.warps.get_mut(warp(cx)) else { return };
        let old = if access.cas { 0 } else { old };
        if old != 0 && note.writes != 0 {
            w.registers.make();
            (w.tainted, cx.tainted) = (true, true);
        }
        for (half, &to) in notes.writes(note).iter().enumerate().filter(|_| cx.tainted) {
            w.registers.set(cx, to, lane, widened(old >> (8 * half) & 0xff));
            if old != 0 {
                w.registers.came(cx, to, origin);
            }
        }
    }
    let what = "which way a compare-and-swap goes";
    report::deciding(c, cx, Rule::UndefinedOperand, pc, compared, origin, what);
}

/// Follows an asynchronous copy: the source's bits, and zeros behind them.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn copy_done(c: &mut Checker, cx: &mut Cx, op: &Op) {
    // SAFETY: by the contract, as in `exec::mem::copy_async`.
    unsafe {
        let (site, offset) = (cx.list(op, 0), cx.list(op, 1) as i32 as i64 as u64);
        let bytes = op.imm >> 32;
        for lane in lanes_of(cx.active) {
            let to = copy_target(cx, op, lane);
            let from = lane_of::<u64>(cx.src(op.b), lane).wrapping_add(offset);
            let wanted = u64::from(lane_of::<u32>(cx.src(op.c), lane)).min(bytes);
            let bits = match wanted {
                0 => 0,
                n => get(&c.block.init, &mut c.init.sites, cx, site, Place::Global, from, n, lane),
            };
            set(&mut c.block.init, &mut c.init.sites, cx, site, Place::Shared, to, bytes, lane, bits | !low(wanted));
        }
    }
}

/// Where in shared memory a lane's asynchronous copy goes.
///
/// # Safety
/// The contract of handlers: the operation is such a copy.
pub(crate) unsafe fn copy_target(cx: &Cx, op: &Op, lane: usize) -> u64 {
    // SAFETY: by the contract, as in `exec::mem::copy_async`.
    unsafe {
        let wide = cx.list(op, 2) != 0;
        let base = if wide { lane_of::<u64>(cx.src(op.a), lane) } else { lane_of::<u32>(cx.src(op.a), lane).into() };
        let base = if wide && base >> 32 == SHARED_WINDOW >> 32 { base & 0xffff_ffff } else { base };
        base.wrapping_add(op.imm as u32 as i32 as i64 as u64)
    }
}

/// Whether the operands of a bulk copy are undefined.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn bulk_decides(c: &mut Checker, cx: &Cx, op: &Op, pc: u32) {
    // SAFETY: by the contract; `exec::bulk` says what the list holds.
    let (to, from) = unsafe { (cx.list(op, 1), cx.list(op, 3)) };
    row_decides(c, cx, pc, op.a, to != via::SHARED32, Rule::UndefinedAddress);
    row_decides(c, cx, pc, op.b, from != via::SHARED32, Rule::UndefinedAddress);
    row_decides(c, cx, pc, op.c, false, Rule::UndefinedOperand);
}

/// Follows a bulk copy. A reduction leaves defined what was, and undefined what either side has undefined.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn bulk_done(c: &mut Checker, cx: &mut Cx, op: &Op) {
    // SAFETY: by the contract; `exec::bulk` says what the list holds.
    unsafe {
        let [to_site, to_via, from_site, from_via] = [0, 1, 2, 3].map(|i| cx.list(op, i));
        let offset = cx.list(op, 4) as i32 as i64 as u64;
        let reduces = cx.list(op, 7) != bulk::NO_REDUCTION;
        for lane in lanes_of(cx.active) {
            let bytes = u64::from(lane_of::<u32>(cx.src(op.c), lane));
            let (to_place, to) = named(bulk::address(cx, op.a, op.imm, to_via, lane));
            let (from_place, from) = named(bulk::address(cx, op.b, offset, from_via, lane));
            for done in (0..bytes).step_by(64) {
                let n = (bytes - done).min(64);
                let (block, sites) = (&mut c.block.init, &mut c.init.sites);
                let mut bits = get(block, sites, cx, from_site, from_place, from + done, n, lane);
                if reduces {
                    bits &= get(block, sites, cx, to_site, to_place, to + done, n, lane);
                }
                set(block, sites, cx, to_site, to_place, to + done, n, lane, bits);
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

/// Whatever an operation on an mbarrier object found, now it is an object.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn object_done(c: &mut Checker, cx: &mut Cx, op: &Op) {
    for lane in lanes_of(cx.active) {
        // SAFETY: by the contract; addresses are found as those of atomics.
        if let (Place::Shared, at) = named(unsafe { atom::address(cx, op, lane) }) {
            c.block.init.set_shared(at, 8, low(8));
        }
    }
}

/// Where in shared memory a lane's access goes, if it goes there.
///
/// # Safety
/// The contract of handlers: the operation is that access.
pub(crate) unsafe fn shared_address(cx: &Cx, op: &Op, access: &Access, lane: usize) -> Option<u64> {
    // SAFETY: by the contract.
    match unsafe { address(cx, op, access.at, lane) } {
        (Place::Shared, at) => Some(at),
        _ => None,
    }
}
