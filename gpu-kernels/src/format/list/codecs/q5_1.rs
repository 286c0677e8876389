//! Q5_1: 32 five-bit codes, an f16 scale and an f16 addend.

use crate::format::host::bits::{each, q5};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, fifth_bits, nibbles};

/// Its codec.
pub static Q5_1: Codec = Codec {
    scales: BlockScales::F16(&[0, 2]),
    decode: |b, out| {
        let d = (f16_at(b, 0), f16_at(b, 2));
        each(out, |i| f32::from(q5(b, 4, 8, i)) * d.0 + d.1);
    },
    pack: Pack::Blocks(|b, u, to| {
        to.codes(u, &nibbles(|i| q5(b, 4, 8, i)));
        to.high(u, &fifth_bits(|i| q5(b, 4, 8, i)));
        to.scales(u, [b[0], b[1], b[2], b[3]]);
    }),
};
