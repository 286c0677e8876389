//! TQ2_0: ggml's ternary: 256 codes of two bits and an f16 scale.

use crate::format::host::bits::{each, pack_ternary, strided};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at};

/// Its codec.
pub static TQ2_0: Codec = Codec {
    scales: BlockScales::F16(&[64]),
    decode: |b, out| {
        let d = f16_at(b, 64);
        each(out, |i| (f32::from(strided(b, 0, i)) - 1.0) * d);
    },
    pack: Pack::Blocks(|b, u, to| pack_ternary(b, u, 8, 64, to, |i| strided(b, 0, i))),
};
