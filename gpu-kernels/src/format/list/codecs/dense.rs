//! Formats whose weights are numbers.

use crate::format::host::bits::each;
use crate::format::host::codec::{BlockScales, Codec, Pack, bf16_at, f16_at};

/// F32: IEEE binary32.
pub static F32: Codec = Codec {
    scales: BlockScales::Weight,
    decode: |b, out| {
        let v = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        each(out, |_| v);
    },
    pack: Pack::Dense,
};

/// F16: IEEE binary16.
pub static F16: Codec = Codec {
    scales: BlockScales::Weight,
    decode: |b, out| {
        let v = f16_at(b, 0);
        each(out, |_| v);
    },
    pack: Pack::Dense,
};

/// BF16: the upper half of a binary32.
pub static BF16: Codec = Codec {
    scales: BlockScales::Weight,
    decode: |b, out| {
        let v = bf16_at(b, 0);
        each(out, |_| v);
    },
    pack: Pack::Dense,
};
