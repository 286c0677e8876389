use warpsmith_device::prelude::*;

/// y = x + y.
#[kernel(block = 32)]
pub unsafe fn add(x: In<f32>, y: InOut<f32>, n: u32) {}

fn wrong_element(x: &DeviceSlice<f16>, y: &mut DeviceSlice<f32>) {
    let _ = Add { x, y, n: 1 };
}

fn missing_argument(x: &DeviceSlice<f32>, y: &mut DeviceSlice<f32>) {
    let _ = Add { x, y };
}

fn unknown_argument(x: &DeviceSlice<f32>, y: &mut DeviceSlice<f32>) {
    let _ = Add { x, y, n: 1, m: 2 };
}

fn shared_for_exclusive(x: &DeviceSlice<f32>, y: &DeviceSlice<f32>) {
    let _ = Add { x, y, n: 1 };
}

fn wrong_number(x: &DeviceSlice<f32>, y: &mut DeviceSlice<f32>) {
    let _ = Add { x, y, n: 1u64 };
}

fn host_memory(x: &[f32], y: &mut DeviceSlice<f32>) {
    let _ = Add { x, y, n: 1 };
}

fn main() {}
