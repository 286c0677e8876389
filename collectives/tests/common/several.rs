//! Eight devices of the software driver, and its checks.

use std::sync::{Mutex, MutexGuard, PoisonError};
use warpsmith_driver_api::software::{Checks, check, take_findings};
use warpsmith_runtime::Device;

static TURN: Mutex<()> = Mutex::new(());

/// The first of eight devices. They and findings are the process's: one test at a time.
pub fn devices(count: usize) -> (Vec<Device>, MutexGuard<'static, ()>) {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: every test begins here with the same values, and nothing else reads the environment meanwhile.
    unsafe {
        std::env::set_var("WARPSMITH_DEVICES", "8");
        std::env::set_var("WARPSMITH_DRIVER", "software");
    }
    ((0..count as u32).map(|ordinal| Device::open(ordinal).unwrap()).collect(), turn)
}

/// Runs `f` under all checks; nothing may be found.
pub fn clean<R>(f: impl FnOnce() -> R) -> R {
    let guard = check(Checks::ALL);
    let result = f();
    drop(guard);
    let found = take_findings();
    assert!(found.is_empty(), "{} findings, the first: {}", found.len(), found[0]);
    result
}
