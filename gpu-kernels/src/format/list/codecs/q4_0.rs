//! Q4_0: 32 four-bit codes around 8 and an f16 scale.

use crate::format::host::bits::{each, nibble};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, nibbles};

/// Its codec.
pub static Q4_0: Codec = Codec {
    scales: BlockScales::F16(&[0]),
    decode: |b, out| {
        let d = f16_at(b, 0);
        each(out, |i| (f32::from(nibble(b, 2, i)) - 8.0) * d);
    },
    pack: Pack::Blocks(|b, u, to| {
        to.codes(u, &nibbles(|i| nibble(b, 2, i)));
        to.scales(u, [b[0], b[1]]);
    }),
};
