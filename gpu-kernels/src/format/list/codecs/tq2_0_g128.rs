//! TQ2_0_g128: oxiBonsai's ternary: 128 codes of two bits, then an f16 scale; code 3 is 0.

use crate::format::host::bits::{each, pack_ternary, pair};
use crate::format::host::codec::{BlockScales, Codec, Pack, f16_at};

/// OxiBonsai reserves code 3 and decodes it to 0.
fn reserved(code: u8) -> u8 {
    if code == 3 { 1 } else { code }
}

/// Its codec.
pub static TQ2_0_G128: Codec = Codec {
    scales: BlockScales::F16(&[32]),
    decode: |b, out| {
        let d = f16_at(b, 32);
        each(out, |i| (f32::from(reserved(pair(b, 0, i))) - 1.0) * d);
    },
    pack: Pack::Blocks(|b, u, to| pack_ternary(b, u, 4, 32, to, |i| reserved(pair(b, 0, i)))),
};
