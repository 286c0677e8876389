//! Checked launches: what is checked, what was found, and who is told.
//!
//! `WARPSMITH_CHECK`, `WARPSMITH_SEED` and `WARPSMITH_PROFILE` decide for the process, [`check`] for a thread. Launches that
//! are watched run through [`Inspect::begin`](warpsmith_check::Inspect::begin). A finding is printed when the first with its
//! [`Key`] is seen in the process, appended to the file in `WARPSMITH_REPORT`, kept for [`findings`], and
//! kept for [`take_findings`] of the thread whose call caused it.

mod asked;
mod caller;
mod leaks;
mod leave;
mod limit;
mod misuse;
mod outputs;
mod overlap;
mod places;
mod record;
mod report;
mod settings;
mod site;

use std::collections::HashSet;
use std::io::Write;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub(super) use warpsmith_check::defect::LeftBy;
use warpsmith_check::record::{self as line, Record};
use warpsmith_check::{Checks, Finding, Groups, Inspect, Progress, Severity, Start, Waiting};
use warpsmith_simt::{Counters, Fault, Instance, Launch};

pub use asked::checks;
pub(crate) use caller::Caller;
pub(super) use caller::is_acting;
pub(super) use leaks::leaked;
pub use leaks::leaks;
pub(super) use leave::leaves;
pub use limit::{DEFAULT_LIMIT, instruction_limit, set_instruction_limit};
pub(crate) use misuse::refused;
pub(super) use outputs::copied;
pub(super) use overlap::{copies, fills, retires};

pub use record::{LaunchProfile, approximate_json, launch_profiles, reset_launch_profiles};
pub use report::finding_of;
pub(super) use settings::Settings;
pub use settings::{Allow, parse_checks};
pub(super) use site::host_site;
pub use warpsmith_check::{HostFrame, HostSite, Key, Report, own_frame};

use asked::{OVERRIDE, PENDING, SETTINGS, watched};

use super::report::say;
use super::tables::device::Device;
use super::tables::order;
use super::tables::records::AllocationRecord;
use super::tables::software::{engine, settled};
use super::track;
use crate::lock::lock;

static FOUND: Mutex<Option<Findings>> = Mutex::new(None);
/// Memory is tracked for the check of undefined data.
static TRACKING: AtomicBool = AtomicBool::new(false);

/// A kernel has been stopped by a fault.
static FAULTED: AtomicBool = AtomicBool::new(false);

/// Findings of a thread beyond which further ones are only counted.
const MOST_PENDING: usize = 256;

/// The findings of this process.
#[derive(Default)]
struct Findings {
    reports: Groups,
    /// Kernels whose approximate instructions are written down, each with their number.
    approximate: HashSet<(String, usize)>,
    /// The report file could not be written, and that has been said.
    complained: bool,
}

/// Takes the settings of the environment when the engine starts.
pub(super) fn start(settings: &Settings, devices: &[Device]) {
    let _ = SETTINGS.set(settings.clone());
    note(settings.checks);
    devices.iter().for_each(|d| d.machine.on_progress(|still| say(&still.to_string())));
    if TRACKING.load(Ordering::Relaxed) {
        devices.iter().for_each(|d| leave::track(&d.machine));
    }
    if watched(settings.checks) || settings.outputs {
        let sm = devices.first().map(|d| d.spec.sm());
        let (format, process) = (line::FORMAT, std::process::id());
        let start = Record::Start(line::ProcessStart { format, process, sm, seed: settings.checks.seed });
        append(lock(&FOUND).get_or_insert_with(Findings::default), settings, &[start]);
    }
}

fn note(checks: Checks) {
    if checks.init {
        TRACKING.store(true, Ordering::Relaxed);
    }
}

/// Keeps a choice of checks; dropping it goes back to the one before.
#[must_use = "the choice ends when the guard is dropped"]
#[derive(Debug)]
pub struct CheckGuard {
    before: Option<Checks>,
    // The choice belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl Drop for CheckGuard {
    fn drop(&mut self) {
        settled();
        let _ = OVERRIDE.try_with(|o| o.set(self.before));
        track::guard_ends();
    }
}

/// Watches the launches of the calling thread for `checks`, whatever `WARPSMITH_CHECK` says, until the guard is dropped.
/// Findings of before that nobody has taken are forgotten.
///
/// Unless `WARPSMITH_CHECK` is set, what happened while no thread kept such a guard is known less well: memory of that time
/// counts as defined, and has no place where it was allocated; operations of that time count as complete, so that what
/// overlaps with them is not found; and memory that nobody freed is told only when its context is destroyed under a guard.
///
/// ```
/// use warpsmith_driver_api::software::{check, checks, take_findings};
/// use warpsmith_check::Checks;
/// let guard = check(Checks::ALL);
/// assert!(checks().races);
/// // … launches …
/// assert!(take_findings().is_empty());
/// drop(guard);
/// ```
pub fn check(checks: Checks) -> CheckGuard {
    take_findings();
    let tracked = TRACKING.load(Ordering::Relaxed);
    note(checks);
    if checks.init
        && !tracked
        && let Ok(engine) = engine()
    {
        engine.devices.iter().for_each(|d| leave::track(&d.machine));
    }
    track::guard_begins();
    let before = OVERRIDE.try_with(|o| o.replace(Some(checks))).ok().flatten();
    CheckGuard { before, _thread: PhantomData }
}

/// All findings of this process so far, grouped, each with its count.
pub fn findings() -> Vec<Report> {
    settled();
    lock(&FOUND).as_ref().map(|f| f.reports.all().to_vec()).unwrap_or_default()
}

/// Takes the findings that calls of this thread have caused since it last asked.
pub fn take_findings() -> Vec<Report> {
    settled();
    PENDING.try_with(|p| std::mem::take(&mut *lock(&p.borrow()))).unwrap_or_default()
}

/// Whether calls of this thread have caused findings that are errors since it last took them.
pub fn has_errors() -> bool {
    let error = |r: &Report| r.finding.severity == Severity::Error;
    settled();
    PENDING.try_with(|p| lock(&p.borrow()).iter().any(error)).unwrap_or(false)
}

/// What came of letting a launch run.
pub(super) enum Launched {
    Done(Counters),
    Fault(Box<Fault>),
    Waiting(Box<Waiting>),
}

/// Begins a launch, watched if somebody asked for it.
pub(super) fn launch(
    device: &Device,
    instance: &Arc<Instance>,
    name: &str,
    launch: &Launch,
    params: &[u8],
    ordering: Option<&order::Ordering>,
) -> Launched {
    let (checks, limit) = (checks(), limit::effective());
    let progress = placed(checks, ordering, |ordering| {
        let start = Start { checks, ordering, instruction_limit: Some(limit), ..Start::new(name, launch, params) };
        let _one_at_a_time = lock(&device.order);
        device.machine.begin(instance, start)
    });
    outcome(device, instance, name, launch, progress)
}

/// Asks a launch that waits whether it can go on.
pub(super) fn resume(
    device: &Device,
    instance: &Arc<Instance>,
    name: &str,
    launch: &Launch,
    waiting: Box<Waiting>,
    ordering: Option<&order::Ordering>,
) -> Launched {
    let progress = placed(checks(), ordering, |ordering| {
        let _one_at_a_time = lock(&device.order);
        waiting.resume(&device.machine, ordering)
    });
    outcome(device, instance, name, launch, progress)
}

/// Ends a launch that waits, as a deadlock.
pub(super) fn deadlock(
    device: &Device,
    instance: &Arc<Instance>,
    name: &str,
    launch: &Launch,
    waiting: Box<Waiting>,
    ordering: Option<&order::Ordering>,
) -> Launched {
    let inspection = placed(checks(), ordering, |ordering| waiting.deadlock(&device.machine, ordering));
    outcome(device, instance, name, launch, Progress::Ended(Box::new(inspection)))
}

/// Calls `f` with the place in the order that races are judged by.
fn placed<R>(
    checks: Checks,
    ordering: Option<&order::Ordering>,
    f: impl FnOnce(Option<&warpsmith_check::Ordering<'_>>) -> R,
) -> R {
    match ordering.filter(|_| checks.races).map(overlap::Position::of) {
        Some(position) => position.with(|o| f(Some(o))),
        None => f(None),
    }
}

/// Writes down what came of a launch.
fn outcome(device: &Device, instance: &Instance, name: &str, launch: &Launch, progress: Progress) -> Launched {
    let inspection = match progress {
        Progress::Ended(inspection) => *inspection,
        Progress::Waiting(waiting) => return Launched::Waiting(waiting),
    };
    if watched(checks()) {
        if let Some(profile) = inspection.profile {
            record::record(device.spec.sm(), instance, name, launch, profile);
        }
        approximate(instance, name);
        let mut findings = inspection.findings;
        findings.extend(inspection.fault.iter().filter(|_| !inspection.fault_told).map(|fault| finding_of(fault)));
        submit(findings, Some(*launch));
        if inspection.fault.is_some() {
            FAULTED.store(true, Ordering::Relaxed);
        }
    }
    match inspection.fault {
        Some(fault) => Launched::Fault(fault),
        None => Launched::Done(inspection.counters),
    }
}

/// Writes down the approximate instructions of a kernel that has run, once.
fn approximate(instance: &Instance, kernel: &str) {
    let Some(settings) = SETTINGS.get().filter(|s| s.report.is_some()) else { return };
    let list = instance.module().approximations(kernel);
    let mut guard = lock(&FOUND);
    let found = guard.get_or_insert_with(Findings::default);
    if !list.is_empty() && found.approximate.insert((kernel.to_owned(), list.len())) {
        let (kernel, instructions) = (kernel.to_owned(), approximate_json(&list));
        append(found, settings, &[Record::Approximate(line::ApproximateRecord { kernel, instructions })]);
    }
}

/// Whether the fault of a launch has been told already, as a finding.
pub(super) fn tells_faults() -> bool {
    watched(checks())
}

/// Adds findings of a call of this thread.
pub(super) fn submit(findings: Vec<Finding>, launch: Option<Launch>) {
    let Some(settings) = SETTINGS.get() else { return };
    let wanted = |f: &Finding| !settings.allow.iter().any(|a| a.covers(f));
    let findings: Vec<Finding> = findings.into_iter().filter(wanted).collect();
    if findings.is_empty() {
        return;
    }
    let site = caller::site();
    let replay = replay();
    for finding in findings {
        let places::AllocationSites { allocation, freed, source } = places::of_finding(&finding);
        let (site, replay) = (site.clone(), replay.clone());
        add(Report { launch, site, allocation, freed, source, replay, ..Report::new(finding) }, settings);
    }
}

/// Reports memory that a call of this thread has made unreachable: it destroyed the context, or ends the process.
pub(super) fn leave(records: Vec<AllocationRecord>, left_by: LeftBy) {
    let Some(settings) = SETTINGS.get() else { return };
    let Checks { init, races, sync, .. } = checks();
    if records.is_empty() || !(init || races || sync) {
        return;
    }
    let replay = replay();
    for report in leaked(records, left_by) {
        if !settings.allow.iter().any(|a| a.covers(&report.finding)) {
            add(Report { replay: replay.clone(), ..report }, settings);
        }
    }
}

/// Keeps a report for the thread, and publishes it.
fn add(report: Report, settings: &Settings) {
    misuse::told();
    let _ = PENDING.try_with(|p| {
        let pending = p.borrow();
        let mut pending = lock(&pending);
        if pending.len() < MOST_PENDING {
            pending.push(report.clone());
        }
    });
    publish(report, settings);
}

/// Prints and writes down a finding, if its group is new.
fn publish(report: Report, settings: &Settings) {
    let mut guard = lock(&FOUND);
    let found = guard.get_or_insert_with(Findings::default);
    let Some(new) = found.reports.add(report) else { return };
    let text = format!("{new}\n");
    let line = Record::Finding(Box::new(Report { process: Some(std::process::id()), ..new.clone() }));
    append(found, settings, &[line]);
    // Last: where standard error is closed, this panics.
    eprintln!("{text}");
}

fn append(found: &mut Findings, settings: &Settings, lines: &[Record]) {
    let Some(path) = &settings.report else { return };
    let text: String = lines.iter().map(|l| l.to_line() + "\n").collect();
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    // One write: lines of several processes do not mix.
    if let Err(error) = opened.and_then(|mut file| file.write_all(text.as_bytes()))
        && !std::mem::replace(&mut found.complained, true)
    {
        eprintln!("warning: WARPSMITH_REPORT: cannot write {}: {error}", path.display());
    }
}

/// A command that runs this process again as it ran.
fn replay() -> String {
    let checks = checks();
    let mut words = Vec::new();
    let names: Vec<&str> = [(checks.init, "init"), (checks.races, "races"), (checks.sync, "sync")]
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name))
        .collect();
    match names.len() {
        0 => {}
        3 => words.push("WARPSMITH_CHECK=all".to_owned()),
        _ => words.push(format!("WARPSMITH_CHECK={}", names.join(","))),
    }
    if let Ok(engine) = engine() {
        words.push(format!("WARPSMITH_SM={}", engine.sm()));
    }
    words.push(format!("WARPSMITH_SEED={}", checks.seed));
    let mut args: Vec<String> = std::env::args_os().map(|a| quote(&a.to_string_lossy())).collect();
    // A test of Rust's harness runs in a thread of its name.
    if let Some(name) = caller::thread_name().filter(|n| n != "main")
        && args.first().is_some_and(|a| a.contains("/deps/"))
    {
        args.truncate(1);
        args.extend(["--exact".to_owned(), quote(&name), "--nocapture".to_owned()]);
    }
    words.extend(args);
    words.join(" ")
}

/// A word as a shell takes it.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// At the end of the process: memory that nobody freed, how often each group was seen, and the profiles.
pub(crate) fn finish() {
    let Some(settings) = SETTINGS.get() else { return };
    if !watched(settings.checks) && !settings.outputs {
        return;
    }
    // A program that a fault has stopped had no chance to free anything.
    if !FAULTED.load(Ordering::Relaxed) {
        leave(track::left_over(), LeftBy::Process);
    }
    let profiles = launch_profiles();
    let mut lines: Vec<Record> = profiles.iter().map(|profile| Record::Profile(profile.to_json())).collect();
    lines.extend(outputs::record());
    // Another thread may hold the lock for ever now.
    let Ok(mut guard) = FOUND.try_lock() else { return };
    let found = guard.get_or_insert_with(Findings::default);
    let counts = found.reports.all().iter().map(|r| r.finding.count).collect();
    lines.push(Record::End(line::End { process: std::process::id(), counts }));
    append(found, settings, &lines);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quote("--flag=a/b.c"), "--flag=a/b.c");
        assert_eq!(quote("two words"), "'two words'");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
    }

    #[test]
    fn a_guard_is_the_threads_and_nests() {
        let outer = check(Checks { races: true, ..Checks::default() });
        {
            let _inner = check(Checks::default());
            assert_eq!(checks(), Checks::default());
        }
        assert!(checks().races);
        let elsewhere = std::thread::spawn(|| checks().races).join().unwrap();
        assert!(!elsewhere);
        drop(outer);
        assert!(!checks().races);
    }
}
