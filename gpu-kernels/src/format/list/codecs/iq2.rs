//! IQ2_XXS, IQ2_XS and IQ2_S: 256 weights, eight at a place of a grid.

use crate::format::grid::{IQ2_S as S, IQ2_XS as XS, IQ2_XXS as XXS, even_signs, level, signed};
use crate::format::host::bits::{each, word};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, words_of};

/// IQ2_XXS: places of eight bits, and for each 32 weights 28 signs and a scale of four bits.
pub static IQ2_XXS: Codec = Codec {
    scales: BlockScales::F16(&[0]),
    decode: |b, out| {
        each(out, |i| {
            let (k, high) = (8 * (i / 32), word(b, 6 + 8 * (i / 32)));
            let d = f16_at(b, 0) * (0.5 + (high >> 28) as f32) * 0.25;
            signed(d * level(&XXS, b[2 + k + i / 8 % 4].into(), i % 8), even_signs(high), i % 32)
        });
    },
    pack: Pack::Blocks(|b, u, to| {
        to.block(u, [b[0], b[1]]);
        for k in 0..8 {
            to.codes(u + k, &words_of::<2>(&b[2 + 8 * k..]));
        }
    }),
};

/// The scale of 16 weights, four bits, from byte `at` on, times `d`.
fn scale(b: &[u8], at: usize, i: usize) -> f32 {
    let scale = b[at + i / 32] >> (4 * (i / 16 % 2)) & 15;
    f16_at(b, 0) * (0.5 + f32::from(scale)) * 0.25
}

/// Place and signs of eight weights of IQ2_XS.
fn place_and_signs(b: &[u8], j: usize) -> (u32, u32) {
    let both = u32::from(u16::from_le_bytes([b[2 + 2 * j], b[3 + 2 * j]]));
    (both & 511, both >> 9)
}

/// IQ2_XS: places of nine bits with seven signs, and a scale of four bits for each 16.
pub static IQ2_XS: Codec = Codec {
    scales: BlockScales::F16(&[0]),
    decode: |b, out| {
        each(out, |i| {
            let (place, signs) = place_and_signs(b, i / 8);
            signed(scale(b, 66, i) * level(&XS, place, i % 8), even_signs(signs), i % 8)
        });
    },
    pack: Pack::Blocks(|b, u, to| {
        to.block(u, [b[0], b[1]]);
        for k in 0..8 {
            let mut words = [0; 2];
            for j in 0..4 {
                let (place, signs) = place_and_signs(b, 4 * k + j);
                words[0] |= (place & 255) << (8 * j);
                words[1] |= signs << (7 * j) | place >> 8 << (28 + j);
            }
            to.codes(u + k, &words);
            to.scales(u + k, [b[66 + k]]);
        }
    }),
};

/// IQ2_S: places of ten bits, the highest two of them apart, signs, and a scale of four bits for each 16.
pub static IQ2_S: Codec = Codec {
    scales: BlockScales::F16(&[0]),
    decode: |b, out| {
        each(out, |i| {
            let place = u32::from(b[2 + i / 8]) | u32::from(b[66 + i / 32] >> (2 * (i / 8 % 4)) & 3) << 8;
            signed(scale(b, 74, i) * level(&S, place, i % 8), b[34 + i / 8].into(), i % 8)
        });
    },
    pack: Pack::Blocks(|b, u, to| {
        to.block(u, [b[0], b[1]]);
        for k in 0..8 {
            to.codes(u + k, &[word(b, 2 + 4 * k), word(b, 34 + 4 * k)]);
            to.scales(u + k, [b[66 + k], b[74 + k]]);
        }
    }),
};
