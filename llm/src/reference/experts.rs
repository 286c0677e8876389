//! The feed-forward part: of a dense layer, or of the experts of a mixture.

use super::math::{activated, glu, softmax};
use super::{ReferenceError, add, add_bias, product, product_of};
use crate::model::{Config, Experts, Gating, Matrix, ModelFile};
use std::cmp::Ordering;
use std::collections::HashSet;

/// Experts of a layer that somebody else chose, and the tolerance.
pub(super) type Routed<'a> = (&'a Vec<u32>, f64);

/// A matrix, or those of all experts one behind the other, and the bias of each, where there is one.
pub(super) type Biased<'a> = (&'a Matrix, &'a Option<Vec<f32>>);

/// The feed-forward part of a layer, and whether experts that were given fit.
pub(super) fn feed_forward(
    model: &ModelFile,
    c: &Config,
    (gate, up, down): (Option<Biased<'_>>, Biased<'_>, Biased<'_>),
    router: Option<Biased<'_>>,
    x: &[f64],
    given: Option<Routed<'_>>,
) -> Result<(Vec<f64>, bool), ReferenceError> {
    let (chosen, fits) = match (router, &c.experts) {
        (Some((router, bias)), Some(experts)) => {
            let mut logits = product(model, router, x)?;
            add_bias(&mut logits, bias, 0);
            route(&logits, experts, given)
        }
        _ => (vec![(0, 1.0)], true),
    };
    let mut sum = vec![0.0; c.hidden];
    for (expert, weight) in chosen {
        let of = |(m, bias): Biased<'_>, rows: usize, x: &[f64]| {
            let mut y = product_of(model, m, expert * rows..(expert + 1) * rows, x)?;
            add_bias(&mut y, bias, expert);
            Ok::<_, ReferenceError>(y)
        };
        let (gate, up) = (gate.map(|gate| of(gate, c.feed_forward, x)).transpose()?, of(up, c.feed_forward, x)?);
        let inner: Vec<f64> = match (&gate, c.architecture.ungated()) {
            (Some(gate), _) => gate.iter().zip(&up).map(|(g, u)| glu(*g, *u, c.architecture.glu())).collect(),
            (None, Some(activation)) => up.iter().map(|u| activated(*u, activation)).collect(),
            (None, None) => up,
        };
        let out: Vec<f64> = of(down, c.hidden, &inner)?.into_iter().map(|y| weight * y).collect();
        add(&mut sum, &out);
    }
    Ok((sum, fits))
}

/// What the expert that all tokens are given to adds: times a sigmoid of its product with `router`.
pub(super) fn shared_expert(
    model: &ModelFile,
    c: &Config,
    router: &Matrix,
    [gate, up, down]: [&Matrix; 3],
    x: &[f64],
) -> Result<Vec<f64>, ReferenceError> {
    let (gate, up) = (product(model, gate, x)?, product(model, up, x)?);
    let inner: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| glu(*g, *u, c.architecture.glu())).collect();
    let logit: f64 = product(model, router, x)?.into_iter().sum();
    let weight = 1.0 / (1.0 + (-logit).exp());
    Ok(product(model, down, &inner)?.into_iter().map(|y| weight * y).collect())
}

/// The experts of a token, by its products with the router, and what each counts for: those of the largest weights, of equal ones the
/// first; or those that are given, and whether they fit.
fn route(logits: &[f64], experts: &Experts, given: Option<Routed<'_>>) -> (Vec<(usize, f64)>, bool) {
    let mut weights = logits.to_vec();
    match experts.gating {
        Gating::Softmax => softmax(&mut weights),
        Gating::Sigmoid => weights.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp())),
    }
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // Stable, and by what weights are made of, which rounding makes equal less often.
    order.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap_or(Ordering::Equal));
    order.truncate(experts.used);
    let mut fits = true;
    if let (Some((given, tolerance)), Some(&last)) = (given, order.last()) {
        let least = logits[last] - tolerance * deviation(logits);
        let fitting = |i: u32| logits.get(i as usize).is_some_and(|v| *v >= least);
        let distinct: HashSet<u32> = given.iter().copied().filter(|i| fitting(*i)).collect();
        fits = given.len() == experts.used && distinct.len() == given.len();
        if fits {
            order = given.iter().map(|&i| i as usize).collect();
        }
    }
    let sum: f64 = order.iter().map(|&i| weights[i]).sum();
    // A sum of sigmoids may vanish; ggml takes it for 2^-14 at least.
    let divisor = if experts.normalise { sum.max(2f64.powi(-14)) } else { 1.0 };
    (order.into_iter().map(|i| (i, weights[i] / divisor * f64::from(experts.scale))).collect(), fits)
}

fn deviation(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt()
}
