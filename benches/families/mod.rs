//! The groups: what real models do in a step.

mod attention;
mod delta;
mod gemv;
mod prefill;
mod small;
mod step;

use gpu_kernels::cases::Measured;
use gpu_kernels::list::listed;
use warpsmith_bench::{Bench, Failed};

/// All groups, in the order of a step.
pub fn all(bench: &Bench) -> Result<(), Failed> {
    gemv::family(bench)?;
    small::norms(bench);
    attention::decode(bench);
    prefill::prompts(bench);
    delta::rules(bench);
    small::rest(bench);
    step::whole(bench)?;
    step::overhead(bench);
    as_listed(bench)
}

/// Benchmarks launch the kernels that the list says they do. Whole steps launch those of others too.
fn as_listed(bench: &Bench) -> Result<(), Failed> {
    let Some(launched) = bench.launched() else { return Ok(()) };
    let mut wrong = Vec::new();
    for kernel in listed() {
        let name = kernel.meta.name;
        let by = |group: &str| launched.get(group).is_some_and(|kernels| kernels.contains(name));
        let other = |except: &str| launched.keys().any(|g| g != "step" && g != except && by(g));
        match kernel.benchmark {
            Measured::By(group) if !by(group) => wrong.push(format!("no benchmark of {group} launches {name}")),
            Measured::By(group) if other(group) => wrong.push(format!("others than those of {group} launch {name}")),
            Measured::Not(why) if other("") => wrong.push(format!("{name} is measured, and the list says: {why}")),
            _ => {}
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("not as listed: {}", wrong.join("; ")).into()) }
}
