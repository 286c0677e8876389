//! How a warp passes over keys and values: several rows at once, eight elements a lane, for up to four queries.

use crate::kv::cached::{Cached, Rows};
use crate::load::lane;
use crate::real::Real;
use warpsmith_device::prelude::*;

/// Rows that a group of lanes loads before it uses any.
const UNROLL: usize = 2;

/// What a warp knows of `QW` queries after its positions. A score is kept in powers of two.
#[derive(Clone, Copy)]
pub struct OnlineSoftmax<const QW: usize> {
    /// The largest score, not minus infinity, so that the difference of two is never NaN.
    pub largest: [f32; QW],
    /// The sum of weights.
    pub sum: [f32; QW],
    /// This lane's elements of the weighted sum of values.
    pub values: [[f32; 8]; QW],
}

/// Lanes that hold a row of `dim` elements, and this lane's first element.
#[inline(always)]
pub fn element<const LANES: usize>() -> usize {
    lane() % LANES * 8
}

/// Where element `d` of a head lies in shared memory. A lane has two times four elements, of which lanes take the first at once:
/// of every other 32 elements it is the second that lies first, so that eight lanes find them in different banks.
#[inline(always)]
pub fn spread(d: usize) -> usize {
    d ^ (d >> 3 & 4)
}

/// This lane's elements of a query in shared memory; zeros past the head.
#[inline(always)]
pub unsafe fn query<const LANES: usize>(head: Shared<f32>, dim: usize) -> [f32; 8] {
    let e = element::<LANES>();
    if e < dim {
        // SAFETY: the head has `dim` elements, a multiple of 8; it was written before a barrier.
        let (a, b) = unsafe { (head.get4(spread(e)).0, head.get4(spread(e + 4)).0) };
        [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
    } else {
        [0.0; 8]
    }
}

/// This lane's elements of a query in global memory, times `scale`; zeros past the head.
#[inline(always)]
pub unsafe fn query_at<const LANES: usize>(x: In<impl Real>, at: usize, dim: usize, scale: f32) -> [f32; 8] {
    let e = element::<LANES>();
    let mut q = [0.0f32; 8];
    if e < dim {
        for i in 0..8 {
            // SAFETY: the head has `dim` elements, a multiple of 8.
            q[i] = unsafe { x.at(at + e + i) }.widen() * scale;
        }
    }
    q
}

/// The positions `from, from + step, …` in groups of `UNROLL * 32 / LANES`, below `to`. `live(j, t)` says whether query `j`
/// attends to position `t`, and `scored` what becomes of a score. All lanes give the same bounds, `from < to` or nothing happens.
#[device]
pub unsafe fn sweep<T: Cached, const LANES: usize, const QW: usize>(
    q: &[[f32; 8]; QW],
    (keys, values): (&Rows, &Rows),
    dim: usize,
    (from, to, step): (u32, u32, u32),
    live: impl Fn(usize, u32) -> bool,
    scored: impl Fn(f32) -> f32,
) -> OnlineSoftmax<QW> {
    let e = element::<LANES>();
    // Lanes past the head repeat its first elements, and count for nothing.
    let active = e < dim;
    let offset = if active { e as u64 * T::BYTES } else { 0 };
    let row = (lane() / LANES) as u32;
    let mut state = OnlineSoftmax { largest: [f32::MIN; QW], sum: [0.0; QW], values: [[0.0; 8]; QW] };
    let mut base = from;
    while base < to {
        let mut t = [0u32; UNROLL];
        let mut index = [0u32; UNROLL];
        for u in 0..UNROLL {
            t[u] = base + (u * 32 / LANES) as u32 + row;
            // Positions past the end repeat the last one, with weight 0.
            index[u] = keys.index::<T>(if t[u] < to { t[u] } else { to - 1 });
        }
        let raw_keys = [T::load8(keys.at(index[0]) + offset), T::load8(keys.at(index[1]) + offset)];
        let raw_values = [T::load8(values.at(index[0]) + offset), T::load8(values.at(index[1]) + offset)];
        let (mut key_scales, mut value_scales) = ([1.0f32; UNROLL], [1.0f32; UNROLL]);
        for u in 0..UNROLL {
            key_scales[u] = keys.scale::<T>(index[u]);
            value_scales[u] = values.scale::<T>(index[u]);
        }
        let mut scores = [[0.0f32; UNROLL]; QW];
        for u in 0..UNROLL {
            let k = T::widen(raw_keys[u]);
            for j in 0..QW {
                let mut dot = 0.0;
                for i in 0..8 {
                    dot = math::fma(q[j][i], k[i], dot);
                }
                let dot = if active { dot } else { 0.0 };
                let mut score = reduce::<LANES>(dot);
                if T::SCALED {
                    score *= key_scales[u];
                }
                scores[j][u] = if t[u] < to && live(j, t[u]) { scored(score) } else { f32::NEG_INFINITY };
            }
        }
        let v = [T::widen(raw_values[0]), T::widen(raw_values[1])];
        for j in 0..QW {
            let new = math::max(math::max(state.largest[j], scores[j][0]), scores[j][1]);
            let shrink = math::exp2_approx_ftz(state.largest[j] - new);
            let mut p = [math::exp2_approx_ftz(scores[j][0] - new), math::exp2_approx_ftz(scores[j][1] - new)];
            state.largest[j] = new;
            state.sum[j] = math::fma(state.sum[j], shrink, p[0] + p[1]);
            if T::SCALED {
                // A weight of 0 takes nothing, whatever the row is scaled by.
                for u in 0..UNROLL {
                    p[u] = if p[u] == 0.0 { 0.0 } else { p[u] * value_scales[u] };
                }
            }
            for i in 0..8 {
                state.values[j][i] = math::fma(p[0], v[0][i], math::fma(p[1], v[1][i], state.values[j][i] * shrink));
            }
        }
        base += step;
    }
    state
}

/// The sum over the `LANES` lanes of a row.
#[device]
unsafe fn reduce<const LANES: usize>(v: f32) -> f32 {
    match LANES {
        8 => warp::reduce_group::<8, f32>(v, |a, b| a + b),
        16 => warp::reduce_group::<16, f32>(v, |a, b| a + b),
        _ => warp::reduce_group::<32, f32>(v, |a, b| a + b),
    }
}

/// The states of the warp's groups of lanes as one, in the lanes of the first group.
#[device]
pub unsafe fn merge_rows<const LANES: usize, const QW: usize>(state: &mut OnlineSoftmax<QW>) {
    let mut distance = LANES as u32;
    while distance < 32 {
        for j in 0..QW {
            let other = warp::shuffle_xor(warp::FULL, state.largest[j], distance);
            let sum = warp::shuffle_xor(warp::FULL, state.sum[j], distance);
            let new = math::max(state.largest[j], other);
            let (mine, theirs) = (math::exp2_approx_ftz(state.largest[j] - new), math::exp2_approx_ftz(other - new));
            state.largest[j] = new;
            state.sum[j] = math::fma(state.sum[j], mine, sum * theirs);
            for i in 0..8 {
                let value = warp::shuffle_xor(warp::FULL, state.values[j][i], distance);
                state.values[j][i] = math::fma(state.values[j][i], mine, value * theirs);
            }
        }
        distance *= 2;
    }
}
