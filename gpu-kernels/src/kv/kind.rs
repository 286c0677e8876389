//! How keys and values are stored.

use crate::names::named;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Rounded to binary16: half the memory, and what long contexts are read with.
    #[default]
    F16,
    /// As computed.
    F32,
    /// Codes of -127 to 127 with an f32 scale for each head of each position: a quarter of the memory.
    Int8,
}

named! {
    KvType, "type of KV cache", 3:
    F16 = "f16", "half precision: half the bytes; keys and values are rounded";
    F32 = "f32", "single precision";
    Int8 = "int8", "eight-bit codes with a scale for each head of each position: a quarter of the bytes, coarser";
}

impl KvType {
    /// What the names of entry points end with: `attn_step_q8` is over int8.
    #[must_use]
    pub fn entry(self) -> &'static str {
        match self {
            KvType::F16 => "f16",
            KvType::F32 => "f32",
            KvType::Int8 => "q8",
        }
    }

    /// Bytes of an element, without scales.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            KvType::F16 => 2,
            KvType::F32 => 4,
            KvType::Int8 => 1,
        }
    }

    /// Bytes of the scale of a head at a position.
    #[must_use]
    pub fn scale_bytes(self) -> usize {
        if self == KvType::Int8 { 4 } else { 0 }
    }
}
