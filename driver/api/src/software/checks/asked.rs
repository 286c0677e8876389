//! What is asked for, by the environment for the process and by a guard for a thread, and the findings that a thread has not taken.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, OnceLock};

use warpsmith_check::{Checks, Report};

use super::settings::Settings;

pub(super) static SETTINGS: OnceLock<Settings> = OnceLock::new();

thread_local! {
    pub(super) static OVERRIDE: Cell<Option<Checks>> = const { Cell::new(None) };
    pub(super) static PENDING: RefCell<Arc<Mutex<Vec<Report>>>> = RefCell::default();
}

pub(super) fn watched(checks: Checks) -> bool {
    checks != Checks::default()
}

/// What launches of the calling thread are watched for. With `WARPSMITH_PROFILE` all are counted, whoever checks them.
pub fn checks() -> Checks {
    let settings = SETTINGS.get().map_or_else(Checks::default, |s| s.checks);
    match OVERRIDE.try_with(Cell::get).ok().flatten() {
        Some(own) => Checks { profile: own.profile || settings.profile, ..own },
        None => settings,
    }
}
