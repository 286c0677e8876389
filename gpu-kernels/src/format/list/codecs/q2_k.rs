//! Q2_K: 256 two-bit codes, a scale and a minimum of four bits for each 16.

use crate::format::host::bits::{each, strided};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, two_bits};

/// Its codec.
pub static Q2_K: Codec = Codec {
    scales: BlockScales::F16(&[80, 82]),
    decode: |b, out| {
        let d = (f16_at(b, 80), f16_at(b, 82));
        each(out, |i| {
            let s = b[i >> 4];
            d.0 * f32::from(s & 15) * f32::from(strided(b, 16, i)) - d.1 * f32::from(s >> 4)
        });
    },
    pack: Pack::Blocks(|b, u, to| {
        to.block(u, [b[80], b[81], b[82], b[83]]);
        for k in 0..8 {
            to.codes(u + k, &two_bits(|i| strided(b, 16, 32 * k + i)));
            to.scales(u + k, [b[2 * k], b[2 * k + 1]]);
        }
    }),
};
