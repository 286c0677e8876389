//! Q4_K: 256 four-bit codes, a scale and a minimum of six bits for each 32.

use crate::format::host::bits::{each, q4k_code, scales_and_minima, six_bit_pair};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, nibbles};

/// Its codec.
pub static Q4_K: Codec = Codec {
    scales: BlockScales::F16(&[0, 2]),
    decode: |b, out| {
        let d = (f16_at(b, 0), f16_at(b, 2));
        each(out, |i| {
            let (scale, minimum) = six_bit_pair(&b[4..], i >> 5);
            d.0 * f32::from(scale) * f32::from(q4k_code(b, 16, i)) - d.1 * f32::from(minimum)
        });
    },
    pack: Pack::Blocks(|b, u, to| {
        to.block(u, scales_and_minima(b));
        for k in 0..8 {
            to.codes(u + k, &nibbles(|i| q4k_code(b, 16, 32 * k + i)));
        }
    }),
};
