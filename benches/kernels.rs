//! Every kernel family over the shapes of real models, variants side by side; docs/benchmarks.md says how.
//!
//! `cargo bench --bench kernels`, `cargo bench --bench kernels -- gemv/q4_0`. On a GPU the figure is device time between
//! events, buffers rotated so that the L2 cache is cold; on the software driver it is counted lane instructions and bytes,
//! compared with `benches/baseline.json`.

mod families;
mod harness;

use std::process::ExitCode;

fn main() -> Result<ExitCode, harness::Failed> {
    let mut bench = harness::Bench::open()?;
    if let Some(image) = harness::against::image()? {
        bench = bench.against(&image)?;
    }
    let mut criterion = bench.criterion();
    families::all(&bench, &mut criterion)?;
    // Without a filter, all figures have to be there.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let testing = arguments.iter().any(|a| a == "--test");
    let all = arguments.iter().all(|a| ["--test", "--bench", "--noplot", "--verbose", "-v"].contains(&a.as_str()));
    if arguments.iter().any(|a| a == "--list") {
        return Ok(ExitCode::SUCCESS);
    }
    let good = bench.finish(all, testing)?;
    criterion.final_summary();
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
