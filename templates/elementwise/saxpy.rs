//! `y[i] = a * x[i] + y[i]`: a thread an element.

use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// Scale a vector and add it to another, in place.
#[kernel(block = THREADS, min_blocks = 4)]
pub unsafe fn saxpy(x: In<f32>, y: InOut<f32>, a: f32, n: u32) {
    let i = thread::global_x();
    // The last block may reach past the end.
    if i < n as usize {
        // One instruction; `a * x + y` would be two.
        y.set(i, math::fma(a, x.at(i), y.get(i)));
    }
}

/// What every launch must satisfy: checked on the host, before the driver is called.
#[cfg(not(target_arch = "nvptx64"))]
impl Contract for Saxpy<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.n.div_ceil(THREADS))
    }

    fn check(&self) -> Result<(), ContractError> {
        contract::at_least(Self::META, "x", self.x.len(), (self.n, "n"))?;
        contract::at_least(Self::META, "y", self.y.len(), (self.n, "n"))
    }
}

/// The definition, in f64.
#[cfg(not(target_arch = "nvptx64"))]
pub fn reference(a: f32, x: &[f32], y: &[f32]) -> Vec<f64> {
    let one = |(x, y): (&f32, &f32)| f64::from(a) * f64::from(*x) + f64::from(*y);
    x.iter().zip(y).map(one).collect()
}
