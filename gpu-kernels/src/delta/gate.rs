//! Gates of attention's results: `x[n, i] = x[n, i] / (1 + e^-gate[n, i])`, in place, for each of `cols` elements of a column. Source: Qiu et al.,
//! arXiv 2505.06708.
//!
//! | | |
//! |---|---|
//! | `x` | f32, column `n` from `n * stride` on: `[cols]` |
//! | `gate` | f32, column `n` from `n * gate_stride` on: `[cols]` |
//!
//! A thread takes an element, which is off by `2^-20` of itself.

use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// [`GateHeads`] in f64.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: f32, gate: f32) -> f64 {
    f64::from(x) / (1.0 + (-f64::from(gate)).exp())
}

/// `x = x * sigmoid(gate)`, an element a thread.
#[kernel(block = THREADS, min_blocks = 4, family = "delta")]
pub unsafe fn gate_heads(x: InOut<f32>, gate: Awaited<f32>, cols: u32, columns: u32, stride: u32, gate_stride: u32) {
    grid::wait_dependencies();
    grid::launch_dependents();
    // The grid has them.
    let _ = columns;
    let (column, i) = (block::idx_y() as usize, (block::idx_x() * THREADS + thread::idx_x()) as usize);
    if i < cols as usize {
        let at = column * stride as usize + i;
        x.set(at, x.get(at) * math::sigmoid(gate.buffer().at(column * gate_stride as usize + i)));
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for GateHeads<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::grid(self.cols.div_ceil(THREADS), self.columns, 1u32)
    }
    fn check(&self) -> Result<(), ContractError> {
        let (m, columns, cols) = (Self::META, self.columns as usize, (self.cols.into(), "cols"));
        contract::within(m, "cols", self.cols, 1u32, i32::MAX)?;
        contract::within(m, "columns", self.columns, 1u32, (Geometry::MAX_GRID[1], "rows of a grid"))?;
        crate::state::check_strided(m, "x", self.x.len(), (columns, self.stride), cols)?;
        crate::state::check_strided(m, "gate", self.gate.len(), (columns, self.gate_stride), cols)
    }
}
