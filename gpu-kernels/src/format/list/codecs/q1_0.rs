//! Q1_0: 128 signs and an f16 scale (also called `Q1_0_g128`).

use crate::format::host::bits::{bit, each};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, one_bit};

/// Its codec.
pub static Q1_0: Codec = Codec {
    scales: BlockScales::F16(&[0]),
    decode: |b, out| {
        let d = f16_at(b, 0);
        each(out, |i| if bit(b, 2, i) == 1 { d } else { -d });
    },
    pack: Pack::Blocks(|b, u, to| {
        to.block(u, [b[0], b[1]]);
        for k in 0..4 {
            to.codes(u + k, &one_bit(|i| 1 - bit(b, 2, 32 * k + i)));
        }
    }),
};
