//! Elementary functions, accurate over their whole range, the same code on host and device.
//!
//! Polynomials: Cephes Mathematical Library 2.2 (`logf`, `tanhf`, `erff`, `erfcf`), by Horner's rule in `fma`. Bounds are
//! measured against `f64` by the tests.

use super::{exp, fma};

/// c[0] xⁿ + … + c[n], by Horner's rule.
#[inline(always)]
pub(super) fn polynomial<const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let (mut sum, mut i) = (c[0], 1);
    while i < N {
        sum = fma(sum, x, c[i]);
        i += 1;
    }
    sum
}

/// x as m · 2^e with √½ ≤ m < √2, for positive finite x: m − 1 and e.
#[inline(always)]
pub(super) fn parts(x: f32) -> (f32, f32) {
    // A subnormal number is made a normal one.
    let small = x < f32::MIN_POSITIVE;
    let bits = if small { (x * 33_554_432.0).to_bits() } else { x.to_bits() };
    let from_sqrt_half = bits.wrapping_sub(0x3f35_04f3);
    let exponent = (from_sqrt_half as i32 >> 23) - if small { 25 } else { 0 };
    (f32::from_bits((from_sqrt_half & 0x007f_ffff) + 0x3f35_04f3) - 1.0, exponent as f32)
}

/// ln(1 + x) − x for 1 + x within √½..√2.
#[inline(always)]
fn ln_rest(x: f32) -> f32 {
    let square = x * x;
    let p = polynomial(
        x,
        [
            7.037_683_6e-2,
            -1.151_461e-1,
            1.167_699_9e-1,
            -1.242_014_1e-1,
            1.424_932_3e-1,
            -1.666_805_8e-1,
            2.000_071_5e-1,
            -2.499_999_4e-1,
            3.333_333e-1,
        ],
    );
    fma(p * x, square, -0.5 * square)
}

/// What a logarithm is of numbers that are not positive and finite.
#[inline(always)]
fn outside(x: f32) -> f32 {
    if x == 0.0 {
        f32::NEG_INFINITY
    } else if x < 0.0 {
        f32::NAN
    } else {
        x
    }
}

/// ln(x) within a relative 2^-22.5, subnormals included: −∞ for 0, NaN below. About 45 instructions.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    if !(x > 0.0 && x < f32::INFINITY) {
        return outside(x);
    }
    let (m, e) = parts(x);
    fma(e, LN2_HIGH, m + fma(e, LN2_LOW, ln_rest(m)))
}

/// log2(x) within a relative 2^-22: −∞ for 0, NaN below. Exact for powers of two. About 45 instructions.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    // log2(e) - 1
    const LOG2_E_REST: f32 = 0.442_695_05;
    if !(x > 0.0 && x < f32::INFINITY) {
        return outside(x);
    }
    let (m, e) = parts(x);
    let rest = ln_rest(m);
    // (m + rest) · log2(e), the large part last.
    let small = fma(m, LOG2_E_REST, fma(rest, LOG2_E_REST, rest));
    e + (small + m)
}

/// tanh(x) within a relative 2^-21.5; ±1 from 9.02 on. An [`exp`] and a division where |x| ≥ 0.625, six instructions below.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    if magnitude < 0.625 {
        let z = x * x;
        let p = polynomial(z, [-5.704_989e-3, 2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1]);
        return fma(p * z, x, x);
    }
    let t = 1.0 - 2.0 / (exp(2.0 * magnitude) + 1.0);
    if x < 0.0 { -t } else { t }
}

/// 1 / (1 + e^−x) within a relative 2^-21 (and 2^-149): the logistic function. An [`exp`] and a division.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    // e^x itself where 1 + e^-x would overflow.
    if x < -80.0 { exp(x) } else { 1.0 / (1.0 + exp(-x)) }
}

/// erf(x) within a relative 2^-21; ±1 from 4 on. Eight instructions where |x| < 1, an [`exp`] and a division beyond.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let magnitude = x.abs();
    if magnitude < 1.0 {
        let p = polynomial(
            x * x,
            [
                7.853_861_4e-5,
                -8.010_194e-4,
                5.188_327_7e-3,
                -2.685_381_2e-2,
                1.128_358_5e-1,
                -3.761_262_6e-1,
                core::f32::consts::FRAC_2_SQRT_PI,
            ],
        );
        return x * p;
    }
    // 1 - erfc: what is taken off is small, so that its error hardly counts.
    let q = 1.0 / magnitude;
    let y = q * q;
    let p = if magnitude < 2.0 {
        polynomial(
            y,
            [
                2.326_82e-2,
                -1.387_039_4e-1,
                3.687_424_7e-1,
                -5.824_733e-1,
                6.210_004_6e-1,
                -4.944_515_3e-1,
                3.404_88e-1,
                -2.741_127e-1,
                5.638_259_4e-1,
            ],
        )
    } else {
        polynomial(
            y,
            [
                -1.047_766_4e1,
                1.297_72e1,
                -7.495_518_7,
                2.921_019,
                -1.015_265_3,
                4.218_463_4e-1,
                -2.820_767_4e-1,
                5.641_895e-1,
            ],
        )
    };
    let t = 1.0 - exp(-magnitude * magnitude) * q * p;
    if x < 0.0 { -t } else { t }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers spread over a range of magnitudes, both signs.
    fn spread(low: f32, high: f32, n: u32) -> impl Iterator<Item = f32> {
        let (low, high) = (low.to_bits(), high.to_bits());
        (0..=n).map(move |i| f32::from_bits(low + (u64::from(high - low) * u64::from(i) / u64::from(n)) as u32))
    }

    fn worst(points: impl Iterator<Item = f32>, ours: fn(f32) -> f32, truth: impl Fn(f64) -> f64) -> f64 {
        points.fold(0.0, |worst: f64, x| {
            let (ours, truth) = (f64::from(ours(x)), truth(f64::from(x)));
            if ours == truth { worst } else { worst.max(((ours - truth) / truth).abs()) }
        })
    }

    #[test]
    fn logarithms_keep_their_bounds() {
        let all = || spread(1e-45, f32::MAX, 300_007).chain(spread(0.5, 2.0, 300_007));
        assert!(worst(all(), ln, f64::ln) < 2f64.powf(-22.5), "{}", worst(all(), ln, f64::ln).log2());
        assert!(worst(all(), log2, f64::log2) < 2f64.powi(-22), "{}", worst(all(), log2, f64::log2).log2());
        for n in -149..128 {
            assert_eq!(log2(2f64.powi(n) as f32), n as f32);
        }
        for f in [ln, log2] {
            assert_eq!(
                (f(0.0), f(-0.0), f(1.0), f(f32::INFINITY)),
                (f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0, f32::INFINITY)
            );
            assert!(f(-1.0).is_nan() && f(f32::NEG_INFINITY).is_nan() && f(f32::NAN).is_nan());
        }
    }

    #[test]
    fn tanh_and_sigmoid_keep_their_bounds() {
        let both = |high: f32| spread(1e-30, high, 200_003).flat_map(|x| [x, -x]);
        assert!(worst(both(20.0), tanh, f64::tanh) < 2f64.powf(-21.5), "{}", worst(both(20.0), tanh, f64::tanh).log2());
        let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
        let found = worst(both(87.0), sigmoid, logistic);
        assert!(found < 2f64.powi(-21), "{}", found.log2());
        assert_eq!((tanh(9.02), tanh(-1e30), tanh(f32::INFINITY), tanh(0.0)), (1.0, -1.0, 1.0, 0.0));
        assert_eq!((sigmoid(200.0), sigmoid(-200.0), sigmoid(0.0), sigmoid(f32::NEG_INFINITY)), (1.0, 0.0, 0.5, 0.0));
        assert!((f64::from(sigmoid(-100.0)) - logistic(-100.0)).abs() < 2f64.powi(-148));
        assert!(tanh(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan());
    }

    /// The Taylor series, whose terms stay below 2^20 up to 4.
    fn erf_series(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..120 {
            let n = f64::from(n);
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn erf_keeps_its_bound() {
        let both = || spread(1e-20, 4.0, 50_003).flat_map(|x| [x, -x]);
        let found = worst(both(), erf, erf_series);
        assert!(found < 2f64.powi(-21), "{}", found.log2());
        assert_eq!((erf(4.0), erf(-1e30), erf(0.0), erf(f32::INFINITY)), (1.0, -1.0, 0.0, 1.0));
        assert!(erf(f32::NAN).is_nan());
    }
}
