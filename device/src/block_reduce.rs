//! Reductions over a block, through shared memory. Every thread gets the result.
//!
//! Shape: each warp reduces by shuffles, its first lane writes to `scratch`, and after a barrier
//! each warp reduces the warps' results again. Cost: two barriers, ten shuffles, one load and one
//! store per 32 bits. The block is one of whole warps; `scratch` has an element per warp (32 is
//! always enough) and may be used again right after: the first barrier keeps the uses apart.
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// y[b] = Σ_t x[256 b + t].
//! #[kernel(block = 256)]
//! pub unsafe fn block_sums(x: In<f32>, y: Out<f32>) {
//!     let scratch = shared_array!(BLOCK_SUM: [f32; 32]);
//!     let total = block_reduce::sum_f32(x.at(thread::global_x()), scratch);
//!     if thread::idx_x() == 0 {
//!         y.set(block::idx_x() as usize, total);
//!     }
//! }
//! # fn main() {}
//! ```

use crate::{
    argmax::Best,
    math,
    shared::{Shared, SharedElement},
    sync, thread,
    warp::{self, Shuffle},
};

/// The reduction of the block's values by `op`, which is associative and commutative, with
/// `identity`. No collective may hide in `op`.
///
/// # Safety
/// All threads of the block make this call, the block has a multiple of 32 threads, and `scratch`
/// has at least [`block::warps`](crate::block::warps) elements.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn reduce<T: Shuffle + SharedElement>(
    v: T,
    identity: T,
    scratch: Shared<T>,
    op: impl Fn(T, T) -> T + Copy,
) -> T {
    // SAFETY: the caller's promises are those of the calls; lanes index below the warps' number.
    unsafe {
        let v = warp::reduce(v, op);
        sync::block();
        if thread::lane() == 0 {
            scratch.set(thread::warp() as usize, v);
        }
        sync::block();
        let lane = thread::lane();
        let v = if lane < crate::block::warps() { scratch.get(lane as usize) } else { identity };
        warp::reduce(v, op)
    }
}

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident: $t:ty, $identity:expr, $op:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// As [`reduce`].
        #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
        pub unsafe fn $name(v: $t, scratch: Shared<$t>) -> $t {
            // SAFETY: the caller's promise.
            unsafe { reduce(v, $identity, scratch, $op) }
        }
    )* };
}
reductions! {
    /// The sum of the block, in `f32`.
    sum_f32: f32, 0.0, |a, b| a + b;
    /// The largest of the block; a NaN loses against any number.
    max_f32: f32, f32::NEG_INFINITY, math::max;
    /// The sum of the block, wrapping.
    sum_u32: u32, 0, u32::wrapping_add;
    /// The largest of the block.
    max_u32: u32, 0, Ord::max;
    /// The best candidate of the block.
    argmax: Best, Best::NONE, Best::merge;
}
