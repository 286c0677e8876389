//! Q5_0: 32 five-bit codes around 16 and an f16 scale.

use crate::format::host::bits::{each, q5};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, fifth_bits, nibbles};

/// Its codec.
pub static Q5_0: Codec = Codec {
    scales: BlockScales::F16(&[0]),
    decode: |b, out| {
        let d = f16_at(b, 0);
        each(out, |i| (f32::from(q5(b, 2, 6, i)) - 16.0) * d);
    },
    pack: Pack::Blocks(|b, u, to| {
        to.codes(u, &nibbles(|i| q5(b, 2, 6, i)));
        to.high(u, &fifth_bits(|i| q5(b, 2, 6, i)));
        to.scales(u, [b[0], b[1]]);
    }),
};
