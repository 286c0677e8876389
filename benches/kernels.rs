//! Every kernel family over the shapes of real models, variants side by side; docs/benchmarks.md says how.
//!
//! `cargo bench --bench kernels`, `cargo bench --bench kernels -- gemv/q4_0`. On a GPU the figure is device time between
//! events, buffers rotated so that the L2 cache is cold; on the software driver it is counted lane instructions and bytes,
//! compared with `benches/baseline.json`. What differs from its reference is not measured.

mod families;

use std::process::ExitCode;

use warpsmith_bench::Harness;

fn main() -> ExitCode {
    Harness::new("kernels", warpsmith_host::builtin_image()).baseline("benches/baseline.json").run(families::all)
}
