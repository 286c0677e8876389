//! Eight-bit floats: [`E4m3`] and [`E5m2`], to and from `f32`.
//!
//! | type | exponent, fraction | largest | smallest normal, subnormal | infinity, NaN |
//! |---|---|---|---|---|
//! | [`E4m3`] | 4, 3 bits, bias 7 | 448 | 2^-6, 2^-9 | none; `0x7f` and `0xff` |
//! | [`E5m2`] | 5, 2 bits, bias 15 | 57344 | 2^-14, 2^-16 | `0x7c` and `0xfc`; `0x7d` to `0x7f`, `0xfd` to `0xff` |
//!
//! Rounding is to nearest, ties to even; what is too large, infinities included, becomes the largest number (`satfinite`); a
//! NaN becomes `0x7f`. Host and device give the same bits. No GPU calculates in 8 bits, and neither do these: sums and products of
//! elements go through `f32`, or pairs of `f16` (`unpack_f16x2`, [`packed`](crate::packed)), and tensor cores multiply
//! [fragments](crate::mma) of either type.
//!
//! ```
//! use warpsmith_device::fp8::E4m3;
//! assert_eq!(E4m3::from_f32(0.3).to_f32(), 0.3125);
//! assert_eq!(E4m3::from_f32(-1e9).to_f32(), -448.0);
//! ```
//!
//! Cost of a pair: one or two instructions from sm_90 on, about 20 before. Source: OCP 8-bit Floating Point Specification 1.0;
//! PTX ISA, `cvt`.

use crate::packed::F16x2;

macro_rules! formats {
    ($($(#[$doc:meta])* $name:ident: $exponent:literal, $fraction:literal, $largest:literal, $ptx:literal;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[cfg_attr(not(target_arch = "nvptx64"), derive(Debug, PartialEq, Eq))]
        #[repr(transparent)]
        pub struct $name(u8);

        crate::element::transparent_element!($name, u8);

        impl $name {
            /// The value of these bits.
            #[inline(always)]
            pub const fn from_bits(bits: u8) -> $name {
                $name(bits)
            }

            /// Its bits.
            #[inline(always)]
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// The nearest value; see [the module](self) for what is too large.
            #[inline(always)]
            pub fn from_f32(v: f32) -> $name {
                $name($name::pack(v, 0.0) as u8)
            }

            /// The value, exactly.
            #[inline(always)]
            pub fn to_f32(self) -> f32 {
                $name::unpack(self.0 as u16).0
            }

            /// The bits of two nearest values, the first in the lower byte.
            #[inline(always)]
            pub fn pack(low: f32, high: f32) -> u16 {
                #[cfg(target_feature = "sm_90")]
                {
                    let bits: u16;
                    // SAFETY: arithmetic on registers.
                    unsafe {
                        core::arch::asm!(concat!("cvt.rn.satfinite.", $ptx, "x2.f32 {0}, {1}, {2};"),
                            lateout(reg16) bits, in(reg32) high, in(reg32) low, options(pure, nomem, nostack, preserves_flags));
                    }
                    bits
                }
                #[cfg(not(target_feature = "sm_90"))]
                {
                    encode::<$exponent, $fraction, $largest>(low) as u16
                        | (encode::<$exponent, $fraction, $largest>(high) as u16) << 8
                }
            }

            /// Two values, exactly, the first of the lower byte, as a pair that can be calculated with.
            #[inline(always)]
            pub fn unpack_f16x2(bits: u16) -> F16x2 {
                #[cfg(target_feature = "sm_90")]
                {
                    let halves: u32;
                    // SAFETY: arithmetic on registers.
                    unsafe {
                        core::arch::asm!(concat!("cvt.rn.f16x2.", $ptx, "x2 {0}, {1};"), lateout(reg32) halves,
                            in(reg16) bits, options(pure, nomem, nostack, preserves_flags));
                    }
                    F16x2::from_bits(halves)
                }
                #[cfg(not(target_feature = "sm_90"))]
                {
                    halves::<$exponent>(bits)
                }
            }

            /// Two values, exactly, the first of the lower byte.
            #[inline(always)]
            pub fn unpack(bits: u16) -> (f32, f32) {
                #[cfg(target_feature = "sm_90")]
                {
                    crate::convert::unpack_f16x2($name::unpack_f16x2(bits).to_bits())
                }
                #[cfg(not(target_feature = "sm_90"))]
                {
                    let decode = decode::<$exponent, $fraction, $largest>;
                    (decode(bits as u8), decode((bits >> 8) as u8))
                }
            }
        }
    )* };
}
formats! {
    /// Four bits of exponent, three of fraction: weights and activations.
    E4m3: 4, 3, 0x7e, "e4m3";
    /// Five bits of exponent, two of fraction: the upper byte of an `f16`.
    E5m2: 5, 2, 0x7b, "e5m2";
}

/// 2^n for −126 ≤ n ≤ 127.
#[cfg(not(target_feature = "sm_90"))]
const fn power(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

#[cfg(not(target_feature = "sm_90"))]
#[inline(always)]
fn encode<const EXPONENT: u32, const FRACTION: u32, const LARGEST: u32>(v: f32) -> u8 {
    let bias = (1 << (EXPONENT - 1)) - 1;
    let bits = v.to_bits();
    let (sign, magnitude) = ((bits >> 24) as u8 & 0x80, bits & 0x7fff_ffff);
    if magnitude > 0x7f80_0000 {
        return 0x7f;
    }
    let code = if magnitude < power(1 - bias).to_bits() {
        // Adding a number whose last bit is the smallest subnormal leaves the fraction, rounded to nearest even.
        let unit = power(24 - bias - FRACTION as i32);
        (f32::from_bits(magnitude) + unit).to_bits() - unit.to_bits()
    } else {
        // Another bias, and rounding at the last bit that stays. A carry runs into the exponent, which is right.
        let shift = 23 - FRACTION;
        (magnitude - ((127 - bias as u32) << 23) + ((1 << (shift - 1)) - 1) + (magnitude >> shift & 1)) >> shift
    };
    sign | if code < LARGEST { code } else { LARGEST } as u8
}

/// Two codes as `f16`: each is the upper byte of one with five bits of exponent; with four, its magnitude is a place lower and
/// 2^8 too small.
#[cfg(not(target_feature = "sm_90"))]
#[inline(always)]
fn halves<const EXPONENT: u32>(bits: u16) -> F16x2 {
    let bytes = (bits as u32 & 0xff) << 8 | (bits as u32 & 0xff00) << 16;
    if EXPONENT == 5 {
        return F16x2::from_bits(bytes);
    }
    let magnitude = bytes & 0x7f00_7f00;
    let scaled = F16x2::from_bits(bytes & 0x8000_8000 | magnitude >> 1) * F16x2::from_bits(0x5c00_5c00);
    // The code with all bits set is NaN.
    let nan = (magnitude + 0x0100_0100) & 0x8000_8000;
    F16x2::from_bits(scaled.to_bits() | (nan - (nan >> 15)))
}

#[cfg(not(target_feature = "sm_90"))]
#[inline(always)]
fn decode<const EXPONENT: u32, const FRACTION: u32, const LARGEST: u32>(bits: u8) -> f32 {
    let bias = (1 << (EXPONENT - 1)) - 1;
    let (sign, code) = ((bits as u32 & 0x80) << 24, bits as u32 & 0x7f);
    let magnitude = if code > LARGEST {
        // E5M2 has an infinity right after its largest number; E4M3 has its NaN there.
        if EXPONENT == 5 && code == LARGEST + 1 { f32::INFINITY } else { f32::NAN }
    } else if code >> FRACTION == 0 {
        code as f32 * power(1 - bias - FRACTION as i32)
    } else {
        f32::from_bits((code << (23 - FRACTION)) + ((127 - bias as u32) << 23))
    };
    f32::from_bits(sign | magnitude.to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a code by the definition of the format; `None` for what is not finite.
    fn value(code: u8, exponent_bits: u32, fraction_bits: u32, largest: u8) -> Option<f64> {
        let magnitude = code & 0x7f;
        let bias = (1 << (exponent_bits - 1)) - 1;
        let (e, f) = (i32::from(magnitude >> fraction_bits), f64::from(magnitude & ((1 << fraction_bits) - 1)));
        let f = f / f64::from(1 << fraction_bits);
        let v = if e == 0 { f * 2f64.powi(1 - bias) } else { (1.0 + f) * 2f64.powi(e - bias) };
        (magnitude <= largest).then_some(if code & 0x80 == 0 { v } else { -v })
    }

    macro_rules! check {
        ($t:ident, $e:literal, $f:literal, $largest:literal) => {
            let values: Vec<f64> = (0..=$largest).filter_map(|c| value(c, $e, $f, $largest)).collect();
            for code in 0..=255u8 {
                match value(code, $e, $f, $largest) {
                    Some(v) => {
                        assert_eq!(f64::from($t::from_bits(code).to_f32()), v, "{code:#x}");
                        assert_eq!($t::from_f32(v as f32).to_bits(), code);
                    }
                    None => assert!(!$t::from_bits(code).to_f32().is_finite(), "{code:#x}"),
                }
            }
            for (low, high) in (0..=255u8).flat_map(|low| [0u8, 0x7f, 0x80, low].map(|high| (low, high))) {
                let (a, b) = $t::unpack_f16x2(u16::from_le_bytes([low, high])).to_f32();
                for (code, v) in [(low, a), (high, b)] {
                    let wanted = $t::from_bits(code).to_f32();
                    assert!(v.to_bits() == wanted.to_bits() || v.is_nan() && wanted.is_nan(), "{code:#x}: {v}");
                }
            }
            for (code, pair) in values.windows(2).enumerate() {
                let middle = ((pair[0] + pair[1]) / 2.0) as f32;
                let even = code as u8 + (code as u8 & 1);
                for (v, wanted) in [
                    (middle, even),
                    (f32::from_bits(middle.to_bits() - 1), code as u8),
                    (f32::from_bits(middle.to_bits() + 1), code as u8 + 1),
                ] {
                    assert_eq!($t::from_f32(v).to_bits(), wanted, "{v:e}");
                    assert_eq!($t::from_f32(-v).to_bits(), wanted | 0x80, "-{v:e}");
                }
            }
            for v in [1e6, f32::MAX, f32::INFINITY] {
                assert_eq!(($t::from_f32(v).to_bits(), $t::from_f32(-v).to_bits()), ($largest, $largest | 0x80));
            }
            assert_eq!($t::from_f32(f32::NAN).to_bits(), 0x7f);
            assert_eq!($t::pack(1.0, -0.0) & 0xff00, 0x8000);
        };
    }

    #[test]
    fn all_codes_and_all_boundaries() {
        check!(E4m3, 4, 3, 0x7eu8);
        check!(E5m2, 5, 2, 0x7bu8);
        assert_eq!(E5m2::from_bits(0xfc).to_f32(), f32::NEG_INFINITY);
        assert!(E5m2::from_bits(0x7d).to_f32().is_nan() && E4m3::from_bits(0xff).to_f32().is_nan());
    }
}
