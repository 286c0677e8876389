//! MXFP4: 32 four-bit floats and a power of two.

use crate::format::host::bits::{each, nibble};
use crate::format::host::codec::{BlockScales, Codec, Pack, indices};
use crate::format::unpack::half_power;
use crate::format::wide::E2M1_VALUES;

/// Its codec.
pub static MXFP4: Codec = Codec {
    scales: BlockScales::E8M0,
    decode: |b, out| {
        let d = half_power(u32::from(b[0]));
        each(out, |i| f32::from(E2M1_VALUES[usize::from(nibble(b, 1, i))]) * d);
    },
    pack: Pack::Blocks(|b, u, to| {
        to.codes(u, &indices(|i| nibble(b, 1, i)));
        to.scales(u, [b[0]]);
    }),
};
