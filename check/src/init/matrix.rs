//! Undefined values in matrix instructions.

use super::super::pieces;
use super::super::place::Place;
use super::bytes::{self, Left};
use super::origins::UNSET;
use super::state::{InitCheck, warp};
use warpsmith_simt::machine::fragment::Piece;
use warpsmith_simt::machine::mma::{Shape, accumulator_place, factor_place};
use warpsmith_simt::machine::note::{Note, Reg};
use warpsmith_simt::machine::shadow::low;
use warpsmith_simt::machine::tensor::Kind;
use warpsmith_simt::machine::words::{Via, Words};
use warpsmith_simt::machine::{Cx, LANES, Op};

/// `mma`, `wmma.mma`: an element of the result is undefined if something in its row of A or its column of B is, or its
/// addend. (Of the quad-pair shape `m8n8k4.f16`: if anything is.)
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn multiply(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, note: &Note) {
    if cx.active != cx.live {
        // Not all lanes are here: it will be executed once they are.
        return;
    }
    let notes = c.notes;
    let (reads, writes) = (notes.reads(note), notes.writes(note));
    let Some(w) = c.block.warps.get_mut(warp(cx)) else { return };
    let r = &mut w.registers;
    let Some(&source) = reads.iter().find(|&&reg| r.touched(cx, reg)) else {
        writes.iter().for_each(|&reg| r.define(cx, reg, cx.active));
        return;
    };
    let origin = r.origin(cx, source);
    let shape = Shape::unpack(op.imm);
    let [na, nb, nc, _] = shape.registers();
    if shape.is_quads() || reads.len() != na + nb + nc {
        writes.iter().for_each(|&reg| r.mark(cx, reg, cx.active, false, origin));
        return;
    }
    let (a, rest) = reads.split_at(na);
    let (b, addend) = rest.split_at(nb);
    let (mut rows, mut columns) = (vec![false; shape.m], vec![false; shape.n]);
    for lane in 0..LANES {
        for (set, regs, lines, kind) in [(&mut rows, a, shape.m, shape.a), (&mut columns, b, shape.n, shape.b)] {
            for (i, &reg) in regs.iter().enumerate() {
                if r.get(cx, reg, lane) != 0 {
                    set[factor_place(lines, shape.k, kind, lane, i).0] = true;
                }
            }
        }
    }
    // Elements to a register, and the bits of one.
    let parts = |kind: Kind| match kind {
        Kind::F16 => (2, 0xffff),
        Kind::F64 => (1, !0),
        _ => (1, 0xffff_ffff),
    };
    let ((per, mask), (addends, addend_mask)) = (parts(shape.d), parts(shape.c));
    let mut results = vec![[0u64; LANES]; writes.len()];
    for (i, result) in results.iter_mut().enumerate() {
        for (lane, result) in result.iter_mut().enumerate() {
            for part in 0..per {
                let element = i * per + part;
                let (row, column) = accumulator_place(shape.m, lane, element);
                let own = addend.get(element / addends).map_or(0, |&reg| r.get(cx, reg, lane));
                let own = own >> (16 * (element % addends)) & addend_mask;
                if rows.get(row) == Some(&true) || columns.get(column) == Some(&true) || own != 0 {
                    *result |= mask << (16 * part);
                }
            }
        }
    }
    for (&to, bits) in writes.iter().zip(&results) {
        bits.iter().enumerate().for_each(|(lane, &bits)| r.set(cx, to, lane, bits));
        if bits.iter().any(|&b| b != 0) {
            r.came(cx, to, origin);
        }
    }
}

/// `ldmatrix`, `stmatrix`, `wmma.load`, `wmma.store`, after they have been executed.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn access(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, pc: u32, note: &Note) {
    // SAFETY: by the contract.
    let ((pieces, stores), site) = unsafe { (pieces::of_matrix(cx, op, note.taint), Via::of(cx, op).site) };
    let holder = |p: &Piece| if p.shared { Place::Shared } else { Place::Global };
    let reg = |p: &Piece| if p.wide { Reg::Wide(p.row) } else { Reg::Narrow(p.row) };
    if stores {
        for p in &pieces {
            let w = c.block.warps.get(warp(cx)).filter(|_| cx.following);
            let (undefined, origin) = w.map_or((0, UNSET), |w| {
                (bytes::narrowed(w.registers.get(cx, reg(p), p.lane) >> p.bit), w.registers.origin(cx, reg(p)))
            });
            let (at, bytes, lane, bits) = (p.at, p.bytes, p.lane, !undefined & low(p.bytes));
            bytes::set(c, cx, &Left { site, pc, place: holder(p), at, bytes, lane, bits, origin });
        }
        return;
    }
    // Registers are filled piece by piece: first all count as defined.
    if cx.following
        && let Some(w) = c.block.warps.get_mut(warp(cx))
    {
        pieces.iter().for_each(|p| w.registers.set(cx, reg(p), p.lane, 0));
    }
    for p in &pieces {
        let defined = bytes::get(c.block, &mut c.launch.sites, cx, site, holder(p), p.at, p.bytes, p.lane);
        let missing = !defined & low(p.bytes);
        if missing == 0 {
            continue;
        }
        let origin = bytes::brought(c, cx, pc, site, (holder(p), p.at, p.bytes, p.lane), missing);
        let Some(w) = c.block.warps.get_mut(warp(cx)) else { return };
        w.registers.make();
        (w.tainted, cx.following) = (true, true);
        let bits = w.registers.get(cx, reg(p), p.lane) | bytes::widened(missing) << p.bit;
        w.registers.set(cx, reg(p), p.lane, bits);
        w.registers.came(cx, reg(p), origin);
    }
}
