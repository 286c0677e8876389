//! Undefined values in matrix instructions.

use super::super::checker::Checker;
use super::super::note::{Note, Reg, Taint};
use super::report::Origin;
use super::{access, warp};
use crate::exec::lanes::lane_of;
use crate::exec::space::SHARED_WINDOW;
use crate::exec::{Cx, LANES, Op};

/// `mma`: an element of the result is undefined if one of its row of A, of its column of B, or its addend is. Where the
/// fragments are not those of the `m16n8` shapes, any undefined value makes all results undefined.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn multiply(c: &mut Checker, cx: &mut Cx, op: &Op, note: &Note) {
    let _ = op;
    if cx.active != cx.live {
        // Not all lanes are here: it will be executed once they are.
        return;
    }
    // SAFETY: a checked launch runs.
    let notes = unsafe { c.init.notes() };
    let (reads, writes) = (notes.reads(note), notes.writes(note));
    let Some(w) = c.block.init.warps.get_mut(warp(cx)) else { return };
    let r = &mut w.registers;
    let Some(&source) = reads.iter().find(|&&reg| r.touched(cx, reg)) else {
        writes.iter().for_each(|&reg| r.define(cx, reg, cx.active));
        return;
    };
    let origin = r.origin(cx, source);
    let narrow = writes.iter().chain(reads).all(|r| matches!(r, Reg::Narrow(_)));
    let factors = reads.len().saturating_sub(writes.len());
    // In these shapes a lane holds twice as much of A as of B.
    let known = narrow && factors % 3 == 0 && matches!(writes.len(), 2 | 4) && note.taint == Taint::Matrix;
    let (a, rest) = reads.split_at(if known { factors / 3 * 2 } else { 0 });
    let (b, addend) = rest.split_at(if known { factors / 3 } else { 0 });
    let mut rows = [false; 16];
    let mut columns = [false; 8];
    let mut any = false;
    for lane in 0..LANES {
        let group = lane / 4;
        for (i, &reg) in a.iter().enumerate() {
            rows[group + 8 * (i & 1)] |= r.get(cx, reg, lane) != 0;
        }
        for &reg in b {
            columns[group] |= r.get(cx, reg, lane) != 0;
        }
        any |= !known && reads.iter().any(|&reg| r.get(cx, reg, lane) != 0);
    }
    let mut results = [[0u64; LANES]; 4];
    for lane in 0..LANES {
        let (group, column) = (lane / 4, lane % 4 * 2);
        for (i, result) in results.iter_mut().enumerate().take(writes.len()) {
            let own = addend.get(i).map_or(0, |&reg| r.get(cx, reg, lane));
            let full = |undefined: bool, bits: u64| if undefined { bits } else { 0 };
            result[lane] = if !known {
                full(any, !0)
            } else if writes.len() == 4 {
                let undefined = rows[group + 8 * (i / 2)] || columns[column + i % 2] || own != 0;
                full(undefined, 0xffff_ffff)
            } else {
                // Two halves to a register.
                let row = rows[group + 8 * i];
                full(row || columns[column] || own & 0xffff != 0, 0xffff)
                    | full(row || columns[column + 1] || own >> 16 != 0, 0xffff_0000)
            };
        }
    }
    for (i, &to) in writes.iter().enumerate() {
        let bits = results.get(i).unwrap_or(&results[0]);
        for (lane, &bits) in bits.iter().enumerate() {
            r.set(cx, to, lane, bits);
        }
        if bits.iter().any(|&b| b != 0) {
            r.came(cx, to, origin);
        }
    }
}

/// `ldmatrix` and `stmatrix`: the list holds a site, whether addresses have 64 bits, the offset, and the rows.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn access(c: &mut Checker, cx: &mut Cx, op: &Op, pc: u32, note: &Note) {
    let (count, transposed) = ((op.imm & 0xff) as usize, op.imm >> 8 & 1 != 0);
    // SAFETY: by the contract.
    unsafe {
        let (wide, offset) = (cx.list(op, 1) != 0, cx.list(op, 2) as i32 as i64 as u64);
        let row = |cx: &Cx, lane: usize| {
            let base =
                if wide { lane_of::<u64>(cx.src(op.a), lane) } else { lane_of::<u32>(cx.src(op.a), lane).into() };
            let base = if base & !0xffff_ffff == SHARED_WINDOW { base & 0xffff_ffff } else { base };
            base.wrapping_add(offset)
        };
        for m in 0..count.min(4) {
            // Where the two elements of a lane lie: row and column of the matrix.
            let places = |lane: usize| {
                let (row, column) = (lane / 4, lane % 4 * 2);
                if transposed { [(column, row), (column + 1, row)] } else { [(row, column), (row, column + 1)] }
            };
            let at = |cx: &Cx, (r, column): (usize, usize)| row(cx, m * 8 + r).wrapping_add(2 * column as u64);
            let reg = Reg::Narrow(cx.list(op, 3 + m));
            for lane in 0..LANES {
                let places = places(lane);
                if note.taint == Taint::StoreMatrix {
                    let w = c.block.init.warps.get(warp(cx));
                    let bits = w.map_or(0, |w| access::narrowed(w.registers.get(cx, reg, lane)));
                    for (half, place) in places.into_iter().enumerate() {
                        c.block.init.set_shared(at(cx, place), 2, !(bits >> (2 * half)) & 3);
                    }
                    continue;
                }
                let missing = places.map(|p| access::shared_missing(&c.block.init, at(cx, p), 2));
                let bits = access::widened(missing[0] | missing[1] << 2);
                let Some(w) = c.block.init.warps.get_mut(warp(cx)) else { return };
                if bits == 0 {
                    if cx.tainted {
                        w.registers.set(cx, reg, lane, 0);
                    }
                    continue;
                }
                w.registers.make();
                (w.tainted, cx.tainted) = (true, true);
                w.registers.set(cx, reg, lane, bits);
                let half = usize::from(missing[0] == 0);
                let origin = Origin {
                    pc,
                    thread: (c.block.index, warp(cx) as u32, lane as u32),
                    place: access::Place::Shared,
                    address: at(cx, places[half]),
                    bytes: 2,
                    missing: missing[half] as u32,
                };
                let origin = c.init.origins.add(origin);
                w.registers.came(cx, reg, origin);
            }
        }
    }
}
