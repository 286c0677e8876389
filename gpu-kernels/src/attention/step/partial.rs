//! Partial results of a head become one: those of warps, and those of blocks.

use super::{THREADS, memory::Memory};
use crate::load::thread_index;
use warpsmith_device::{prelude::*, unroll};

/// `run` with every head and every fourth element, over the threads of the block.
#[device]
pub unsafe fn by_fours(group: u32, dim: usize, run: impl Fn(usize, usize)) {
    // A power of two for each head takes no division.
    let shift = (dim as u32 / 4).next_power_of_two().trailing_zeros();
    let mut i = thread_index();
    while i < group << shift {
        let (h, d) = ((i >> shift) as usize, (4 * (i & ((1 << shift) - 1))) as usize);
        if d < dim {
            run(h, d);
        }
        i += THREADS;
    }
}

/// What a partial result counts for beside those before it, in order: what is there shrinks where the new one has a larger score.
#[derive(Clone, Copy)]
pub struct Share {
    /// The factor of what is there.
    pub shrink: f32,
    /// The factor of what is added.
    pub share: f32,
}

impl Share {
    /// That of a result relative to the score `own`, beside those relative to `before`; with the larger one, which the sum of them is
    /// relative to.
    #[inline(always)]
    pub fn of(before: f32, own: f32) -> (Share, f32) {
        let largest = math::max(before, own);
        let power = |score: f32| math::exp2_approx_ftz(score - largest);
        (Share { shrink: power(before), share: power(own) }, largest)
    }

    /// `all` and `own` together.
    #[inline(always)]
    pub fn add(&self, all: f32, own: f32) -> f32 {
        math::fma(self.share, own, all * self.shrink)
    }
}

/// What each of the partial results of `group` heads counts for beside those before it: `state` gives the largest score and the sum
/// of weights of head `h` and result `s`, for `s` below `count`, of at most `room`, a power of two up to 32.
///
/// All threads of the block make this call; a barrier follows.
#[device]
pub unsafe fn weigh(memory: &Memory, group: u32, (count, room): (u32, u32), state: impl Fn(usize, usize) -> [f32; 2]) {
    let shift = room.trailing_zeros();
    let mut i = thread_index();
    // The same number of turns in every lane of a warp.
    while i & !31 < group << shift {
        let (h, s) = ((i >> shift) as usize, i & (room - 1));
        let there = i < group << shift && s < count;
        let [own, weights] = if there { state(h, s as usize) } else { [f32::MIN, 0.0] };
        // The largest of the results up to this one, then of those before it.
        let (mut largest, mut distance) = (own, 1);
        while distance < room {
            let other = warp::shuffle_idx(warp::FULL, largest, i.wrapping_sub(distance) & 31);
            largest = if s >= distance { math::max(largest, other) } else { largest };
            distance *= 2;
        }
        let before = warp::shuffle_idx(warp::FULL, largest, i.wrapping_sub(1) & 31);
        let (Share { shrink, share }, largest) = Share::of(if s == 0 { f32::MIN } else { before }, own);
        if there {
            memory.queries.set4(4 * i as usize, F32x4([shrink, share, weights, 0.0]));
            if s + 1 == count {
                memory.totals.set(h, largest);
            }
        }
        i += THREADS;
    }
}

/// Four values of all of `count` partial results of head `h`, of at most `room`, put together in order, and the sum of their weights.
#[inline(always)]
pub unsafe fn weighted(
    memory: &Memory,
    h: usize,
    (count, room): (u32, u32),
    value: impl Fn(usize) -> [f32; 4],
) -> ([f32; 4], f32) {
    let (mut all, mut sum) = ([0.0f32; 4], 0.0f32);
    // SAFETY: the head has as many shares.
    let shares = unsafe { memory.queries.from(4 * h * room as usize) };
    // Loads of several are under way together.
    unroll!(8, s in 0, count as usize, 1 => {
        // SAFETY: of the head, written before the barrier.
        let ([shrink, share, weights, _], v) = (unsafe { shares.get4(4 * s).0 }, value(s));
        let share = Share { shrink, share };
        sum = share.add(sum, weights);
        for i in 0..4 {
            all[i] = share.add(all[i], v[i]);
        }
    });
    (all, sum)
}
