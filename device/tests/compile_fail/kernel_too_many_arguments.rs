use warpsmith_device::prelude::*;

/// Five thousand bytes.
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub struct Large {
    /// Many numbers.
    pub numbers: [u32; 1250],
}

/// More than a launch carries.
#[kernel(block = 32)]
pub unsafe fn overfull(p: Large) {}

fn main() {}
