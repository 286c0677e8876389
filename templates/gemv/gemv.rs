//! `y[r] = sum_c w[r, c] * x[c]`: a matrix of f32 `[rows, cols]`, without gaps between rows, times
//! a vector. A warp takes a row, and a lane 16 bytes of it at a time.

use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Rows of a block: one for each of its warps.
pub const ROWS: u32 = THREADS / 32;

/// A matrix times a vector.
#[kernel(block = THREADS, min_blocks = 4)]
pub unsafe fn gemv(w: In<f32>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    let r = (block::idx_x() * ROWS + thread::warp()) as usize;
    // The same for all lanes of a warp, so that the sum below finds all of them.
    if r < rows as usize {
        let w = w.from(r * cols as usize);
        let mut sum = 0.0;
        let mut c = thread::lane() as usize * 4;
        while c < cols as usize {
            let (w, x) = (w.load4(c).0, x.load4(c).0);
            sum = math::fma(w[0], x[0], sum);
            sum = math::fma(w[1], x[1], sum);
            sum = math::fma(w[2], x[2], sum);
            sum = math::fma(w[3], x[3], sum);
            c += 32 * 4;
        }
        let sum = warp::sum_f32(sum);
        if thread::lane() == 0 {
            y.set(r, sum);
        }
    }
}

/// What every launch must satisfy: checked on the host, before the driver is called.
#[cfg(not(target_arch = "nvptx64"))]
impl Contract for Gemv<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.rows.div_ceil(ROWS))
    }

    fn check(&self) -> Result<(), ContractError> {
        contract::within(Self::META, "rows", self.rows, 1u32, i32::MAX)?;
        contract::within(Self::META, "cols", self.cols, 1u32, i32::MAX)?;
        contract::multiple_of(Self::META, "cols", self.cols, 4u32)?;
        let weights = contract::product(Self::META, "w", &[self.rows.into(), self.cols.into()])?;
        contract::exactly(Self::META, "w", self.w.len(), (weights, "rows * cols"))?;
        contract::exactly(Self::META, "x", self.x.len(), (self.cols, "cols"))?;
        contract::exactly(Self::META, "y", self.y.len(), (self.rows, "rows"))?;
        // Loads of 16 bytes need addresses that are multiples of 16.
        for (name, slice) in [("w", self.w), ("x", self.x)] {
            contract::multiple_of(Self::META, name, (slice.address(), "its address"), 16u32)?;
        }
        Ok(())
    }
}

/// The definition, in f64: each row's product, and its sum of magnitudes, by which an error is
/// judged.
#[cfg(not(target_arch = "nvptx64"))]
pub fn reference(w: &[f32], x: &[f32]) -> Vec<(f64, f64)> {
    w.chunks_exact(x.len())
        .map(|row| {
            row.iter()
                .zip(x)
                .map(|(w, x)| f64::from(*w) * f64::from(*x))
                .fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()))
        })
        .collect()
}
