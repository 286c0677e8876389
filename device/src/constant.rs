//! Constant memory: tables that all lanes read at the same place, through a cache of their own.
//!
//! [`constant_array!`](crate::constant_array) declares a table with its values, and gives its [`Constant`] handle:
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// y = Σ taps[k] x[i + k].
//! #[kernel(block = 256)]
//! pub unsafe fn filter(x: In<f32>, y: Out<f32>) {
//!     let taps = constant_array!(TAPS: [f32] = [0.25, 0.5, 0.25]);
//!     let i = thread::global_x();
//!     let mut sum = 0.0;
//!     for k in 0..taps.len() {
//!         sum = math::fma(taps.get(k), x.at(i + k), sum);
//!     }
//!     y.set(i, sum);
//! }
//! # fn main() {}
//! ```
//!
//! | data | where it lies | how it is read | cost |
//! |---|---|---|---|
//! | `constant_array!` | `.const`, 64 KiB a module | `ld.const` | one access per different place in the warp; from the constant cache |
//! | value arguments of a kernel, structs too | the parameter bank, 4 KiB | by the kernel, as operands | none; an index that varies copies the array to local memory |
//! | `const` array, constant index | the instructions | as an immediate | none |
//! | `static` table, or `const` array, index that varies | `.global` | `ld.global.nc` | as global memory, cached in L1: best where lanes read different places |
//!
//! A table that the host computes is a buffer ([`In`](crate::args::In)), or a struct argument.

use core::marker::PhantomData;

/// A table of `T` in constant memory.
pub struct Constant<T> {
    address: u64,
    len: u32,
    element: PhantomData<*const T>,
}

impl<T> Clone for Constant<T> {
    #[inline(always)]
    fn clone(&self) -> Constant<T> {
        *self
    }
}
impl<T> Copy for Constant<T> {}

impl<T: Word> Constant<T> {
    /// The handle of `len` elements from the address in constant memory on.
    ///
    /// # Safety
    /// They lie there.
    #[inline(always)]
    pub const unsafe fn from_raw(address: u64, len: u32) -> Constant<T> {
        Constant { address, len, element: PhantomData }
    }

    /// Its elements.
    #[inline(always)]
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Whether it has none.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Element `i`.
    ///
    /// # Safety
    /// `i` is below the length; with the feature `checked`, another one traps.
    #[inline(always)]
    pub unsafe fn get(self, i: usize) -> T {
        #[cfg(feature = "checked")]
        crate::device_assert!(i < self.len());
        // SAFETY: the caller's promise.
        unsafe { T::load(self.address + (i * size_of::<T>()) as u64) }
    }
}

/// A number that a constant table holds: `u32`, `i32`, `f32`, `u64`, `i64`, `f64`.
pub trait Word: Copy {
    /// Loads from constant memory.
    ///
    /// # Safety
    /// The address is that of such a number in constant memory.
    unsafe fn load(address: u64) -> Self;
}

macro_rules! words {
    ($($t:ty: $ptx:literal, $class:ident;)*) => { $(
        impl Word for $t {
            #[inline(always)]
            unsafe fn load(address: u64) -> $t {
                let v: $t;
                // SAFETY: the caller's promise; nothing writes constant memory while a kernel runs.
                unsafe {
                    core::arch::asm!(concat!("ld.const.", $ptx, " {0}, [{1}];"), lateout($class) v, in(reg64) address,
                        options(pure, readonly, nostack, preserves_flags));
                }
                v
            }
        }
    )* };
}
words! {
    u32: "b32", reg32;
    i32: "b32", reg32;
    f32: "b32", reg32;
    u64: "b64", reg64;
    i64: "b64", reg64;
    f64: "b64", reg64;
}

/// Declares a table in constant memory and gives its [`Constant`](crate::constant::Constant) handle.
///
/// ```
/// # #![cfg_attr(target_arch = "nvptx64", no_std)]
/// # use warpsmith_device::prelude::*;
/// /// y[i] = the days of month x[i], from 0 on.
/// #[kernel(block = 256)]
/// pub unsafe fn days(x: In<u32>, y: Out<u32>) {
///     let days = constant_array!(DAYS: [u32] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]);
///     let i = thread::global_x();
///     y.set(i, days.get(x.at(i) as usize));
/// }
/// # fn main() {}
/// ```
///
/// The name is a symbol of the whole PTX module, as that of [`shared_array!`](crate::shared_array). The elements are `u32`,
/// `i32`, `f32`, `u64`, `i64` or `f64`, each an expression of constants that the *module* around the function can see.
#[macro_export]
macro_rules! constant_array {
    ($name:ident: [$t:tt] = [$first:expr $(, $v:expr)* $(,)?]) => {{
        #[allow(non_snake_case)]
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            const VALUES: &[$t] = &[$first $(, $v)*];
            pub const LEN: usize = VALUES.len();
            ::core::arch::global_asm!(
                concat!(".const .align 16 .", $crate::__constant_type!($t), " ", stringify!($name), "[{len}] = {{ {first}",
                    $($crate::__one_more!($v),)* " }};"),
                $(const $crate::__constant_bits!($t, $v),)*
                len = const LEN,
                first = const $crate::__constant_bits!($t, $first),
            );
        }
        let address: u64;
        // SAFETY: takes the address of the table that the line above declares.
        unsafe {
            ::core::arch::asm!(
                concat!("mov.b64 {0}, ", stringify!($name), ";"),
                lateout(reg64) address,
                options(pure, nomem, nostack, preserves_flags)
            );
            $crate::constant::Constant::<$t>::from_raw(address, $name::LEN as u32)
        }
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __one_more {
    ($v:expr) => {
        ", {}"
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __constant_type {
    (u64) => {
        "b64"
    };
    (i64) => {
        "b64"
    };
    (f64) => {
        "b64"
    };
    ($t:tt) => {
        "b32"
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __constant_bits {
    (f32, $v:expr) => {{
        let v: f32 = $v;
        v.to_bits()
    }};
    (f64, $v:expr) => {{
        let v: f64 = $v;
        v.to_bits()
    }};
    ($t:tt, $v:expr) => {{
        let v: $t = $v;
        v
    }};
}
