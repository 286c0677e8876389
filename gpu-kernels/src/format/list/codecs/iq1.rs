//! IQ1_S and IQ1_M: 256 weights, eight at a place of a grid, with an eighth added or taken off.

use crate::format::grid::{IQ1_GRID as GRID, level};
use crate::format::host::bits::{each, word};
use crate::format::host::codec::{BlockScales, Codec, Pack, Writer, f16_at, f16_of};

/// A weight without its scale, by its place and the bit that says of what sign the eighth is.
fn weight(place: u32, minus: bool, i: usize) -> f32 {
    level(&GRID, place, i % 8) + if minus { -0.125 } else { 0.125 }
}

/// Writes a block: the bits of `d`; for each unit its bytes of places, their upper bits, and the scales of its halves.
fn pack(u: usize, to: &mut Writer<'_>, d: u16, unit: impl Fn(usize) -> (u32, u16, [u8; 2])) {
    let mut block = u64::from(d);
    for k in 0..8 {
        let (places, upper, scales) = unit(k);
        to.codes(u + k, &[places]);
        to.scales(u + k, upper.to_le_bytes());
        block |= u64::from(scales[0] | scales[1] << 3) << (16 + 6 * k);
    }
    to.block(u, block.to_le_bytes());
}

/// The word of 32 weights of IQ1_S: upper bits of places, the scale, the sign of the eighth.
fn of_unit(b: &[u8], k: usize) -> u16 {
    u16::from_le_bytes([b[34 + 2 * k], b[35 + 2 * k]])
}

/// IQ1_S: places of eleven bits, and for each 32 weights a scale of three bits and a sign.
pub static IQ1_S: Codec = Codec {
    scales: BlockScales::F16(&[0]),
    decode: |b, out| {
        each(out, |i| {
            let high = of_unit(b, i / 32);
            let place = u32::from(b[2 + i / 8]) | u32::from(high >> (3 * (i / 8 % 4)) & 7) << 8;
            f16_at(b, 0) * f32::from(1 + 2 * (high >> 12 & 7)) * weight(place, high >> 15 == 1, i)
        });
    },
    pack: Pack::Blocks(|b, u, to| {
        pack(u, to, u16::from_le_bytes([b[0], b[1]]), |k| {
            let high = of_unit(b, k);
            let upper = (0..4).map(|j| (high >> (3 * j) & 7 | high >> 15 << 3) << (4 * j)).sum();
            (word(b, 2 + 4 * k), upper, [(high >> 12 & 7) as u8; 2])
        });
    }),
};

/// The f16 of a block of IQ1_M: four bits in each of its words of scales.
fn scattered(b: &[u8]) -> u16 {
    (0..4).map(|j| u16::from(b[49 + 2 * j] >> 4) << (4 * j)).sum()
}

/// The scale of 16 weights of IQ1_M.
fn scale(b: &[u8], s: usize) -> u8 {
    (u16::from_le_bytes([b[48 + s / 4 * 2], b[49 + s / 4 * 2]]) >> (3 * (s % 4)) & 7) as u8
}

/// IQ1_M: places of eleven bits with a sign each, and a scale of three bits for each 16.
pub static IQ1_M: Codec = Codec {
    scales: BlockScales::Of(|b| {
        let d = f16_of(scattered(b));
        (!d.is_finite()).then_some(d)
    }),
    decode: |b, out| {
        let d = f16_of(scattered(b));
        each(out, |i| {
            let high = b[32 + i / 16] >> (4 * (i / 8 % 2)) & 15;
            let place = u32::from(b[i / 8]) | u32::from(high & 7) << 8;
            d * f32::from(1 + 2 * scale(b, i / 16)) * weight(place, high >> 3 == 1, i)
        });
    },
    pack: Pack::Blocks(|b, u, to| {
        pack(u, to, scattered(b), |k| {
            let upper = u16::from_le_bytes([b[32 + 2 * k], b[33 + 2 * k]]);
            (word(b, 4 * k), upper, [scale(b, 2 * k), scale(b, 2 * k + 1)])
        });
    }),
};
