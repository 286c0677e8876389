//! Root-mean-square normalisation: `y[r, c] = x[r, c] / sqrt(mean_c x[r, c]^2 + eps) * w[c]`, x and y f32 `[rows, cols]`,
//! w f32 `[cols]`. Source: Zhang and Sennrich, arXiv 1910.07467.

use warpsmith_device::prelude::*;

/// Threads of a block, which takes a row.
pub const THREADS: u32 = 256;
/// Vectors of four elements that a thread of [`RmsNorm`] keeps.
const KEPT: usize = 4;
/// The longest row that [`RmsNorm`] takes.
pub const MAX_COLS: u32 = THREADS * 4 * KEPT as u32;

/// The definition in f64.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: &[f32], w: &[f32], eps: f32) -> Vec<f64> {
    let mut y = Vec::with_capacity(x.len());
    for row in x.chunks_exact(w.len()) {
        let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        y.extend(row.iter().zip(w).map(|(v, w)| f64::from(*v) * scale * f64::from(*w)));
    }
    y
}

/// Step 9, two kernels, the first: the sum of each row's squares.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 9")]
pub unsafe fn row_squares(x: In<f32>, sums: Out<f32>, cols: u32) {
    let scratch = shared_array!(ROW_SQUARES: [f32; 8]);
    let row = x.from(block::idx_x() as usize * cols as usize);
    let mut squares = 0.0;
    let mut v = thread::idx_x() as usize;
    while v < cols as usize / 4 {
        let [a, b, c, d] = row.load4(4 * v).0;
        squares = math::fma(a, a, math::fma(b, b, math::fma(c, c, math::fma(d, d, squares))));
        v += THREADS as usize;
    }
    let sum = block_reduce::sum_f32(squares, scratch);
    if thread::idx_x() == 0 {
        sums.set(block::idx_x() as usize, sum);
    }
}

/// Step 9, two kernels, the second: each element times its row's factor and its column's weight.
///
/// It reads `x` from memory again: what a kernel had in its registers is gone when the next one starts.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 9")]
pub unsafe fn scale_rows(x: In<f32>, sums: In<f32>, w: In<f32>, y: Out<f32>, cols: u32, eps: f32) {
    let first = block::idx_x() as usize * cols as usize;
    let (x, y) = (x.from(first), y.from(first));
    let scale = 1.0 / math::sqrt(sums.at(block::idx_x() as usize) / cols as f32 + eps);
    let mut v = thread::idx_x() as usize;
    while v < cols as usize / 4 {
        y.store4(4 * v, scaled(x.load4(4 * v).0, scale, w.load4(4 * v).0));
        v += THREADS as usize;
    }
}

/// Step 10, fusion: one kernel, which keeps its row in registers between the sum and the scaling.
///
/// One launch instead of two, `x` is read once, and the sums never see memory. The price is a longest row, which the
/// contract states.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 10")]
pub unsafe fn rms_norm(x: In<f32>, w: In<f32>, y: Out<f32>, cols: u32, eps: f32) {
    let scratch = shared_array!(RMS_NORM: [f32; 8]);
    let first = block::idx_x() as usize * cols as usize;
    let (x, y) = (x.from(first), y.from(first));
    let vectors = cols as usize / 4;
    let t = thread::idx_x() as usize;
    let mut kept = [[0.0f32; 4]; KEPT];
    let mut squares = 0.0;
    for (i, kept) in kept.iter_mut().enumerate() {
        let v = t + i * THREADS as usize;
        if v < vectors {
            *kept = x.load4(4 * v).0;
            let [a, b, c, d] = *kept;
            squares = math::fma(a, a, math::fma(b, b, math::fma(c, c, math::fma(d, d, squares))));
        }
    }
    let sum = block_reduce::sum_f32(squares, scratch);
    let scale = 1.0 / math::sqrt(sum / cols as f32 + eps);
    for (i, kept) in kept.iter().enumerate() {
        let v = t + i * THREADS as usize;
        if v < vectors {
            y.store4(4 * v, scaled(*kept, scale, w.load4(4 * v).0));
        }
    }
}

#[inline(always)]
#[cfg(target_arch = "nvptx64")]
fn scaled(x: [f32; 4], scale: f32, w: [f32; 4]) -> F32x4 {
    F32x4([x[0] * scale * w[0], x[1] * scale * w[1], x[2] * scale * w[2], x[3] * scale * w[3]])
}

#[cfg(not(target_arch = "nvptx64"))]
mod contracts {
    use super::*;

    /// A row is of whole vectors, and every row begins at a multiple of 16 bytes.
    fn rows(meta: &'static KernelMeta, x: &DeviceSlice<f32>, cols: u32, most: u32) -> Result<(), ContractError> {
        contract::within(meta, "cols", cols, 4u32, most)?;
        contract::multiple_of(meta, "cols", cols, 4u32)?;
        contract::multiple_of(meta, "x", x.len(), (cols, "cols"))?;
        contract::multiple_of(meta, "x", (x.address(), "its address"), 16u32)
    }

    fn scaling(
        meta: &'static KernelMeta,
        (x, w, y): (&DeviceSlice<f32>, &DeviceSlice<f32>, &DeviceSlice<f32>),
        (cols, most): (u32, u32),
        eps: f32,
    ) -> Result<(), ContractError> {
        rows(meta, x, cols, most)?;
        contract::require(meta, eps >= 0.0 && eps.is_finite(), "eps", "a finite number, not negative", eps)?;
        contract::exactly(meta, "w", w.len(), (cols, "cols"))?;
        contract::exactly(meta, "y", y.len(), (x.len(), "as `x`"))?;
        for (name, slice) in [("w", w), ("y", y)] {
            contract::multiple_of(meta, name, (slice.address(), "its address"), 16u32)?;
        }
        Ok(())
    }

    fn a_block_a_row(x: &DeviceSlice<f32>, cols: u32) -> Geometry {
        Geometry::blocks(x.len().checked_div(cols as usize).unwrap_or(0))
    }

    impl Contract for RowSquares<'_> {
        fn geometry(&self) -> Geometry {
            a_block_a_row(self.x, self.cols)
        }
        fn check(&self) -> Result<(), ContractError> {
            rows(Self::META, self.x, self.cols, i32::MAX as u32)?;
            contract::exactly(Self::META, "sums", self.sums.len(), (self.x.len() / self.cols as usize, "rows"))
        }
    }

    impl Contract for ScaleRows<'_> {
        fn geometry(&self) -> Geometry {
            a_block_a_row(self.x, self.cols)
        }
        fn check(&self) -> Result<(), ContractError> {
            scaling(Self::META, (self.x, self.w, self.y), (self.cols, i32::MAX as u32), self.eps)?;
            contract::exactly(Self::META, "sums", self.sums.len(), (self.x.len() / self.cols as usize, "rows"))
        }
    }

    impl Contract for RmsNorm<'_> {
        fn geometry(&self) -> Geometry {
            a_block_a_row(self.x, self.cols)
        }
        fn check(&self) -> Result<(), ContractError> {
            scaling(Self::META, (self.x, self.w, self.y), (self.cols, MAX_COLS), self.eps)
        }
    }
}
