//! PTQ1_0: prismML's ternary: 128 digits in base 3 and an f16 scale.

use crate::format::host::bits::{digit, each, pack_ternary};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at};

fn code(b: &[u8], i: usize) -> u8 {
    match i {
        0..80 => digit(b[i & 15], i >> 4),
        80..120 => digit(b[16 + ((i - 80) & 7)], (i - 80) >> 3),
        _ => digit(b[24 + ((i - 120) & 1)], (i - 120) >> 1),
    }
}

/// Its codec.
pub static PTQ1_0: Codec = Codec {
    scales: BlockScales::F16(&[26]),
    decode: |b, out| {
        let d = f16_at(b, 26);
        each(out, |i| (f32::from(code(b, i)) - 1.0) * d);
    },
    pack: Pack::Blocks(|b, u, to| pack_ternary(b, u, 4, 26, to, |i| code(b, i))),
};
