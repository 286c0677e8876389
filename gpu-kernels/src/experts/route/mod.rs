//! The experts of each column, and what their outputs count for.
//!
//! | | |
//! |---|---|
//! | `logits` | f32, column `c` from `c * stride` on: `[n]`, a router's products; with [`SHARED`] one more |
//! | `bias` | f32 `[n]` with [`BIASED`], else not read: what choosing adds to an expert |
//! | `chosen` | u32 `[columns, used]`: the experts of the largest scores, the largest first; of equal ones (−0 equals 0) the lowest index first; NaN behind all numbers |
//! | `weights` | f32 `[columns, used]`: what the outputs of each count for; with [`SHARED`] or [`WHOLE`] `[columns]` behind them |
//! | `used` | at most `n` and [`MOST`] |
//! | `groups`, `groups_used` | how many groups of `n / groups` experts there are, and of how many of them experts are chosen; 1 and 1: of all |
//!
//! A weight is `scale` times a share of the softmax over all `n` logits, or with the flag [`SIGMOID`] `scale / (1 + e^-logit)`. With
//! [`NORMALISE`] weights are divided by the sum of the column's, which counts as [`LEAST`] at least.
//!
//! A score is the weight before all that, and with [`BIASED`] a bias more, which the weight has not: biases balance what experts have to do
//! (DeepSeek-AI, arXiv 2412.19437, section 2.1.2). Of several groups those are taken whose two largest scores have the largest sums, of
//! equal ones the first. Without biases and groups scores are the logits, as the largest logits have the largest weights: that is the same
//! but for ties that rounding makes.
//!
//! With [`SHARED`] product `n` is that of an expert that all columns have beside the chosen: it counts for `1 / (1 + e^-logit)`. With [`WHOLE`]
//! such an expert counts for 1, and has no product.
//!
//! Exponentials and sums are f32, in an order that depends on `n` and `used` alone: weights are off by `2e-6` of themselves at most, and
//! by what makes them vanish below `1e-37`. A logit that is not finite may make all weights of its column NaN; the experts are
//! numbers below `n` in any case. A warp takes a column.

use warpsmith_device::prelude::*;

/// Threads of a block: a column.
pub const THREADS: u32 = 32;
/// Most experts of a column: each has a lane.
pub const MOST: u32 = 32;
/// Most groups: each has a lane.
pub const MOST_GROUPS: u32 = 32;
/// Flag: sigmoids, not a softmax.
pub const SIGMOID: u32 = 1;
/// Flag: the weights of a column add up to `scale`.
pub const NORMALISE: u32 = 2;
/// Flag: one product more, of an expert that all columns have.
pub const SHARED: u32 = 4;
/// Flag: an expert that all columns have, which counts for 1.
pub const WHOLE: u32 = 8;
/// Flag: experts are chosen by their weights and biases.
pub const BIASED: u32 = 16;
/// What the sum of a column's weights is taken for if it is less: 2^-14, as ggml has it.
pub const LEAST: f32 = 1.0 / 16384.0;

#[cfg(not(target_arch = "nvptx64"))]
mod definition;

#[cfg(not(target_arch = "nvptx64"))]
pub use definition::{Choice, reference};

/// What a router gave for a column, and how experts are chosen by it.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
struct RouterLogits {
    x: In<f32>,
    bias: In<f32>,
    n: usize,
    /// Scores are logits.
    direct: bool,
    sigmoid: bool,
    biased: bool,
    /// Of a softmax.
    largest: f32,
    total: f32,
    /// The groups that experts are chosen of, a bit each, and the experts of each.
    groups: u32,
    each: u32,
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
impl RouterLogits {
    /// What an expert of that logit counts for before all are divided by their sum.
    #[inline(always)]
    unsafe fn weight(&self, logit: f32) -> f32 {
        if self.sigmoid { 1.0 / (1.0 + math::exp(-logit)) } else { math::exp(logit - self.largest) / self.total }
    }

    /// By what an expert is chosen.
    #[inline(always)]
    unsafe fn score(&self, i: usize) -> f32 {
        unsafe {
            let logit = self.x.at(i);
            if self.direct {
                return logit;
            }
            let weight = self.weight(logit);
            if self.biased { weight + self.bias.at(i) } else { weight }
        }
    }

    /// The sum of the exponentials of a lane's logits.
    #[inline(always)]
    unsafe fn exponentials(&self, lane: usize, largest: f32) -> f32 {
        let (mut part, mut i) = (0.0, lane);
        while i < self.n {
            part += math::exp(unsafe { self.x.at(i) } - largest);
            i += THREADS as usize;
        }
        part
    }

    /// The best of a lane's experts behind the last one, if there is a last one.
    #[inline(always)]
    unsafe fn best_behind(&self, last: Option<Best>, lane: usize) -> Best {
        let (mut best, mut i) = (Best::NONE, lane);
        while i < self.n {
            if self.groups >> (i as u32 / self.each) & 1 != 0 {
                let one = Best { value: unsafe { self.score(i) }, index: i as u32 };
                if behind(last, one) {
                    best = best.merge(one);
                }
            }
            i += THREADS as usize;
        }
        best
    }

    /// The sum of the two largest scores of a group.
    #[inline(always)]
    unsafe fn two_largest(&self, group: u32) -> f32 {
        let (mut first, mut second) = (Best::NONE, Best::NONE);
        let (mut i, end) = (group * self.each, (group + 1) * self.each);
        while i < end {
            let one = Best { value: unsafe { self.score(i as usize) }, index: i };
            if first.merge(one).index == i {
                (first, second) = (one, first);
            } else {
                second = second.merge(one);
            }
            i += 1;
        }
        first.value + second.value
    }
}

/// Whether one comes behind the last, which is then the better of the two.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
fn behind(last: Option<Best>, one: Best) -> bool {
    match last {
        Some(last) => one.index != last.index && last.merge(one).index == last.index,
        None => true,
    }
}

/// The experts of each column, a warp a column: the best of those behind the last one, again and again.
#[kernel(block = THREADS, min_blocks = 16, family = "experts")]
#[allow(clippy::too_many_arguments)]
pub unsafe fn route(
    logits: Awaited<f32>,
    bias: In<f32>,
    chosen: Out<u32>,
    weights: Out<f32>,
    n: u32,
    used: u32,
    stride: u32,
    flags: u32,
    groups: u32,
    groups_used: u32,
    scale: f32,
) {
    grid::wait_dependencies();
    grid::launch_dependents();
    let (column, lane) = (block::idx_x() as usize, thread::lane() as usize);
    let (sigmoid, normalise, biased) = (flags & SIGMOID != 0, flags & NORMALISE != 0, flags & BIASED != 0);
    let mut of = RouterLogits {
        x: logits.buffer().from(column * stride as usize),
        bias,
        n: n as usize,
        direct: !biased && groups == 1,
        sigmoid,
        biased,
        largest: 0.0,
        total: 1.0,
        groups: u32::MAX,
        each: n / groups,
    };
    if !of.direct && !sigmoid {
        let (mut best, mut i) = (Best::NONE, lane);
        while i < of.n {
            best = best.merge(Best { value: of.x.at(i), index: i as u32 });
            i += THREADS as usize;
        }
        of.largest = warp::argmax(best).value;
        of.total = warp::sum_f32(of.exponentials(lane, of.largest));
    }
    if groups > 1 {
        let own = if (lane as u32) < groups {
            Best { value: of.two_largest(lane as u32), index: lane as u32 }
        } else {
            Best::NONE
        };
        let (mut taken, mut all, mut last) = (0, 0, None);
        while taken < groups_used {
            let best = warp::argmax(if behind(last, own) { own } else { Best::NONE });
            (last, all) = (Some(best), all | 1 << best.index);
            taken += 1;
        }
        of.groups = all;
    }
    let (mut mine, mut first, mut last) = (Best::NONE, 0.0, None);
    let mut taken = 0;
    while taken < used {
        let best = warp::argmax(of.best_behind(last, lane));
        if taken == 0 {
            first = best.value;
        }
        if lane as u32 == taken {
            mine = best;
        }
        last = Some(best);
        taken += 1;
    }
    let own = (lane as u32) < used;
    let mut weight = 0.0;
    if own {
        weight = if of.direct && !sigmoid {
            // The first one's is the largest of all.
            math::exp(mine.value - first)
        } else {
            of.weight(of.x.at(mine.index as usize))
        };
    }
    let mut part = weight;
    if of.direct && !sigmoid && !normalise {
        part = of.exponentials(lane, first);
    }
    let mut sum = warp::sum_f32(part);
    if !of.direct || sigmoid {
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
    if flags & (SHARED | WHOLE) != 0 && lane == 0 {
        let behind = grid::dim_x() as usize * used as usize;
        let weight = if flags & SHARED != 0 { 1.0 / (1.0 + math::exp(-of.x.at(of.n))) } else { 1.0 };
        weights.set(behind + column, weight);
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
        let (known, set) = (SIGMOID | NORMALISE | SHARED | WHOLE | BIASED, |flag: u32| self.flags & flag != 0);
        contract::require(m, self.flags & !known == 0, "flags", format_args!("only flags out of {known}"), self.flags)?;
        let one = !(set(SHARED) && set(WHOLE));
        contract::require(m, one, "flags", "one of SHARED and WHOLE", self.flags)?;
        contract::within(m, "groups", self.groups, 1u32, MOST_GROUPS)?;
        contract::within(m, "groups_used", self.groups_used, 1u32, self.groups)?;
        if self.groups > 1 {
            contract::multiple_of(m, "n", self.n, (self.groups, "groups"))?;
            let each = self.n / self.groups;
            contract::require(m, each > 1, "groups", "two experts or more in each", self.groups)?;
            let of_groups = u64::from(each) * u64::from(self.groups_used);
            contract::within(m, "used", self.used, 1u32, (of_groups, "experts of the groups that are used"))?;
        }
        if set(BIASED) {
            contract::at_least(m, "bias", self.bias.len(), (self.n, "n"))?;
        }
        let (product, shared) = (u64::from(set(SHARED)), usize::from(set(SHARED) || set(WHOLE)));
        contract::require(m, !self.chosen.is_empty(), "chosen", "at least one column", 0)?;
        contract::multiple_of(m, "chosen", self.chosen.len(), (self.used, "used"))?;
        let columns = self.chosen.len() / self.used as usize;
        let weights = self.chosen.len() + shared * columns;
        let wanted = "as `chosen`, and one a column with SHARED or WHOLE";
        contract::exactly(m, "weights", self.weights.len(), (weights, wanted))?;
        let of_column = (u64::from(self.n) + product, "n, and one with SHARED");
        crate::state::check_strided(m, "logits", self.logits.len(), (columns, self.stride), of_column)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub mod cases;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_names_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let grouped = |logits, chosen, weights, n, used, stride, flags, bias, groups, groups_used| unsafe {
            Route {
                logits: DeviceSlice::from_raw(0x1000, logits),
                bias: DeviceSlice::from_raw(0x7000, bias),
                chosen: DeviceSlice::from_raw_mut(0x8000, chosen),
                weights: DeviceSlice::from_raw_mut(0x9000, weights),
                n,
                used,
                stride,
                flags,
                groups,
                groups_used,
                scale: 1.0,
            }
            .check()
        };
        let launch = |logits, chosen, weights, n, used, stride, flags| {
            grouped(logits, chosen, weights, n, used, stride, flags, 0, 1, 1)
        };
        let of_eight = |flags, bias, groups, used| grouped(18, 4, 4, 8, 2, 10, flags, bias, groups, used);
        assert!(of_eight(BIASED, 8, 4, 1).is_ok());
        assert!(launch(18, 4, 4, 8, 2, 10, 3).is_ok());
        assert!(launch(19, 4, 6, 8, 2, 10, SHARED).is_ok());
        assert!(launch(18, 4, 6, 8, 2, 10, WHOLE).is_ok());
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
            (launch(18, 4, 4, 8, 2, 10, 32), "flags"),
            (launch(19, 4, 6, 8, 2, 10, SHARED | WHOLE), "flags"),
            (launch(18, 4, 4, 8, 2, 10, WHOLE), "weights"),
            (of_eight(BIASED, 7, 1, 1), "bias"),
            (of_eight(0, 0, 0, 1), "groups"),
            (of_eight(0, 0, 8, 4), "groups"),
            (of_eight(0, 0, 3, 1), "n"),
            (of_eight(0, 0, 4, 5), "groups_used"),
            (of_eight(0, 0, 4, 0), "groups_used"),
            (grouped(18, 6, 6, 8, 3, 10, 0, 0, 4, 1), "used"),
        ];
        for (got, argument) in wrong {
            assert_eq!(got.unwrap_err().argument, argument);
        }
    }
}
