//! The functions of [`math`](mod@crate::math) in `f64`.
//!
//! GPUs for inference have few units for `f64`: 1 for 2 of `f32` on data-centre parts, 1 for 64 on others. So these are for sums
//! of errors, tables and tests, and `f32` for the rest. All but [`sqrt`], [`fma`] and the roundings are pure arithmetic in `f64`,
//! partly by the crate `libm`, so host and device give the same bits. Bounds are below 1 ulp, if a function says nothing else.
//! Those of `libm` that keep something in local memory are written here without.
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// y = ln(1 + e^x), without overflow.
//! #[kernel(block = 256)]
//! pub unsafe fn softplus(x: In<f64>, y: Out<f64>, n: u32) {
//!     let i = thread::global_x();
//!     if i < n as usize {
//!         let v = x.at(i);
//!         let grows = if v > 0.0 { v } else { 0.0 };
//!         y.set(i, grows + math::double::ln(1.0 + math::double::exp(-math::double::abs(v))));
//!     }
//! }
//! # fn main() {}
//! ```

use super::two_pi;

#[cfg(target_arch = "nvptx64")]
use core::f64::math as m;

/// `polynomial!(x, a, b, c)` is a x² + b x + c, by Horner's rule. Without an array, which might go to local memory.
macro_rules! polynomial {
    ($x:expr, $sum:expr) => { $sum };
    ($x:expr, $sum:expr, $next:expr $(, $rest:expr)*) => {
        polynomial!($x, $crate::math::double::fma($sum, $x, $next) $(, $rest)*)
    };
}

mod bounded;
mod powers;

pub use super::fma_f64 as fma;
pub use bounded::{erf, tanh};
pub use powers::pow;

macro_rules! instructions {
    ($($(#[$doc:meta])* $name:ident = $f:ident;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(x: f64) -> f64 {
            #[cfg(target_arch = "nvptx64")]
            return m::$f(x);
            #[cfg(not(target_arch = "nvptx64"))]
            return x.$f();
        }
    )* };
}
instructions! {
    /// The square root, correctly rounded.
    sqrt = sqrt;
    /// The nearest integer, ties to even.
    round_even = round_ties_even;
    /// The integer below.
    floor = floor;
    /// The integer above.
    ceil = ceil;
    /// The integer towards zero.
    trunc = trunc;
}

/// The absolute value.
#[inline(always)]
pub fn abs(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & !(1 << 63))
}

macro_rules! of_libm {
    ($($(#[$doc:meta])* $name:ident = $f:ident($($x:ident),+);)*) => { $(
        $(#[$doc])*
        pub fn $name($($x: f64),+) -> f64 {
            libm::$f($($x),+)
        }
    )* };
}
of_libm! {
    /// The natural logarithm; −∞ for 0, NaN below.
    ln = log(x);
    /// The logarithm to base 2.
    log2 = log2(x);
    /// √(x² + y²) without overflow on the way.
    hypot = hypot(x, y);
    /// The angle whose sine is x, in −π/2 to π/2; NaN beyond ±1.
    asin = asin(x);
    /// The angle whose cosine is x, in 0 to π; NaN beyond ±1.
    acos = acos(x);
}

/// 2^n for −1022 ≤ n ≤ 1023.
#[inline(always)]
fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// e^x within 1 ulp; 0 below −745.2, ∞ above 709.8.
///
/// Method: x = t·ln 2 + r with integer t, and the Taylor series of e^r, whose 14th term is below 2^-60.
pub fn exp(x: f64) -> f64 {
    exp_of_two(x, 0.0)
}

/// e^(x + more), where what is added is small beside the last place of x.
#[inline(always)]
fn exp_of_two(x: f64, more: f64) -> f64 {
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    // Not `clamp`, which would turn a NaN into a number.
    let x = if x > 710.0 { 710.0 } else { x };
    let x = if x < -746.0 { -746.0 } else { x };
    let t = round_even(x * core::f64::consts::LOG2_E);
    let (high, low) = (fma(-t, LN2_HIGH, x), t * LN2_LOW);
    let first = high - low;
    let rest = ((high - first) - low) + more;
    let r = first + rest;
    let rest = (first - r) + rest;
    let q = polynomial!(
        r,
        1.605_904_383_682_161_3e-10,
        2.087_675_698_786_81e-9,
        2.505_210_838_544_171_7e-8,
        2.755_731_922_398_589e-7,
        2.755_731_922_398_589_3e-6,
        2.480_158_730_158_73e-5,
        1.984_126_984_126_984e-4,
        1.388_888_888_888_889e-3,
        8.333_333_333_333_333e-3,
        4.166_666_666_666_666_4e-2,
        1.666_666_666_666_666_6e-1,
        0.5
    );
    let y = 1.0 + (r + fma(r * r, q, rest));
    // In two halves, since 2^t itself may overflow or be subnormal.
    let t = t as i32;
    let half = t >> 1;
    y * power_of_two(half) * power_of_two(t - half)
}

/// The angle whose tangent is x, in −π/2 to π/2.
///
/// Method: by a quotient to near 0, where a polynomial is. Source: FreeBSD's `atan`.
pub fn atan(x: f64) -> f64 {
    let a = abs(x);
    // What the angle is from, what that lacks, and the tangent of the rest.
    let (high, low, t) = if a < 0.4375 {
        (0.0, 0.0, a)
    } else if a < 0.6875 {
        (4.636_476_090_008_061e-1, 2.269_877_745_296_168_7e-17, (2.0 * a - 1.0) / (2.0 + a))
    } else if a < 1.1875 {
        (core::f64::consts::FRAC_PI_4, 3.061_616_997_868_383e-17, (a - 1.0) / (a + 1.0))
    } else if a < 2.4375 {
        (9.827_937_232_473_29e-1, 1.390_331_103_123_099_8e-17, (a - 1.5) / (1.0 + 1.5 * a))
    } else {
        (core::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17, -1.0 / a)
    };
    let z = t * t;
    let w = z * z;
    let s = fma(w, 1.628_582_011_536_578_2e-2, 4.976_877_994_615_932e-2);
    let s = fma(w, s, 6.661_073_137_387_531e-2);
    let s = fma(w, s, 9.090_887_133_436_507e-2);
    let s = fma(w, s, 1.428_571_427_250_346_6e-1);
    let s = z * fma(w, s, 3.333_333_333_333_293e-1);
    let u = fma(w, -3.653_157_274_421_691_6e-2, -5.833_570_133_790_573_5e-2);
    let u = fma(w, u, -7.691_876_205_044_83e-2);
    let u = fma(w, u, -1.111_111_040_546_235_6e-1);
    let u = w * fma(w, u, -1.999_999_999_987_648_3e-1);
    let r = high - ((t * (s + u) - low) - t);
    f64::from_bits(r.to_bits() | x.to_bits() & 1 << 63)
}

/// The angle of the point (x, y) within 2 ulp, in −π to π, with IEEE 754's signs of zeros and infinities.
pub fn atan2(y: f64, x: f64) -> f64 {
    use core::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};
    if x.is_nan() || y.is_nan() {
        return f64::NAN;
    }
    let (rise, run) = (abs(y), abs(x));
    let r = if rise == run && (rise == 0.0 || rise == f64::INFINITY) {
        if rise == 0.0 { 0.0 } else { FRAC_PI_4 }
    } else if run == 0.0 {
        FRAC_PI_2
    } else {
        atan(rise / run)
    };
    let r = if x.is_sign_negative() { PI - (r - 1.224_646_799_147_353_2e-16) } else { r };
    f64::from_bits(r.to_bits() | y.to_bits() & 1 << 63)
}

/// sin(x) and cos(x), each within 1 ulp for |x| up to 2^30. NaN for ∞.
///
/// Method: x minus a multiple of π/2, whose 161 bits are taken off exactly in three parts; then polynomials. `libm` reduces
/// larger arguments by a table in local memory, which would make every caller's kernel slow. Source of the polynomials:
/// FreeBSD's `sin` and `cos`.
pub fn sin_cos(x: f64) -> (f64, f64) {
    let (r, low, n) = two_pi::reduce(x);
    let z = r * r;
    let s =
        [1.589_690_995_211_55e-10, -2.505_076_025_340_686_3e-8, 2.755_731_370_707_006_8e-6, -1.984_126_982_985_795e-4];
    let s = s.into_iter().chain([8.333_333_333_322_49e-3]).fold(0.0, |p, c| fma(p, z, c));
    let v = z * r;
    let sin = r - ((z * (0.5 * low - v * s) - low) - v * -1.666_666_666_666_663_2e-1);
    let c =
        [-1.135_964_755_778_819_5e-11, 2.087_572_321_298_175e-9, -2.755_731_435_139_066e-7, 2.480_158_728_947_673e-5];
    let c = c.into_iter().chain([-1.388_888_888_887_411e-3, 4.166_666_666_666_66e-2]).fold(0.0, |p, c| fma(p, z, c));
    let half = 0.5 * z;
    let w = 1.0 - half;
    let cos = w + (((1.0 - w) - half) + (z * (z * c) - r * low));
    let (s, c) = if n & 1 == 0 { (sin, cos) } else { (cos, sin) };
    (if n & 2 == 0 { s } else { -s }, if (n + 1) & 2 == 0 { c } else { -c })
}

/// tan(x) within 2 ulp for |x| up to 2^30. NaN for ∞.
pub fn tan(x: f64) -> f64 {
    let (s, c) = sin_cos(x);
    s / c
}

/// 1/√x within 1 ulp.
pub fn rsqrt(x: f64) -> f64 {
    1.0 / sqrt(x)
}

#[cfg(test)]
pub(in crate::math) mod tests {
    use super::super::powers::tests::noise;
    use super::*;

    /// Units in the last place between two numbers of one sign.
    pub(super) fn ulps(a: f64, b: f64) -> u64 {
        if a == b || (a.is_nan() && b.is_nan()) { 0 } else { (a.to_bits() as i64).abs_diff(b.to_bits() as i64) }
    }

    #[test]
    fn functions_are_those_of_the_systems_library() {
        // glibc's are within 1 ulp themselves.
        type Both = (&'static str, fn(f64) -> f64, fn(f64) -> f64, u64);
        let functions: [Both; 10] = [
            ("exp", exp, f64::exp, 2),
            ("ln", ln, f64::ln, 2),
            ("log2", log2, f64::log2, 2),
            ("asin", asin, f64::asin, 2),
            ("acos", acos, f64::acos, 2),
            ("atan", atan, f64::atan, 2),
            ("sin", |x| sin_cos(x).0, f64::sin, 2),
            ("cos", |x| sin_cos(x).1, f64::cos, 2),
            ("tan", tan, f64::tan, 3),
            ("rsqrt", rsqrt, |x| 1.0 / x.sqrt(), 0),
        ];
        for (name, ours, theirs, bound) in functions {
            for v in noise(50_000) {
                let unit = (v >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
                for x in [unit, unit * 30.0, unit * 1e6, unit * 1e9] {
                    let (a, b) = (ours(x), theirs(x));
                    assert!(ulps(a, b) <= bound, "{name}({x:e}) = {a:e}, not {b:e}");
                }
            }
        }
        for v in noise(20_000) {
            let (x, y) = ((v >> 40) as f64 / 1e4, (v & 0xff_ffff) as f64 / 1e6 - 8.0);
            for (ours, theirs) in [(hypot(x, y), x.hypot(y)), (atan2(y, x), y.atan2(x))] {
                assert!(ulps(ours, theirs) <= 2, "{x:e}, {y:e}: {ours:e}, not {theirs:e}");
            }
        }
        assert!(sin_cos(f64::INFINITY).0.is_nan() && tan(f64::NAN).is_nan());
        assert_eq!((sin_cos(0.0), abs(-0.0).to_bits()), ((0.0, 1.0), 0));
        assert_eq!((exp(710.0), exp(-746.0), exp(f64::NEG_INFINITY), exp(0.0)), (f64::INFINITY, 0.0, 0.0, 1.0));
        assert!(exp(f64::NAN).is_nan() && atan(f64::NAN).is_nan() && atan2(1.0, f64::NAN).is_nan());
        let edges = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, 1e-300, -1e300];
        for (y, x) in edges.into_iter().flat_map(|y| edges.map(|x| (y, x))) {
            assert!(ulps(atan2(y, x), y.atan2(x)) <= 1, "{y} {x}: {}", atan2(y, x));
        }
    }
}
