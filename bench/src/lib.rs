//! Benchmarks of kernels: outputs are compared with their references first, then what launches cost is measured, as device
//! time on a GPU and as counted work on the software driver.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use warpsmith_bench::{Failed, Harness, Noise, Output, Run, Work};
//! use warpsmith_host::device::Launcher;
//! use warpsmith_host::gpu_kernels::elementwise::{ResidualAdd, residual_add_reference};
//!
//! // A bench target with `harness = false`.
//! fn main() -> ExitCode {
//!     Harness::new("add", warpsmith_host::builtin_image()).run(|bench| {
//!         let n = 1000u32;
//!         // Two vectors in, one out.
//!         let work = Work { elements: n.into(), floor_bytes: 12 * u64::from(n) };
//!         bench
//!             .group(format!("add/{n}"), work)
//!             .variant("a thread an element", |stream| {
//!                 let (a, b) = (Noise(1).floats(n as usize), Noise(2).floats(n as usize));
//!                 let buffers = (stream.upload(&a)?, stream.upload(&b)?, stream.zeros::<f32>(n as usize)?);
//!                 let want = residual_add_reference(&a, &b);
//!                 Ok(Run::launches(
//!                     buffers,
//!                     move |(x, residual, y), on, _| on.launch(ResidualAdd { x, residual, y, n }),
//!                     move |(_, _, y), stream| Ok(vec![Output::near("y", &stream.read(y)?, &want, |_| 1e-6)]),
//!                 ))
//!             })
//!             .measure();
//!         Ok(())
//!     })
//! }
//! ```
//!
//! The same launch always counts the same, so on the software driver it runs once; figures repeat to the digit. Counts are not
//! time, and are not shown as if they were: criterion, which calls every figure a time, measures on a GPU alone.
//!
//! A run closes with a table, and writes it as text, JSON and a page with plots below `warpsmith/bench` in cargo's target
//! folder. Counters are compared with a file of the package, which `WARPSMITH_BASELINE=write` writes;
//! `WARPSMITH_BENCH_AGAINST` names another build of the kernels to be measured beside this one.

pub mod against;
pub mod baseline;
mod columns;
pub mod counts;
pub mod gpu;
mod group;
mod harness;
pub mod meter;
mod noise;
mod options;
mod output;
mod page;
pub mod report;
mod run;

pub use criterion;

pub use counts::{Counts, FEW_ROWS, KernelCounts};
pub use group::{Group, Variants, numbered};
pub use harness::{Bench, Harness, OUTPUTS};
pub use meter::Meter;
pub use noise::Noise;
pub use output::Output;
pub use page::page;
pub use run::{Failed, Launches, On, Outputs, Run, Work, Wrong};
