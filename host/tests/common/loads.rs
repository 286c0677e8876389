//! How often code was loaded, as the software driver counts it.

use warpsmith_host::driver::software;
use warpsmith_host::{Device, Stream};

/// A device with nothing loaded, if it counts calls.
pub fn fresh() -> Option<(Device, Stream)> {
    let device = Device::open(0).unwrap();
    if !device.is_software() {
        eprintln!("skipped: calls are counted by the software driver");
        return None;
    }
    let stream = device.stream().unwrap();
    software::reset_call_counts();
    Some((device, stream))
}

/// Modules that this thread has loaded.
pub fn loaded() -> u64 {
    let counts = software::call_counts();
    counts.get("cuModuleLoadDataEx") + counts.get("cuModuleLoadData")
}
