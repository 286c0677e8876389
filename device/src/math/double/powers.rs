//! Powers.

use super::super::powers::{ln_by_series, power_by_rules};
use super::{exp_of_two, floor, fma, round_even};

/// x^y within 1.25 ulp, subnormal results within 1.5.
///
/// As in IEEE 754: 1 where y is 0 or x is 1, also with a NaN; a negative x needs a whole y, else the result is NaN; odd y keep
/// the sign of x, of zeros and infinities too.
///
/// Method: e^(y ln x), where the logarithm and its product with y are two numbers each.
pub fn pow(x: f64, y: f64) -> f64 {
    let a = super::abs(x);
    let whole = round_even(y) == y;
    // Half of an even number is whole, as that of every number from 2^53 on is.
    let odd = whole && floor(0.5 * y) != 0.5 * y;
    power_by_rules!(f64, super::abs, x, y, (a, whole, odd), 1024.0)
}

/// ln(x) of a positive finite x, as a number and what it lacks: off by a relative 2^-64.
///
/// Method: that of the function of `f32`, 2 artanh(u / 2) with u = 2 (m − 1) / (m + 1) and x = m 2^e, √½ ≤ m < √2.
#[inline(always)]
fn ln_in_two(x: f64) -> (f64, f64) {
    // The first has 33 bits: its product with an exponent is exact.
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const FRACTION: u64 = (1 << 52) - 1;
    const TWELFTH: f64 = 1.0 / 12.0;
    /// 1/12 − TWELFTH: 12 times that is exact.
    const TWELFTH_LOW: f64 = 4.625_929_269_271_485e-18;
    // A subnormal number is made a normal one.
    let small = x < f64::MIN_POSITIVE;
    let bits = if small { (x * 18_014_398_509_481_984.0).to_bits() } else { x.to_bits() };
    let from_sqrt_half = bits.wrapping_sub(SQRT_HALF);
    let e = ((from_sqrt_half as i64 >> 52) - if small { 54 } else { 0 }) as f64;
    let f = f64::from_bits((from_sqrt_half & FRACTION) + SQRT_HALF) - 1.0;

    ln_by_series!(f, e, (TWELFTH, TWELFTH_LOW), (LN2_HIGH, LN2_LOW), |z| {
        polynomial!(
            z,
            1.0 / (27.0 * 67_108_864.0),
            1.0 / (25.0 * 16_777_216.0),
            1.0 / (23.0 * 4_194_304.0),
            1.0 / (21.0 * 1_048_576.0),
            1.0 / (19.0 * 262_144.0),
            1.0 / (17.0 * 65_536.0),
            1.0 / (15.0 * 16_384.0),
            1.0 / (13.0 * 4096.0),
            1.0 / (11.0 * 1024.0),
            1.0 / (9.0 * 256.0),
            1.0 / (7.0 * 64.0),
            1.0 / (5.0 * 16.0)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::powers::tests::noise;
    use super::super::tests::ulps;
    use super::*;

    /// The system's is within 0.6 ulp.
    fn far(ours: f64, truth: f64) -> bool {
        ulps(ours, truth) > if truth.abs() < f64::MIN_POSITIVE { 2 } else { 1 }
    }

    #[test]
    fn pow_keeps_its_bound() {
        let mut apart = [0u32; 2];
        let share = |v: u64| (v & 0xff_ffff) as f64 / (1 << 24) as f64;
        for (i, v) in noise(300_000).enumerate() {
            let x = match i % 4 {
                0 => f64::from_bits(v % 0x7ff0_0000_0000_0000),
                1 => 0.5 + 1.5 * ((v >> 11) as f64 / (1u64 << 53) as f64),
                2 => 1.0 + ((v >> 11) as f64 / (1u64 << 53) as f64 - 0.5) * 1e-6,
                _ => 100.0 * ((v >> 11) as f64 / (1u64 << 53) as f64),
            };
            let most = 1080.0 / x.log2().abs().max(1e-9);
            for y in [(2.0 * share(v) - 1.0) * most, (2.0 * share(v) - 1.0) * 8.0] {
                let (ours, truth) = (pow(x, y), x.powf(y));
                assert!(!far(ours, truth), "{x:e}^{y:e}: {ours:e} for {truth:e}");
                apart[ulps(ours, truth).min(1) as usize] += 1;
                let y = round_even(y);
                let (ours, truth) = (pow(-x, y), (-x).powf(y));
                assert!(!far(ours, truth), "{:e}^{y:e}: {ours:e} for {truth:e}", -x);
            }
        }
        // As few as that are off at all.
        assert!(apart[1] < apart[0] / 5, "{apart:?}");
    }

    #[test]
    fn pow_has_the_special_values_of_ieee_754() {
        let (inf, tiny, two53) = (f64::INFINITY, f64::from_bits(1), 9_007_199_254_740_992.0);
        let finite =
            [0.0, tiny, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 1e10, two53 - 1.0, two53, 2.0 * two53 + 2.0, f64::MAX];
        let values = || finite.into_iter().chain([inf, f64::NAN]).flat_map(|v| [v, -v]);
        for (x, y) in values().flat_map(|x| values().map(move |y| (x, y))) {
            let (ours, truth) = (pow(x, y), x.powf(y));
            let same = match truth.is_nan() || truth == 0.0 || truth.is_infinite() {
                true => ours.to_bits() == truth.to_bits() || (ours.is_nan() && truth.is_nan()),
                false => !far(ours, truth),
            };
            assert!(same, "{x:e}^{y:e}: {ours:e} for {truth:e}");
        }
    }
}
