//! Matrix times vector, the bulk of a decode step: `y[r] = sum_c w[r, c] * x[c] (+ residual[r])`.
//!
//! | | |
//! |---|---|
//! | weights | `[rows, cols]` in the planes of [`format`](crate::format), one entry point a format |
//! | `x` | f32 `[cols]`, at an address that is a multiple of 16 |
//! | `residual`, `y` | f32 `[rows]`; the `_residual` entries add `residual` in the same launch |
//! | `cols` | a multiple of the format's block; any for F32 and F16 |
//!
//! A warp takes a row and a block has 8 warps. Products and sums are f32 with fused multiply-adds;
//! the error stays within `1e-5 * sum |w * x|` of the exact sum. Which partial sums are formed
//! depends on the row's length alone, so results are the same in every run and on every device.
//!
//! [`Gemv`] picks the entry point from the format. [`blocks`] and [`dense`] hold the variants.

pub mod blocks;
pub mod dense;

#[cfg(not(target_arch = "nvptx64"))]
pub use launch::{Gemv, contract_of, geometry_of};

/// Rows that a block of threads computes: one a warp.
pub const ROWS_PER_BLOCK: usize = 8;
/// Threads of a block.
pub const THREADS: usize = 32 * ROWS_PER_BLOCK;

/// The product in f64: what every entry point is held to. `weights` are the decoded weights.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(weights: &[f32], x: &[f32], residual: Option<&[f32]>) -> Vec<f64> {
    let mut y = Vec::new();
    for (r, row) in weights.chunks_exact(x.len()).enumerate() {
        let mut sum = residual.map_or(0.0, |v| f64::from(v[r]));
        for (w, x) in row.iter().zip(x) {
            sum += f64::from(*w) * f64::from(*x);
        }
        y.push(sum);
    }
    y
}

/// `sum |w * x|` of every row: the scale of the error that is allowed.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn magnitudes(weights: &[f32], x: &[f32]) -> Vec<f64> {
    let magnitude = |row: &[f32]| row.iter().zip(x).map(|(w, x)| (f64::from(*w) * f64::from(*x)).abs()).sum();
    weights.chunks_exact(x.len()).map(magnitude).collect()
}

#[cfg(not(target_arch = "nvptx64"))]
mod launch {
    use super::{ROWS_PER_BLOCK, blocks, dense};
    use crate::format::Format;
    use warpsmith_device::prelude::*;

    /// The buffers of a GEMV, as [`contract_of`] looks at them.
    pub struct Shapes<'a> {
        pub(super) codes: &'a DeviceSlice<U32x4>,
        pub(super) scales: Option<&'a DeviceSlice<f16>>,
        pub(super) x: &'a DeviceSlice<f32>,
        pub(super) residual: Option<&'a DeviceSlice<f32>>,
        pub(super) y: &'a DeviceSlice<f32>,
        pub(super) rows: u32,
        pub(super) cols: u32,
    }

    impl<'a> Shapes<'a> {
        pub(super) fn new(
            codes: &'a DeviceSlice<U32x4>,
            scales: Option<&'a DeviceSlice<f16>>,
            x: &'a DeviceSlice<f32>,
            residual: Option<&'a DeviceSlice<f32>>,
            y: &'a DeviceSlice<f32>,
            rows: u32,
            cols: u32,
        ) -> Shapes<'a> {
            Shapes { codes, scales, x, residual, y, rows, cols }
        }
    }

    /// A block for every eight rows.
    #[must_use]
    pub fn geometry_of(rows: u32) -> Geometry {
        Geometry::blocks((rows as usize).div_ceil(ROWS_PER_BLOCK))
    }

    /// The contract that all entry points of a format share.
    pub fn contract_of(meta: &'static KernelMeta, format: Format, s: &Shapes<'_>) -> Result<(), ContractError> {
        contract::within(meta, "rows", s.rows, 1u32, i32::MAX)?;
        contract::require(meta, s.cols > 0, "cols", "at least 1", 0)?;
        contract::multiple_of(meta, "cols", s.cols, (format.block_elems(), "a block"))?;
        let sizes = format
            .plane_sizes(s.rows as usize, s.cols as usize)
            .map_err(|e| contract::error(meta, "cols", "a shape that the format allows", e))?;
        let codes = if s.scales.is_some() { "codes" } else { "weights" };
        contract::exactly(meta, codes, s.codes.len(), (sizes.codes, "16-byte vectors of rows * cols"))?;
        if let Some(scales) = s.scales {
            contract::exactly(meta, "scales", scales.len(), (sizes.scales, "rows of blocks, padded to 8"))?;
        }
        contract::at_least(meta, "x", s.x.len(), (s.cols, "cols"))?;
        contract::multiple_of(meta, "x", (s.x.address(), "its address"), 16u32)?;
        if let Some(residual) = s.residual {
            contract::at_least(meta, "residual", residual.len(), (s.rows, "rows"))?;
        }
        contract::at_least(meta, "y", s.y.len(), (s.rows, "rows"))
    }

    /// A GEMV over a tensor of any format, with or without a residual.
    pub struct Gemv<'a> {
        /// The tensor's format.
        pub format: Format,
        /// Its codes plane.
        pub codes: &'a DeviceSlice<U32x4>,
        /// Its scales plane; empty for F32 and F16.
        pub scales: &'a DeviceSlice<f16>,
        /// The vector.
        pub x: &'a DeviceSlice<f32>,
        /// What is added to the product.
        pub residual: Option<&'a DeviceSlice<f32>>,
        /// The result.
        pub y: &'a mut DeviceSlice<f32>,
        /// Rows of the tensor.
        pub rows: u32,
        /// Columns of the tensor.
        pub cols: u32,
    }

    macro_rules! blocks {
        ($self:ident, $launcher:ident, $plain:ident, $with_residual:ident) => {{
            let Gemv { codes, scales, x, residual, y, rows, cols, .. } = $self;
            match residual {
                None => $launcher.launch(blocks::$plain { codes, scales, x, y, rows, cols }),
                Some(residual) => {
                    $launcher.launch(blocks::$with_residual { codes, scales, x, residual, y, rows, cols })
                }
            }
        }};
    }
    macro_rules! dense {
        ($self:ident, $launcher:ident, $plain:ident, $with_residual:ident) => {{
            let Gemv { codes: weights, x, residual, y, rows, cols, .. } = $self;
            match residual {
                None => $launcher.launch(dense::$plain { weights, x, y, rows, cols }),
                Some(residual) => $launcher.launch(dense::$with_residual { weights, x, residual, y, rows, cols }),
            }
        }};
    }

    impl Gemv<'_> {
        /// Launches the format's entry point.
        pub fn launch<L: Launcher>(self, launcher: &mut L) -> Result<(), L::Error> {
            match self.format {
                Format::F32 => dense!(self, launcher, GemvF32, GemvF32Residual),
                Format::F16 => dense!(self, launcher, GemvF16, GemvF16Residual),
                Format::Q8_0 => blocks!(self, launcher, GemvQ80, GemvQ80Residual),
                Format::Q4_0 => blocks!(self, launcher, GemvQ40, GemvQ40Residual),
                Format::Q1_0 => blocks!(self, launcher, GemvQ10, GemvQ10Residual),
            }
        }
    }
}
#[cfg(not(target_arch = "nvptx64"))]
use launch::Shapes;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_the_definition() {
        let w = [1.0, 2.0, 3.0, -4.0, 0.5, 0.25];
        let x = [2.0, -1.0, 4.0];
        assert_eq!(reference(&w, &x, None), [12.0, -7.5]);
        assert_eq!(reference(&w, &x, Some(&[1.0, 2.0])), [13.0, -5.5]);
        assert_eq!(magnitudes(&w, &x), [16.0, 9.5]);
    }
}
