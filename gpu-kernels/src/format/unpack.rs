//! Codes to f32 without conversion instructions, signs, and tables of bytes.
//!
//! `cvt.rn.f32.s32` runs at a quarter (or less) of the rate of an addition. A byte set into the
//! mantissa of 2^23 is the float `2^23 + byte`, and one exact subtraction takes 2^23 and the
//! format's offset off again.

#[cfg(target_arch = "nvptx64")]
use warpsmith_device::convert::f16_bits_to_f32;
#[cfg(not(target_arch = "nvptx64"))]
use warpsmith_device::convert::unpack_f16x2;
use warpsmith_device::packed::F16x2;

/// `2^23` as bits: a byte in its low end is added to its value.
const MAGIC: u32 = 0x4B00_0000;

/// `byte(word, INDEX) - offset`, exact for `|offset| <= 2^22`. `offset` is `2^23` plus the format's offset.
#[inline(always)]
pub(crate) fn byte_minus<const INDEX: u32>(word: u32, offset: f32) -> f32 {
    f32::from_bits(byte_over_magic::<INDEX>(word)) - offset
}

/// A number below 2^23.
#[inline(always)]
pub(crate) fn small(n: u32) -> f32 {
    f32::from_bits(MAGIC | n) - const { offset(0) }
}

/// The four bytes of a word, less the offset.
#[inline(always)]
pub(crate) fn bytes_minus(word: u32, offset: f32) -> [f32; 4] {
    [
        byte_minus::<0>(word, offset),
        byte_minus::<1>(word, offset),
        byte_minus::<2>(word, offset),
        byte_minus::<3>(word, offset),
    ]
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

/// Four bytes out of the eight of `low` and `high`, by the lower three bits of the four lowest nibbles of `select`.
/// The nibbles' highest bits are 0.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub(crate) fn permute(low: u32, high: u32, select: u32) -> u32 {
    let bytes = u64::from(high) << 32 | u64::from(low);
    (0..4).fold(0, |all, i| {
        let index = (select >> (4 * i)) & 7;
        all | ((bytes >> (8 * index)) as u32 & 0xFF) << (8 * i)
    })
}

/// Four bytes out of the eight of `low` and `high`, by the lower three bits of the four lowest nibbles of `select`.
/// The nibbles' highest bits are 0. One `prmt`.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(crate) fn permute(low: u32, high: u32, select: u32) -> u32 {
    let bytes: u32;
    // SAFETY: a pure instruction of one thread on registers.
    unsafe {
        core::arch::asm!("prmt.b32 {0}, {1}, {2}, {3};", lateout(reg32) bytes, in(reg32) low, in(reg32) high,
            in(reg32) select, options(pure, nomem, nostack, preserves_flags));
    }
    bytes
}

/// Four bytes less an offset, as pairs of f16: the first and the third, the second and the fourth. Each goes over the mantissa of 1024, from
/// which 1024 and the offset are taken off, exactly.
#[inline(always)]
pub(crate) fn pairs_minus(bytes: u32, offset: u32) -> [F16x2; 2] {
    let zero = F16x2::from_bits(0x6400_6400 + 0x0001_0001 * offset);
    [0x4240, 0x4341].map(|select| F16x2::from_bits(permute(bytes, 0x6464_6464, select)) - zero)
}

/// Four f16 by their upper bytes, the lower ones 0, in the same order.
#[inline(always)]
pub(crate) fn upper_pairs(bytes: u32) -> [F16x2; 2] {
    [0x2404, 0x3414].map(|select| F16x2::from_bits(permute(bytes, 0, select)))
}

/// The entries that the four nibbles from nibble `4 * half` of `word` on name, out of a table of 16 bytes.
#[inline(always)]
pub(crate) fn look_up(table: [u32; 4], word: u32, half: usize) -> u32 {
    let index = (word & 0x7777_7777) >> (16 * half as u32);
    // A nibble of 8 or more takes its byte from the upper half of the table: byte 4 + i instead of byte i.
    let side = (((word >> 1) & 0x4444_4444) | 0x3210_3210) >> (16 * half as u32);
    permute(permute(table[0], table[1], index), permute(table[2], table[3], index), side)
}

/// A table of signed bytes for [`look_up`]: 128 is added to each.
pub(crate) const fn table(entries: [i8; 16]) -> [u32; 4] {
    let [a, b, c, d] = signed_table(entries);
    [a ^ 0x8080_8080, b ^ 0x8080_8080, c ^ 0x8080_8080, d ^ 0x8080_8080]
}

/// A table of signed bytes for [`look_up`], as they are.
pub(crate) const fn signed_table(entries: [i8; 16]) -> [u32; 4] {
    let (mut words, mut i) = ([0; 4], 0);
    while i < 16 {
        words[i / 4] |= (entries[i] as u8 as u32) << (8 * (i as u32 % 4));
        i += 1;
    }
    words
}

/// A table for [`look_up`] of the upper bytes of f16, of numbers that have no lower ones: none, or a power of two and at most half as much.
pub(crate) const fn upper_table(entries: [i8; 16]) -> [u32; 4] {
    let (mut bytes, mut i) = ([0i8; 16], 0);
    while i < 16 {
        let number = entries[i].unsigned_abs() as u32;
        if number > 0 {
            let exponent = number.ilog2();
            // Of the fraction the two upper bits.
            let bits = (15 + exponent) << 2 | (number << 2 >> exponent & 3);
            bytes[i] = bits as i8 | entries[i] & i8::MIN;
        }
        i += 1;
    }
    signed_table(bytes)
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

/// The two f16 of a word.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub(crate) fn f16_pair(word: u32) -> (f32, f32) {
    unpack_f16x2(word)
}

/// The two f16 of a word: taken apart by one move, where the compiler makes two.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(crate) fn f16_pair(word: u32) -> (f32, f32) {
    let (low, high): (u16, u16);
    // SAFETY: a pure instruction of one thread on registers.
    unsafe {
        core::arch::asm!("mov.b32 {{{0}, {1}}}, {2};", lateout(reg16) low, lateout(reg16) high, in(reg32) word,
            options(pure, nomem, nostack, preserves_flags));
    }
    (f16_bits_to_f32(low), f16_bits_to_f32(high))
}

/// The bits of `a` where `mask` is set, those of `b` elsewhere.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub(crate) fn select_bits(mask: u32, a: u32, b: u32) -> u32 {
    (mask & a) | (!mask & b)
}

/// The bits of `a` where `mask` is set, those of `b` elsewhere: one `lop3`.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(crate) fn select_bits(mask: u32, a: u32, b: u32) -> u32 {
    let bits: u32;
    // SAFETY: a pure instruction of one thread on registers.
    unsafe {
        core::arch::asm!("lop3.b32 {0}, {1}, {2}, {3}, 0xCA;", lateout(reg32) bits, in(reg32) mask, in(reg32) a,
            in(reg32) b, options(pure, nomem, nostack, preserves_flags));
    }
    bits
}

/// The offset of [`byte_minus`] that subtracts `n`.
pub(crate) const fn offset(n: u32) -> f32 {
    (8_388_608 + n) as f32
}

/// 2^(e - 128), the scale that the exponent byte `e` of MXFP4 stands for: ggml halves it, since the values are doubled.
#[inline(always)]
pub(crate) fn half_power(e: u32) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 })
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
            assert_eq!(small(b), b as f32);
        }
    }

    #[test]
    fn nibbles_look_bytes_up() {
        let entries: [i8; 16] = std::array::from_fn(|i| (i as i8 - 8) * 13);
        for word in [0x7654_3210, 0xFEDC_BA98, 0x08F7_19E2] {
            for half in 0..2 {
                let got = bytes_minus(look_up(table(entries), word, half), offset(128));
                let want = [0, 1, 2, 3].map(|i| f32::from(entries[(word as usize >> (16 * half + 4 * i)) & 15]));
                assert_eq!(got, want, "{word:x} {half}");
            }
        }
    }

    #[test]
    fn bytes_become_pairs() {
        for b in 0..=255u32 {
            let of = |pairs: [F16x2; 2]| pairs.map(F16x2::to_f32);
            let word = b | 1 << 8 | 2 << 16 | 255 << 24;
            assert_eq!(of(pairs_minus(word, 128)), [(b as f32 - 128.0, -126.0), (-127.0, 127.0)]);
            let [(first, third), (second, fourth)] = of(upper_pairs(b | 0x4AC6_3C00));
            let want = f16_pair(b << 8).0;
            assert!(first == want || first.is_nan() && want.is_nan(), "{b:x}: {first}");
            assert_eq!((second, third, fourth), (1.0, -6.0, 12.0));
        }
    }

    #[test]
    fn upper_bytes_are_looked_up() {
        let entries: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
        for word in [0x7654_3210, 0xFEDC_BA98] {
            for half in 0..2 {
                let got = upper_pairs(look_up(upper_table(entries), word, half)).map(F16x2::to_f32);
                let want = [0, 1, 2, 3].map(|i| f32::from(entries[(word as usize >> (16 * half + 4 * i)) & 15]));
                assert_eq!(got, [(want[0], want[2]), (want[1], want[3])], "{word:x} {half}");
            }
        }
    }

    #[test]
    fn powers_of_two_down_to_subnormals() {
        for e in 0..=254u32 {
            assert_eq!(f64::from(half_power(e)), 2f64.powi(e as i32 - 128), "{e}");
        }
    }
}
