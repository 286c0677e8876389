use warpsmith_device::prelude::*;

/// The symbol is the macro's to choose.
#[kernel(block = 32)]
#[unsafe(no_mangle)]
pub unsafe fn symbol(y: Out<f32>) {}

/// So is inlining.
#[kernel(block = 32)]
#[inline(never)]
pub unsafe fn inlined(y: Out<f32>) {}

/// Arguments carry documentation only.
#[kernel(block = 32)]
pub unsafe fn argument(#[cfg(test)] y: Out<f32>) {}

fn main() {}
