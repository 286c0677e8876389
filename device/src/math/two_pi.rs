//! Multiples of π/2 taken off an argument.

use super::{double, fma_f64};

/// π/2 in three parts: 53 bits each.
const PARTS: [f64; 3] = [core::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_183_3e-33];

/// How many times π/2 is in `x`, rounded.
#[inline(always)]
fn turns(x: f64) -> f64 {
    double::round_even(x * core::f64::consts::FRAC_2_PI)
}

/// `x` minus a multiple of π/2, for results in `f32`; and the multiple, modulo 4. |x| up to 2^30.
#[inline(always)]
pub(super) fn quadrant(x: f32) -> (f64, u32) {
    let wide = f64::from(x);
    let n = turns(wide);
    (fma_f64(-n, PARTS[1], fma_f64(-n, PARTS[0], wide)), n as i64 as u32 & 3)
}

/// a − b and what its rounding lost.
#[inline(always)]
fn difference(a: f64, b: f64) -> (f64, f64) {
    let d = a - b;
    let b_there = a - d;
    let a_there = d + b_there;
    (d, (b_there - b) + (a - a_there))
}

/// `x` minus a multiple of π/2 as the sum of two numbers; and the multiple, modulo 4. |x| up to 2^30.
#[inline(always)]
pub(super) fn reduce(x: f64) -> (f64, f64, u32) {
    let n = turns(x);
    // n times each part, with what the product's rounding lost.
    let product = |part: f64| {
        let high = n * part;
        (high, fma_f64(n, part, -high))
    };
    let ((a, a_low), (b, b_low)) = (product(PARTS[0]), product(PARTS[1]));
    let (r, e0) = difference(x, a);
    let (r, e1) = difference(r, a_low);
    let (r, e2) = difference(r, b);
    let rest = e0 + e1 + e2 - b_low - n * PARTS[2];
    let sum = r + rest;
    (sum, (r - sum) + rest, n as i64 as u32 & 3)
}
