//! What a device computed, compared with the f64 forward pass on the CPU.

use super::{Activations, DecodeError, KvType, Mode, Model, Session, SessionOptions};
use crate::model::ModelFile;
use crate::reference::{KvRounding, Reference, ReferenceError};

/// How far logits are from the reference's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Positions compared.
    pub positions: usize,
    /// Largest absolute difference of a logit; infinite where one is NaN.
    pub max_difference: f64,
    /// The same, divided by the standard deviation of the position's logits.
    pub max_difference_in_std: f64,
    /// What the latter may be.
    pub bound_in_std: f64,
    /// Positions at which the most likely token differs although the reference's margin exceeds the bound.
    pub wrong_tokens: usize,
}

impl Comparison {
    /// Whether everything is within the bounds.
    pub fn passed(&self) -> bool {
        self.max_difference_in_std <= self.bound_in_std && self.wrong_tokens == 0
    }
}

/// What activations of 16 bits may change a logit by, in standard deviations: twice what they do where a channel is 26
/// times as large as the others; four to ten times what they do elsewhere.
const INT16: f64 = 3e-3;
/// The same of eight bits: a model still says much the same, no more.
const INT8: f64 = 0.5;

/// Largest difference of a logit, as a share of the logits' standard deviation, that counts as equal.
///
/// With an f32 cache what differs is the order and rounding of f32 sums. With another cache the reference rounds its keys
/// and values too, but from values that differ in the last bits of f32, so a few of them fall on the other side of a
/// rounding boundary and differ by a whole step (2^-11 of an f16, 1/127 of the largest element of an int8 head): the bound
/// allows for that.
///
/// Activations that are rounded to codes are not rounded in the reference: their bounds come from measurements with small
/// models (`host/tests/activations.rs`).
pub fn bound(kv: KvType, activations: Activations) -> f64 {
    let cache: f64 = match kv {
        KvType::F32 => 1e-4,
        KvType::F16 => 1e-3,
        KvType::Int8 => 1e-2,
    };
    let codes = match activations {
        Activations::F32 => 0.0,
        Activations::Int16 => INT16,
        Activations::Int8 => INT8,
    };
    cache.max(codes)
}

/// Feeds the reference `fed` and compares its logits with `logits`, position by position; `each` is told how many are done.
pub fn compare(
    file: &ModelFile,
    (kv, activations): (KvType, Activations),
    fed: &[u32],
    logits: &[Vec<f32>],
    mut each: impl FnMut(usize),
) -> Result<Comparison, DecodeError> {
    let rounding = match kv {
        KvType::F16 => KvRounding::F16,
        KvType::F32 => KvRounding::F32,
        KvType::Int8 => KvRounding::Int8,
    };
    let mut reference = Reference::new(file, rounding);
    let (positions, bound_in_std) = (fed.len().min(logits.len()), bound(kv, activations));
    let mut result =
        Comparison { positions, max_difference: 0.0, max_difference_in_std: 0.0, bound_in_std, wrong_tokens: 0 };
    for (i, (&token, row)) in fed.iter().zip(logits).enumerate() {
        let step = reference.feed(token).map_err(|e| match e {
            ReferenceError::Token { token, vocab } => DecodeError::Token { token, index: i, vocab },
            ReferenceError::Rollback { to, length } => DecodeError::Rollback { to, length },
        })?;
        let std = standard_deviation(&step.logits).max(f64::MIN_POSITIVE);
        let differences = step.logits.iter().zip(row).map(|(&want, &got)| (want - f64::from(got)).abs());
        // A NaN compares as no difference with `max`; it is the largest there can be.
        let difference = differences.fold(0.0, |m: f64, d| if d.is_nan() { f64::INFINITY } else { m.max(d) });
        result.max_difference = result.max_difference.max(difference);
        result.max_difference_in_std = result.max_difference_in_std.max(difference / std);
        if let (Some(want), Some(got)) = (argmax(&step.logits), argmax(row)) {
            let margin = step.logits[want] - step.logits[got];
            result.wrong_tokens += usize::from(want != got && margin > 2.0 * bound_in_std * std);
        }
        each(i + 1);
    }
    Ok(result)
}

impl Model {
    /// Decodes `tokens` and as many greedily chosen ones again, by graph, and compares the logits of all with the f64
    /// reference. For the start of a program: it takes some seconds a billion weights.
    pub fn self_check(&self, tokens: &[u32], kv: KvType, activations: Activations) -> Result<Comparison, DecodeError> {
        let length = 2 * tokens.len();
        let options = SessionOptions {
            capacity: Some(length),
            kv,
            mode: Mode::Graph,
            chunk: 1,
            activations,
            ..Default::default()
        };
        let mut session = Session::new(self, options)?;
        let (mut fed, mut logits) = (Vec::with_capacity(length), Vec::with_capacity(length));
        let mut next = 0;
        for i in 0..length {
            let token = tokens.get(i).copied().unwrap_or(next);
            next = session.feed(token)?;
            fed.push(token);
            logits.push(session.logits()?);
        }
        let comparison = compare(self.file(), (kv, activations), &fed, &logits, |_| {})?;
        tracing::debug!(?comparison, "self-check");
        Ok(comparison)
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
