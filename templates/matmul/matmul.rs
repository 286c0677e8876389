//! `c[i, j] = sum_k a[i, k] * b[k, j]` for matrices of f32 without gaps between rows: `a` is
//! `[m, k]`, `b` is `[k, n]`, `c` is `[m, n]`.
//!
//! A block computes a tile of 16 by 16 elements of `c`, a thread each. It goes along `k` in steps
//! of 16: the block loads a tile of `a` and one of `b` into shared memory, and every loaded element
//! is used 16 times from there.

use warpsmith_device::prelude::*;

/// Rows and columns of a tile, and threads of a block in x and in y.
pub const TILE: u32 = 16;
/// The same, as an index.
pub const T: usize = TILE as usize;

/// A product of two matrices, by tiles in shared memory.
#[kernel(block = (TILE, TILE), min_blocks = 4)]
pub unsafe fn matmul(a: In<f32>, b: In<f32>, c: Out<f32>, m: u32, n: u32, k: u32) {
    let tile_a = shared_array!(MATMUL_A: [f32; T * T]);
    let tile_b = shared_array!(MATMUL_B: [f32; T * T]);
    let (m, n, k) = (m as usize, n as usize, k as usize);
    let (x, y) = (thread::idx_x() as usize, thread::idx_y() as usize);
    let row = block::idx_y() as usize * T + y;
    let col = block::idx_x() as usize * T + x;
    let mut sum = 0.0;
    let mut step = 0;
    while step < k {
        // Past the edges of the matrices a tile is filled with zeros, which add nothing.
        let a = if row < m && step + x < k { a.at(row * k + step + x) } else { 0.0 };
        let b = if step + y < k && col < n { b.at((step + y) * n + col) } else { 0.0 };
        tile_a.set(y * T + x, a);
        tile_b.set(y * T + x, b);
        // Everyone has written before anyone reads.
        sync::block();
        let mut i = 0;
        while i < T {
            sum = math::fma(tile_a.get(y * T + i), tile_b.get(i * T + x), sum);
            i += 1;
        }
        // Everyone has read before anyone writes the next tile.
        sync::block();
        step += T;
    }
    if row < m && col < n {
        c.set(row * n + col, sum);
    }
}

/// What every launch must satisfy: checked on the host, before the driver is called.
#[cfg(not(target_arch = "nvptx64"))]
impl Contract for Matmul<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::grid(self.n.div_ceil(TILE), self.m.div_ceil(TILE), 1)
    }

    fn check(&self) -> Result<(), ContractError> {
        let (m, n, k) = (self.m.into(), self.n.into(), self.k.into());
        // A grid has at most 65535 blocks in y.
        contract::within(Self::META, "m", self.m, 1u32, 65_535 * TILE)?;
        contract::within(Self::META, "n", self.n, 1u32, i32::MAX)?;
        contract::within(Self::META, "k", self.k, 1u32, i32::MAX)?;
        let a = contract::product(Self::META, "a", &[m, k])?;
        let b = contract::product(Self::META, "b", &[k, n])?;
        let c = contract::product(Self::META, "c", &[m, n])?;
        contract::exactly(Self::META, "a", self.a.len(), (a, "m * k"))?;
        contract::exactly(Self::META, "b", self.b.len(), (b, "k * n"))?;
        contract::exactly(Self::META, "c", self.c.len(), (c, "m * n"))
    }
}

/// The definition, in f64: each element, and its sum of magnitudes, by which an error is judged.
#[cfg(not(target_arch = "nvptx64"))]
pub fn reference(a: &[f32], b: &[f32], n: u32, k: u32) -> Vec<(f64, f64)> {
    let (n, k) = (n as usize, k as usize);
    let element = |row: &[f32], col: usize| {
        row.iter()
            .enumerate()
            .map(|(i, a)| f64::from(*a) * f64::from(b[i * n + col]))
            .fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()))
    };
    let rows = a.chunks_exact(k);
    rows.flat_map(|row| (0..n).map(move |col| element(row, col))).collect()
}
