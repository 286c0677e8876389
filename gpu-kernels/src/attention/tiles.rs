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

use super::step::frame::{Memory, WARPS};
use crate::{
    kv::cached::{Cached, Rows},
    load::{lane, warp_index},
};
use warpsmith_device::{
    convert::{pack_f16x2, unpack_f16x2},
    math::permute_bytes,
    mma::mma_f16,
    prelude::*,
};

/// Positions of a tile.
const TILE: u32 = 16;
/// Weights are relative to a score this many powers of two below the largest, which is as large as f16 holds them with room to
/// round.
const LIFT: f32 = 15.0;

/// Query heads of a warp.
const HEADS: usize = 8;
/// Elements of the largest head: the registers of a thread hold no more results beside keys, values and queries.
pub const MOST: usize = 128;

/// Elements that there is room for in a query and in a head's values.
#[inline(always)]
const fn width(dim: usize) -> usize {
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
fn power(biased: u32) -> f32 {
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

/// A warp makes factors of query `head`, whose elements `get2` gives in pairs; zeros past its end.
#[device]
pub unsafe fn keep(memory: &Memory, head: usize, dim: usize, get2: impl Fn(usize) -> [f32; 2]) {
    let words = memory.values.cast::<u32>();
    let width = width(dim);
    let mut largest = 0.0f32;
    let mut d = 2 * lane();
    while d < dim {
        let [a, b] = get2(d);
        largest = math::max(largest, math::max(a.abs(), b.abs()));
        d += 64;
    }
    // The largest becomes one of 2^14 or more, and below 2^15.
    let e = exponent(warp::max_f32(largest));
    let e = if e < 15 { 15 } else { e };
    let scale = power(268 - e);
    let mut d = 2 * lane();
    while d < width {
        let [a, b] = if d < dim { get2(d) } else { [0.0; 2] };
        let (first, second) = split(a * scale, b * scale);
        words.set2(word(head, d / 2, width), U32x2([first, second]));
        d += 64;
    }
    if lane() == 0 {
        memory.shares.set(head, power(e - 14));
    }
}

/// The block's positions `from .. to`, for all of its query heads, whose factors are there; `put` is given four elements of a head
/// from one on, relative to a score and not yet divided by the sum of weights, then these two.
#[device]
pub unsafe fn part<T: Cached>(
    (dim, group): (usize, usize),
    (from, to): (u32, u32),
    rows: (&Rows, &Rows),
    memory: &Memory,
    put: impl Fn(usize, usize, [f32; 4], f32, f32),
) {
    let sharing = if group > HEADS { WARPS / 2 } else { WARPS } as u32;
    let place = Place { group: group as u32, sharing, from, to };
    // The same choice in every thread.
    match dim {
        32 => tiles::<T, 32, 1, 1>(&place, rows, memory),
        64 => tiles::<T, 64, 2, 1>(&place, rows, memory),
        80 => tiles::<T, 80, 3, 2>(&place, rows, memory),
        96 => tiles::<T, 96, 3, 2>(&place, rows, memory),
        _ => tiles::<T, 128, 4, 2>(&place, rows, memory),
    }
    sync::block();

    let (per_warp, active, shift) = (HEADS, place.active() as usize, (width(dim) as u32).trailing_zeros() - 2);
    let sharing = sharing as usize;
    let mut i = thread::idx_x();
    while i < (group as u32) << shift {
        let (h, unit) = ((i >> shift) as usize, (i & ((1 << shift) - 1)) as usize);
        if 4 * unit < dim {
            let (set, j) = (h / per_warp, h % per_warp);
            let first = set * sharing * per_warp + j;
            let mut most = f32::MIN;
            for w in 0..active {
                most = math::max(most, memory.totals.get(first + w * per_warp));
            }
            let (mut value, mut sum) = ([0.0f32; 4], 0.0f32);
            let mut at = slot(set * sharing, j, unit, dim);
            for w in 0..active {
                let share = math::exp2_approx_ftz(memory.totals.get(first + w * per_warp) - most);
                sum = math::fma(share, memory.key.get(first + w * per_warp), sum);
                let v = memory.values.get4(at).0;
                for e in 0..4 {
                    value[e] = math::fma(share, v[e], value[e]);
                }
                at += per_warp * width(dim);
            }
            put(h, 4 * unit, value, most, sum);
        }
        i += 32 * WARPS as u32;
    }
}

/// The block's positions, and how its queries are spread over warps.
#[derive(Clone, Copy)]
struct Place {
    group: u32,
    /// Warps that share query heads.
    sharing: u32,
    from: u32,
    to: u32,
}

impl Place {
    /// Warps with a tile, of those that share query heads.
    #[inline(always)]
    fn active(&self) -> u32 {
        let tiles = (self.to - self.from).div_ceil(TILE);
        if tiles < self.sharing { tiles } else { self.sharing }
    }
}

/// Where a warp's elements `4 unit ..` of its head `j` lie. Heads of lanes that store at once differ in bits 1 and 2, units in bit 1.
#[inline(always)]
fn slot(warp: usize, j: usize, unit: usize, dim: usize) -> usize {
    (warp * HEADS + j) * width(dim) + 4 * (unit ^ (j / 2 % 2 | j & 4))
}

/// This warp's tiles; what comes of them goes to shared memory. `STEPS` is `DIM / 32`, `CHUNKS` is `DIM / 64`, rounded up.
#[device]
unsafe fn tiles<T: Cached, const DIM: usize, const STEPS: usize, const CHUNKS: usize>(
    p: &Place,
    rows: (&Rows, &Rows),
    memory: &Memory,
) {
    let (warp, g, t) = (warp_index(), lane() / 4, lane() % 4);
    let (set, turn) = (warp as u32 / p.sharing, warp as u32 % p.sharing);
    let first = set * HEADS as u32;
    // A set past the last head has nothing to do.
    let own = if first < p.group { p.group - first } else { 0 };
    let own = if own < HEADS as u32 { own as usize } else { HEADS };
    let busy = own > 0 && turn < p.active();
    // Rows past the last head repeat it.
    let last = if own > 0 { own - 1 } else { 0 };
    let head = first as usize + if g < last { g } else { last };
    // A warp without a tile goes the same way: what a branch would leave undefined took registers from the start of the kernel on.
    let base = if own > 0 { p.from + turn * TILE } else { p.to };
    let state = sweep::<T, DIM, STEPS, CHUNKS>(p, rows, memory, head, base);
    // The queries' place becomes that of the values.
    sync::block();
    if busy {
        if t == 0 && g < own {
            memory.totals.set(warp * HEADS + g, state.top);
            memory.key.set(warp * HEADS + g, state.sum);
        }
        let scale = if T::SCALED { power(state.unit) } else { 1.0 };
        for e in 0..2 {
            let j = 2 * t + e;
            if j < own {
                for i in 0..2 {
                    let to = memory.values.from(slot(warp, j, 2 * g + i, DIM));
                    for c in 0..CHUNKS {
                        if DIM % 64 == 0 || 64 * c + 8 * g < DIM {
                            let of = [state.out[c][2 * i], state.out[c][2 * i + 1]];
                            let v = [of[0][e], of[0][2 + e], of[1][e], of[1][2 + e]];
                            let v =
                                if T::SCALED { [v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale] } else { v };
                            to.set4(64 * c, F32x4(v));
                        }
                    }
                }
            }
        }
    }
}

/// What a warp knows after its tiles, in a lane of `g = lane / 4` and `t = lane % 4`.
struct State<const CHUNKS: usize> {
    /// What the weights of head `g` are relative to.
    top: f32,
    /// Their sum.
    sum: f32,
    /// The biased exponent of what the scales of values are relative to.
    unit: u32,
    /// The weighted values: of each 64 elements, elements `8 g ..` in pairs, each for heads `2 t` and `2 t + 1`.
    out: [[[f32; 4]; 4]; CHUNKS],
}

impl<const CHUNKS: usize> State<CHUNKS> {
    /// Makes what is there relative to a larger score, and to a larger scale; `t` is the lane's.
    #[device]
    unsafe fn rescale<T: Cached>(&mut self, top: f32, unit: u32, t: u32) {
        let shrink = math::exp2_approx_ftz(self.top - top);
        self.sum *= shrink;
        // Of the first tile there is nothing to scale.
        let units = if T::SCALED && self.unit > 0 { power(self.unit) * power(254 - unit) } else { 1.0 };
        for e in 0..2 {
            let shrink = warp::shuffle_idx(warp::FULL, shrink, 8 * t + 4 * e) * units;
            for c in 0..CHUNKS {
                for i in 0..4 {
                    self.out[c][i][e as usize] *= shrink;
                    self.out[c][i][e as usize + 2] *= shrink;
                }
            }
        }
        (self.top, self.unit) = (top, unit);
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

/// Every `sharing`th tile from position `base` on, for query `head` and the other lanes' ones.
#[device]
unsafe fn sweep<T: Cached, const DIM: usize, const STEPS: usize, const CHUNKS: usize>(
    p: &Place,
    (keys, values): (&Rows, &Rows),
    memory: &Memory,
    head: usize,
    mut base: u32,
) -> State<CHUNKS> {
    let mut state = State { top: f32::MIN, sum: 0.0, unit: 0, out: [[[0.0; 4]; 4]; CHUNKS] };
    let (g, t) = (lane() as u32 / 4, lane() as u32 % 4);
    let words = memory.values.cast::<u32>();
    // Scores are kept in powers of two.
    let scale = memory.shares.get(head) * (core::f32::consts::LOG2_E / math::sqrt(DIM as f32));
    // With the rest of an address constant.
    let query = |half: usize| words.from(word(head, 4 * t as usize + 2 * half, width(DIM)));
    let queries = [query(0), query(1)];
    let step = p.sharing * TILE;
    while base < p.to {
        // Positions past the end repeat the last one, with weight 0.
        let place = |offset: u32| if base + offset < p.to { base + offset } else { p.to - 1 };
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
        let factors = |s: usize| [queries[0].get4(32 * s).0, queries[1].get4(32 * s).0];
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
            let q = factors(s);
            add::<T>(&mut sums[0], q, raw_keys[0][s]);
            add::<T>(&mut sums[1], q, raw_keys[1][s]);
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
            scores[i] = if base + own[i] < p.to { score } else { f32::NEG_INFINITY };
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
            state.rescale::<T>(top, unit, t);
        }

        state.add::<T>(scores, scales, &raw_values);
        base += step;
    }
    state.sum = warp::reduce_group::<4, f32>(state.sum, |a, b| a + b);
    state
}

/// Adds the products of 32 elements of queries, in two parts, and of eight keys.
#[device]
unsafe fn add<T: Cached>(sums: &mut [f32; 4], queries: [[u32; 4]; 2], keys: T::Eight) {
    let k = T::halves(keys);
    mma_f16(sums, queries[0], [k[0], k[1]]);
    mma_f16(sums, queries[1], [k[2], k[3]]);
}
