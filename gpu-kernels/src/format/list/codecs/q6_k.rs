//! Q6_K: 256 six-bit codes and an eight-bit scale for each 16.

use crate::format::host::bits::each;
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at, nibbles, sixth_bits};

fn code(b: &[u8], i: usize) -> u8 {
    let (h, g, l) = (i >> 7, i >> 5 & 3, i & 31);
    let low = (b[64 * h + 32 * (g & 1) + l] >> (4 * (g >> 1))) & 15;
    low | (b[128 + 32 * h + l] >> (2 * g) & 3) << 4
}

/// Its codec.
pub static Q6_K: Codec = Codec {
    scales: BlockScales::F16(&[208]),
    decode: |b, out| {
        let d = f16_at(b, 208);
        each(out, |i| d * f32::from(b[192 + (i >> 4)] as i8) * (f32::from(code(b, i)) - 32.0));
    },
    pack: Pack::Blocks(|b, u, to| {
        to.block(u, [b[208], b[209]]);
        for k in 0..8 {
            to.codes(u + k, &nibbles(|i| code(b, 32 * k + i)));
            to.high(u + k, &sixth_bits(|i| code(b, 32 * k + i)));
            to.scales(u + k, [b[192 + 2 * k] ^ 0x80, b[193 + 2 * k] ^ 0x80]);
        }
    }),
};
