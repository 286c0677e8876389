//! Tangents, and angles from their sines, cosines and tangents. Only multiplications, additions, divisions and square roots, so
//! host and device give the same bits.

use super::{fma, quadrant, sqrt};

/// π/2 as two factors whose product, which [`fma`] does not round, is right to 2^-46.
const HALF_PI: (f32, f32) = (f32::from_bits(0x3f6e_e581), f32::from_bits(0x3fd7_74eb));
/// What π/2 and π have beyond `f32`.
const HALF_PI_LOW: f32 = -4.371_139e-8;
const PI_LOW: f32 = -8.742_278e-8;

/// atan(a) for 0 ≤ a ≤ 1: an odd polynomial of degree 17.
#[inline(always)]
fn atan_unit(a: f32) -> f32 {
    let s = a * a;
    let r = fma(2.785_698_3e-3, s, -1.586_602_3e-2);
    let r = fma(r, s, 4.247_222e-2);
    let r = fma(r, s, -7.497_530_4e-2);
    let r = fma(r, s, 1.064_488e-1);
    let r = fma(r, s, -1.420_703_1e-1);
    let r = fma(r, s, 1.999_345_4e-1);
    let r = fma(r, s, -3.333_314_7e-1);
    fma(r * s, a, a)
}

/// atan(x) within 1.5 ulp, in −π/2 to π/2; about 30 instructions, one of them a division.
///
/// Method: atan(x) = π/2 − atan(1/x) beyond 1, and a polynomial.
#[inline(always)]
pub fn atan(x: f32) -> f32 {
    let a = x.abs();
    let r = if a > 1.0 { fma(HALF_PI.0, HALF_PI.1, -atan_unit(1.0 / a)) } else { atan_unit(a) };
    with_sign_of(r, x)
}

/// The angle of the point (`x`, `y`) within 2 ulp, in −π to π, with IEEE 754's signs of zeros and infinities; about 40
/// instructions, one of them a division.
#[inline(always)]
pub fn atan2(y: f32, x: f32) -> f32 {
    if x.is_nan() || y.is_nan() {
        return f32::NAN;
    }
    let (rise, run) = (y.abs(), x.abs());
    let (small, large) = if rise > run { (run, rise) } else { (rise, run) };
    let q = if small == large {
        // Neither 0/0 nor ∞/∞.
        if large == 0.0 { 0.0 } else { 1.0 }
    } else {
        small / large
    };
    let r = atan_unit(q);
    let r = if rise > run { fma(HALF_PI.0, HALF_PI.1, -r) } else { r };
    let r = if x.is_sign_negative() { fma(2.0 * HALF_PI.0, HALF_PI.1, -r) } else { r };
    with_sign_of(r, y)
}

/// (asin(x) − x) / x for x² = `z` up to 1/4. Source: FreeBSD's `asinf`.
#[inline(always)]
fn asin_tail(z: f32) -> f32 {
    let p = z * fma(z, fma(z, -8.656_363e-3, -4.274_342_2e-2), 1.666_658_7e-1);
    p / fma(z, -7.066_296_3e-1, 1.0)
}

/// The square root of `z`, and what it lacks.
#[inline(always)]
fn two_part_sqrt(z: f32) -> (f32, f32) {
    let s = sqrt(z);
    (s, if s > 0.0 { fma(-s, s, z) / (s + s) } else { 0.0 })
}

/// asin(x) within 1.7 ulp, in −π/2 to π/2; NaN beyond ±1. About 40 instructions.
///
/// Method: a quotient of polynomials up to 1/2, and asin(x) = π/2 − 2 asin(√((1 − x)/2)) above.
#[inline(always)]
pub fn asin(x: f32) -> f32 {
    let a = x.abs();
    let r = if a < 0.5 {
        fma(a, asin_tail(a * a), a)
    } else {
        let z = (1.0 - a) * 0.5;
        let (s, low) = two_part_sqrt(z);
        let rest = fma(s, asin_tail(z), low);
        (core::f32::consts::FRAC_PI_2 - 2.0 * s) - (2.0 * rest - HALF_PI_LOW)
    };
    with_sign_of(r, x)
}

/// acos(x) within 1.2 ulp, in 0 to π; NaN beyond ±1. About 45 instructions.
#[inline(always)]
pub fn acos(x: f32) -> f32 {
    let a = x.abs();
    if a < 0.5 {
        let rest = x * asin_tail(x * x);
        return core::f32::consts::FRAC_PI_2 - (x - (HALF_PI_LOW - rest));
    }
    let z = (1.0 - a) * 0.5;
    let (s, low) = two_part_sqrt(z);
    let rest = fma(s, asin_tail(z), low);
    if x > 0.0 { 2.0 * (s + rest) } else { (core::f32::consts::PI - 2.0 * s) - (2.0 * rest - PI_LOW) }
}

/// tan(x) within 0.81 ulp for |x| up to 2^30; a zero is +0. NaN for ∞. About 20 instructions in `f64`, one of them a division.
///
/// Method: x minus a multiple of π/2 and a polynomial, both in `f64`. Source of the polynomial: FreeBSD's `tanf`.
#[inline(always)]
pub fn tan(x: f32) -> f32 {
    use super::fma_f64;
    let (r, n) = quadrant(x);
    let z = r * r;
    let t = fma_f64(z, 0.009_465_647_849_436_732, 0.002_974_357_433_599_673);
    let t = fma_f64(z, t, 0.024_528_318_116_654_728);
    let t = fma_f64(z, t, 0.053_381_237_844_567_04);
    let t = fma_f64(z, t, 0.133_392_002_712_976_74);
    let t = fma_f64(z, t, 0.333_331_395_030_791_4);
    let t = fma_f64(r * z, t, r);
    (if n & 1 == 0 { t } else { -1.0 / t }) as f32
}

/// `magnitude`, which is not negative, with the sign of `sign`.
#[inline(always)]
fn with_sign_of(magnitude: f32, sign: f32) -> f32 {
    f32::from_bits(magnitude.to_bits() | sign.to_bits() & 0x8000_0000)
}

#[cfg(test)]
mod tests {
    use super::super::powers::tests::{Worst, noise};
    use super::*;

    #[test]
    fn angles_keep_their_bounds() {
        let mut worst: [Worst; 5] = Default::default();
        for v in noise(200_000) {
            // Any number, one within ±1, one near ±1.
            let any = f32::from_bits(v as u32 & 0x807f_ffff | ((v >> 33) as u32 % 0x7f80_0000) & 0x7f80_0000);
            let unit = ((v >> 40) as f32 / (1 << 23) as f32) - 1.0;
            let near = f32::from_bits((0x3f80_0000 - (v >> 45) as u32) | (v as u32 & 0x8000_0000));
            for x in [any, unit, near, 1.0 / near] {
                worst[0].see(atan(x), f64::from(x).atan(), x);
                if x.abs() <= 1.0 {
                    worst[1].see(asin(x), f64::from(x).asin(), x);
                    worst[2].see(acos(x), f64::from(x).acos(), x);
                }
                if x.abs() < 2f32.powi(30) {
                    worst[3].see(tan(x), f64::from(x).tan(), x);
                }
                let truth = f64::from(any).atan2(f64::from(x));
                if truth.abs() > f64::from(f32::MIN_POSITIVE) {
                    worst[4].see(atan2(any, x), truth, (any, x));
                }
                let y = x * (0.5 + unit.abs());
                worst[4].see(atan2(y, x), f64::from(y).atan2(f64::from(x)), (y, x));
            }
        }
        for (worst, bound) in worst.iter().zip([1.5, 1.7, 1.2, 0.81, 2.0]) {
            worst.within(bound);
        }
    }

    #[test]
    fn angles_have_the_special_values_of_ieee_754() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        for x in [
            asin(1.1),
            acos(-1.1),
            asin(nan),
            acos(inf),
            atan(nan),
            tan(inf),
            tan(nan),
            atan2(nan, 1.0),
            atan2(0.0, nan),
        ] {
            assert!(x.is_nan());
        }
        let edges = [0.0, 1.0, 3.5, f32::MAX, inf, 1e-45];
        for y in edges.into_iter().flat_map(|v| [v, -v]) {
            assert_eq!(atan(y).is_sign_negative(), y.is_sign_negative());
            for x in edges.into_iter().flat_map(|v| [v, -v]) {
                let (ours, truth) = (atan2(y, x), f64::from(y).atan2(f64::from(x)));
                let rounded = truth as f32;
                assert_eq!(ours.is_sign_negative(), rounded.is_sign_negative(), "atan2({y}, {x})");
                let special = [y, x].iter().any(|v| *v == 0.0 || v.is_infinite());
                let near = ours.to_bits().abs_diff(rounded.to_bits()) <= u32::from(rounded != 0.0);
                assert!(!special || near, "atan2({y}, {x}): {ours} for {truth}");
            }
        }
        assert_eq!((asin(1.0), asin(-1.0)), (core::f32::consts::FRAC_PI_2, -core::f32::consts::FRAC_PI_2));
        assert_eq!((acos(1.0), acos(-1.0), acos(0.0)), (0.0, core::f32::consts::PI, core::f32::consts::FRAC_PI_2));
        assert_eq!((asin(-0.0).to_bits(), tan(-0.0)), (0x8000_0000, 0.0));
    }
}
