//! Partial results of a head become one: those of warps, and those of blocks.

use super::{THREADS, memory::StepMemory};
use crate::load::thread_index;
use warpsmith_device::{prelude::*, unroll, unroll::no_unroll};

/// `run` with every head and every fourth element, over the threads of the block.
#[device]
pub unsafe fn by_fours(group: u32, dim: usize, run: impl Fn(usize, usize)) {
    // A power of two for each head takes no division.
    let shift = (dim as u32 / 4).next_power_of_two().trailing_zeros();
    let mut i = thread_index();
    while i < group << shift {
        no_unroll();
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

/// What partial results of a head come to, of which there are `N` times `K` elements here: one after the other is added, in order.
#[derive(Clone, Copy)]
pub struct Gathered<const N: usize, const K: usize> {
    /// The largest of what weights are relative to.
    pub most: f32,
    /// The sum of weights.
    pub sum: f32,
    pub values: [[f32; K]; N],
}

impl<const N: usize, const K: usize> Gathered<N, K> {
    /// What no result comes to.
    pub const NONE: Self = Gathered { most: f32::MIN, sum: 0.0, values: [[0.0; K]; N] };

    /// Adds a result whose weights are relative to `top` and have this sum, and whose values are in `units` of this.
    #[inline(always)]
    pub fn add(&mut self, (top, sum): (f32, f32), units: f32, value: impl Fn(usize, usize) -> f32) {
        let (share, most) = Share::of(self.most, top);
        (self.most, self.sum) = (most, share.add(self.sum, sum));
        let share = Share { share: share.share * units, ..share };
        for n in 0..N {
            for k in 0..K {
                self.values[n][k] = share.add(self.values[n][k], value(n, k));
            }
        }
    }
}

/// A value to which none was added before: -0 becomes 0, as in a sum.
#[inline(always)]
pub fn alone(value: f32) -> f32 {
    value + 0.0
}

/// What each of the partial results of `group` heads counts for, and what they come to: `state` gives the largest score and the sum
/// of weights of head `h` and result `s`, for `s` below `count`, of at most `room`, a power of two up to 32.
///
/// All threads of the block make this call; a barrier follows.
#[device]
pub unsafe fn weigh(
    memory: &StepMemory,
    group: u32,
    (count, room): (u32, u32),
    state: impl Fn(usize, usize) -> [f32; 2],
) {
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
    memory: &StepMemory,
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

/// What each of the partial results of `group` heads counts for beside those before it: arguments are those of [`weigh`].
///
/// All threads of the block make this call; a barrier follows.
#[device]
pub unsafe fn weigh_in_order(
    memory: &StepMemory,
    group: u32,
    (count, room): (u32, u32),
    state: impl Fn(usize, usize) -> [f32; 2],
) {
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
pub unsafe fn weighted_in_order(
    memory: &StepMemory,
    h: usize,
    (count, room): (u32, u32),
    value: impl Fn(usize) -> [f32; 4],
) -> ([f32; 4], f32) {
    // SAFETY: the head has as many shares.
    let shares = unsafe { memory.queries.from(4 * h * room as usize) };
    let (mut all, mut sum) = ([0.0f32; 4], 0.0);
    let (count, mut from) = (count as usize, 0);
    // Loads of as many are under way together.
    const TOGETHER: usize = 8;
    while from < count {
        no_unroll();
        let values: [[f32; 4]; TOGETHER] =
            core::array::from_fn(|i| if from + i < count { value(from + i) } else { [0.0; 4] });
        // SAFETY: of the head, written before the barrier.
        let of: [[f32; 4]; TOGETHER] =
            core::array::from_fn(
                |i| if from + i < count { unsafe { shares.get4(4 * (from + i)).0 } } else { [0.0; 4] },
            );
        for i in 0..TOGETHER {
            if from + i < count {
                let [shrink, share, weights, _] = of[i];
                let share = Share { shrink, share };
                sum = share.add(sum, weights);
                for k in 0..4 {
                    all[k] = share.add(all[k], values[i][k]);
                }
            }
        }
        from += TOGETHER;
    }
    (all, sum)
}
