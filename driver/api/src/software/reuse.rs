//! Addresses that come again: a GPU's driver hands out the addresses of freed memory, often those freed last, which this one does
//! not, so that a use after free is seen. Caches that are keyed by addresses are wrong there and right here; tests of caches
//! therefore run in this mode, which `WARPSMITH_REUSE` and [`reuse_addresses`] ask for.

use std::sync::Mutex;

use super::tables::device::Device;
use super::tables::software::engine;
use crate::lock::lock;

static ASKED: Mutex<Asked> = Mutex::new(Asked { environment: false, guards: 0 });

struct Asked {
    environment: bool,
    guards: usize,
}

impl Asked {
    fn tell(&self, devices: &[Device]) {
        let on = self.environment || self.guards > 0;
        devices.iter().for_each(|d| d.machine.memory().reuse(on));
    }
}

/// The engine starts.
pub(super) fn start(environment: bool, devices: &[Device]) {
    let mut asked = lock(&ASKED);
    asked.environment = environment;
    asked.tell(devices);
}

/// Keeps addresses of freed memory coming again, for all threads of the process.
#[must_use = "the mode ends when the guard is dropped"]
#[derive(Debug)]
pub struct ReuseGuard(());

impl Drop for ReuseGuard {
    fn drop(&mut self) {
        change(|guards| guards.saturating_sub(1));
    }
}

/// From now on, and until the last guard is dropped, memory of the software driver's devices that is freed is handed out again at
/// once: an allocation gets the lowest freed range of its size (in steps of 64 KiB), so that the same sizes in the same order get the same
/// addresses.
///
/// ```
/// use warpsmith_driver_api::software::reuse_addresses;
/// let guard = reuse_addresses();
/// // … allocations and frees …
/// drop(guard);
/// ```
pub fn reuse_addresses() -> ReuseGuard {
    change(|guards| guards + 1);
    ReuseGuard(())
}

fn change(to: impl FnOnce(usize) -> usize) {
    let mut asked = lock(&ASKED);
    asked.guards = to(asked.guards);
    if let Ok(engine) = engine() {
        asked.tell(engine.devices);
    }
}
