//! Codes of four to eight bits: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, and the tables IQ4_NL, IQ4_XS, MXFP4.
//!
//! Nibbles: word `p` of a unit has elements `4 p …` in the low nibbles of its bytes and `16 + 4 p …` in the high ones.
//! For tables, nibbles 0 to 3 of word `p` are elements `4 p …`, and the others elements `16 + 4 p …`.

use super::{
    decode::{Bytes, Decode, Packed, QUADS, Scales, block_f16, unit_f16},
    float8::e4m3_pair,
    record::{Memory, Record, Spec},
    unpack::{
        byte_minus, bytes_minus, half_power, look_up, offset, select_bits, signed_table, small, table, upper_pairs,
        upper_table,
    },
};
use warpsmith_device::{convert::unpack_f16x2, math::dp4a_us, packed::F16x2, static_for};

/// A nibble in the lower half of each byte, anything above it.
#[inline(always)]
fn low_nibbles(words: &[u32], q: usize) -> u32 {
    words[q % 4] >> (4 * (q as u32 / 4))
}

#[inline(always)]
fn nibbles(words: &[u32; 4], q: usize) -> u32 {
    low_nibbles(words, q) & 0x0F0F_0F0F
}

/// Nibbles and behind them a word of fifth bits: bit `(q + 4) % 8` of its byte `j` is that of element `4 q + j`.
#[inline(always)]
fn five_bits(c: &[u32; 5], q: usize) -> u32 {
    let high = if q < 4 { c[4] >> q as u32 } else { c[4] << (8 - q as u32) };
    select_bits(0x0F0F_0F0F, low_nibbles(c, q), high) & 0x1F1F_1F1F
}

/// Nibbles and behind them two words of fifth and sixth bits: bits `2 ((q + 2) % 4)` and up of byte `j` of word `q / 4`.
#[inline(always)]
fn six_bits(c: &[u32; 6], q: usize) -> u32 {
    let (word, k) = (c[4 + q / 4], q as u32 % 4);
    let high = if k < 2 { word >> (2 * k) } else { word << (8 - 2 * k) };
    select_bits(0x0F0F_0F0F, low_nibbles(c, q), high) & 0x3F3F_3F3F
}

/// Nibbles in the upper halves of bytes, so that those that are there need no shift.
#[inline(always)]
fn upper_nibbles(words: &[u32; 4], q: usize) -> u32 {
    let word = words[q % 4];
    (if q < 4 { word << 4 } else { word }) & 0xF0F0_F0F0
}

/// [`Packed::add_products`] of nibbles where they stand in their bytes: the sum of low ones counts 16 times.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn add_nibbles<const BYTES: usize>(words: &[u32; 4], x: &[[i32; QUADS]; BYTES], sums: [i32; BYTES]) -> [i32; BYTES] {
    core::array::from_fn(|byte| {
        let mut low = 0;
        static_for!(p in 0..4 => {
            low = dp4a_us(words[p] & 0x0F0F_0F0F, x[byte][p], low);
        });
        let mut sum = (low << 4) + sums[byte];
        static_for!(p in 0..4 => {
            sum = dp4a_us(words[p] & 0xF0F0_F0F0, x[byte][4 + p], sum);
        });
        sum
    })
}

/// The scale `s` and the minimum `n` of a unit of Q4_K and Q5_K. A block's 16 bytes are `d` and `dmin`; for each of eight
/// units a byte, `s | n >> 4 << 6`; and for each a nibble, `n & 15`.
///
/// # Safety
/// As [`Decode::scales`].
#[inline(always)]
unsafe fn scale_and_minimum<M: Memory>(m: M, r: &Record, u: usize) -> Scales {
    // SAFETY: the caller's promise.
    let [block, low, high, minima] = unsafe { m.vector(r.blocks / 16 + (u >> 3)) };
    let (d, dmin) = unpack_f16x2(block);
    let k = u as u32 & 7;
    let byte = (if k < 4 { low } else { high }) >> (8 * (k & 3));
    let minimum = (minima >> (4 * k) & 15) | (byte >> 2 & 0x30);
    Scales::shifted(d * small(byte & 63), -dmin * small(minimum))
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

macro_rules! units_of_block {
    () => {
        3
    };
    (ROW) => {
        Spec::ROW
    };
}

macro_rules! decoders {
    ($($(#[$doc:meta])* $F:ident {
        record: $words:literal, $high:literal, $scale:literal, $block:literal $(of $units:ident)?;
        $(const $name:ident: $ty:ty = $value:expr;)*
        codes: [u32; $codes:literal] = |$m:ident, $r:ident, $u:ident, $short:ident| $load:expr;
        bytes: |$c:ident, $q:ident| $bytes:expr, less $offset:literal;
        $(pairs: |$cp:ident, $qp:ident| $pairs:expr;)?
        $(multiplied: |$cm:ident, $qm:ident| $multiplied:expr, times 2^$up:literal $(by $add:path)?;)?
        share: $share:ident;
        scales: $scales:expr;
    })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[allow(non_camel_case_types)]
        pub struct $F;

        impl Decode for $F {
            const SPEC: Spec =
                Spec { code_words: $words, high_words: $high, scale_bytes: $scale, block_bytes: $block, block_units: units_of_block!($($units)?) };
            $(const $name: $ty = $value;)*
            type Codes<M: Memory> = [u32; $codes];
            #[inline(always)]
            #[allow(unused_variables)]
            unsafe fn codes_of<M: Memory>($m: M, $r: &Record, $u: usize, $short: [u32; 4]) -> [u32; $codes] {
                // SAFETY: the caller's promise.
                unsafe { $load }
            }
            #[inline(always)]
            fn quad<M: Memory>(codes: &[u32; $codes], q: usize) -> [f32; 4] {
                bytes_minus(Self::bytes::<M>(codes, q), const { offset($offset) })
            }
            #[inline(always)]
            unsafe fn scales<M: Memory>($m: M, $r: &Record, $u: usize) -> Scales {
                // SAFETY: the caller's promise.
                unsafe { $scales }
            }
        }

        impl Bytes for $F {
            const OFFSET: i32 = $offset;
            #[inline(always)]
            fn bytes<M: Memory>($c: &[u32; $codes], $q: usize) -> u32 {
                $bytes
            }
            $(
                #[inline(always)]
                fn pairs<M: Memory>($cp: &[u32; $codes], $qp: usize) -> [F16x2; 2] {
                    $pairs
                }
            )?
        }

        impl Packed for $F {
            #[inline(always)]
            unsafe fn share<M: Memory>(m: M, r: &Record, u: usize, t: usize) -> [u32; 3] {
                // SAFETY: the caller's promise.
                unsafe { $share::load::<Self, M>(m, r, u, t) }
            }
            #[inline(always)]
            fn of_share(share: [u32; 3], t: usize) -> [u32; 2] {
                $share::quads::<Self>(share, t)
            }
            $(
                const UP: u32 = $up;
                #[inline(always)]
                fn multiplied<M: Memory>($cm: &[u32; $codes], $qm: usize) -> u32 {
                    $multiplied
                }
                $(
                    #[inline(always)]
                    fn add_products<M: Memory, const BYTES: usize>(
                        codes: &[u32; $codes],
                        _: usize,
                        x: &[[i32; QUADS]; BYTES],
                        sums: [i32; BYTES],
                    ) -> [i32; BYTES] {
                        $add(codes, x, sums)
                    }
                )?
            )?
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
/// What the scale of a row of NVFP4 is multiplied with in records: the values are doubled, and [`e4m3_pair`] is 2^-8 of its numbers.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const NVFP4_SCALE: f32 = 128.0;
const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// What a lane of four has of a unit, by how codes lie.
macro_rules! shares {
    ($($(#[$doc:meta])* $name:ident:
        |$m:ident, $r:ident, $u:ident, $t:ident, $F:ident| $load:expr, |$share:ident, $lane:ident| $quads:expr;)*) => { $(
        $(#[$doc])*
        mod $name {
            use super::*;
            #[inline(always)]
            #[allow(unused_variables)]
            #[allow(clippy::extra_unused_type_parameters)] // Not all formats ask what they are.
            pub unsafe fn load<$F: Packed, M: Memory>($m: M, $r: &Record, $u: usize, $t: usize) -> [u32; 3] {
                // SAFETY: the caller's promise.
                unsafe { $load }
            }
            #[inline(always)]
            #[allow(unused_variables)]
            #[allow(clippy::extra_unused_type_parameters)] // As above.
            pub fn quads<$F: Packed>($share: [u32; 3], $lane: usize) -> [u32; 2] {
                $quads
            }
        }
    )* };
}
shares! {
    /// Nibbles: word `t`.
    nibble: |m, r, u, t, F| [m.word(4 * u + t), 0, 0], |s, t| {
        let words = [s[0]; 4];
        let flipped = if F::OFFSET == 0 { 0 } else { 0x8080_8080 };
        [upper_nibbles(&words, 0) ^ flipped, upper_nibbles(&words, 4) ^ flipped]
    };
    /// Nibbles, and the word of fifth bits.
    five: |m, r, u, t, F| [m.word(4 * u + t), F::words(m, r, u)[0], 0], |s, t| {
        let [word, high, _] = s;
        let first = select_bits(0x0F0F_0F0F, word, high >> t);
        let second = select_bits(0x0F0F_0F0F, word >> 4, high << (4 - t));
        [first, second].map(|bytes| F::less_offset(bytes & 0x1F1F_1F1F))
    };
    /// Nibbles, and two words of fifth and sixth bits.
    six: |m, r, u, t, F| { let [a, b, ..] = F::words(m, r, u); [m.word(4 * u + t), a, b] }, |s, t| {
        // Bits 2 ((t + 2) % 4) and up of each byte go to bits 4 and 5.
        let turn = 2 * t as u32 + 24 * (t as u32 / 2);
        let [word, a, b] = [s[0], s[1].rotate_right(turn), s[2].rotate_right(turn)];
        let [first, second] = [select_bits(0x0F0F_0F0F, word, a), select_bits(0x0F0F_0F0F, word >> 4, b)];
        [first, second].map(|bytes| F::less_offset(bytes & 0x3F3F_3F3F))
    };
    /// Bytes: word `t` of both vectors.
    eight: |m, r, u, t, F| {
        [m.word(4 * r.vector(u, 0, 2) + t), m.word(4 * r.vector(u, 1, 2) + t), 0]
    }, |s, t| [s[0], s[1]].map(F::less_offset);
    /// Indices of a table: word `t`.
    iq4: |m, r, u, t, F| [m.word(4 * u + t), 0, 0],
        |s, t| [0, 1].map(|half| look_up(const { signed_table(IQ4) }, s[0], half));
    /// The same of another table.
    e2m1: |m, r, u, t, F| [m.word(4 * u + t), 0, 0],
        |s, t| [0, 1].map(|half| look_up(const { signed_table(E2M1) }, s[0], half));
}

decoders! {
    /// `d * (c - 8)`.
    Q4_0 {
        record: 4, 0, 2, 0;
        codes: [u32; 4] = |m, r, u, short| m.vector(u);
        bytes: |c, q| nibbles(c, q), less 8;
        multiplied: |c, q| upper_nibbles(c, q) ^ 0x8080_8080, times 2^4 by add_nibbles;
        share: nibble;
        scales: Scales::one(unit_f16(m, r, u));
    }
    /// `c * d + m`.
    Q4_1 {
        record: 4, 0, 4, 0;
        const SHIFTED: bool = true;
        codes: [u32; 4] = |m, r, u, short| m.vector(u);
        bytes: |c, q| nibbles(c, q), less 0;
        multiplied: |c, q| upper_nibbles(c, q), times 2^4 by add_nibbles;
        share: nibble;
        scales: scale_and_addend(m, r, u);
    }
    /// `d * (c - 16)`, five bits.
    Q5_0 {
        record: 4, 1, 2, 0;
        codes: [u32; 5] = |m, r, u, short| { let [a, b, c, d] = m.vector(u); [a, b, c, d, short[0]] };
        bytes: |c, q| five_bits(c, q), less 16;
        share: five;
        scales: Scales::one(unit_f16(m, r, u));
    }
    /// `c * d + m`, five bits.
    Q5_1 {
        record: 4, 1, 4, 0;
        const SHIFTED: bool = true;
        codes: [u32; 5] = |m, r, u, short| { let [a, b, c, d] = m.vector(u); [a, b, c, d, short[0]] };
        bytes: |c, q| five_bits(c, q), less 0;
        share: five;
        scales: scale_and_addend(m, r, u);
    }
    /// `d * (c - 128)`: signed bytes, 128 added.
    Q8_0 {
        record: 8, 0, 2, 0;
        codes: [u32; 8] = |m, r, u, short| {
            let ([a, b, c, d], [e, f, g, h]) = (m.vector(r.vector(u, 0, 2)), m.vector(r.vector(u, 1, 2)));
            [a, b, c, d, e, f, g, h]
        };
        bytes: |c, q| c[q], less 128;
        share: eight;
        scales: Scales::one(unit_f16(m, r, u));
    }
    /// `c * d * s - dmin * n`.
    Q4_K {
        record: 4, 0, 0, 16;
        const SHIFTED: bool = true;
        codes: [u32; 4] = |m, r, u, short| m.vector(u);
        bytes: |c, q| nibbles(c, q), less 0;
        multiplied: |c, q| upper_nibbles(c, q), times 2^4 by add_nibbles;
        share: nibble;
        scales: scale_and_minimum(m, r, u);
    }
    /// `c * d * s - dmin * n`, five bits.
    Q5_K {
        record: 4, 1, 0, 16;
        const SHIFTED: bool = true;
        codes: [u32; 5] = |m, r, u, short| { let [a, b, c, d] = m.vector(u); [a, b, c, d, short[0]] };
        bytes: |c, q| five_bits(c, q), less 0;
        share: five;
        scales: scale_and_minimum(m, r, u);
    }
    /// `d * s * (c - 32)`, six bits; the bytes `s` of a unit's halves are signed, 128 added.
    Q6_K {
        record: 4, 2, 2, 2;
        const SCALES: usize = 2;
        codes: [u32; 6] = |m, r, u, short| {
            let [a, b, c, d] = m.vector(u);
            [a, b, c, d, short[0], short[1]]
        };
        bytes: |c, q| six_bits(c, q), less 32;
        share: six;
        scales: {
            let (sub, d) = (u32::from(m.half(r.scales / 2 + u)), block_f16(m, r, u));
            let centre = const { offset(128) };
            Scales { scale: [d * byte_minus::<0>(sub, centre), d * byte_minus::<1>(sub, centre)], shift: [0.0; 2] }
        };
    }
    /// `d * T[c]`.
    IQ4_NL {
        record: 4, 0, 2, 0;
        codes: [u32; 4] = |m, r, u, short| m.vector(u);
        bytes: |c, q| look_up(const { table(IQ4) }, c[q % 4], q / 4), less 128;
        multiplied: |c, q| look_up(const { signed_table(IQ4) }, c[q % 4], q / 4), times 2^0;
        share: iq4;
        scales: Scales::one(unit_f16(m, r, u));
    }
    /// `d * (s - 32) * T[c]`.
    IQ4_XS {
        record: 4, 0, 1, 2;
        codes: [u32; 4] = |m, r, u, short| m.vector(u);
        bytes: |c, q| look_up(const { table(IQ4) }, c[q % 4], q / 4), less 128;
        multiplied: |c, q| look_up(const { signed_table(IQ4) }, c[q % 4], q / 4), times 2^0;
        share: iq4;
        scales: {
            let (sub, d) = (u32::from(m.byte(r.scales + u)), block_f16(m, r, u));
            Scales::one(d * byte_minus::<0>(sub, const { offset(32) }))
        };
    }
    /// `2^(e - 128) * F[c]`. The scale and its products may be subnormal.
    MXFP4 {
        record: 4, 0, 1, 0;
        codes: [u32; 4] = |m, r, u, short| m.vector(u);
        bytes: |c, q| look_up(const { table(E2M1) }, c[q % 4], q / 4), less 128;
        pairs: |c, q| upper_pairs(look_up(const { upper_table(E2M1) }, c[q % 4], q / 4));
        multiplied: |c, q| look_up(const { signed_table(E2M1) }, c[q % 4], q / 4), times 2^0;
        share: e2m1;
        scales: Scales::one(half_power(u32::from(m.byte(r.scales + u))));
    }
    /// `d * s * F[c]`; the bytes `s` of a unit's halves are floats of eight bits, and `d` is the row's.
    NVFP4 {
        record: 4, 0, 2, 4 of ROW;
        const SCALES: usize = 2;
        codes: [u32; 4] = |m, r, u, short| m.vector(u);
        bytes: |c, q| look_up(const { table(E2M1) }, c[q % 4], q / 4), less 128;
        pairs: |c, q| upper_pairs(look_up(const { upper_table(E2M1) }, c[q % 4], q / 4));
        multiplied: |c, q| look_up(const { signed_table(E2M1) }, c[q % 4], q / 4), times 2^0;
        share: e2m1;
        scales: {
            let (sub, d) = (u32::from(m.half(r.scales / 2 + u)), f32::from_bits(m.word(r.blocks / 4)));
            let (first, second) = e4m3_pair(sub);
            Scales { scale: [d * first, d * second], shift: [0.0; 2] }
        };
    }
}
