//! `a * b + c` of short floats, rounded to odd, so that rounding again to a shorter format is rounding once.
//!
//! Rounding to odd truncates and makes the last bit 1 if anything was lost. Source: Boldo and Melquiond, "Emulation of FMA and
//! correctly rounded sums: proved algorithms using rounding to odd", 2008; the error of the sum is Knuth's TwoSum.

/// `a * b + c` rounded to odd; the product of factors of up to 26 bits is exact in `f64`.
#[inline(always)]
pub(super) fn fma_to_odd(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (a as f64 * b as f64, c as f64);
    let sum = product + c;
    let of_c = sum - product;
    let error = (product - (sum - of_c)) + (c - of_c);
    // An infinity or a NaN has a NaN for its error, and stays as it is.
    let lost = error.abs() > 0.0;
    let bits = sum.to_bits();
    let odd = match lost && bits & 1 == 0 {
        true if (error > 0.0) == (sum > 0.0) => f64::from_bits(bits + 1),
        true => f64::from_bits(bits - 1),
        false => sum,
    };
    let short = odd as f32;
    let back = short as f64;
    if back == odd || odd.is_nan() {
        return short;
    }
    let bits = short.to_bits();
    f32::from_bits(if back.abs() > odd.abs() { bits - 1 } else { bits } | 1)
}
