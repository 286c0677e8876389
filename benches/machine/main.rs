//! How fast the software driver's machine is: `cargo bench --bench machine`.
//!
//! Prints, on this computer: lane instructions a second on one core for our f32 GEMV, what each kind of check costs as a
//! ratio to that (the runs interleaved), and how fast modules load; then, for kernels of a decoding step and for matrix
//! products of each type, what a launch costs on one core and what a second one gives. Compare times on one machine only; they
//! are printed, not asserted. A number after `--` sets the rounds (default 7).
//!
//! `WARPSMITH_MACHINE_AGAINST` names another build of the driver, a `libcuda.so.1`, which then runs the same PTX in turns with
//! this one, bits compared; `.ci/machine-against REVISION` builds and compares that of a revision.

mod engine;
mod kernels;
mod products;
mod turns;

/// Any result of this benchmark.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The median, of times in any order.
pub fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|a| a == turns::CHILD) {
        return turns::child();
    }
    // `cargo bench -- FILTER` runs what has the filter in its name.
    let other = |a: &String| !a.starts_with('-') && a.parse::<usize>().is_err() && !"machine".contains(a.as_str());
    if arguments.iter().any(other) {
        return Ok(());
    }
    let rounds = arguments.iter().find_map(|a| a.parse().ok()).unwrap_or(7usize).max(1);
    turns::compare(rounds)?;
    engine::checks(rounds)?;
    engine::load(rounds)
}
