//! The first variant, for one dense and one quantised format: a warp a row, an element a lane. Coalesced, and short enough
//! to check by eye; but each weight costs two loads and the arithmetic of a place.

#[cfg(not(target_arch = "nvptx64"))]
use super::contract::{check_columns, check_weights};
use crate::format::{F32, Q8_0};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::format::{decode::Decode, record::Record, record::UNIT};
use warpsmith_device::prelude::*;

/// Rows of a block.
const WARPS: u32 = 8;

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod frame {
    use super::*;
    use crate::load::{lane, warp_index};

    /// `weight(record, element)` times `x`, summed over the row of this warp; lanes past the last row leave together.
    #[device]
    pub unsafe fn run<F: Decode>(
        weights: In<U32x4>,
        x: In<f32>,
        y: Out<f32>,
        rows: u32,
        cols: u32,
        weight: impl Fn(In<U32x4>, &Record, usize) -> f32,
    ) {
        let row = block::idx_x() as usize * WARPS as usize + warp_index();
        if row < rows as usize {
            let record = F::record(cols as usize, 0);
            let weights = weights.from(row * record.vectors);
            let mut sum = 0.0;
            let mut c = lane();
            while c < cols as usize {
                sum = math::fma(weight(weights, &record, c), x.at(c), sum);
                c += 32;
            }
            let sum = warp::sum_f32(sum);
            if lane() == 0 {
                y.set(row, sum);
            }
        }
    }
}

/// F32 times f32.
#[kernel(block = 256, min_blocks = 4, family = "gemv", variant = "v1")]
pub unsafe fn gemv_f32_v1(weights: In<U32x4>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    frame::run::<F32>(weights, x, y, rows, cols, |weights, r, c| {
        let (u, e) = (c / UNIT, c % UNIT);
        // SAFETY: an element of the record.
        unsafe { weights.cast::<f32>().ld_nc(r.vector(u, e / 4, 8) * 4 + e % 4) }
    });
}

/// Q8_0 times f32.
#[kernel(block = 256, min_blocks = 4, family = "gemv", variant = "v1")]
pub unsafe fn gemv_q8_0_v1(weights: In<U32x4>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    frame::run::<Q8_0>(weights, x, y, rows, cols, |weights, r, c| {
        let (u, e) = (c / UNIT, c % UNIT);
        // SAFETY: an element of the record, and its scale.
        let (code, scale) = unsafe {
            let code = weights.cast::<u8>().at(r.vector(u, e / 16, 2) * 16 + e % 16);
            (code, weights.cast::<f16>().at(r.scales / 2 + u))
        };
        convert::f16_to_f32(scale) * (code as f32 - 128.0)
    });
}

macro_rules! contracts {
    ($($Name:ident: $F:ident;)*) => { $(
        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::blocks(self.rows.div_ceil(WARPS))
            }
            fn check(&self) -> Result<(), ContractError> {
                contract::within(Self::META, "rows", self.rows, 1u32, i32::MAX)?;
                check_weights::<$F>(Self::META, ("weights", self.weights), self.rows.into(), self.cols, 0)?;
                check_columns(Self::META, ("x", self.x), (1, "cols", self.cols), (self.cols, "cols"))?;
                contract::at_least(Self::META, "y", self.y.len(), (self.rows, "rows"))
            }
        }
    )* };
}
contracts! {
    GemvF32V1: F32;
    GemvQ80V1: Q8_0;
}
