use warpsmith_device::prelude::*;

fn copied_out(slice: &DeviceSlice<f32>) {
    let _copy = *slice;
}

fn cloned(slice: &mut DeviceSlice<f32>) -> DeviceSlice<f32> {
    slice.clone()
}

fn swapped(a: &mut DeviceSlice<f32>, b: &mut DeviceSlice<f32>) {
    core::mem::swap(a, b);
}

fn read_on_the_host(slice: &DeviceSlice<f32>) -> f32 {
    slice[0]
}

fn across_threads(slice: &DeviceSlice<*const f32>) {
    fn send<T: Send>(_: T) {}
    send(slice);
}

fn as_something_else(slice: &DeviceSlice<f32>) {
    let _ = slice.cast::<bool>();
}

fn main() {}
