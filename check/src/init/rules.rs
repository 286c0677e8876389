//! How undefined bits pass through operations that stay in registers.

use super::registers::Registers;
use super::state::{InitCheck, warp};
use warpsmith_simt::machine::lanes::{combine, lane_of, lanes_of};
use warpsmith_simt::machine::note::{Note, Reg, Relation, Taint, Test};
use warpsmith_simt::machine::shadow::low;
use warpsmith_simt::machine::warp::Row;
use warpsmith_simt::machine::{CONST, Cx, LANES, Op, ROW};

/// A lane of a row.
///
/// # Safety
/// `reg` is a row that an operation of the current frame names.
pub(super) unsafe fn value(cx: &Cx, reg: Reg, lane: usize) -> u64 {
    // SAFETY: by the contract.
    unsafe {
        match reg {
            Reg::Narrow(at) => lane_of::<u32>(cx.src(at), lane).into(),
            Reg::Wide(at) => lane_of::<u64>(cx.src(at), lane),
            Reg::Pred(slot) => u64::from(cx.pred(slot << 1) >> lane & 1),
        }
    }
}

/// Every bit from the lowest undefined one up.
fn left(bits: u64) -> u64 {
    bits | bits.wrapping_neg()
}

/// Whether the operands' undefined bits can change what a comparison finds, and else what it finds.
fn compare(relation: Relation, (a, ua): (u64, u64), (b, ub): (u64, u64)) -> Option<bool> {
    let mask = low(relation.bits.into());
    let (ua, ub) = (ua & mask, ub & mask);
    // Signed order is unsigned order with the sign flipped.
    let flip = if relation.signed { 1 << (relation.bits - 1) } else { 0 };
    let (a, b) = ((a & mask) ^ flip, (b & mask) ^ flip);
    let less = |(a, ua): (u64, u64), (b, ub): (u64, u64)| {
        if a | ua < b & !ub {
            Some(true)
        } else if a & !ua >= b | ub {
            Some(false)
        } else {
            None
        }
    };
    let found = match relation.test {
        Test::Equal if (a ^ b) & !(ua | ub) != 0 => Some(false),
        Test::Equal if ua | ub == 0 => Some(true),
        Test::Equal => None,
        Test::Less => less((a, ua), (b, ub)),
        Test::Greater => less((b, ub), (a, ua)),
        Test::Other => None,
    };
    found.map(|f| f != relation.negated)
}

/// The same for two truth values: `None` is undefined.
fn logic(code: u64, a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (code, a, b) {
        (combine::AND, Some(false), _) | (combine::AND, _, Some(false)) => Some(false),
        (combine::OR, Some(true), _) | (combine::OR, _, Some(true)) => Some(true),
        (combine::AND, Some(a), Some(b)) => Some(a & b),
        (combine::OR, Some(a), Some(b)) => Some(a | b),
        (combine::XOR, Some(a), Some(b)) => Some(a ^ b),
        _ => None,
    }
}

/// A source predicate (slot · 2 + negated) of a lane.
unsafe fn truth(r: &Registers, cx: &Cx, q: u16, lane: usize) -> Option<bool> {
    if r.pred(cx.frame_pred + u32::from(q >> 1)) >> lane & 1 != 0 {
        return None;
    }
    // SAFETY: the contract of handlers.
    Some(unsafe { cx.pred(q) } >> lane & 1 != 0)
}

/// Follows an operation of the running warp, some register of which is undefined. It has not been executed yet.
///
/// # Safety
/// The contract of handlers.
pub(super) unsafe fn plain(c: &mut InitCheck<'_>, cx: &mut Cx, op: &Op, note: &Note) {
    let notes = c.notes;
    let (reads, writes) = (notes.reads(note), notes.writes(note));
    let Some(w) = c.block.warps.get_mut(warp(cx)) else { return };
    let r = &mut w.registers;
    if writes.is_empty() {
        return;
    }
    let lanes = cx.active;
    let doubtful = r.pred(cx.frame_pred + u32::from(op.guard >> 1)) & lanes;
    let source = reads.iter().find(|&&reg| r.touched(cx, reg));
    let Some(&source) = source else {
        writes.iter().for_each(|&reg| r.define(cx, reg, lanes));
        if doubtful != 0 {
            let origin = r.pred_origin(cx.frame_pred + u32::from(op.guard >> 1));
            writes.iter().for_each(|&reg| r.mark(cx, reg, doubtful, note.short, origin));
        }
        return;
    };
    let origin = r.origin(cx, source);
    // SAFETY: the contract of handlers; reads and writes are what the operation names.
    unsafe {
        match note.taint {
            Taint::Compare(_) | Taint::Logic => predicates(r, cx, op, note, reads, origin),
            Taint::Same(control) => same(r, cx, op, note, reads, writes, control, origin),
            _ => {
                let mut results = [0; LANES];
                for lane in lanes_of(lanes) {
                    results[lane] = result(r, cx, op, note, reads, lane);
                }
                for &reg in writes {
                    put(r, cx, reg, note, &results, origin);
                }
            }
        }
    }
    writes.iter().for_each(|&reg| r.mark(cx, reg, doubtful, note.short, origin));
}

fn put(r: &mut Registers, cx: &Cx, reg: Reg, note: &Note, results: &[u64; LANES], origin: u32) {
    let lanes = cx.active;
    if let Reg::Pred(slot) = reg {
        let bits = lanes_of(lanes).filter(|&l| results[l] != 0).fold(0, |m, l| m | 1 << l);
        return r.set_pred(cx, slot, lanes, bits, origin);
    }
    let mask = match reg {
        _ if note.short => 0xffff,
        Reg::Wide(_) => !0,
        _ => 0xffff_ffff,
    };
    let mut any = 0;
    for lane in lanes_of(lanes) {
        any |= results[lane] & mask;
        r.set(cx, reg, lane, results[lane] & mask);
    }
    if any != 0 {
        r.came(cx, reg, origin);
    }
}

/// The undefined bits of a lane's result.
unsafe fn result(r: &Registers, cx: &Cx, op: &Op, note: &Note, reads: &[Reg], lane: usize) -> u64 {
    let bits = |i: usize| reads.get(i).map_or(0, |&reg| r.get(cx, reg, lane));
    // SAFETY: by the contract of `plain`.
    let value = |i: usize| reads.get(i).map_or(0, |&reg| unsafe { value(cx, reg, lane) });
    let all = || reads.iter().fold(0, |m, &reg| m | r.get(cx, reg, lane));
    match note.taint {
        Taint::Defined => 0,
        Taint::Left => left(all()),
        Taint::Xor => all(),
        Taint::And => {
            let (a, b, ua, ub) = (value(0), value(1), bits(0), bits(1));
            ua & ub | ua & b | ub & a
        }
        Taint::Or => {
            let (a, b, ua, ub) = (value(0), value(1), bits(0), bits(1));
            ua & ub | ua & !b | ub & !a
        }
        Taint::Lop3 => {
            let (table, same) = (value(3), |i: usize, j: usize| reads.get(i) == reads.get(j));
            let (mut zeros, mut ones) = (0, 0);
            for term in 0..8 {
                let bit = |i: usize| term >> (2 - i) & 1;
                if same(0, 1) && bit(0) != bit(1) || same(1, 2) && bit(1) != bit(2) || same(0, 2) && bit(0) != bit(2) {
                    continue;
                }
                let can = |i: usize| bits(i) | if bit(i) != 0 { value(i) } else { !value(i) };
                let possible = can(0) & can(1) & can(2);
                *(if table >> term & 1 != 0 { &mut ones } else { &mut zeros }) |= possible;
            }
            zeros & ones
        }
        Taint::Select => {
            // SAFETY: by the contract of `plain`.
            match unsafe { truth(r, cx, op.q, lane) } {
                Some(true) => bits(0),
                Some(false) => bits(1),
                None => bits(0) | bits(1) | (value(0) ^ value(1)),
            }
        }
        Taint::Halves => {
            let all = all();
            let half = |mask: u64| if all & mask != 0 { mask } else { 0 };
            half(0xffff) | half(0xffff_0000)
        }
        Taint::Pack => (if bits(0) != 0 { 0xffff_0000 } else { 0 }) | if bits(1) != 0 { 0xffff } else { 0 },
        _ => {
            if all() != 0 {
                !0
            } else {
                0
            }
        }
    }
}

/// Comparisons, and logic on predicates.
unsafe fn predicates(r: &mut Registers, cx: &Cx, op: &Op, note: &Note, reads: &[Reg], origin: u32) {
    let (mut p, mut other) = (0, 0);
    for lane in lanes_of(cx.active) {
        // SAFETY: by the contract of `plain`.
        let (first, second) = unsafe {
            match (note.taint, reads) {
                (Taint::Compare(relation), &[a, b, ..]) => {
                    let (ua, ub) = (r.get(cx, a, lane), r.get(cx, b, lane));
                    let found = if relation.test == Test::Other && ua | ub == 0 {
                        // Defined, but not worked out here: what matters is only that it is.
                        None
                    } else {
                        compare(relation, (value(cx, a, lane), ua), (value(cx, b, lane), ub))
                    };
                    let known = relation.test == Test::Other && ua | ub == 0;
                    let q = truth(r, cx, op.q, lane);
                    if op.imm == combine::NONE {
                        (known || found.is_some(), known || found.is_some())
                    } else if known {
                        // Either result of the comparison: defined if `q` is, or if it decides both.
                        let both = [true, false].map(|f| logic(op.imm, Some(f), q).is_some());
                        (both[0] && both[1], both[0] && both[1])
                    } else {
                        (logic(op.imm, found, q).is_some(), logic(op.imm, found.map(|f| !f), q).is_some())
                    }
                }
                _ => {
                    let code = [combine::AND, combine::OR, combine::XOR][(op.imm as usize).min(2)];
                    let known = logic(code, truth(r, cx, op.q, lane), truth(r, cx, op.x as u16, lane)).is_some();
                    (known, true)
                }
            }
        };
        p |= u32::from(!first) << lane;
        other |= u32::from(!second) << lane;
    }
    r.set_pred(cx, op.p, cx.active, p, origin);
    if matches!(note.taint, Taint::Compare(_)) {
        r.set_pred(cx, op.r, cx.active, other, origin);
    }
}

/// Executes the operation on undefined bits.
#[allow(clippy::too_many_arguments)]
unsafe fn same(
    r: &mut Registers,
    cx: &mut Cx,
    op: &Op,
    note: &Note,
    reads: &[Reg],
    writes: &[Reg],
    control: u8,
    origin: u32,
) {
    let &[to] = writes else { return };
    // Two rows for each of four operands and the result.
    let mut scratch = [Row([0; LANES]); 10];
    let mut unclear = 0;
    let mut rows = [op.a, op.b, op.c, op.x];
    for (i, (&reg, place)) in reads.iter().zip(&mut rows).enumerate() {
        let words = if matches!(reg, Reg::Wide(_)) { 2 } else { 1 };
        let (Reg::Narrow(at) | Reg::Wide(at)) = reg else { continue };
        if control >> i & 1 != 0 {
            unclear |= r.undefined(cx, reg, cx.active);
            // SAFETY: by the contract of `plain`, the row has that many words of lanes.
            let from = unsafe { std::slice::from_raw_parts(cx.src(at).cast::<Row>(), words) };
            scratch[2 * i..][..words].copy_from_slice(from);
        } else {
            for (into, from) in scratch[2 * i..][..words].iter_mut().zip(r.row(cx, reg).chunks_exact(LANES)) {
                into.0.copy_from_slice(from);
            }
        }
        *place = 2 * i as u32 * ROW;
    }
    let copy = Op { d: 8 * ROW, a: rows[0], b: rows[1], c: rows[2], x: rows[3], ..*op };
    let regs = std::mem::replace(&mut cx.regs, scratch.as_mut_ptr().cast());
    // SAFETY: every row that the copy names lies in the scratch space; the operation only moves bits.
    unsafe { (op.f)(cx, &copy) };
    cx.regs = regs;
    let mut results = [0u64; LANES];
    for lane in lanes_of(cx.active) {
        results[lane] = match to {
            _ if unclear >> lane & 1 != 0 => !0,
            Reg::Wide(_) => {
                let (row, at) = (8 + lane / 16, 2 * lane % LANES);
                u64::from(scratch[row].0[at]) | u64::from(scratch[row].0[at + 1]) << 32
            }
            _ => scratch[8].0[lane].into(),
        };
    }
    debug_assert!(rows.iter().take(reads.len()).all(|at| at & CONST == 0));
    put(r, cx, to, note, &results, origin);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All values that undefined bits can take, tried out.
    #[test]
    fn comparisons_are_decided_as_trying_all_values_does() {
        let tests = [Test::Equal, Test::Less, Test::Greater];
        for test in tests {
            for signed in [false, true] {
                for negated in [false, true] {
                    let relation = Relation { test, signed, bits: 3, negated };
                    for case in 0..1 << 12u64 {
                        let field = |i: u64| case >> (3 * i) & 7;
                        let (a, ua, b, ub) = (field(0), field(1), field(2), field(3));
                        let mut seen = [false; 2];
                        for (x, y) in (0..8).flat_map(|x| (0..8).map(move |y| (x, y))) {
                            if (x ^ a) & !ua != 0 || (y ^ b) & !ub != 0 {
                                continue;
                            }
                            let sign = |v: u64| if signed && v > 3 { v as i64 - 8 } else { v as i64 };
                            let (x, y) = (sign(x), sign(y));
                            let found = match test {
                                Test::Equal => x == y,
                                Test::Less => x < y,
                                _ => x > y,
                            };
                            seen[usize::from(found != negated)] = true;
                        }
                        let want = match seen {
                            [true, true] => None,
                            [false, yes] => Some(yes),
                            [true, false] => Some(false),
                        };
                        assert_eq!(compare(relation, (a, ua), (b, ub)), want, "{relation:?} {case:o}");
                    }
                }
            }
        }
    }
}
