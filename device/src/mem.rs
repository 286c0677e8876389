//! Loads of global memory that name their cache behaviour.
//!
//! `ld.global.nc.L1::no_allocate` needs PTX ISA 7.4, which the builder sets for every
//! architecture. The memory must not be written while the kernel runs.

use crate::{F32x2, F32x4, U32x2, U32x4};
use core::arch::asm;

/// A value that [`In::ld_nc`](crate::args::In::ld_nc) loads in one instruction.
pub trait Streamed: Copy {
    /// Loads past the L1 cache.
    ///
    /// # Safety
    /// The value lies in global memory that nobody writes while the kernel runs, aligned.
    unsafe fn load_streamed(p: *const Self) -> Self;
}

macro_rules! scalars {
    ($($t:ty: $ptx:literal, $class:ident;)*) => { $(
        impl Streamed for $t {
            #[inline(always)]
            unsafe fn load_streamed(p: *const $t) -> $t {
                let v: $t;
                // SAFETY: the caller's promise.
                unsafe {
                    asm!(concat!("ld.global.nc.L1::no_allocate.", $ptx, " {0}, [{1}];"), lateout($class) v, in(reg64) p,
                        options(pure, readonly, nostack, preserves_flags));
                }
                v
            }
        }
    )* };
}
scalars! {
    u16: "b16", reg16;
    i16: "b16", reg16;
    u32: "b32", reg32;
    i32: "b32", reg32;
    f32: "b32", reg32;
    u64: "b64", reg64;
    i64: "b64", reg64;
    f64: "b64", reg64;
}

macro_rules! vectors {
    ($($t:ident[$e:ty] = $($r:ident)*, $ptx:literal;)*) => { $(
        impl Streamed for $t {
            #[inline(always)]
            unsafe fn load_streamed(p: *const $t) -> $t {
                $(let $r: $e;)*
                // SAFETY: the caller's promise.
                unsafe {
                    asm!(concat!("ld.global.nc.L1::no_allocate.", $ptx, ", [{p}];"), $($r = lateout(reg32) $r,)*
                        p = in(reg64) p, options(pure, readonly, nostack, preserves_flags));
                }
                $t([$($r),*])
            }
        }
    )* };
}
vectors! {
    U32x2[u32] = a b, "v2.b32 {{{a},{b}}}";
    F32x2[f32] = a b, "v2.b32 {{{a},{b}}}";
    U32x4[u32] = a b c d, "v4.b32 {{{a},{b},{c},{d}}}";
    F32x4[f32] = a b c d, "v4.b32 {{{a},{b},{c},{d}}}";
}

/// 16 bytes past the L1 cache: `ld.global.nc.L1::no_allocate.v4.b32`.
///
/// # Safety
/// They lie in global memory that nobody writes while the kernel runs; `p` is a multiple of 16.
#[inline(always)]
pub unsafe fn ld_global_nc_u32x4(p: *const U32x4) -> U32x4 {
    // SAFETY: the caller's promise.
    unsafe { U32x4::load_streamed(p) }
}

/// 16 bytes, first to leave the L1 cache: `ld.global.L1::evict_first.v4.b32`. For memory that
/// another kernel, but no thread of this one, writes.
///
/// # Safety
/// They lie in global memory; `p` is a multiple of 16; no thread writes them meanwhile.
#[inline(always)]
pub unsafe fn ld_global_evict_first_u32x4(p: *const U32x4) -> U32x4 {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ld.global.L1::evict_first.v4.b32 {{{0},{1},{2},{3}}}, [{4}];", lateout(reg32) a, lateout(reg32) b,
            lateout(reg32) c, lateout(reg32) d, in(reg64) p, options(pure, readonly, nostack, preserves_flags));
    }
    U32x4([a, b, c, d])
}

/// Asks for the cache line of `p` in L2. A hint: it faults on no address and waits for nothing.
#[inline(always)]
pub fn prefetch_l2<T>(p: *const T) {
    // SAFETY: a hint, which reads and writes nothing.
    unsafe {
        asm!("prefetch.global.L2 [{0}];", in(reg64) p, options(nostack, preserves_flags));
    }
}
