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

/// What each of the partial results of `group` heads counts for, and what they come to: `state` gives the largest score and the sum
/// of weights of head `h` and result `s`, for `s` below `count`, of at most `room`, a power of two up to 32.
///
/// All threads of the block make this call; a barrier follows.
#[device]
pub unsafe fn weigh(memory: &Memory, group: u32, (count, room): (u32, u32), state: impl Fn(usize, usize) -> [f32; 2]) {
    let shift = room.trailing_zeros();
    let mut i = thread_index();
    // The same number of turns in every lane of a warp.
    while i & !31 < group << shift {
        let (h, s) = ((i >> shift) as usize, (i & (room - 1)) as usize);
        let there = i < group << shift && (s as u32) < count;
        let [own, weights] = if there { state(h, s) } else { [f32::MIN, 0.0] };
        let (mut largest, mut distance) = (own, room / 2);
        while distance > 0 {
            largest = math::max(largest, warp::shuffle_xor(warp::FULL, largest, distance));
            distance /= 2;
        }
        let share = math::exp2_approx_ftz(own - largest);
        let (mut sum, mut distance) = (share * weights, room / 2);
        while distance > 0 {
            sum += warp::shuffle_xor(warp::FULL, sum, distance);
            distance /= 2;
        }
        if there {
            memory.queries.set(i as usize, share);
            if s == 0 {
                memory.totals.set2(2 * h, F32x2([largest, sum]));
            }
        }
        i += THREADS;
    }
}

/// The sum of four values of each of `count` partial results of head `h`, of at most `room`, by what each counts for.
#[inline(always)]
pub unsafe fn weighted(
    memory: &Memory,
    h: usize,
    (count, room): (u32, u32),
    value: impl Fn(usize) -> [f32; 4],
) -> [f32; 4] {
    let mut all = [0.0f32; 4];
    // SAFETY: the head has as many shares.
    let shares = unsafe { memory.queries.from(h * room as usize) };
    // Loads of several are under way together.
    unroll!(8, s in 0, count as usize, 1 => {
        // SAFETY: of the head, written before the barrier.
        let (share, v) = (unsafe { shares.get(s) }, value(s));
        for i in 0..4 {
            all[i] = math::fma(share, v[i], all[i]);
        }
    });
    all
}
