//! A head, normed and turned by a warp: what every kernel that rotates does to it, bit for bit alike.

use crate::{
    layer::{Layer, NEOX, QK_NORM},
    load::lane,
};
use warpsmith_device::prelude::*;

/// How a head is normed and turned.
#[derive(Clone, Copy)]
pub struct Turn {
    /// Weight of the norm; not read without one.
    pub weight: In<f32>,
    /// Whether there is a norm.
    pub norm: bool,
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
            norm: layer.has(QK_NORM),
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

/// Reads a head by `get`, norms and turns it, and hands every element to `put`, which may write where `get` reads: a
/// lane reads both elements of a pair before it puts them, and the norm reads all before the first is put.
#[device]
pub unsafe fn turned(t: &Turn, get: impl Fn(usize) -> f32, put: impl Fn(usize, f32)) {
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
    // SAFETY: `d` is below `head_dim`, the length of the weight.
    let normed = |d: usize| if t.norm { get(d) * scale * unsafe { t.weight.at(d) } } else { get(d) };
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
