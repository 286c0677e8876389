//! IQ3_XXS and IQ3_S: 256 weights, four at a place of a grid.

use crate::format::grid::{IQ3_S as S, IQ3_XXS as XXS, even_signs, level, signed};
use crate::format::host::bits::{each, word};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, words_of};

/// IQ3_XXS: places of eight bits, and for each 32 weights 28 signs and a scale of four bits.
pub static IQ3_XXS: Codec = Codec {
    scales: BlockScales::F16(&[0]),
    decode: |b, out| {
        each(out, |i| {
            let high = word(b, 66 + 4 * (i / 32));
            let d = f16_at(b, 0) * (0.5 + (high >> 28) as f32) * 0.5;
            signed(d * level(&XXS, b[2 + i / 4].into(), i % 4), even_signs(high), i % 32)
        });
    },
    pack: Pack::Blocks(|b, u, to| {
        to.block(u, [b[0], b[1]]);
        for k in 0..8 {
            to.codes(u + k, &words_of::<2>(&b[2 + 8 * k..]));
            to.high(u + k, &[word(b, 66 + 4 * k)]);
        }
    }),
};

/// IQ3_S: places of nine bits, the highest of them apart, signs, and a scale of four bits for each 32.
pub static IQ3_S: Codec = Codec {
    scales: BlockScales::F16(&[0]),
    decode: |b, out| {
        each(out, |i| {
            let scale = b[106 + i / 64] >> (4 * (i / 32 % 2)) & 15;
            let place = u32::from(b[2 + i / 4]) | u32::from(b[66 + i / 32] >> (i / 4 % 8) & 1) << 8;
            let d = f16_at(b, 0) * f32::from(1 + 2 * scale);
            signed(d * level(&S, place, i % 4), word(b, 74 + i / 32 * 4), i % 32)
        });
    },
    pack: Pack::Blocks(|b, u, to| {
        to.block(u, [b[0], b[1], b[106], b[107], b[108], b[109]]);
        for k in 0..8 {
            to.codes(u + k, &words_of::<2>(&b[2 + 8 * k..]));
            to.high(u + k, &[word(b, 74 + 4 * k)]);
            to.scales(u + k, [b[66 + k]]);
        }
    }),
};
