//! How files store codes: `b[k]` is byte `k` of a block and `i` an element of it; the formulas are ggml's.

use super::codec::{Writer, two_bits};

/// Every weight of a block.
pub fn each(out: &mut [f32], weight: impl Fn(usize) -> f32) {
    out.iter_mut().enumerate().for_each(|(i, out)| *out = weight(i));
}

/// Low nibbles are elements 0 to 15, high nibbles 16 to 31, from byte `at` on.
pub fn nibble(b: &[u8], at: usize, i: usize) -> u8 {
    (b[at + (i & 15)] >> ((i & 16) >> 2)) & 15
}

/// Low nibbles are elements 0 to 7, high nibbles 8 to 15, from byte `at` on.
pub fn nibble8(b: &[u8], at: usize, i: usize) -> u8 {
    (b[at + (i & 7)] >> ((i & 8) >> 1)) & 15
}

/// The word from byte `at` on.
pub fn word(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Four consecutive elements a byte, from byte `at` on.
pub fn pair(b: &[u8], at: usize, i: usize) -> u8 {
    (b[at + i / 4] >> (2 * (i % 4))) & 3
}

/// Two bits, elements 32 apart in a byte, from byte `at` on.
pub fn strided(b: &[u8], at: usize, i: usize) -> u8 {
    (b[at + 32 * (i >> 7) + (i & 31)] >> (2 * (i >> 5 & 3))) & 3
}

/// Digit `n` of a byte of five base-3 digits, the most significant first.
pub fn digit(byte: u8, n: usize) -> u8 {
    let shifted = byte.wrapping_mul([1, 3, 9, 27, 81][n]);
    ((u16::from(shifted) * 3) >> 8) as u8
}

/// A bit an element, from byte `at` on.
pub fn bit(b: &[u8], at: usize, i: usize) -> u8 {
    (b[at + i / 8] >> (i % 8)) & 1
}

/// Five bits: the fifth from byte `high` on, the others as nibbles from byte `low` on.
pub fn q5(b: &[u8], high: usize, low: usize, i: usize) -> u8 {
    nibble(b, low, i) | bit(b, high, i) << 4
}

/// Scale and minimum of 32 elements, out of 12 bytes.
pub fn six_bit_pair(s: &[u8], j: usize) -> (u8, u8) {
    match j {
        0..4 => (s[j] & 63, s[j + 4] & 63),
        _ => ((s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4),
    }
}

/// The scales of a block of Q4_K or Q5_K, as `wide` reads them.
pub fn scales_and_minima(b: &[u8]) -> [u8; 16] {
    let mut to = [0; 16];
    to[..4].copy_from_slice(&b[..4]);
    for k in 0..8 {
        let (scale, minimum) = six_bit_pair(&b[4..], k);
        to[4 + k] = scale | minimum >> 4 << 6;
        to[12 + k / 2] |= (minimum & 15) << (4 * (k & 1));
    }
    to
}

/// Four bits, elements 32 apart in a byte, from byte `at` on.
pub fn q4k_code(b: &[u8], at: usize, i: usize) -> u8 {
    (b[at + 32 * (i >> 6) + (i & 31)] >> (4 * (i >> 5 & 1))) & 15
}

/// Codes of two bits, of which one is 0, and a scale for the block.
pub fn pack_ternary(b: &[u8], u: usize, units: usize, scale: usize, to: &mut Writer<'_>, code: impl Fn(usize) -> u8) {
    to.block(u, [b[scale], b[scale + 1]]);
    for k in 0..units {
        to.codes(u + k, &two_bits(|i| code(32 * k + i)));
    }
}
