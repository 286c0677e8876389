use warpsmith_device::prelude::*;

/// Not declared plain data.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Plain {
    /// A number.
    pub n: u32,
}

/// A struct by value that is no `Element`.
#[kernel(block = 32)]
pub unsafe fn by_value(p: Plain) {}

/// A buffer of such structs.
#[kernel(block = 32)]
pub unsafe fn buffer(x: In<Plain>) {}

/// A buffer of truth values.
#[kernel(block = 32)]
pub unsafe fn truths(y: Out<bool>) {}

/// A buffer of references.
#[kernel(block = 32)]
pub unsafe fn references(y: InOut<&'static f32>) {}

fn main() {}
