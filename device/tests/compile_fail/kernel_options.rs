use warpsmith_device::prelude::*;

/// No block.
#[kernel]
pub unsafe fn missing(y: Out<f32>) {}

/// No block either.
#[kernel(min_blocks = 2)]
pub unsafe fn also_missing(y: Out<f32>) {}

/// An empty block.
#[kernel(block = 0)]
pub unsafe fn empty(y: Out<f32>) {}

/// An empty block in one dimension.
#[kernel(block = (32, 0))]
pub unsafe fn flat(y: Out<f32>) {}

/// Too many threads.
#[kernel(block = 1025)]
pub unsafe fn large(y: Out<f32>) {}

/// Too many threads in all.
#[kernel(block = (32, 33))]
pub unsafe fn wide(y: Out<f32>) {}

/// Four dimensions.
#[kernel(block = (1, 1, 1, 1))]
pub unsafe fn four(y: Out<f32>) {}

/// Not a number.
#[kernel(block = "256")]
pub unsafe fn text(y: Out<f32>) {}

/// No blocks at a time.
#[kernel(block = 32, min_blocks = 0)]
pub unsafe fn none(y: Out<f32>) {}

/// A key that there is not.
#[kernel(block = 32, grid = 7)]
pub unsafe fn unknown(y: Out<f32>) {}

/// A key twice.
#[kernel(block = 32, block = 64)]
pub unsafe fn twice(y: Out<f32>) {}

/// A key without a value.
#[kernel(block)]
pub unsafe fn bare(y: Out<f32>) {}

/// A name that PTX does not take.
#[kernel(block = 32, name = "rms-norm")]
pub unsafe fn named(y: Out<f32>) {}

/// No name.
#[kernel(block = 32, family = "")]
pub unsafe fn nameless(y: Out<f32>) {}

fn main() {}
