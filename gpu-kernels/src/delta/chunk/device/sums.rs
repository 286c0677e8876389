//! What follows from the products of all warps: the system and its solution, results, and the state behind the chunk.
//!
//! Where a thread's places are asked for anew, they would otherwise be kept in registers over all chunks.

use super::{
    ChunkMemory, LARGER, PAIRS, PARTS, PRODUCTS, ROW, State, TOKENS, VALUES,
    factors::{largest, multiply, power, split},
    thread_index, warp_index,
};
use crate::{delta::Net, load};
use warpsmith_device::{mma::load_matrices_transposed, prelude::*, static_for};

/// What a thread keeps of a chunk until its results.
pub struct Carried {
    /// What the state before gives its four results.
    asked: [f32; 4],
    /// The decays behind tokens `2 t`, `2 t + 1` and these plus 8; that of the chunk.
    behind: [f32; 4],
    total: f32,
}

/// The sums over warps, of token `tid / 8` with four values and with two tokens: the system and the weights of results.
#[device]
pub unsafe fn pairs(value: [f32; 4], net: &Net, memory: &ChunkMemory) -> Carried {
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
    Carried { asked, behind, total: memory.decays.get(last) }
}

/// Solves the system for the lane's element of the values.
#[device]
pub unsafe fn solve(memory: &ChunkMemory) {
    let lane = load::lane();
    let mut u = [0.0f32; TOKENS];
    for i in 0..TOKENS {
        u[i] = memory.values.get(ROW * i + lane);
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
        memory.values.set(ROW * i + lane, u[i]);
    }
}

/// Four results of token `tid / 8`.
#[device]
pub unsafe fn results(kept: &Carried, memory: &ChunkMemory) -> [f32; 4] {
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
pub unsafe fn add(state: &mut State, (most, unit): (f32, f32), kept: &Carried, memory: &ChunkMemory) -> f32 {
    let (lane, warp) = (load::lane(), load::warp_index());
    let (g, t) = (lane / 4, lane % 4);
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
            let row = TOKENS * (2 * warp + part) + lane % 16;
            // SAFETY: all lanes are here, and the warp's keys lie there.
            unsafe { load_matrices_transposed(memory.keys.address_of(PARTS * row + 8 * pair + lane / 16 * 4)) }
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
