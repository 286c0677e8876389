//! `z[i] = x[i] + y[i]` for `n` elements of f32. It does one addition for 12 bytes of memory, so memory is all that counts.

use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Elements that a thread of [`AddRuns`] takes.
pub const RUN: u32 = 32;
/// Blocks that [`AddVectors`] has at most.
#[cfg(not(target_arch = "nvptx64"))]
const MAX_BLOCKS: u32 = 16;

/// The definition. An f64 holds the sum of two f32 with bits to spare, so that its rounding is the f32 addition.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: &[f32], y: &[f32]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| f64::from(*x) + f64::from(*y)).collect()
}

/// Step 1, a first kernel: a thread takes a run of neighbouring elements, as a thread of a CPU would.
///
/// The 32 lanes of a warp load at the same time, each from a run of its own: 32 pieces of memory, each fetched for the
/// sake of 4 bytes.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 1")]
pub unsafe fn add_runs(x: In<f32>, y: In<f32>, z: Out<f32>, n: u32) {
    let mut i = thread::global_x() * RUN as usize;
    let end = (i + RUN as usize).min(n as usize);
    while i < end {
        z.set(i, x.at(i) + y.at(i));
        i += 1;
    }
}

/// Step 2, coalescing: neighbouring lanes take neighbouring elements.
///
/// A warp's 32 loads are one request for 128 bytes in a row: four sectors of 32 bytes, all of them used.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 2")]
pub unsafe fn add(x: In<f32>, y: In<f32>, z: Out<f32>, n: u32) {
    let i = thread::global_x();
    if i < n as usize {
        z.set(i, x.at(i) + y.at(i));
    }
}

/// Step 3, 16 bytes an access, in a loop: a lane moves four elements at once, and goes on by as many as the grid has threads.
///
/// A quarter of the instructions, and more bytes under way a lane. The grid no longer depends on `n`: as many blocks as
/// the GPU holds are enough.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 3")]
pub unsafe fn add_vectors(x: In<f32>, y: In<f32>, z: Out<f32>, n: u32) {
    let n = n as usize;
    let mut v = thread::global_x();
    while v < n / 4 {
        let (a, b) = (x.load4(4 * v).0, y.load4(4 * v).0);
        z.store4(4 * v, F32x4([a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]]));
        v += thread::global_dim_x();
    }
    // Up to three elements are left.
    let i = n / 4 * 4 + thread::global_x();
    if i < n {
        z.set(i, x.at(i) + y.at(i));
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod contracts {
    use super::*;

    fn lengths(
        meta: &'static KernelMeta,
        x: &DeviceSlice<f32>,
        y: &DeviceSlice<f32>,
        z: &DeviceSlice<f32>,
        n: u32,
    ) -> Result<(), ContractError> {
        contract::within(meta, "n", n, 1u32, i32::MAX)?;
        contract::at_least(meta, "x", x.len(), (n, "n"))?;
        contract::at_least(meta, "y", y.len(), (n, "n"))?;
        contract::at_least(meta, "z", z.len(), (n, "n"))
    }

    impl Contract for AddRuns<'_> {
        fn geometry(&self) -> Geometry {
            Geometry::blocks(self.n.div_ceil(THREADS * RUN))
        }
        fn check(&self) -> Result<(), ContractError> {
            lengths(Self::META, self.x, self.y, self.z, self.n)
        }
    }

    impl Contract for Add<'_> {
        fn geometry(&self) -> Geometry {
            Geometry::blocks(self.n.div_ceil(THREADS))
        }
        fn check(&self) -> Result<(), ContractError> {
            lengths(Self::META, self.x, self.y, self.z, self.n)
        }
    }

    impl Contract for AddVectors<'_> {
        fn geometry(&self) -> Geometry {
            Geometry::blocks(self.n.div_ceil(4 * THREADS).min(MAX_BLOCKS))
        }
        fn check(&self) -> Result<(), ContractError> {
            lengths(Self::META, self.x, self.y, self.z, self.n)?;
            for (name, slice) in [("x", self.x), ("y", self.y), ("z", &*self.z)] {
                contract::multiple_of(Self::META, name, (slice.address(), "its address"), 16u32)?;
            }
            Ok(())
        }
    }
}
