//! A part of a step's positions in f32: without tensor cores, over caches of f32, and for heads of more than 128 elements.
//!
//! A warp passes over its positions with up to four queries, several positions at once, each by a group of lanes. What each group
//! of lanes found is a partial result of its own: the block puts them together in their order, which takes fewer instructions than
//! shuffles.

use super::step::{
    memory::{QUERIES, StepMemory, WARPS},
    partial::{by_fours, weigh, weighted},
};
use super::sweep::*;
use crate::{
    head::{Held, first},
    kv::cached::{Cached, Rows},
    load::{lane, warp_index},
};
use warpsmith_device::{prelude::*, static_for};

/// Results of a query that there may be: of each warp, and of each of its groups of lanes.
const RESULTS: usize = 4 * WARPS;

/// The power of two from `n` on. Counted in 32 bits: rust-cuda miscompiles counts of bits in 64.
#[inline(always)]
fn power_of_two(n: u32) -> u32 {
    n.next_power_of_two()
}

/// A warp keeps query `head` of `dim` elements for [`part`], times what makes scores powers of two.
#[inline(always)]
pub unsafe fn keep<const N: usize>(memory: &StepMemory, head: usize, dim: usize, query: &Held<N>) {
    let scale = core::f32::consts::LOG2_E * math::rsqrt_approx(dim as f32);
    static_for!(j in 0..N => {
        let d = 64 * j + first();
        if d < dim {
            // SAFETY: a head has at most 256 elements, and there are at most 16 of them.
            unsafe { memory.values.set2(head * dim + spread(d), F32x2(query[j].map(|v| v * scale))) };
        }
    });
}

/// How queries are spread over warps.
#[derive(Clone, Copy)]
struct PlainPartition {
    dim: usize,
    group: u32,
    /// Warps that share a warp's queries: a power of two.
    sharing: u32,
    /// Positions of the part.
    from: u32,
    to: u32,
}

/// The block's positions `from .. to`, for all of its query heads, which are there; `put` is as for
/// [`tiles::part`](super::tiles::part).
#[device]
pub unsafe fn part<T: Cached>(
    (dim, group): (usize, u32),
    (from, to): (u32, u32),
    rows: impl Fn() -> (Rows, Rows),
    memory: &StepMemory,
    put: impl Fn(usize, usize, [f32; 4], f32, f32),
) {
    let queries = power_of_two(group).min(QUERIES as u32);
    let sharing = WARPS as u32 / power_of_two(group.div_ceil(queries));
    let place = PlainPartition { dim, group, sharing, from, to };
    let (keys, values) = rows();
    let rows = (&keys, &values);
    // The same choice in every thread.
    if queries == 1 {
        by_width::<T, 1>(&place, rows, memory);
    } else if queries == 2 {
        by_width::<T, 2>(&place, rows, memory);
    } else {
        by_width::<T, 4>(&place, rows, memory);
    }
    sync::block();

    // A query's results: of the warps that share it, and of each of their groups of lanes.
    let width = power_of_two(dim as u32).max(64);
    let results = sharing * (256 / width);
    // The first of them, and which of a warp's queries it is.
    let of = |h: usize| ((h as u32 / queries * results) as usize, (h as u32 % queries) as usize);
    // SAFETY: what a warp found of its queries.
    let state = |h, s| unsafe { memory.states.get2(2 * (of(h).1 * RESULTS + of(h).0 + s)).0 };
    weigh(memory, group, (results, results), state);
    sync::block();

    by_fours(group, dim, |h, d| {
        let (result, j) = of(h);
        let first = (result * QUERIES + j) * width as usize + spread(d);
        // SAFETY: as above.
        unsafe {
            let value =
                weighted(memory, h, (results, results), |s| memory.values.get4(first + s * QUERIES * width as usize).0);
            let [largest, sum] = memory.totals.get2(2 * h).0;
            put(h, d, value, largest, sum);
        }
    });
}

#[device]
unsafe fn by_width<T: Cached, const QW: usize>(p: &PlainPartition, rows: (&Rows, &Rows), memory: &StepMemory) {
    if p.dim <= 64 {
        pass::<T, 8, QW>(p, rows, memory);
    } else if T::NARROW || p.dim <= 128 {
        pass::<T, 16, QW>(p, rows, memory);
    } else {
        pass::<T, 32, QW>(p, rows, memory);
    }
}

/// This warp's positions of the part, for its queries; what each group of lanes finds goes to shared memory.
#[device]
unsafe fn pass<T: Cached, const LANES: usize, const QW: usize>(
    p: &PlainPartition,
    rows: (&Rows, &Rows),
    memory: &StepMemory,
) {
    let warp = warp_index();
    let (set, turn) = (warp / p.sharing as usize, warp as u32 & (p.sharing - 1));
    let mut q = [[0.0f32; 8]; QW];
    static_for!(j in 0..QW => {
        if set * QW + j < p.group as usize {
            q[j] = query::<LANES>(memory.values.from((set * QW + j) * p.dim), p.dim);
        }
    });
    // The queries' place becomes that of the values.
    sync::block();
    let width = (64 / LANES) as u32;
    let state = sweep::<T, LANES, QW>(
        &q,
        rows,
        p.dim,
        (p.from + turn * width, p.to, p.sharing * width),
        |_, _| true,
        |score| score,
    );
    let result = warp * (32 / LANES) + lane() / LANES;
    let e = element::<LANES>();
    if e < p.dim {
        static_for!(j in 0..QW => {
            let at = result * QUERIES + j;
            let v = state.values[j];
            memory.values.set4(at * 8 * LANES + spread(e), F32x4([v[0], v[1], v[2], v[3]]));
            memory.values.set4(at * 8 * LANES + spread(e + 4), F32x4([v[4], v[5], v[6], v[7]]));
            if e == 0 {
                memory.states.set2(2 * (j * RESULTS + result), F32x2([state.largest[j], state.sum[j]]));
            }
        });
    }
}
