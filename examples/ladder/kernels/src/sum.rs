//! `y[b]` is the sum of block `b`'s share of `x`. Two launches give the sum of all: many blocks over `x`, then one block
//! over their results.

use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// The sum of all.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: &[f32]) -> f64 {
    x.iter().map(|x| f64::from(*x)).sum()
}

/// A thread's share: every element that is a grid's width from the one before.
#[inline(always)]
#[cfg(target_arch = "nvptx64")]
unsafe fn share(x: In<f32>, n: u32) -> f32 {
    let mut sum = 0.0;
    let mut i = thread::global_x();
    while i < n as usize {
        // SAFETY: `i` is below the length.
        sum += unsafe { x.at(i) };
        i += thread::global_dim_x();
    }
    sum
}

/// Step 4, shared memory and barriers: the threads of a block add up their sums in a tree.
///
/// Memory that the block shares takes the place of messages: write, wait for all, read what others wrote. Eight levels,
/// each with a barrier of 256 threads, of which the last one has work for a single thread.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 4")]
pub unsafe fn sum_tree(x: In<f32>, y: Out<f32>, n: u32) {
    let tree = shared_array!(SUM_TREE: [f32; 256]);
    let t = thread::idx_x() as usize;
    tree.set(t, share(x, n));
    let mut half = THREADS as usize / 2;
    while half > 0 {
        sync::block();
        if t < half {
            tree.set(t, tree.get(t) + tree.get(t + half));
        }
        half /= 2;
    }
    if t == 0 {
        y.set(block::idx_x() as usize, tree.get(0));
    }
}

/// Step 5, shuffles: lanes of a warp hand each other registers, without memory and without a barrier.
///
/// In five exchanges every lane has the warp's sum. Shared memory carries one number a warp, over one barrier. From here on
/// `warp::sum_f32` and `block_reduce::sum_f32` of the device library stand for this.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 5")]
pub unsafe fn sum_shuffle(x: In<f32>, y: Out<f32>, n: u32) {
    let warps = shared_array!(SUM_SHUFFLE: [f32; 8]);
    let sum = butterfly(share(x, n));
    if thread::lane() == 0 {
        warps.set(thread::warp() as usize, sum);
    }
    sync::block();
    if thread::warp() == 0 {
        let lane = thread::lane() as usize;
        let sum = butterfly(if lane < 8 { warps.get(lane) } else { 0.0 });
        if lane == 0 {
            y.set(block::idx_x() as usize, sum);
        }
    }
}

/// The warp's sum, in every lane: with the lane 16 away, then 8, 4, 2, 1.
///
/// # Safety
/// All lanes of the warp make this call.
#[device]
#[cfg(target_arch = "nvptx64")]
pub(crate) unsafe fn butterfly(mut v: f32) -> f32 {
    let mut distance = 16;
    while distance > 0 {
        // SAFETY: the caller's promise.
        v += unsafe { warp::shuffle_xor(warp::FULL, v, distance) };
        distance /= 2;
    }
    v
}

/// As many blocks as `y` has elements.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn check(
    meta: &'static KernelMeta,
    x: &DeviceSlice<f32>,
    y: &DeviceSlice<f32>,
    n: u32,
) -> Result<(), ContractError> {
    contract::at_least(meta, "x", x.len(), (n, "n"))?;
    contract::within(meta, "y", y.len(), 1u32, i32::MAX)
}

#[cfg(not(target_arch = "nvptx64"))]
macro_rules! contracts {
    ($($Name:ident),*) => { $(
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::blocks(self.y.len())
            }
            fn check(&self) -> Result<(), ContractError> {
                check(Self::META, self.x, self.y, self.n)
            }
        }
    )* };
}
#[cfg(not(target_arch = "nvptx64"))]
contracts!(SumTree, SumShuffle);
