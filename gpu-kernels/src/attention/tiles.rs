//! A part of a step's positions on tensor cores: a warp takes tiles of 16 positions, for up to eight query heads at once.
//!
//! An f32 is held as two f16, the second of which is what the first leaves of it; both are factors of products of their own
//! (`mma.sync` m16n8k16, sums in f32). Keys and values are factors as they are stored: those of f16, and codes of int8, which f16
//! holds exactly. Nothing of a tile passes through shared memory, as the order of the elements that a product adds up is free:
//!
//! | product | left factor, 16 rows | right factor, 8 columns | a lane of `g = lane / 4`, `t = lane % 4` loads |
//! |---|---|---|---|
//! | scores, for 8 positions | queries: head `g`, and what is left of it | keys | of position `g` elements `32 c + 8 t ..` |
//! | values, for 16 of them | values, transposed | weights, then what is left of them | of positions `2 t`, `2 t + 1` and the same plus 8 elements `64 c + 8 g ..` |
//!
//! The lane that a score comes out in is the one that its weight goes into the next product by. Pairs of positions are made of two
//! rows by a `prmt` each.
//!
//! Two f16 hold a query's elements to a relative 2^-22, or 2^-39 of the largest one of the head, by which they are scaled, and
//! weights to a relative 2^-22, or 2^-40 of the one that they are relative to. The rest of a result's error is that of sums in
//! f32, which a product of tensor cores cuts off where others round: [`step`](super::step) has the bound.

use super::step::{
    THREADS,
    memory::{FROM, StepMemory, WARPS},
    partial::Gathered,
};
use crate::{
    head::{Held, magnitude},
    kv::cached::{Cached, Rows},
    load::{lane, thread_index, warp_index},
    state::GROUP,
};
use warpsmith_device::{
    convert::{pack_f16x2, unpack_f16x2},
    math::permute_bytes,
    mma::mma_f16,
    prelude::*,
    static_for,
    unroll::no_unroll,
};

/// Positions of a tile.
pub const TILE: u32 = GROUP;
/// Weights are relative to a score this many powers of two below the largest, which is as large as f16 holds them with room to
/// round.
const LIFT: f32 = 15.0;

/// Query heads of a warp.
pub const HEADS: usize = super::step::HEADS as usize;
/// Elements that there is room for in a query.
#[inline(always)]
pub const fn width(dim: usize) -> usize {
    if dim <= 64 { 64 } else { 128 }
}

/// Two values as a word of f16, and what that leaves of them as another.
#[inline(always)]
fn split(a: f32, b: f32) -> (u32, u32) {
    let first = pack_f16x2(a, b);
    let (c, d) = unpack_f16x2(first);
    (first, pack_f16x2(a - c, b - d))
}

/// 2^`n`, of which the biased exponent is given: within 1 to 254.
#[inline(always)]
pub fn power(biased: u32) -> f32 {
    f32::from_bits(biased << 23)
}

/// The biased exponent of a number that is not negative.
#[inline(always)]
fn exponent(v: f32) -> u32 {
    v.to_bits() >> 23
}

/// Where word `w` of a query lies, and behind it what is left of its two elements. Words are loaded by fours, half of that at once:
/// eight lanes of two heads find their halves in different banks.
#[inline(always)]
fn word(head: usize, w: usize, width: usize) -> usize {
    head * width + (2 * w ^ (head % 2 * 4))
}

/// Queries as factors, in shared memory.
#[derive(Clone, Copy)]
pub struct QueryFactors {
    /// Two words for each two elements, a head after the other.
    pub words: Shared<u32>,
    /// Of each head: what its scores are scaled by.
    pub scales: Shared<f32>,
}

impl QueryFactors {
    /// Those of a step's block.
    #[inline(always)]
    pub fn of(memory: &StepMemory) -> QueryFactors {
        // SAFETY: words are as large as f32.
        QueryFactors { words: unsafe { memory.queries.cast() }, scales: memory.totals }
    }
}

/// A warp makes factors of query `head`.
///
/// All lanes of the warp make this call.
#[device]
pub unsafe fn keep<const N: usize>(factors: &QueryFactors, head: usize, query: &Held<N>) {
    let mut largest = 0;
    static_for!(j in 0..N => {
        largest = largest.max(magnitude(query[j][0])).max(magnitude(query[j][1]));
    });
    // The largest becomes one of 2^14 or more, and below 2^15.
    let e = (warp::max_u32(largest) >> 23).max(15);
    let scale = power(268 - e);
    static_for!(j in 0..N => {
        let (first, second) = split(query[j][0] * scale, query[j][1] * scale);
        factors.words.set2(word(head, 32 * j + lane(), 64 * N), U32x2([first, second]));
    });
    if lane() == 0 {
        factors.scales.set(head, power(e - 14));
    }
}

/// The block's positions `from .. to`, for all of its query heads, whose factors are there; `rows` gives its keys and values, `put` is
/// given four elements of a head from one on, relative to a score and not yet divided by the sum of weights, then these two.
#[device]
pub unsafe fn part<T: Cached>(
    (dim, group): (usize, u32),
    (from, to): (u32, u32),
    rows: impl Fn() -> (Rows, Rows),
    memory: &StepMemory,
    put: impl Fn(usize, usize, [f32; 4], f32, f32),
) {
    let place = Partition { group, sharing: sharing(group), from, to };
    // The same choice in every thread.
    match dim {
        64 => tiles::<T, 64, 2, 1>(&place, rows, memory, put),
        32 if !T::NARROW => tiles::<T, 32, 1, 1>(&place, rows, memory, put),
        80 if !T::NARROW => tiles::<T, 80, 3, 2>(&place, rows, memory, put),
        96 if !T::NARROW => tiles::<T, 96, 3, 2>(&place, rows, memory, put),
        _ => tiles::<T, 128, 4, 2>(&place, rows, memory, put),
    }
}

/// Warps that share the query heads of a key head: half of a block's where there are more than a warp has.
#[inline(always)]
pub const fn sharing(group: u32) -> u32 {
    if group > HEADS as u32 { WARPS as u32 / 2 } else { WARPS as u32 }
}

/// The block's positions, and how its queries are spread over warps.
#[derive(Clone, Copy)]
pub struct Partition {
    pub group: u32,
    /// Warps that share query heads: a power of two. The others have those from the ninth on.
    pub sharing: u32,
    pub from: u32,
    pub to: u32,
}

impl Partition {
    /// Where the first tile begins.
    #[inline(always)]
    fn first(&self) -> u32 {
        self.from / TILE * TILE
    }

    /// Warps with a tile, of those that share query heads.
    #[inline(always)]
    fn active(&self) -> u32 {
        (self.to - self.first()).div_ceil(TILE).min(self.sharing)
    }

    /// Which query heads the warp has, and which of the warps that share them it is.
    #[inline(always)]
    fn turn(&self) -> (u32, u32) {
        let warp = warp_index() as u32;
        (u32::from(warp >= self.sharing), warp & (self.sharing - 1))
    }
}

/// Where a warp's values lie, in fours: of a pair of heads `2 t` and two elements, as lanes of tensor cores have them. Those that
/// store have all `t` of two `g` at once, and those that load all `g` of one `t`: each find eight different banks.
#[inline(always)]
fn slot(g: usize, t: usize) -> usize {
    4 * g + (t ^ g / 2)
}

/// The warps' tiles; what comes of them goes to shared memory, and from there to `put`. `STEPS` is `DIM / 32`, `CHUNKS` is
/// `DIM / 64`, rounded up.
#[device]
unsafe fn tiles<T: Cached, const DIM: usize, const STEPS: usize, const CHUNKS: usize>(
    p: &Partition,
    rows: impl Fn() -> (Rows, Rows),
    memory: &StepMemory,
    put: impl Fn(usize, usize, [f32; 4], f32, f32),
) {
    let (set, turn) = p.turn();
    if turn < p.active() {
        let (warp, g, t) = (warp_index(), lane() / 4, lane() % 4);
        let first = set as usize * HEADS;
        // Rows past the last head repeat it.
        let last = p.group as usize - 1;
        let head = if first + g < last { first + g } else { last };
        let (keys, values) = rows();
        let (rows, base) = ((&keys, &values), p.first() + turn * TILE);
        // Heads of 64 and 128 elements have code of its own for pages: of few positions, as most warps have, a lookup is a notable part.
        let one_code = DIM != 64 && DIM != 128;
        let from = || memory.ticket.get(FROM);
        let state = if one_code || !T::NARROW && keys.paged() {
            sweep::<T, true, DIM, STEPS, CHUNKS>(p, rows, (&QueryFactors::of(memory), head), base, from)
        } else {
            sweep::<T, false, DIM, STEPS, CHUNKS>(p, rows, (&QueryFactors::of(memory), head), base, from)
        };
        if t == 0 {
            memory.states.set2(2 * (warp * HEADS + g), F32x2([state.top, state.sum]));
        }
        if T::SCALED && lane() == 0 {
            memory.units.set(warp, power(state.unit));
        }
        if first + 2 * t <= last {
            let to = memory.values.from(4 * (128 * CHUNKS * warp + slot(g, t)));
            static_for!(c in 0..CHUNKS => {
                if DIM % 64 == 0 || 64 * c + 8 * g < DIM {
                    for i in 0..4 {
                        to.set4(128 * (4 * c + i), F32x4(state.out[c][i]));
                    }
                }
            });
        }
    }
    sync::block();
    merge::<T, DIM, CHUNKS>(p, memory, put);
}

/// The results of the warps as one, four elements of a head a thread.
#[device]
unsafe fn merge<T: Cached, const DIM: usize, const CHUNKS: usize>(
    p: &Partition,
    memory: &StepMemory,
    put: impl Fn(usize, usize, [f32; 4], f32, f32),
) {
    // Loads of as many warps are under way together: so many have a tile of a part that is full.
    const TOGETHER: usize = 4;
    let mut i = thread_index() as usize;
    while i < 16 * CHUNKS * p.group as usize {
        no_unroll();
        let (g, half, c, head) = (i % 8, i / 8 % 2, i / 16 % CHUNKS, i / (16 * CHUNKS));
        let d = 64 * c + 8 * g + 4 * half;
        if DIM % 64 == 0 || d < DIM {
            let (set, of_set) = (head / HEADS, head % HEADS);
            let found = OfWarps::<CHUNKS>::of(memory, set * p.sharing as usize, of_set, (c, half, g));
            let (active, mut w) = (p.active() as usize, 0);
            let mut all = Gathered::<1, 4>::NONE;
            while w < active {
                no_unroll();
                let results: [_; TOGETHER] = core::array::from_fn(|n| {
                    if w + n < active { found.of_warp::<T>(w + n) } else { ((f32::MIN, 0.0), 0.0, [0.0; 4]) }
                });
                for n in 0..TOGETHER {
                    if w + n < active {
                        let (state, units, v) = results[n];
                        all.add(state, units, |_, i| v[i]);
                    }
                }
                w += TOGETHER;
            }
            put(head, d, all.values[0], all.most, all.sum);
        }
        i += THREADS as usize;
    }
}

/// Where the warps that share a head have what they found of it.
struct OfWarps<const CHUNKS: usize> {
    states: Shared<f32>,
    units: Shared<f32>,
    values: Shared<f32>,
    /// Whether it is the second head of a pair, whose values lie together.
    second: bool,
}

impl<const CHUNKS: usize> OfWarps<CHUNKS> {
    /// Of the warps from `warp` on, head `head` of those that they have, and of each 64 elements, the `c`th, half `half` of eight from
    /// `8 * g` on.
    #[inline(always)]
    unsafe fn of(memory: &StepMemory, warp: usize, head: usize, (c, half, g): (usize, usize, usize)) -> Self {
        let at = 4 * (((warp * CHUNKS + c) * 4 + 2 * half) * 32 + slot(g, head / 2));
        // SAFETY: the warps have places for so many heads and elements.
        unsafe {
            OfWarps {
                states: memory.states.from(2 * (warp * HEADS + head)),
                units: memory.units.from(warp),
                values: memory.values.from(at),
                second: head % 2 == 1,
            }
        }
    }

    /// What warp `w` of them found: what weights are relative to and their sum, the units of values, and four of these.
    #[inline(always)]
    unsafe fn of_warp<T: Cached>(&self, w: usize) -> ((f32, f32), f32, [f32; 4]) {
        let at = CHUNKS * 512 * w;
        // SAFETY: the warp had a tile, and stored all three before the barrier.
        let (state, low, high, units) = unsafe {
            let units = if T::SCALED { self.units.get(w) } else { 1.0 };
            (self.states.get2(2 * HEADS * w).0, self.values.get4(at).0, self.values.get4(at + 128).0, units)
        };
        let of = |pairs: [f32; 4], k: usize| if self.second { pairs[2 * k + 1] } else { pairs[2 * k] };
        ((state[0], state[1]), units, [of(low, 0), of(low, 1), of(high, 0), of(high, 1)])
    }
}

/// What a warp knows after its tiles, in a lane of `g = lane / 4` and `t = lane % 4`.
pub struct TileSoftmax<const CHUNKS: usize> {
    /// What the weights of head `g` are relative to.
    pub top: f32,
    /// Their sum.
    pub sum: f32,
    /// The biased exponent of what the scales of values are relative to.
    pub unit: u32,
    /// The weighted values: of each 64 elements, elements `8 g ..` in pairs, each for heads `2 t` and `2 t + 1`.
    pub out: [[[f32; 4]; 4]; CHUNKS],
}

impl<const CHUNKS: usize> TileSoftmax<CHUNKS> {
    /// Makes what is there relative to a larger score, and to a larger scale; `t` is the lane's.
    #[device]
    unsafe fn rescale<T: Cached>(&mut self, top: f32, unit: u32, t: u32) {
        let shrink = math::exp2_approx_ftz(self.top - top);
        self.sum *= shrink;
        let units = if T::SCALED { power(self.unit) * power(254 - unit) } else { 1.0 };
        for e in 0..2 {
            let shrink = warp::shuffle_idx(warp::FULL, shrink, 8 * t + 4 * e) * units;
            for c in 0..CHUNKS {
                for i in 0..4 {
                    self.out[c][i][e as usize] *= shrink;
                    self.out[c][i][e as usize + 2] *= shrink;
                }
            }
        }
    }

    /// Adds the values of four positions a lane, by the weights of their scores.
    #[device]
    unsafe fn add<T: Cached>(&mut self, scores: [f32; 4], scales: [f32; 4], raw_values: &[[T::Eight; 4]; CHUNKS]) {
        let (mut first, mut second) = ([0u32; 2], [0u32; 2]);
        for half in 0..2 {
            let mut pair = [0.0f32; 2];
            for i in 0..2 {
                let weight = math::exp2_approx_ftz(scores[2 * half + i] - self.top);
                self.sum += weight;
                // A weight of 0 takes nothing, whatever the row is scaled by.
                let scaled = weight * (scales[2 * half + i] * power(254 - self.unit.max(1)));
                pair[i] = if !T::SCALED || weight == 0.0 { weight } else { scaled };
            }
            (first[half], second[half]) = split(pair[0], pair[1]);
        }
        for c in 0..CHUNKS {
            let raw = raw_values[c];
            let (r0, r1, r2, r3) = (T::halves(raw[0]), T::halves(raw[1]), T::halves(raw[2]), T::halves(raw[3]));
            for i in 0..4 {
                let (low, high) = (|a: u32, b: u32| permute_bytes(a, b, 0x5410), |a, b| permute_bytes(a, b, 0x7632));
                let a = [low(r0[i], r1[i]), high(r0[i], r1[i]), low(r2[i], r3[i]), high(r2[i], r3[i])];
                mma_f16(&mut self.out[c][i], a, second);
                mma_f16(&mut self.out[c][i], a, first);
            }
        }
    }
}

/// Every `sharing`th tile from position `base` on, which is below `p.to`, for query `head` and the other lanes' ones. `from` gives
/// `p.from` once more.
#[device]
pub unsafe fn sweep<T: Cached, const PAGED: bool, const DIM: usize, const STEPS: usize, const CHUNKS: usize>(
    p: &Partition,
    (keys, values): (&Rows, &Rows),
    (factors, head): (&QueryFactors, usize),
    mut base: u32,
    from: impl Fn() -> u32,
) -> TileSoftmax<CHUNKS> {
    let mut state = TileSoftmax { top: f32::MIN, sum: 0.0, unit: 0, out: [[[0.0; 4]; 4]; CHUNKS] };
    let (g, t) = (lane() as u32 / 4, lane() as u32 % 4);
    // Scores are kept in powers of two.
    let scale = factors.scales.get(head) * (core::f32::consts::LOG2_E / math::sqrt(DIM as f32));
    // With the rest of an address constant.
    let query = |half: usize| factors.words.from(word(head, 4 * t as usize + 2 * half, width(DIM)));
    let queries = [query(0), query(1)];
    let (first, step) = (base, p.sharing * TILE);
    loop {
        // A tile is a group of positions, whose rows follow one another. Those past the end repeat the last one, with weight 0, which
        // those before the first have, too.
        let index = if PAGED { keys.index::<T>(base) } else { base };
        let place =
            |offset: u32| if PAGED { index + offset.min(p.to - 1 - base) } else { (base + offset).min(p.to - 1) };
        let row_of = |rows: &Rows, offset: u32| rows.data + place(offset) as u64 * (DIM as u64 * T::BYTES);
        let key = |row: u64, s: usize| {
            let there = DIM % 32 == 0 || 32 * s + 8 * (t as usize) < DIM;
            if there { T::load8(row + 32 * s as u64 * T::BYTES) } else { T::NONE }
        };
        let own = [2 * t, 2 * t + 1, 2 * t + 8, 2 * t + 9];
        let value = |c: usize| {
            let mut raw = [T::NONE; 4];
            if DIM % 64 == 0 || 64 * c + 8 * (g as usize) < DIM {
                for r in 0..4 {
                    let offset = (64 * c as u64 + 8 * g as u64) * T::BYTES;
                    raw[r] = T::load8(row_of(values, own[r]) + offset);
                }
            }
            raw
        };
        let query = |s: usize| [queries[0].get4(32 * s).0, queries[1].get4(32 * s).0];
        let row = |half: usize| row_of(keys, 8 * half as u32 + g) + 8 * t as u64 * T::BYTES;
        let (rows, mut raw_keys) = ([row(0), row(1)], [[T::NONE; STEPS]; 2]);
        for half in 0..2 {
            for s in 0..STEPS {
                raw_keys[half][s] = key(rows[half], s);
            }
        }
        let mut raw_values = [[T::NONE; 4]; CHUNKS];
        raw_values[0] = value(0);
        let mut sums = [[0.0f32; 4]; 2];
        for s in 0..STEPS {
            let q = query(s);
            multiply::<T>(&mut sums[0], q, raw_keys[0][s]);
            multiply::<T>(&mut sums[1], q, raw_keys[1][s]);
        }
        for c in 1..CHUNKS {
            // Keeps these loads from being moved up to where no register is left for them.
            sync::warp(warp::FULL);
            raw_values[c] = value(c);
        }

        let mut scores = [0.0f32; 4];
        let mut most = f32::MIN;
        for i in 0..4 {
            let of = &sums[i / 2];
            let score = (of[i % 2] + of[i % 2 + 2]) * scale;
            let score = if T::SCALED { score * keys.scale::<T>(place(own[i])) } else { score };
            // The part may begin within its first tile.
            let (place, end) = if T::NARROW { (base, p.to) } else { (base.wrapping_sub(p.from), p.to - p.from) };
            scores[i] = if place.wrapping_add(own[i]) < end { score } else { f32::NEG_INFINITY };
        }
        if T::NARROW && base == first {
            // Asked for again: where layers are one launch, no register is left for it.
            let from = from();
            for i in 0..4 {
                scores[i] = if base + own[i] < from { f32::NEG_INFINITY } else { scores[i] };
            }
        }
        for i in 0..4 {
            most = math::max(most, scores[i]);
        }
        // A head's scores are spread over four lanes.
        let most = warp::reduce_group::<4, f32>(most, math::max);
        let top = math::max(state.top, most - LIFT);
        let mut grown = top > state.top;
        let mut unit = state.unit;
        let mut scales = [0.0f32; 4];
        if T::SCALED {
            let mut largest = 0.0f32;
            for i in 0..4 {
                scales[i] = values.scale::<T>(place(own[i]));
                largest = math::max(largest, scales[i]);
            }
            // A power of two above all scales, and one whose inverse is not subnormal.
            let e = exponent(warp::reduce_group::<4, f32>(largest, math::max)) + 1;
            let e = if e > 252 { 252 } else { e };
            unit = if e > unit { e } else { unit };
            grown |= unit > state.unit;
        }
        if warp::any(warp::FULL, grown) {
            if base != first {
                state.rescale::<T>(top, unit, t);
            }
            // Of the first tile there is nothing to scale.
            (state.top, state.unit) = (top, unit);
        }

        state.add::<T>(scores, scales, &raw_values);
        base += step;
        if base >= p.to {
            break;
        }
    }
    state.sum = warp::reduce_group::<4, f32>(state.sum, |a, b| a + b);
    state
}

/// Adds the products of 32 elements of queries, in two parts, and of eight keys.
#[device]
unsafe fn multiply<T: Cached>(sums: &mut [f32; 4], queries: [[u32; 4]; 2], keys: T::Eight) {
    let k = T::halves(keys);
    mma_f16(sums, queries[0], [k[0], k[1]]);
    mma_f16(sums, queries[1], [k[2], k[3]]);
}
