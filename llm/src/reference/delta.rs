//! Layers that are gated delta nets, token by token, as their definition has it.

use super::math::{dot, rms_norm, silu};
use super::{ReferenceError, product};
use crate::model::{Config, DeltaNets, LayerTensors, ModelFile};
use std::collections::VecDeque;

/// What a layer remembers.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// The last inputs of the convolution, the oldest first.
    inputs: VecDeque<Vec<f64>>,
    /// For each head a matrix, `[key element][value element]`, flat; empty before the first token.
    heads: Vec<Vec<f64>>,
}

/// What a layer's heads give for a token with the normed input `h`; `None` where the layer is none, or lacks a tensor.
pub(super) fn attend(
    model: &ModelFile,
    c: &Config,
    layer: &LayerTensors,
    h: &[f64],
    state: &mut State,
) -> Result<Option<Vec<f64>>, ReferenceError> {
    let LayerTensors {
        delta_q,
        delta_k,
        delta_v,
        delta_gate,
        delta_beta,
        delta_alpha,
        delta_conv,
        delta_dt,
        delta_a,
        delta_norm,
        ..
    } = layer;
    let (Some(net), Some(q), Some(k), Some(v)) = (&c.delta, delta_q, delta_k, delta_v) else { return Ok(None) };
    let (Some(gate), Some(beta), Some(alpha)) = (delta_gate, delta_beta, delta_alpha) else { return Ok(None) };
    let (Some(conv), Some(dt), Some(a), Some(norm)) = (delta_conv, delta_dt, delta_a, delta_norm) else {
        return Ok(None);
    };
    let inputs = [product(model, q, h)?, product(model, k, h)?, product(model, v, h)?].concat();
    let mixed = convolve(inputs, conv, &mut state.inputs);
    let (z, beta, alpha) = (product(model, gate, h)?, product(model, beta, h)?, product(model, alpha, h)?);
    state.heads.resize(net.value_heads, vec![0.0; net.dim * net.dim]);
    let mut all = Vec::with_capacity(net.values());
    for (head, memory) in state.heads.iter_mut().enumerate() {
        let [q, k, v] = parts(&mixed, net, head, c.eps);
        let beta = 1.0 / (1.0 + (-beta[head]).exp());
        let softplus = softplus(alpha[head] + f64::from(dt[head]));
        let out = rule(memory, [&q, &k, &v], beta, (f64::from(a[head]) * softplus).exp());
        let normed = rms_norm(&out, norm, c.eps);
        let z = &z[head * net.dim..][..net.dim];
        all.extend(normed.iter().zip(z).map(|(o, z)| o * silu(*z)));
    }
    Ok(Some(all))
}

/// SiLU of what each channel's weights make of its last inputs, this one among them.
fn convolve(x: Vec<f64>, weights: &[f32], inputs: &mut VecDeque<Vec<f64>>) -> Vec<f64> {
    let width = weights.len() / x.len();
    inputs.push_back(x);
    while inputs.len() > width {
        inputs.pop_front();
    }
    // Before the first token there are zeros.
    let missing = width - inputs.len();
    let of = |(channel, weights): (usize, &[f32])| {
        let all = weights[missing..].iter().zip(inputs.iter());
        silu(all.map(|(w, x)| f64::from(*w) * x[channel]).sum())
    };
    weights.chunks_exact(width).enumerate().map(of).collect()
}

/// Query and key of a head, both of length 1 and the query divided by the root of the width, and its value.
fn parts<'a>(mixed: &'a [f64], net: &DeltaNets, head: usize, eps: f32) -> [std::borrow::Cow<'a, [f64]>; 3] {
    let of = |number: usize| &mixed[number * net.dim..][..net.dim];
    let unit = |x: &[f64], scale: f64| {
        let length = dot(x, x).sqrt().max(f64::from(eps));
        x.iter().map(|x| x / length * scale).collect::<Vec<_>>()
    };
    let key_head = head / net.together % net.key_heads;
    let q = unit(of(key_head), 1.0 / (net.dim as f64).sqrt());
    let k = unit(of(net.key_heads + key_head), 1.0);
    [q.into(), k.into(), of(2 * net.key_heads + head).into()]
}

/// `S = decay S + k (beta (v - decay S^T k))^T`, and `S^T q`.
fn rule(memory: &mut [f64], [q, k, v]: [impl AsRef<[f64]>; 3], beta: f64, decay: f64) -> Vec<f64> {
    let (q, k, v) = (q.as_ref(), k.as_ref(), v.as_ref());
    let width = v.len();
    memory.iter_mut().for_each(|s| *s *= decay);
    let read = |memory: &[f64], by: &[f64]| {
        let mut out = vec![0.0; width];
        for (row, weight) in memory.chunks_exact(width).zip(by) {
            out.iter_mut().zip(row).for_each(|(o, s)| *o += weight * s);
        }
        out
    };
    let known = read(memory, k);
    for (row, k) in memory.chunks_exact_mut(width).zip(k) {
        for ((s, v), known) in row.iter_mut().zip(v).zip(&known) {
            *s += k * beta * (v - known);
        }
    }
    read(memory, q)
}

/// `ln(1 + e^x)`.
fn softplus(x: f64) -> f64 {
    if x > 40.0 { x } else { x.exp().ln_1p() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_back_its_value_and_another_one_nothing() {
        let mut memory = vec![0.0; 4];
        let (e0, e1) = ([1.0, 0.0], [0.0, 1.0]);
        rule(&mut memory, [&e0, &e0, &[3.0, 5.0]], 1.0, 0.5);
        assert_eq!(rule(&mut memory.clone(), [&e0, &e1, &[0.0, 0.0]], 0.0, 1.0), [3.0, 5.0]);
        assert_eq!(rule(&mut memory.clone(), [&e1, &e1, &[0.0, 0.0]], 0.0, 1.0), [0.0, 0.0]);
        // Half of it is forgotten, and then half of what is missing added.
        assert_eq!(rule(&mut memory, [&e0, &e0, &[3.0, 5.0]], 0.5, 0.5), [2.25, 3.75]);
    }

    #[test]
    fn the_newest_input_has_the_last_weight() {
        let (mut inputs, weights) = (VecDeque::new(), [1000.0f32, 2000.0, 3000.0, 4000.0]);
        let all: Vec<f64> = (1..=5).map(|x| convolve(vec![f64::from(x)], &weights, &mut inputs)[0]).collect();
        assert_eq!(all, [4000.0, 11_000.0, 20_000.0, 30_000.0, 40_000.0]);
    }
}
