//! The software engine: the driver API over the SIMT machine of `warpsmith-simt`.
//!
//! - Work runs at the call that issues it, so that the order of issue is the order of execution. Only what depends on the
//!   host (host functions, kernels that wait for what the host or another stream does next) and what comes after that runs
//!   later, on an engine thread of its context (`queue`). What CUDA answers late it answers late here too: a kernel that
//!   faults lets its launch succeed and makes its context answer the error from then on.
//! - Handles are numbers that are never given out twice. A stale, foreign or invented handle is an
//!   error code, never a crash. Pointers to host memory are the caller's word, as in CUDA.
//! - One lock guards the tables of handles (`tables`, below everything; `rules` and `run` above it, `functions` on top); no kernel and no host function runs under it. Each
//!   device runs one kernel at a time.
//! - Device addresses lie above 2^48, where no host memory can. Pinned and managed memory is host
//!   memory that kernels reach at its host address.
//!
//! `WARPSMITH_SM` (default 90), `WARPSMITH_DEVICES` (1), `WARPSMITH_MEMORY` (16G) and
//! `WARPSMITH_THREADS` (all cores) shape it; `WARPSMITH_REUSE=1` hands out addresses of freed memory again; `WARPSMITH_CHECK` (`all`, or some of `init,races,sync`), `WARPSMITH_SEED` (the
//! order of blocks, warps and lanes), `WARPSMITH_PROFILE=1`, `WARPSMITH_OUTPUTS=1`, `WARPSMITH_REPORT` (a file) and `WARPSMITH_ALLOW` (accepted
//! findings) watch it; `WARPSMITH_INSTRUCTION_LIMIT` (instructions of a block, 0 for no limit) ends kernels that do not end, and
//! `WARPSMITH_PROGRESS` (10 seconds) says after which time a kernel that runs is reported. A value that makes no sense fails `cuInit`. Under
//! `WARPSMITH_CHECK` the engine keeps the order of operations as CUDA promises it, and where the host allocated and launched.

mod checks;
mod config;
mod fatbin;
pub(crate) mod functions;
mod image;
mod ipc;
mod jit;
mod libraries;
mod params;
mod parsed;
mod report;
mod reuse;
mod rules;
mod run;
mod spec;
mod tables;
mod thread;
mod track;

use std::sync::{Condvar, Mutex};

use warpsmith_simt::{Machine, MachineConfig};

pub use crate::instrument::{CallCounts, InjectionGuard, call_counts, inject_failure, reset_call_counts};
pub use checks::leaks;
pub use tables::order::{OpId, Ordering};
pub use tables::records::{AllocationKind, AllocationRecord, OperationRecord, Site, checks_on};
pub use track::{allocation_at, live_allocations, operation, operations};

pub use checks::{
    Allow, CheckGuard, DEFAULT_LIMIT, HostFrame, HostSite, Key, LaunchProfile, Report, approximate_json, check, checks,
    finding_of, findings, has_errors, instruction_limit, launch_profiles, own_frame, parse_checks, quote,
    reset_launch_profiles, set_instruction_limit, take_findings,
};
pub use report::{KernelProfile, last_report, profile, reset_profile, take_report};
pub use reuse::{ReuseGuard, reuse_addresses};
pub use warpsmith_arch::Occupancy;
pub use warpsmith_check::{Checks, Finding, Rule, Severity};

pub(crate) use checks::refused;
pub(crate) use report::report;
pub(crate) use run::worker::finish;
pub(crate) use thread::{DefaultStream, in_callback, present};

use crate::codes::{Code, Res};
use tables::device::Device;
use tables::software::{self, Software};
use tables::state::State;

/// The CUDA version that the software engine stands for.
pub(crate) const VERSION: i32 = 13050;

/// The machine behind a device, for counting what launches do on the memory that the device has; `None`: the engine does not run,
/// or has no such device. Kernels that run on it past the driver are in no stream: nothing else may be running on the device.
pub fn machine(ordinal: i32) -> Option<&'static Machine> {
    Some(&software::engine().ok()?.device(ordinal).ok()?.machine)
}

/// Starts the engine as the environment says.
///
/// # Errors
/// The variable and the value that make no sense, in words.
pub(crate) fn start() -> Result<(), String> {
    let config = config::Config::from_environment()?;
    let devices = (0..config.devices)
        .map(|ordinal| {
            let machine = MachineConfig {
                sm: config.spec.sm(),
                total_memory: config.memory,
                threads: config.threads,
                progress_after: config.progress,
                ..MachineConfig::default()
            };
            Device::new(ordinal as i32, config.spec, Machine::new(machine))
        })
        .collect::<Vec<_>>();
    // They live as long as the process.
    let devices: &'static [Device] = devices.leak();
    checks::start(&config.settings, devices);
    reuse::start(config.reuse, devices);
    let state = Mutex::new(State::new(devices));
    software::install(Software {
        devices,
        state,
        changed: Condvar::new(),
        sm: config.spec.sm(),
        progress: config.progress,
    });
    Ok(())
}

/// Whether [`start`] would work.
///
/// # Errors
/// As there.
pub(crate) fn check_environment() -> Result<(), String> {
    config::Config::from_environment().map(drop)
}

/// The architecture that runs, and how many devices of it.
pub(crate) fn shape() -> Option<(u32, u32)> {
    software::engine().ok().map(|s| (s.sm(), s.devices.len() as u32))
}

const RUNTIME: &str = "the CUDA runtime (libcudart) asks for tables that are private to NVIDIA's driver; programs on the \
                       driver API run";

/// What the software engine does not have.
pub(crate) fn unsupported(name: &'static str) -> Res {
    let text = format!("{name} is not supported by the software driver");
    if name == "cuGetExportTable" {
        // Its caller only says that something failed.
        static TOLD: std::sync::Once = std::sync::Once::new();
        TOLD.call_once(|| eprintln!("warning: {text}: {RUNTIME}"));
    }
    report(text);
    Err(Code::NOT_SUPPORTED)
}
