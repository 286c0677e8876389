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
//! A block takes a column. The threshold is found digit by digit, 256 bins at a time, without sorting.

#[cfg(not(target_arch = "nvptx64"))]
use super::sample::check_logits;
use warpsmith_device::prelude::*;

pub use super::definition::weight;

/// Threads of the block.
pub const THREADS: u32 = 1024;
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
        definition::key,
        digits::{BINS, Keys, ReachMemory, WideSums, reach},
    };
    use super::*;
    use warpsmith_device::{argmax::Best, static_for};

    const MOST: usize = super::MOST as usize;

    /// A column's logits as keys.
    #[derive(Clone, Copy)]
    struct LogitKeys {
        x: In<f32>,
        n: usize,
    }

    impl LogitKeys {
        /// The key of token `i`; 0 for NaN.
        #[inline(always)]
        unsafe fn key(&self, i: usize) -> u32 {
            // SAFETY: `i` is below `n`.
            key(unsafe { self.x.at(i) })
        }
    }

    impl Keys for LogitKeys {
        #[inline(always)]
        unsafe fn each(&self, mut f: impl FnMut(u32)) {
            let mut i = thread::idx_x() as usize;
            while i < self.n {
                // SAFETY: `i` is below `n`.
                f(unsafe { self.key(i) });
                i += THREADS as usize;
            }
        }
    }

    /// Vectors of a thread's logits that are on the way at once.
    const AT_ONCE: usize = 8;

    /// Vector `k` of those that are on the way at once from `v` on: the last, where there is none.
    #[inline(always)]
    fn place(v: usize, k: usize, vectors: usize) -> usize {
        (v + k * THREADS as usize).min(vectors - 1)
    }

    /// The best of a column. A block is all that a column has: it asks for many
    /// logits at once and keeps the largest, and where that stood it looks once all are seen.
    ///
    /// All threads of the block make this call.
    #[device]
    unsafe fn best_of_all(l: &LogitKeys, scratch: Shared<Best>) -> Best {
        let thread = thread::idx_x() as usize;
        // The same in every thread of the block.
        let vectors = if l.x.ptr().addr() % align_of::<F32x4>() == 0 { l.n / 4 } else { 0 };
        let (mut largest, mut from, mut v) = (f32::NAN, 0, thread);
        // The larger of a NaN and a number is the number.
        let mut see = |v: usize, values: [[f32; 4]; AT_ONCE]| {
            let mut of_all = [f32::NAN; 4];
            static_for!(k in 0..AT_ONCE => {
                for i in 0..4 {
                    of_all[i] = math::max(of_all[i], values[k][i]);
                }
            });
            let [a, b, c, d] = of_all;
            let of_all = math::max(math::max(a, b), math::max(c, d));
            if of_all > largest || largest.is_nan() {
                (largest, from) = (of_all, v);
            }
        };
        while v + (AT_ONCE - 1) * (THREADS as usize) < vectors {
            let of = l.x.from(4 * v);
            see(v, core::array::from_fn(|k| of.load4(4 * k * THREADS as usize).0));
            v += AT_ONCE * THREADS as usize;
        }
        if v < vectors {
            see(v, core::array::from_fn(|k| l.x.load4(4 * place(v, k, vectors)).0));
        }
        let mut best = Best::NONE;
        let mut i = 4 * vectors + thread;
        while i < l.n {
            best = best.merge(Best { value: l.x.at(i), index: i as u32 });
            i += THREADS as usize;
        }
        let of_block = block_reduce::argmax(Best { value: math::max(largest, best.value), index: 0 }, scratch).value;
        if largest == of_block {
            let mut k = 0;
            while k < AT_ONCE {
                let place = place(from, k, vectors);
                let values = l.x.load4(4 * place).0;
                for i in 0..4 {
                    best = best.merge(Best { value: values[i], index: (4 * place + i) as u32 });
                }
                k += 1;
            }
        }
        block_reduce::argmax(best, scratch)
    }

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
        let (scan, found_at) = (shared_array!(TOP_SUMS: [u64; 32]), shared_array!(TOP_FOUND: [u64; 2]));
        let bins = WideSums { low: shared_array!(TOP_LOW: [u32; BINS]), high: shared_array!(TOP_HIGH: [u32; BINS]) };
        let m = ReachMemory { bins, found: found_at };
        let (thread, column) = (thread::idx_x() as usize, block::idx_x() as usize);
        let x = logits.from(column * stride as usize);
        let l = LogitKeys { x, n: n as usize };
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
        let sum = block_reduce::reduce(sum, 0, scan, |a: u64, b| a + b);
        let there = block_reduce::reduce(there, 0, scan, |a: u64, b| a + b);
        if thread == 0 {
            sums.set(column, sum);
        }
        let wanted = if there < count as u64 { there } else { count as u64 };
        if wanted > 0 {
            let (threshold, above) = reach(&l, m, 32, (wanted, 0), |k| (k != 0) as u64);
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
                let lowest = block_reduce::reduce(lowest, u64::MAX, scan, |a: u64, b| if a < b { a } else { b });
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
