//! Weight formats: what a GGUF tensor's bytes mean, and the layout that the kernels read.
//!
//! One file a format. Each declares its block once and gives the host codec (bytes → f32, bytes →
//! planes) beside the device code that reads the planes; [`Format`] is the list. Formats are always
//! declared by the tensor's type id, never inferred from a byte count.
//!
//! # As stored
//! A tensor is `rows` rows of `cols` elements, a row is `cols / block_elems` blocks without padding,
//! little-endian. [`Format::decode`] is bit-exact against ggml (the sign of zero aside).
//!
//! # On the device
//! Two planes, both row-major, every row padded with zeros to a multiple of 16 bytes, so that every
//! row of an aligned plane may be read with 16-byte loads:
//! - **codes**: the block's code bytes as 32-bit words. Within a row, every full tile of 128 words is
//!   stored transposed: vector `l` of a tile (16 bytes, what lane `l` loads) holds the words
//!   `l, l + 32, l + 64, l + 96` of the tile. Hence one 16-byte load a lane gives four words, and for
//!   each of them the 32 lanes of a warp hold 32 *consecutive* words, so that their reads of the
//!   activations are coalesced. The words after the last full tile are in plain order.
//!   [`word_position`] is the whole rule.
//! - **scales**: one f16 a block.
//!
//! F32 and F16 are *dense*: the codes plane is the row as stored (padded), and there is no scale plane.

#[cfg(not(target_arch = "nvptx64"))]
mod codec;
mod f16;
mod f32;
mod q1_0;
mod q4_0;
mod q8_0;
pub(crate) mod unpack;

pub use self::f16::F16;
pub use self::f32::F32;
pub use q1_0::Q1_0;
pub use q4_0::Q4_0;
pub use q8_0::Q8_0;

#[cfg(not(target_arch = "nvptx64"))]
pub use codec::{Codec, Format, FormatError, PlaneSizes, Planes};

/// A quantised format's block as the kernels see it. Plain functions, the same on the host.
///
/// `x4(i)` gives the four activations from element `i` of the block on, `i` a multiple of 4.
/// A warp's 32 lanes hold consecutive words; `lane` chooses in which order a lane takes its
/// activations, so that the 16-byte reads of eight neighbours fall into different memory banks.
pub trait Block: Copy + 'static {
    /// Weights in a block.
    const ELEMS: usize;
    /// 32-bit words in a block's codes: a power of two up to 32.
    const WORDS: usize;
    /// Lanes that may share one word, where there are fewer words than lanes.
    const PARTS: usize;

    /// `sum code(i) * x(i)` over the weights of word `place` of the block, without the scale.
    fn dot(word: u32, place: usize, lane: usize, x4: impl Fn(usize) -> [f32; 4]) -> f32;
    /// The share of part `part` (below [`Block::PARTS`]) in [`Block::dot`].
    fn dot_part(word: u32, place: usize, part: usize, x4: impl Fn(usize) -> [f32; 4]) -> f32;
    /// The word of the block that holds element `i`.
    fn place_of(i: usize) -> usize;
    /// The code of element `i`, given its word.
    fn code(word: u32, i: usize) -> f32;
}

/// Words in a tile of the codes plane: 16 bytes for each lane of a warp.
pub const TILE_WORDS: usize = 128;

/// Where the word `index` of a row of `words` words lies in that row of the codes plane.
#[inline(always)]
#[must_use]
pub const fn word_position(index: usize, words: usize) -> usize {
    let tile = index / TILE_WORDS * TILE_WORDS;
    if tile + TILE_WORDS <= words {
        let (step, lane) = ((index - tile) / 32, index % 32);
        tile + lane * 4 + step
    } else {
        index
    }
}

/// 32-bit words in a row of the codes plane: `words` rounded up to 16 bytes.
#[inline(always)]
#[must_use]
pub const fn padded_words(words: usize) -> usize {
    words.div_ceil(4) * 4
}

/// Scales in a row of the scales plane: `blocks` rounded up to 16 bytes.
#[inline(always)]
#[must_use]
pub const fn padded_scales(blocks: usize) -> usize {
    blocks.div_ceil(8) * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_position_is_a_permutation_of_every_row() {
        for words in [1, 4, 31, 32, 127, 128, 129, 255, 256, 400, 1024] {
            let mut seen = vec![false; words];
            for i in 0..words {
                let p = word_position(i, words);
                assert!(p < words && !seen[p], "word {i} of {words} -> {p}");
                seen[p] = true;
            }
        }
    }

    #[test]
    fn a_lane_finds_its_four_words_in_one_vector() {
        for lane in 0..32 {
            for step in 0..4 {
                assert_eq!(word_position(256 + step * 32 + lane, 400), 256 + lane * 4 + step);
            }
        }
        // 400 = 3 tiles + 16 words: the rest is in plain order.
        assert_eq!(word_position(384, 400), 384);
        assert_eq!(word_position(399, 400), 399);
    }
}
