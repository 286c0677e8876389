//! What the software engine tells beyond result codes: reports of faults, and profiles.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use warpsmith_simt::Counters;

use super::tables::software::settled;
use crate::lock::lock;

static LAST: Mutex<Option<String>> = Mutex::new(None);
static PROFILE: Mutex<BTreeMap<String, Totals>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Totals {
    launches: u64,
    time: Duration,
    counters: Counters,
}

/// What one kernel did in this process so far.
#[derive(Clone, Debug)]
pub struct KernelProfile {
    /// The kernel's name.
    pub name: String,
    /// How often it ran.
    pub launches: u64,
    /// Time on the CPU's clock, all launches together.
    pub seconds: f64,
    /// Counted work, all launches together.
    pub counters: Counters,
}

/// This process's last report: a device fault, a JIT log, or why something is not supported.
pub fn last_report() -> Option<String> {
    settled();
    lock(&LAST).clone()
}

/// Takes the last report, so that the next fault can be told from it.
pub fn take_report() -> Option<String> {
    settled();
    lock(&LAST).take()
}

/// Per kernel, in alphabetical order, for the whole process.
pub fn profile() -> Vec<KernelProfile> {
    settled();
    lock(&PROFILE)
        .iter()
        .map(|(name, e)| KernelProfile {
            name: name.clone(),
            launches: e.launches,
            seconds: e.time.as_secs_f64(),
            counters: e.counters,
        })
        .collect()
}

/// Forgets the profile.
pub fn reset_profile() {
    settled();
    lock(&PROFILE).clear();
}

pub(crate) fn report(text: String) {
    *lock(&LAST) = Some(text);
}

pub(super) fn record(kernel: &str, time: Duration, counters: &Counters) {
    let mut profile = lock(&PROFILE);
    if !profile.contains_key(kernel) {
        profile.insert(kernel.to_owned(), Totals::default());
    }
    if let Some(entry) = profile.get_mut(kernel) {
        entry.launches += 1;
        entry.time += time;
        entry.counters += *counters;
    }
}

/// Tells the user, now and by the last report, if there is something to tell.
pub(crate) fn tell(text: Option<String>) {
    if let Some(text) = text {
        say(&text);
        report(text);
    }
}

/// Tells the user.
pub(crate) fn say(text: &str) {
    use std::io::Write;
    // Where standard error is closed, nobody is told.
    let _ = writeln!(std::io::stderr(), "warpsmith driver: {text}");
}
