//! A head, normed and turned by a warp.
//!
//! [`turn`] is what the kernels of a model do to it, bit for bit alike: those that store keys, and those that attend. The head is in
//! registers from the load to the store, elements in pairs, so that a lane loads, multiplies and stores two at a time. [`turned`]
//! takes heads of any size, one element after the other.

use crate::{
    layer::{Layer, NEOX, NORM_BEHIND, QK_NORM},
    load::lane,
};
use warpsmith_device::{prelude::*, static_for, unroll::opaque};

/// How a head is normed and turned.
#[derive(Clone, Copy)]
pub struct Turn {
    /// Weight of the norm; not read without one.
    pub weight: In<f32>,
    /// Whether there is a norm before the turn.
    pub norm: bool,
    /// Whether there is one behind it; not both.
    pub behind: bool,
    /// The epsilon of the norm.
    pub eps: f32,
    /// Cosines and sines of all positions.
    pub cos: In<f32>,
    pub sin: In<f32>,
    pub position: usize,
    pub head_dim: usize,
    pub n_rot: usize,
    pub neox: bool,
}

impl Turn {
    /// That of a layer's queries or keys.
    #[inline(always)]
    pub fn of(layer: &Layer, weight: In<f32>, (cos, sin): (In<f32>, In<f32>), position: u32) -> Turn {
        Turn {
            weight,
            norm: layer.has(QK_NORM) && !layer.has(NORM_BEHIND),
            behind: layer.has(QK_NORM) && layer.has(NORM_BEHIND),
            eps: layer.eps,
            cos,
            sin,
            position: position as usize,
            head_dim: layer.head_dim as usize,
            n_rot: layer.n_rot as usize,
            neox: layer.has(NEOX),
        }
    }
}

/// A head in the registers of a warp: of each 64 elements, lane `l` has number `2 l` and the next one; zeros past the head's end.
pub type Held<const N: usize> = [[f32; 2]; N];

/// This lane's first element.
#[inline(always)]
pub fn first() -> usize {
    2 * lane()
}

/// The same, worked out where it is asked for: what follows from it is not kept for those ways through a loop that do without.
#[inline(always)]
fn first_here() -> usize {
    2 * (opaque(crate::load::thread_index() as usize) % 32)
}

/// Where a position's row of `half` cosines begins, worked out where it is asked for.
#[inline(always)]
fn row_here(position: usize, half: usize) -> usize {
    (opaque(position) as u32 as u64 * half as u32 as u64) as usize
}

/// The bits of a magnitude: ordered as magnitudes are, with those of NaN above all.
#[inline(always)]
pub fn magnitude(v: f32) -> u32 {
    v.to_bits() & 0x7fff_ffff
}

/// A head of `dim` elements, at most `64 N`, whose elements `d` and `d + 1` are `pair(d)` for even `d`.
#[inline(always)]
pub fn held<const N: usize>(dim: usize, pair: impl Fn(usize) -> F32x2) -> Held<N> {
    let mut head = [[0.0; 2]; N];
    static_for!(j in 0..N => {
        if 64 * j + first() < dim {
            head[j] = pair(64 * j + first()).0;
        }
    });
    head
}

/// Norms and turns a head, or turns and norms it. `scratch` has room for `64 N` elements of the warp's own. Rounding: the norm is off by a relative 2^-22.
///
/// All lanes of the warp make this call.
#[device]
pub unsafe fn turn<const N: usize>(t: &Turn, head: &mut Held<N>, scratch: Shared<f32>) {
    // The same choice in every lane. What is in memory is asked for before the norm is waited for.
    if !t.neox {
        neighbours::<N>(t, head);
    } else if N % 2 == 0 && t.n_rot == 64 * N {
        halves::<N>(t, head);
    } else {
        apart::<N>(t, head, scratch);
    }
    if t.behind {
        // SAFETY: within the weight, which has as many elements as the head, at pairs.
        let weight = held::<N>(t.head_dim, |d| unsafe { t.weight.load2(d) });
        normed::<N>(t, head, &weight);
    }
}

/// The weight of the norm, if there is one.
#[inline(always)]
unsafe fn weight<const N: usize>(t: &Turn) -> Held<N> {
    // SAFETY: within the weight, which has as many elements as the head, at pairs.
    if t.norm { held::<N>(t.head_dim, |d| unsafe { t.weight.load2(d) }) } else { [[0.0; 2]; N] }
}

/// The head, normed if there is a norm.
#[device]
unsafe fn norm<const N: usize>(t: &Turn, head: &mut Held<N>, weight: &Held<N>) {
    if t.norm {
        normed::<N>(t, head, weight);
    }
}

/// The head divided by the root of its mean square, times a weight.
#[device]
unsafe fn normed<const N: usize>(t: &Turn, head: &mut Held<N>, weight: &Held<N>) {
    let mut squares = 0.0;
    static_for!(j in 0..N => {
        squares = math::fma(head[j][1], head[j][1], math::fma(head[j][0], head[j][0], squares));
    });
    let mean = warp::sum_f32(squares) * math::rcp_approx_ftz(t.head_dim as f32);
    let scale = math::rsqrt_approx_ftz(mean + t.eps);
    static_for!(j in 0..N => {
        head[j] = [head[j][0] * scale * weight[j][0], head[j][1] * scale * weight[j][1]];
    });
}

/// `(a, b)`, turned.
#[inline(always)]
fn rotated(a: f32, b: f32, cos: f32, sin: f32) -> (f32, f32) {
    (math::fma(a, cos, -(b * sin)), math::fma(b, cos, a * sin))
}

/// Pairs are neighbours.
#[device]
unsafe fn neighbours<const N: usize>(t: &Turn, head: &mut Held<N>) {
    let (row, first, weight) = (row_here(t.position, t.n_rot / 2), first_here(), weight::<N>(t));
    let mut by = [[1.0f32, 0.0]; N];
    static_for!(j in 0..N => {
        if 64 * j + first < t.n_rot {
            let i = row + 32 * j + first / 2;
            by[j] = [t.cos.at(i), t.sin.at(i)];
        }
    });
    norm::<N>(t, head, &weight);
    static_for!(j in 0..N => {
        (head[j][0], head[j][1]) = rotated(head[j][0], head[j][1], by[j][0], by[j][1]);
    });
}

/// Pairs are the halves of the head, both of which this lane has.
#[device]
unsafe fn halves<const N: usize>(t: &Turn, head: &mut Held<N>) {
    let (row, first, weight) = (row_here(t.position, 32 * N), first_here(), weight::<N>(t));
    let (mut cos, mut sin) = ([[0.0f32; 2]; N], [[0.0f32; 2]; N]);
    static_for!(j in 0..N => {
        if j < N / 2 {
            let i = row + 64 * j + first;
            (cos[j], sin[j]) = (t.cos.load2(i).0, t.sin.load2(i).0);
        }
    });
    norm::<N>(t, head, &weight);
    static_for!(j in 0..N => {
        if j < N / 2 {
            for e in 0..2 {
                (head[j][e], head[j + N / 2][e]) = rotated(head[j][e], head[j + N / 2][e], cos[j][e], sin[j][e]);
            }
        }
    });
}

/// Pairs are the halves of the head's first `n_rot` elements, wherever they are.
#[device]
unsafe fn apart<const N: usize>(t: &Turn, head: &mut Held<N>, scratch: Shared<f32>) {
    let (half, first, weight) = (t.n_rot / 2, first_here(), weight::<N>(t));
    let row = row_here(t.position, half);
    let (mut cos, mut sin) = ([[1.0f32; 2]; N], [[0.0f32; 2]; N]);
    static_for!(j in 0..N => {
        for e in 0..2 {
            let d = 64 * j + first + e;
            if d < t.n_rot {
                let i = row + if d < half { d } else { d - half };
                // The first of a pair loses what the second gains.
                let s = t.sin.at(i);
                (cos[j][e], sin[j][e]) = (t.cos.at(i), if d < half { -s } else { s });
            }
        }
    });
    norm::<N>(t, head, &weight);
    static_for!(j in 0..N => {
        scratch.set2(64 * j + first, F32x2(head[j]));
    });
    sync::warp(warp::FULL);
    static_for!(j in 0..N => {
        for e in 0..2 {
            let d = 64 * j + first + e;
            if d < t.n_rot {
                let other = scratch.get(if d < half { d + half } else { d - half });
                head[j][e] = math::fma(head[j][e], cos[j][e], other * sin[j][e]);
            }
        }
    });
    sync::warp(warp::FULL);
}

/// Reads a head by `get`, norms and turns it, and hands every element to `put`, which may write where `get` reads: a
/// lane reads both elements of a pair before it puts them, and the norm reads all before the first is put. `weight` is that of the
/// norm; what `t` has is not looked at.
#[device]
pub unsafe fn turned(t: &Turn, weight: impl Fn(usize) -> f32, get: impl Fn(usize) -> f32, put: impl Fn(usize, f32)) {
    let mut scale = 1.0;
    if t.norm {
        let mut squares = 0.0;
        let mut d = lane();
        while d < t.head_dim {
            let v = get(d);
            squares = math::fma(v, v, squares);
            d += 32;
        }
        scale = 1.0 / math::sqrt(warp::sum_f32(squares) / t.head_dim as f32 + t.eps);
    }
    let normed = |d: usize| if t.norm { get(d) * scale * weight(d) } else { get(d) };
    let half = t.n_rot / 2;
    let mut i = lane();
    while i < half {
        let (ia, ib) = if t.neox { (i, i + half) } else { (2 * i, 2 * i + 1) };
        // SAFETY: pair `i` is within its row of the tables.
        let (c, s) = unsafe { (t.cos.at(t.position * half + i), t.sin.at(t.position * half + i)) };
        let (a, b) = (normed(ia), normed(ib));
        put(ia, math::fma(a, c, -(b * s)));
        put(ib, math::fma(b, c, a * s));
        i += 32;
    }
    let mut d = t.n_rot + lane();
    while d < t.head_dim {
        put(d, normed(d));
        d += 32;
    }
}
