//! The pieces of the forward pass that are not a matrix product.

use crate::model::{Rope, RopeStyle, Yarn};
use gpu_kernels::activation::{Activation, normal};
use gpu_kernels::elementwise::Glu;

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `x / sqrt(mean(x^2) + eps) * w`.
pub(super) fn rms_norm(x: &[f64], w: &[f32], eps: f32) -> Vec<f64> {
    let scale = 1.0 / (dot(x, x) / x.len() as f64 + f64::from(eps)).sqrt();
    x.iter().zip(w).map(|(x, &w)| x * scale * f64::from(w)).collect()
}

/// `(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * w + b`.
pub(super) fn layer_norm(x: &[f64], w: &[f32], b: Option<&[f32]>, eps: f32) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let deviation = (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + f64::from(eps)).sqrt();
    let bias = |i: usize| b.and_then(|b| b.get(i)).copied().map_or(0.0, f64::from);
    x.iter().zip(w).enumerate().map(|(i, (x, w))| (x - mean) / deviation * f64::from(*w) + bias(i)).collect()
}

/// `cap * tanh(x / cap)`, and `x` where the cap is 0.
pub(super) fn capped(x: f64, cap: f32) -> f64 {
    if cap == 0.0 { x } else { f64::from(cap) * (x / f64::from(cap)).tanh() }
}

/// `g / (1 + e^-g)`.
pub(super) fn silu(g: f64) -> f64 {
    g / (1.0 + (-g).exp())
}

/// `g / 2 * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g^3)))`.
fn gelu(g: f64) -> f64 {
    0.5 * g * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g.powi(3))).tanh())
}

/// What comes of a gate and its up. Clamped: `g / (1 + e^-(1.702 g)) * (u + 1)`, with `g` at most 7 and `u` within -7 and 7.
pub(super) fn glu(gate: f64, up: f64, glu: Glu) -> f64 {
    match glu {
        Glu::Silu => silu(gate) * up,
        Glu::Gelu => gelu(gate) * up,
        Glu::Clamped => silu(1.702 * gate.min(7.0)) / 1.702 * (up.clamp(-7.0, 7.0) + 1.0),
    }
}

/// What comes of an up where there are no gates. `erf` is that of `normal`, which has golden values of its own.
pub(super) fn activated(up: f64, activation: Activation) -> f64 {
    match activation {
        Activation::Gelu => gelu(up),
        Activation::GeluErf => up * normal(up),
        Activation::SquaredRelu => up.max(0.0) * up.max(0.0),
    }
}

/// Rotates the first `dims` elements of a head.
pub(super) fn rope(head: &mut [f64], position: usize, rope: &Rope, freqs: Option<&[f32]>) {
    let half = rope.dims / 2;
    for i in 0..half {
        let (a, b) = match rope.style {
            RopeStyle::Neox => (i, i + half),
            RopeStyle::Norm => (2 * i, 2 * i + 1),
        };
        let mut angle = position as f64 * f64::from(rope.base).powf(-2.0 * i as f64 / rope.dims as f64);
        if let Some(f) = freqs.and_then(|f| f.get(i)) {
            angle /= f64::from(*f);
        }
        let (share, stretch) = rope.yarn.map_or((0.0, 1.0), |y| yarn(rope, &y, i));
        angle = (1.0 - share) * angle / f64::from(rope.scale) + share * angle;
        let (sin, cos) = angle.sin_cos();
        let (sin, cos) = (sin * stretch, cos * stretch);
        (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[b] * cos + head[a] * sin);
    }
}

/// The share of the unscaled angle that pair `i` takes, and the factor of cosines and sines.
fn yarn(rope: &Rope, y: &Yarn, i: usize) -> (f64, f64) {
    let dims = rope.dims as f64;
    // The pair that turns `beta` times within the original context.
    let pair = |beta: f32| {
        dims * (f64::from(y.original_context) / (f64::from(beta) * std::f64::consts::TAU)).ln()
            / (2.0 * f64::from(rope.base).ln())
    };
    let low = pair(y.beta_fast).floor().max(0.0);
    let high = pair(y.beta_slow).ceil().min(dims - 1.0);
    let ramp = 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
    let stretch = if y.ext_factor != 0.0 { 1.0 + 0.1 * f64::from(rope.scale).ln() } else { 1.0 };
    (ramp * f64::from(y.ext_factor), f64::from(y.attn_factor) * stretch)
}

pub(super) fn softmax(scores: &mut [f64]) {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    scores.iter_mut().for_each(|s| *s = (*s - max).exp());
    let sum: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|s| *s /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(bytes: &[u8]) -> Vec<f64> {
        bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect()
    }

    #[test]
    fn rope_matches_the_golden_vectors_in_both_styles() {
        let x: Vec<f64> = include_bytes!("../../../gpu-kernels/tests/vectors/rope.x.f32")
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| f64::from(f32::from_le_bytes(*b)))
            .collect();
        let neox = golden(include_bytes!("../../../gpu-kernels/tests/vectors/rope.neox.f64"));
        let norm = golden(include_bytes!("../../../gpu-kernels/tests/vectors/rope.norm.f64"));
        for (style, want) in [(RopeStyle::Neox, neox), (RopeStyle::Norm, norm)] {
            let r = Rope { style, dims: 64, base: 10000.0, scale: 1.0, yarn: None };
            for (i, position) in [0usize, 1, 7, 100, 4095].into_iter().enumerate() {
                for head in 0..2 {
                    let place = (i * 2 + head) * 64..(i * 2 + head + 1) * 64;
                    let mut got = x[place.clone()].to_vec();
                    rope(&mut got, position, &r, None);
                    for (g, w) in got.iter().zip(&want[place]) {
                        assert!((g - w).abs() < 1e-11, "{style:?} {position}: {g} {w}");
                    }
                }
            }
        }
    }

    /// ggml, `ggml_rope_yarn_corr_dims`: `MIN(n_dims - 1, end)`.
    #[test]
    fn the_last_pair_of_yarn_is_below_the_number_of_dimensions() {
        let y = Yarn { original_context: 4096, ext_factor: 1.0, attn_factor: 1.0, beta_fast: 600.0, beta_slow: 1.0 };
        let r = Rope { style: RopeStyle::Norm, dims: 8, base: 2.0, scale: 4.0, yarn: Some(y) };
        // Pairs that turn 600 times and once: 8 ln(4096 / 2 pi beta) / 2 ln 2 is 0.5 and 37.4. So from 0 to 7.
        for i in 0..4 {
            let (share, _) = yarn(&r, &y, i);
            assert!((share - (1.0 - i as f64 / 7.0)).abs() < 1e-12, "pair {i}: {share}");
        }
    }

    #[test]
    fn linear_scaling_divides_positions_and_freqs_divide_angles() {
        let head: Vec<f64> = (0..8).map(f64::from).collect();
        let r = Rope { style: RopeStyle::Norm, dims: 8, base: 100.0, scale: 1.0, yarn: None };
        let at = |position, r: &Rope, f: Option<&[f32]>| {
            let mut h = head.clone();
            rope(&mut h, position, r, f);
            h
        };
        assert_eq!(at(12, &Rope { scale: 4.0, ..r }, None), at(3, &r, None));
        assert_eq!(at(8, &r, Some(&[4.0; 4])), at(2, &r, None));
        // Partial rotation leaves the rest alone.
        assert_eq!(at(5, &Rope { dims: 4, ..r }, None)[4..], head[4..]);
    }
}
