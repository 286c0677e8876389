use warpsmith_device::prelude::*;

/// Safe to call: it is not.
#[kernel(block = 32)]
pub fn safe(y: Out<f32>) {}

/// A result.
#[kernel(block = 32)]
pub unsafe fn returns(y: Out<f32>) -> u32 {
    0
}

/// For every type.
#[kernel(block = 32)]
pub unsafe fn generic<T: Element>(y: Out<T>) {}

/// For every length.
#[kernel(block = 32)]
pub unsafe fn const_generic<const N: usize>(y: Out<f32>) {}

/// For every lifetime.
#[kernel(block = 32)]
pub unsafe fn lifetime<'a>(y: Out<f32>) {}

/// Under a condition.
#[kernel(block = 32)]
pub unsafe fn condition(y: Out<f32>)
where
    u32: Copy,
{
}

/// Later.
#[kernel(block = 32)]
pub async unsafe fn later(y: Out<f32>) {}

/// At compile time.
#[kernel(block = 32)]
pub const unsafe fn early(y: Out<f32>) {}

/// An ABI of one's own.
#[kernel(block = 32)]
pub unsafe extern "C" fn abi(y: Out<f32>) {}

/// Everything at once: each fault is reported.
#[kernel(block = 32)]
pub fn all<T>(self, y: &[T]) -> T {}

/// A method.
pub struct Owner;
impl Owner {
    #[kernel(block = 32)]
    pub unsafe fn method(&self, y: Out<f32>) {}
}

/// Not a function.
#[kernel(block = 32)]
pub struct NotAFunction;

fn main() {}
