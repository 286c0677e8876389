//! Q4_1: 32 four-bit codes, an f16 scale and an f16 addend.

use crate::format::host::bits::{each, nibble};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, nibbles};

/// Its codec.
pub static Q4_1: Codec = Codec {
    scales: BlockScales::F16(&[0, 2]),
    decode: |b, out| {
        let d = (f16_at(b, 0), f16_at(b, 2));
        each(out, |i| f32::from(nibble(b, 4, i)) * d.0 + d.1);
    },
    pack: Pack::Blocks(|b, u, to| {
        to.codes(u, &nibbles(|i| nibble(b, 4, i)));
        to.scales(u, [b[0], b[1], b[2], b[3]]);
    }),
};
