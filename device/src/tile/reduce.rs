//! Reductions and scans of a tile. Every lane gets its result.

use super::Tile;
use crate::Element;

impl<const N: u32> Tile<N> {
    /// The reduction by `op`, which is associative and commutative: a butterfly over distances `N / 2` to 1, so that every
    /// lane gets the same bits.
    ///
    /// # Safety
    /// The module's rule.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn reduce<T: Element>(self, mut v: T, op: impl Fn(T, T) -> T) -> T {
        let mut distance = N / 2;
        while distance > 0 {
            // SAFETY: the caller's promise.
            v = op(v, unsafe { self.shuffle_xor(v, distance) });
            distance /= 2;
        }
        v
    }

    /// What the values of ranks 0 to `rank()` give by `op`, which is associative and gets the lower ranks first.
    ///
    /// # Safety
    /// The module's rule.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn inclusive_scan<T: Element>(self, mut v: T, op: impl Fn(T, T) -> T) -> T {
        let mut distance = 1;
        while distance < N {
            // SAFETY: the caller's promise.
            let lower = unsafe { self.shuffle_up(v, distance) };
            if self.rank() >= distance {
                v = op(lower, v);
            }
            distance *= 2;
        }
        v
    }

    /// What the values of the ranks below give by `op`, which is associative; `identity` for rank 0.
    ///
    /// # Safety
    /// The module's rule.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn exclusive_scan<T: Element>(self, v: T, identity: T, op: impl Fn(T, T) -> T) -> T {
        // SAFETY: the caller's promise.
        let below = unsafe {
            let v = self.inclusive_scan(v, op);
            self.shuffle_up(v, 1)
        };
        if self.rank() == 0 { identity } else { below }
    }
}

macro_rules! integer_reductions {
    ($($(#[$doc:meta])* $name:ident: $t:ty = $link:literal, $op:expr;)*) => {
        impl<const N: u32> Tile<N> { $(
            $(#[$doc])*
            ///
            /// One `redux.sync` from sm_80 on.
            ///
            /// # Safety
            /// The module's rule.
            #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
            pub unsafe fn $name(self, v: $t) -> $t {
                #[cfg(all(target_feature = "sm_80", not(feature = "nvvm")))]
                {
                    unsafe extern "C" {
                        #[link_name = $link]
                        fn redux(v: $t, mask: u32) -> $t;
                    }
                    // SAFETY: the caller's promise.
                    unsafe { redux(v, self.mask) }
                }
                #[cfg(not(all(target_feature = "sm_80", not(feature = "nvvm"))))]
                {
                    // SAFETY: the caller's promise.
                    unsafe { self.reduce(v, $op) }
                }
            }
        )* }
    };
}
integer_reductions! {
    /// The sum, wrapping.
    sum_u32: u32 = "llvm.nvvm.redux.sync.add", u32::wrapping_add;
    /// The largest.
    max_u32: u32 = "llvm.nvvm.redux.sync.umax", Ord::max;
    /// The smallest.
    min_u32: u32 = "llvm.nvvm.redux.sync.umin", Ord::min;
    /// The largest.
    max_i32: i32 = "llvm.nvvm.redux.sync.max", Ord::max;
    /// The smallest.
    min_i32: i32 = "llvm.nvvm.redux.sync.min", Ord::min;
    /// All bits that every value has.
    and_u32: u32 = "llvm.nvvm.redux.sync.and", |a, b| a & b;
    /// All bits that some value has.
    or_u32: u32 = "llvm.nvvm.redux.sync.or", |a, b| a | b;
    /// The parity of every bit.
    xor_u32: u32 = "llvm.nvvm.redux.sync.xor", |a, b| a ^ b;
}

impl<const N: u32> Tile<N> {
    /// The sum, wrapping: as [`sum_u32`](Self::sum_u32), since two's complement adds alike.
    ///
    /// # Safety
    /// The module's rule.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn sum_i32(self, v: i32) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { self.sum_u32(v as u32) as i32 }
    }
}
