//! Q2_0: ggml's two bits: an f16 scale, then 64 codes.

use crate::format::host::bits::{each, pack_ternary, pair};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at};

/// Its codec.
pub static Q2_0: Codec = Codec {
    scales: BlockScales::F16(&[0]),
    decode: |b, out| {
        let d = f16_at(b, 0);
        each(out, |i| (f32::from(pair(b, 2, i)) - 1.0) * d);
    },
    pack: Pack::Blocks(|b, u, to| pack_ternary(b, u, 2, 0, to, |i| pair(b, 2, i))),
};
