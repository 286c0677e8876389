//! The comparison with the f64 forward pass on the CPU.

use std::time::{Duration, Instant};

use serde::Serialize;
use warpsmith_host::decode::KvType;
use warpsmith_host::model::ModelFile;
use warpsmith_host::reference::{KvRounding, Reference};

use crate::cli::Verify;
use crate::failure::Failure;

/// Multiply-adds of the reference that `--verify auto` spends: a few seconds on one core.
const AUTO_BUDGET: u64 = 4_000_000_000;

/// Largest difference of a logit, as a share of the logits' standard deviation, that counts as equal.
///
/// With an f32 cache what differs is the order and rounding of f32 sums. With an f16 cache the reference rounds its keys
/// and values too, but to f16 from values that differ in the last bits of f32, so a few of them fall on the other side of
/// a rounding boundary and differ by a whole f16 step (2^-11): the bound allows for that.
fn bound(kv: KvType) -> f64 {
    match kv {
        KvType::F32 => 1e-4,
        KvType::F16 => 1e-3,
    }
}

/// How many positions are compared.
#[derive(Debug)]
pub struct Plan {
    /// From the first.
    pub positions: usize,
}

impl Plan {
    /// What `--verify` asks for, of `fed` positions.
    pub fn new(verify: Verify, file: &ModelFile, fed: usize) -> Self {
        let weights: u64 = file.matrices().map(|m| m.rows as u64 * m.cols as u64).sum();
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
            "reference: {}, {} of {} positions against f64 on the CPU: largest difference {:.1e} of the logits' standard deviation (bound {:.0e})",
            self.verdict, self.positions, self.of, self.max_difference_in_std, self.bound_in_std
        )?;
        if self.wrong_tokens > 0 {
            write!(f, ", wrong token at {} positions", self.wrong_tokens)?;
        }
        Ok(())
    }
}

fn standard_deviation(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt()
}

fn argmax<T: PartialOrd + Copy>(values: &[T]) -> Option<usize> {
    (0..values.len()).reduce(|best, i| if values[i] > values[best] { i } else { best })
}

/// Feeds the reference what the device was fed and compares logits row by row.
pub fn compare(
    plan: &Plan,
    file: &ModelFile,
    kv: KvType,
    fed: &[u32],
    logits: &[Vec<f32>],
    quiet: bool,
) -> Result<Option<Comparison>, Failure> {
    let positions = plan.positions.min(fed.len());
    if positions == 0 {
        return Ok(None);
    }
    let start = Instant::now();
    let rounding = match kv {
        KvType::F16 => KvRounding::F16,
        KvType::F32 => KvRounding::F32,
    };
    let mut reference = Reference::new(file, rounding);
    let bound_in_std = bound(kv);
    let (mut max_difference, mut max_in_std, mut wrong_tokens) = (0.0f64, 0.0f64, 0);
    let mut said = Instant::now();
    for (i, (&token, row)) in fed.iter().zip(logits).take(positions).enumerate() {
        let step = reference.feed(token).map_err(Failure::input)?;
        let std = standard_deviation(&step.logits).max(f64::MIN_POSITIVE);
        let differences = step.logits.iter().zip(row).map(|(&want, &got)| (want - f64::from(got)).abs());
        // A NaN compares as no difference with `max`; it is the largest there can be.
        let difference = differences.fold(0.0, |m: f64, d| if d.is_nan() { f64::INFINITY } else { m.max(d) });
        max_difference = max_difference.max(difference);
        max_in_std = max_in_std.max(difference / std);
        if let (Some(want), Some(got)) = (argmax(&step.logits), argmax(row)) {
            let margin = step.logits[want] - step.logits[got];
            wrong_tokens += usize::from(want != got && margin > 2.0 * bound_in_std * std);
        }
        if !quiet && said.elapsed() > Duration::from_secs(2) {
            eprintln!("comparing with the f64 reference: {} of {positions} positions", i + 1);
            said = Instant::now();
        }
    }
    let pass = max_in_std <= bound_in_std && wrong_tokens == 0 && logits.len() >= positions;
    Ok(Some(Comparison {
        verdict: if pass { "pass" } else { "fail" },
        positions,
        of: fed.len(),
        max_difference,
        max_difference_in_std: max_in_std,
        bound_in_std,
        wrong_tokens,
        seconds: start.elapsed().as_secs_f64(),
    }))
}
