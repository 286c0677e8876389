//! The repetition penalty: logits of tokens that were seen move away from being chosen.
//!
//! | | |
//! |---|---|
//! | `x` | f32 in place, column `c` from `c * stride` on: `[n]` |
//! | `seen` | u32 bitset, column `c` from `c * mask_stride` on; 0: one for all columns |
//! | `penalty` | more than 0; 1 changes nothing |
//!
//! `x / penalty` where `x > 0`, else `x * penalty`. A thread takes an element. Source: Keskar et al., arXiv 1909.05858, with
//! the sign rule of the transformers library.

#[cfg(not(target_arch = "nvptx64"))]
use super::argmax::{check_mask, check_rows};
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// A logit of a token that was seen. Exact: the same on host and device.
#[must_use]
#[inline(always)]
pub fn penalised(x: f32, penalty: f32) -> f32 {
    if x > 0.0 { x / penalty } else { x * penalty }
}

/// Penalises the logits of seen tokens.
#[kernel(block = THREADS, min_blocks = 4, family = "sampling")]
pub unsafe fn repetition_penalty(
    x: InOut<f32>,
    seen: In<u32>,
    columns: u32,
    n: u32,
    stride: u32,
    mask_stride: u32,
    penalty: f32,
) {
    let i = block::idx_x() as usize * THREADS as usize + thread::idx_x() as usize;
    let column = block::idx_y() as usize;
    if i < n as usize && column < columns as usize {
        let word = seen.at(column * mask_stride as usize + i / 32);
        if word >> (i % 32) & 1 != 0 {
            let at = column * stride as usize + i;
            x.set(at, penalised(x.get(at), penalty));
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for RepetitionPenalty<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::grid(self.n.div_ceil(THREADS), self.columns, 1u32)
    }
    fn check(&self) -> Result<(), ContractError> {
        let (m, columns) = (Self::META, self.columns as usize);
        contract::within(m, "columns", columns, 1u32, (Geometry::MAX_GRID[1], "rows of a grid"))?;
        check_rows(m, "x", self.x, (columns, self.n, self.stride))?;
        check_mask(m, "seen", self.seen, (columns, self.n, self.mask_stride))?;
        let fit = self.penalty > 0.0 && self.penalty.is_finite();
        contract::require(m, fit, "penalty", "a finite number above 0", self.penalty)
    }
}
