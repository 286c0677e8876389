//! What a block does, chunk by chunk. Three barriers a chunk part what warps do apart: the products of their keys; the sums of these, and
//! what follows for each pair of tokens; the system, which one warp solves while another has the next chunk's decays; results and state.

mod ahead;
mod factors;
mod sums;

use super::{
    super::memory::{load2, store2},
    CHUNK, Net, Run, SLICE,
};
use crate::load;
use warpsmith_device::{prelude::*, static_for};

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
pub struct ChunkMemory {
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

impl ChunkMemory {
    #[inline(always)]
    pub fn declared() -> ChunkMemory {
        ChunkMemory {
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
pub struct HeadSlice {
    pub head: usize,
    key_head: usize,
    /// The first element of the values.
    first: usize,
}

impl HeadSlice {
    #[inline(always)]
    pub fn of(net: &Net) -> HeadSlice {
        let slices = net.dim / SLICE;
        let (head, slice) = (block::idx_x() / slices, block::idx_x() % slices);
        HeadSlice { head: head as usize, key_head: net.key_head(head) as usize, first: (slice * SLICE) as usize }
    }
}

/// What a block reads.
pub struct BlockInputs {
    pub mixed: In<f32>,
    pub mixed_stride: usize,
    /// `b` of all heads, then `alpha`.
    pub gates: In<f32>,
    pub stride: usize,
    pub a: f32,
    pub dt: f32,
    pub net: Net,
    pub run: Run,
    pub place: HeadSlice,
}

/// Tokens of a run: the first, and how many.
#[derive(Clone, Copy)]
struct Chunk(u32, u32);

/// Of keys, then of queries, elements `8 b + 2 t` and the one behind of tokens `g` and `g + 8`.
type RawTokens = [[[[f32; 2]; 4]; 2]; 2];
/// Left factors of two products of 16 keys each, in two parts.
type Left = [[[u32; 4]; 2]; 2];
/// Values `16 m + g` and `16 m + g + 8` of keys `8 n + 2 t` and the one behind.
type State = [[[f32; 4]; 4]; 2];

/// Calls `f` with each pair of elements of the warp's state: where they are in the head's, and their place.
#[inline(always)]
fn each_pair(place: &HeadSlice, dim: usize, mut f: impl FnMut(usize, (usize, usize, usize))) {
    // Asked for anew: where they are would otherwise be kept over all chunks.
    let (lane, warp) = (load::lane(), load::warp_index());
    let (g, t) = (lane / 4, lane % 4);
    static_for!(m in 0..2 => {
        static_for!(n in 0..4 => {
            static_for!(h in 0..2 => {
                let row = place.first + 16 * m + 8 * h + g;
                f(row * dim + KEYS * warp + 8 * n + 2 * t, (m, n, 2 * h));
            });
        });
    });
}

/// Takes all chunks of a run.
#[device]
pub unsafe fn all(given: &BlockInputs, memory: &ChunkMemory, y: Out<f32>, y_stride: usize) {
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
    let mut ahead = ahead::Ahead::load(given, chunk);
    ahead.square(memory);
    if warp_index() == WARPS - 1 {
        ahead.gate(given, chunk, memory);
    }
    sync::block();
    loop {
        let lefts = factors::lefts(&ahead.raw, chunk, net, memory);
        factors::keep_keys(&lefts[0], memory);
        let (now, value) = (chunk, ahead.value);
        let left = run.count - now.0 - now.1;
        chunk = Chunk(now.0 + now.1, if left < CHUNK { left } else { CHUNK });
        ahead = ahead::Ahead::load(given, chunk);
        let most = factors::largest(&state);
        factors::products(&lefts, &state, (most, unit), memory);
        sync::block();
        let kept = sums::pairs(value, net, memory);
        sync::block();
        if warp_index() == 0 {
            sums::solve(memory);
        }
        if warp_index() == WARPS - 1 {
            ahead.gate(given, chunk, memory);
        }
        ahead.square(memory);
        sync::block();
        let o = sums::results(&kept, memory);
        let i = thread_index() / 8;
        if i < now.1 {
            let to = y.from(run.column(now.0 + i) * y_stride + place.head * dim + place.first);
            to.store4(4 * (thread_index() as usize % 8), F32x4(o));
        }
        unit = sums::add(&mut state, (most, unit), &kept, memory);
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
