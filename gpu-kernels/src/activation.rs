//! What comes of an output of a feed-forward part that has no gates. Products compute it ([`ACTIVATED`](crate::gemv::ACTIVATED)).
//!
//! - [`Gelu`](Activation::Gelu): `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`, as [`gelu`] has it
//! - [`GeluErf`](Activation::GeluErf): `x / 2 * (1 + erf(x / sqrt(2)))`
//! - [`SquaredRelu`](Activation::SquaredRelu): `max(x, 0)^2`
//!
//! Sources: Hendrycks and Gimpel, arXiv 1606.08415; So et al., arXiv 2109.08668, section 3.

use crate::elementwise::gelu;
use warpsmith_device::math;

/// Such a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// GELU by its approximation with a hyperbolic tangent.
    Gelu,
    /// GELU by the error function.
    GeluErf,
    /// The square of what is above zero.
    SquaredRelu,
}

impl Activation {
    /// The definition in f64.
    #[cfg(not(target_arch = "nvptx64"))]
    #[must_use]
    pub fn reference(self, x: f64) -> f64 {
        match self {
            Activation::Gelu => crate::elementwise::gelu_reference(x),
            Activation::GeluErf => x * normal(x),
            Activation::SquaredRelu => x.max(0.0).powi(2),
        }
    }
}

/// How much of the normal distribution lies below `x`, in f64: `(1 + erf(x / sqrt(2))) / 2`. Series and continued fraction: Abramowitz and Stegun, 26.2.11 and 26.2.14.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn normal(x: f64) -> f64 {
    let density = (-0.5 * x * x).exp() / (2.0 * core::f64::consts::PI).sqrt();
    if x < -1.0 {
        return tail(-x, density);
    }
    if x >= 2.5 {
        return 1.0 - tail(x, density);
    }
    // x + x^3 / 3 + x^5 / 15 + …, whose terms all have one sign.
    let (mut term, mut sum, mut n) = (x, 0.0, 1.0);
    while sum + term != sum {
        sum += term;
        n += 2.0;
        term *= x * x / n;
    }
    0.5 + density * sum
}

/// What lies above `x`, of at least 1: `density / (x + 1 / (x + 2 / (x + 3 / …)))`.
#[cfg(not(target_arch = "nvptx64"))]
fn tail(x: f64, density: f64) -> f64 {
    let fraction = (1..400).rev().fold(x, |below, n| x + f64::from(n) / below);
    density / fraction
}

/// [`Activation::GeluErf`] for every finite `x`: off by a share of itself of 1e-6 and of 3e-7 times `x^2 / 2`, which is 87 where it has
/// fallen to the smallest normal numbers.
///
/// With `z = |x| / sqrt(2)` and `t = 1 / (1 + z / 2)` it is `erfc(z) = t * e^(P(t) - z^2)`; `P` is the polynomial of degree eight that
/// is nearest to `ln(erfc(z) / t) + z^2` at the Chebyshev nodes of `0.16 <= t <= 1`, off by 2.8e-7 there. What it is beyond, no f32 shows.
#[inline(always)]
pub fn gelu_erf(x: f32) -> f32 {
    let t = 1.0 / math::fma(x.abs(), 0.353_553_4, 1.0);
    // One by one: of an array the constants would be read from memory.
    let p = math::fma(0.074_842_56, t, -0.536_695_66);
    let p = math::fma(p, t, 1.436_850_6);
    let p = math::fma(p, t, -1.738_199_1);
    let p = math::fma(p, t, 0.822_379_35);
    let p = math::fma(p, t, -0.223_433_37);
    let p = math::fma(p, t, 0.436_055_9);
    let p = math::fma(p, t, 0.993_416_8);
    let p = math::fma(p, t, -1.265_217_2);
    // The square is not rounded.
    let beyond = 0.5 * t * math::exp(math::fma(-0.5 * x, x, p));
    if x < 0.0 { x * beyond } else { x * (1.0 - beyond) }
}

/// `max(x, 0)^2`; NaN is handed on.
#[inline(always)]
pub fn squared_relu(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x * x }
}

/// What comes of `x`: GELU, by the error function where that is asked for, or the squared ReLU where neither is.
#[inline(always)]
pub fn activated(x: f32, with_gelu: bool, by_erf: bool) -> f32 {
    if by_erf {
        gelu_erf(x)
    } else if with_gelu {
        gelu(x)
    } else {
        squared_relu(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `erfc(-x / sqrt(2)) / 2` of Python's `math`, with glibc's `erfc`.
    const NORMAL: [(f64, f64); 9] = [
        (-13.0, 6.117164399549921e-39),
        (-6.0, 9.865876450377012e-10),
        (-2.75, 0.0029797632350545573),
        (-1.5, 0.06680720126885809),
        (-0.5, 0.3085375387259869),
        (0.0, 0.5),
        (0.25, 0.5987063256829237),
        (1.75, 0.9599408431361829),
        (5.0, 0.9999997133484281),
    ];

    #[test]
    fn the_normal_distribution_is_that_of_another_implementation() {
        for (x, want) in NORMAL {
            let got = normal(x);
            assert!((got - want).abs() <= (4e-15 + 1e-16 * x * x) * want, "normal({x}) = {got:e} for {want:e}");
        }
    }

    #[test]
    fn gelu_by_the_error_function_is_accurate_at_every_size() {
        for i in -2640..=2640 {
            let x = i as f32 * 0.005 + 0.00137;
            let (got, want) = (f64::from(gelu_erf(x)), Activation::GeluErf.reference(x.into()));
            let exponent = f64::from(x * x) / 2.0;
            let bound = (1e-6 + if x < 0.0 { 3e-7 * exponent } else { 0.0 }) * want.abs() + 2e-43;
            assert!((got - want).abs() <= bound, "gelu({x}) = {got:e} for {want:e}");
        }
        for x in [1e4, 1e30, f32::MAX] {
            assert_eq!((gelu_erf(x), gelu_erf(-x)), (x, 0.0));
        }
        assert_eq!((gelu_erf(0.0), gelu_erf(f32::INFINITY)), (0.0, f32::INFINITY));
        assert!(gelu_erf(f32::NAN).is_nan());
    }

    #[test]
    fn functions_are_told_apart_and_hand_on_what_is_no_number() {
        let all = [
            (true, false, Activation::Gelu),
            (true, true, Activation::GeluErf),
            (false, false, Activation::SquaredRelu),
        ];
        for (with_gelu, by_erf, activation) in all {
            for x in [-3.0f32, -0.5, 0.0, 0.75, 4.0] {
                let (got, want) = (f64::from(activated(x, with_gelu, by_erf)), activation.reference(x.into()));
                assert!((got - want).abs() <= 3e-6 * want.abs(), "{activation:?}({x}) = {got:e} for {want:e}");
            }
            assert!(activated(f32::NAN, with_gelu, by_erf).is_nan(), "{activation:?}");
        }
        assert_eq!((squared_relu(-f32::INFINITY), squared_relu(3.0)), (0.0, 9.0));
    }
}
