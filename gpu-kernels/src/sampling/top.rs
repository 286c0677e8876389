//! The most likely tokens of each column, and what probabilities are relative to.
//!
//! | | |
//! |---|---|
//! | `logits` | f32, column `c` from `c * stride` on: `[n]`; not written |
//! | `tokens` | u32 `[columns, count]`: the tokens of the largest logits, the largest first, equal ones (−0 equals 0) by index, the lowest first; [`NONE`](super::NONE) where there are no more that are numbers |
//! | `values` | f32 `[columns, count]`: their logits; minus infinity where there are none |
//! | `sums` | u64 `[columns]`: the sum over all logits of [`weight`]`(logit, largest, 1)`, that is of `2^40 · exp(logit - largest)`; NaN counts for nothing |
//!
//! The logarithm of a token's probability is [`logprob`]. A weight below `2^-41` is 0 and others are off by a relative `2^-20` at
//! most, so a logarithm is off by at most `2^-19`. Sums are of integers: the same in every run.
//!
//! A block takes a column. The threshold is found digit by digit, as for [`sample`](super::sample).

#[cfg(not(target_arch = "nvptx64"))]
use super::sample::check_logits;
use warpsmith_device::prelude::*;

pub use super::definition::weight;

/// Threads of the block.
pub const THREADS: u32 = super::sample::THREADS;
/// Most tokens of a column.
pub const MOST: u32 = 32;

/// The logarithm of the probability of a token with this logit, where the largest is `largest` and the sum of weights `sum`.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn logprob(logit: f32, largest: f32, sum: u64) -> f32 {
    let difference = if logit == largest { 0.0 } else { f64::from(logit) - f64::from(largest) };
    (difference - (sum as f64 / 2f64.powi(40)).ln()) as f32
}

/// The definition of tokens and values.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = (0..).zip(x.iter().copied()).filter(|(_, v)| !v.is_nan()).collect();
    // Stable: equal ones stay in the order of their indices.
    all.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap_or(std::cmp::Ordering::Equal));
    all.resize(count.max(all.len()), (super::NONE, f32::NEG_INFINITY));
    all.truncate(count);
    all
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod frame {
    use super::super::{
        NONE,
        definition::Sampling,
        sample::frame::{Logits, Memory, best_of_all, reach},
    };
    use super::*;
    use warpsmith_device::argmax::Best;

    const MOST: usize = super::MOST as usize;

    #[device]
    pub unsafe fn top(
        logits: In<f32>,
        tokens: Out<u32>,
        values: Out<f32>,
        sums: Out<u64>,
        n: u32,
        stride: u32,
        count: u32,
    ) {
        let scratch = shared_array!(TOP_BEST: [Best; 32]);
        let (keys, found) = (shared_array!(TOP_KEYS: [u32; MOST]), shared_array!(TOP_TOKENS: [u32; MOST]));
        let m = Memory {
            bins: shared_array!(TOP_BINS: [u64; 256]),
            sums: shared_array!(TOP_SUMS: [u64; 64]),
            found: shared_array!(TOP_FOUND: [u64; 2]),
        };
        let (thread, column) = (thread::idx_x() as usize, block::idx_x() as usize);
        let x = logits.from(column * stride as usize);
        let l = Logits { x, n: n as usize, s: Sampling::GREEDY };
        let largest = best_of_all(&l, scratch).value;
        let (mut sum, mut there) = (0u64, 0u64);
        let mut i = thread;
        while i < l.n {
            let v = x.at(i);
            if !v.is_nan() {
                sum += weight(v, largest, 1.0);
                there += 1;
            }
            i += THREADS as usize;
        }
        let sum = block_reduce::reduce(sum, 0, m.sums, |a: u64, b| a + b);
        let there = block_reduce::reduce(there, 0, m.sums, |a: u64, b| a + b);
        if thread == 0 {
            sums.set(column, sum);
        }
        let wanted = if there < count as u64 { there } else { count as u64 };
        if wanted > 0 {
            let (threshold, above) = reach(&l, &m, wanted, |_| 1);
            sync::block();
            if thread == 0 {
                m.found.set(0, 0);
            }
            sync::block();
            let mut i = thread;
            while i < l.n {
                let key = l.key(i);
                if key > threshold {
                    let place = m.found.fetch_add(0, 1, Order::Relaxed) as usize;
                    keys.set(place, key);
                    found.set(place, i as u32);
                }
                i += THREADS as usize;
            }
            // Of those at the threshold the lowest indices; mostly it is one.
            let (mut place, mut after) = (above, 0u64);
            while place < wanted {
                let mut lowest = u64::MAX;
                let mut i = thread;
                while i < l.n {
                    if i as u64 >= after && l.key(i) == threshold && (i as u64) < lowest {
                        lowest = i as u64;
                    }
                    i += THREADS as usize;
                }
                let lowest = block_reduce::reduce(lowest, u64::MAX, m.sums, |a: u64, b| if a < b { a } else { b });
                if thread == 0 {
                    keys.set(place as usize, threshold);
                    found.set(place as usize, lowest as u32);
                }
                (place, after) = (place + 1, lowest + 1);
            }
            sync::block();
        }
        if thread < count as usize {
            let mut rank = thread;
            let (mut token, mut value) = (NONE, f32::NEG_INFINITY);
            if (thread as u64) < wanted {
                let (key, own) = (keys.get(thread), found.get(thread));
                rank = 0;
                for j in 0..wanted as usize {
                    let (other, index) = (keys.get(j), found.get(j));
                    rank += (other > key || other == key && index < own) as usize;
                }
                (token, value) = (own, x.at(own as usize));
            }
            let at = column * count as usize + rank;
            tokens.set(at, token);
            values.set(at, value);
        }
    }
}

/// The most likely tokens of each column.
#[kernel(block = THREADS, min_blocks = 1, family = "sampling")]
pub unsafe fn top(
    logits: In<f32>,
    tokens: Out<u32>,
    values: Out<f32>,
    sums: Out<u64>,
    n: u32,
    stride: u32,
    count: u32,
) {
    frame::top(logits, tokens, values, sums, n, stride, count);
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for Top<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.sums.len() as u64)
    }
    fn check(&self) -> Result<(), ContractError> {
        let (m, columns) = (Self::META, self.sums.len());
        contract::within(m, "sums", columns, 1u32, (Geometry::MAX_GRID[0], "blocks of a grid"))?;
        contract::within(m, "count", self.count, 1u32, MOST)?;
        check_logits(m, self.logits, (columns, self.n, self.stride))?;
        let places = columns as u64 * u64::from(self.count);
        contract::at_least(m, "tokens", self.tokens.len(), (places, "columns * count"))?;
        contract::at_least(m, "values", self.values.len(), (places, "columns * count"))
    }
}
