//! Q8_0: 32 signed bytes and an f16 scale.

use crate::format::host::bits::each;
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, words_of};

/// Its codec.
pub static Q8_0: Codec = Codec {
    scales: BlockScales::F16(&[0]),
    decode: |b, out| {
        let d = f16_at(b, 0);
        each(out, |i| f32::from(b[2 + i] as i8) * d);
    },
    pack: Pack::Blocks(|b, u, to| {
        to.codes(u, &words_of::<8>(&b[2..]).map(|w| w ^ 0x8080_8080));
        to.scales(u, [b[0], b[1]]);
    }),
};
