//! IQ4_NL: 32 indices into a table of 16 and an f16 scale.

use crate::format::host::bits::{each, nibble};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, indices};
use crate::format::wide::IQ4_VALUES;

/// Its codec.
pub static IQ4_NL: Codec = Codec {
    scales: BlockScales::F16(&[0]),
    decode: |b, out| {
        let d = f16_at(b, 0);
        each(out, |i| f32::from(IQ4_VALUES[usize::from(nibble(b, 2, i))]) * d);
    },
    pack: Pack::Blocks(|b, u, to| {
        to.codes(u, &indices(|i| nibble(b, 2, i)));
        to.scales(u, [b[0], b[1]]);
    }),
};
