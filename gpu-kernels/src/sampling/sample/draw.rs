//! The third launch: which tokens are kept, and the one that is drawn.
//!
//! Each block sums the bins and finds those that the thresholds of top-k and top-p are in. Of its slice it sums what lies above all of
//! these, and lists the tokens within: the candidates. The last block of a column has the thresholds out of the candidates alone, then
//! the slice that the draw falls into, and then the token.

use super::super::{
    NONE,
    definition::{mul_high, wanted},
    digits::{self, Keys, ReachMemory, WideSums, block_inclusive, reach},
    philox,
};
use super::column::{Logits, ROUND, Slice, VECTOR, Weigh, largest, record};
use super::work::{CANDIDATES, RUN, SLICES, Work};
use super::{Column, Sampling, THREADS};
use warpsmith_device::{prelude::*, static_for};

/// A threshold that is not looked for.
const NOWHERE: u64 = u64::MAX;

/// Shared memory of the block.
#[derive(Clone, Copy)]
struct Scratch {
    /// A number a warp.
    sums: Shared<u64>,
    /// What one thread found for all.
    found: Shared<u64>,
    digits: ReachMemory,
    /// What kept tokens of each slice weigh.
    mass: WideSums,
    /// Tokens of each slice whose key is the threshold.
    ties: Shared<u32>,
    list: Shared<u64>,
    /// Candidates of the block's round, where they begin in the list, and the block's ticket.
    places: Shared<u32>,
}

/// The bins that thresholds are in.
#[derive(Clone, Copy)]
struct Bins {
    /// That of the last token that top-k keeps; [`NOWHERE`]: it keeps all.
    last: u64,
    /// The number of tokens in the bins before that.
    before: u64,
    /// What these weigh.
    above: u64,
    /// What all tokens weigh.
    total: u64,
    /// The first and the last bin that the threshold of top-p may be in; [`NOWHERE`]: it keeps all.
    from: u64,
    upto: u64,
    /// What the bins before `from` weigh.
    sure: u64,
}

impl Bins {
    /// Tokens of bins before this one are kept.
    #[inline(always)]
    fn kept(&self) -> u64 {
        // The bin of top-p is not behind that of top-k, and `NOWHERE` is behind all.
        if self.from < self.last { self.from } else { self.last }
    }

    /// Whether the tokens of a bin are candidates.
    #[inline(always)]
    fn open(&self, bin: u64) -> bool {
        bin == self.last || self.from <= bin && bin <= self.upto && self.from != NOWHERE
    }
}

/// Out of the counts and weights of all bins.
///
/// All threads of the block make this call, after which a barrier has to come before `found` is written again.
#[device]
unsafe fn bins(s: &Sampling, counts: [u32; RUN as usize], weights: [u64; RUN as usize], m: Scratch) -> Bins {
    let first = thread::idx_x() as u64 * RUN as u64;
    let (mut tokens, mut weight) = (0, 0);
    static_for!(j in 0..RUN as usize => {
        tokens += counts[j] as u64;
        weight += weights[j];
    });
    let (upto_tokens, all_tokens) = block_inclusive(tokens, m.sums);
    let (upto_weight, total) = block_inclusive(weight, m.sums);
    let mut of = Bins { last: NOWHERE, before: 0, above: 0, total, from: NOWHERE, upto: NOWHERE, sure: 0 };
    let k = s.top_k as u64;
    let (mut least, mut most) = (total, total);
    if k != 0 && k < all_tokens {
        let before = upto_tokens - tokens;
        if before < k && k <= upto_tokens {
            let (mut tokens, mut weight, mut bin) = (before, upto_weight - weight, NOWHERE);
            static_for!(j in 0..RUN as usize => {
                if bin == NOWHERE {
                    if tokens + counts[j] as u64 >= k {
                        bin = first + j as u64;
                        m.found.set(3, weight + weights[j]);
                    } else {
                        tokens += counts[j] as u64;
                        weight += weights[j];
                    }
                }
            });
            m.found.set(0, bin);
            m.found.set(1, tokens);
            m.found.set(2, weight);
        }
        sync::block();
        (of.last, of.before, of.above) = (m.found.get(0), m.found.get(1), m.found.get(2));
        // Of the last bin top-k keeps one token, or more.
        (least, most) = (of.above + 1, m.found.get(3));
    }
    if s.top_p < 1.0 {
        let before = upto_weight - weight;
        let find = |place: usize, target: u64| {
            if before < target && target <= upto_weight {
                let (mut weight, mut bin) = (before, NOWHERE);
                static_for!(j in 0..RUN as usize => {
                    if bin == NOWHERE {
                        if weight + weights[j] >= target {
                            bin = first + j as u64;
                        } else {
                            weight += weights[j];
                        }
                    }
                });
                m.found.set(place, bin);
                m.found.set(place + 1, weight);
            }
        };
        find(4, wanted(least, s.top_p));
        find(6, wanted(most, s.top_p));
        sync::block();
        (of.from, of.sure, of.upto) = (m.found.get(4), m.found.get(5), m.found.get(6));
    }
    of
}

/// Sums of the slice's tokens that are kept for certain; its candidates go to the list.
///
/// All threads of the block make this call.
#[device]
unsafe fn sort_slice(
    l: &Logits,
    own: Slice,
    mut keys: [u32; VECTOR],
    weigh: Weigh,
    bins: &Bins,
    work: Work,
    m: Scratch,
) -> u64 {
    let thread = thread::idx_x() as usize;
    let kept = bins.kept();
    let (mut sum, mut from) = (0, own.first);
    loop {
        if thread == 0 {
            m.places.set(0, 0);
        }
        sync::block();
        let mut place = [u32::MAX; VECTOR];
        static_for!(j in 0..VECTOR => {
            let w = if keys[j] != 0 { weigh.weight(keys[j]) } else { 0 };
            if w != 0 {
                let bin = weigh.bin(keys[j]) as u64;
                if bin < kept {
                    sum += w;
                } else if bins.open(bin) {
                    place[j] = m.places.fetch_add(0, 1, Order::Relaxed);
                }
            }
        });
        sync::block();
        let found = m.places.get(0);
        if found != 0 {
            if thread == 0 {
                m.places.set(1, atomic::fetch_add(work.length.ptr_at(0), found, Order::Relaxed, Scope::Gpu));
            }
            sync::block();
            let first = m.places.get(1);
            static_for!(j in 0..VECTOR => {
                let at = first + place[j];
                if place[j] != u32::MAX && at < CANDIDATES {
                    let i = from + VECTOR * thread + j;
                    work.list.set(at as usize, (keys[j] as u64) << 32 | i as u64);
                }
            });
        }
        from += ROUND;
        if from >= own.end {
            break;
        }
        keys = own.own(from).map_or([0; VECTOR], |i| l.keys(i));
        sync::block();
    }
    block_reduce::reduce(sum, 0, m.sums, |a: u64, b| a + b)
}

/// The candidates: in shared memory, or, where they are too many, the column.
#[derive(Clone, Copy)]
struct Candidates {
    list: Shared<u64>,
    /// How many there are; more than [`CANDIDATES`]: not all are in the list.
    count: usize,
    l: Logits,
    n: usize,
    weigh: Weigh,
}

impl Candidates {
    /// Calls `f` with key and index of each of this thread's candidates, and maybe of other tokens that weigh anything.
    #[inline(always)]
    unsafe fn each(&self, mut f: impl FnMut(u32, u32)) {
        let listed = self.count <= CANDIDATES as usize;
        let end = if listed { self.count } else { self.n };
        let mut i = thread::idx_x() as usize;
        // One block does this once: what it costs first is to get there, so code is short.
        while i < unroll::opaque(end) {
            unroll::no_unroll();
            // SAFETY: there are so many candidates, or tokens.
            let (key, index) = unsafe {
                if listed {
                    let candidate = self.list.get(i);
                    ((candidate >> 32) as u32, candidate as u32)
                } else {
                    let key = self.l.key(i);
                    (if self.weigh.weight(key) != 0 { key } else { 0 }, i as u32)
                }
            };
            if key != 0 {
                f(key, index);
            }
            i += THREADS as usize;
        }
    }

    /// Whether a key's bin is one of those from the first to the last.
    #[inline(always)]
    fn is_in(&self, key: u32, bins: (u64, u64)) -> bool {
        let bin = self.weigh.bin(key) as u64;
        bins.0 <= bin && bin <= bins.1
    }

    /// Those of bins that follow one another.
    ///
    /// All threads of the block make this call.
    #[device]
    unsafe fn within(self, bins: (u64, u64), sums: Shared<u64>) -> Within {
        // The largest key above the complement of the smallest.
        let mut ends = 0u64;
        let join = |a: u64, b: u64| {
            let high = if a >> 32 > b >> 32 { a >> 32 } else { b >> 32 };
            let low = if a as u32 > b as u32 { a as u32 } else { b as u32 };
            high << 32 | low as u64
        };
        self.each(|key, _| {
            if self.is_in(key, bins) {
                ends = join(ends, (key as u64) << 32 | !key as u64);
            }
        });
        let ends = block_reduce::reduce(ends, 0, sums, join);
        Within { candidates: self, bins, least: !(ends as u32), most: (ends >> 32) as u32 }
    }
}

/// The candidates of some bins, their keys counted from the smallest.
#[derive(Clone, Copy)]
struct Within {
    candidates: Candidates,
    bins: (u64, u64),
    least: u32,
    most: u32,
}

impl Keys for Within {
    #[inline(always)]
    unsafe fn each(&self, mut f: impl FnMut(u32)) {
        // SAFETY: the caller's promise.
        unsafe {
            self.candidates.each(|key, _| {
                if self.candidates.is_in(key, self.bins) {
                    f(key - self.least);
                }
            });
        }
    }
}

impl Within {
    /// [`reach`], of keys as they are.
    #[device]
    unsafe fn reach(&self, m: ReachMemory, target: (u64, u64), weigh: impl Fn(u32) -> u64) -> (u32, u64) {
        let bits = 32 - (self.most - self.least).leading_zeros();
        let (key, above) = reach(self, m, bits, target, |key| weigh(self.least + key));
        (self.least + key, above)
    }
}

/// The tokens of larger keys, and `ties` of this one, from the lowest index on.
#[derive(Clone, Copy)]
struct Threshold {
    key: u32,
    ties: u64,
    /// What one of these weighs.
    tie: u64,
}

/// What top-k and top-p keep, and the sum of its weights.
#[device]
unsafe fn limited(s: &Sampling, candidates: Candidates, bins: &Bins, m: Scratch) -> (Threshold, u64) {
    let weigh = candidates.weigh;
    // Without a limit: all keys above 0, which nobody has.
    let mut kept = Threshold { key: 0, ties: 0, tie: 0 };
    let mut all = bins.total;
    let mut limit = 0;
    // Top-k and then top-p, by the same code.
    while limit < unroll::opaque(2) {
        unroll::no_unroll();
        let counts = limit == 0;
        let (first, last) = if counts { (bins.last, bins.last) } else { (bins.from, bins.upto) };
        if first != NOWHERE {
            let target = if counts { (s.top_k as u64, bins.before) } else { (wanted(all, s.top_p), bins.sure) };
            let within = candidates.within((first, last), m.sums);
            let (key, above) = within.reach(m.digits, target, |k| if counts { 1 } else { weigh.weight(k) });
            let tie = weigh.weight(key);
            let left = target.0 - above;
            let ties = if counts { left } else { left.div_ceil(tie) };
            kept = Threshold { key, ties, tie };
            let mut sum = 0;
            within.candidates.each(|k, _| {
                sum += if k > key && candidates.is_in(k, (first, last)) { weigh.weight(k) } else { 0 };
            });
            let sum = block_reduce::reduce(sum, 0, m.sums, |a: u64, b| a + b);
            all = if counts { bins.above } else { bins.sure } + sum + ties * tie;
        }
        limit += 1;
    }
    (kept, all)
}

/// The slice that `r` falls into, with what is left of `r` and of the ties.
///
/// All threads of the block make this call.
#[device]
unsafe fn slice_of(
    candidates: Candidates,
    (kept, bins): (Threshold, &Bins),
    (slice, slices): (u32, usize),
    r: u64,
    work: Work,
    m: Scratch,
) -> (usize, u64, u64) {
    let thread = thread::idx_x() as usize;
    m.mass.set(thread, if thread < slices { work.sums.get(thread) } else { 0 });
    m.ties.set(thread, 0);
    sync::block();
    if kept.key != 0 {
        let sure = bins.kept();
        candidates.each(|key, index| {
            if key > kept.key && candidates.is_in(key, (sure, NOWHERE)) {
                m.mass.add((index / slice) as usize, candidates.weigh.weight(key));
            } else if key == kept.key {
                m.ties.fetch_add((index / slice) as usize, 1, Order::Relaxed);
            }
        });
    }
    sync::block();
    let ties = m.ties.get(thread) as u64;
    let before = block_inclusive(ties, m.sums).0 - ties;
    let left = if before < kept.ties { kept.ties - before } else { 0 };
    let own = m.mass.get(thread) + if ties < left { ties } else { left } * kept.tie;
    let (upto, _) = block_inclusive(own, m.sums);
    if upto - own <= r && r < upto {
        m.found.set(0, thread as u64);
        m.found.set(1, r - (upto - own));
        m.found.set(2, left);
    }
    sync::block();
    (m.found.get(0) as usize, m.found.get(1), m.found.get(2))
}

/// The token of a slice at which the weights from its first on pass `r`, where `left` are left of the ties. One thread has it.
///
/// All threads of the block make this call.
#[device]
unsafe fn drawn(
    l: &Logits,
    of: Slice,
    (kept, weigh): (Threshold, Weigh),
    (mut r, mut left): (u64, u64),
    sums: Shared<u64>,
) -> Option<u32> {
    let (mut from, mut token) = (of.first, None);
    while from < of.end {
        let i = of.own(from);
        let keys = i.map_or([0; VECTOR], |i| l.keys(i));
        let same = |j: usize| keys[j] != 0 && keys[j] == kept.key;
        let mut ties = 0;
        static_for!(j in 0..VECTOR => {
            ties += same(j) as u64;
        });
        let (upto_ties, all_ties) = block_inclusive(ties, sums);
        let (mut rank, mut own, mut weights) = (upto_ties - ties, 0, [0; VECTOR]);
        static_for!(j in 0..VECTOR => {
            if keys[j] > kept.key {
                weights[j] = weigh.weight(keys[j]);
            } else if same(j) {
                weights[j] = if rank < left { kept.tie } else { 0 };
                rank += 1;
            }
            own += weights[j];
        });
        let (upto, all) = block_inclusive(own, sums);
        if upto - own <= r && r < upto {
            let mut sum = upto - own;
            static_for!(j in 0..VECTOR => {
                sum += weights[j];
                if token.is_none() && sum > r {
                    token = i.map(|i| (i + j) as u32);
                }
            });
        }
        if r < all {
            break;
        }
        r -= all;
        left -= if all_ties < left { all_ties } else { left };
        from += ROUND;
    }
    token
}

/// The token of each column that draws.
#[device]
pub unsafe fn draw(
    (logits, params, columns): (In<f32>, In<Sampling>, In<Column>),
    y: Out<u32>,
    (work, tickets): (InOut<u64>, InOut<u32>),
    (n, stride, slice): (u32, u32, u32),
) {
    let m = Scratch {
        sums: shared_array!(SAMPLE_SUMS: [u64; 32]),
        found: shared_array!(SAMPLE_FOUND: [u64; 8]),
        digits: ReachMemory {
            bins: WideSums {
                low: shared_array!(SAMPLE_BINS_LOW: [u32; digits::BINS]),
                high: shared_array!(SAMPLE_BINS_HIGH: [u32; digits::BINS]),
            },
            found: shared_array!(SAMPLE_DIGIT: [u64; 2]),
        },
        mass: WideSums {
            low: shared_array!(SAMPLE_MASS_LOW: [u32; SLICES as usize]),
            high: shared_array!(SAMPLE_MASS_HIGH: [u32; SLICES as usize]),
        },
        ties: shared_array!(SAMPLE_TIES: [u32; SLICES as usize]),
        list: shared_array!(SAMPLE_LIST: [u64; CANDIDATES as usize]),
        places: shared_array!(SAMPLE_PLACES: [u32; 3]),
    };
    let (number, column) = (block::idx_x() as usize, block::idx_y() as usize);
    let (thread, slices) = (thread::idx_x() as usize, grid::dim_x() as usize);
    let s = params.at(column);
    if s.is_greedy() {
        return;
    }
    let work = Work::of(work, column);
    let l = Logits::new(logits.from(column * stride as usize), n as usize, &s);
    let own = Slice::new(number, slice, n);
    // Asked for before what the block has to wait for.
    let keys = own.own(own.first).map_or([0; VECTOR], |i| l.keys(i));
    let counts: [u32; RUN as usize] = core::array::from_fn(|j| work.counts.get(j * THREADS as usize + thread));
    let weights: [u64; RUN as usize] = core::array::from_fn(|j| work.weights.get(j * THREADS as usize + thread));
    let best = largest(if thread < slices { work.best.get(thread) } else { 0 }, m.sums);
    if best == 0 {
        if number == 0 && thread == 0 {
            y.set(column, NONE);
        }
        return;
    }
    let weigh = Weigh::new(best, s.temperature);
    let bins = bins(&s, counts, weights, m);
    let sum = sort_slice(&l, own, keys, weigh, &bins, work, m);
    if thread == 0 {
        work.sums.set(number, sum);
    }
    // What the block wrote is before the counter for thread 0, by the barrier, and so for who reads it after.
    sync::block();
    let ticket = tickets.ptr_at(column);
    if thread == 0 {
        m.places.set(2, atomic::fetch_add(ticket, 1, Order::AcqRel, Scope::Gpu));
    }
    sync::block();
    if m.places.get(2) as usize + 1 != slices {
        return;
    }
    if thread == 0 {
        atomic::store(ticket, 0, Order::Relaxed, Scope::Gpu);
    }

    let candidates = Candidates { list: m.list, count: work.length.get(0) as usize, l, n: n as usize, weigh };
    if candidates.count <= CANDIDATES as usize {
        let mut i = thread;
        while i < candidates.count {
            m.list.set(i, work.list.get(i));
            i += THREADS as usize;
        }
    }
    sync::block();
    let (kept, all) = limited(&s, candidates, &bins, m);
    let random = philox::draw([s.seed_low, s.seed_high], columns.at(column).position);
    let r = mul_high(random, all);
    let (number, r, left) = slice_of(candidates, (kept, &bins), (slice, slices), r, work, m);
    if let Some(token) = drawn(&l, Slice::new(number, slice, n), (kept, weigh), (r, left), m.sums) {
        y.set(column, token);
        record(&s, token);
    }
}
