//! TQ1_0: ggml's ternary: 256 digits in base 3 and an f16 scale.

use crate::format::host::bits::{digit, each, pack_ternary};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at};

fn code(b: &[u8], i: usize) -> u8 {
    match i {
        0..160 => digit(b[i & 31], i >> 5),
        160..240 => digit(b[32 + ((i - 160) & 15)], (i - 160) >> 4),
        _ => digit(b[48 + ((i - 240) & 3)], (i - 240) >> 2),
    }
}

/// Its codec.
pub static TQ1_0: Codec = Codec {
    scales: BlockScales::F16(&[52]),
    decode: |b, out| {
        let d = f16_at(b, 52);
        each(out, |i| (f32::from(code(b, i)) - 1.0) * d);
    },
    pack: Pack::Blocks(|b, u, to| pack_ternary(b, u, 8, 52, to, |i| code(b, i))),
};
