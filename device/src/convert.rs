//! Conversions between `f32` and the 16-bit floats.
//!
//! Rounding is to nearest, ties to even; overflow gives an infinity; subnormals are kept. A NaN
//! stays a NaN, of unspecified sign and payload. On the device each is one instruction (`cvt`),
//! except for `bf16` before sm_80, which is integer arithmetic. The host gives the same bits.

use crate::{bf16, f16};

/// `f16` to `f32`, exactly.
#[inline(always)]
pub fn f16_to_f32(v: f16) -> f32 {
    f16_bits_to_f32(v.to_bits())
}

/// The bits of an `f16` to `f32`, exactly.
#[inline(always)]
pub fn f16_bits_to_f32(bits: u16) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return f16::from_bits(bits) as f32;
    #[cfg(not(target_arch = "nvptx64"))]
    return soft::f16_to_f32(bits);
}

/// `f32` to `f16`, rounded.
#[inline(always)]
pub fn f32_to_f16(v: f32) -> f16 {
    #[cfg(target_arch = "nvptx64")]
    return v as f16;
    #[cfg(not(target_arch = "nvptx64"))]
    return f16::from_bits(soft::f32_to_f16(v));
}

/// `f32` to the bits of an `f16`, rounded.
#[inline(always)]
pub fn f32_to_f16_bits(v: f32) -> u16 {
    f32_to_f16(v).to_bits()
}

/// `bf16` to `f32`, exactly.
#[inline(always)]
pub fn bf16_to_f32(v: bf16) -> f32 {
    f32::from_bits((v.to_bits() as u32) << 16)
}

/// `f32` to `bf16`, rounded.
#[inline(always)]
pub fn f32_to_bf16(v: f32) -> bf16 {
    #[cfg(all(target_arch = "nvptx64", target_feature = "sm_80"))]
    {
        let bits: u16;
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!("cvt.rn.bf16.f32 {0}, {1};", lateout(reg16) bits, in(reg32) v,
                options(pure, nomem, nostack, preserves_flags));
        }
        bf16::from_bits(bits)
    }
    #[cfg(not(all(target_arch = "nvptx64", target_feature = "sm_80")))]
    bf16::from_bits(soft::f32_to_bf16(v))
}

/// The two `f16` of a word, the lower half first. Two instructions.
#[inline(always)]
pub fn unpack_f16x2(word: u32) -> (f32, f32) {
    (f16_bits_to_f32(word as u16), f16_bits_to_f32((word >> 16) as u16))
}

/// Two `f32` rounded to `f16` in a word, the first in the lower half. One instruction from sm_80 on.
#[inline(always)]
pub fn pack_f16x2(low: f32, high: f32) -> u32 {
    #[cfg(all(target_arch = "nvptx64", target_feature = "sm_80"))]
    {
        let word: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!("cvt.rn.f16x2.f32 {0}, {1}, {2};", lateout(reg32) word, in(reg32) high, in(reg32) low,
                options(pure, nomem, nostack, preserves_flags));
        }
        word
    }
    #[cfg(not(all(target_arch = "nvptx64", target_feature = "sm_80")))]
    {
        f32_to_f16_bits(low) as u32 | (f32_to_f16_bits(high) as u32) << 16
    }
}

/// The two `bf16` of a word, the lower half first. Two instructions.
#[inline(always)]
pub fn unpack_bf16x2(word: u32) -> (f32, f32) {
    (f32::from_bits(word << 16), f32::from_bits(word & 0xffff_0000))
}

/// Two `f32` rounded to `bf16` in a word, the first in the lower half. One instruction from sm_80 on.
#[inline(always)]
pub fn pack_bf16x2(low: f32, high: f32) -> u32 {
    #[cfg(all(target_arch = "nvptx64", target_feature = "sm_80"))]
    {
        let word: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!("cvt.rn.bf16x2.f32 {0}, {1}, {2};", lateout(reg32) word, in(reg32) high, in(reg32) low,
                options(pure, nomem, nostack, preserves_flags));
        }
        word
    }
    #[cfg(not(all(target_arch = "nvptx64", target_feature = "sm_80")))]
    {
        f32_to_bf16(low).to_bits() as u32 | (f32_to_bf16(high).to_bits() as u32) << 16
    }
}

/// The conversions as integer arithmetic: the host's, and the device's where it has none.
mod soft {
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn f16_to_f32(bits: u16) -> f32 {
        let sign = u32::from(bits & 0x8000) << 16;
        let (exponent, fraction) = (u32::from(bits >> 10) & 0x1f, u32::from(bits) & 0x3ff);
        let magnitude = match exponent {
            // Subnormal: fraction · 2^-24, which f32 holds exactly.
            0 => (fraction as f32 * f32::from_bits(0x3380_0000)).to_bits(),
            0x1f => 0x7f80_0000 | fraction << 13,
            _ => (exponent + 112) << 23 | fraction << 13,
        };
        f32::from_bits(sign | magnitude)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    pub fn f32_to_f16(v: f32) -> u16 {
        let bits = v.to_bits();
        let sign = (bits >> 16) as u16 & 0x8000;
        let magnitude = bits & 0x7fff_ffff;
        let rounded = if magnitude > 0x7f80_0000 {
            0x7fff
        } else if magnitude < 0x3880_0000 {
            // Below 2^-14 the result is subnormal: adding 0.5 leaves its fraction, rounded to
            // nearest even by the addition, in the last bits.
            let half = f32::from_bits(magnitude) + 0.5;
            half.to_bits().wrapping_sub(0x3f00_0000) as u16
        } else {
            // Rebias by -112 and round at bit 13. A carry runs into the exponent, which is right.
            let rounded = (magnitude - 0x3800_0000 + 0x0fff + (magnitude >> 13 & 1)) >> 13;
            rounded.min(0x7c00) as u16
        };
        sign | rounded
    }

    #[cfg(not(all(target_arch = "nvptx64", target_feature = "sm_80")))]
    #[inline(always)]
    pub fn f32_to_bf16(v: f32) -> u16 {
        let bits = v.to_bits();
        if bits & 0x7fff_ffff > 0x7f80_0000 {
            return 0x7fff;
        }
        (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All values around every rounding boundary of a 16-bit format, and a sweep of the rest.
    fn samples(boundaries: impl Iterator<Item = f32>) -> impl Iterator<Item = f32> {
        let near =
            boundaries.flat_map(|b| (-3i32..=3).map(move |d| f32::from_bits(b.to_bits().wrapping_add_signed(d))));
        let sweep = (0..=u32::MAX / 9973).map(|i| f32::from_bits(i.wrapping_mul(9973)));
        near.chain(sweep)
    }

    fn same16(ours: u16, theirs: u16, nan: bool, at: f32) {
        if nan {
            assert!(ours & 0x7fff > 0x7c00, "{at:e}");
        } else {
            assert_eq!(ours, theirs, "{at:e} {:#x}", at.to_bits());
        }
    }

    #[test]
    fn f16_to_f32_is_that_of_half_for_all_values() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_bits_to_f32(bits), half::f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
        }
    }

    #[test]
    fn f32_to_f16_is_that_of_half_around_every_boundary() {
        let boundaries = (0..=u16::MAX).flat_map(|bits| {
            let (a, b) = (half::f16::from_bits(bits).to_f32(), half::f16::from_bits(bits.wrapping_add(1)).to_f32());
            [a, a / 2.0 + b / 2.0]
        });
        for v in samples(boundaries) {
            same16(f32_to_f16_bits(v), half::f16::from_f32(v).to_bits(), v.is_nan(), v);
        }
    }

    #[test]
    fn bf16_both_ways_is_that_of_half_around_every_boundary() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (bf16_to_f32(bf16::from_bits(bits)), half::bf16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
        }
        let boundaries =
            (0..=u16::MAX).flat_map(|b| [u32::from(b) << 16, u32::from(b) << 16 | 0x8000].map(f32::from_bits));
        for v in samples(boundaries) {
            let (ours, theirs) = (f32_to_bf16(v).to_bits(), half::bf16::from_f32(v).to_bits());
            if v.is_nan() {
                assert!(bf16::from_bits(ours).is_nan());
            } else {
                assert_eq!(ours, theirs, "{v:e} {:#x}", v.to_bits());
            }
        }
    }

    #[test]
    fn halves_of_a_word() {
        let word = pack_f16x2(1.0, -2.5);
        assert_eq!(word, 0xc100_3c00);
        assert_eq!(unpack_f16x2(word), (1.0, -2.5));
        let word = pack_bf16x2(1.0, -2.5);
        assert_eq!(word, 0xc020_3f80);
        assert_eq!(unpack_bf16x2(word), (1.0, -2.5));
    }
}
