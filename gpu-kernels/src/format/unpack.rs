//! Codes to f32 without conversion instructions, and signs.
//!
//! `cvt.rn.f32.s32` runs at a quarter (or less) of the rate of an addition. A byte set into the
//! mantissa of 2^23 is the float `2^23 + byte`, and one exact subtraction takes 2^23 and the
//! format's offset off again.

/// `2^23` as bits: a byte in its low end is added to its value.
const MAGIC: u32 = 0x4B00_0000;

/// `byte(word, INDEX) - offset`, exact for `|offset| <= 2^22`. `offset` is `2^23` plus the format's offset.
#[inline(always)]
pub(crate) fn byte_minus<const INDEX: u32>(word: u32, offset: f32) -> f32 {
    f32::from_bits(byte_over_magic::<INDEX>(word)) - offset
}

#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn byte_over_magic<const INDEX: u32>(word: u32) -> u32 {
    MAGIC | ((word >> (8 * INDEX)) & 0xFF)
}

/// One `prmt`: byte `INDEX` of `word` below the upper three bytes of 2^23.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn byte_over_magic<const INDEX: u32>(word: u32) -> u32 {
    let bits: u32;
    // SAFETY: a pure instruction of one thread on registers.
    unsafe {
        core::arch::asm!("prmt.b32 {0}, {1}, {2}, {3};", lateout(reg32) bits, in(reg32) word, in(reg32) MAGIC,
            const 0x7650 + INDEX, options(pure, nomem, nostack, preserves_flags));
    }
    bits
}

/// `x` with its sign flipped where the highest bit of `minus` is set.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub(crate) fn flip_sign(x: f32, minus: u32) -> f32 {
    f32::from_bits(x.to_bits() ^ (minus & 0x8000_0000))
}

/// `x` with its sign flipped where the highest bit of `minus` is set: `(minus & 2^31) ^ x` as one `lop3`.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(crate) fn flip_sign(x: f32, minus: u32) -> f32 {
    let y: f32;
    // SAFETY: a pure instruction of one thread on registers.
    unsafe {
        core::arch::asm!("lop3.b32 {0}, {1}, 0x80000000, {2}, 0x6A;", lateout(reg32) y, in(reg32) minus, in(reg32) x,
            options(pure, nomem, nostack, preserves_flags));
    }
    y
}

/// The offset of [`byte_minus`] that subtracts `n`.
pub(crate) const fn offset(n: u32) -> f32 {
    (8_388_608 + n) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_place() {
        for b in 0..=255u32 {
            assert_eq!(byte_minus::<0>(b | 0x1234_5600, offset(8)), b as f32 - 8.0);
            assert_eq!(byte_minus::<1>(b << 8 | 0x1234_0056, offset(0)), b as f32);
            assert_eq!(byte_minus::<2>(b << 16 | 0x1200_3456, offset(128)), b as f32 - 128.0);
            assert_eq!(byte_minus::<3>(b << 24 | 0x0012_3456, offset(16)), b as f32 - 16.0);
        }
    }
}
