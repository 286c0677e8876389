//! Eight-bit floats with an f32 scale for each 128 columns: F8_E4M3 and F8_E5M2.

use super::{
    decode::{Decode, Scales},
    halves::{Eight, Halves},
    record::{Memory, Record, Spec},
    unpack::{f16_pair, permute, select_bits},
};
use warpsmith_device::packed::F16x2;

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

/// Two of the four bytes of a word as f16, those that `select` sets over zeros.
#[inline(always)]
fn pair(word: u32, select: u32, down: u32) -> u32 {
    let bytes = permute(0, word, select);
    select_bits(0x8000_8000, bytes, (bytes & 0x7F00_7F00) >> down)
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
        let ((a, b), (c, d)) = (f16_pair(pair(words[q], 0x5040, *down)), f16_pair(pair(words[q], 0x7060, *down)));
        [a, b, c, d]
    }
    #[inline(always)]
    unsafe fn scales<M: Memory>(m: M, r: &Record, u: usize) -> Scales {
        // SAFETY: the caller's promise.
        Scales::one(f32::from_bits(unsafe { m.word(r.blocks / 4 + (u >> 2)) }))
    }
}

/// A scale as two factors, twice each.
#[derive(Clone, Copy)]
pub struct SplitScale {
    /// Up to 1, down to the smallest f16.
    power: F16x2,
    by: F16x2,
}

/// Codes have all of an f16's range, so that a scale may be too small for one: it is a power of two, which takes no precision, times
/// what is left. Weights are as large as they are.
impl Halves for F8 {
    const LARGER: f32 = 1.0;
    type Unit<M: Memory> = ([u32; 8], u32);
    type Scale = SplitScale;

    #[inline(always)]
    unsafe fn unit<M: Memory>(m: M, r: &Record, u: usize) -> ([u32; 8], u32) {
        // SAFETY: the caller's promise.
        unsafe { Self::codes(m, r, u) }
    }
    #[inline(always)]
    fn scale(scales: Scales) -> SplitScale {
        let scale = scales.scale[0];
        // What is left is from 2^-7 on; where it is below 2^-6, nothing that is rounded away before counts.
        let power = f32::from_bits(scale.to_bits() & 0x7F80_0000) * 128.0;
        let power = power.clamp(const { 1.0 / (1 << 24) as f32 }, 1.0);
        let inverse = f32::from_bits(0x7F00_0000 - power.to_bits());
        SplitScale { power: F16x2::splat_f32(power), by: F16x2::splat_f32(scale * inverse) }
    }
    #[inline(always)]
    fn eight<M: Memory>((words, down): &([u32; 8], u32), v: usize, scale: &SplitScale) -> Eight {
        let weights =
            |q: usize, select| (F16x2::from_bits(pair(words[q], select, *down)) * scale.power * scale.by).to_bits();
        let (first, second) = (2 * v, 2 * v + 1);
        [weights(first, 0x6040), weights(first, 0x7050), weights(second, 0x6040), weights(second, 0x7050)]
    }

    /// The weight, and where there is a power of two less than 2^-6 of what comes of that.
    #[cfg(not(target_arch = "nvptx64"))]
    fn small(_: f64) -> f64 {
        2f64.powi(-24)
    }
}
