//! What a chunk's tokens bring, loaded while the one before is computed.

use super::{BlockInputs, Chunk, ChunkMemory, KEYS, PAIRS, RawTokens, TOKENS, WARPS, lane, thread_index, warp_index};
use crate::delta::rule::softplus;
use warpsmith_device::{
    prelude::*,
    static_for,
    warp::{FULL, reduce_group, shuffle_idx},
};

/// What a thread has loaded of a chunk.
pub struct Ahead {
    pub raw: RawTokens,
    /// Four elements of the values of a token.
    pub value: [f32; 4],
    /// Of a token of the lane's number.
    gates: [f32; 2],
}

impl Ahead {
    #[inline(always)]
    pub unsafe fn load(given: &BlockInputs, chunk: Chunk) -> Ahead {
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
    pub unsafe fn square(&self, memory: &ChunkMemory) {
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
    pub unsafe fn gate(&self, given: &BlockInputs, chunk: Chunk, memory: &ChunkMemory) {
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
