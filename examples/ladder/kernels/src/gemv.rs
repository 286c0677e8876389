//! `y[r] = sum_c w[r, c] * x[c]`: a matrix of f32 `[rows, cols]` times a vector. Each weight is used once, so the floor is
//! the time in which memory delivers the weights; all else has to stay below that.

use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Rows of a block where a warp takes one.
pub(crate) const WARPS: u32 = THREADS / 32;
/// Elements of `x` that a block keeps in shared memory at a time.
#[cfg(target_arch = "nvptx64")]
pub(crate) const TILE: usize = 2048;

/// The definition, and the sum of magnitudes by which an error is judged.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(w: &[f32], x: &[f32]) -> Vec<(f64, f64)> {
    let product = |(w, x): (&f32, &f32)| f64::from(*w) * f64::from(*x);
    let row =
        |row: &[f32]| (row.iter().zip(x)).map(product).fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
    w.chunks_exact(x.len()).map(row).collect()
}

/// Step 11, a thread a row: the outputs are dealt out as the elements of step 2 were.
///
/// But neighbouring lanes read neighbouring rows, and those are a row's length apart: 32 sectors a request again.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 11")]
pub unsafe fn gemv_thread(w: In<f32>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    let r = thread::global_x();
    if r < rows as usize {
        let w = w.from(r * cols as usize);
        let mut sum = 0.0;
        let mut c = 0;
        while c < cols as usize {
            sum = math::fma(w.at(c), x.at(c), sum);
            c += 1;
        }
        y.set(r, sum);
    }
}

/// Step 12, a warp a row: lanes take neighbouring weights, and add up by shuffles in the end.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 12")]
pub unsafe fn gemv_warp(w: In<f32>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    let r = (block::idx_x() * WARPS + thread::warp()) as usize;
    // The same for all lanes of a warp, so that the sum below finds all of them.
    if r < rows as usize {
        let w = w.from(r * cols as usize);
        let mut sum = 0.0;
        let mut c = thread::lane() as usize;
        while c < cols as usize {
            sum = math::fma(w.at(c), x.at(c), sum);
            c += 32;
        }
        let sum = warp::sum_f32(sum);
        if thread::lane() == 0 {
            y.set(r, sum);
        }
    }
}

/// Step 13, 16 bytes a load: step 3 on weights and activations.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 13")]
pub unsafe fn gemv_vectors(w: In<f32>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    let r = (block::idx_x() * WARPS + thread::warp()) as usize;
    if r < rows as usize {
        let w = w.from(r * cols as usize);
        let mut sum = 0.0;
        let mut c = thread::lane() as usize * 4;
        while c < cols as usize {
            sum = add_products(w.load4(c).0, x.load4(c).0, sum);
            c += 128;
        }
        let sum = warp::sum_f32(sum);
        if thread::lane() == 0 {
            y.set(r, sum);
        }
    }
}

/// Step 14, activations in shared memory: the block loads `x` once, and its eight warps read it there.
///
/// Until now every row read `x` from global memory, as many bytes as its weights have. All threads take part in loading
/// and in the barriers, so that a warp without a row of its own works on the last row and drops the result.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 14")]
pub unsafe fn gemv_shared(w: In<f32>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    let tile = shared_array!(GEMV_SHARED: [f32; TILE]);
    let (rows, cols) = (rows as usize, cols as usize);
    let r = (block::idx_x() * WARPS + thread::warp()) as usize;
    let w = w.from(r.min(rows - 1) * cols);
    let mut sum = 0.0;
    let mut from = 0;
    while from < cols {
        let len = (cols - from).min(TILE);
        // Nobody reads the part before any more.
        sync::block();
        let mut c = thread::idx_x() as usize * 4;
        while c < len {
            tile.set4(c, x.load4(from + c));
            c += THREADS as usize * 4;
        }
        sync::block();
        let mut c = thread::lane() as usize * 4;
        while c < len {
            sum = add_products(w.load4(from + c).0, tile.get4(c).0, sum);
            c += 128;
        }
        from += TILE;
    }
    let sum = warp::sum_f32(sum);
    if thread::lane() == 0 && r < rows {
        y.set(r, sum);
    }
}

#[inline(always)]
#[cfg(target_arch = "nvptx64")]
pub(crate) fn add_products(w: [f32; 4], x: [f32; 4], sum: f32) -> f32 {
    math::fma(w[3], x[3], math::fma(w[2], x[2], math::fma(w[1], x[1], math::fma(w[0], x[0], sum))))
}

#[cfg(not(target_arch = "nvptx64"))]
mod contracts {
    use super::*;

    fn shapes(
        meta: &'static KernelMeta,
        (w, x, y): (&DeviceSlice<f32>, &DeviceSlice<f32>, &DeviceSlice<f32>),
        (rows, cols): (u32, u32),
        vector: u32,
    ) -> Result<(), ContractError> {
        contract::within(meta, "rows", rows, 1u32, i32::MAX)?;
        contract::within(meta, "cols", cols, 1u32, i32::MAX)?;
        contract::multiple_of(meta, "cols", cols, vector)?;
        contract::exactly(meta, "w", w.len(), (u64::from(rows) * u64::from(cols), "rows * cols"))?;
        contract::exactly(meta, "x", x.len(), (cols, "cols"))?;
        contract::exactly(meta, "y", y.len(), (rows, "rows"))?;
        for (name, slice) in [("w", w), ("x", x)] {
            contract::multiple_of(meta, name, (slice.address(), "its address"), 4 * vector)?;
        }
        Ok(())
    }

    macro_rules! contracts {
        ($($Name:ident: $rows:expr, $vector:literal;)*) => { $(
            impl Contract for $Name<'_> {
                fn geometry(&self) -> Geometry {
                    Geometry::blocks(self.rows.div_ceil($rows))
                }
                fn check(&self) -> Result<(), ContractError> {
                    shapes(Self::META, (self.w, self.x, self.y), (self.rows, self.cols), $vector)
                }
            }
        )* };
    }
    // Rows of a block, and elements that are loaded at once.
    contracts! {
        GemvThread: THREADS, 1;
        GemvWarp: WARPS, 1;
        GemvVectors: WARPS, 4;
        GemvShared: WARPS, 4;
    }
}
