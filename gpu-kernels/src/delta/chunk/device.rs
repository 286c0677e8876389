//! What a block does, chunk by chunk. Three barriers a chunk part what warps do apart: the products of their keys; the sums of these, and
//! what follows for each pair of tokens; the system, which one warp solves while another has the next chunk's decays; results and state.

use super::{
    super::{
        memory::{load2, store2},
        rule::softplus,
    },
    CHUNK, Net, Run, SLICE,
};
use warpsmith_device::{
    convert::{pack_f16x2, unpack_f16x2},
    mma::{load_matrices_transposed, mma_f16},
    prelude::*,
    static_for,
    warp::{FULL, reduce_group, shuffle_idx},
};

/// Tokens of a chunk.
const TOKENS: usize = CHUNK as usize;
/// Elements of the values of a block.
const VALUES: usize = SLICE as usize;
/// Keys that a warp has.
const KEYS: usize = 32;
const WARPS: usize = super::THREADS as usize / 32;
/// From a row of what is kept to the next, so that lanes meet in no bank: products of tokens with values and with tokens; parts of keys,
/// in words; values; what there is for each pair of tokens.
const PRODUCTS: usize = 56;
const PARTS: usize = 20;
const ROW: usize = 36;
const PAIRS: usize = 20;
/// Keys and queries are multiplied by this.
const LARGER: f32 = 256.0;
/// No power of two is made of exponents further out.
const EXPONENTS: [u32; 2] = [64, 250];

/// The thread in its block, in its warp, and its warp. Not those of `load`, which are asked for anew: registers are not short here.
#[inline(always)]
fn thread_index() -> u32 {
    thread::idx_x()
}

#[inline(always)]
fn lane() -> usize {
    (thread_index() % 32) as usize
}

#[inline(always)]
fn warp_index() -> usize {
    (thread_index() / 32) as usize
}

/// What warps of a block tell one another.
#[derive(Clone, Copy)]
pub struct Memory {
    /// Of each warp, `[2 TOKENS, PRODUCTS]`: of keys, then of queries, with the values of the state, then with keys.
    products: Shared<f32>,
    /// In which unit those with the state are, of each warp.
    units: Shared<f32>,
    /// Of each warp, `[2, TOKENS, PARTS]`: first parts of its keys, then second ones.
    keys: Shared<u32>,
    /// `[TOKENS, ROW]`: what the system is solved for, then its solution.
    values: Shared<f32>,
    /// `[TOKENS, PAIRS]`: element `j, i` is what `u_j` counts for in `u_i`, which is subtracted: its negative.
    lower: Shared<f32>,
    /// `[TOKENS, PAIRS]`: element `i, j` is what `u_j` counts for in the result of token `i`.
    weights: Shared<f32>,
    /// `[TOKENS, PAIRS]`: element `i, 0` is the product of the decays up to token `i`, element `i, 1 + j` of those behind token `j`.
    decays: Shared<f32>,
    betas: Shared<f32>,
    /// `[2, TOKENS, WARPS]`: squares of keys, and of queries.
    squares: Shared<f32>,
}

impl Memory {
    #[inline(always)]
    pub fn declared() -> Memory {
        Memory {
            products: shared_array!(DELTA_CHUNKS_PRODUCTS: [f32; WARPS * 2 * TOKENS * PRODUCTS]),
            units: shared_array!(DELTA_CHUNKS_UNITS: [f32; WARPS]),
            keys: shared_array!(DELTA_CHUNKS_KEYS: [u32; WARPS * 2 * TOKENS * PARTS]),
            values: shared_array!(DELTA_CHUNKS_VALUES: [f32; TOKENS * ROW]),
            lower: shared_array!(DELTA_CHUNKS_LOWER: [f32; TOKENS * PAIRS]),
            weights: shared_array!(DELTA_CHUNKS_WEIGHTS: [f32; TOKENS * PAIRS]),
            decays: shared_array!(DELTA_CHUNKS_DECAYS: [f32; TOKENS * PAIRS]),
            betas: shared_array!(DELTA_CHUNKS_BETAS: [f32; TOKENS]),
            squares: shared_array!(DELTA_CHUNKS_SQUARES: [f32; 2 * TOKENS * WARPS]),
        }
    }
}

/// What of a head the block has.
#[derive(Clone, Copy)]
pub struct Place {
    pub head: usize,
    key_head: usize,
    /// The first element of the values.
    first: usize,
}

impl Place {
    #[inline(always)]
    pub fn of(net: &Net) -> Place {
        let slices = net.dim / SLICE;
        let (head, slice) = (block::idx_x() / slices, block::idx_x() % slices);
        Place { head: head as usize, key_head: net.key_head(head) as usize, first: (slice * SLICE) as usize }
    }
}

/// What a block reads.
pub struct Given {
    pub mixed: In<f32>,
    pub mixed_stride: usize,
    /// `b` of all heads, then `alpha`.
    pub gates: In<f32>,
    pub stride: usize,
    pub a: f32,
    pub dt: f32,
    pub net: Net,
    pub run: Run,
    pub place: Place,
}

/// Tokens of a run: the first, and how many.
#[derive(Clone, Copy)]
struct Chunk(u32, u32);

/// Of keys, then of queries, elements `8 b + 2 t` and the one behind of tokens `g` and `g + 8`.
type Raw = [[[[f32; 2]; 4]; 2]; 2];
/// Left factors of two products of 16 keys each, in two parts.
type Left = [[[u32; 4]; 2]; 2];
/// Values `16 m + g` and `16 m + g + 8` of keys `8 n + 2 t` and the one behind.
type State = [[[f32; 4]; 4]; 2];

/// What a thread has loaded of a chunk.
struct Ahead {
    raw: Raw,
    /// Four elements of the values of a token.
    value: [f32; 4],
    /// Of a token of the lane's number.
    gates: [f32; 2],
}

impl Ahead {
    #[inline(always)]
    unsafe fn load(given: &Given, chunk: Chunk) -> Ahead {
        let (net, place, dim) = (&given.net, &given.place, given.net.dim as usize);
        let (tid, w) = (thread_index() as usize, warp_index());
        let (g, t) = (lane() / 4, lane() % 4);
        let mut ahead = Ahead { raw: [[[[0.0; 2]; 4]; 2]; 2], value: [0.0; 4], gates: [0.0; 2] };
        // SAFETY: the caller's promise: columns of runs are there.
        unsafe {
            let of = |i: usize| given.mixed.from(given.run.column(chunk.0 + i as u32) * given.mixed_stride);
            static_for!(h in 0..2 => {
                if g + 8 * h < chunk.1 as usize && KEYS * w < dim {
                    let q = of(g + 8 * h).from(place.key_head * dim + KEYS * w + 2 * t);
                    let k = q.from(net.key_heads as usize * dim);
                    static_for!(b in 0..4 => {
                        ahead.raw[0][h][b] = k.load2(8 * b).0;
                        ahead.raw[1][h][b] = q.load2(8 * b).0;
                    });
                }
            });
            if tid / 8 < chunk.1 as usize {
                let first = (2 * net.key_heads as usize + place.head) * dim + place.first;
                ahead.value = of(tid / 8).load4(first + 4 * (tid % 8)).0;
            }
            if lane() < chunk.1 as usize {
                let gates = given.gates.from(given.run.column(chunk.0 + lane() as u32) * given.stride);
                ahead.gates = [gates.at(place.head), gates.at(net.value_heads as usize + place.head)];
            }
        }
        ahead
    }

    /// Tells the others the squares of the warp's keys.
    #[inline(always)]
    unsafe fn square(&self, memory: &Memory) {
        let (g, t) = (lane() / 4, lane() % 4);
        let mut sums = [[0.0f32; 2]; 2];
        // SAFETY: all lanes are here; nobody reads them until the next barrier.
        unsafe {
            static_for!(m in 0..2 => {
                static_for!(h in 0..2 => {
                    static_for!(b in 0..4 => {
                        let [x, y] = self.raw[m][h][b];
                        sums[m][h] = math::fma(x, x, math::fma(y, y, sums[m][h]));
                    });
                    sums[m][h] = reduce_group::<4, f32>(sums[m][h], |a, b| a + b);
                });
            });
            let [k, q] = sums.map(|[low, high]| if t % 2 == 0 { low } else { high });
            let row = TOKENS * (t / 2) + 8 * (t % 2) + g;
            memory.squares.set(WARPS * row + warp_index(), if t < 2 { k } else { q });
        }
    }

    /// Tells the others the chunk's gates, and the products of its decays. A token that there is not changes nothing: it keeps all, and adds
    /// nothing.
    ///
    /// All lanes of the warp make this call.
    #[inline(always)]
    unsafe fn gate(&self, given: &Given, chunk: Chunk, memory: &Memory) {
        let [b, alpha] = self.gates;
        let there = lane() < chunk.1 as usize;
        let beta = if there { math::sigmoid(b) } else { 0.0 };
        let decay = if there { math::exp(given.a * softplus(alpha + given.dt)) } else { 1.0 };
        let mut product = 1.0f32;
        // SAFETY: all lanes are here; nobody reads them until the next barrier.
        unsafe {
            if lane() < TOKENS {
                memory.betas.set(lane(), beta);
            }
            for i in 0..TOKENS {
                let decay = shuffle_idx(FULL, decay, i as u32);
                if i >= lane() {
                    product *= decay;
                }
                if lane() <= TOKENS {
                    memory.decays.set(PAIRS * i + lane(), product);
                }
            }
        }
    }
}

/// What is two f16 each: the first ones, and what these leave.
#[inline(always)]
fn split([x, y]: [f32; 2]) -> [u32; 2] {
    let high = pack_f16x2(x, y);
    let (a, b) = unpack_f16x2(high);
    [high, pack_f16x2(x - a, y - b)]
}

/// Adds the product of two factors in two parts.
#[inline(always)]
unsafe fn multiply(sums: &mut [f32; 4], a: &[[u32; 4]; 2], b: [[u32; 2]; 2]) {
    // SAFETY: the caller's promise: all lanes are here.
    unsafe {
        mma_f16(sums, a[0], b[1]);
        mma_f16(sums, a[1], b[0]);
        mma_f16(sums, a[0], b[0]);
    }
}

/// The power of two by which a number becomes 4 to 8, times `2^up`, and what it is divided by for that.
#[inline(always)]
fn power(largest: f32, up: u32) -> [f32; 2] {
    let e = largest.to_bits() >> 23;
    let e = if e < EXPONENTS[0] { EXPONENTS[0] } else { e };
    let e = if e > EXPONENTS[1] - up { EXPONENTS[1] - up } else { e };
    [(256 + up - e) << 23, (e - 2 - up) << 23].map(f32::from_bits)
}

/// The largest magnitude of all lanes; a NaN counts for nothing.
#[inline(always)]
unsafe fn largest<const N: usize, const M: usize, const L: usize>(x: &[[[f32; N]; M]; L]) -> f32 {
    let mut most = 0.0f32;
    for l in 0..L {
        for m in 0..M {
            for n in 0..N {
                most = math::max(most, x[l][m][n].abs());
            }
        }
    }
    // SAFETY: the caller's promise: all lanes are here. Of numbers that are not negative bits are in order.
    f32::from_bits(unsafe { warp::max_u32(most.to_bits()) })
}

/// Left factors of keys, or of queries, times `by` of tokens `g` and `g + 8`.
#[inline(always)]
fn left(raw: &[[[f32; 2]; 4]; 2], by: [f32; 2]) -> Left {
    let mut all = [[[0u32; 4]; 2]; 2];
    static_for!(h in 0..2 => {
        static_for!(b in 0..4 => {
            let [high, low] = split(raw[h][b].map(|x| x * by[h]));
            all[b / 2][0][h + b % 2 * 2] = high;
            all[b / 2][1][h + b % 2 * 2] = low;
        });
    });
    all
}

/// The chunk's keys and queries as factors, of length [`LARGER`]; of a token that there is not they are 0.
#[device]
unsafe fn lefts(raw: &Raw, chunk: Chunk, net: &Net, memory: &Memory) -> [Left; 2] {
    let g = lane() / 4;
    let of = |m: usize| unsafe {
        let by = [0, 1].map(|h| {
            if g + 8 * h >= chunk.1 as usize {
                return 0.0;
            }
            let [a, b, c, d] = memory.squares.get4(WARPS * (TOKENS * m + 8 * h + g)).0;
            let (square, least) = ((a + b) + (c + d), net.eps * net.eps);
            // Not `max`, which would drop a NaN.
            LARGER * math::rsqrt_approx(if square < least { least } else { square })
        });
        left(&raw[m], by)
    };
    [of(0), of(1)]
}

/// Keeps the parts of the warp's keys, which are the right factor of what is added to the state.
#[device]
unsafe fn keep_keys(keys: &Left, memory: &Memory) {
    let (g, t) = (lane() / 4, lane() % 4);
    // What was read of the chunk before was read by all lanes.
    sync::warp(FULL);
    static_for!(part in 0..2 => {
        static_for!(i in 0..8 => {
            let (h, b) = (i % 2, i / 2);
            let row = TOKENS * (2 * warp_index() + part) + g + 8 * h;
            memory.keys.set(PARTS * row + 4 * b + t, keys[b / 2][part][h + b % 2 * 2]);
        });
    });
}

/// Tells the others what the warp's keys give of all products. `unit`: what of its state a number in registers is divided by.
#[device]
unsafe fn products(lefts: &[Left; 2], state: &State, (most, unit): (f32, f32), memory: &Memory) {
    let (w, g, t) = (warp_index(), lane() / 4, lane() % 4);
    let [up, down] = power(most, 8);
    let mut sums = [[[0.0f32; 4]; 6]; 2];
    static_for!(s in 0..2 => {
        static_for!(j in 0..4 => {
            let part = |n: usize| split([state[j / 2][n][j % 2 * 2] * up, state[j / 2][n][j % 2 * 2 + 1] * up]);
            let ([b0, c0], [b1, c1]) = (part(2 * s), part(2 * s + 1));
            for r in 0..2 {
                multiply(&mut sums[r][j], &lefts[r][s], [[b0, b1], [c0, c1]]);
            }
        });
        // Keys of eight tokens lie as a right factor has them.
        static_for!(j in 0..2 => {
            let keys = lefts[0][s].map(|part| [part[j], part[2 + j]]);
            for r in 0..2 {
                multiply(&mut sums[r][4 + j], &lefts[r][s], keys);
            }
        });
    });
    static_for!(r in 0..2 => {
        static_for!(j in 0..6 => {
            for h in 0..2 {
                let row = TOKENS * (2 * w + r) + g + 8 * h;
                let two = [sums[r][j][2 * h], sums[r][j][2 * h + 1]];
                memory.products.set2(PRODUCTS * row + 8 * j + 2 * t, F32x2(two));
            }
        });
    });
    if lane() == 0 {
        memory.units.set(w, down * unit / LARGER);
    }
}

/// What a thread keeps of a chunk until its results.
struct Kept {
    /// What the state before gives its four results.
    asked: [f32; 4],
    /// The decays behind tokens `2 t`, `2 t + 1` and these plus 8; that of the chunk.
    behind: [f32; 4],
    total: f32,
}

/// The sums over warps, of token `tid / 8` with four values and with two tokens: the system and the weights of results.
#[device]
unsafe fn pairs(value: [f32; 4], net: &Net, memory: &Memory) -> Kept {
    let tid = thread_index() as usize;
    let (i, c, t) = (tid / 8, tid % 8, tid % 4);
    let (mut known, mut asked) = ([0.0f32; 4], [0.0f32; 4]);
    let (mut of_keys, mut of_queries) = ([0.0f32; 2], [0.0f32; 2]);
    let units = memory.units.get4(0).0;
    static_for!(w in 0..4 => {
        let (k, q) = (PRODUCTS * (2 * TOKENS * w + i), PRODUCTS * (2 * TOKENS * w + TOKENS + i));
        let (a, b) = (memory.products.get4(k + 4 * c).0, memory.products.get4(q + 4 * c).0);
        for e in 0..4 {
            known[e] = math::fma(a[e], units[w], known[e]);
            asked[e] = math::fma(b[e], units[w], asked[e]);
        }
        let (a, b) = (memory.products.get2(k + VALUES + 2 * c).0, memory.products.get2(q + VALUES + 2 * c).0);
        for e in 0..2 {
            of_keys[e] += a[e];
            of_queries[e] += b[e];
        }
    });
    let beta = memory.betas.get(i);
    let until = memory.decays.get(PAIRS * i);
    let share = 1.0 / math::sqrt(net.dim as f32);
    let one = const { 1.0 / (LARGER * LARGER) };
    let mut weights = [0.0f32; 2];
    for e in 0..2 {
        let j = 2 * c + e;
        let between = memory.decays.get(PAIRS * i + 1 + j) * one;
        // Tokens behind are not multiplied by 0, but left out: they may be no numbers.
        weights[e] = if j <= i { between * of_queries[e] * share } else { 0.0 };
        memory.lower.set(PAIRS * j + i, if j < i { -between * of_keys[e] * beta } else { 0.0 });
    }
    memory.weights.set2(PAIRS * i + 2 * c, F32x2(weights));
    let mut missing = [0.0f32; 4];
    for e in 0..4 {
        missing[e] = beta * math::fma(-until, known[e], value[e]);
        asked[e] *= until * share;
    }
    memory.values.set4(ROW * i + 4 * c, F32x4(missing));
    let last = PAIRS * (TOKENS - 1);
    let behind = [0, 1, 8, 9].map(|j| unsafe { memory.decays.get(last + 1 + 2 * t + j) });
    Kept { asked, behind, total: memory.decays.get(last) }
}

/// Solves the system for the lane's element of the values.
#[device]
unsafe fn solve(memory: &Memory) {
    let mut u = [0.0f32; TOKENS];
    for i in 0..TOKENS {
        u[i] = memory.values.get(ROW * i + lane());
    }
    for j in 0..TOKENS - 1 {
        for four in 0..TOKENS / 4 {
            if 4 * four + 3 > j {
                let counts = memory.lower.get4(PAIRS * j + 4 * four).0;
                for e in 0..4 {
                    if 4 * four + e > j {
                        u[4 * four + e] = math::fma(counts[e], u[j], u[4 * four + e]);
                    }
                }
            }
        }
    }
    for i in 1..TOKENS {
        memory.values.set(ROW * i + lane(), u[i]);
    }
}

/// Four results of token `tid / 8`.
#[device]
unsafe fn results(kept: &Kept, memory: &Memory) -> [f32; 4] {
    let tid = thread_index() as usize;
    let (i, c) = (tid / 8, tid % 8);
    let mut o = kept.asked;
    let add = |o: &mut [f32; 4], j: usize, weight: f32| unsafe {
        let u = memory.values.get4(ROW * j + 4 * c).0;
        for e in 0..4 {
            o[e] = math::fma(weight, u[e], o[e]);
        }
    };
    // The four tokens of the warp come last.
    let mut four = 0;
    while four < warp_index() {
        let weights = memory.weights.get4(PAIRS * i + 4 * four).0;
        static_for!(e in 0..4 => {
            add(&mut o, 4 * four + e, weights[e]);
        });
        four += 1;
    }
    let weights = memory.weights.get4(PAIRS * i + 4 * four).0;
    static_for!(e in 0..4 => {
        if e <= i % 4 {
            add(&mut o, 4 * four + e, weights[e]);
        }
    });
    o
}

/// Takes the chunk into the state, which is then in another unit, which it gives.
#[device]
unsafe fn add(state: &mut State, (most, unit): (f32, f32), kept: &Kept, memory: &Memory) -> f32 {
    let (g, t) = (lane() / 4, lane() % 4);
    // Values `16 m + 8 h + g` of four tokens.
    let mut u = [[[0.0f32; 4]; 2]; 2];
    static_for!(m in 0..2 => {
        static_for!(h in 0..2 => {
            for e in 0..4 {
                let token = 2 * t + e % 2 + e / 2 * 8;
                u[m][h][e] = memory.values.get(ROW * token + 16 * m + 8 * h + g) * kept.behind[e];
            }
        });
    });
    let [up, down] = power(math::max(most * kept.total * unit, largest(&u)), 0);
    // Of a state that is 0 the factor may be as large as it likes.
    let (factor, huge) = (kept.total * unit * (LARGER * up), const { f32::from_bits(0x7000_0000) });
    let factor = if factor > huge { huge } else { factor };
    let mut left = [[[0u32; 4]; 2]; 2];
    static_for!(m in 0..2 => {
        for i in 0..4 {
            let [x, y] = [u[m][i % 2][i / 2 * 2] * up, u[m][i % 2][i / 2 * 2 + 1] * up];
            [left[m][0][i], left[m][1][i]] = split([x, y]);
        }
        for n in 0..4 {
            state[m][n] = state[m][n].map(|s| s * factor);
        }
    });
    static_for!(pair in 0..2 => {
        let [high, low] = [0, 1].map(|part| {
            let row = TOKENS * (2 * warp_index() + part) + lane() % 16;
            // SAFETY: all lanes are here, and the warp's keys lie there.
            unsafe { load_matrices_transposed(memory.keys.address_of(PARTS * row + 8 * pair + lane() / 16 * 4)) }
        });
        static_for!(n in 0..2 => {
            for m in 0..2 {
                let keys = [[high[2 * n], high[2 * n + 1]], [low[2 * n], low[2 * n + 1]]];
                multiply(&mut state[m][2 * pair + n], &left[m], keys);
            }
        });
    });
    down / LARGER
}

/// Calls `f` with each pair of elements of the warp's state: where they are in the head's, and their place.
#[inline(always)]
fn each_pair(place: &Place, dim: usize, mut f: impl FnMut(usize, (usize, usize, usize))) {
    let (g, t) = (lane() / 4, lane() % 4);
    static_for!(m in 0..2 => {
        static_for!(n in 0..4 => {
            static_for!(h in 0..2 => {
                let row = place.first + 16 * m + 8 * h + g;
                f(row * dim + KEYS * warp_index() + 8 * n + 2 * t, (m, n, 2 * h));
            });
        });
    });
}

/// Takes all chunks of a run.
#[device]
pub unsafe fn all(given: &Given, memory: &Memory, y: Out<f32>, y_stride: usize) {
    let (net, run, place, dim) = (&given.net, &given.run, &given.place, given.net.dim as usize);
    let at = net.before() + net.inputs() + place.head * dim * dim;
    let there = KEYS * warp_index() < dim;
    let mut state: State = [[[0.0; 4]; 4]; 2];
    if run.flags & super::super::FRESH == 0 && there {
        each_pair(place, dim, |i, (m, n, e)| {
            // SAFETY: the states of the run before its columns.
            [state[m][n][e], state[m][n][e + 1]] = unsafe { load2(run.from, at + i) };
        });
    }
    // A number in registers times this is the state's.
    let mut unit = 1.0f32;
    let whole = CHUNK - run.offset();
    let mut chunk = Chunk(0, if run.count < whole { run.count } else { whole });
    let mut ahead = Ahead::load(given, chunk);
    ahead.square(memory);
    if warp_index() == WARPS - 1 {
        ahead.gate(given, chunk, memory);
    }
    sync::block();
    loop {
        let lefts = lefts(&ahead.raw, chunk, net, memory);
        keep_keys(&lefts[0], memory);
        let (now, value) = (chunk, ahead.value);
        let left = run.count - now.0 - now.1;
        chunk = Chunk(now.0 + now.1, if left < CHUNK { left } else { CHUNK });
        ahead = Ahead::load(given, chunk);
        let most = largest(&state);
        products(&lefts, &state, (most, unit), memory);
        sync::block();
        let kept = pairs(value, net, memory);
        sync::block();
        if warp_index() == 0 {
            solve(memory);
        }
        if warp_index() == WARPS - 1 {
            ahead.gate(given, chunk, memory);
        }
        ahead.square(memory);
        sync::block();
        let o = results(&kept, memory);
        let i = thread_index() / 8;
        if i < now.1 {
            let to = y.from(run.column(now.0 + i) * y_stride + place.head * dim + place.first);
            to.store4(4 * (thread_index() as usize % 8), F32x4(o));
        }
        unit = add(&mut state, (most, unit), &kept, memory);
        if chunk.1 == 0 {
            break;
        }
    }
    if there {
        each_pair(place, dim, |i, (m, n, e)| {
            // SAFETY: the states of the run behind its columns.
            unsafe { store2(run.to, at + i, [state[m][n][e] * unit, state[m][n][e + 1] * unit]) };
        });
    }
}
