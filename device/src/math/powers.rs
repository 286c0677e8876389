//! Powers and roots, the same code on host and device but for the start of [`rsqrt`].
//!
//! Bounds are in units in the last place of the true result, measured against `f64` by the tests. Logarithms are
//! 2 artanh(u / 2) with u = 2 (m - 1) / (m + 1), by its series, in two floats where `f32` does not hold enough.

use super::elementary::{parts, polynomial};
use super::{LOG2_E, exp2_approx, fma, log2_approx, power_of_two, round_even, round_to_i32, rsqrt_approx, sqrt};

/// x^y by the rules of IEEE 754, and where both are finite as e^(y ln x), with `ln_in_two` and `exp_of_two` of the place. `a` is |x|;
/// beyond e^`far` every power is infinite, beyond e^-`far` zero.
macro_rules! power_by_rules {
    ($t:ident, $abs:path, $x:ident, $y:ident, ($a:ident, $whole:ident, $odd:ident), $far:literal) => {{
        let sign = if $odd { $x.to_bits() & <$t>::to_bits(-0.0) } else { 0 };
        let magnitude = if $y == 0.0 || $x == 1.0 {
            return 1.0;
        } else if $x.is_nan() || $y.is_nan() {
            return $t::NAN;
        } else if $abs($y) == $t::INFINITY {
            return if $a == 1.0 {
                1.0
            } else if ($a > 1.0) == ($y > 0.0) {
                $t::INFINITY
            } else {
                0.0
            };
        } else if $a == 0.0 || $a == $t::INFINITY {
            if ($a == 0.0) == ($y < 0.0) { $t::INFINITY } else { 0.0 }
        } else if $x < 0.0 && !$whole {
            return $t::NAN;
        } else {
            let (high, low) = ln_in_two($a);
            let product = $y * high;
            // Far beyond what has a finite power; there the rest could be NaN.
            let rest = if $abs(product) < $far { fma($y, high, -product) + $y * low } else { 0.0 };
            exp_of_two(product, rest)
        };
        $t::from_bits(magnitude.to_bits() | sign)
    }};
}

/// ln((1 + f) 2^e) as a number and what it lacks, by the series of 2 artanh(u / 2), whose coefficients behind 1/12 are a polynomial
/// in u². 1/12 and ln 2 are given as a number and what it lacks; the product of the first of ln 2 with an exponent is exact.
macro_rules! ln_by_series {
    ($f:ident, $e:ident, ($twelfth:ident, $twelfth_low:ident), ($ln2:ident, $ln2_low:ident), |$z:ident| $rest:expr) => {{
        let r = 1.0 / ($f + 2.0);
        let u = 2.0 * $f * r;
        let u_low = fma(-u, $f, 2.0 * ($f - u)) * r;
        let $z = u * u;
        let z_low = fma(u, u, -$z) + 2.0 * u * u_low;
        // u + u z / 12 + u z² / 80 + …; the sum of the coefficients and its product with z and u in two numbers each.
        let tail = $z * $rest;
        let p = $twelfth + tail;
        let p_low = ($twelfth - p) + tail + $twelfth_low;
        let t = $z * p;
        let t_low = fma($z, p, -t) + fma($z, p_low, z_low * p);
        let v = u * t;
        let v_low = fma(u, t, -v) + fma(u, t_low, u_low * t) + u_low;
        // From the largest on; what each sum loses goes to the low part.
        let whole = $e * $ln2;
        let first = whole + u;
        let lost = if $e == 0.0 { 0.0 } else { (whole - first) + u };
        let second = first + v;
        let low = fma($e, $ln2_low, v_low + (lost + ((first - second) + v)));
        let high = second + low;
        (high, (second - high) + low)
    }};
}
pub(super) use {ln_by_series, power_by_rules};

/// x^y as `exp2_approx(y * log2_approx(x))`, for positive x: three instructions.
///
/// A relative 2^-21 + |y · log2 x| · 2^-22 off, and where x is within 0.5..2, |y| · 2^-22 instead of the second term. Enough for
/// gamma curves and learning rates; large exponents want [`pow`]. NaN for negative x, and where y is infinite and x is 1.
#[inline(always)]
pub fn pow_approx(x: f32, y: f32) -> f32 {
    exp2_approx(y * log2_approx(x))
}

/// x^y within 1.25 ulp, subnormal results within 1.5; about 150 instructions.
///
/// As in IEEE 754: 1 where y is 0 or x is 1, also with a NaN; a negative x needs a whole y, else the result is NaN; odd y keep
/// the sign of x, of zeros and infinities too.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let a = x.abs();
    let whole = round_even(y) == y;
    // Floats from 2^24 on are even.
    let odd = whole && y.abs() < 16_777_216.0 && round_to_i32(y) & 1 != 0;
    power_by_rules!(f32, f32::abs, x, y, (a, whole, odd), 256.0)
}

/// ln(x) of a positive finite x, as a float and what it lacks: off by a relative 2^-34.
#[inline(always)]
fn ln_in_two(x: f32) -> (f32, f32) {
    // The first has 9 bits: its product with an exponent is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const TWELFTH: f32 = 1.0 / 12.0;
    const TWELFTH_LOW: f32 = (1.0 / 12.0 - TWELFTH as f64) as f32;
    let (f, e) = parts(x);
    ln_by_series!(f, e, (TWELFTH, TWELFTH_LOW), (LN2_HIGH, LN2_LOW), |z| {
        polynomial(z, [1.0 / 53248.0, 1.0 / 11264.0, 1.0 / 2304.0, 1.0 / 448.0, 1.0 / 80.0])
    })
}

/// e^(x + rest), where the rest is small beside the last place of x.
#[inline(always)]
fn exp_of_two(x: f32, rest: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_145_75;
    const LN2_LOW: f32 = 1.428_606_8e-6;
    let x = if x > 90.0 { 90.0 } else { x };
    let x = if x < -105.0 { -105.0 } else { x };
    let t = round_even(x * LOG2_E);
    let r = fma(-t, LN2_LOW, fma(-t, LN2_HIGH, x)) + rest;
    let p = polynomial(r, [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5]);
    let y = fma(r * r, p, r) + 1.0;
    // In two halves, since 2^t itself may overflow or be subnormal.
    let t = round_to_i32(t);
    let half = t >> 1;
    y * power_of_two(half) * power_of_two(t - half)
}

/// 1/√x within 0.51 ulp: ∞ for zeros, with their sign, NaN below. [`rsqrt_approx`], whose 2 ulp do in most places, and a step of
/// Newton's method; about 20 instructions.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    rsqrt_from(x, rsqrt_approx(x))
}

/// A step of Newton's method from a start that is a few ulp off.
#[inline(always)]
fn rsqrt_from(x: f32, start: f32) -> f32 {
    if !(x > 0.0 && x < f32::INFINITY) {
        return start;
    }
    let root = x * start;
    let root_low = fma(x, start, -root);
    let error = fma(-root_low, start, fma(-root, start, 1.0));
    fma(start * 0.5, error, start)
}

/// ∛x within 0.81 ulp, for negative x too; about 50 instructions, two of them divisions.
///
/// Method: a third of the exponent, a step of Halley's and one of Newton's method, whose residual is exact.
#[inline(always)]
pub fn cbrt(x: f32) -> f32 {
    let a = x.abs();
    if !(a > 0.0 && a < f32::INFINITY) {
        return x;
    }
    // Neither subnormal nor with a cube that overflows: by 2^24, back by 2^8.
    let (a, back) = if a < f32::MIN_POSITIVE {
        (a * 16_777_216.0, 0.003_906_25)
    } else if a > 1e30 {
        (a * 5.960_464_5e-8, 256.0)
    } else {
        (a, 1.0)
    };
    let y = f32::from_bits(a.to_bits() / 3 + 0x2a51_19f2);
    let cube = y * y * y;
    let y = y * ((cube + 2.0 * a) / (2.0 * cube + a));
    let square = y * y;
    let square_low = fma(y, y, -square);
    let cube = square * y;
    let cube_low = fma(square, y, -cube) + square_low * y;
    let y = y + ((a - cube) - cube_low) / (3.0 * square);
    f32::from_bits((y * back).to_bits() | x.to_bits() & 0x8000_0000)
}

/// √(x² + y²) within 1.1 ulp, without overflow on the way; ∞ if either is infinite, also with a NaN. About 30 instructions.
#[inline(always)]
pub fn hypot(x: f32, y: f32) -> f32 {
    let (x, y) = (x.abs(), y.abs());
    if x == f32::INFINITY || y == f32::INFINITY {
        return f32::INFINITY;
    }
    let (large, small) = if x > y { (x, y) } else { (y, x) };
    // By a power of two to where squares and their last places are normal numbers: from 2^61 on, and below 2^-40.
    let (by, back) = if large >= 2.305_843e18 {
        (power_of_two(-68), power_of_two(68))
    } else if large < 9.094_947e-13 {
        (power_of_two(100), power_of_two(-100))
    } else {
        (1.0, 1.0)
    };
    let (p, q) = (large * by, small * by);
    let square = p * p;
    sqrt(square + fma(q, q, fma(p, p, -square))) * back
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn noise(n: u64) -> impl Iterator<Item = u64> {
        (1..=n).map(|i| {
            let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        })
    }

    /// How far off, in units in the last place of the true result; infinite where only one of them overflows.
    fn ulps(ours: f32, truth: f64) -> f64 {
        if ours.is_infinite() && (truth as f32).is_infinite() {
            return if (ours > 0.0) == (truth > 0.0) { 0.0 } else { f64::INFINITY };
        }
        let exponent = ((truth as f32).abs().to_bits() >> 23).max(1) as i32;
        (f64::from(ours) - truth).abs() / 2f64.powi(exponent - 127 - 23)
    }

    #[derive(Default)]
    pub(in super::super) struct Worst(f64, String);
    impl Worst {
        pub(in super::super) fn see(&mut self, ours: f32, truth: f64, of: impl std::fmt::Debug) {
            let off = ulps(ours, truth);
            if off.is_nan() || off > self.0 {
                *self = Worst(off, format!("{of:?}: {ours:e} for {truth:e}"));
            }
        }
        pub(in super::super) fn within(&self, bound: f64) {
            println!("{} ulp at {}", self.0, self.1);
            assert!(self.0 <= bound, "{} ulp at {}", self.0, self.1);
        }
    }

    #[test]
    fn pow_keeps_its_bound() {
        let (mut normal, mut subnormal) = (Worst::default(), Worst::default());
        let share = |v: u64| (v >> 40) as f32 / (1 << 24) as f32;
        for (i, v) in noise(200_000).enumerate() {
            let anywhere = f32::from_bits(v as u32 % 0x7f80_0000);
            let x = match i % 4 {
                0 => anywhere,
                1 => 0.5 + 1.5 * share(v << 32),
                2 => 0.7 + 0.72 * share(v << 32),
                _ => 100.0 * share(v << 32),
            };
            let most = (150.0 / f64::from(x).log2().abs().max(1e-6)) as f32;
            let y = (2.0 * share(v) - 1.0) * if i % 4 == 3 { 8.0 } else { most };
            let truth = f64::from(x).powf(f64::from(y));
            let worst = if truth < f64::from(f32::MIN_POSITIVE) { &mut subnormal } else { &mut normal };
            worst.see(pow(x, y), truth, (x, y));
            // Whole exponents of negative numbers.
            let y = round_even(y);
            let truth = f64::from(-x).powf(f64::from(y));
            let worst = if truth.abs() < f64::from(f32::MIN_POSITIVE) { &mut subnormal } else { &mut normal };
            worst.see(pow(-x, y), truth, (-x, y));
        }
        normal.within(1.25);
        subnormal.within(1.5);
    }

    #[test]
    fn pow_has_the_special_values_of_ieee_754() {
        let (inf, tiny) = (f32::INFINITY, f32::from_bits(1));
        let values = [
            0.0,
            tiny,
            0.3,
            0.5,
            1.0,
            1.5,
            2.0,
            3.0,
            7.0,
            1e10,
            16_777_215.0,
            16_777_216.0,
            2_147_483_647.0,
            4e9,
            f32::MAX,
            inf,
            f32::NAN,
        ];
        for x in values.into_iter().flat_map(|v| [v, -v]) {
            for y in values.into_iter().flat_map(|v| [v, -v]) {
                let (ours, truth) = (pow(x, y), f64::from(x).powf(f64::from(y)));
                let rounded = truth as f32;
                let same = if truth.is_nan() {
                    ours.is_nan()
                } else if rounded == 0.0 || rounded.is_infinite() {
                    ours.to_bits() == rounded.to_bits()
                } else {
                    ulps(ours, truth) <= 1.25
                };
                assert!(same, "{x:e}^{y:e}: {ours:e} for {truth:e}");
            }
        }
    }

    #[test]
    fn pow_approx_keeps_its_bound() {
        for v in noise(50_000) {
            let x = f32::from_bits((v as u32 % 0x7f00_0000).max(0x0080_0000));
            let y = ((v >> 40) as f32 / (1 << 24) as f32 - 0.5) * 4.0;
            let exponent = f64::from(y) * f64::from(x).log2();
            if exponent.abs() > 125.0 {
                continue;
            }
            let bound = 2f64.powi(-21) + exponent.abs().max(f64::from(y.abs())) * 2f64.powi(-22);
            let truth = f64::from(x).powf(f64::from(y));
            assert!((f64::from(pow_approx(x, y)) / truth - 1.0).abs() <= bound, "{x}^{y}");
        }
    }

    #[test]
    fn rsqrt_keeps_its_bound_from_any_start_of_the_instruction() {
        let mut worst = Worst::default();
        for (i, v) in noise(100_000).enumerate() {
            // All mantissas matter, and both parities of the exponent; then anything.
            let x = if i % 2 == 0 { 0x3f80_0000 + (v as u32 & 0x00ff_ffff) } else { (v as u32 % 0x7f80_0000).max(1) };
            let x = f32::from_bits(x);
            let truth = 1.0 / f64::from(x).sqrt();
            let near = (truth as f32).to_bits() as i32;
            worst.see(rsqrt(x), truth, x);
            for off in [-3, -1, 0, 2, 3] {
                worst.see(rsqrt_from(x, f32::from_bits((near + off) as u32)), truth, (x, off));
            }
        }
        worst.within(0.51);
        let (inf, zero) = (f32::INFINITY, 0.0f32);
        assert_eq!((rsqrt(zero), rsqrt(-zero), rsqrt(inf).to_bits()), (inf, -inf, 0));
        assert!(rsqrt(-1.0).is_nan() && rsqrt(-inf).is_nan() && rsqrt(f32::NAN).is_nan());
    }

    #[test]
    fn roots_keep_their_bounds() {
        let (mut cube, mut length) = (Worst::default(), Worst::default());
        for (i, v) in noise(200_000).enumerate() {
            let x = f32::from_bits((v as u32 & 0x807f_ffff) | (((v >> 33) as u32 % 0x7f80_0000) & 0x7f80_0000));
            cube.see(cbrt(x), f64::from(x).cbrt(), x);
            let other = f32::from_bits((v >> 32) as u32 % 0x7f80_0000);
            let y = if i % 2 == 0 { other } else { x * ((v >> 40) as f32 / (1 << 24) as f32) };
            length.see(hypot(x, y), f64::from(x).hypot(f64::from(y)), (x, y));
        }
        cube.within(0.81);
        length.within(1.1);
        for n in -49..42 {
            assert_eq!(cbrt(-(2f64.powi(3 * n) as f32)), -(2f64.powi(n) as f32));
        }
        let (inf, nan, zero) = (f32::INFINITY, f32::NAN, 0.0f32);
        assert_eq!((cbrt(zero).to_bits(), cbrt(-zero).to_bits(), cbrt(-inf)), (0, 0x8000_0000, -inf));
        assert_eq!((hypot(inf, nan), hypot(nan, -inf), hypot(zero, -zero), hypot(-3.0, 4.0)), (inf, inf, 0.0, 5.0));
        assert_eq!((hypot(f32::MAX, 0.0), hypot(f32::MAX, f32::MAX), hypot(0.0, -1e-45)), (f32::MAX, inf, 1e-45));
        assert!(cbrt(nan).is_nan() && hypot(nan, 1.0).is_nan() && hypot(1.0, nan).is_nan());
    }
}
