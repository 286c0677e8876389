use warpsmith_device::prelude::*;

/// Slices.
#[kernel(block = 32)]
pub unsafe fn slices(x: &[f32], y: &mut [f32], z: [f32]) {}

/// References and pointers.
#[kernel(block = 32)]
pub unsafe fn references(x: &f32, y: &mut f32, p: *const f32, q: *mut f32) {}

/// Tuples and arrays.
#[kernel(block = 32)]
pub unsafe fn tuples(x: (u32, f32), y: [f32; 4]) {}

/// Things of the host.
#[kernel(block = 32)]
pub unsafe fn host(a: String, b: Vec<f32>, c: Option<u32>, d: Box<f32>) {}

/// Numbers of no fixed width, and such that not every bit pattern is one of.
#[kernel(block = 32)]
pub unsafe fn widths(a: usize, b: isize, c: bool, d: char, e: u128) {}

/// Functions and traits.
#[kernel(block = 32)]
pub unsafe fn dynamic(f: fn(f32) -> f32, g: impl Copy, h: dyn Copy) {}

/// A buffer of what?
#[kernel(block = 32)]
pub unsafe fn bare(x: In, y: Out<>) {}

/// Arguments are named.
#[kernel(block = 32)]
pub unsafe fn patterns((a, b): Pair, _: u32, ref c: u32, d @ 1: u32) {}

fn main() {}
