//! Warp collectives: operations in which lanes meet.
//!
//! A collective names its lanes in a mask. It takes place when every named lane that has not
//! exited has arrived. If the running split brings them all, that is at once; otherwise the
//! handler returns [`Flow::Rendezvous`] and the scheduler holds the split until the others come,
//! from wherever in the code (`rendezvous`). Either way the work is done in three steps:
//! [`gather`], [`compute`], [`scatter`].

use super::exchange::{ABS, Collective, Exchange, NAN};
use super::lanes::{lane_of, lanes_of, row_of, set_lane};
use super::{Cx, Flow, LANES, Op};
use crate::fault::{FaultKind, Reason};
use crate::memory::POISON_KEY;

/// The mask that a lane names.
///
/// # Safety
/// The contract of handlers: `x` is a row of 32 bits.
#[inline]
pub unsafe fn named(cx: &Cx, op: &Op, lane: usize) -> u32 {
    // SAFETY: by the contract.
    unsafe { lane_of::<u32>(cx.src(op.x), lane) }
}

/// Takes the operands of `lanes` from the current frame.
///
/// # Safety
/// The contract of handlers.
pub unsafe fn gather(cx: &Cx, op: &Op, lanes: u32, to: &mut Exchange) {
    let kind = Collective::of(op.imm);
    to.present |= lanes;
    // SAFETY: by the contract; kinds without a value have no rows but the mask.
    unsafe {
        if kind.has_value() {
            for lane in lanes_of(lanes) {
                to.a[lane] = if kind.wide() {
                    lane_of::<u64>(cx.src(op.a), lane)
                } else {
                    lane_of::<u32>(cx.src(op.a), lane).into()
                };
            }
        }
        if (op.imm as u8) <= Collective::ShflIdx as u8 {
            for lane in lanes_of(lanes) {
                to.b[lane] = lane_of::<u32>(cx.src(op.b), lane);
                to.c[lane] = lane_of::<u32>(cx.src(op.c), lane);
            }
        }
        to.p |= cx.pred(op.q) & lanes;
    }
}

/// The lane that `lane` reads in a shuffle, and whether it lies in range.
#[inline(always)]
pub fn source(kind: Collective, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segment) = ((b & 31) as i32, c & 31, c >> 8 & 31);
    let max = ((lane & segment) | (clamp & !segment)) as i32;
    let min = (lane & segment) as i32;
    let j = match kind {
        Collective::ShflUp => lane as i32 - b,
        Collective::ShflDown => lane as i32 + b,
        Collective::ShflBfly => lane as i32 ^ b,
        _ => min | (b & !(segment as i32)),
    };
    let inside = if kind == Collective::ShflUp { j >= max } else { j <= max };
    (if inside { j as u32 & 31 } else { lane }, inside)
}

/// Lanes that hold the same value as `lane`.
fn equal(x: &Exchange, lane: usize) -> u32 {
    lanes_of(x.present).filter(|&l| x.a[l] == x.a[lane]).fold(0, |m, l| m | 1 << l)
}

/// Computes the results for all lanes present.
pub fn compute(imm: u64, x: &mut Exchange) {
    let kind = Collective::of(imm);
    let present = x.present;
    let reduce = |f: fn(u32, u32) -> u32| {
        let mut values = lanes_of(present).map(|l| x.a[l] as u32);
        let first = values.next().unwrap_or(0);
        [u64::from(values.fold(first, f)); LANES]
    };
    match kind {
        Collective::ShflUp | Collective::ShflDown | Collective::ShflBfly | Collective::ShflIdx => {
            for lane in lanes_of(present) {
                let (from, inside) = source(kind, lane as u32, x.b[lane], x.c[lane]);
                // A lane that takes no part has no defined value to give.
                let defined = present >> from & 1 != 0;
                x.d[lane] = if defined { x.a[from as usize] } else { POISON_KEY };
                x.q |= u32::from(inside) << lane;
            }
        }
        Collective::VoteAll => x.q = if x.p & present == present { !0 } else { 0 },
        Collective::VoteAny => x.q = if x.p & present != 0 { !0 } else { 0 },
        Collective::VoteUni => x.q = if x.p & present == present || x.p & present == 0 { !0 } else { 0 },
        Collective::VoteBallot => x.d = [u64::from(x.p & present); LANES],
        Collective::MatchAny32 | Collective::MatchAny64 => {
            for lane in lanes_of(present) {
                x.d[lane] = equal(x, lane).into();
            }
        }
        Collective::MatchAll32 | Collective::MatchAll64 => {
            let all = equal(x, present.trailing_zeros() as usize & 31) == present;
            x.d = [if all { present.into() } else { 0 }; LANES];
            x.q = if all { !0 } else { 0 };
        }
        Collective::ReduxAdd => x.d = reduce(u32::wrapping_add),
        Collective::ReduxMinU => x.d = reduce(u32::min),
        Collective::ReduxMaxU => x.d = reduce(u32::max),
        Collective::ReduxMinS => x.d = reduce(|a, b| (a as i32).min(b as i32) as u32),
        Collective::ReduxMaxS => x.d = reduce(|a, b| (a as i32).max(b as i32) as u32),
        Collective::ReduxAnd => x.d = reduce(|a, b| a & b),
        Collective::ReduxOr => x.d = reduce(|a, b| a | b),
        Collective::ReduxXor => x.d = reduce(|a, b| a ^ b),
        Collective::ReduxMinF | Collective::ReduxMaxF => {
            // All values are known: a fold in lane order gives what any order does.
            let (max, nan) = (kind == Collective::ReduxMaxF, imm & NAN != 0);
            let magnitude = if imm & ABS != 0 { 0x7fff_ffff } else { !0 };
            let mut values = lanes_of(present).map(|l| x.a[l] as u32 & magnitude);
            let first = super::float::canon(f32::from_bits(values.next().unwrap_or(0)));
            let all =
                values.fold(first, |a, b| super::float::extreme_of(max, nan, f32::from_bits(a), f32::from_bits(b)));
            x.d = [all.into(); LANES];
        }
        Collective::Elect => {
            let leader = present.trailing_zeros();
            x.d = [leader.into(); LANES];
            x.q = 1 << (leader & 31);
        }
        Collective::WarpSync => {}
    }
}

/// Gives `lanes` of the current frame their results.
///
/// # Safety
/// The contract of handlers.
pub unsafe fn scatter(cx: &mut Cx, op: &Op, lanes: u32, x: &Exchange) {
    let all = cx.active;
    cx.active = lanes;
    // SAFETY: by the contract; kinds without a row write none.
    unsafe {
        if Collective::of(op.imm).has_row() {
            for lane in lanes_of(lanes) {
                set_lane::<u32>(cx.dst(op.d), lane, x.d[lane] as u32);
            }
        }
        cx.set_pred(op.p, x.q);
    }
    cx.active = all;
}

/// Runs a collective whose lanes are all here.
///
/// # Safety
/// The contract of handlers.
unsafe fn perform(cx: &mut Cx, op: &Op, lanes: u32) {
    let mut x = Exchange::default();
    // SAFETY: by the contract.
    unsafe {
        gather(cx, op, lanes, &mut x);
        compute(op.imm, &mut x);
        scatter(cx, op, lanes, &x);
    }
    cx.counters.collectives += 1;
}

/// Raises the fault of a lane that executes a collective that does not name it.
pub fn unnamed(cx: &mut Cx, op: &Op, lane: usize, mask: u32) -> Flow {
    let lane = lane as u32;
    cx.raise(op, FaultKind::MaskMisuse, lane, None, Some(Reason::Unnamed { lane, mask }))
}

/// The handler of every collective.
pub unsafe fn collective(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers.
    unsafe {
        let active = cx.active;
        let masks = row_of::<u32>(cx.src(op.x));
        let first = masks[active.trailing_zeros() as usize & 31];
        let uniform = lanes_of(active).all(|l| masks[l] == first);
        if uniform {
            if active & !first != 0 {
                return unnamed(cx, op, (active & !first).trailing_zeros() as usize, first);
            }
            if first & cx.live != active {
                return Flow::Rendezvous;
            }
            perform(cx, op, active);
            return Flow::Next;
        }
        // Lanes that name different groups, as after `match`: each group meets on its own.
        let group = |lane: usize| lanes_of(active).filter(|&l| masks[l] == masks[lane]).fold(0, |m, l| m | 1 << l);
        for lane in lanes_of(active) {
            if masks[lane] >> lane & 1 == 0 {
                return unnamed(cx, op, lane, masks[lane]);
            }
            if group(lane) != masks[lane] & cx.live {
                return Flow::Rendezvous;
            }
        }
        let mut rest = active;
        while rest != 0 {
            let lanes = group(rest.trailing_zeros() as usize);
            perform(cx, op, lanes);
            rest &= !lanes;
        }
    }
    Flow::Next
}

/// `shfl.sync` of a full warp whose mask and clamp are constants, and whose lanes name the same distance: the usual case.
pub unsafe fn shfl_full(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers.
    unsafe {
        if cx.active != !0 {
            return collective(cx, op);
        }
        let distances = row_of::<u32>(cx.src(op.b));
        let b = distances[0];
        if distances.iter().fold(0, |differ, d| differ | (d ^ b)) != 0 {
            return collective(cx, op);
        }
        let from = row_of::<u32>(cx.src(op.a));
        let clamp = row_of::<u32>(cx.src(op.c))[0];
        let kind = Collective::of(op.imm);
        let to = cx.dst(op.d).cast::<u32>();
        let mut inside = 0;
        if kind == Collective::ShflBfly && clamp == 31 {
            // The whole warp is one segment, which no lane leaves.
            for lane in 0..LANES {
                to.add(lane).write(from[(lane ^ b as usize) & 31]);
            }
            cx.set_pred(op.p, !0);
            cx.counters.collectives += 1;
            return Flow::Next;
        }
        for lane in 0..LANES as u32 {
            let (j, ok) = source(kind, lane, b, clamp);
            to.add(lane as usize).write(from[j as usize & 31]);
            inside |= u32::from(ok) << lane;
        }
        cx.set_pred(op.p, inside);
    }
    cx.counters.collectives += 1;
    Flow::Next
}

/// `activemask`: the lanes that execute it together.
pub unsafe fn activemask(cx: &mut Cx, op: &Op) -> Flow {
    // SAFETY: the contract of handlers: `d` is a row of 32 bits.
    unsafe {
        for lane in lanes_of(cx.active) {
            set_lane::<u32>(cx.dst(op.d), lane, cx.active);
        }
    }
    Flow::Next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffle_sources_follow_the_isa() {
        // The ISA's own clamp values: 0 for up, 31 otherwise; segments of 8 lanes have mask 24.
        assert_eq!(source(Collective::ShflUp, 3, 1, 0), (2, true));
        assert_eq!(source(Collective::ShflUp, 0, 1, 0), (0, false));
        assert_eq!(source(Collective::ShflDown, 30, 1, 31), (31, true));
        assert_eq!(source(Collective::ShflDown, 31, 1, 31), (31, false));
        assert_eq!(source(Collective::ShflBfly, 5, 16, 31), (21, true));
        assert_eq!(source(Collective::ShflIdx, 9, 3, 31 | 24 << 8), (11, true));
        assert_eq!(source(Collective::ShflDown, 7, 1, 31 | 24 << 8), (7, false));
        assert_eq!(source(Collective::ShflUp, 8, 1, 24 << 8), (8, false));
        // Lane numbers are taken modulo 32.
        assert_eq!(source(Collective::ShflIdx, 9, 35, 31), (3, true));
    }
}
