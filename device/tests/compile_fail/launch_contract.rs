use warpsmith_device::prelude::*;

/// y = 0.
#[kernel(block = 32)]
pub unsafe fn zero(y: Out<f32>) {}

/// A stream, as far as types go.
pub struct Stream;
impl Stream {
    /// Launches.
    pub fn launch<K: Contract>(&self, _: K) {}
}

fn no_contract(stream: &Stream, y: &mut DeviceSlice<f32>) {
    stream.launch(Zero { y });
}

fn not_a_kernel(stream: &Stream) {
    stream.launch(7);
}

fn main() {}
