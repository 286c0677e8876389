//! Eight-bit floats with an f32 scale for each 128 columns: F8_E4M3 and F8_E5M2.

use super::{
    decode::{Decode, Scales},
    record::{Memory, Record, Spec},
    unpack::{f16_pair, permute, select_bits},
};

/// A float times the f32 of its block. A byte is the upper half of an f16: E5M2 as it stands; of E4M3, whose exponent has a bit less, all
/// but the sign moves down by one, and what that makes is 2^-8 of the float, which the block's scale makes up for. What is open
/// is which of the two it is: 0 for E4M3, 1 for E5M2.
#[derive(Clone, Copy, Debug)]
pub struct F8;

/// What the scales of E4M3 are multiplied with in records.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const E4M3_SCALE: f32 = 256.0;

/// 2^-8 of the numbers of E4M3 that the two lower bytes of a word are, neither of them below 0.
#[inline(always)]
pub(super) fn e4m3_pair(bytes: u32) -> (f32, f32) {
    f16_pair(permute(0, bytes, 0x5040) >> 1)
}

impl Decode for F8 {
    const SPEC: Spec = Spec { code_words: 8, high_words: 0, scale_bytes: 0, block_bytes: 4, block_units: 2 };
    const MOST_OPEN: u32 = 1;
    /// The words, and by how much exponents move down.
    type Codes<M: Memory> = ([u32; 8], u32);

    #[inline(always)]
    unsafe fn codes_of<M: Memory>(m: M, r: &Record, u: usize, _: [u32; 4]) -> ([u32; 8], u32) {
        // SAFETY: the caller's promise.
        let ([a, b, c, d], [e, f, g, h]) = unsafe { (m.vector(r.vector(u, 0, 2)), m.vector(r.vector(u, 1, 2))) };
        ([a, b, c, d, e, f, g, h], 1 - r.open)
    }
    #[inline(always)]
    fn quad<M: Memory>((words, down): &([u32; 8], u32), q: usize) -> [f32; 4] {
        let halves = |select| {
            let bytes = permute(0, words[q], select);
            f16_pair(select_bits(0x8000_8000, bytes, (bytes & 0x7F00_7F00) >> down))
        };
        let ((a, b), (c, d)) = (halves(0x5040), halves(0x7060));
        [a, b, c, d]
    }
    #[inline(always)]
    unsafe fn scales<M: Memory>(m: M, r: &Record, u: usize) -> Scales {
        // SAFETY: the caller's promise.
        Scales::one(f32::from_bits(unsafe { m.word(r.blocks / 4 + (u >> 2)) }))
    }
}
