//! The codecs. `b[k]` is byte `k` of a block and `i` an element of it; the formulas are ggml's.

use super::codec::{
    Codec, Pack, Scales, Writer, bf16_at, f16_at, fifth_bits, indices, nibbles, one_bit, sixth_bits, third_bits,
    two_bits, words_of,
};
use crate::format::{
    unpack::half_power,
    wide::{E2M1_VALUES, IQ4_VALUES},
};

fn each(out: &mut [f32], weight: impl Fn(usize) -> f32) {
    out.iter_mut().enumerate().for_each(|(i, out)| *out = weight(i));
}

/// Low nibbles are elements 0 to 15, high nibbles 16 to 31, from byte `at` on.
fn nibble(b: &[u8], at: usize, i: usize) -> u8 {
    (b[at + (i & 15)] >> ((i & 16) >> 2)) & 15
}

/// Four consecutive elements a byte, from byte `at` on.
fn pair(b: &[u8], at: usize, i: usize) -> u8 {
    (b[at + i / 4] >> (2 * (i % 4))) & 3
}

/// Two bits, elements 32 apart in a byte, from byte `at` on.
fn strided(b: &[u8], at: usize, i: usize) -> u8 {
    (b[at + 32 * (i >> 7) + (i & 31)] >> (2 * (i >> 5 & 3))) & 3
}

/// Digit `n` of a byte of five base-3 digits, the most significant first.
fn digit(byte: u8, n: usize) -> u8 {
    let shifted = byte.wrapping_mul([1, 3, 9, 27, 81][n]);
    ((u16::from(shifted) * 3) >> 8) as u8
}

fn tq1_code(b: &[u8], i: usize) -> u8 {
    match i {
        0..160 => digit(b[i & 31], i >> 5),
        160..240 => digit(b[32 + ((i - 160) & 15)], (i - 160) >> 4),
        _ => digit(b[48 + ((i - 240) & 3)], (i - 240) >> 2),
    }
}

fn ptq1_code(b: &[u8], i: usize) -> u8 {
    match i {
        0..80 => digit(b[i & 15], i >> 4),
        80..120 => digit(b[16 + ((i - 80) & 7)], (i - 80) >> 3),
        _ => digit(b[24 + ((i - 120) & 1)], (i - 120) >> 1),
    }
}

/// OxiBonsai reserves code 3 and decodes it to 0.
fn reserved(code: u8) -> u8 {
    if code == 3 { 1 } else { code }
}

fn bit(b: &[u8], at: usize, i: usize) -> u8 {
    (b[at + i / 8] >> (i % 8)) & 1
}

fn q5(b: &[u8], high: usize, low: usize, i: usize) -> u8 {
    nibble(b, low, i) | bit(b, high, i) << 4
}

fn q3k_code(b: &[u8], i: usize) -> u8 {
    strided(b, 32, i) | (b[i & 31] >> (i >> 5) & 1) << 2
}

/// Scale `s` of 16 elements, 32 too large.
fn q3k_scale(b: &[u8], s: usize) -> u8 {
    let low = if s < 8 { b[96 + s] & 15 } else { b[88 + s] >> 4 };
    low | (b[104 + (s & 3)] >> (2 * (s >> 2)) & 3) << 4
}

/// Scale and minimum of 32 elements, out of 12 bytes.
fn six_bit_pair(s: &[u8], j: usize) -> (u8, u8) {
    match j {
        0..4 => (s[j] & 63, s[j + 4] & 63),
        _ => ((s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4),
    }
}

/// The scales of a block of Q4_K or Q5_K, as `wide` reads them.
fn scales_and_minima(b: &[u8]) -> [u8; 16] {
    let mut to = [0; 16];
    to[..4].copy_from_slice(&b[..4]);
    for k in 0..8 {
        let (scale, minimum) = six_bit_pair(&b[4..], k);
        to[4 + k] = scale | minimum >> 4 << 6;
        to[12 + k / 2] |= (minimum & 15) << (4 * (k & 1));
    }
    to
}

fn q4k_code(b: &[u8], at: usize, i: usize) -> u8 {
    (b[at + 32 * (i >> 6) + (i & 31)] >> (4 * (i >> 5 & 1))) & 15
}

fn q5k_code(b: &[u8], i: usize) -> u8 {
    q4k_code(b, 48, i) | (b[16 + (i & 31)] >> (i >> 5) & 1) << 4
}

fn q6k_code(b: &[u8], i: usize) -> u8 {
    let (h, g, l) = (i >> 7, i >> 5 & 3, i & 31);
    let low = (b[64 * h + 32 * (g & 1) + l] >> (4 * (g >> 1))) & 15;
    low | (b[128 + 32 * h + l] >> (2 * g) & 3) << 4
}

/// Scale of 32 elements, 32 too large.
fn iq4xs_scale(b: &[u8], j: usize) -> u8 {
    let high = u16::from_le_bytes([b[2], b[3]]);
    (b[4 + j / 2] >> (4 * (j & 1)) & 15) | ((high >> (2 * j) & 3) as u8) << 4
}

fn iq4xs_code(b: &[u8], i: usize) -> u8 {
    nibble(b, 8 + 16 * (i >> 5), i & 31)
}

/// Codes of two bits, of which one is 0, and a scale for the block.
fn pack_ternary(b: &[u8], u: usize, units: usize, scale: usize, to: &mut Writer<'_>, code: impl Fn(usize) -> u8) {
    to.block(u, [b[scale], b[scale + 1]]);
    for k in 0..units {
        to.codes(u + k, &two_bits(|i| code(32 * k + i)));
    }
}

macro_rules! codecs {
    ($($name:ident, $scales:expr, |$b:ident, $i:ident| $prepare:expr => $d:ident: $weight:expr, $pack:expr;)*) => { $(
        pub(super) static $name: Codec = Codec {
            scales: $scales,
            decode: |$b, out| {
                let $d = $prepare;
                each(out, |$i| $weight);
            },
            pack: $pack,
        };
    )* };
}

codecs! {
    F32, Scales::Weight,
        |b, _i| f32::from_le_bytes([b[0], b[1], b[2], b[3]]) => v: v, Pack::Dense;
    F16, Scales::Weight, |b, _i| f16_at(b, 0) => v: v, Pack::Dense;
    BF16, Scales::Weight, |b, _i| bf16_at(b, 0) => v: v, Pack::Dense;
    Q1_0, Scales::F16(&[0]),
        |b, i| f16_at(b, 0) => d: if bit(b, 2, i) == 1 { d } else { -d },
        Pack::Blocks(|b, u, to| {
            to.block(u, [b[0], b[1]]);
            for k in 0..4 {
                to.codes(u + k, &one_bit(|i| 1 - bit(b, 2, 32 * k + i)));
            }
        });
    TQ2_0_G128, Scales::F16(&[32]),
        |b, i| f16_at(b, 32) => d: (f32::from(reserved(pair(b, 0, i))) - 1.0) * d,
        Pack::Blocks(|b, u, to| pack_ternary(b, u, 4, 32, to, |i| reserved(pair(b, 0, i))));
    Q2_0, Scales::F16(&[0]),
        |b, i| f16_at(b, 0) => d: (f32::from(pair(b, 2, i)) - 1.0) * d,
        Pack::Blocks(|b, u, to| pack_ternary(b, u, 2, 0, to, |i| pair(b, 2, i)));
    PQ2_0, Scales::F16(&[0]),
        |b, i| f16_at(b, 0) => d: (f32::from(pair(b, 2, i)) - 1.0) * d,
        Pack::Blocks(|b, u, to| pack_ternary(b, u, 4, 0, to, |i| pair(b, 2, i)));
    PTQ1_0, Scales::F16(&[26]),
        |b, i| f16_at(b, 26) => d: (f32::from(ptq1_code(b, i)) - 1.0) * d,
        Pack::Blocks(|b, u, to| pack_ternary(b, u, 4, 26, to, |i| ptq1_code(b, i)));
    TQ1_0, Scales::F16(&[52]),
        |b, i| f16_at(b, 52) => d: (f32::from(tq1_code(b, i)) - 1.0) * d,
        Pack::Blocks(|b, u, to| pack_ternary(b, u, 8, 52, to, |i| tq1_code(b, i)));
    TQ2_0, Scales::F16(&[64]),
        |b, i| f16_at(b, 64) => d: (f32::from(strided(b, 0, i)) - 1.0) * d,
        Pack::Blocks(|b, u, to| pack_ternary(b, u, 8, 64, to, |i| strided(b, 0, i)));
    Q4_0, Scales::F16(&[0]),
        |b, i| f16_at(b, 0) => d: (f32::from(nibble(b, 2, i)) - 8.0) * d,
        Pack::Blocks(|b, u, to| {
            to.codes(u, &nibbles(|i| nibble(b, 2, i)));
            to.scales(u, [b[0], b[1]]);
        });
    Q4_1, Scales::F16(&[0, 2]),
        |b, i| (f16_at(b, 0), f16_at(b, 2)) => d: f32::from(nibble(b, 4, i)) * d.0 + d.1,
        Pack::Blocks(|b, u, to| {
            to.codes(u, &nibbles(|i| nibble(b, 4, i)));
            to.scales(u, [b[0], b[1], b[2], b[3]]);
        });
    Q5_0, Scales::F16(&[0]),
        |b, i| f16_at(b, 0) => d: (f32::from(q5(b, 2, 6, i)) - 16.0) * d,
        Pack::Blocks(|b, u, to| {
            to.codes(u, &nibbles(|i| q5(b, 2, 6, i)));
            to.high(u, &fifth_bits(|i| q5(b, 2, 6, i)));
            to.scales(u, [b[0], b[1]]);
        });
    Q5_1, Scales::F16(&[0, 2]),
        |b, i| (f16_at(b, 0), f16_at(b, 2)) => d: f32::from(q5(b, 4, 8, i)) * d.0 + d.1,
        Pack::Blocks(|b, u, to| {
            to.codes(u, &nibbles(|i| q5(b, 4, 8, i)));
            to.high(u, &fifth_bits(|i| q5(b, 4, 8, i)));
            to.scales(u, [b[0], b[1], b[2], b[3]]);
        });
    Q8_0, Scales::F16(&[0]),
        |b, i| f16_at(b, 0) => d: f32::from(b[2 + i] as i8) * d,
        Pack::Blocks(|b, u, to| {
            to.codes(u, &words_of::<8>(&b[2..]).map(|w| w ^ 0x8080_8080));
            to.scales(u, [b[0], b[1]]);
        });
    Q2_K, Scales::F16(&[80, 82]),
        |b, i| (f16_at(b, 80), f16_at(b, 82)) => d: {
            let s = b[i >> 4];
            d.0 * f32::from(s & 15) * f32::from(strided(b, 16, i)) - d.1 * f32::from(s >> 4)
        },
        Pack::Blocks(|b, u, to| {
            to.block(u, [b[80], b[81], b[82], b[83]]);
            for k in 0..8 {
                to.codes(u + k, &two_bits(|i| strided(b, 16, 32 * k + i)));
                to.scales(u + k, [b[2 * k], b[2 * k + 1]]);
            }
        });
    Q3_K, Scales::F16(&[108]),
        |b, i| f16_at(b, 108) => d: {
            d * (f32::from(q3k_scale(b, i >> 4)) - 32.0) * (f32::from(q3k_code(b, i)) - 4.0)
        },
        Pack::Blocks(|b, u, to| {
            to.block(u, [b[108], b[109]]);
            for k in 0..8 {
                to.codes(u + k, &two_bits(|i| q3k_code(b, 32 * k + i)));
                to.high(u + k, &third_bits(|i| q3k_code(b, 32 * k + i)));
                to.scales(u + k, [q3k_scale(b, 2 * k), q3k_scale(b, 2 * k + 1)]);
            }
        });
    Q4_K, Scales::F16(&[0, 2]),
        |b, i| (f16_at(b, 0), f16_at(b, 2)) => d: {
            let (scale, minimum) = six_bit_pair(&b[4..], i >> 5);
            d.0 * f32::from(scale) * f32::from(q4k_code(b, 16, i)) - d.1 * f32::from(minimum)
        },
        Pack::Blocks(|b, u, to| {
            to.block(u, scales_and_minima(b));
            for k in 0..8 {
                to.codes(u + k, &nibbles(|i| q4k_code(b, 16, 32 * k + i)));
            }
        });
    Q5_K, Scales::F16(&[0, 2]),
        |b, i| (f16_at(b, 0), f16_at(b, 2)) => d: {
            let (scale, minimum) = six_bit_pair(&b[4..], i >> 5);
            d.0 * f32::from(scale) * f32::from(q5k_code(b, i)) - d.1 * f32::from(minimum)
        },
        Pack::Blocks(|b, u, to| {
            to.block(u, scales_and_minima(b));
            for k in 0..8 {
                to.codes(u + k, &nibbles(|i| q5k_code(b, 32 * k + i)));
                to.high(u + k, &fifth_bits(|i| q5k_code(b, 32 * k + i)));
            }
        });
    Q6_K, Scales::F16(&[208]),
        |b, i| f16_at(b, 208) => d: {
            d * f32::from(b[192 + (i >> 4)] as i8) * (f32::from(q6k_code(b, i)) - 32.0)
        },
        Pack::Blocks(|b, u, to| {
            to.block(u, [b[208], b[209]]);
            for k in 0..8 {
                to.codes(u + k, &nibbles(|i| q6k_code(b, 32 * k + i)));
                to.high(u + k, &sixth_bits(|i| q6k_code(b, 32 * k + i)));
                to.scales(u + k, [b[192 + 2 * k] ^ 0x80, b[193 + 2 * k] ^ 0x80]);
            }
        });
    IQ4_NL, Scales::F16(&[0]),
        |b, i| f16_at(b, 0) => d: f32::from(IQ4_VALUES[usize::from(nibble(b, 2, i))]) * d,
        Pack::Blocks(|b, u, to| {
            to.codes(u, &indices(|i| nibble(b, 2, i)));
            to.scales(u, [b[0], b[1]]);
        });
    IQ4_XS, Scales::F16(&[0]),
        |b, i| f16_at(b, 0) => d: {
            d * (f32::from(iq4xs_scale(b, i >> 5)) - 32.0) * f32::from(IQ4_VALUES[usize::from(iq4xs_code(b, i))])
        },
        Pack::Blocks(|b, u, to| {
            to.block(u, [b[0], b[1]]);
            for k in 0..8 {
                to.codes(u + k, &indices(|i| iq4xs_code(b, 32 * k + i)));
                to.scales(u + k, [iq4xs_scale(b, k)]);
            }
        });
    MXFP4, Scales::E8M0,
        |b, i| half_power(u32::from(b[0])) => d: f32::from(E2M1_VALUES[usize::from(nibble(b, 1, i))]) * d,
        Pack::Blocks(|b, u, to| {
            to.codes(u, &indices(|i| nibble(b, 1, i)));
            to.scales(u, [b[0]]);
        });
}
