//! The teaching ladder: twenty steps from a first kernel to a fast quantised GEMV, each with one new idea, and with what it
//! counts on the software driver beside the step before.
//!
//! ```text
//! cargo run --release -p warpsmith-ladder            # all steps; the table of examples/README.md
//! cargo run --release -p warpsmith-ladder -- 12      # step 12 beside step 11
//! WARPSMITH_CHECK=all cargo run --release -p warpsmith-ladder -- defect misaligned   # a mistake, and what the checks say of it
//! ```
//!
//! The kernels stand in a crate of their own, `kernels/`, compiled by `build.rs`: a problem a file. [`problems`] has the
//! host's side of each: data, launch, and the comparison with the definition in f64.

mod bench;
mod count;
pub mod defects;
pub mod problems;
pub mod report;

pub use bench::{Bench, Failure, Outcome};
pub use count::Counted;

use problems::{add, gemv, graph, q8_0, race, rms_norm, sum, transpose};

/// Rows and columns of a problem; vectors are one row.
pub type Shape = (usize, usize);

/// Runs a step, chosen by its number, on a problem of a shape.
pub type Run = fn(&Bench, u32, Shape) -> Result<Outcome, Failure>;

/// A step of the ladder.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Its number, from 1.
    pub number: u32,
    /// The kernel or kernels.
    pub kernels: &'static str,
    /// What is new.
    pub idea: &'static str,
    /// What is computed.
    pub problem: &'static str,
    /// The shape that the table shows.
    pub shape: Shape,
    /// Runs it.
    pub run: Run,
}

const fn step(
    number: u32,
    kernels: &'static str,
    idea: &'static str,
    (problem, shape, run): (&'static str, Shape, Run),
) -> Step {
    Step { number, kernels, idea, problem, shape, run }
}

const ADD: (&str, Shape, Run) = ("z = x + y", (1, 1 << 16), add::run);
const SUM: (&str, Shape, Run) = ("sum of x", (1, 1 << 16), sum::run);
const TRANSPOSE: (&str, Shape, Run) = ("transposition", (256, 256), transpose::run);
const RMS_NORM: (&str, Shape, Run) = ("RMS norm", (64, 1024), rms_norm::run);
const GEMV: (&str, Shape, Run) = ("y = W x, W in f32", (256, 1024), gemv::run);
const Q8_0: (&str, Shape, Run) = ("y = W x, W in Q8_0", (256, 1024), q8_0::run);
const GRAPH: (&str, Shape, Run) = ("two layers h += W norm(h)", (256, 256), graph::run);
const RACE: (&str, Shape, Run) = ("sum of x", (1, 1 << 12), race::run);

/// The ladder, from its foot.
pub const STEPS: [Step; 20] = [
    step(1, "add_runs", "a first kernel: a thread takes a run of elements", ADD),
    step(2, "add", "coalescing: neighbouring lanes, neighbouring elements", ADD),
    step(3, "add_vectors", "16 bytes an access, in a grid-stride loop", ADD),
    step(4, "sum_tree", "shared memory and barriers", SUM),
    step(5, "sum_shuffle", "shuffles", SUM),
    step(6, "transpose", "a load or a store that cannot coalesce", TRANSPOSE),
    step(7, "transpose_tile", "a tile in shared memory; bank conflicts", TRANSPOSE),
    step(8, "transpose_swizzled", "a swizzle", TRANSPOSE),
    step(9, "row_squares, scale_rows", "two kernels, one after the other", RMS_NORM),
    step(10, "rms_norm", "fusion: registers outlive the reduction", RMS_NORM),
    step(11, "gemv_thread", "a matrix: a thread a row", GEMV),
    step(12, "gemv_warp", "a warp a row", GEMV),
    step(13, "gemv_vectors", "16 bytes a load", GEMV),
    step(14, "gemv_shared", "activations in shared memory", GEMV),
    step(15, "q8_0_blocks", "weights of 8 bits, as a file has them", Q8_0),
    step(16, "q8_0_vectors", "a layout of our own", Q8_0),
    step(17, "q8_0_swizzled", "the swizzle, on vectors", Q8_0),
    step(18, "q8_0_rows", "two rows a warp", Q8_0),
    step(19, "rms_norm, q8_0_rows, add_vectors", "a graph: one launch for a whole step", GRAPH),
    step(20, "sum_race", "a missing barrier, and the check that sees it", RACE),
];
