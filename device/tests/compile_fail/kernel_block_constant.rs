use warpsmith_device::prelude::*;

const THREADS: usize = 2048;

/// The number is known to the compiler only.
#[kernel(block = THREADS)]
pub unsafe fn large(y: Out<f32>) {}

/// Too many in z.
#[kernel(block = (1, 1, 65))]
pub unsafe fn deep(y: Out<f32>) {}

fn main() {}
