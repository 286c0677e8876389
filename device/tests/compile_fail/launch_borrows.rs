use core::ops::{Deref, DerefMut};
use warpsmith_device::prelude::*;

/// y = x.
#[kernel(block = 32)]
pub unsafe fn copy(x: In<f32>, y: Out<f32>) {}

/// Two results.
#[kernel(block = 32)]
pub unsafe fn both(y: Out<f32>, z: Out<f32>) {}

/// A buffer, as far as borrows go.
pub struct Buffer(u64);
impl Deref for Buffer {
    type Target = DeviceSlice<f32>;
    fn deref(&self) -> &DeviceSlice<f32> {
        unsafe { DeviceSlice::from_raw(self.0, 16) }
    }
}
impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut DeviceSlice<f32> {
        unsafe { DeviceSlice::from_raw_mut(self.0, 16) }
    }
}

fn in_and_out(mut buffer: Buffer) {
    let _launch = Copy { x: &buffer, y: &mut buffer };
}

fn out_twice(mut buffer: Buffer) {
    let _launch = Both { y: &mut buffer, z: &mut buffer };
}

fn overlapping_parts(buffer: &mut DeviceSlice<f32>) {
    let (a, b) = (&mut buffer[..8], &mut buffer[4..]);
    let _launch = Both { y: a, z: b };
}

fn outlives() -> &'static DeviceSlice<f32> {
    let buffer = Buffer(0x1000);
    &buffer[..8]
}

fn outlives_in_a_launch() -> Copy<'static> {
    let (buffer, mut result) = (Buffer(0x1000), Buffer(0x2000));
    Copy { x: &buffer, y: &mut result }
}

fn freed_while_lent(buffer: Buffer) {
    let part = &buffer[..8];
    drop(buffer);
    println!("{part:?}");
}

fn main() {}
