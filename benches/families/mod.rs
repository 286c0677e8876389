//! The groups: what real models do in a step.

mod attention;
mod gemv;
mod prefill;
mod small;
mod step;

use warpsmith_bench::{Bench, Failed};

/// All groups, in the order of a step.
pub fn all(bench: &Bench) -> Result<(), Failed> {
    gemv::family(bench)?;
    small::norms(bench);
    attention::decode(bench);
    prefill::prompts(bench);
    small::rest(bench);
    step::whole(bench)?;
    step::overhead(bench);
    Ok(())
}
