//! What one load or store of shared memory moves.
//!
//! Loads are `pure, readonly`: the compiler may merge two loads of one address, but moves none
//! over an `asm!` that may write (every store here) or over a barrier. Stores are neither.

use crate::{Element, F32x2, F32x4, U32x2, U32x4, bf16, f16};
use core::arch::asm;

/// A value that shared memory holds: numbers and vectors of 8 to 128 bits, one instruction each; arrays of elements and
/// structs with `#[derive(Element)]`, in accesses as wide as their alignment.
pub trait SharedElement: Copy {
    /// Loads from a shared address.
    ///
    /// # Safety
    /// The address is within the block's shared memory and a multiple of the alignment.
    unsafe fn load(address: u32) -> Self;
    /// Stores to a shared address.
    ///
    /// # Safety
    /// The address is within the block's shared memory and a multiple of the alignment.
    unsafe fn store(address: u32, v: Self);
}

macro_rules! scalars {
    ($($t:ty: $ptx:literal, $class:ident, |$raw:ident: $rt:ty| $from:expr, |$v:ident| $to:expr;)*) => { $(
        impl SharedElement for $t {
            #[inline(always)]
            unsafe fn load(address: u32) -> $t {
                const { assert!(size_of::<$t>() <= size_of::<$rt>()) };
                let $raw: $rt;
                // SAFETY: the caller's promise.
                unsafe {
                    asm!(concat!("ld.shared.", $ptx, " {0}, [{1}];"), lateout($class) $raw, in(reg32) address,
                        options(pure, readonly, nostack, preserves_flags));
                }
                $from
            }
            #[inline(always)]
            unsafe fn store(address: u32, $v: $t) {
                let raw: $rt = $to;
                // SAFETY: the caller's promise.
                unsafe {
                    asm!(concat!("st.shared.", $ptx, " [{0}], {1};"), in(reg32) address, in($class) raw,
                        options(nostack, preserves_flags));
                }
            }
        }
    )* };
}
scalars! {
    u8: "u8", reg32, |r: u32| r as u8, |v| v as u32;
    i8: "u8", reg32, |r: u32| r as i8, |v| v as u8 as u32;
    u16: "b16", reg16, |r: u16| r, |v| v;
    i16: "b16", reg16, |r: i16| r, |v| v;
    f16: "b16", reg16, |r: u16| f16::from_bits(r), |v| v.to_bits();
    bf16: "b16", reg16, |r: u16| bf16::from_bits(r), |v| v.to_bits();
    u32: "b32", reg32, |r: u32| r, |v| v;
    i32: "b32", reg32, |r: i32| r, |v| v;
    f32: "b32", reg32, |r: f32| r, |v| v;
    u64: "b64", reg64, |r: u64| r, |v| v;
    i64: "b64", reg64, |r: i64| r, |v| v;
    f64: "b64", reg64, |r: f64| r, |v| v;
}

macro_rules! vectors {
    ($($t:ident [$e:ty; 2];)*) => { $(
        impl SharedElement for $t {
            #[inline(always)]
            unsafe fn load(address: u32) -> $t {
                let (a, b): ($e, $e);
                // SAFETY: the caller's promise.
                unsafe {
                    asm!("ld.shared.v2.b32 {{{0},{1}}}, [{2}];", lateout(reg32) a, lateout(reg32) b, in(reg32) address,
                        options(pure, readonly, nostack, preserves_flags));
                }
                $t([a, b])
            }
            #[inline(always)]
            unsafe fn store(address: u32, v: $t) {
                // SAFETY: the caller's promise.
                unsafe {
                    asm!("st.shared.v2.b32 [{0}], {{{1},{2}}};", in(reg32) address, in(reg32) v.0[0], in(reg32) v.0[1],
                        options(nostack, preserves_flags));
                }
            }
        }
    )* };
    ($($t:ident [$e:ty; 4];)*) => { $(
        impl SharedElement for $t {
            #[inline(always)]
            unsafe fn load(address: u32) -> $t {
                let (a, b, c, d): ($e, $e, $e, $e);
                // SAFETY: the caller's promise.
                unsafe {
                    asm!("ld.shared.v4.b32 {{{0},{1},{2},{3}}}, [{4}];", lateout(reg32) a, lateout(reg32) b,
                        lateout(reg32) c, lateout(reg32) d, in(reg32) address,
                        options(pure, readonly, nostack, preserves_flags));
                }
                $t([a, b, c, d])
            }
            #[inline(always)]
            unsafe fn store(address: u32, v: $t) {
                // SAFETY: the caller's promise.
                unsafe {
                    asm!("st.shared.v4.b32 [{0}], {{{1},{2},{3},{4}}};", in(reg32) address, in(reg32) v.0[0],
                        in(reg32) v.0[1], in(reg32) v.0[2], in(reg32) v.0[3],
                        options(nostack, preserves_flags));
                }
            }
        }
    )* };
}
vectors! { U32x2 [u32; 2]; F32x2 [f32; 2]; }
vectors! { U32x4 [u32; 4]; F32x4 [f32; 4]; }

/// Loads an element of any size, in accesses as wide as its alignment.
///
/// # Safety
/// The address is within the block's shared memory and a multiple of the alignment.
#[inline(always)]
pub unsafe fn load_plain<T: Element>(address: u32) -> T {
    let mut v = core::mem::MaybeUninit::<T>::uninit();
    let to = v.as_mut_ptr().cast::<u8>();
    let mut at = 0;
    // SAFETY: the caller's promise; the size is a multiple of the alignment, so that the accesses fill the value, of which
    // every bit pattern is valid.
    unsafe {
        while at < size_of::<T>() {
            let (from, to) = (address.wrapping_add(at as u32), to.add(at));
            match align_of::<T>() {
                1 => to.write(u8::load(from)),
                2 => to.cast::<u16>().write(u16::load(from)),
                4 => to.cast::<u32>().write(u32::load(from)),
                8 => to.cast::<u64>().write(u64::load(from)),
                _ => to.cast::<U32x4>().write(U32x4::load(from)),
            }
            at += const { step::<T>() };
        }
        v.assume_init()
    }
}

/// Stores an element of any size, in accesses as wide as its alignment.
///
/// # Safety
/// The address is within the block's shared memory and a multiple of the alignment.
#[inline(always)]
pub unsafe fn store_plain<T: Element>(address: u32, v: T) {
    let from = (&raw const v).cast::<u8>();
    let mut at = 0;
    // SAFETY: the caller's promise; an element has no padding, and its size is a multiple of its alignment.
    unsafe {
        while at < size_of::<T>() {
            let (to, from) = (address.wrapping_add(at as u32), from.add(at));
            match align_of::<T>() {
                1 => u8::store(to, from.read()),
                2 => u16::store(to, from.cast::<u16>().read()),
                4 => u32::store(to, from.cast::<u32>().read()),
                8 => u64::store(to, from.cast::<u64>().read()),
                _ => U32x4::store(to, from.cast::<U32x4>().read()),
            }
            at += const { step::<T>() };
        }
    }
}

/// Bytes of one access.
const fn step<T>() -> usize {
    if align_of::<T>() < 16 { align_of::<T>() } else { 16 }
}

impl<T: Element, const N: usize> SharedElement for [T; N] {
    #[inline(always)]
    unsafe fn load(address: u32) -> [T; N] {
        // SAFETY: the caller's promise.
        unsafe { load_plain(address) }
    }
    #[inline(always)]
    unsafe fn store(address: u32, v: [T; N]) {
        // SAFETY: the caller's promise.
        unsafe { store_plain(address, v) }
    }
}
