//! IQ4_XS: 256 indices into a table of 16 and a six-bit scale for each 32.

use crate::format::host::bits::{each, nibble};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, indices};
use crate::format::wide::IQ4_VALUES;

/// Scale of 32 elements, 32 too large.
fn scale(b: &[u8], j: usize) -> u8 {
    let high = u16::from_le_bytes([b[2], b[3]]);
    (b[4 + j / 2] >> (4 * (j & 1)) & 15) | ((high >> (2 * j) & 3) as u8) << 4
}

fn code(b: &[u8], i: usize) -> u8 {
    nibble(b, 8 + 16 * (i >> 5), i & 31)
}

/// Its codec.
pub static IQ4_XS: Codec = Codec {
    scales: BlockScales::F16(&[0]),
    decode: |b, out| {
        let d = f16_at(b, 0);
        each(out, |i| d * (f32::from(scale(b, i >> 5)) - 32.0) * f32::from(IQ4_VALUES[usize::from(code(b, i))]));
    },
    pack: Pack::Blocks(|b, u, to| {
        to.block(u, [b[0], b[1]]);
        for k in 0..8 {
            to.codes(u + k, &indices(|i| code(b, 32 * k + i)));
            to.scales(u + k, [scale(b, k)]);
        }
    }),
};
