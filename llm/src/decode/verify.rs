//! What a device computed, compared with the f64 forward pass on the CPU.

use super::routes::Routes;
use super::{Activations, DecodeError, DecoderOptions, KvType, Mode, Model, SequenceOptions, Session, SessionOptions};
use crate::model::ModelFile;
use crate::reference::{Given, Reference, ReferenceError};

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
    /// Routings, of a position in a layer, to experts that the reference finds less fitting than others by more than the bound.
    pub wrong_routes: usize,
}

impl Comparison {
    /// Whether everything is within the bounds.
    pub fn passed(&self) -> bool {
        self.max_difference_in_std <= self.bound_in_std && self.wrong_tokens == 0 && self.wrong_routes == 0
    }
}

/// How a run rounds, beyond f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Precision {
    /// How keys and values are stored.
    pub kv: KvType,
    /// The cheapest activations of decoding steps.
    pub activations: Activations,
    /// Whether prompts attended with queries and weights rounded to f16 ([`DecoderOptions::fast_prefill`](super::DecoderOptions)).
    pub fast_prefill: bool,
}

impl Precision {
    /// What one layer may add to the difference of a logit, in standard deviations. Independent parts add up as squares.
    fn of_a_layer(self) -> f64 {
        let cache = match self.kv {
            KvType::F32 => 0.0,
            KvType::F16 => F16_STEP,
            KvType::Int8 => 2.0 * INT8_STEP,
        };
        let codes = match self.activations {
            Activations::F32 => 0.0,
            Activations::F16x2 => F16X2,
            Activations::Int16 => INT16,
            Activations::F16 => F16,
            Activations::Int8 => INT8,
        };
        let prompt = if self.fast_prefill { FAST_PREFILL } else { 0.0 };
        [ARITHMETIC, cache, codes, prompt].into_iter().map(|x| x * x).sum::<f64>().sqrt()
    }
}

/// Sums and approximations in f32: weights of attention are off by a factor of `1 + 2 d` with `d = 2^-20 reach`
/// ([`gpu_kernels::attention::step`]), and trained heads reach 25. Sums of products are off by less.
const ARITHMETIC: f64 = 5e-5;
/// Two neighbouring numbers of f16 differ by at most this share of themselves.
const F16_STEP: f64 = 1.0 / 1024.0;
/// Two neighbouring codes of an int8 head differ by this share of its largest element.
const INT8_STEP: f64 = 1.0 / 127.0;
/// Activations of 16 bits: twice what they do where a channel is 26 times as large as the others; six times what they do
/// elsewhere (`host/tests/activations.rs`, `host/tests/depth.rs`).
const INT16: f64 = 2.1e-3;
/// The same of eight bits; seven times what they do where no channel is larger than the others.
const INT8: f64 = 0.35;
/// Activations and weights in f16: each within half a step, in every product of a layer.
const F16: f64 = 4.0 * F16_STEP;
/// Weights in f16 alone, activations in two: as little as [`INT16`], which is allowed where these are taken in place of it.
const F16X2: f64 = 2.0 * F16_STEP;
/// A query and a weight of attention, each within half a step of f16, and scores that are off by sums of such.
const FAST_PREFILL: f64 = 4.0 * F16_STEP;
/// Logits that differ by more than this say something else, whatever the reason.
const MOST: f64 = 1.0;

/// Largest difference of a logit, as a share of the logits' standard deviation, that counts as equal: that of a layer times
/// the square root of the number of layers, at most 1.
///
/// With an f32 cache what differs is the order and rounding of f32 sums. With another cache the reference rounds its keys
/// and values too, but from values that differ in the last bits of f32, so some of them fall on the other side of a
/// rounding boundary and differ by a whole step (2^-10 of an f16, 1/127 of the largest element of an int8 head).
///
/// One such step among many elements is little; but it is more than all f32 arithmetic, so that in the next layer more
/// elements cross a boundary, until, in models of many layers, device and reference round independently of each other. Then
/// the difference of two roundings has a root mean square of 0.4 steps, and the residual stream carries what each layer added
/// to the logits. What layers add is independent, so it adds up as the root of the sum of squares: with the square root of
/// the depth. The largest of all logits of some positions is four to five times the root mean square; attention takes
/// means of values, which takes about as much away. So the bound is a step of f16 a layer, and two of int8, because those
/// are shares of the largest element of a head, about three times the others. Measured with models of random weights, of 1
/// to 64 layers, times the root of the depth: up to 0.25 steps of f16, and 0.9 steps of int8 where roundings are independent
/// from the first layer on. A layer that computes something else changes its share of the residual stream, about one in the
/// root of twice the depth: it stays above the bound at any depth (`host/tests/depth.rs`).
///
/// Activations that are rounded to codes are not rounded in the reference: what they add to a layer was measured with small
/// models. With those of eight bits in deep models the bound reaches a whole standard deviation: such a check tells another text from
/// this one, and no more.
pub fn bound(layers: usize, precision: Precision) -> f64 {
    (precision.of_a_layer() * (layers.max(1) as f64).sqrt()).min(MOST)
}

/// Feeds the reference `fed` and compares its logits with `logits`, position by position; `each` is told how many are done.
///
/// `experts`: those that each position was given to, of a mixture. The reference takes them where their products with the router are
/// as large as those that it would choose, up to twice the bound, in standard deviations of the layer's products: two experts that
/// are equally fitting up to rounding are both right, and give other logits. Where there are none, it chooses itself.
pub fn compare(
    file: &ModelFile,
    precision: Precision,
    fed: &[u32],
    logits: &[Vec<f32>],
    experts: &[Routes],
    mut each: impl FnMut(usize),
) -> Result<Comparison, DecodeError> {
    let mut reference = Reference::new(file, precision.kv.into());
    let (positions, bound_in_std) = (fed.len().min(logits.len()), bound(file.config().layers, precision));
    let mut result = Comparison {
        positions,
        max_difference: 0.0,
        max_difference_in_std: 0.0,
        bound_in_std,
        wrong_tokens: 0,
        wrong_routes: 0,
    };
    for (i, (&token, row)) in fed.iter().zip(logits).enumerate() {
        let given = experts.get(i).map(|routes| Given { routes, tolerance: 2.0 * bound_in_std });
        let step = reference.feed_routed(token, given).map_err(|e| match e {
            ReferenceError::Token { token, vocab } => DecodeError::Token { token, index: i, vocab },
            ReferenceError::Rollback { to, length } => DecodeError::Rollback { to, length },
            ReferenceError::Tensor { problem } => DecodeError::Reference { problem },
        })?;
        let std = standard_deviation(&step.logits).max(f64::MIN_POSITIVE);
        let differences = step.logits.iter().zip(row).map(|(&want, &got)| (want - f64::from(got)).abs());
        // A NaN compares as no difference with `max`; it is the largest there can be.
        let difference = differences.fold(0.0, |m: f64, d| if d.is_nan() { f64::INFINITY } else { m.max(d) });
        result.wrong_routes += step.wrong_routes;
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
            sequence: SequenceOptions { capacity: Some(length), kv, ..Default::default() },
            decoder: DecoderOptions { mode: Mode::Graph, chunk: 1, activations, ..Default::default() },
        };
        let mut session = Session::new(self, options)?;
        let (mut fed, mut logits, mut experts) = (Vec::with_capacity(length), Vec::new(), Vec::new());
        let mut next = 0;
        for i in 0..length {
            let token = tokens.get(i).copied().unwrap_or(next);
            next = session.feed(token)?;
            fed.push(token);
            logits.push(session.logits()?);
            experts.push(session.experts()?);
        }
        let comparison =
            compare(self.file(), Precision { kv, activations, fast_prefill: false }, &fed, &logits, &experts, |_| {})?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_from_the_mean() {
        assert_eq!(standard_deviation(&[99.0, 101.0, 99.0, 101.0]), 1.0);
        assert_eq!(standard_deviation(&[-3.0, -3.0, 5.0, 5.0]), 4.0);
        assert_eq!(standard_deviation(&[7.0]), 0.0);
        assert_eq!(standard_deviation(&[]), 0.0);
    }

    #[test]
    fn tokens_are_counted_that_the_reference_finds_far_less_likely_than_its_own() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/tiny-qwen3-f16.gguf");
        let file = ModelFile::open(path).unwrap();
        let (fed, precision) = ([3, 1, 4], Precision::default());
        let mut reference = Reference::new(&file, precision.kv.into());
        let right =
            fed.map(|token| reference.feed(token).unwrap().logits.iter().map(|&x| x as f32).collect::<Vec<_>>());
        let wrong = right.clone().map(|row| row.into_iter().map(|x| -x).collect::<Vec<_>>());
        let of =
            |logits: [&Vec<f32>; 3]| compare(&file, precision, &fed, &logits.map(Clone::clone), &[], |_| {}).unwrap();
        let [a, b, c] = &right;
        assert!(of([a, b, c]).passed());
        assert_eq!((of([a, b, c]).wrong_tokens, of([a, &wrong[1], c]).wrong_tokens), (0, 1));
        assert_eq!(of(wrong.each_ref()).wrong_tokens, 3);
    }
}
