//! Sums of 64 bits in shared memory, and the threshold at which sums reach a target, found digit by digit without sorting.

use crate::load::{lane, warp_index};
use warpsmith_device::prelude::*;

/// Bins of a digit.
pub const BINS: usize = 256;

/// Sums of 64 bits as two words each: shared memory adds words at once, and larger numbers by trying again until nobody was faster.
#[derive(Clone, Copy)]
pub struct WideSums {
    pub low: Shared<u32>,
    pub high: Shared<u32>,
}

impl WideSums {
    /// Makes sum `i` zero, or another number.
    #[inline(always)]
    pub unsafe fn set(self, i: usize, v: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            self.low.set(i, v as u32);
            self.high.set(i, (v >> 32) as u32);
        }
    }

    /// Sum `i`, behind a barrier.
    #[inline(always)]
    pub unsafe fn get(self, i: usize) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { (self.high.get(i) as u64) << 32 | self.low.get(i) as u64 }
    }

    /// Adds to sum `i`. Whoever wraps the lower word around carries.
    #[inline(always)]
    pub unsafe fn add(self, i: usize, v: u64) {
        let low = v as u32;
        // SAFETY: the caller's promise.
        unsafe {
            let (_, wraps) = self.low.fetch_add(i, low, Order::Relaxed).overflowing_add(low);
            let high = (v >> 32) as u32 + wraps as u32;
            if high != 0 {
                self.high.fetch_add(i, high, Order::Relaxed);
            }
        }
    }
}

/// Shared memory of [`reach`].
#[derive(Clone, Copy)]
pub struct ReachMemory {
    /// [`BINS`] sums.
    pub bins: WideSums,
    /// Two numbers.
    pub found: Shared<u64>,
}

/// Keys that the threads of a block share.
pub trait Keys {
    /// Calls `f` with each of this thread's. There is no barrier within.
    unsafe fn each(&self, f: impl FnMut(u32));
}

/// The key at which the weights from the largest key downward reach `target`, and the weight of larger keys, where keys that are not here
/// weigh `above` and are larger than all. All weights together reach it. Keys are below `2^bits`.
///
/// All threads of the block make this call, which begins with a barrier.
#[device]
pub unsafe fn reach(
    keys: &impl Keys,
    m: ReachMemory,
    bits: u32,
    (target, mut above): (u64, u64),
    weigh: impl Fn(u32) -> u64,
) -> (u32, u64) {
    let thread = thread::idx_x() as usize;
    let (mut prefix, mut left) = (0u32, bits);
    while left > 0 {
        // What stands left of this digit must be the prefix; of the first there is nothing.
        let shift = if left > 8 { left - 8 } else { 0 };
        let mask = if left == 32 { 0 } else { !0u32 << left };
        sync::block();
        if thread < BINS {
            m.bins.set(thread, 0);
        }
        sync::block();
        keys.each(|k| {
            if k & mask == prefix {
                let w = weigh(k);
                if w != 0 {
                    m.bins.add((k >> shift & 0xFF) as usize, w);
                }
            }
        });
        sync::block();
        if warp_index() == 0 {
            // Lane 0 has the eight largest bins.
            let first = BINS - 8 * (lane() + 1);
            let mut own = 0;
            for b in 0..8 {
                own += m.bins.get(first + b);
            }
            let upto = inclusive(own);
            let before = above + upto - own;
            if before < target && target <= before + own {
                let (mut sum, mut b) = (before, 7);
                loop {
                    let w = m.bins.get(first + b);
                    if sum + w >= target || b == 0 {
                        break;
                    }
                    sum += w;
                    b -= 1;
                }
                m.found.set(0, (first + b) as u64);
                m.found.set(1, sum);
            }
        }
        sync::block();
        prefix |= (m.found.get(0) as u32) << shift;
        above = m.found.get(1);
        left = shift;
    }
    (prefix, above)
}

/// The sum over this lane and those below.
#[device]
pub unsafe fn inclusive(v: u64) -> u64 {
    let mut sum = v;
    let mut distance = 1;
    while distance < 32 {
        let other = warp::shuffle_up(warp::FULL, sum, distance);
        sum += if lane() as u32 >= distance { other } else { 0 };
        distance *= 2;
    }
    sum
}

/// The sum over this thread and those below it, and that over all of the block's eight warps.
///
/// All threads of the block make this call, which begins with a barrier.
#[device]
pub unsafe fn block_inclusive(v: u64, scratch: Shared<u64>) -> (u64, u64) {
    let upto = inclusive(v);
    sync::block();
    if lane() == 31 {
        scratch.set(warp_index(), upto);
    }
    sync::block();
    let (mut before, mut all) = (0, 0);
    for warp in 0..8 {
        let sum = scratch.get(warp);
        before += if warp < warp_index() { sum } else { 0 };
        all += sum;
    }
    (before + upto, all)
}
