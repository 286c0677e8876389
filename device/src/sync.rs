//! Barriers.
//!
//! Every barrier is an LLVM intrinsic with the attribute `convergent`: the compiler neither copies
//! it into the arms of a divergent branch nor moves memory accesses over it. What it does not see
//! is a barrier inside a function that it has not inlined yet, so everything here is inlined
//! before LLVM runs: by `rustc_force_inline`, since the compiler treats `inline(always)` as a
//! hint at that point. Helpers of your own get the same from [`#[device]`](macro@crate::device).
//! A closure is a function too: keep barriers and collectives out of closures, and loop with
//! `while` or `for` around them.
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// y[b] = how many of x[256 b ..][..256] are larger than their neighbour.
//! #[kernel(block = 256)]
//! pub unsafe fn larger(x: In<f32>, y: Out<u32>) {
//!     let (t, row) = (thread::idx_x() as usize, shared_array!(ROW: [f32; 256]));
//!     row.set(t, x.at(thread::global_x()));
//!     // Each thread reads what another one wrote.
//!     sync::block();
//!     let count = sync::block_count(row.get(t) > row.get(t ^ 1));
//!     if t == 0 {
//!         y.set(block::idx_x() as usize, count);
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! | | cost | orders |
//! |---|---|---|
//! | [`block`] | one `bar.sync`: the wait for the last warp | shared and global memory, among the threads of the block |
//! | [`block_count`], [`block_any`], [`block_all`] | one `bar.red` | the same |
//! | [`part`] | one `bar.sync` | the same, among the threads that take part |
//! | [`warp()`] | one `bar.warp.sync` | the same, among the lanes of the mask |
//!
//! Of the whole grid: [`grid::sync`](crate::grid::sync). In two halves: [`barrier`](crate::barrier).

#[cfg(target_arch = "nvptx64")]
unsafe extern "C" {
    #[link_name = "llvm.nvvm.barrier0"]
    #[cfg(feature = "nvvm")]
    fn barrier_all();
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    #[cfg(not(feature = "nvvm"))]
    fn barrier_all(id: u32);
    #[link_name = "llvm.nvvm.barrier"]
    #[cfg(feature = "nvvm")]
    fn barrier_part(id: u32, threads: u32);
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.count"]
    #[cfg(not(feature = "nvvm"))]
    fn barrier_part(id: u32, threads: u32);
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.barrier0.popc"]
    #[cfg(feature = "nvvm")]
    fn barrier_popc(p: u32) -> u32;
    #[link_name = "llvm.nvvm.barrier.cta.red.popc.aligned.all"]
    #[cfg(not(feature = "nvvm"))]
    fn barrier_popc(id: u32, p: bool) -> u32;
}

/// Waits for all threads of the block; what they wrote to shared and global memory before is
/// visible to the block after (`bar.sync 0`).
///
/// # Safety
/// All threads of the block reach this very call, or none: not within a branch that only some take.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn block() {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(feature = "nvvm")]
        barrier_all();
        #[cfg(not(feature = "nvvm"))]
        barrier_all(0);
    }
}

/// [`block`], and how many threads of the block passed `true`.
///
/// # Safety
/// As [`block`].
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn block_count(p: bool) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(feature = "nvvm")]
        return barrier_popc(p as u32);
        #[cfg(not(feature = "nvvm"))]
        return barrier_popc(0, p);
    }
}

/// [`block`], and whether any thread of the block passed `true`.
///
/// # Safety
/// As [`block`].
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn block_any(p: bool) -> bool {
    // SAFETY: the caller's promise.
    unsafe { block_count(p) != 0 }
}

/// [`block`], and whether all threads of the block passed `true`.
///
/// # Safety
/// As [`block`].
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn block_all(p: bool) -> bool {
    // SAFETY: the caller's promise.
    unsafe { block_count(!p) == 0 }
}

/// Waits for `threads` threads of the block, whole warps that all name the barrier `id`; what they wrote to shared and global
/// memory before is visible to them after (`bar.sync id, threads`). For blocks whose warps do different things: each part
/// waits at a barrier of its own.
///
/// # Safety
/// `id` is within 1 to 15 (0 is that of [`block`]), `threads` a multiple of 32, and so many threads, with each the other lanes
/// of its warp, reach a call with them before any comes to the next.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn part(id: u32, threads: u32) {
    // SAFETY: the caller's promise.
    unsafe { barrier_part(id, threads) }
}

/// Waits for the lanes of `mask` in this warp; what they wrote before is visible to them after
/// (`bar.warp.sync`).
///
/// # Safety
/// The calling lane is in `mask`, and all lanes of `mask` that have not exited call with this mask.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn warp(mask: u32) {
    // SAFETY: the caller's promise.
    unsafe { bar_warp_sync(mask) }
}
