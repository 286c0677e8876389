//! Prefill on tensor cores: 16 columns a warp, 64 a block, keys and values in tiles through shared memory.

use super::prefill::{ROWS, THREADS, frame::Args};
use crate::{
    kv::cached::{Cached, Rows},
    load::{lane, warp_index},
};
use warpsmith_device::{
    convert::{pack_f16x2, unpack_f16x2},
    mma::{load_matrices, load_matrices_transposed, mma_f16},
    prelude::*,
};

/// Most positions of a tile.
const MOST: usize = 32;
/// Largest head, and the gap after a row, which puts rows into different banks.
const ROW: usize = 256 + GAP;
const GAP: usize = 8;

#[device]
pub unsafe fn flash(a: Args) {
    // The same choice in every thread.
    match a.layer.head_dim {
        32 => attend::<32, 2, 4, 4>(&a),
        64 => attend::<64, 4, 8, 4>(&a),
        80 => attend::<80, 5, 10, 4>(&a),
        96 => attend::<96, 6, 12, 4>(&a),
        128 => attend::<128, 8, 16, 4>(&a),
        192 => attend::<192, 12, 24, 4>(&a),
        // The registers of a thread hold no more scores beside so many values.
        _ => attend::<256, 16, 32, 2>(&a),
    }
}

/// `STEPS` is `DIM / 16`, `OUTS` is `DIM / 8`; a tile has `8 * NEXT` positions.
#[device]
unsafe fn attend<const DIM: usize, const STEPS: usize, const OUTS: usize, const NEXT: usize>(a: &Args) {
    let tile = 8 * NEXT;
    let keys = shared_array!(PREFILL_KEYS: [u16; MOST * ROW]);
    let values = shared_array!(PREFILL_VALUES: [u16; MOST * ROW]);
    let stride = DIM + GAP;
    let (lane, thread) = (lane(), thread::idx_x() as usize);
    let (g, t) = (lane / 4, lane % 4);
    let head = block::idx_y();
    let first_row = block::idx_x() * ROWS;
    let row = first_row + warp_index() as u32 * 16 + g as u32;
    let c = a.columns.at(first_row as usize);
    let (k, v) = Rows::of::<f16>(&c, a.layer.index, a.layer.kv_heads, head / a.layer.group(), DIM as u32);

    // Queries of rows `g` and `g + 8` as fragments.
    let ranges = [a.range(row), a.range(row + 8)];
    let mut q = [[0u32; 4]; STEPS];
    for half in 0..2 {
        if ranges[half].1 > 0 {
            let at = (row as usize + 8 * half) * a.stride as usize + head as usize * DIM + 2 * t;
            for s in 0..STEPS {
                let (low, high) = (a.qkv.load2(at + 16 * s).0, a.qkv.load2(at + 16 * s + 8).0);
                q[s][half] = pack_f16x2(low[0], low[1]);
                q[s][half + 2] = pack_f16x2(high[0], high[1]);
            }
        }
    }

    // What any row of the block attends to, and any of the warp: positions are consecutive.
    let last = if a.count - first_row < ROWS { a.count - 1 } else { first_row + ROWS - 1 };
    let limit = if c.capacity < a.layer.context { c.capacity } else { a.layer.context };
    let end = a.columns.at(last as usize).position;
    let end = if end < limit { end + 1 } else { limit };
    let start = a.layer.first(c.position);

    let scale = core::f32::consts::LOG2_E / math::sqrt(DIM as f32);
    let (mut largest, mut sums) = ([f32::MIN; 2], [0.0f32; 2]);
    let mut out = [[0.0f32; 4]; OUTS];
    let mut base = start;
    while base < end {
        sync::block();
        let mut i = thread;
        while i < NEXT * DIM {
            let (r, e) = (i / (DIM / 8), i % (DIM / 8) * 8);
            let at = base + r as u32;
            let (mut x, mut y) = ([0u32; 4], [0u32; 4]);
            // Rows past the end are zeros: a weight of 0 takes nothing of them.
            if at < end {
                x = f16::load8(k.row(at) + 2 * e as u64);
                y = f16::load8(v.row(at) + 2 * e as u64);
            }
            keys.cast::<u32>().set4((r * stride + e) / 2, U32x4(x));
            values.cast::<u32>().set4((r * stride + e) / 2, U32x4(y));
            i += THREADS as usize;
        }
        sync::block();

        // Scores: tiles of 16 rows and 8 positions.
        let mut scores = [[0.0f32; 4]; NEXT];
        for n in 0..NEXT / 2 {
            // Lanes give rows of: positions 0 to 7 and dims 0 to 7, dims 8 to 15, then positions 8 to 15.
            let r = 16 * n + lane % 8 + lane / 16 * 8;
            let place = keys.address_of(r * stride + lane / 8 % 2 * 8);
            for s in 0..STEPS {
                let b = load_matrices(place + 32 * s as u32);
                mma_f16(&mut scores[2 * n], q[s], [b[0], b[1]]);
                mma_f16(&mut scores[2 * n + 1], q[s], [b[2], b[3]]);
            }
        }

        let mut new = largest;
        for n in 0..NEXT {
            for i in 0..4 {
                let (half, at) = (i / 2, base + (8 * n + 2 * t + i % 2) as u32);
                let live = ranges[half].0 <= at && at < ranges[half].1;
                scores[n][i] = if live { scores[n][i] * scale } else { f32::NEG_INFINITY };
                new[half] = math::max(new[half], scores[n][i]);
            }
        }
        let mut shrink = [1.0f32; 2];
        for half in 0..2 {
            // A row is spread over the four lanes of a group.
            let m = math::max(new[half], warp::shuffle_xor(warp::FULL, new[half], 1));
            new[half] = math::max(m, warp::shuffle_xor(warp::FULL, m, 2));
            shrink[half] = math::exp2_approx(largest[half] - new[half]);
            largest[half] = new[half];
            sums[half] *= shrink[half];
        }
        for o in 0..OUTS {
            for i in 0..4 {
                out[o][i] *= shrink[i / 2];
            }
        }
        // Weights, rounded before they are added up, are the left factor of the product with the values.
        for n in 0..NEXT / 2 {
            let mut p = [0u32; 4];
            for i in 0..4 {
                let (half, from) = (i % 2, 2 * n + i / 2);
                let low = math::exp2_approx(scores[from][2 * half] - new[half]);
                let high = math::exp2_approx(scores[from][2 * half + 1] - new[half]);
                p[i] = pack_f16x2(low, high);
                let (low, high) = unpack_f16x2(p[i]);
                sums[half] += low + high;
            }
            // Lanes give rows of: positions 0 to 7 and 8 to 15 of dims 0 to 7, then of dims 8 to 15.
            let r = 16 * n + lane % 16;
            let place = values.address_of(r * stride + lane / 16 * 8);
            for o in 0..OUTS / 2 {
                let b = load_matrices_transposed(place + 32 * o as u32);
                mma_f16(&mut out[2 * o], p, [b[0], b[1]]);
                mma_f16(&mut out[2 * o + 1], p, [b[2], b[3]]);
            }
        }
        base += tile as u32;
    }

    for half in 0..2 {
        let sum = sums[half] + warp::shuffle_xor(warp::FULL, sums[half], 1);
        sums[half] = sum + warp::shuffle_xor(warp::FULL, sum, 2);
    }
    for half in 0..2 {
        let r = row + 8 * half as u32;
        if r < a.count {
            let at = r as usize * a.y_stride as usize + head as usize * DIM + 2 * t;
            let none = ranges[half].1 == 0;
            for o in 0..OUTS {
                let (x, y) = (out[o][2 * half] / sums[half], out[o][2 * half + 1] / sums[half]);
                let pair = if none { [f32::NAN; 2] } else { [x, y] };
                a.y.store2(at + 8 * o, F32x2(pair));
            }
        }
    }
}
