//! Q5_K: 256 five-bit codes, a scale and a minimum of six bits for each 32.

use crate::format::host::bits::{each, q4k_code, scales_and_minima, six_bit_pair};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, fifth_bits, nibbles};

fn code(b: &[u8], i: usize) -> u8 {
    q4k_code(b, 48, i) | (b[16 + (i & 31)] >> (i >> 5) & 1) << 4
}

/// Its codec.
pub static Q5_K: Codec = Codec {
    scales: BlockScales::F16(&[0, 2]),
    decode: |b, out| {
        let d = (f16_at(b, 0), f16_at(b, 2));
        each(out, |i| {
            let (scale, minimum) = six_bit_pair(&b[4..], i >> 5);
            d.0 * f32::from(scale) * f32::from(code(b, i)) - d.1 * f32::from(minimum)
        });
    },
    pack: Pack::Blocks(|b, u, to| {
        to.block(u, scales_and_minima(b));
        for k in 0..8 {
            to.codes(u + k, &nibbles(|i| code(b, 32 * k + i)));
            to.high(u + k, &fifth_bits(|i| code(b, 32 * k + i)));
        }
    }),
};
