//! Collectives of a warp: shuffles, votes, reductions.
//!
//! A *mask* has a bit per lane. A collective takes the mask of the lanes that join it; most code
//! uses [`FULL`], and keeps whole warps together up to that point (pad the work, not the warp).
//! Reductions here take the full warp; [`tile`](crate::tile) has them for parts of one, with scans and values of any size.
//!
//! All are `unsafe` for the same reason: **every lane of the mask must reach the same call**, and
//! the calling lane must be in the mask. Otherwise the result is undefined, or the warp hangs.
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// x without its zeros, in order, for each 32 elements; how many are left.
//! #[kernel(block = 32)]
//! pub unsafe fn compact(x: In<u32>, y: Out<u32>, left: Out<u32>) {
//!     let v = x.at(thread::global_x());
//!     let kept = warp::ballot(warp::FULL, v != 0);
//!     let (b, place) = (block::idx_x() as usize, (kept & warp::lanes_below()).count_ones());
//!     if v != 0 {
//!         y.set(32 * b + place as usize, v);
//!     }
//!     let largest = warp::max_u32(v);
//!     if thread::lane() == 0 {
//!         left.set(2 * b, kept.count_ones());
//!         left.set(2 * b + 1, largest);
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! | | shape | cost |
//! |---|---|---|
//! | [`shuffle_idx`], `_up`, `_down`, `_xor` | a value of 8 to 64 bits a lane | 1 `shfl.sync` per 32 bits |
//! | [`ballot`], [`any`], [`all`] | a condition a lane; a bit a lane, or one for all | 1 `vote.sync` |
//! | [`match_any`] | 32 bits a lane; the lanes with the same | 1 `match.sync`, some 20 cycles per distinct value |
//! | [`sum_u32`] and friends | 32 bits a lane; the result in every lane | 1 `redux.sync` from sm_80 on, else 5 shuffles and 5 operations |
//! | [`reduce`], [`sum_f32`], [`argmax`] | a value a lane; the result in every lane | 5 shuffles and 5 operations per 32 bits |
//!
//! Shuffles and votes are LLVM intrinsics that are `convergent`, inlined before LLVM runs (see
//! [`sync`](crate::sync)). Under rust-cuda the same names exist, except for `redux` (a shuffle
//! tree stands in).

mod reduce;
mod shuffle;
mod vote;

/// The instructions, for collectives elsewhere.
#[cfg(target_arch = "nvptx64")]
pub(crate) mod raw {
    pub(crate) use super::shuffle::{shfl_bfly, shfl_down, shfl_idx, shfl_up};
}

pub use reduce::{
    argmax, max_f32, max_i32, max_u32, min_f32, min_i32, min_u32, reduce, reduce_group, sum_f32, sum_i32, sum_u32,
};
pub use shuffle::{Shuffle, shuffle_down, shuffle_idx, shuffle_up, shuffle_xor};
pub use vote::{active_mask, all, any, ballot, match_any};

/// All lanes.
pub const FULL: u32 = !0;

/// The lanes below this one.
#[inline(always)]
pub fn lanes_below() -> u32 {
    (1u32 << crate::thread::lane()) - 1
}
