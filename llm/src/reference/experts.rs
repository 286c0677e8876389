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

/// A router, its bias, and what choosing adds to each expert.
pub(super) type Router<'a> = (&'a Matrix, &'a Option<Vec<f32>>, &'a [f32]);

/// The feed-forward part of a layer, of that width, and whether experts that were given fit.
pub(super) fn feed_forward(
    model: &ModelFile,
    (c, width): (&Config, usize),
    (gate, up, down): (Option<Biased<'_>>, Biased<'_>, Biased<'_>),
    router: Option<Router<'_>>,
    x: &[f64],
    given: Option<Routed<'_>>,
) -> Result<(Vec<f64>, bool), ReferenceError> {
    let (chosen, fits) = match (router, &c.experts) {
        (Some((router, bias, of_choice)), Some(experts)) => {
            let mut logits = product(model, router, x)?;
            add_bias(&mut logits, bias, 0);
            route(&logits, of_choice, experts, given)
        }
        _ => (vec![(0, 1.0)], true),
    };
    let mut sum = vec![0.0; c.hidden];
    let weighted_inputs = router.is_some() && c.architecture.weighted_inputs();
    for (expert, weight) in chosen {
        let read: Vec<f64> = x.iter().map(|x| if weighted_inputs { weight * x } else { *x }).collect();
        let (x, weight) = (&read[..], if weighted_inputs { 1.0 } else { weight });
        let of = |(m, bias): Biased<'_>, rows: usize, x: &[f64]| {
            let mut y = product_of(model, m, expert * rows..(expert + 1) * rows, x)?;
            add_bias(&mut y, bias, expert);
            Ok::<_, ReferenceError>(y)
        };
        let (gate, up) = (gate.map(|gate| of(gate, width, x)).transpose()?, of(up, width, x)?);
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

/// What the expert that all tokens are given to adds: times a sigmoid of its product with `router`, if there is one.
pub(super) fn shared_expert(
    model: &ModelFile,
    c: &Config,
    router: Option<&Matrix>,
    [gate, up, down]: [&Matrix; 3],
    x: &[f64],
) -> Result<Vec<f64>, ReferenceError> {
    let (gate, up) = (product(model, gate, x)?, product(model, up, x)?);
    let inner: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| glu(*g, *u, c.architecture.glu())).collect();
    let weight = match router {
        Some(router) => 1.0 / (1.0 + (-product(model, router, x)?.into_iter().sum::<f64>()).exp()),
        None => 1.0,
    };
    Ok(product(model, down, &inner)?.into_iter().map(|y| weight * y).collect())
}

/// The experts of a token, by its products with the router, and what each counts for; or those that are given, and whether they fit.
///
/// They are chosen by their weights before these are divided by anything, with a bias added where there are biases, of groups where there
/// are groups: those of the largest, of equal ones the first.
fn route(logits: &[f64], bias: &[f32], experts: &Experts, given: Option<Routed<'_>>) -> (Vec<(usize, f64)>, bool) {
    let mut weights = logits.to_vec();
    match experts.gating {
        Gating::Softmax => softmax(&mut weights),
        Gating::Sigmoid => weights.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp())),
    }
    // Without biases and groups the largest logits have the largest weights, and rounding makes them equal less often.
    let direct = bias.is_empty() && experts.groups.0 == 1;
    let apart = if direct { logits } else { &weights[..] };
    let scores: Vec<f64> =
        apart.iter().enumerate().map(|(i, x)| x + bias.get(i).map_or(0.0, |b| f64::from(*b))).collect();
    let tolerance = given.map_or(0.0, |(_, tolerance)| tolerance * deviation(apart));
    let (mut order, mut fits) = best(&scores, experts, &[], tolerance);
    if let Some((given, _)) = given {
        let given: Vec<usize> = given.iter().map(|&i| i as usize).collect();
        let (others, groups_fit) = best(&scores, experts, &given, tolerance);
        let least = others.last().map_or(f64::NEG_INFINITY, |&last| scores[last] - tolerance);
        let fitting = |i: usize| scores.get(i).is_some_and(|v| *v >= least);
        let distinct: HashSet<usize> = given.iter().copied().filter(|i| fitting(*i)).collect();
        fits = groups_fit && given.len() == experts.used && distinct.len() == given.len();
        if fits {
            order = given;
        }
    }
    let sum: f64 = order.iter().map(|&i| weights[i]).sum();
    // A sum of sigmoids may vanish, as may the shares of those that biases choose; ggml takes it for 2^-14 at least.
    let divisor = if experts.normalise { sum.max(2f64.powi(-14)) } else { 1.0 };
    (order.into_iter().map(|i| (i, weights[i] / divisor * f64::from(experts.scale))).collect(), fits)
}

/// The experts of the largest scores, of as many groups as are used; those of `preferred` experts come before all others, if that many there
/// are, and if none of them has a sum of its two largest scores that is smaller than another's by more than twice the tolerance.
fn best(scores: &[f64], experts: &Experts, preferred: &[usize], tolerance: f64) -> (Vec<usize>, bool) {
    let descending = |values: &[f64], all: &mut Vec<usize>| {
        // Stable: of equal ones the first.
        all.sort_by(|&a, &b| values[b].partial_cmp(&values[a]).unwrap_or(Ordering::Equal));
    };
    let ((groups, taken), each) = (experts.groups, scores.len() / experts.groups.0);
    let two_largest = |group: usize| {
        let mut all: Vec<usize> = (group * each..(group + 1) * each).collect();
        descending(scores, &mut all);
        all.iter().take(2).map(|&i| scores[i]).sum::<f64>()
    };
    let sums: Vec<f64> = (0..groups).map(two_largest).collect();
    let mut by_sum: Vec<usize> = (0..groups).collect();
    descending(&sums, &mut by_sum);
    let least = by_sum.get(taken - 1).map_or(f64::NEG_INFINITY, |&last| sums[last] - 2.0 * tolerance);
    let wanted: HashSet<usize> = preferred.iter().map(|i| i / each.max(1)).collect();
    let fit = wanted.len() <= taken && wanted.iter().all(|&g| sums.get(g).is_some_and(|sum| *sum >= least));
    if fit {
        by_sum.sort_by_key(|g| !wanted.contains(g));
    }
    by_sum.truncate(taken);
    let mut order: Vec<usize> = (0..scores.len()).filter(|i| by_sum.contains(&(i / each.max(1)))).collect();
    descending(scores, &mut order);
    order.truncate(experts.used);
    (order, fit)
}

fn deviation(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt()
}
