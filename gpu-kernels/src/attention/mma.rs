//! Prefill on tensor cores: a warp takes two tiles of 16 columns, so that what `ldmatrix` brings is multiplied twice; keys
//! and values come through a ring in shared memory, copied while the tile before is computed.
//!
//! What binds otherwise, by `warpsmith budget prefill`: with one tile of 16 columns a warp, shared memory is busy for twice as
//! long as the tensor cores. The scale goes into the exponent's `fma`, and weights that would be subnormal are zero, so that a
//! weight takes two instructions, or four where positions have scales. Sums and values are scaled down only when a row's
//! largest score has grown by [`SLACK`] since they last were, which is rare after a row's first tile. Only tiles on the
//! diagonal and at a window's edge are masked.

use super::{
    prefill::{QueryTile, frame::PrefillArgs},
    staged::{Copies, SLACK, SMALLER, Staged, Tile, row_bytes, share},
};
use crate::{
    kv::cached::{Cached, Rows},
    load::{lane, warp_index},
};
use warpsmith_device::{
    convert::pack_f16x2,
    mma::{load_matrices, load_matrices_transposed, mma_f16},
    prelude::*,
    unroll,
};

#[device]
pub unsafe fn flash<T: Cached + Staged>(a: PrefillArgs) {
    // The same choice in every thread.
    match a.layer.head_dim {
        32 => attend::<T, 32, 2, 4, 2, 8>(&a),
        64 => attend::<T, 64, 4, 8, 2, 8>(&a),
        80 => attend::<T, 80, 5, 10, 2, 4>(&a),
        96 => attend::<T, 96, 6, 12, 2, 4>(&a),
        128 => attend::<T, 128, 8, 16, 2, 4>(&a),
        // The registers of a thread hold the results of one tile.
        192 => attend::<T, 192, 12, 24, 1, 2>(&a),
        _ => attend::<T, 256, 16, 32, 1, 2>(&a),
    }
}

/// `STEPS` is `DIM / 16`, `OUTS` is `DIM / 8`; a warp has `TILES` times 16 columns, and takes `8 * NEXT` positions at once.
#[device]
unsafe fn attend<
    T: Cached + Staged,
    const DIM: usize,
    const STEPS: usize,
    const OUTS: usize,
    const TILES: usize,
    const NEXT: usize,
>(
    a: &PrefillArgs,
) {
    let (lane, (g, t)) = (lane(), (lane() / 4, lane() % 4));
    let head = block::idx_y();
    let tile = a.tile();
    if tile.count == 0 {
        return;
    }
    let c = a.columns.at(tile.column(0) as usize);
    let (k, v) = Rows::of::<T>(&c, a.layer.index, a.layer.kv_heads, head / a.layer.group(), DIM as u32);

    // What any row of the block attends to; positions are consecutive. Tiles of keys begin at multiples of their size, so that a row
    // meets the same ones in any block.
    let limit = a.limit(&c);
    let end = c.position + tile.count;
    let end = if end < limit { end } else { limit };
    let from = a.layer.window_start(c.position);
    let base = from - from % (8 * NEXT as u32);
    let mut left = if base < end { (end - base) as i32 } else { 0 };
    let mut copies = T::Copies::<DIM, NEXT>::begin((&k, &v), (from, end), left);

    let first_of_warp = warp_index() as u32 * 16 * TILES as u32;
    // From the end of all to the warp's first position, and how far back a position attends. A warp without a column has
    // nothing to attend to.
    let lowest = (c.position + first_of_warp) as i32 - end as i32;
    let lowest = if first_of_warp < tile.count { lowest } else { i32::MIN };
    // In shared memory, as registers are short.
    let held = shared_array!(PREFILL_LOWEST: [i32; 4]);
    if lane == 0 {
        held.set(warp_index(), lowest);
    }
    sync::warp(warp::FULL);
    let reach = if a.layer.window == 0 || a.layer.window > i32::MAX as u32 { i32::MAX } else { a.layer.window as i32 };

    let q = queries::<STEPS, TILES>(a, tile, first_of_warp + g as u32, head as usize * DIM + 2 * t);

    let scale = const { share(DIM) };
    // What weights are relative to, times `scale`, and sums of weights; rows `g` and `g + 8` of each tile.
    let (mut largest, mut sums) = ([[f32::MIN; 2]; TILES], [[0.0f32; 2]; TILES]);
    let mut out = [[[0.0f32; 4]; OUTS]; TILES];
    while left > 0 {
        let keys = copies.acquire(left);
        // From the tile's first position to the warp's. The same in every lane.
        let warp = unroll::opaque(thread::idx_x() as usize) / 32;
        let ahead = held.get(warp) + left;
        // What follows from it takes less to work out again than registers to keep.
        let lane = unroll::opaque(thread::idx_x() as usize) % 32;
        let (g, t) = (lane / 4, lane % 4);
        if ahead + 16 * TILES as i32 > 0 && ahead - (8 * NEXT as i32 - 1) < reach {
            let mut scores = multiply_keys::<T, DIM, STEPS, TILES, NEXT>(keys, &q, lane);
            if ahead < 8 * NEXT as i32 - 1 || ahead + 16 * TILES as i32 > reach {
                mask(&mut scores, ahead + g as i32 - 2 * t as i32, reach);
            }
            let lift = keys.lift();
            let (mut new, mut grown) = ([[f32::MIN; 2]; TILES], false);
            for m in 0..TILES {
                for half in 0..2 {
                    for n in 0..NEXT {
                        let two = &scores[m][n];
                        new[m][half] = math::max(new[m][half], math::max(two[2 * half], two[2 * half + 1]));
                    }
                    new[m][half] = if T::SCALED { new[m][half] + lift } else { new[m][half] * scale };
                    grown |= new[m][half] > largest[m][half] + SLACK as f32;
                }
            }
            if warp::any(warp::FULL, grown) {
                rescale(&mut largest, &new, &mut sums, &mut out);
            }
            add_values::<T, DIM, OUTS, TILES, NEXT>(keys, lane, &scores, &largest, &mut sums, &mut out);
        }
        left -= 8 * NEXT as i32;
    }

    store::<T, DIM, OUTS, TILES>(a, head as usize, (&largest, &sums), &out);
}

/// The scores of a tile of keys.
#[device]
unsafe fn multiply_keys<T: Cached, const DIM: usize, const STEPS: usize, const TILES: usize, const NEXT: usize>(
    tile: impl Tile,
    q: &[[[u32; 4]; STEPS]; TILES],
    lane: usize,
) -> [[[f32; 4]; NEXT]; TILES] {
    let t = lane % 4;
    // Lanes give rows of: positions 0 to 7 and dims 0 to 7, dims 8 to 15, then positions 8 to 15.
    let place = tile.keys() + (lane % 8 + lane / 16 * 8) as u32 * row_bytes(DIM) + (lane / 8 % 2 * 16) as u32;
    let mut scores = [[[0.0f32; 4]; NEXT]; TILES];
    for s in 0..STEPS {
        for n in 0..NEXT / 2 {
            let b = load_matrices(place + 16 * n as u32 * row_bytes(DIM) + 32 * s as u32);
            for m in 0..TILES {
                mma_f16(&mut scores[m][2 * n], q[m][s], [b[0], b[1]]);
                mma_f16(&mut scores[m][2 * n + 1], q[m][s], [b[2], b[3]]);
            }
        }
    }
    if T::SCALED {
        for n in 0..NEXT {
            let by = tile.key_scales(8 * n + 2 * t);
            for m in 0..TILES {
                for i in 0..4 {
                    scores[m][n][i] *= by[i % 2];
                }
            }
        }
    }
    scores
}

/// Adds the weights of a tile's scores, and its values times these.
#[device]
unsafe fn add_values<T: Cached, const DIM: usize, const OUTS: usize, const TILES: usize, const NEXT: usize>(
    tile: impl Tile,
    lane: usize,
    scores: &[[[f32; 4]; NEXT]; TILES],
    largest: &[[f32; 2]; TILES],
    sums: &mut [[f32; 2]; TILES],
    out: &mut [[[f32; 4]; OUTS]; TILES],
) {
    let (t, scale) = (lane % 4, const { share(DIM) });
    // Weights, rounded to f16, are the left factor of the product with the values. Lanes give rows of: positions 0 to
    // 7 and 8 to 15 of dims 0 to 7, then of dims 8 to 15.
    let place = tile.keys() + (8 * NEXT + lane % 16) as u32 * row_bytes(DIM) + (lane / 16 * 16) as u32;
    for n in 0..NEXT / 2 {
        let mut p = [[0u32; 4]; TILES];
        let mut by = [[1.0f32; 2]; 2];
        if T::SCALED {
            by = [0, 1].map(|i| tile.value_scales(8 * (2 * n + i) + 2 * t));
        }
        for m in 0..TILES {
            for i in 0..4 {
                let (half, from) = (i % 2, &scores[m][2 * n + i / 2]);
                let above = |s| if T::SCALED { s - largest[m][half] } else { math::fma(s, scale, -largest[m][half]) };
                let weight = |s: f32| math::exp2_approx_ftz(above(s));
                let (low, high) = (weight(from[2 * half]), weight(from[2 * half + 1]));
                sums[m][half] += low + high;
                let by = by[i / 2];
                p[m][i] = if T::SCALED { pack_f16x2(low * by[0], high * by[1]) } else { pack_f16x2(low, high) };
            }
        }
        for o in 0..OUTS / 2 {
            let b = load_matrices_transposed(place + 16 * n as u32 * row_bytes(DIM) + 32 * o as u32);
            for m in 0..TILES {
                mma_f16(&mut out[m][2 * o], p[m], [b[0], b[1]]);
                mma_f16(&mut out[m][2 * o + 1], p[m], [b[2], b[3]]);
            }
        }
    }
}

/// Queries as fragments: rows `g` and `g + 8` of each 16, of which `row` is the first; `first` is a row's first element.
#[device]
unsafe fn queries<const STEPS: usize, const TILES: usize>(
    a: &PrefillArgs,
    tile: QueryTile,
    row: u32,
    first: usize,
) -> [[[u32; 4]; STEPS]; TILES] {
    let mut q = [[[0u32; 4]; STEPS]; TILES];
    for m in 0..TILES {
        for half in 0..2 {
            let i = row + 16 * m as u32 + 8 * half as u32;
            if i < tile.count {
                let at = tile.column(i) as usize * a.stride as usize + first;
                for s in 0..STEPS {
                    let (low, high) = (a.qkv.load2(at + 16 * s).0, a.qkv.load2(at + 16 * s + 8).0);
                    q[m][s][half] = pack_f16x2(low[0], low[1]);
                    q[m][s][half + 2] = pack_f16x2(high[0], high[1]);
                }
            }
        }
    }
    q
}

/// Scores of positions that a row does not attend to are minus infinity; `back` is how far the lane's first position lies behind
/// its first row.
#[inline(always)]
fn mask<const NEXT: usize, const TILES: usize>(scores: &mut [[[f32; 4]; NEXT]; TILES], back: i32, reach: i32) {
    for m in 0..TILES {
        for i in 0..4 * NEXT {
            let back = back + (16 * m + 8 * (i / 2 % 2)) as i32 - (8 * (i / 4) + i % 2) as i32;
            // Before the row's position, and not too far.
            if back as u32 >= reach as u32 {
                scores[m][i / 4][i % 4] = f32::NEG_INFINITY;
            }
        }
    }
}

/// Makes sums and values relative to new largest scores.
#[device]
unsafe fn rescale<const OUTS: usize, const TILES: usize>(
    largest: &mut [[f32; 2]; TILES],
    new: &[[f32; 2]; TILES],
    sums: &mut [[f32; 2]; TILES],
    out: &mut [[[f32; 4]; OUTS]; TILES],
) {
    for m in 0..TILES {
        for half in 0..2 {
            // A row is spread over the four lanes of a group.
            let most = math::max(largest[m][half], new[m][half]);
            let most = math::max(most, warp::shuffle_xor(warp::FULL, most, 1));
            let most = math::max(most, warp::shuffle_xor(warp::FULL, most, 2));
            // Others' rows change nothing here.
            let most = if most > largest[m][half] + SLACK as f32 { most } else { largest[m][half] };
            // In two steps: scales may fall by more powers of two than f32 has below 1, and weights not.
            let root = math::exp2_approx_ftz(0.5 * (largest[m][half] - most));
            let shrink = root * root;
            largest[m][half] = most;
            sums[m][half] = sums[m][half] * root * root;
            for o in 0..OUTS {
                out[m][o][2 * half] *= shrink;
                out[m][o][2 * half + 1] *= shrink;
            }
        }
    }
}

/// Writes the rows of a warp, divided by their sums of weights.
#[device]
unsafe fn store<T: Cached, const DIM: usize, const OUTS: usize, const TILES: usize>(
    a: &PrefillArgs,
    head: usize,
    (largest, sums): (&[[f32; 2]; TILES], &[[f32; 2]; TILES]),
    out: &[[[f32; 4]; OUTS]; TILES],
) {
    let tid = unroll::opaque(thread::idx_x() as usize);
    let (g, t) = (tid % 32 / 4, tid % 4);
    let (tile, row) = (a.tile(), (tid / 32 * 16 * TILES + g) as u32);
    for m in 0..TILES {
        for half in 0..2 {
            let sum = sums[m][half] + warp::shuffle_xor(warp::FULL, sums[m][half], 1);
            let sum = sum + warp::shuffle_xor(warp::FULL, sum, 2) + a.sink(head, largest[m][half]);
            let i = row + 16 * m as u32 + 8 * half as u32;
            if i < tile.count {
                let column = tile.column(i);
                let at = column as usize * a.y_stride as usize + head * DIM + 2 * t;
                let larger = if T::SCALED { const { (1 << SMALLER) as f32 } } else { 1.0 };
                let share = if a.range(column).1 == 0 { f32::NAN } else { larger / sum };
                for o in 0..OUTS {
                    let pair = [out[m][o][2 * half] * share, out[m][o][2 * half + 1] * share];
                    a.y.store2(at + 8 * o, F32x2(pair));
                }
            }
        }
    }
}
