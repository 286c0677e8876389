//! The software engine: the driver API over the SIMT machine of `warpsmith-simt`.
//!
//! - Work runs at the call that issues it, so that the order of issue is the order of execution. Only what depends on the
//!   host (host functions, kernels that wait for what the host or another stream does next) and what comes after that runs
//!   later, on an engine thread of its context (`queue`). What CUDA answers late it answers late here too: a kernel that
//!   faults lets its launch succeed and makes its context answer the error from then on.
//! - Handles are numbers that are never given out twice. A stale, foreign or invented handle is an
//!   error code, never a crash. Pointers to host memory are the caller's word, as in CUDA.
//! - One lock guards the tables of handles; no kernel and no host function runs under it. Each
//!   device runs one kernel at a time.
//! - Device addresses lie above 2^48, where no host memory can. Pinned and managed memory is host
//!   memory that kernels reach at its host address.
//!
//! `WARPSMITH_SM` (default 90), `WARPSMITH_DEVICES` (1), `WARPSMITH_MEMORY` (16G) and
//! `WARPSMITH_THREADS` (all cores) shape it; `WARPSMITH_CHECK` (`all`, or some of `init,races,sync`), `WARPSMITH_SEED` (the
//! order of blocks, warps and lanes), `WARPSMITH_PROFILE=1`, `WARPSMITH_OUTPUTS=1`, `WARPSMITH_REPORT` (a file) and `WARPSMITH_ALLOW` (accepted
//! findings) watch it; `WARPSMITH_INSTRUCTION_LIMIT` (instructions of a block, 0 for no limit) ends kernels that do not end, and
//! `WARPSMITH_PROGRESS` (10 seconds) says after which time a kernel that runs is reported. A value that makes no sense fails `cuInit`. Under
//! `WARPSMITH_CHECK` the engine keeps the order of operations as CUDA promises it, and where the host allocated and launched.

pub(crate) mod array;
pub(crate) mod capture;
mod checks;
mod config;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod exec;
mod fatbin;
pub(crate) mod fill;
pub(crate) mod function;
pub(crate) mod graph;
pub(crate) mod graph_memory;
pub(crate) mod host;
mod image;
mod jit;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod node_params;
pub(crate) mod nodes;
pub(crate) mod objects;
pub(crate) mod occupancy;
mod ops;
mod order;
mod params;
pub(crate) mod pool;
mod queue;
mod report;
mod run;
mod spec;
mod state;
pub(crate) mod stream;
mod thread;
mod track;
mod worker;

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use warpsmith_simt::{Machine, MachineConfig};

pub use crate::instrument::{CallCounts, InjectionGuard, call_counts, inject_failure, reset_call_counts};
pub use order::{OpId, Ordering};
pub use track::{
    AllocationKind, AllocationRecord, OperationRecord, Site, allocation_at, checks_on, leaks, live_allocations,
    operation, operations,
};

pub use checks::{
    Allow, CheckGuard, DEFAULT_LIMIT, Group, HostFrame, HostSite, LaunchProfile, Report, approximate_json, check,
    checks, finding_of, findings, has_errors, instruction_limit, launch_profiles, own_frame, parse_checks, quote,
    reset_launch_profiles, set_instruction_limit, take_findings,
};
pub use report::{KernelProfile, last_report, profile, reset_profile, take_report};
pub use warpsmith_arch::Occupancy;
pub use warpsmith_simt::{Checks, Finding, Rule, Severity};

pub(crate) use checks::refused;
pub(crate) use report::report;
pub(crate) use thread::{DefaultStream, in_callback, present};
pub(crate) use worker::finish;

use crate::codes::{Code, Res};
use crate::engine::{Active, active, lock};
use device::Device;
use state::State;

/// The CUDA version that the software engine stands for.
pub(crate) const VERSION: i32 = 13050;

/// The engine: its devices, and the tables of everything that callers hold.
pub(crate) struct Software {
    pub(in crate::software) devices: Vec<Device>,
    state: Mutex<State>,
    /// Something that an engine thread or a call that waits may look for has happened to the tables.
    changed: Condvar,
    sm: u32,
    /// How long a kernel runs or waits before somebody is told.
    progress: Duration,
}

impl Software {
    /// # Errors
    /// The variable and the value that make no sense, in words.
    pub fn from_environment() -> Result<Software, String> {
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
        checks::start(&config.settings, &devices);
        let state = Mutex::new(State::new(&devices));
        Ok(Software { devices, state, changed: Condvar::new(), sm: config.spec.sm(), progress: config.progress })
    }

    /// Whether [`from_environment`](Software::from_environment) would give one.
    ///
    /// # Errors
    /// As there.
    pub fn check_environment() -> Result<(), String> {
        config::Config::from_environment().map(drop)
    }

    pub fn sm(&self) -> u32 {
        self.sm
    }

    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    fn device(&self, ordinal: i32) -> Res<&Device> {
        usize::try_from(ordinal).ok().and_then(|at| self.devices.get(at)).ok_or(Code::INVALID_DEVICE)
    }
}

/// The engine that runs; its functions are only reached while it does.
fn engine() -> Res<&'static Software> {
    match active() {
        Some(Active::Software(software)) => Ok(software),
        _ => Err(Code::NOT_INITIALIZED),
    }
}

/// Runs `f` on the tables. Nothing that calls back into the API may run in it.
fn with<R>(f: impl FnOnce(&mut State, &'static Software) -> Res<R>) -> Res<R> {
    let software = engine()?;
    f(&mut lock(&software.state), software)
}

/// Runs `f` on the tables with the calling thread's context, which must be alive and without error.
fn with_context<R>(f: impl FnOnce(&mut State, &'static Software, u64) -> Res<R>) -> Res<R> {
    with(|state, software| {
        let context = state.usable_context()?;
        f(state, software, context)
    })
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
