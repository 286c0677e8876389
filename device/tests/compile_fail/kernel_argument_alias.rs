use warpsmith_device::prelude::*;

/// Another type of that name.
pub mod other {
    /// Not ours.
    pub struct In<T>(pub T);
}

/// The macro goes by the name; the compiler does not.
#[kernel(block = 32)]
pub unsafe fn foreign(x: other::In<f32>) {}

/// An alias hides what it is.
pub type Buffer = Out<f32>;

/// So it is taken for a struct.
#[kernel(block = 32)]
pub unsafe fn alias(y: Buffer) {}

fn main() {}
