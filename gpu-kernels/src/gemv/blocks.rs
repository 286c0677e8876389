//! GEMV over block formats: codes in one plane, scales in another.

#[cfg(not(target_arch = "nvptx64"))]
use super::{Shapes, contract_of, geometry_of};
#[cfg(not(target_arch = "nvptx64"))]
use crate::format::Format;
#[cfg(target_arch = "nvptx64")]
use crate::format::{Q1_0, Q4_0, Q8_0};
use warpsmith_device::prelude::*;

#[cfg(target_arch = "nvptx64")]
pub(super) mod frame {
    use super::super::ROWS_PER_BLOCK;
    pub use crate::load::lane;
    use crate::{
        format::{Block, TILE_WORDS, padded_scales, padded_words, word_position},
        load::{warp_index, word, x4},
    };
    use warpsmith_device::prelude::*;

    /// The row of this warp; lanes past the last row leave together.
    #[inline(always)]
    pub fn row() -> usize {
        block::idx_x() as usize * ROWS_PER_BLOCK + warp_index()
    }

    /// v1: a lane takes every 32nd element and looks up its word and its scale. Coalesced, and
    /// short enough to check by eye; but each weight costs two loads and the arithmetic of a place.
    #[device]
    pub unsafe fn by_element<F: Block>(codes: In<U32x4>, scales: In<f16>, x: In<f32>, row: usize, cols: usize) -> f32 {
        let blocks = cols / F::ELEMS;
        let words = blocks * F::WORDS;
        let (codes_row, scales_row) = (row * padded_words(words), row * padded_scales(blocks));
        let mut sum = 0.0;
        let mut c = lane();
        while c < cols {
            let (b, e) = (c / F::ELEMS, c % F::ELEMS);
            let at = word_position(b * F::WORDS + F::place_of(e), words);
            // SAFETY: within the planes of `rows` x `cols` that the contract asks for.
            unsafe {
                let d = convert::f16_to_f32(scales.at(scales_row + b));
                sum = math::fma(d * F::code(word(codes, codes_row + at), e), x.at(c), sum);
            }
            c += 32;
        }
        warp::sum_f32(sum)
    }

    /// v2: a lane loads 16 bytes of a tile past L1 and takes four words of it, 32 apart, so that the
    /// warp reads `x` in order; a scale is applied once a word, to an own partial sum for each of
    /// the four. After the last full tile a lane takes a word at a time, and in the end a part of one,
    /// so that short rows keep the warp busy too.
    #[device]
    pub unsafe fn by_tile<F: Block>(codes: In<U32x4>, scales: In<f16>, x: In<f32>, row: usize, cols: usize) -> f32 {
        let lane = lane();
        let blocks = cols / F::ELEMS;
        let words = blocks * F::WORDS;
        let scales_row = row * padded_scales(blocks);
        let vectors_row = row * (padded_words(words) / 4);
        let (place, lane_block) = (lane % F::WORDS, lane / F::WORDS);
        let tiles = words / TILE_WORDS;

        let mut acc = [0.0f32; 4];
        let mut tile = 0;
        while tile < tiles {
            // SAFETY: vector `lane` of a full tile of this row; the words' blocks are below `blocks`.
            unsafe {
                let v = codes.ld_nc128(vectors_row + tile * (TILE_WORDS / 4) + lane);
                for step in 0..4 {
                    let b = tile * (TILE_WORDS / F::WORDS) + step * (32 / F::WORDS) + lane_block;
                    let d = convert::f16_to_f32(scales.at(scales_row + b));
                    let dot = F::dot(v.0[step], place, lane, |i| x4(x, b * F::ELEMS + i));
                    acc[step] = math::fma(d, dot, acc[step]);
                }
            }
            tile += 1;
        }

        // Whole words, while there is one for every lane; then what is left of the row, in parts.
        let whole = words - words % 32;
        let mut w = tiles * TILE_WORDS + lane;
        while w < whole {
            let b = w / F::WORDS;
            // SAFETY: word `w` and block `b` of this row; after the last full tile words are in order.
            unsafe {
                let code = word(codes, vectors_row * 4 + w);
                let d = convert::f16_to_f32(scales.at(scales_row + b));
                let dot = F::dot(code, place, lane, |i| x4(x, b * F::ELEMS + i));
                acc[0] = math::fma(d, dot, acc[0]);
            }
            w += 32;
        }
        let mut unit = lane;
        while unit < (words - whole) * F::PARTS {
            let w = whole + unit / F::PARTS;
            let b = w / F::WORDS;
            // SAFETY: as above.
            unsafe {
                let code = word(codes, vectors_row * 4 + w);
                let d = convert::f16_to_f32(scales.at(scales_row + b));
                let dot = F::dot_part(code, w % F::WORDS, unit % F::PARTS, |i| x4(x, b * F::ELEMS + i));
                acc[1] = math::fma(d, dot, acc[1]);
            }
            unit += 32;
        }
        warp::sum_f32((acc[0] + acc[1]) + (acc[2] + acc[3]))
    }
}

macro_rules! entries {
    ($( $(#[$doc:meta])* $frame:ident::<$F:ident>, $variant:tt, $min_blocks:tt: $plain:ident $Plain:ident, $with_residual:ident $WithResidual:ident; )*) => { $(
        $(#[$doc])*
        #[kernel(block = 256, min_blocks = $min_blocks, family = "gemv", variant = $variant)]
        pub unsafe fn $plain(codes: In<U32x4>, scales: In<f16>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
            let row = frame::row();
            if row < rows as usize {
                let sum = frame::$frame::<$F>(codes, scales, x, row, cols as usize);
                if frame::lane() == 0 {
                    y.set(row, sum);
                }
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Plain<'_> {
            fn geometry(&self) -> Geometry {
                geometry_of(self.rows)
            }
            fn check(&self) -> Result<(), ContractError> {
                let s = Shapes::new(self.codes, Some(self.scales), self.x, None, self.y, self.rows, self.cols);
                contract_of(Self::META, Format::$F, &s)
            }
        }

        $(#[$doc])*
        ///
        /// With `residual` added.
        #[kernel(block = 256, min_blocks = $min_blocks, family = "gemv", variant = $variant)]
        pub unsafe fn $with_residual(codes: In<U32x4>, scales: In<f16>, x: In<f32>, residual: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
            let row = frame::row();
            if row < rows as usize {
                let sum = frame::$frame::<$F>(codes, scales, x, row, cols as usize);
                if frame::lane() == 0 {
                    y.set(row, sum + residual.at(row));
                }
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $WithResidual<'_> {
            fn geometry(&self) -> Geometry {
                geometry_of(self.rows)
            }
            fn check(&self) -> Result<(), ContractError> {
                let s = Shapes::new(self.codes, Some(self.scales), self.x, Some(self.residual), self.y, self.rows, self.cols);
                contract_of(Self::META, Format::$F, &s)
            }
        }
    )* };
}

entries! {
    /// Q8_0 times f32, an element a lane.
    by_element::<Q8_0>, "v1", 4: gemv_q8_0_v1 GemvQ80V1, gemv_q8_0_residual_v1 GemvQ80ResidualV1;
    /// Q8_0 times f32, 16 bytes of codes a lane.
    by_tile::<Q8_0>, "v2", 4: gemv_q8_0 GemvQ80, gemv_q8_0_residual GemvQ80Residual;
    /// Q4_0 times f32, an element a lane.
    by_element::<Q4_0>, "v1", 4: gemv_q4_0_v1 GemvQ40V1, gemv_q4_0_residual_v1 GemvQ40ResidualV1;
    /// Q4_0 times f32, 16 bytes of codes a lane.
    by_tile::<Q4_0>, "v2", 4: gemv_q4_0 GemvQ40, gemv_q4_0_residual GemvQ40Residual;
    /// Q1_0 times f32, an element a lane.
    by_element::<Q1_0>, "v1", 4: gemv_q1_0_v1 GemvQ10V1, gemv_q1_0_residual_v1 GemvQ10ResidualV1;
    /// Q1_0 times f32, 16 bytes of codes a lane.
    by_tile::<Q1_0>, "v2", 2: gemv_q1_0 GemvQ10, gemv_q1_0_residual GemvQ10Residual;
}
