//! Sums of 16-bit floats, of their pairs, and of vectors of `f32`.

use super::{Atomic, AtomicAdd, Order, Scope, before_seq_cst};
use crate::packed::{Bf16x2, F16x2};
use crate::{F32x2, F32x4, bf16, f16};
use core::arch::asm;

/// `atom` on the bits of a 16-bit float or a pair.
macro_rules! add {
    ($sem:literal, $at:literal, ($space:literal, $ra:ident, $address:expr, $ty:literal, $class:ident, $bits:ty, $v:expr)) => {{
        let old: $bits;
        asm!(concat!("atom.", $sem, ".", $at, ".", $space, ".add.noftz.", $ty, " {0}, [{1}], {2};"),
            lateout($class) old, in($ra) $address, in($class) $v, options(nostack));
        old
    }};
}

macro_rules! one_instruction {
    ($($cfg:meta: $t:ident, $ty:literal, $class:ident, $bits:ty;)*) => { $(
        // SAFETY: the method is the PTX instruction of its name.
        #[cfg($cfg)]
        unsafe impl AtomicAdd for $t {
            #[inline(always)]
            unsafe fn add<const SHARED: bool>(address: u64, v: $t, order: Order, scope: Scope) -> $t {
                before_seq_cst(order, scope);
                // SAFETY: the caller's promise.
                $t::from_bits(unsafe {
                    if SHARED {
                        by_order!(order, scope, add, ("shared", reg32, address as u32, $ty, $class, $bits, v.to_bits()))
                    } else {
                        by_order!(order, scope, add, ("global", reg64, address, $ty, $class, $bits, v.to_bits()))
                    }
                })
            }
        }
    )* };
}
one_instruction! {
    any(target_arch = "nvptx64", doc): F16x2, "f16x2", reg32, u32;
    any(target_arch = "nvptx64", doc): f16, "f16", reg16, u16;
    target_feature = "sm_90": Bf16x2, "bf16x2", reg32, u32;
    target_feature = "sm_90": bf16, "bf16", reg16, u16;
}

#[cfg(not(target_feature = "sm_90"))]
macro_rules! ld16 {
    ($sem:literal, $at:literal, ($space:literal, $ra:ident, $address:expr)) => {{
        let v: u16;
        asm!(concat!("ld.", $sem, ".", $at, ".", $space, ".b16 {0}, [{1}];"),
            lateout(reg16) v, in($ra) $address, options(nostack));
        v
    }};
}

#[cfg(not(target_feature = "sm_90"))]
macro_rules! cas16 {
    ($sem:literal, $at:literal, ($space:literal, $ra:ident, $address:expr, $old:expr, $new:expr)) => {{
        let found: u16;
        asm!(concat!("atom.", $sem, ".", $at, ".", $space, ".cas.b16 {0}, [{1}], {2}, {3};"),
            lateout(reg16) found, in($ra) $address, in(reg16) $old, in(reg16) $new, options(nostack));
        found
    }};
}

/// Replaces the bits at an address by `sum` of them until nobody came between; gives the bits before.
#[cfg(not(target_feature = "sm_90"))]
macro_rules! until_alone {
    ($old:ident = $load:expr, $sum:expr, |$new:ident| $cas:expr) => {{
        let mut $old = $load;
        loop {
            let $new = $sum;
            let found = $cas;
            if found == $old {
                break found;
            }
            $old = found;
        }
    }};
}

// SAFETY: a sum of halves that replaces the word only if it is still what was added to.
#[cfg(not(target_feature = "sm_90"))]
unsafe impl AtomicAdd for Bf16x2 {
    #[inline(always)]
    unsafe fn add<const SHARED: bool>(address: u64, v: Bf16x2, order: Order, scope: Scope) -> Bf16x2 {
        // SAFETY: the caller's promise.
        Bf16x2::from_bits(unsafe {
            until_alone!(
                old = u32::ld::<SHARED>(address, Order::Relaxed, scope),
                (Bf16x2::from_bits(old) + v).to_bits(),
                |new| u32::cas::<SHARED>(address, old, new, order, scope)
            )
        })
    }
}

// SAFETY: a sum that replaces the number only if it is still what was added to.
#[cfg(not(target_feature = "sm_90"))]
unsafe impl AtomicAdd for bf16 {
    #[inline(always)]
    unsafe fn add<const SHARED: bool>(address: u64, v: bf16, order: Order, scope: Scope) -> bf16 {
        before_seq_cst(order, scope);
        // SAFETY: the caller's promise.
        bf16::from_bits(unsafe {
            if SHARED {
                until_alone!(
                    old = by_scope!(scope, "relaxed", ld16, ("shared", reg32, address as u32)),
                    (bf16::from_bits(old) + v).to_bits(),
                    |new| by_order!(order, scope, cas16, ("shared", reg32, address as u32, old, new))
                )
            } else {
                until_alone!(
                    old = by_scope!(scope, "relaxed", ld16, ("global", reg64, address)),
                    (bf16::from_bits(old) + v).to_bits(),
                    |new| by_order!(order, scope, cas16, ("global", reg64, address, old, new))
                )
            }
        })
    }
}

macro_rules! words {
    ($($t:ident)*) => { $(
        // SAFETY: each method is that of the pair's word.
        unsafe impl Atomic for $t {
            #[inline(always)]
            unsafe fn swap<const SHARED: bool>(address: u64, v: $t, order: Order, scope: Scope) -> $t {
                // SAFETY: the caller's promise.
                $t::from_bits(unsafe { u32::swap::<SHARED>(address, v.to_bits(), order, scope) })
            }
            #[inline(always)]
            unsafe fn cas<const SHARED: bool>(address: u64, old: $t, new: $t, order: Order, scope: Scope) -> $t {
                // SAFETY: the caller's promise.
                $t::from_bits(unsafe { u32::cas::<SHARED>(address, old.to_bits(), new.to_bits(), order, scope) })
            }
            #[inline(always)]
            unsafe fn ld<const SHARED: bool>(address: u64, order: Order, scope: Scope) -> $t {
                // SAFETY: the caller's promise.
                $t::from_bits(unsafe { u32::ld::<SHARED>(address, order, scope) })
            }
            #[inline(always)]
            unsafe fn st<const SHARED: bool>(address: u64, v: $t, order: Order, scope: Scope) {
                // SAFETY: the caller's promise.
                unsafe { u32::st::<SHARED>(address, v.to_bits(), order, scope) }
            }
        }
    )* };
}
words!(F16x2 Bf16x2);

/// A vector of `f32` that the GPU adds to in one access: [`F32x2`], [`F32x4`].
///
/// # Safety
/// The method adds to as many `f32` as the vector has.
pub unsafe trait AtomicVector: Copy {
    #[doc(hidden)]
    unsafe fn add_each(address: u64, v: Self, scope: Scope);
}

// sm_90 is compiled for PTX ISA 8.0 by default, which has no such access yet.
#[cfg(any(target_feature = "sm_100", all(target_feature = "sm_90", target_feature = "ptx81")))]
macro_rules! red {
    ($sem:literal, $at:literal, ($v:ident, $address:expr, $n:literal, $list:literal, $($i:literal)*)) => {
        asm!(concat!("red.", $sem, ".", $at, ".global.add.v", $n, ".f32 [{a}], {{", $list, "}};"),
            $(in(reg32) $v.0[$i],)* a = in(reg64) $address, options(nostack))
    };
}

macro_rules! vectors {
    ($($t:ident: $n:literal, $list:literal, $($i:literal)*;)*) => { $(
        // SAFETY: a `red` of the vector, or one for each element.
        unsafe impl AtomicVector for $t {
            #[inline(always)]
            unsafe fn add_each(address: u64, v: $t, scope: Scope) {
                // SAFETY: the caller's promise.
                unsafe {
                    #[cfg(any(target_feature = "sm_100", all(target_feature = "sm_90", target_feature = "ptx81")))]
                    by_scope!(scope, "relaxed", red, (v, address, $n, $list, $($i)*));
                    #[cfg(not(any(target_feature = "sm_100", all(target_feature = "sm_90", target_feature = "ptx81"))))]
                    {
                        $(f32::add::<false>(address + 4 * $i, v.0[$i], Order::Relaxed, scope);)*
                    }
                }
            }
        }
    )* };
}
vectors! {
    F32x2: 2, "{0}, {1}", 0 1;
    F32x4: 4, "{0}, {1}, {2}, {3}", 0 1 2 3;
}

/// Adds each element of `v` to its element at `p`, rounding to nearest even, in no order with other accesses. Every element is
/// added atomically, the vector as a whole is not. Shared memory has no such access.
///
/// # Safety
/// `p` is aligned and in global memory; other threads touch the elements by atomics only.
#[inline(always)]
pub unsafe fn add_each<T: AtomicVector>(p: *mut T, v: T, scope: Scope) {
    // SAFETY: the caller's promise.
    unsafe { T::add_each(p as u64, v, scope) }
}
