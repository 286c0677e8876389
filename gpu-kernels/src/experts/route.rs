//! The experts of each column, and what their outputs count for.
//!
//! | | |
//! |---|---|
//! | `logits` | f32, column `c` from `c * stride` on: `[n]`, a router's products; with [`SHARED`] one more |
//! | `chosen` | u32 `[columns, used]`: the experts of the largest logits, the largest first; of equal ones (−0 equals 0) the lowest index first; NaN behind all numbers |
//! | `weights` | f32 `[columns, used]`: what the outputs of each count for; with [`SHARED`] `[columns]` behind them |
//! | `used` | at most `n` and [`MOST`] |
//!
//! A weight is `scale` times a share of the softmax over all `n` logits, or with the flag [`SIGMOID`] `scale / (1 + e^-logit)`. With
//! [`NORMALISE`] weights are divided by the sum of the column's, which of sigmoids counts as [`LEAST`] at least. As the largest logits have the
//! largest weights, choosing by logits and by weights is the same but for ties that rounding makes.
//!
//! With [`SHARED`] product `n` is that of an expert that all columns have beside the chosen: it counts for `1 / (1 + e^-logit)`.
//!
//! Exponentials and sums are f32, in an order that depends on `n` and `used` alone: weights are off by `2e-6` of themselves at most, and
//! by what makes them vanish below `1e-37`. A logit that is not finite may make all weights of its column NaN; the experts are
//! numbers below `n` in any case. A warp takes a column.

use warpsmith_device::prelude::*;

/// Threads of a block: a column.
pub const THREADS: u32 = 32;
/// Most experts of a column: each has a lane.
pub const MOST: u32 = 32;
/// Flag: sigmoids, not a softmax.
pub const SIGMOID: u32 = 1;
/// Flag: the weights of a column add up to `scale`.
pub const NORMALISE: u32 = 2;
/// Flag: one product more, of an expert that all columns have.
pub const SHARED: u32 = 4;
/// What the sum of a column's sigmoids is taken for if it is less: 2^-14, as ggml has it.
pub const LEAST: f32 = 1.0 / 16384.0;

/// The definition in f64: experts and their weights.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(logits: &[f32], used: usize, flags: u32, scale: f32) -> Vec<(u32, f64)> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // Stable: equal ones stay in the order of their indices.
    order.sort_by(|&a, &b| match (logits[a].is_nan(), logits[b].is_nan()) {
        (false, false) => logits[b].partial_cmp(&logits[a]).unwrap_or(std::cmp::Ordering::Equal),
        (a, b) => a.cmp(&b),
    });
    order.truncate(used);
    let largest = logits.iter().fold(f64::NEG_INFINITY, |m, v| m.max(f64::from(*v)));
    let all: Vec<f64> = logits.iter().map(|v| (f64::from(*v) - largest).exp()).collect();
    let sum: f64 = all.iter().sum();
    let weight =
        |i: usize| if flags & SIGMOID != 0 { 1.0 / (1.0 + (-f64::from(logits[i])).exp()) } else { all[i] / sum };
    let mut weights: Vec<f64> = order.iter().map(|&i| weight(i)).collect();
    if flags & NORMALISE != 0 {
        let sum: f64 = weights.iter().sum();
        let sum = if flags & SIGMOID != 0 { sum.max(f64::from(LEAST)) } else { sum };
        weights.iter_mut().for_each(|w| *w /= sum);
    }
    order.into_iter().zip(weights).map(|(i, w)| (i as u32, w * f64::from(scale))).collect()
}

/// The experts of each column, a warp a column: the best of those behind the last one, again and again.
#[kernel(block = THREADS, min_blocks = 16, family = "experts")]
#[allow(clippy::too_many_arguments)]
pub unsafe fn route(
    logits: Awaited<f32>,
    chosen: Out<u32>,
    weights: Out<f32>,
    n: u32,
    used: u32,
    stride: u32,
    flags: u32,
    scale: f32,
) {
    grid::launch_dependents();
    grid::wait_dependencies();
    let (column, lane) = (block::idx_x() as usize, thread::lane() as usize);
    let (x, n) = (logits.buffer().from(column * stride as usize), n as usize);
    let (mut mine, mut largest, mut last) = (Best::NONE, 0.0, Best::NONE);
    let mut taken = 0;
    while taken < used {
        let mut best = Best::NONE;
        let mut i = lane;
        while i < n {
            let one = Best { value: x.at(i), index: i as u32 };
            // Behind the last one, which is then the better of the two.
            if taken == 0 || (one.index != last.index && last.merge(one).index == last.index) {
                best = best.merge(one);
            }
            i += THREADS as usize;
        }
        last = warp::argmax(best);
        if taken == 0 {
            largest = last.value;
        }
        if lane as u32 == taken {
            mine = last;
        }
        taken += 1;
    }
    let own = (lane as u32) < used;
    let (sigmoid, normalise) = (flags & SIGMOID != 0, flags & NORMALISE != 0);
    let mut weight = 0.0;
    if own {
        weight = if sigmoid { 1.0 / (1.0 + math::exp(-mine.value)) } else { math::exp(mine.value - largest) };
    }
    let mut part = weight;
    if !sigmoid && !normalise {
        part = 0.0;
        let mut i = lane;
        while i < n {
            part += math::exp(x.at(i) - largest);
            i += THREADS as usize;
        }
    }
    let mut sum = warp::sum_f32(part);
    if sigmoid {
        // Not `max`, which would drop a NaN.
        sum = if !normalise {
            1.0
        } else if sum < LEAST {
            LEAST
        } else {
            sum
        };
    }
    if own {
        let at = column * used as usize + lane;
        chosen.set(at, mine.index);
        weights.set(at, weight / sum * scale);
    }
    if flags & SHARED != 0 && lane == 0 {
        let behind = grid::dim_x() as usize * used as usize;
        weights.set(behind + column, 1.0 / (1.0 + math::exp(-x.at(n))));
    }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use warpsmith_device::argmax::Best;

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for Route<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.chosen.len().checked_div(self.used as usize).unwrap_or(0))
    }
    fn check(&self) -> Result<(), ContractError> {
        let m = Self::META;
        contract::within(m, "n", self.n, 1u32, i32::MAX)?;
        contract::within(m, "used", self.used, 1u32, MOST.min(self.n))?;
        let (known, shared) = (SIGMOID | NORMALISE | SHARED, usize::from(self.flags & SHARED != 0));
        contract::require(m, self.flags & !known == 0, "flags", format_args!("only flags out of {known}"), self.flags)?;
        contract::require(m, !self.chosen.is_empty(), "chosen", "at least one column", 0)?;
        contract::multiple_of(m, "chosen", self.chosen.len(), (self.used, "used"))?;
        let columns = self.chosen.len() / self.used as usize;
        let weights = self.chosen.len() + shared * columns;
        contract::exactly(m, "weights", self.weights.len(), (weights, "as `chosen`, and one a column with SHARED"))?;
        let of_column = (u64::from(self.n) + shared as u64, "n, and one with SHARED");
        crate::state::check_strided(m, "logits", self.logits.len(), (columns, self.stride), of_column)
    }
}

/// The cases of this kernel.
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases {
    use super::{Route, SHARED, reference};
    use crate::cases::{Bench, Listed, NamedSizes, Outcome, Plain, Rng, Shape, close, same, why};

    /// The experts of each column.
    pub struct Routes;

    impl Plain for Routes {
        const SIZES: NamedSizes = &[("columns", 1), ("n", 128), ("used", 8), ("flags", 2), ("alike", 0)];

        fn kernels() -> Vec<Listed> {
            vec![Listed::unmeasured::<Route<'_>>(why::SMALL)]
        }

        fn shapes() -> Vec<Vec<usize>> {
            let sizes = [
                [1, 1, 1],
                [3, 2, 1],
                [2, 8, 2],
                [1, 31, 31],
                [2, 32, 32],
                [3, 33, 5],
                [1, 128, 8],
                [5, 384, 6],
                [1, 1000, 32],
            ];
            let mut all = Vec::new();
            for (i, size) in sizes.into_iter().enumerate() {
                // Logits apart, and of few values, so that many tie.
                all.extend((0..4).map(|flags| {
                    let shared = if (i + flags) % 3 == 0 { SHARED as usize } else { 0 };
                    [&size[..], &[flags | shared, usize::from((i + flags).is_multiple_of(2))]].concat()
                }));
            }
            all
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            let [columns, n, used, flags, alike] = shape.sizes(["columns", "n", "used", "flags", "alike"])?;
            let (stride, flags, scale) = (n + 3, flags as u32, 1.5);
            let mut logits = vec![f32::NAN; columns * stride];
            for column in logits.chunks_exact_mut(stride) {
                for v in &mut column[..=n] {
                    *v = if alike != 0 { (rng.unit() * 2.0).round() * 0.5 } else { rng.unit() * 9.0 };
                }
            }
            let x = bench.upload(&logits)?;
            let shared = flags & SHARED != 0;
            let (mut chosen, mut weights) =
                (bench.output::<u32>(columns * used)?, bench.output::<f32>(columns * (used + usize::from(shared)))?);
            bench.launch(Route {
                logits: &x,
                chosen: &mut chosen,
                weights: &mut weights,
                n: n as u32,
                used: used as u32,
                stride: stride as u32,
                flags,
                scale,
            })?;
            let want = logits.chunks_exact(stride).flat_map(|v| reference(&v[..n], used, flags, scale));
            let (experts, mut numbers): (Vec<u32>, Vec<f64>) = want.unzip();
            let sigmoid = |v: &[f32]| 1.0 / (1.0 + (-f64::from(v[n])).exp());
            numbers.extend(logits.chunks_exact(stride).filter(|_| shared).map(sigmoid));
            same(&bench.read(&chosen)?, &experts)?;
            close(&bench.read(&weights)?, &numbers, |i| 2e-6 * numbers[i].abs() + 1e-37)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_the_definition() {
        let (a, b) = (1f64.exp(), 2f64.exp());
        let close = |got: Vec<(u32, f64)>, want: &[(u32, f64)]| {
            assert_eq!(got.len(), want.len());
            for (g, w) in got.iter().zip(want) {
                assert!(g.0 == w.0 && (g.1 - w.1).abs() < 1e-12, "{got:?} {want:?}");
            }
        };
        let logits = [0.0, 2.0, 1.0];
        close(reference(&logits, 2, 0, 1.0), &[(1, b / (1.0 + a + b)), (2, a / (1.0 + a + b))]);
        close(reference(&logits, 2, NORMALISE, 2.0), &[(1, 2.0 * b / (a + b)), (2, 2.0 * a / (a + b))]);
        let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
        close(reference(&logits, 1, SIGMOID, 1.0), &[(1, sigmoid(2.0))]);
        close(reference(&[-30.0, -40.0], 1, SIGMOID | NORMALISE, 1.0), &[(0, sigmoid(-30.0) * 16384.0)]);
        // Ties by index; a NaN behind all numbers.
        let order = |logits: &[f32]| reference(logits, logits.len(), 0, 1.0).iter().map(|e| e.0).collect::<Vec<_>>();
        assert_eq!(order(&[0.0, 1.0, -0.0, 1.0]), [1, 3, 0, 2]);
        assert_eq!(order(&[f32::NAN, f32::NEG_INFINITY, f32::NAN, 1.0]), [3, 1, 0, 2]);
    }

    #[test]
    fn contract_names_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |logits, chosen, weights, n, used, stride, flags| unsafe {
            Route {
                logits: DeviceSlice::from_raw(0x1000, logits),
                chosen: DeviceSlice::from_raw_mut(0x8000, chosen),
                weights: DeviceSlice::from_raw_mut(0x9000, weights),
                n,
                used,
                stride,
                flags,
                scale: 1.0,
            }
            .check()
        };
        assert!(launch(18, 4, 4, 8, 2, 10, 3).is_ok());
        assert!(launch(19, 4, 6, 8, 2, 10, SHARED).is_ok());
        let wrong = [
            (launch(17, 4, 4, 8, 2, 10, 0), "logits"),
            (launch(18, 3, 4, 8, 2, 10, 0), "chosen"),
            (launch(18, 4, 3, 8, 2, 10, 0), "weights"),
            (launch(18, 0, 0, 8, 2, 10, 0), "chosen"),
            (launch(18, 4, 6, 8, 2, 10, SHARED), "logits"),
            (launch(19, 4, 4, 8, 2, 10, SHARED), "weights"),
            (launch(18, 4, 4, 0, 2, 10, 0), "n"),
            (launch(18, 9, 9, 8, 9, 10, 0), "used"),
            (launch(99, 33, 33, 40, 33, 40, 0), "used"),
            (launch(18, 4, 4, 8, 2, 7, 0), "stride"),
            (launch(18, 4, 4, 8, 2, 10, 8), "flags"),
        ];
        for (got, argument) in wrong {
            assert_eq!(got.unwrap_err().argument, argument);
        }
    }
}
