//! A third variant for F16: four rows a group of lanes instead of two, and nothing before or after the product.
//!
//! An activation that is staged serves four rows, and what a block does once is spread over twice as many weights; the sums
//! of a row are formed as the default entry point forms them, so the results have its bits. Arguments as for
//! [`GemvF16`](super::GemvF16).

#[cfg(not(target_arch = "nvptx64"))]
use super::contract::{check_columns, check_weights};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::frame;
#[cfg(not(target_arch = "nvptx64"))]
use super::parts;
use crate::format::F16;
use warpsmith_device::prelude::*;

/// F16 times f32.
#[kernel(block = 256, min_blocks = 2, family = "gemv", variant = "v3")]
pub unsafe fn gemv_f16_v3(weights: In<U32x4>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    let xs = shared_array!(GEMV_F16_V3: [F32x4; 128 * 8]);
    frame::rows::<F16, 4, 128>(weights, x, y, rows as usize, cols as usize, xs);
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for GemvF16V3<'_> {
    fn geometry(&self) -> Geometry {
        // Twice the rows of a block of the default.
        Geometry::blocks(parts(self.rows, self.cols, false).div_ceil(2))
    }
    fn check(&self) -> Result<(), ContractError> {
        let m = Self::META;
        contract::within(m, "rows", self.rows, 1u32, i32::MAX)?;
        check_weights::<F16>(m, ("weights", self.weights), self.rows.into(), self.cols, 0)?;
        check_columns(m, ("x", self.x), (1, "cols", self.cols), (self.cols, "cols"))?;
        contract::multiple_of(m, "x", (self.x.address(), "its address"), align_of::<F32x4>() as u32)?;
        contract::at_least(m, "y", self.y.len(), (self.rows, "rows"))
    }
}
