//! The definition of a choice of experts, in f64.

use super::{LEAST, NORMALISE, SIGMOID};
use std::cmp::Ordering;

/// By what experts are chosen beside their logits.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// Empty, or a bias of each.
    pub bias: &'a [f32],
    /// Groups, and those that are taken.
    pub groups: (usize, usize),
}

impl Choice<'_> {
    /// By their logits alone.
    pub const ALL: Choice<'static> = Choice { bias: &[], groups: (1, 1) };
}

/// The definition in f64: experts and their weights.
#[must_use]
pub fn reference(logits: &[f32], choice: Choice<'_>, used: usize, flags: u32, scale: f32) -> Vec<(u32, f64)> {
    let largest = logits.iter().fold(f64::NEG_INFINITY, |m, v| m.max(f64::from(*v)));
    let all: Vec<f64> = logits.iter().map(|v| (f64::from(*v) - largest).exp()).collect();
    let sum: f64 = all.iter().sum();
    let weight =
        |i: usize| if flags & SIGMOID != 0 { 1.0 / (1.0 + (-f64::from(logits[i])).exp()) } else { all[i] / sum };
    let ((groups, taken), direct) = (choice.groups, choice.bias.is_empty() && choice.groups.0 == 1);
    let score = |i: usize| match direct {
        true => f64::from(logits[i]),
        false => weight(i) + choice.bias.get(i).map_or(0.0, |b| f64::from(*b)),
    };
    // Stable: equal ones stay in the order of their indices.
    let sort = |order: &mut Vec<usize>, of: &dyn Fn(usize) -> f64| {
        order.sort_by(|&a, &b| match (of(a).is_nan(), of(b).is_nan()) {
            (false, false) => of(b).partial_cmp(&of(a)).unwrap_or(Ordering::Equal),
            (a, b) => a.cmp(&b),
        });
    };
    let each = logits.len() / groups;
    let two_largest = |group: usize| {
        let mut all: Vec<usize> = (group * each..(group + 1) * each).collect();
        sort(&mut all, &score);
        all.into_iter().take(2).map(score).sum()
    };
    let mut order: Vec<usize> = (0..groups).collect();
    if groups > 1 {
        sort(&mut order, &two_largest);
    }
    let mut order: Vec<usize> = order[..taken].iter().flat_map(|group| group * each..(group + 1) * each).collect();
    order.sort_unstable();
    sort(&mut order, &score);
    order.truncate(used);
    let mut weights: Vec<f64> = order.iter().map(|&i| weight(i)).collect();
    if flags & NORMALISE != 0 {
        let sum = weights.iter().sum::<f64>().max(f64::from(LEAST));
        weights.iter_mut().for_each(|w| *w /= sum);
    }
    order.into_iter().zip(weights).map(|(i, w)| (i as u32, w * f64::from(scale))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_the_definition() {
        let (a, b) = (1f64.exp(), 2f64.exp());
        let close = |got: Vec<(u32, f64)>, want: &[(u32, f64)]| {
            assert_eq!(got.len(), want.len());
            for (g, w) in got.iter().zip(want) {
                assert!(g.0 == w.0 && (g.1 - w.1).abs() < 1e-12, "{got:?} {want:?}");
            }
        };
        let logits = [0.0, 2.0, 1.0];
        close(reference(&logits, Choice::ALL, 2, 0, 1.0), &[(1, b / (1.0 + a + b)), (2, a / (1.0 + a + b))]);
        close(reference(&logits, Choice::ALL, 2, NORMALISE, 2.0), &[(1, 2.0 * b / (a + b)), (2, 2.0 * a / (a + b))]);
        let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
        close(reference(&logits, Choice::ALL, 1, SIGMOID, 1.0), &[(1, sigmoid(2.0))]);
        close(reference(&[-30.0, -40.0], Choice::ALL, 1, SIGMOID | NORMALISE, 1.0), &[(0, sigmoid(-30.0) * 16384.0)]);
        // Ties by index; a NaN behind all numbers.
        let order = |logits: &[f32]| {
            reference(logits, Choice::ALL, logits.len(), 0, 1.0).iter().map(|e| e.0).collect::<Vec<_>>()
        };
        assert_eq!(order(&[0.0, 1.0, -0.0, 1.0]), [1, 3, 0, 2]);
        assert_eq!(order(&[f32::NAN, f32::NEG_INFINITY, f32::NAN, 1.0]), [3, 1, 0, 2]);
        // A bias chooses and does not count.
        let biased = |bias, flags| reference(&logits, Choice { bias, groups: (1, 1) }, 1, flags, 1.0);
        close(biased(&[0.9, 0.0, 0.0], SIGMOID), &[(0, 0.5)]);
        close(biased(&[0.9, 0.0, 0.0], 0), &[(0, 1.0 / (1.0 + a + b))]);
        close(biased(&[0.3, 0.0, 0.0], SIGMOID), &[(1, sigmoid(2.0))]);
        // Of the sums 0.5 + 0.5, 0.88 + 0.02 and 0.73 + 0.5 the last is the largest, then the first.
        let six = [0.0, 0.0, 2.0, -4.0, 1.0, 0.0];
        let grouped = |used, taken| reference(&six, Choice { bias: &[], groups: (3, taken) }, used, SIGMOID, 1.0);
        close(grouped(2, 1), &[(4, sigmoid(1.0)), (5, 0.5)]);
        close(grouped(3, 2), &[(4, sigmoid(1.0)), (0, 0.5), (1, 0.5)]);
        close(grouped(1, 3), &[(2, sigmoid(2.0))]);
    }
}
