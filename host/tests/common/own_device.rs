//! Tests run side by side. A device of the software driver runs one kernel at a time, so each test that runs has one of its own.

use std::sync::{Mutex, Once, PoisonError};
use std::thread::available_parallelism;
use warpsmith_host::Device;

/// Tests that use a device, by device.
static USERS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A test's device, until its thread ends.
struct Own(usize);

impl Own {
    /// The one that fewest tests use.
    fn take() -> Own {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        users.resize(Device::count().unwrap() as usize, 0);
        let own = (0..users.len()).min_by_key(|&i| users[i]).unwrap();
        users[own] += 1;
        Own(own)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        USERS.lock().unwrap_or_else(PoisonError::into_inner)[self.0] -= 1;
    }
}

/// The device of the test whose thread calls; of a driver with one device, that.
pub fn own_device() -> Device {
    static MANY: Once = Once::new();
    MANY.call_once(|| {
        let many = available_parallelism().map_or(1, |n| n.get().min(4));
        if std::env::var_os("WARPSMITH_DEVICES").is_none() {
            // SAFETY: every test that uses a device begins here, and nothing else writes the environment meanwhile.
            unsafe { std::env::set_var("WARPSMITH_DEVICES", many.to_string()) };
        }
    });
    thread_local!(static OWN: Own = Own::take());
    Device::open(OWN.with(|own| own.0 as u32)).unwrap()
}
