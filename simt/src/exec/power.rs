//! Powers of two of any f32, of additions and multiplications alone: the same on every host, and eight or sixteen at once.

/// Terms of the series.
const TERMS: usize = 14;

/// The coefficients of `2^x` around 0, the highest first: `ln(2)^k / k!`.
const SERIES: [f64; TERMS] = {
    let (mut series, mut term, mut k) = ([0.0; TERMS], 1.0, 0);
    while k < TERMS {
        series[TERMS - 1 - k] = term;
        k += 1;
        term *= std::f64::consts::LN_2 / k as f64;
    }
    series
};

/// Added to a number below 2^51, it leaves its nearest integer in the lowest bits.
const ROUND: f64 = 1.5 * (1u64 << 52) as f64;

/// `2^x` within `4e-16` of itself where an f32 can hold it, else something that rounds to infinity or 0; NaN of NaN.
#[inline(always)]
pub(super) fn exp2(x: f32) -> f64 {
    let wide = f64::from(x);
    let near = if wide > 200.0 { 200.0 } else { wide };
    let near = if near < -200.0 { -200.0 } else { near };
    let rounded = near + ROUND;
    let rest = near - (rounded - ROUND);
    let mut sum = SERIES[0];
    for factor in &SERIES[1..] {
        sum = sum * rest + factor;
    }
    let power = f64::from_bits(rounded.to_bits().wrapping_add(1023) << 52);
    if x.is_nan() { f64::NAN } else { sum * power }
}

#[cfg(test)]
mod tests {
    use super::exp2;

    #[test]
    fn powers_are_those_of_the_library() {
        let mut state = 1u64;
        for i in 0..2_000_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Any bits; numbers around 0; numbers that reach the ends of f32.
            let x = match i % 3 {
                0 => f32::from_bits((state >> 32) as u32),
                1 => (state >> 40) as f32 / 1e6 - 8.0,
                _ => (state >> 40) as f32 / 5e4 - 160.0,
            };
            let (got, want) = (exp2(x), f64::from(x).exp2());
            if x.is_nan() {
                assert!(got.is_nan());
            } else if (want as f32).is_normal() {
                assert!((got / want - 1.0).abs() < 4e-16, "2^{x:e}: {got:e} for {want:e}");
            } else {
                assert_eq!(got as f32, want as f32, "2^{x:e}");
            }
        }
        for power in -149..=127i32 {
            assert_eq!(exp2(power as f32), f64::from(power).exp2(), "2^{power}");
        }
        assert_eq!((exp2(f32::INFINITY) as f32, exp2(f32::NEG_INFINITY) as f32), (f32::INFINITY, 0.0));
        assert_eq!((exp2(0.0), exp2(-0.0), exp2(f32::from_bits(1))), (1.0, 1.0, 1.0));
    }
}
