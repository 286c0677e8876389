//! Collectives of a warp: shuffles, votes, reductions.
//!
//! A *mask* has a bit per lane. A collective takes the mask of the lanes that join it; most code
//! uses [`FULL`], and keeps whole warps together up to that point (pad the work, not the warp).
//! Reductions here take the full warp; [`tile`](crate::tile) has them for parts of one, with scans and values of any size.
//!
//! All are `unsafe` for the same reason: **every lane of the mask must reach the same call**, and
//! the calling lane must be in the mask. Otherwise the result is undefined, or the warp hangs.
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
