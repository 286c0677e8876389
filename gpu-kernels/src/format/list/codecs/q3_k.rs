//! Q3_K: 256 three-bit codes and a six-bit scale for each 16.

use crate::format::host::bits::{each, strided};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, third_bits, two_bits};

fn code(b: &[u8], i: usize) -> u8 {
    strided(b, 32, i) | (b[i & 31] >> (i >> 5) & 1) << 2
}

/// Scale `s` of 16 elements, 32 too large.
fn scale(b: &[u8], s: usize) -> u8 {
    let low = if s < 8 { b[96 + s] & 15 } else { b[88 + s] >> 4 };
    low | (b[104 + (s & 3)] >> (2 * (s >> 2)) & 3) << 4
}

/// Its codec.
pub static Q3_K: Codec = Codec {
    scales: BlockScales::F16(&[108]),
    decode: |b, out| {
        let d = f16_at(b, 108);
        each(out, |i| d * (f32::from(scale(b, i >> 4)) - 32.0) * (f32::from(code(b, i)) - 4.0));
    },
    pack: Pack::Blocks(|b, u, to| {
        to.block(u, [b[108], b[109]]);
        for k in 0..8 {
            to.codes(u + k, &two_bits(|i| code(b, 32 * k + i)));
            to.high(u + k, &third_bits(|i| code(b, 32 * k + i)));
            to.scales(u + k, [scale(b, 2 * k), scale(b, 2 * k + 1)]);
        }
    }),
};
