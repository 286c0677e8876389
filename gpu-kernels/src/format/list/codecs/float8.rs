//! F8_E4M3 and F8_E5M2: 128 eight-bit floats and an f32 scale. Ours: checkpoints are made into them.

use crate::format::float8::E4M3_SCALE;
use crate::format::host::bits::each;
use crate::format::host::codec::{BlockScales, Codec, Pack, Writer, f32_at, words_of};
use warpsmith_device::fp8::{E4m3, E5m2};

/// Where the scale stands.
const SCALE: usize = 128;

fn pack(b: &[u8], u: usize, to: &mut Writer<'_>, factor: f32) {
    to.block(u, (f32_at(b, SCALE) * factor).to_le_bytes());
    for k in 0..4 {
        to.codes(u + k, &words_of::<8>(&b[32 * k..32 * k + 32]));
    }
}

/// The first number that is none among the codes and the scale, or the scale if it is too large for a record.
fn wrong(b: &[u8], value: fn(u8) -> f32, factor: f32) -> Option<f32> {
    let scale = f32_at(b, SCALE);
    if !(scale * factor).is_finite() {
        return Some(scale);
    }
    b[..SCALE].iter().map(|c| value(*c)).find(|v| !v.is_finite())
}

fn e4m3(code: u8) -> f32 {
    E4m3::from_bits(code).to_f32()
}

fn e5m2(code: u8) -> f32 {
    E5m2::from_bits(code).to_f32()
}

/// That of E4M3.
pub static F8_E4M3: Codec = Codec {
    scales: BlockScales::Of(|b| wrong(b, e4m3, E4M3_SCALE)),
    decode: |b, out| {
        let d = f32_at(b, SCALE);
        each(out, |i| e4m3(b[i]) * d);
    },
    pack: Pack::Blocks(|b, u, to| pack(b, u, to, E4M3_SCALE)),
};

/// That of E5M2.
pub static F8_E5M2: Codec = Codec {
    scales: BlockScales::Of(|b| wrong(b, e5m2, 1.0)),
    decode: |b, out| {
        let d = f32_at(b, SCALE);
        each(out, |i| e5m2(b[i]) * d);
    },
    pack: Pack::Blocks(|b, u, to| pack(b, u, to, 1.0)),
};
