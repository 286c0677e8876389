//! Reductions over a full warp. Every lane gets the result.
//!
//! Shape: a butterfly over lane distances 16, 8, 4, 2, 1. For a commutative operation every lane
//! gets the same bits. Cost: five shuffles and five operations per 32 bits; the `u32` and `i32`
//! forms are one `redux.sync` from sm_80 on.

use super::{FULL, Shuffle, shuffle_xor};
use crate::{argmax::Best, math};

/// The reduction of the warp's 32 values by `op`, which is associative and commutative. No
/// collective may hide in `op`.
///
/// # Safety
/// The module's rule: all 32 lanes make this call.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn reduce<T: Shuffle>(v: T, op: impl Fn(T, T) -> T) -> T {
    // SAFETY: the caller's promise.
    unsafe { reduce_group::<32, T>(v, op) }
}

/// The reduction within each group of `N` neighbouring lanes, `N` a power of two up to 32.
///
/// # Safety
/// The module's rule: all 32 lanes make this call.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn reduce_group<const N: u32, T: Shuffle>(mut v: T, op: impl Fn(T, T) -> T) -> T {
    const { assert!(N.is_power_of_two() && N <= 32, "a group has 1, 2, 4, 8, 16 or 32 lanes") };
    let mut distance = N / 2;
    while distance > 0 {
        // SAFETY: the caller's promise.
        v = op(v, unsafe { shuffle_xor(FULL, v, distance) });
        distance /= 2;
    }
    v
}

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident: $t:ty = $op:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The module's rule: all 32 lanes make this call.
        #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
        pub unsafe fn $name(v: $t) -> $t {
            // SAFETY: the caller's promise.
            unsafe { reduce(v, $op) }
        }
    )* };
}
reductions! {
    /// The sum of the warp, added as a butterfly: (v0 + v16) and so on, in `f32`.
    sum_f32: f32 = |a, b| a + b;
    /// The largest of the warp; a NaN loses against any number.
    max_f32: f32 = math::max;
    /// The smallest of the warp; a NaN loses against any number.
    min_f32: f32 = math::min;
}

macro_rules! integer_reductions {
    ($($(#[$doc:meta])* $name:ident: $t:ty = $link:literal, $op:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The module's rule: all 32 lanes make this call.
        #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
        pub unsafe fn $name(v: $t) -> $t {
            #[cfg(all(target_feature = "sm_80", not(feature = "nvvm")))]
            {
                unsafe extern "C" {
                    #[link_name = $link]
                    fn redux(v: $t, mask: u32) -> $t;
                }
                // SAFETY: the caller's promise.
                unsafe { redux(v, FULL) }
            }
            #[cfg(not(all(target_feature = "sm_80", not(feature = "nvvm"))))]
            {
                // SAFETY: the caller's promise.
                unsafe { reduce(v, $op) }
            }
        }
    )* };
}
integer_reductions! {
    /// The sum of the warp, wrapping.
    sum_u32: u32 = "llvm.nvvm.redux.sync.add", u32::wrapping_add;
    /// The largest of the warp.
    max_u32: u32 = "llvm.nvvm.redux.sync.umax", Ord::max;
    /// The smallest of the warp.
    min_u32: u32 = "llvm.nvvm.redux.sync.umin", Ord::min;
    /// The largest of the warp.
    max_i32: i32 = "llvm.nvvm.redux.sync.max", Ord::max;
    /// The smallest of the warp.
    min_i32: i32 = "llvm.nvvm.redux.sync.min", Ord::min;
}

/// The sum of the warp, wrapping.
///
/// # Safety
/// The module's rule: all 32 lanes make this call.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn sum_i32(v: i32) -> i32 {
    // SAFETY: the caller's promise. In two's complement the sum does not depend on the sign.
    unsafe { sum_u32(v as u32) as i32 }
}

/// The best candidate of the warp: see [`Best`] for ties and NaN. Ten shuffles.
///
/// # Safety
/// The module's rule: all 32 lanes make this call.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn argmax(candidate: Best) -> Best {
    // SAFETY: the caller's promise.
    unsafe { reduce(candidate, Best::merge) }
}
