//! Factors of tensor cores, and the products of a warp's keys.

use super::{Chunk, ChunkMemory, LARGER, Left, PARTS, PRODUCTS, RawTokens, State, TOKENS, WARPS, lane, warp_index};
use crate::delta::Net;
use warpsmith_device::{
    convert::{pack_f16x2, unpack_f16x2},
    mma::mma_f16,
    prelude::*,
    static_for,
    warp::FULL,
};

/// No power of two is made of exponents further out.
const EXPONENTS: [u32; 2] = [64, 250];

/// What is two f16 each: the first ones, and what these leave.
#[inline(always)]
pub fn split([x, y]: [f32; 2]) -> [u32; 2] {
    let high = pack_f16x2(x, y);
    let (a, b) = unpack_f16x2(high);
    [high, pack_f16x2(x - a, y - b)]
}

/// Adds the product of two factors in two parts.
#[inline(always)]
pub unsafe fn multiply(sums: &mut [f32; 4], a: &[[u32; 4]; 2], b: [[u32; 2]; 2]) {
    // SAFETY: the caller's promise: all lanes are here.
    unsafe {
        mma_f16(sums, a[0], b[1]);
        mma_f16(sums, a[1], b[0]);
        mma_f16(sums, a[0], b[0]);
    }
}

/// The power of two by which a number becomes 4 to 8, times `2^up`, and what it is divided by for that.
#[inline(always)]
pub fn power(largest: f32, up: u32) -> [f32; 2] {
    let e = largest.to_bits() >> 23;
    let e = if e < EXPONENTS[0] { EXPONENTS[0] } else { e };
    let e = if e > EXPONENTS[1] - up { EXPONENTS[1] - up } else { e };
    [(256 + up - e) << 23, (e - 2 - up) << 23].map(f32::from_bits)
}

/// The largest magnitude of all lanes; a NaN counts for nothing.
#[inline(always)]
pub unsafe fn largest<const N: usize, const M: usize, const L: usize>(x: &[[[f32; N]; M]; L]) -> f32 {
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
pub unsafe fn lefts(raw: &RawTokens, chunk: Chunk, net: &Net, memory: &ChunkMemory) -> [Left; 2] {
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
pub unsafe fn keep_keys(keys: &Left, memory: &ChunkMemory) {
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
pub unsafe fn products(lefts: &[Left; 2], state: &State, (most, unit): (f32, f32), memory: &ChunkMemory) {
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
