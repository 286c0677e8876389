//! `y[b] = sum of block b's share of x`. Two launches give the sum of all elements: many blocks
//! over `x`, then one block over their results.

use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// Sums, one a block.
#[kernel(block = THREADS, min_blocks = 4)]
pub unsafe fn sum(x: In<f32>, y: Out<f32>, n: u32) {
    let scratch = shared_array!(SUM_SCRATCH: [f32; 32]);
    // A thread's share: neighbouring threads take neighbouring elements, a grid's width at a time.
    let mut share = 0.0;
    let mut i = thread::global_x();
    while i < n as usize {
        share += x.at(i);
        i += thread::global_dim_x();
    }
    // Shuffles within warps, shared memory and barriers between them: every thread takes part.
    let total = block_reduce::sum_f32(share, scratch);
    if thread::idx_x() == 0 {
        y.set(block::idx_x() as usize, total);
    }
}

/// What every launch must satisfy: checked on the host, before the driver is called. As many
/// blocks run as `y` has elements.
#[cfg(not(target_arch = "nvptx64"))]
impl Contract for Sum<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.y.len())
    }

    fn check(&self) -> Result<(), ContractError> {
        contract::at_least(Self::META, "x", self.x.len(), (self.n, "n"))?;
        contract::within(Self::META, "y", self.y.len(), 1u32, i32::MAX)
    }
}

/// The definition for one block, in f64: the sum, and the sum of magnitudes by which an error is
/// judged.
#[cfg(not(target_arch = "nvptx64"))]
pub fn reference(x: &[f32]) -> (f64, f64) {
    x.iter().map(|x| f64::from(*x)).fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()))
}
