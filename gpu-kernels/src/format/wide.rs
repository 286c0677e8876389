//! Codes of four to eight bits: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, and the tables IQ4_NL, IQ4_XS, MXFP4.
//!
//! Nibbles: word `p` of a unit has elements `4 p …` in the low nibbles of its bytes and `16 + 4 p …` in the high ones.
//! For tables, nibble `i` of word `p` is element `8 p + i`.

use super::{
    decode::{Decode, Scales, block_f16, unit_f16},
    record::{Memory, Record, Spec},
    unpack::{byte_minus, bytes_minus, half_power, look_up, offset, table},
};
use warpsmith_device::convert::unpack_f16x2;

#[inline(always)]
fn nibbles(words: &[u32; 4], q: usize) -> u32 {
    (words[q % 4] >> (4 * (q as u32 / 4))) & 0x0F0F_0F0F
}

/// The fifth bits, at bit 4 of each byte: bit `(q + 4) % 8` of byte `j` of the word is that of element `4 q + j`.
#[inline(always)]
fn fifth_bits(high: u32, q: usize) -> u32 {
    let q = q as u32;
    (if q < 4 { high >> q } else { high << (8 - q) }) & 0x1010_1010
}

/// The fifth and sixth bits, at bit 4 of each byte: bits `2 ((q + 2) % 4)` of byte `j` of word `q / 4`.
#[inline(always)]
fn sixth_bits(high: &[u32; 2], q: usize) -> u32 {
    let (word, q) = (high[q / 4], q as u32 % 4);
    (if q < 2 { word >> (2 * q) } else { word << (8 - 2 * q) }) & 0x3030_3030
}

/// The scale and minimum of a unit of Q4_K and Q5_K: bytes `s`, `n`, and the block's `d`, `dmin`.
///
/// # Safety
/// As [`Decode::scales`].
#[inline(always)]
unsafe fn scale_and_minimum<M: Memory>(m: M, r: &Record, u: usize) -> Scales {
    // SAFETY: the caller's promise.
    let (sub, block) = unsafe { (u32::from(m.half(r.scales / 2 + u)), m.word(r.blocks / 4 + (u >> 3))) };
    let (d, dmin) = unpack_f16x2(block);
    let zero = const { offset(0) };
    Scales::shifted(d * byte_minus::<0>(sub, zero), -dmin * byte_minus::<1>(sub, zero))
}

/// The f16 pair `d`, `m` of a unit.
///
/// # Safety
/// As [`Decode::scales`].
#[inline(always)]
unsafe fn scale_and_addend<M: Memory>(m: M, r: &Record, u: usize) -> Scales {
    // SAFETY: the caller's promise.
    let (d, addend) = unpack_f16x2(unsafe { m.word(r.scales / 4 + u) });
    Scales::shifted(d, addend)
}

macro_rules! decoders {
    ($($(#[$doc:meta])* $F:ident {
        record: $words:literal, $high:literal, $scale:literal, $block:literal;
        $(const $name:ident: $ty:ty = $value:expr;)*
        codes: [u32; $codes:literal] = |$m:ident, $r:ident, $u:ident| $load:expr;
        quad: |$c:ident, $q:ident| $quad:expr;
        scales: $scales:expr;
    })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[allow(non_camel_case_types)]
        pub struct $F;

        impl Decode for $F {
            const SPEC: Spec =
                Spec { code_words: $words, high_words: $high, scale_bytes: $scale, block_bytes: $block, block_units: 3 };
            $(const $name: $ty = $value;)*
            type Codes<M: Memory> = [u32; $codes];
            #[inline(always)]
            #[allow(unused_variables)]
            unsafe fn codes<M: Memory>($m: M, $r: &Record, $u: usize) -> [u32; $codes] {
                // SAFETY: the caller's promise.
                unsafe { $load }
            }
            #[inline(always)]
            fn quad<M: Memory>($c: &[u32; $codes], $q: usize) -> [f32; 4] {
                $quad
            }
            #[inline(always)]
            unsafe fn scales<M: Memory>($m: M, $r: &Record, $u: usize) -> Scales {
                // SAFETY: the caller's promise.
                unsafe { $scales }
            }
        }
    )* };
}

/// -127, -104, …: the values of IQ4_NL and IQ4_XS.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const IQ4_VALUES: [i8; 16] = IQ4;
const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// Twice the values of E2M1.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const E2M1_VALUES: [i8; 16] = E2M1;
const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

decoders! {
    /// `d * (c - 8)`.
    Q4_0 {
        record: 4, 0, 2, 0;
        codes: [u32; 4] = |m, r, u| m.vector(u);
        quad: |c, q| bytes_minus(nibbles(c, q), const { offset(8) });
        scales: Scales::one(unit_f16(m, r, u));
    }
    /// `c * d + m`.
    Q4_1 {
        record: 4, 0, 4, 0;
        const SHIFTED: bool = true;
        codes: [u32; 4] = |m, r, u| m.vector(u);
        quad: |c, q| bytes_minus(nibbles(c, q), const { offset(0) });
        scales: scale_and_addend(m, r, u);
    }
    /// `d * (c - 16)`, five bits.
    Q5_0 {
        record: 4, 1, 2, 0;
        codes: [u32; 5] = |m, r, u| { let [a, b, c, d] = m.vector(u); [a, b, c, d, m.word(r.high + u)] };
        quad: |c, q| bytes_minus(nibbles(&[c[0], c[1], c[2], c[3]], q) | fifth_bits(c[4], q), const { offset(16) });
        scales: Scales::one(unit_f16(m, r, u));
    }
    /// `c * d + m`, five bits.
    Q5_1 {
        record: 4, 1, 4, 0;
        const SHIFTED: bool = true;
        codes: [u32; 5] = |m, r, u| { let [a, b, c, d] = m.vector(u); [a, b, c, d, m.word(r.high + u)] };
        quad: |c, q| bytes_minus(nibbles(&[c[0], c[1], c[2], c[3]], q) | fifth_bits(c[4], q), const { offset(0) });
        scales: scale_and_addend(m, r, u);
    }
    /// `d * (c - 128)`: signed bytes, 128 added.
    Q8_0 {
        record: 8, 0, 2, 0;
        codes: [u32; 8] = |m, r, u| {
            let ([a, b, c, d], [e, f, g, h]) = (m.vector(r.vector(u, 0, 2)), m.vector(r.vector(u, 1, 2)));
            [a, b, c, d, e, f, g, h]
        };
        quad: |c, q| bytes_minus(c[q], const { offset(128) });
        scales: Scales::one(unit_f16(m, r, u));
    }
    /// `c * d * s - dmin * n`.
    Q4_K {
        record: 4, 0, 2, 4;
        const SHIFTED: bool = true;
        codes: [u32; 4] = |m, r, u| m.vector(u);
        quad: |c, q| bytes_minus(nibbles(c, q), const { offset(0) });
        scales: scale_and_minimum(m, r, u);
    }
    /// `c * d * s - dmin * n`, five bits.
    Q5_K {
        record: 4, 1, 2, 4;
        const SHIFTED: bool = true;
        codes: [u32; 5] = |m, r, u| { let [a, b, c, d] = m.vector(u); [a, b, c, d, m.word(r.high + u)] };
        quad: |c, q| bytes_minus(nibbles(&[c[0], c[1], c[2], c[3]], q) | fifth_bits(c[4], q), const { offset(0) });
        scales: scale_and_minimum(m, r, u);
    }
    /// `d * s * (c - 32)`, six bits; the bytes `s` of a unit's halves are signed, 128 added.
    Q6_K {
        record: 4, 2, 2, 2;
        const SCALES: usize = 2;
        codes: [u32; 6] = |m, r, u| {
            let ([a, b, c, d], [e, f]) = (m.vector(u), m.pair(r.high + 2 * u));
            [a, b, c, d, e, f]
        };
        quad: |c, q| {
            bytes_minus(nibbles(&[c[0], c[1], c[2], c[3]], q) | sixth_bits(&[c[4], c[5]], q), const { offset(32) })
        };
        scales: {
            let (sub, d) = (u32::from(m.half(r.scales / 2 + u)), block_f16(m, r, u));
            let centre = const { offset(128) };
            Scales { scale: [d * byte_minus::<0>(sub, centre), d * byte_minus::<1>(sub, centre)], shift: [0.0; 2] }
        };
    }
    /// `d * T[c]`.
    IQ4_NL {
        record: 4, 0, 2, 0;
        codes: [u32; 4] = |m, r, u| m.vector(u);
        quad: |c, q| bytes_minus(look_up(const { table(IQ4) }, c[q / 2], q % 2), const { offset(128) });
        scales: Scales::one(unit_f16(m, r, u));
    }
    /// `d * (s - 32) * T[c]`.
    IQ4_XS {
        record: 4, 0, 1, 2;
        codes: [u32; 4] = |m, r, u| m.vector(u);
        quad: |c, q| bytes_minus(look_up(const { table(IQ4) }, c[q / 2], q % 2), const { offset(128) });
        scales: {
            let (sub, d) = (u32::from(m.byte(r.scales + u)), block_f16(m, r, u));
            Scales::one(d * byte_minus::<0>(sub, const { offset(32) }))
        };
    }
    /// `2^(e - 128) * F[c]`. The scale and its products may be subnormal.
    MXFP4 {
        record: 4, 0, 1, 0;
        codes: [u32; 4] = |m, r, u| m.vector(u);
        quad: |c, q| bytes_minus(look_up(const { table(E2M1) }, c[q / 2], q % 2), const { offset(128) });
        scales: Scales::one(half_power(u32::from(m.byte(r.scales + u))));
    }
}
