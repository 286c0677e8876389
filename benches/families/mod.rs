//! The groups: what real models do in a step.

mod attention;
mod gemv;
mod small;
mod step;

use criterion::Criterion;

use crate::harness::meter::Meter;
use crate::harness::{Bench, Failed};

/// All groups, in the order of a step.
pub fn all(bench: &Bench, c: &mut Criterion<Meter>) -> Result<(), Failed> {
    gemv::family(bench, c)?;
    small::norms(bench, c);
    attention::decode(bench, c);
    attention::prefill(bench, c);
    small::rest(bench, c);
    step::whole(bench, c)?;
    step::overhead(bench, c);
    Ok(())
}
