//! `y[c, r] = x[r, c]` for a matrix of f32 `[rows, cols]`, without gaps between rows. Nothing is computed: a transposition
//! is where the address of a load and that of a store cannot both be what a warp likes.
//!
//! A block of 32 by 8 threads takes 32 by 32 elements, each thread four of a column.

use warpsmith_device::prelude::*;

/// Rows and columns that a block takes.
pub const TILE: u32 = 32;
/// Rows of a tile that the block takes at a time.
#[cfg(target_arch = "nvptx64")]
const STEP: usize = 8;

/// The definition.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: &[f32], rows: usize, cols: usize) -> Vec<f64> {
    (0..rows * cols).map(|i| f64::from(x[i % rows * cols + i / rows])).collect()
}

/// Step 6, the plain way: a warp loads a piece of a row, and has to store it as a piece of a column.
#[kernel(block = (32, 8), min_blocks = 4, variant = "step 6")]
pub unsafe fn transpose(x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    let (rows, cols) = (rows as usize, cols as usize);
    let c = block::idx_x() as usize * 32 + thread::idx_x() as usize;
    let first = block::idx_y() as usize * 32 + thread::idx_y() as usize;
    for step in 0..4 {
        let r = first + step * STEP;
        if r < rows && c < cols {
            y.set(c * rows + r, x.at(r * cols + c));
        }
    }
}

/// Loads the block's tile, waits, and stores it transposed; element `(r, c)` of the tile is kept at `place(r, c)`.
#[device]
#[cfg(target_arch = "nvptx64")]
unsafe fn through(
    tile: shared::Shared<f32>,
    place: impl Fn(usize, usize) -> usize,
    x: In<f32>,
    y: Out<f32>,
    rows: usize,
    cols: usize,
) {
    let (tx, ty) = (thread::idx_x() as usize, thread::idx_y() as usize);
    let (c0, r0) = (block::idx_x() as usize * 32, block::idx_y() as usize * 32);
    // SAFETY: all threads of the block make this call; indices are below the lengths; the barrier orders the accesses.
    unsafe {
        for step in 0..4 {
            let r = ty + step * STEP;
            if r0 + r < rows && c0 + tx < cols {
                tile.set(place(r, tx), x.at((r0 + r) * cols + c0 + tx));
            }
        }
        sync::block();
        for step in 0..4 {
            let c = ty + step * STEP;
            if r0 + tx < rows && c0 + c < cols {
                y.set((c0 + c) * rows + r0 + tx, tile.get(place(tx, c)));
            }
        }
    }
}

/// Step 7, a tile in shared memory: rows are loaded and rows are stored; only shared memory sees columns.
///
/// It has 32 banks, each a word wide. The words of a column of this tile are 32 apart and all lie in one bank: a load of a
/// column takes 32 passes.
#[kernel(block = (32, 8), min_blocks = 4, variant = "step 7")]
pub unsafe fn transpose_tile(x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    let tile = shared_array!(TRANSPOSE_TILE: [f32; 32 * 32]);
    through(tile, |r, c| 32 * r + c, x, y, rows as usize, cols as usize);
}

/// Step 8, a swizzle: row `r` keeps its column `c` at `c ^ r`, so that rows as well as columns lie in 32 different banks.
#[kernel(block = (32, 8), min_blocks = 4, variant = "step 8")]
pub unsafe fn transpose_swizzled(x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    let tile = shared_array!(TRANSPOSE_SWIZZLED: [f32; 32 * 32]);
    through(tile, |r, c| 32 * r + (c ^ r), x, y, rows as usize, cols as usize);
}

#[cfg(not(target_arch = "nvptx64"))]
macro_rules! contracts {
    ($($Name:ident),*) => { $(
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::grid(self.cols.div_ceil(TILE), self.rows.div_ceil(TILE), 1)
            }
            fn check(&self) -> Result<(), ContractError> {
                contract::within(Self::META, "rows", self.rows, 1u32, 65535 * TILE)?;
                contract::within(Self::META, "cols", self.cols, 1u32, i32::MAX)?;
                let n = contract::product(Self::META, "x", &[self.rows.into(), self.cols.into()])?;
                contract::exactly(Self::META, "x", self.x.len(), (n, "rows * cols"))?;
                contract::exactly(Self::META, "y", self.y.len(), (n, "rows * cols"))
            }
        }
    )* };
}
#[cfg(not(target_arch = "nvptx64"))]
contracts!(Transpose, TransposeTile, TransposeSwizzled);
