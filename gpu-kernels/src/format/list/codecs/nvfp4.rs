//! NVFP4: 64 four-bit floats and an eight-bit one for each 16 of them; and the same with a scale for a row.

use crate::format::host::bits::{each, nibble8};
use crate::format::host::codec::{BlockScales, Codec, Pack, Writer, f32_at, indices};
use crate::format::wide::{E2M1_VALUES, NVFP4_SCALE};
use warpsmith_device::fp8::E4m3;

/// Where the scale of the row stands.
const ROW: usize = 36;

/// The index of a value: of each 16 weights the first eight are low nibbles.
fn code(b: &[u8], i: usize) -> u8 {
    nibble8(b, 4 + i / 16 * 8, i & 15)
}

fn scale(b: &[u8], i: usize) -> f32 {
    E4m3::from_bits(b[i / 16]).to_f32()
}

/// Twice the value, as the table has it, times half the scale, which is rounded once with that of the row.
fn weight(b: &[u8], i: usize, row: f32) -> f32 {
    f32::from(E2M1_VALUES[usize::from(code(b, i))]) * (0.5 * scale(b, i) * row)
}

/// A scale that is no number, or less than 0, which programs read differently.
fn wrong(b: &[u8]) -> Option<f32> {
    (0..4).map(|s| scale(b, 16 * s)).find(|d| !d.is_finite() || d.is_sign_negative())
}

fn pack(b: &[u8], u: usize, to: &mut Writer<'_>, row: f32) {
    to.block(u, (row * NVFP4_SCALE).to_le_bytes());
    for k in 0..2 {
        to.codes(u + k, &indices(|i| code(b, 32 * k + i)));
        to.scales(u + k, [b[2 * k], b[2 * k + 1]]);
    }
}

/// As ggml has it.
pub static NVFP4: Codec = Codec {
    scales: BlockScales::Of(wrong),
    decode: |b, out| each(out, |i| weight(b, i, 1.0)),
    pack: Pack::Blocks(|b, u, to| pack(b, u, to, 1.0)),
};

/// With an f32 behind each block, which is the same for all of a row.
pub static NVFP4_SCALED: Codec = Codec {
    scales: BlockScales::OfRow(ROW, |b| {
        let row = f32_at(b, ROW);
        if (row * NVFP4_SCALE).is_finite() { wrong(b) } else { Some(row) }
    }),
    decode: |b, out| {
        let row = f32_at(b, ROW);
        each(out, |i| weight(b, i, row));
    },
    pack: Pack::Blocks(|b, u, to| pack(b, u, to, f32_at(b, ROW))),
};
