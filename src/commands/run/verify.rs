//! The comparison with the f64 forward pass on the CPU.

use std::time::{Duration, Instant};

use serde::Serialize;
use warpsmith_host::decode::{Precision, compare as compare_logits};
use warpsmith_host::model::ModelFile;

use super::Decoded;
use crate::cli::Verify;
use crate::failure::Failure;

/// Multiply-adds of the reference that `--verify auto` spends: a few seconds on one core.
const AUTO_BUDGET: u64 = 4_000_000_000;

/// How many positions are compared.
#[derive(Debug)]
pub struct Plan {
    /// From the first.
    pub positions: usize,
}

impl Plan {
    /// What `--verify` asks for, of `fed` positions.
    pub fn new(verify: Verify, file: &ModelFile, fed: usize) -> Self {
        let weights = file.weights_of_a_token();
        let positions = match verify {
            Verify::Off => 0,
            Verify::Full => fed,
            Verify::Auto => fed.min(usize::try_from(AUTO_BUDGET / weights.max(1)).unwrap_or(usize::MAX)).max(1),
        };
        Self { positions }
    }
}

/// What the comparison found.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// `pass` or `fail`.
    pub verdict: &'static str,
    /// Positions compared, from the first.
    pub positions: usize,
    /// Positions that were fed.
    pub of: usize,
    /// Largest absolute difference of a logit.
    pub max_difference: f64,
    /// The same, divided by the standard deviation of the reference's logits.
    pub max_difference_in_std: f64,
    /// What the latter may be.
    pub bound_in_std: f64,
    /// Positions at which the most likely token differs although the reference's margin exceeds the bound.
    pub wrong_tokens: usize,
    /// Routings to experts that the reference finds less fitting than others by more than the bound.
    pub wrong_routes: usize,
    /// How long the reference took.
    pub seconds: f64,
}

impl Comparison {
    /// Whether the run is right.
    pub fn passed(&self) -> bool {
        self.verdict == "pass"
    }
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "reference: {}, {} of {} positions against f64 on the CPU: largest difference {:.1e} of the logits' standard deviation (bound {:.1e})",
            self.verdict, self.positions, self.of, self.max_difference_in_std, self.bound_in_std
        )?;
        if self.wrong_tokens > 0 {
            write!(f, ", wrong token at {} positions", self.wrong_tokens)?;
        }
        if self.wrong_routes > 0 {
            write!(f, ", wrong experts {} times", self.wrong_routes)?;
        }
        Ok(())
    }
}

/// Feeds the reference what the device was fed and compares logits row by row.
pub fn compare(
    plan: &Plan,
    file: &ModelFile,
    precision: Precision,
    decoded: &Decoded,
    quiet: bool,
) -> Result<Option<Comparison>, Failure> {
    let Decoded { fed, logits, experts, .. } = decoded;
    let positions = plan.positions.min(fed.len());
    if positions == 0 {
        return Ok(None);
    }
    let start = Instant::now();
    let mut said = start;
    let c = compare_logits(file, precision, &fed[..positions], logits, experts, |done| {
        if !quiet && said.elapsed() > Duration::from_secs(2) {
            eprintln!("comparing with the f64 reference: {done} of {positions} positions");
            said = Instant::now();
        }
    })?;
    Ok(Some(Comparison {
        verdict: if c.passed() && c.positions == positions { "pass" } else { "fail" },
        positions,
        of: fed.len(),
        max_difference: c.max_difference,
        max_difference_in_std: c.max_difference_in_std,
        bound_in_std: c.bound_in_std,
        wrong_tokens: c.wrong_tokens,
        wrong_routes: c.wrong_routes,
        seconds: start.elapsed().as_secs_f64(),
    }))
}
