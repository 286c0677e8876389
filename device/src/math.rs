//! Arithmetic that is one instruction, or a few, on the GPU.
//!
//! Exact functions give the same bits on host and device. Functions named `…_approx` are the GPU's
//! fast instructions; their error bounds are those of the PTX ISA, and the host gives a correctly
//! rounded or nearly correctly rounded result instead, which is within the same bound of the truth.
//! Nothing flushes subnormals to zero unless it says so.
//!
//! Plain operators do what they say: `a * b + c` rounds twice (the compiler does not contract), so
//! sums of products want [`fma`].
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// y = sigmoid(a) · x, accurate, and SiLU of x by fast instructions.
//! #[kernel(block = 256)]
//! pub unsafe fn gate(a: In<f32>, x: In<f32>, y: Out<f32>, silu: Out<f32>, n: u32) {
//!     let i = thread::global_x();
//!     if i < n as usize {
//!         let v = x.at(i);
//!         y.set(i, math::sigmoid(a.at(i)) * v);
//!         silu.set(i, math::div_approx(v, 1.0 + math::exp_approx(-v)));
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! Instructions of PTX that one call takes, those of all its branches together. In machine code an approximation takes up to
//! four more, for subnormals, and `sqrt` and a division, which are one in PTX, about ten where operands are ordinary. Each
//! function's bound is in its own documentation.
//!
//! | | cost | fast | cost |
//! |---|---|---|---|
//! | [`fma`], [`max`], [`floor`] | 1, 1, 1 | | |
//! | [`sqrt`] | 1 | [`sqrt_approx`], [`div_approx`] | 1, 2 |
//! | [`div_from_one_to_two`] | 9 | | |
//! | [`exp`] | 19 | [`exp_approx`], [`exp2_approx`] | 2, 1 |
//! | [`ln`], [`log2`] | 44, 45 | [`ln_approx`], [`log2_approx`] | 2, 1 |
//! | [`pow`] | 147 | [`pow_approx`] | 3 |
//! | [`rsqrt`] | 20 | [`rsqrt_approx`] | 1 |
//! | [`tanh`] | 40 | [`tanh_approx`] | 1 |
//! | [`sigmoid`], [`erf`] | 45, 64 | | |
//! | [`cbrt`], [`hypot`] | 50, 27 | | |
//! | [`sin_cos`], [`tan`] | 37, 26 | | |
//! | [`atan`], [`atan2`], [`asin`], [`acos`] | 32, 36, 37, 45 | | |
//!
//! [`double`] has them in `f64`.

mod angles;
pub mod double;
mod elementary;
mod powers;
mod two_pi;

pub use angles::{acos, asin, atan, atan2, tan};
pub use elementary::{erf, ln, log2, sigmoid, tanh};
pub use powers::{cbrt, hypot, pow, pow_approx, rsqrt};

use two_pi::quadrant;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;
#[cfg(target_arch = "nvptx64")]
use core::{f32::math as m, f64::math as m64};

/// log2(e).
const LOG2_E: f32 = core::f32::consts::LOG2_E;

/// `a * b + c`, rounded once.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return m::mul_add(a, b, c);
    #[cfg(not(target_arch = "nvptx64"))]
    return a.mul_add(b, c);
}

/// `a * b + c` in `f64`, rounded once.
#[inline(always)]
pub fn fma_f64(a: f64, b: f64, c: f64) -> f64 {
    #[cfg(target_arch = "nvptx64")]
    return m64::mul_add(a, b, c);
    #[cfg(not(target_arch = "nvptx64"))]
    return a.mul_add(b, c);
}

/// The square root, correctly rounded.
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return m::sqrt(x);
    #[cfg(not(target_arch = "nvptx64"))]
    return x.sqrt();
}

/// The larger; a NaN loses against a number, +0 is larger than −0.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return a.max(b);
    #[cfg(not(target_arch = "nvptx64"))]
    return if a == b { f32::from_bits(a.to_bits() & b.to_bits()) } else { a.max(b) };
}

/// The smaller; a NaN loses against a number, −0 is smaller than +0.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return a.min(b);
    #[cfg(not(target_arch = "nvptx64"))]
    return if a == b { f32::from_bits(a.to_bits() | b.to_bits()) } else { a.min(b) };
}

macro_rules! roundings {
    ($($(#[$doc:meta])* $name:ident = $f:ident;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(x: f32) -> f32 {
            #[cfg(target_arch = "nvptx64")]
            return m::$f(x);
            #[cfg(not(target_arch = "nvptx64"))]
            return x.$f();
        }
    )* };
}
roundings! {
    /// The nearest integer, ties to even. One instruction, unlike `round`.
    round_even = round_ties_even;
    /// The integer below.
    floor = floor;
    /// The integer above.
    ceil = ceil;
    /// The integer towards zero.
    trunc = trunc;
}

/// The nearest integer, ties to even, as an `i32`: saturating, 0 for a NaN. One instruction.
#[inline(always)]
pub fn round_to_i32(x: f32) -> i32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let n: i32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("cvt.rni.s32.f32 {0}, {1};", lateout(reg32) n, in(reg32) x, options(pure, nomem, nostack, preserves_flags));
        }
        n
    }
    #[cfg(not(target_arch = "nvptx64"))]
    return x.round_ties_even() as i32;
}

macro_rules! approximations {
    ($($(#[$doc:meta])* $name:ident = $ptx:literal, |$x:ident| $host:expr;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name($x: f32) -> f32 {
            #[cfg(target_arch = "nvptx64")]
            {
                let y: f32;
                // SAFETY: arithmetic on registers.
                unsafe {
                    asm!(concat!($ptx, " {0}, {1};"), lateout(reg32) y, in(reg32) $x,
                        options(pure, nomem, nostack, preserves_flags));
                }
                y
            }
            #[cfg(not(target_arch = "nvptx64"))]
            return $host;
        }
    )* };
}
approximations! {
    /// 2^x within 2 ulp (`ex2.approx.f32`). Exact for integers; 0 below −150, ∞ from 128 on.
    exp2_approx = "ex2.approx.f32", |x| x.exp2();
    /// As [`exp2_approx`], with 0 for results below 2^-126 (`ex2.approx.ftz.f32`). One instruction of machine code, where
    /// results that may be subnormal take four.
    exp2_approx_ftz = "ex2.approx.ftz.f32", |x| if x < -126.0 { 0.0 } else { x.exp2() };
    /// log2(x), off by 2^-22 absolutely within 0.5..2 and relatively elsewhere (`lg2.approx.f32`).
    log2_approx = "lg2.approx.f32", |x| x.log2();
    /// 1/√x within a relative 2^-22.9 (`rsqrt.approx.f32`). ∞ for 0, NaN below.
    rsqrt_approx = "rsqrt.approx.f32", |x| rsqrt_host(x);
    /// 1/x within 1 ulp (`rcp.approx.f32`).
    rcp_approx = "rcp.approx.f32", |x| 1.0 / x;
    /// As [`rsqrt_approx`], with infinities for |x| below 2^-126 (`rsqrt.approx.ftz.f32`). One instruction of machine code,
    /// where operands that may be subnormal take four.
    rsqrt_approx_ftz = "rsqrt.approx.ftz.f32", |x| rsqrt_host(flushed(x));
    /// As [`rcp_approx`], with infinities for |x| below 2^-126 and zeros for results below it (`rcp.approx.ftz.f32`). One instruction of
    /// machine code.
    rcp_approx_ftz = "rcp.approx.ftz.f32", |x| flushed(1.0 / flushed(x));
    /// √x within a relative 2^-23 (`sqrt.approx.f32`).
    sqrt_approx = "sqrt.approx.f32", |x| x.sqrt();
    /// tanh(x) within a relative 2^-11 (`tanh.approx.f32`).
    tanh_approx = "tanh.approx.f32", |x| x.tanh();
}

#[cfg(not(target_arch = "nvptx64"))]
fn rsqrt_host(x: f32) -> f32 {
    (1.0 / f64::from(x).sqrt()) as f32
}

/// Zero for a subnormal number, with its sign.
#[cfg(not(target_arch = "nvptx64"))]
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

/// e^x as `exp2_approx(x * log2(e))`: a relative 2^-21 + |x| · 2^-23, and 2^-149. Two instructions. Enough where
/// |x| is small or the result is (softmax after the maximum is taken off, SiLU); else [`exp`].
#[inline(always)]
pub fn exp_approx(x: f32) -> f32 {
    exp2_approx(x * LOG2_E)
}

/// ln(x) as `log2_approx(x) * ln(2)`.
#[inline(always)]
pub fn ln_approx(x: f32) -> f32 {
    log2_approx(x) * core::f32::consts::LN_2
}

/// `a / b` as `a * rcp_approx(b)`: within 2 ulp where 1/b neither overflows nor is subnormal.
#[inline(always)]
pub fn div_approx(a: f32, b: f32) -> f32 {
    a * rcp_approx(b)
}

/// `a / b` for `b` from 1 to 2, rounded as the operator's, but for results below 2^-100, which may be off by one of their last bits.
/// Nine instructions and no branch, where the operator has a call for what is very large or small: several are interleaved.
///
/// Method: the reciprocal by one step of Newton's, and what the quotient leaves of `a`.
#[inline(always)]
pub fn div_from_one_to_two(a: f32, b: f32) -> f32 {
    let r = rcp_approx(b);
    let r = fma(r, fma(-b, r, 1.0), r);
    let q = a * r;
    let rest = fma(-b, q, a);
    // Of what is not finite nothing is left that is a number.
    if rest.is_nan() { q } else { fma(rest, r, q) }
}

/// e^x within a relative 2^-21.5 over the whole range; subnormal results may be off by one more of
/// their last bit. 0 below −104, ∞ above 88.73. About 20 instructions.
///
/// Method: x = t·ln 2 + r with integer t, in two steps of `fma`; then 2^(r·log2 e) · 2^t.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_145_75;
    const LN2_LOW: f32 = 1.428_606_8e-6;
    // Not `clamp` or `min`/`max`, which would turn a NaN into a number.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.5 { -104.5 } else { x };
    let t = round_even(x * LOG2_E);
    let r = fma(-t, LN2_LOW, fma(-t, LN2_HIGH, x));
    // In two halves, since 2^t itself may overflow or be subnormal.
    let t = round_to_i32(t);
    let half = t >> 1;
    exp2_approx(r * LOG2_E) * power_of_two(half) * power_of_two(t - half)
}

/// 2^n for −126 ≤ n ≤ 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

/// sin(x) and cos(x), each within 2^-23 of the truth (absolutely), for |x| up to 2^30. NaN for ∞.
///
/// Method: x minus a multiple of π/2 in `f64` (four `f64` operations), then polynomials in `f32`.
/// The same code runs on host and device. Source of the polynomials: Cephes `sinf`, `cosf`.
#[inline(always)]
pub fn sin_cos(x: f32) -> (f32, f32) {
    let (r, quadrant) = quadrant(x);
    let r = r as f32;
    let z = r * r;
    let s = fma(fma(-1.951_529_6e-4, z, 8.332_161e-3), z, -1.666_665_5e-1);
    let s = fma(s * z, r, r);
    let c = fma(fma(2.443_315_7e-5, z, -1.388_731_6e-3), z, 4.166_664_6e-2);
    let c = fma(c * z, z, fma(-0.5, z, 1.0));
    let (s, c) = if quadrant & 1 == 0 { (s, c) } else { (c, s) };
    (if quadrant & 2 == 0 { s } else { -s }, if (quadrant + 1) & 2 == 0 { c } else { -c })
}

/// `c` plus the four products of the signed bytes of `a` and `b`, wrapping (`dp4a.s32.s32`).
#[inline(always)]
pub fn dp4a(a: i32, b: i32, c: i32) -> i32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let d: i32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("dp4a.s32.s32 {0}, {1}, {2}, {3};", lateout(reg32) d, in(reg32) a, in(reg32) b, in(reg32) c,
                options(pure, nomem, nostack, preserves_flags));
        }
        d
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
        (0..4).fold(c, |c, i| c.wrapping_add(i32::from(a[i] as i8) * i32::from(b[i] as i8)))
    }
}

/// `c` plus the four products of the unsigned bytes of `a` and `b`, wrapping (`dp4a.u32.u32`).
#[inline(always)]
pub fn dp4a_u(a: u32, b: u32, c: u32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let d: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("dp4a.u32.u32 {0}, {1}, {2}, {3};", lateout(reg32) d, in(reg32) a, in(reg32) b, in(reg32) c,
                options(pure, nomem, nostack, preserves_flags));
        }
        d
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
        (0..4).fold(c, |c, i| c.wrapping_add(u32::from(a[i]) * u32::from(b[i])))
    }
}

/// `c` plus the four products of the unsigned bytes of `a` and the signed bytes of `b`, wrapping (`dp4a.u32.s32`).
#[inline(always)]
pub fn dp4a_us(a: u32, b: i32, c: i32) -> i32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let d: i32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("dp4a.u32.s32 {0}, {1}, {2}, {3};", lateout(reg32) d, in(reg32) a, in(reg32) b, in(reg32) c,
                options(pure, nomem, nostack, preserves_flags));
        }
        d
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
        (0..4).fold(c, |c, i| c.wrapping_add(i32::from(a[i]) * i32::from(b[i] as i8)))
    }
}

/// `c` plus the two products of the signed halves of `a`, of 16 bits each, and the lower two signed bytes of `b`, wrapping
/// (`dp2a.lo.s32.s32`).
#[inline(always)]
pub fn dp2a(a: i32, b: i32, c: i32) -> i32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let d: i32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("dp2a.lo.s32.s32 {0}, {1}, {2}, {3};", lateout(reg32) d, in(reg32) a, in(reg32) b, in(reg32) c,
                options(pure, nomem, nostack, preserves_flags));
        }
        d
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let b = b.to_le_bytes();
        let products = i32::from(a as i16) * i32::from(b[0] as i8) + (a >> 16) * i32::from(b[1] as i8);
        c.wrapping_add(products)
    }
}

/// Four bytes of `low` (numbered 0 to 3) and `high` (4 to 7), as the four lowest hex digits of
/// `selector` say, the first digit for the lowest byte (`prmt.b32` for digits 0 to 7).
#[inline(always)]
pub fn permute_bytes(low: u32, high: u32, selector: u32) -> u32 {
    let selector = selector & 0x7777;
    #[cfg(target_arch = "nvptx64")]
    {
        let d: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("prmt.b32 {0}, {1}, {2}, {3};", lateout(reg32) d, in(reg32) low, in(reg32) high, in(reg32) selector,
                options(pure, nomem, nostack, preserves_flags));
        }
        d
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let bytes = (u64::from(high) << 32 | u64::from(low)).to_le_bytes();
        u32::from_le_bytes([0, 4, 8, 12].map(|shift| bytes[(selector >> shift & 7) as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(from: f32, to: f32, n: usize) -> impl Iterator<Item = f32> {
        (0..=n).map(move |i| from + (to - from) * (i as f32 / n as f32))
    }

    #[test]
    fn quotients_of_one_to_two_are_those_of_the_operator() {
        let divisors: Vec<f32> =
            sweep(1.0, 2.0, 1009).chain([1.0, 1.0 + f32::EPSILON, 2.0 - f32::EPSILON, 2.0]).collect();
        let dividends: Vec<f32> = sweep(-100.0, 100.0, 499)
            .chain([0.0, -0.0, 1e-29, -1e-29, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY])
            .collect();
        for (a, b) in dividends.iter().flat_map(|a| divisors.iter().map(move |b| (*a, *b))) {
            assert_eq!(div_from_one_to_two(a, b), a / b, "{a} / {b}");
        }
        assert!(div_from_one_to_two(f32::NAN, 1.5).is_nan());
        let (smallest, b) = (f32::from_bits(1), 1.25);
        assert!((div_from_one_to_two(3.0 * smallest, b) - 3.0 * smallest / b).abs() <= smallest);
    }

    #[test]
    fn exp_is_within_its_bound_of_f64() {
        for x in sweep(-87.0, 88.7, 1_000_003) {
            let truth = f64::from(x).exp();
            assert!((f64::from(exp(x)) / truth - 1.0).abs() < 2f64.powf(-21.5), "{x}");
            let bound = 2f64.powi(-21) + f64::from(x.abs()) * 2f64.powi(-23);
            assert!((f64::from(exp_approx(x)) / truth - 1.0).abs() < bound, "{x}");
        }
        for x in sweep(-104.5, -87.0, 100_003) {
            let truth = f64::from(x).exp();
            let bound = truth * 2f64.powf(-21.5) + 1.5 * 2f64.powi(-149);
            assert!((f64::from(exp(x)) - truth).abs() < bound, "{x}");
        }
        assert_eq!((exp(0.0), exp(f32::INFINITY), exp(f32::NEG_INFINITY)), (1.0, f32::INFINITY, 0.0));
        assert_eq!((exp(88.73), exp(1e30), exp(-105.0), exp(-1e30)), (f32::INFINITY, f32::INFINITY, 0.0, 0.0));
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn sin_cos_is_within_its_bound_of_f64() {
        let points = sweep(-10.0, 10.0, 500_001).chain(sweep(0.0, 1e6, 500_001)).chain(sweep(1e6, 1e9, 100_003));
        for x in points {
            let (s, c) = sin_cos(x);
            let (ts, tc) = f64::from(x).sin_cos();
            let bound = 2f64.powi(-23);
            assert!((f64::from(s) - ts).abs() < bound && (f64::from(c) - tc).abs() < bound, "{x}: {s} {ts} {c} {tc}");
        }
        assert_eq!(sin_cos(0.0), (0.0, 1.0));
        assert!(sin_cos(f32::INFINITY).0.is_nan() && sin_cos(f32::NAN).1.is_nan());
    }

    #[test]
    fn the_host_is_within_the_bounds_of_the_approximations() {
        for x in sweep(1e-3, 1e3, 300_007) {
            let wide = f64::from(x);
            let relative = |ours: f32, truth: f64| (f64::from(ours) / truth - 1.0).abs();
            assert!(relative(rsqrt_approx(x), 1.0 / wide.sqrt()) < 2f64.powf(-22.9));
            assert!(relative(rcp_approx(x), 1.0 / wide) < 2f64.powi(-23));
            assert_eq!((rsqrt_approx_ftz(x), rcp_approx_ftz(x)), (rsqrt_approx(x), rcp_approx(x)));
            assert!(relative(sqrt_approx(x), wide.sqrt()) < 2f64.powi(-23));
            assert!((f64::from(log2_approx(x)) - wide.log2()).abs() < 2f64.powi(-22) * wide.log2().abs().max(1.0));
            assert!(relative(div_approx(3.0, x), 3.0 / wide) < 2f64.powi(-22));
        }
        let small = f32::MIN_POSITIVE / 2.0;
        assert_eq!((rsqrt_approx_ftz(small), rcp_approx_ftz(small)), (f32::INFINITY, f32::INFINITY));
        assert_eq!((rcp_approx_ftz(-small), rcp_approx_ftz(f32::MAX)), (f32::NEG_INFINITY, 0.0));
    }

    #[test]
    fn minimum_and_maximum() {
        let (nan, zero) = (f32::NAN, 0.0f32);
        assert_eq!((max(nan, 1.0), max(1.0, nan), min(nan, 1.0), min(1.0, nan)), (1.0, 1.0, 1.0, 1.0));
        assert!(max(nan, nan).is_nan() && min(nan, nan).is_nan());
        for (a, b) in [(zero, -zero), (-zero, zero)] {
            assert_eq!((max(a, b).to_bits(), min(a, b).to_bits()), (0, 0x8000_0000));
        }
        assert_eq!((max(-1.0, -2.0), min(-1.0, -2.0)), (-1.0, -2.0));
    }

    #[test]
    fn rounding() {
        assert_eq!([0.5, 1.5, 2.5, -0.5, -1.5].map(round_even), [0.0, 2.0, 2.0, 0.0, -2.0]);
        assert_eq!([2.5, -2.5, 3e9, -3e9, f32::NAN].map(round_to_i32), [2, -2, i32::MAX, i32::MIN, 0]);
        assert_eq!((floor(-0.5), ceil(-0.5), trunc(-1.5)), (-1.0, 0.0, -1.0));
        assert_eq!(fma(1.0 + f32::EPSILON, 1.0 - f32::EPSILON, -1.0), -f32::EPSILON * f32::EPSILON);
    }

    #[test]
    fn bytes() {
        let pack = |v: [i8; 4]| i32::from_le_bytes(v.map(|b| b as u8));
        assert_eq!(dp4a(pack([1, -2, 3, -128]), pack([5, 6, -7, -128]), 10), 10 + 5 - 12 - 21 + 16384);
        assert_eq!(dp4a(0, 0, i32::MIN), i32::MIN);
        assert_eq!(dp4a_u(0xff01_ff02, 0xff03_ff04, 1), 1 + 255 * 255 * 2 + 3 + 8);
        assert_eq!(dp4a_us(0xff01_ff02, pack([-128, 127, 3, -1]), 9), 9 - 256 + 255 * 127 + 3 - 255);
        assert_eq!(dp4a_us(0, -1, i32::MAX), i32::MAX);
        assert_eq!(dp2a(0x7FFF_8000, pack([-128, 127, 5, 6]), 7), 7 + 32768 * 128 + 32767 * 127);
        assert_eq!(dp2a(0, -1, i32::MAX), i32::MAX);
        assert_eq!(permute_bytes(0x3322_1100, 0x7766_5544, 0x7340), 0x7733_4400);
    }
}
