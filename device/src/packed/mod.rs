//! Arithmetic on pairs of 16-bit floats in one register: [`F16x2`] and [`Bf16x2`].
//!
//! Every operation rounds each half once, to nearest even, and keeps subnormals; host and device give the same bits (a NaN
//! has any payload). Sums of many products want `f32` accumulators ([`convert`],
//! [`mma`](crate::mma)); this is for what stays in 16 bits.
//!
//! ```
//! use warpsmith_device::packed::F16x2;
//! let x = F16x2::from_f32(1.5, -2.0);
//! let y = x.fma(F16x2::splat_f32(2.0), F16x2::from_f32(0.25, 1.0));
//! assert_eq!(y.to_f32(), (3.25, -3.0));
//! ```
//!
//! | operation | `F16x2` | `Bf16x2`, sm_90 on | `Bf16x2`, sm_80 | `Bf16x2`, before |
//! |---|---|---|---|---|
//! | `fma` | 1 | 1 | 1 | about 60, in `f64` |
//! | `+`, `-`, `*` | 1 | 1 | 1 (an `fma`) | about 60, in `f64` |
//! | `min`, `max` | 1 from sm_80 on, 6 before | 1 | 1 | about 20 |
//! | unary `-`, `abs` | 1 | 1 | 1 | 1 |
//!
//! Scalars: `f16` has Rust's operators on both sides, `bf16` too (through `f32`, rounded once).

mod soft;

#[cfg(not(target_feature = "sm_80"))]
use crate::math;
use crate::{bf16, convert, f16};
use core::ops::{Add, Mul, Neg, Sub};

macro_rules! pairs {
    ($($(#[$doc:meta])* $name:ident: $t:ident, $unpack:ident, $pack:ident, $to:ident, $from:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[cfg_attr(not(target_arch = "nvptx64"), derive(Debug))]
        #[repr(transparent)]
        pub struct $name(u32);

        crate::element::transparent_element!($name, u32);

        impl $name {
            /// The pair of these bits, the first half in the lower ones.
            #[inline(always)]
            pub const fn from_bits(bits: u32) -> $name {
                $name(bits)
            }

            /// Its bits.
            #[inline(always)]
            pub const fn to_bits(self) -> u32 {
                self.0
            }

            /// The pair of two values.
            #[inline(always)]
            pub fn new(low: $t, high: $t) -> $name {
                $name(low.to_bits() as u32 | (high.to_bits() as u32) << 16)
            }

            /// The first half.
            #[inline(always)]
            pub fn low(self) -> $t {
                $t::from_bits(self.0 as u16)
            }

            /// The second half.
            #[inline(always)]
            pub fn high(self) -> $t {
                $t::from_bits((self.0 >> 16) as u16)
            }

            /// Two values, rounded.
            #[inline(always)]
            pub fn from_f32(low: f32, high: f32) -> $name {
                $name(convert::$pack(low, high))
            }

            /// A value twice, rounded.
            #[inline(always)]
            pub fn splat_f32(v: f32) -> $name {
                $name::from_f32(v, v)
            }

            /// Both, exactly.
            #[inline(always)]
            pub fn to_f32(self) -> (f32, f32) {
                convert::$unpack(self.0)
            }

            /// Without their signs.
            #[inline(always)]
            pub fn abs(self) -> $name {
                $name(self.0 & 0x7fff_7fff)
            }

            /// `self * b + c`, rounded once.
            #[inline(always)]
            pub fn fma(self, b: $name, c: $name) -> $name {
                $name(self.fused(b, c))
            }

            /// The larger of each half; a NaN loses against a number, +0 is larger than −0.
            #[inline(always)]
            pub fn max(self, b: $name) -> $name {
                $name(self.larger(b))
            }

            /// The smaller of each half; a NaN loses against a number, −0 is smaller than +0.
            #[inline(always)]
            pub fn min(self, b: $name) -> $name {
                $name(self.smaller(b))
            }

            /// By halves in `f32`, whose result is rounded to odd; the final rounding is then the only one.
            #[inline(always)]
            #[allow(dead_code)]
            fn fused_softly(self, b: $name, c: $name) -> u32 {
                let (a, b, c) = (self.to_f32(), b.to_f32(), c.to_f32());
                convert::$pack(soft::fma_to_odd(a.0, b.0, c.0), soft::fma_to_odd(a.1, b.1, c.1))
            }

            #[inline(always)]
            #[allow(dead_code)]
            fn each(self, b: $name, f: impl Fn(f32, f32) -> f32) -> u32 {
                let (a, b) = (self.to_f32(), b.to_f32());
                convert::$pack(f(a.0, b.0), f(a.1, b.1))
            }
        }

        impl Add for $name {
            type Output = $name;
            #[inline(always)]
            fn add(self, b: $name) -> $name {
                $name(self.sum(b))
            }
        }
        impl Sub for $name {
            type Output = $name;
            #[inline(always)]
            fn sub(self, b: $name) -> $name {
                $name(self.difference(b))
            }
        }
        impl Mul for $name {
            type Output = $name;
            #[inline(always)]
            fn mul(self, b: $name) -> $name {
                $name(self.product(b))
            }
        }
        impl Neg for $name {
            type Output = $name;
            #[inline(always)]
            fn neg(self) -> $name {
                $name(self.0 ^ 0x8000_8000)
            }
        }
    )* };
}
pairs! {
    /// Two `f16` in a word.
    F16x2: f16, unpack_f16x2, pack_f16x2, f16_to_f32, f32_to_f16;
    /// Two `bf16` in a word.
    Bf16x2: bf16, unpack_bf16x2, pack_bf16x2, bf16_to_f32, f32_to_bf16;
}

/// A method that is one instruction where `cfg` holds, and `$soft` elsewhere.
macro_rules! operations {
    ($($t:ident::$name:ident($($arg:ident),*), $cfg:meta, $ptx:literal, |$x:ident| $soft:expr;)*) => { $(
        impl $t {
            #[inline(always)]
            fn $name(self $(, $arg: $t)*) -> u32 {
                #[cfg($cfg)]
                {
                    let d: u32;
                    // SAFETY: arithmetic on registers.
                    unsafe {
                        core::arch::asm!(concat!($ptx, " {d}, {a}" $(, ", {", stringify!($arg), "}")*, ";"),
                            d = lateout(reg32) d, a = in(reg32) self.0, $($arg = in(reg32) $arg.0,)*
                            options(pure, nomem, nostack, preserves_flags));
                    }
                    d
                }
                #[cfg(not($cfg))]
                {
                    let $x = self;
                    $soft
                }
            }
        }
    )* };
}
operations! {
    F16x2::fused(b, c), target_arch = "nvptx64", "fma.rn.f16x2", |x| x.fused_softly(b, c);
    F16x2::sum(b), target_arch = "nvptx64", "add.rn.f16x2", |x| x.each(b, |a, b| a + b);
    F16x2::difference(b), target_arch = "nvptx64", "sub.rn.f16x2", |x| x.each(b, |a, b| a - b);
    F16x2::product(b), target_arch = "nvptx64", "mul.rn.f16x2", |x| x.each(b, |a, b| a * b);
    F16x2::larger(b), target_feature = "sm_80", "max.f16x2", |x| x.each(b, math::max);
    F16x2::smaller(b), target_feature = "sm_80", "min.f16x2", |x| x.each(b, math::min);
    Bf16x2::fused(b, c), target_feature = "sm_80", "fma.rn.bf16x2", |x| x.fused_softly(b, c);
    Bf16x2::sum(b), target_feature = "sm_90", "add.rn.bf16x2", |x| x.fused(Bf16x2(0x3f80_3f80), b);
    Bf16x2::difference(b), target_feature = "sm_90", "sub.rn.bf16x2", |x| b.fused(Bf16x2(0xbf80_bf80), x);
    Bf16x2::product(b), target_feature = "sm_90", "mul.rn.bf16x2", |x| x.fused(b, Bf16x2(0x8000_8000));
    Bf16x2::larger(b), target_feature = "sm_80", "max.bf16x2", |x| x.each(b, math::max);
    Bf16x2::smaller(b), target_feature = "sm_80", "min.bf16x2", |x| x.each(b, math::min);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A finite 16-bit float as a multiple of 2^-40, for exponents that 128 bits hold.
    fn fixed(bits: u16, fraction_bits: u32, bias: i32) -> i128 {
        let (fraction, exponent) =
            (i128::from(bits) & ((1 << fraction_bits) - 1), i32::from(bits & 0x7fff) >> fraction_bits);
        let (m, e) = if exponent == 0 { (fraction, 1) } else { (fraction | 1 << fraction_bits, exponent) };
        let shift = e - bias - fraction_bits as i32 + 40;
        let magnitude = m << u32::try_from(shift).expect("an exponent of the test");
        if bits & 0x8000 == 0 { magnitude } else { -magnitude }
    }

    /// The nearest 16-bit float to a multiple of 2^-80, ties to even.
    fn nearest(v: i128, fraction_bits: u32, bias: i32) -> u16 {
        let magnitude = v.unsigned_abs();
        let least = (1 - bias - fraction_bits as i32 + 80) as u32;
        let above = (127 - magnitude.leading_zeros() as i32).max(0) as u32;
        let unit = above.saturating_sub(fraction_bits).max(least);
        let (mut m, rest) = (magnitude >> unit, magnitude & ((1 << unit) - 1));
        m += u128::from(rest > 1 << (unit - 1) || (rest == 1 << (unit - 1) && m & 1 == 1));
        // A carry runs into the exponent, and a fraction of its own leaves it at zero.
        let code = m + u128::from(unit - least) * (1 << fraction_bits);
        code as u16 | if v < 0 { 0x8000 } else { 0 }
    }

    fn noise() -> impl Iterator<Item = u64> {
        (1u64..).map(|i| {
            let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z ^ (z >> 31)
        })
    }

    #[test]
    fn every_operation_of_f16_rounds_once() {
        let mut ties = 0;
        for v in noise().take(300_000) {
            // Magnitudes from subnormal to 2^7, so that products and sums stay finite and often nearly cancel.
            let [a, b, c] =
                [v as u16, (v >> 16) as u16, (v >> 32) as u16].map(|x| (x & 0x83ff) | ((x % 0x5800) & 0x7c00));
            let [x, y, z] = [a, b, c].map(|x| fixed(x, 10, 15));
            let pair = |v: u16| F16x2::from_bits(u32::from(v) | 0x3c00_0000);
            let of = |p: F16x2| p.to_bits() as u16;
            let exact = x * y + (z << 40);
            if exact != 0 {
                assert_eq!(of(pair(a).fma(pair(b), pair(c))), nearest(exact, 10, 15), "{a:#x} * {b:#x} + {c:#x}");
            }
            if x * y != 0 {
                assert_eq!(of(pair(a) * pair(b)), nearest(x * y, 10, 15));
                ties += 1;
            }
            if x + y != 0 {
                assert_eq!(of(pair(a) + pair(b)), nearest((x + y) << 40, 10, 15));
            }
            if x != y {
                assert_eq!(of(pair(a) - pair(b)), nearest((x - y) << 40, 10, 15));
            }
        }
        assert!(ties > 100_000);
    }

    #[test]
    fn every_operation_of_bf16_rounds_once() {
        for v in noise().take(300_000) {
            // Magnitudes from 2^-12 to 2^13.
            let [a, b, c] = [v as u16, (v >> 16) as u16, (v >> 32) as u16].map(|x| {
                let exponent = 115 + (x >> 7 & 0xff) % 26;
                x & 0x807f | exponent << 7
            });
            let [x, y, z] = [a, b, c].map(|x| fixed(x, 7, 127));
            let pair = |v: u16| Bf16x2::from_bits(u32::from(v) << 16 | 0x3f80);
            let of = |p: Bf16x2| (p.to_bits() >> 16) as u16;
            // No subnormal is near, so that another bias gives the reference an exponent that 128 bits hold.
            let near = |v: i128| nearest(v, 7, 73) + (54 << 7);
            let exact = x * y + (z << 40);
            if exact != 0 {
                assert_eq!(of(pair(a).fma(pair(b), pair(c))), near(exact), "{a:#x} * {b:#x} + {c:#x}");
            }
            assert_eq!(of(pair(a) * pair(b)), near(x * y));
            if x + y != 0 {
                assert_eq!(of(pair(a) + pair(b)), near((x + y) << 40));
            }
            if x != y {
                assert_eq!(of(pair(a) - pair(b)), near((x - y) << 40));
            }
        }
    }

    #[test]
    fn ends_of_the_range() {
        let f = |v: f32| F16x2::splat_f32(v);
        let of = |p: F16x2| p.low().to_f32();
        assert_eq!(of(f(65504.0) + f(16.0)), f32::INFINITY);
        assert_eq!(of(f(65504.0) + f(15.0)), 65504.0);
        assert_eq!(of(f(300.0).fma(f(300.0), f(f32::NEG_INFINITY))), f32::NEG_INFINITY);
        assert!(of(f(f32::INFINITY) - f(f32::INFINITY)).is_nan());
        assert_eq!((f(f32::NAN).max(f(1.0)).to_f32().0, f(-2.0).min(f(1.0)).to_f32().1), (1.0, -2.0));
        assert_eq!((-f(1.0).abs()).to_f32(), (-1.0, -1.0));
        assert_eq!((f(0.0) * f(-1.0)).to_bits(), 0x8000_8000);
        assert_eq!(F16x2::new(half::f16::from_f32(3.0), half::f16::ZERO).low().to_f32(), 3.0);
        let b = |v: f32| Bf16x2::splat_f32(v);
        assert_eq!((b(1e38) + b(3e38)).high().to_f32(), f32::INFINITY);
        assert_eq!((b(1e38) * b(-1e38)).low().to_f32(), f32::NEG_INFINITY);
        assert_eq!((b(0.0) * b(-1.0)).to_bits(), 0x8000_8000);
        assert!((b(f32::INFINITY) * b(0.0)).high().is_nan());
    }
}
