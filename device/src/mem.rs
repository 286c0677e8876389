//! Loads and stores of global memory that name their cache behaviour, and prefetches.
//!
//! | CUDA C++ | here | PTX |
//! |---|---|---|
//! | `__ldg` | [`load`]`(p, Load::ReadOnly)`, or any load of an [`In`](crate::args::In) | `ld.global.nc` |
//! | streaming weights | [`load`]`(p, Load::Streamed)`, `In::ld_nc` | `ld.global.nc.L1::no_allocate` |
//! | `__ldcg`, `__ldcs` | [`load`]`(p, Load::L2)`, `Load::Once` | `ld.global.cg`, `ld.global.cs` |
//! | `__stcg`, `__stcs`, `__stwt` | [`store`]`(p, v, Store::L2)`, `Store::Once`, `Store::Through` | `st.global.cg`, `.cs`, `.wt` |
//! | `cuda::annotated_ptr`, `createpolicy` | [`load_by`]`(p, Policy::keep())` | `ld.global.L2::cache_hint` |
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// y += a x, 16 bytes a load: x passes by L1, the 4 KiB of `a` stay in L2.
//! #[kernel(block = 256)]
//! pub unsafe fn axpy4(a: In<f32>, x: In<f32>, y: InOut<f32>, n: u32) {
//!     let i = 4 * thread::global_x();
//!     if i < n as usize {
//!         let F32x4(a) = mem::load_by(a.ptr().add(i % 1024).cast::<F32x4>(), mem::Policy::keep());
//!         let F32x4(x) = mem::load(x.ptr().add(i).cast::<F32x4>(), mem::Load::Streamed);
//!         let F32x4(y0) = y.load4(i);
//!         let sum = F32x4([0, 1, 2, 3].map(|k| math::fma(a[k], x[k], y0[k])));
//!         mem::store(y.ptr_at(i).cast::<F32x4>(), sum, mem::Store::Once);
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! A value has 2, 4, 8 or 16 bytes ([`Streamed`]) and is one access, aligned to its size: 16 bytes a lane are the widest, four
//! lines of 128 bytes a warp. A [`Policy`] is one `createpolicy` more, outside of loops; before sm_80 there is none, and the
//! access is an ordinary one. [`prefetch_l2`] and [`prefetch_l1`] are one instruction, and nothing waits for them.
//!
//! Hints are constants in practice and cost nothing; no result depends on them. They need PTX ISA 7.4, which the builder sets
//! for every architecture. Source: PTX ISA, "Cache operators" and "Cache eviction priority hints".

use crate::{F32x2, F32x4, U32x2, U32x4};
use core::arch::asm;

/// How a load uses the caches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Through the read-only path: memory that nobody writes while the kernel runs.
    ReadOnly,
    /// The same, past L1: what each block reads once.
    Streamed,
    /// Past L1: what other blocks write.
    L2,
    /// Likely not again: first to leave L1 and L2.
    Once,
    /// First to leave L1.
    EvictFirst,
    /// Last to leave L1.
    EvictLast,
}

/// How a store uses the caches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// Past L1.
    L2,
    /// Likely not read soon: first to leave.
    Once,
    /// Through to memory.
    Through,
    /// First to leave L1.
    EvictFirst,
    /// Last to leave L1.
    EvictLast,
}

/// What L2 does with a line, from sm_80 on.
#[derive(Clone, Copy)]
pub struct Policy(#[allow(dead_code)] u64);

macro_rules! policies {
    ($($(#[$doc:meta])* $name:ident = $ptx:literal;)*) => {
        impl Policy { $(
            $(#[$doc])*
            #[inline(always)]
            pub fn $name() -> Policy {
                #[cfg(target_feature = "sm_80")]
                {
                    let policy: u64;
                    // SAFETY: makes a number.
                    unsafe {
                        asm!(concat!("createpolicy.fractional.", $ptx, ".b64 {0}, 1.0;"), lateout(reg64) policy,
                            options(pure, nomem, nostack, preserves_flags));
                    }
                    Policy(policy)
                }
                #[cfg(not(target_feature = "sm_80"))]
                Policy(0)
            }
        )* }
    };
}
policies! {
    /// Last to leave: what all blocks read again.
    keep = "L2::evict_last";
    /// First to leave: what streams through.
    stream = "L2::evict_first";
}

/// A value that one instruction loads and stores with a hint.
pub trait Streamed: Copy {
    /// Loads past the L1 cache.
    ///
    /// # Safety
    /// The value lies in global memory that nobody writes while the kernel runs, aligned.
    #[inline(always)]
    unsafe fn load_streamed(p: *const Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::load_hinted(p, Load::Streamed) }
    }
    #[doc(hidden)]
    unsafe fn load_hinted(p: *const Self, hint: Load) -> Self;
    #[doc(hidden)]
    unsafe fn load_policy(p: *const Self, policy: Policy) -> Self;
    #[doc(hidden)]
    unsafe fn store_hinted(p: *mut Self, v: Self, hint: Store);
    #[doc(hidden)]
    unsafe fn store_policy(p: *mut Self, v: Self, policy: Policy);
}

/// Picks a load; `$one!` gets its PTX name and `$args`.
macro_rules! by_load {
    ($hint:expr, $one:ident, $args:tt) => {
        match $hint {
            Load::ReadOnly => $one!("ld.global.nc", $args),
            Load::Streamed => $one!("ld.global.nc.L1::no_allocate", $args),
            Load::L2 => $one!("ld.global.cg", $args),
            Load::Once => $one!("ld.global.cs", $args),
            Load::EvictFirst => $one!("ld.global.L1::evict_first", $args),
            Load::EvictLast => $one!("ld.global.L1::evict_last", $args),
        }
    };
}

macro_rules! by_store {
    ($hint:expr, $one:ident, $args:tt) => {
        match $hint {
            Store::L2 => $one!("st.global.cg", $args),
            Store::Once => $one!("st.global.cs", $args),
            Store::Through => $one!("st.global.wt", $args),
            Store::EvictFirst => $one!("st.global.L1::evict_first", $args),
            Store::EvictLast => $one!("st.global.L1::evict_last", $args),
        }
    };
}

macro_rules! ld {
    ($name:literal, ($ptx:literal, $class:ident, $p:expr, $($r:ident)*)) => {
        asm!(concat!($name, ".", $ptx, ", [{p}];"), $($r = lateout($class) $r,)* p = in(reg64) $p,
            options(pure, readonly, nostack, preserves_flags))
    };
}

macro_rules! st {
    ($name:literal, ($ptx:literal, $class:ident, $p:expr, $($r:ident)*)) => {
        asm!(concat!($name, ".", $ptx, ";"), $($r = in($class) $r,)* p = in(reg64) $p, options(nostack, preserves_flags))
    };
}

macro_rules! streamed {
    ($($t:ty, $e:ty: $class:ident, $ld:literal, $st:literal, $($r:ident)*, $to:pat = $from:expr;)*) => { $(
        impl Streamed for $t {
            #[inline(always)]
            unsafe fn load_hinted(p: *const $t, hint: Load) -> $t {
                $(let $r: $e;)*
                // SAFETY: the caller's promise.
                unsafe { by_load!(hint, ld, ($ld, $class, p, $($r)*)) }
                $from
            }
            #[inline(always)]
            unsafe fn load_policy(p: *const $t, policy: Policy) -> $t {
                #[cfg(target_feature = "sm_80")]
                {
                    $(let $r: $e;)*
                    // SAFETY: the caller's promise.
                    unsafe {
                        asm!(concat!("ld.global.L2::cache_hint.", $ld, ", [{p}], {policy};"), $($r = lateout($class) $r,)*
                            p = in(reg64) p, policy = in(reg64) policy.0, options(pure, readonly, nostack, preserves_flags));
                    }
                    $from
                }
                #[cfg(not(target_feature = "sm_80"))]
                {
                    let _ = policy;
                    // SAFETY: the caller's promise.
                    unsafe { *p }
                }
            }
            #[inline(always)]
            unsafe fn store_hinted(p: *mut $t, v: $t, hint: Store) {
                let $to = v;
                // SAFETY: the caller's promise.
                unsafe { by_store!(hint, st, ($st, $class, p, $($r)*)) }
            }
            #[inline(always)]
            unsafe fn store_policy(p: *mut $t, v: $t, policy: Policy) {
                #[cfg(target_feature = "sm_80")]
                {
                    let $to = v;
                    // SAFETY: the caller's promise.
                    unsafe {
                        asm!(concat!("st.global.L2::cache_hint.", $st, ", {policy};"), $($r = in($class) $r,)*
                            p = in(reg64) p, policy = in(reg64) policy.0, options(nostack, preserves_flags));
                    }
                }
                #[cfg(not(target_feature = "sm_80"))]
                {
                    let _ = policy;
                    // SAFETY: the caller's promise.
                    unsafe { *p = v }
                }
            }
        }
    )* };
}

macro_rules! scalars {
    ($($t:ty: $ld:literal, $st:literal, $class:ident;)*) => {
        streamed! { $($t, $t: $class, $ld, $st, a, a = a;)* }
    };
}
scalars! {
    u16: "b16 {a}", "b16 [{p}], {a}", reg16;
    i16: "b16 {a}", "b16 [{p}], {a}", reg16;
    u32: "b32 {a}", "b32 [{p}], {a}", reg32;
    i32: "b32 {a}", "b32 [{p}], {a}", reg32;
    f32: "b32 {a}", "b32 [{p}], {a}", reg32;
    u64: "b64 {a}", "b64 [{p}], {a}", reg64;
    i64: "b64 {a}", "b64 [{p}], {a}", reg64;
    f64: "b64 {a}", "b64 [{p}], {a}", reg64;
}
streamed! {
    U32x2, u32: reg32, "v2.b32 {{{a},{b}}}", "v2.b32 [{p}], {{{a},{b}}}", a b, U32x2([a, b]) = U32x2([a, b]);
    F32x2, f32: reg32, "v2.b32 {{{a},{b}}}", "v2.b32 [{p}], {{{a},{b}}}", a b, F32x2([a, b]) = F32x2([a, b]);
    U32x4, u32: reg32, "v4.b32 {{{a},{b},{c},{d}}}", "v4.b32 [{p}], {{{a},{b},{c},{d}}}", a b c d, U32x4([a, b, c, d]) = U32x4([a, b, c, d]);
    F32x4, f32: reg32, "v4.b32 {{{a},{b},{c},{d}}}", "v4.b32 [{p}], {{{a},{b},{c},{d}}}", a b c d, F32x4([a, b, c, d]) = F32x4([a, b, c, d]);
}

/// Loads with a hint.
///
/// # Safety
/// The value lies in global memory, aligned; no thread writes it meanwhile, and with `ReadOnly` or `Streamed` nobody does while
/// the kernel runs.
#[inline(always)]
pub unsafe fn load<T: Streamed>(p: *const T, hint: Load) -> T {
    // SAFETY: the caller's promise.
    unsafe { T::load_hinted(p, hint) }
}

/// Stores with a hint.
///
/// # Safety
/// The value lies in global memory, aligned; no other thread touches it meanwhile.
#[inline(always)]
pub unsafe fn store<T: Streamed>(p: *mut T, v: T, hint: Store) {
    // SAFETY: the caller's promise.
    unsafe { T::store_hinted(p, v, hint) }
}

/// Loads with a policy for L2; without one before sm_80.
///
/// # Safety
/// The value lies in global memory, aligned; no thread writes it meanwhile.
#[inline(always)]
pub unsafe fn load_by<T: Streamed>(p: *const T, policy: Policy) -> T {
    // SAFETY: the caller's promise.
    unsafe { T::load_policy(p, policy) }
}

/// Stores with a policy for L2; without one before sm_80.
///
/// # Safety
/// The value lies in global memory, aligned; no other thread touches it meanwhile.
#[inline(always)]
pub unsafe fn store_by<T: Streamed>(p: *mut T, v: T, policy: Policy) {
    // SAFETY: the caller's promise.
    unsafe { T::store_policy(p, v, policy) }
}

/// 16 bytes past the L1 cache: `ld.global.nc.L1::no_allocate.v4.b32`.
///
/// # Safety
/// They lie in global memory that nobody writes while the kernel runs; `p` is a multiple of 16.
#[inline(always)]
pub unsafe fn ld_global_nc_u32x4(p: *const U32x4) -> U32x4 {
    // SAFETY: the caller's promise.
    unsafe { load(p, Load::Streamed) }
}

/// 16 bytes, first to leave the L1 cache: `ld.global.L1::evict_first.v4.b32`. For memory that
/// another kernel, but no thread of this one, writes.
///
/// # Safety
/// They lie in global memory; `p` is a multiple of 16; no thread writes them meanwhile.
#[inline(always)]
pub unsafe fn ld_global_evict_first_u32x4(p: *const U32x4) -> U32x4 {
    // SAFETY: the caller's promise.
    unsafe { load(p, Load::EvictFirst) }
}

/// Asks for the cache line of `p` in L2. A hint: it faults on no address and waits for nothing.
#[inline(always)]
pub fn prefetch_l2<T>(p: *const T) {
    // SAFETY: a hint, which reads and writes nothing.
    unsafe {
        asm!("prefetch.global.L2 [{0}];", in(reg64) p, options(nostack, preserves_flags));
    }
}

/// Asks for the cache line of `p` in L1, and so in L2. A hint, as [`prefetch_l2`].
#[inline(always)]
pub fn prefetch_l1<T>(p: *const T) {
    // SAFETY: a hint, which reads and writes nothing.
    unsafe {
        asm!("prefetch.global.L1 [{0}];", in(reg64) p, options(nostack, preserves_flags));
    }
}
