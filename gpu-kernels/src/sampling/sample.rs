//! Sampling: a token of each column, with parameters that a graph does not hold.
//!
//! | | |
//! |---|---|
//! | `logits` | f32, column `c` from `c * stride` on: `[n]`; not written |
//! | `params` | [`Sampling`] `[columns]`, in device memory |
//! | `columns` | [`Column`]: the position that the draw belongs to |
//! | `y` | u32 `[columns]`; [`NONE`](super::NONE) where every logit is NaN or not allowed |
//!
//! In this order, and exactly:
//!
//! 1. Tokens that `allowed` excludes and NaN are out. Logits of tokens in `seen` are penalised ([`penalty`](super::penalty)).
//! 2. Tokens are ordered by logit, the largest first, equal ones (−0 equals 0) by index, the lowest first. With
//!    `temperature` 0 the first one is the result.
//! 3. A token weighs [`weight`], `2^40 · exp((logit - largest) / temperature)` as an integer: the weights of a column are
//!    numbers that add up the same in every order. Less than `2^-41` of the largest is 0.
//! 4. Top-k keeps the first `top_k` (0: all). Top-p keeps the shortest run from the first on whose weights reach
//!    `ceil(total * top_p)`, `total` being the weight of what top-k kept; at least one (1 or more: all).
//! 5. `r = floor(random * kept / 2^64)`, with 64 bits of [Philox](super::philox) under the seed at the position, and `kept` the
//!    weight of what is left. The result is the first token in the order of indices at which the sum of kept weights
//!    exceeds `r`.
//!
//! A block takes a column. Thresholds are found digit by digit, 256 bins at a time, without sorting.

#[cfg(not(target_arch = "nvptx64"))]
use super::argmax::check_rows;
#[cfg(not(target_arch = "nvptx64"))]
use crate::state;
use crate::state::Column;
use warpsmith_device::prelude::*;

pub use super::definition::{RECORD, Sampling, key, logit, wanted, weight};
#[cfg(not(target_arch = "nvptx64"))]
pub use super::definition::{bitset, reference};

/// Threads of the block.
pub const THREADS: u32 = 1024;

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(super) mod frame {
    use super::{
        super::NONE, super::definition::mul_high, super::penalty::penalised, super::philox, Column, RECORD, Sampling,
        THREADS, key, logit, wanted, weight,
    };
    use crate::load::{global_u32, lane, warp_index};
    use warpsmith_device::{argmax::Best, prelude::*, static_for};

    const BINS: usize = 256;

    /// A column's logits as keys.
    #[derive(Clone, Copy)]
    pub struct Logits {
        pub x: In<f32>,
        pub n: usize,
        pub s: Sampling,
    }

    impl Logits {
        /// The key of token `i`; 0 if it is out.
        #[inline(always)]
        pub unsafe fn key(&self, i: usize) -> u32 {
            let (word, bit) = (4 * (i / 32) as u64, i % 32);
            // SAFETY: `i` is below `n`; bitsets have a bit for each token.
            unsafe {
                if !self.s.allowed.is_null() && global_u32(self.s.allowed.raw() + word) >> bit & 1 == 0 {
                    return 0;
                }
                let v = self.x.at(i);
                let seen = self.s.penalises() && global_u32(self.s.seen.raw() + word) >> bit & 1 != 0;
                key(if seen { penalised(v, self.s.penalty) } else { v })
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

    /// The best of a column in which every token is allowed and none is penalised. A block is all that a column has: it asks for many
    /// logits at once and keeps the largest, and where that stood it looks once all are seen.
    ///
    /// All threads of the block make this call.
    #[device]
    pub unsafe fn best_of_all(l: &Logits, scratch: Shared<Best>) -> Best {
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

    /// The best of this thread's logits.
    #[device]
    unsafe fn best_of(l: &Logits) -> Best {
        let mut best = Best::NONE;
        let mut i = thread::idx_x() as usize;
        while i < l.n {
            let k = l.key(i);
            if k != 0 {
                best = best.merge(Best { value: logit(k), index: i as u32 });
            }
            i += THREADS as usize;
        }
        best
    }

    #[derive(Clone, Copy)]
    pub struct Memory {
        pub bins: Shared<u64>,
        pub sums: Shared<u64>,
        pub found: Shared<u64>,
    }

    /// The tokens of larger keys, and `ties` of this one, from the lowest index on.
    #[derive(Clone, Copy)]
    struct Threshold {
        key: u32,
        ties: u64,
    }

    /// The key at which the weights from the largest key downward reach `target`, and the weight of larger keys. All weights
    /// together reach it.
    #[device]
    pub unsafe fn reach(l: &Logits, m: &Memory, target: u64, weigh: impl Fn(u32) -> u64) -> (u32, u64) {
        let thread = thread::idx_x() as usize;
        let (mut prefix, mut above) = (0u32, 0u64);
        // Four, as `n` is below 2^24; said so that the compiler does not write the loop out.
        let digits = 4 + (l.n >> 24) as u32;
        let mut digit = 0;
        while digit < digits {
            let shift = 24 - 8 * digit;
            // What stands left of this digit must be the prefix; of the first there is nothing.
            let mask = if digit == 0 { 0 } else { !0u32 << (32 - 8 * digit) };
            if thread < BINS {
                m.bins.set(thread, 0);
            }
            sync::block();
            let mut i = thread;
            while i < l.n {
                let k = l.key(i);
                if k != 0 && k & mask == prefix {
                    let w = weigh(k);
                    if w != 0 {
                        m.bins.fetch_add((k >> shift & 0xFF) as usize, w, Order::Relaxed);
                    }
                }
                i += THREADS as usize;
            }
            sync::block();
            if warp_index() == 0 {
                // Lane 0 has the eight largest bins.
                let first = BINS - 8 * (lane() + 1);
                let mut own = 0;
                for b in 0..8 {
                    own += m.bins.get(first + b);
                }
                let upto = inclusive(own);
                let before = above + upto - own;
                if before < target && target <= before + own {
                    let (mut sum, mut b) = (before, 7);
                    loop {
                        let w = m.bins.get(first + b);
                        if sum + w >= target || b == 0 {
                            break;
                        }
                        sum += w;
                        b -= 1;
                    }
                    m.found.set(0, (first + b) as u64);
                    m.found.set(1, sum);
                }
            }
            sync::block();
            prefix |= (m.found.get(0) as u32) << shift;
            above = m.found.get(1);
            digit += 1;
        }
        (prefix, above)
    }

    /// The sum over this lane and those below.
    #[device]
    unsafe fn inclusive(v: u64) -> u64 {
        let mut sum = v;
        let mut distance = 1;
        while distance < 32 {
            let other = warp::shuffle_up(warp::FULL, sum, distance);
            sum += if lane() as u32 >= distance { other } else { 0 };
            distance *= 2;
        }
        sum
    }

    /// What top-k and top-p keep, and the sum of its weights.
    #[device]
    unsafe fn limited(l: &Logits, m: &Memory, weigh: impl Fn(u32) -> u64 + Copy) -> (Threshold, u64) {
        let (thread, s) = (thread::idx_x() as usize, &l.s);
        // Without a limit: all keys above 0, which nobody has.
        let mut kept = Threshold { key: 0, ties: 0 };
        let mut count = 0;
        let mut i = thread;
        while i < l.n {
            count += (l.key(i) != 0) as u64;
            i += THREADS as usize;
        }
        let count = block_reduce::reduce(count, 0, m.sums, |a: u64, b| a + b);
        if s.top_k != 0 && (s.top_k as u64) < count {
            let (key, above) = reach(l, m, s.top_k as u64, |_| 1);
            kept = Threshold { key, ties: s.top_k as u64 - above };
        }
        let mut sum = 0;
        let mut i = thread;
        while i < l.n {
            let k = l.key(i);
            sum += if k > kept.key { weigh(k) } else { 0 };
            i += THREADS as usize;
        }
        let sum = block_reduce::reduce(sum, 0, m.sums, |a: u64, b| a + b);
        let mut all = sum + if kept.ties > 0 { kept.ties * weigh(kept.key) } else { 0 };
        if s.top_p < 1.0 {
            let target = wanted(all, s.top_p);
            let (key, above) = reach(l, m, target, weigh);
            let each = weigh(key);
            kept = Threshold { key, ties: (target - above).div_ceil(each) };
            all = above + kept.ties * each;
        }
        (kept, all)
    }

    /// The sums of a warp's segment go to shared memory: the weights above the threshold, and the number of its ties.
    #[device]
    unsafe fn sum_segment(l: &Logits, m: &Memory, kept: &Threshold, segment: usize, weigh: impl Fn(u32) -> u64) {
        let (mut more, mut ties) = (0u64, 0u64);
        let first = warp_index() * segment;
        let mut i = first + lane();
        while i < first + segment {
            let k = if i < l.n { l.key(i) } else { 0 };
            more += if k > kept.key { weigh(k) } else { 0 };
            ties += (k != 0 && k == kept.key) as u64;
            i += 32;
        }
        let (more, ties) = (warp::reduce(more, |a, b| a + b), warp::reduce(ties, |a, b| a + b));
        sync::block();
        if lane() == 0 {
            m.sums.set(warp_index(), more);
            m.sums.set(32 + warp_index(), ties);
        }
        sync::block();
    }

    /// The token of a segment at which the weights from its first on pass `r`, where `tie` is the weight of a tie and
    /// `kept.ties` are left of them.
    ///
    /// All lanes of the warp make this call.
    #[device]
    unsafe fn drawn(
        l: &Logits,
        kept: &Threshold,
        (first, segment): (usize, usize),
        (mut r, tie): (u64, u64),
        weigh: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        let (mut base, mut left, mut token) = (0, kept.ties, None);
        // The same for all lanes, so that they leave together.
        while base < segment {
            let i = first + base + lane();
            let k = if i < l.n { l.key(i) } else { 0 };
            let same = k != 0 && k == kept.key;
            let peers = warp::ballot(warp::FULL, same);
            let rank = (peers & warp::lanes_below()).count_ones() as u64;
            let own = if k > kept.key {
                weigh(k)
            } else if same && rank < left {
                tie
            } else {
                0
            };
            let upto = inclusive(own);
            let total = warp::shuffle_idx(warp::FULL, upto, 31);
            let past = warp::ballot(warp::FULL, upto > r);
            if past != 0 {
                token = Some((first + base) as u32 + past.trailing_zeros());
                base = segment;
            } else {
                let taken = peers.count_ones() as u64;
                r -= total;
                left -= if taken < left { taken } else { left };
                base += 32;
            }
        }
        token
    }

    #[device]
    pub unsafe fn sample(logits: In<f32>, params: In<Sampling>, columns: In<Column>, y: Out<u32>, n: u32, stride: u32) {
        let scratch = shared_array!(SAMPLE_BEST: [Best; 32]);
        let m = Memory {
            bins: shared_array!(SAMPLE_BINS: [u64; BINS]),
            sums: shared_array!(SAMPLE_SUMS: [u64; 64]),
            found: shared_array!(SAMPLE_FOUND: [u64; 2]),
        };
        let column = block::idx_x() as usize;
        let (thread, s) = (thread::idx_x() as usize, params.at(column));
        let l = Logits { x: logits.from(column * stride as usize), n: n as usize, s };

        let plain = s.allowed.is_null() && !s.penalises();
        let best = if plain { best_of_all(&l, scratch) } else { block_reduce::argmax(best_of(&l), scratch) };
        let largest = best.value;
        let mut token = if largest.is_nan() { NONE } else { best.index };

        if token != NONE && !s.is_greedy() {
            let weigh = |k: u32| weight(logit(k), largest, s.temperature);
            let (kept, all) = limited(&l, &m, weigh);
            let tie = if kept.ties > 0 { weigh(kept.key) } else { 0 };

            // Each warp sums a segment; then the segment with the drawn weight is gone through.
            let segment = l.n.div_ceil(THREADS as usize) * 32;
            sum_segment(&l, &m, &kept, segment, weigh);
            let random = philox::draw([s.seed_low, s.seed_high], columns.at(column).position);
            let mut r = mul_high(random, all);
            let (mut left, mut w) = (kept.ties, 0);
            while w < 31 {
                let ties = m.sums.get(32 + w);
                let ties = if ties < left { ties } else { left };
                let mass = m.sums.get(w) + ties * tie;
                if r < mass {
                    break;
                }
                r -= mass;
                left -= ties;
                w += 1;
            }
            if warp_index() == 0 {
                let kept = Threshold { ties: left, ..kept };
                token = drawn(&l, &kept, (w * segment, segment), (r, tie), weigh).unwrap_or(token);
            }
        }
        if thread == 0 {
            y.set(column, token);
            if token != NONE && s.flags & RECORD != 0 && !s.seen.is_null() {
                let word = s.seen.byte_add(4 * (token / 32) as u64).ptr();
                atomic::fetch_or(word, 1 << (token % 32), Order::Relaxed, Scope::Gpu);
            }
        }
    }
}

/// A token of each column by temperature, top-k, top-p and a seed.
#[kernel(block = THREADS, min_blocks = 1, family = "sampling")]
pub unsafe fn sample(
    logits: Awaited<f32>,
    params: Awaited<Sampling>,
    columns: Awaited<Column>,
    y: Out<u32>,
    n: u32,
    stride: u32,
) {
    grid::launch_dependents();
    grid::wait_dependencies();
    frame::sample(logits.buffer(), params.buffer(), columns.buffer(), y, n, stride);
}

/// Rows of `n` logits, of which all [`weight`]s may be added up.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn check_logits(
    m: &'static KernelMeta,
    logits: &DeviceSlice<f32>,
    (columns, n, stride): (usize, u32, u32),
) -> Result<(), ContractError> {
    contract::within(m, "n", n, 1u32, ((1u32 << 24) - 1, "the weights of more tokens do not add up in 64 bits"))?;
    check_rows(m, "logits", logits, (columns, n, stride))
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for Sample<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.columns.len() as u64)
    }
    fn check(&self) -> Result<(), ContractError> {
        let (m, columns) = (Self::META, self.columns.len());
        state::check_columns(m, self.columns)?;
        check_logits(m, self.logits, (columns, self.n, self.stride))?;
        contract::exactly(m, "params", self.params.len(), (columns, "columns"))?;
        contract::at_least(m, "y", self.y.len(), (columns, "columns"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_names_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |logits, params, y, n| unsafe {
            Sample {
                logits: DeviceSlice::from_raw(0x1000, logits),
                params: DeviceSlice::from_raw(0x1000, params),
                columns: DeviceSlice::from_raw(0x1000, 2),
                y: DeviceSlice::from_raw_mut(0x2000, y),
                n,
                stride: 10,
            }
            .check()
        };
        assert!(launch(20, 2, 2, 10).is_ok());
        assert_eq!(launch(19, 2, 2, 10).unwrap_err().argument, "logits");
        assert_eq!(launch(20, 1, 2, 10).unwrap_err().argument, "params");
        assert_eq!(launch(20, 2, 1, 10).unwrap_err().argument, "y");
        assert_eq!(launch(20, 2, 2, 1 << 24).unwrap_err().argument, "n");
    }
}
