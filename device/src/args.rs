//! The buffer arguments of a kernel: [`In`], [`Awaited`], [`Out`], [`InOut`].
//!
//! Each is one pointer. Accessors take `usize` indices, are unchecked (the launch's contract has
//! checked the lengths) and become `ld.global`/`st.global`; elements of 8 and 16 bytes with that
//! alignment ([`F32x4`] and friends) become one access.
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// y = 2 x, 16 bytes a load and a store.
//! #[kernel(block = 256)]
//! pub unsafe fn doubled(x: In<f32>, y: Out<f32>, n: u32) {
//!     let i = 4 * thread::global_x();
//!     if i < n as usize {
//!         let F32x4(v) = x.load4(i);
//!         y.store4(i, F32x4(v.map(|v| 2.0 * v)));
//!     }
//! }
//!
//! #[cfg(not(target_arch = "nvptx64"))]
//! impl Contract for Doubled<'_> {
//!     fn geometry(&self) -> Geometry {
//!         Geometry::blocks((self.n / 4).div_ceil(256))
//!     }
//!     fn check(&self) -> Result<(), ContractError> {
//!         contract::multiple_of(Self::META, "n", self.n, 4u32)?;
//!         contract::at_least(Self::META, "x", self.x.len(), (self.n, "n"))?;
//!         contract::at_least(Self::META, "y", self.y.len(), (self.n, "n"))?;
//!         contract::multiple_of(Self::META, "x", (self.x.address(), "its address"), 16u32)?;
//!         contract::multiple_of(Self::META, "y", (self.y.address(), "its address"), 16u32)
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! | | moves | cost |
//! |---|---|---|
//! | `at`, `get`, `set` | an element | 1 access, or one for each 16 bytes; for each field, where the alignment is less than the size |
//! | `load2`, `load4`, `store2`, `store4` | two or four elements of 4 bytes | 1, of 8 or 16 bytes |
//! | `ld_nc`, `ld_nc128` | an element, or 16 bytes, past L1 | 1 |
//! | `from`, `cast`, `ptr`, `ptr_at` | nothing | none: part of an address |
//!
//! An `In<T>` is not written by anyone while the kernel runs: the host lends it as `&`, everything
//! written as `&mut`. So its loads may go through the read-only path (`ld.global.nc`) and may be
//! moved over stores to other buffers. `Out` and `InOut` promise nothing of the kind: threads may
//! pass values to each other through them, with fences or atomics.
//!
//! What a [programmatic](crate::launch::Geometry::programmatic) launch reads of the launches before it may still be written when
//! it begins: such a buffer is an [`Awaited`], whose loads stay behind
//! [`grid::wait_dependencies`](crate::grid::wait_dependencies). Those of an `In` may be moved before it.

use crate::{
    Element, F32x2, F32x4, U32x2, U32x4,
    mem::{self, Streamed},
};
use core::marker::PhantomData;

/// A buffer that the kernel only reads.
#[repr(transparent)]
pub struct In<T>(*const T);
/// A buffer that the kernel only reads, once it has waited: an earlier launch may still write it when the kernel begins.
#[repr(transparent)]
pub struct Awaited<T>(*const T);
/// A buffer that the kernel only writes.
#[repr(transparent)]
pub struct Out<T>(*mut T);
/// A buffer that the kernel reads and writes.
#[repr(transparent)]
pub struct InOut<T>(*mut T);

/// The parameter behind an [`In`]: a reference to nothing at the buffer's address, by which the
/// code generator learns that the memory is read-only during the kernel.
#[doc(hidden)]
#[repr(C)]
pub struct Glob<T>([T; 0], PhantomData<T>);

macro_rules! handles {
    ($($name:ident),*) => { $(
        impl<T> Clone for $name<T> {
            #[inline(always)]
            fn clone(&self) -> $name<T> {
                *self
            }
        }
        impl<T> Copy for $name<T> {}
    )* };
}
handles!(In, Awaited, Out, InOut);

impl<T: Element> In<T> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn from_raw(glob: &Glob<T>) -> In<T> {
        In(core::ptr::from_ref(glob).cast())
    }

    /// The address of its first element.
    #[inline(always)]
    pub fn ptr(self) -> *const T {
        self.0
    }

    /// Element `i`.
    ///
    /// # Safety
    /// `i` is below the buffer's length.
    #[inline(always)]
    pub unsafe fn at(self, i: usize) -> T {
        // SAFETY: the caller's promise; the launch aligned the buffer to its elements.
        unsafe { *self.0.add(i) }
    }

    /// Element `i`, past the L1 cache (`ld.global.nc.L1::no_allocate`): for data that each block
    /// reads once, such as weights.
    ///
    /// # Safety
    /// `i` is below the buffer's length.
    #[inline(always)]
    pub unsafe fn ld_nc(self, i: usize) -> T
    where
        T: Streamed,
    {
        // SAFETY: the caller's promise; nobody writes an `In` while the kernel runs.
        unsafe { T::load_streamed(self.0.add(i)) }
    }

    /// The 16 bytes from element `i` on, past the L1 cache.
    ///
    /// # Safety
    /// They lie within the buffer, and their address is a multiple of 16.
    #[inline(always)]
    pub unsafe fn ld_nc128(self, i: usize) -> U32x4 {
        // SAFETY: the caller's promise; nobody writes an `In` while the kernel runs.
        unsafe { mem::ld_global_nc_u32x4(self.0.add(i).cast()) }
    }

    /// The buffer from element `i` on.
    ///
    /// # Safety
    /// `i` is not over the buffer's length.
    #[inline(always)]
    pub unsafe fn from(self, i: usize) -> In<T> {
        // SAFETY: the caller's promise.
        In(unsafe { self.0.add(i) })
    }

    /// The same bytes as elements of another type.
    ///
    /// # Safety
    /// The address is a multiple of `U`'s alignment.
    #[inline(always)]
    pub unsafe fn cast<U: Element>(self) -> In<U> {
        In(self.0.cast())
    }
}

impl<T: Element> Awaited<T> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn from_raw(p: *const T) -> Awaited<T> {
        Awaited(p)
    }

    /// The buffer. Its loads are `ld.global`, and are not moved over the wait.
    ///
    /// # Safety
    /// The thread loads by it only behind [`grid::wait_dependencies`](crate::grid::wait_dependencies), and does not name a
    /// read-only path ([`In::ld_nc`]).
    #[inline(always)]
    pub unsafe fn buffer(self) -> In<T> {
        In(self.0)
    }
}

impl<T: Element> Out<T> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn from_raw(p: *mut T) -> Out<T> {
        Out(p)
    }

    /// The address of its first element.
    #[inline(always)]
    pub fn ptr(self) -> *mut T {
        self.0
    }

    /// Writes element `i`.
    ///
    /// # Safety
    /// `i` is below the buffer's length, and no other thread touches the element meanwhile.
    #[inline(always)]
    pub unsafe fn set(self, i: usize, v: T) {
        // SAFETY: the caller's promise; the launch aligned the buffer to its elements.
        unsafe { *self.0.add(i) = v }
    }

    /// The buffer from element `i` on.
    ///
    /// # Safety
    /// `i` is not over the buffer's length.
    #[inline(always)]
    pub unsafe fn from(self, i: usize) -> Out<T> {
        // SAFETY: the caller's promise.
        Out(unsafe { self.0.add(i) })
    }

    /// The same bytes as elements of another type.
    ///
    /// # Safety
    /// The address is a multiple of `U`'s alignment.
    #[inline(always)]
    pub unsafe fn cast<U: Element>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl<T: Element> InOut<T> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn from_raw(p: *mut T) -> InOut<T> {
        InOut(p)
    }

    /// The address of its first element.
    #[inline(always)]
    pub fn ptr(self) -> *mut T {
        self.0
    }

    /// The address of element `i`, for an atomic.
    ///
    /// # Safety
    /// `i` is below the buffer's length.
    #[inline(always)]
    pub unsafe fn ptr_at(self, i: usize) -> *mut T {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(i) }
    }

    /// Element `i`.
    ///
    /// # Safety
    /// `i` is below the buffer's length, and no other thread writes the element meanwhile.
    #[inline(always)]
    pub unsafe fn get(self, i: usize) -> T {
        // SAFETY: the caller's promise; the launch aligned the buffer to its elements.
        unsafe { *self.0.add(i) }
    }

    /// Writes element `i`.
    ///
    /// # Safety
    /// `i` is below the buffer's length, and no other thread touches the element meanwhile.
    #[inline(always)]
    pub unsafe fn set(self, i: usize, v: T) {
        // SAFETY: the caller's promise; the launch aligned the buffer to its elements.
        unsafe { *self.0.add(i) = v }
    }

    /// The buffer from element `i` on.
    ///
    /// # Safety
    /// `i` is not over the buffer's length.
    #[inline(always)]
    pub unsafe fn from(self, i: usize) -> InOut<T> {
        // SAFETY: the caller's promise.
        InOut(unsafe { self.0.add(i) })
    }

    /// The same bytes as elements of another type.
    ///
    /// # Safety
    /// The address is a multiple of `U`'s alignment.
    #[inline(always)]
    pub unsafe fn cast<U: Element>(self) -> InOut<U> {
        InOut(self.0.cast())
    }
}

impl<T: Element> From<InOut<T>> for Out<T> {
    /// For a function that only writes it.
    #[inline(always)]
    fn from(buffer: InOut<T>) -> Out<T> {
        Out(buffer.0)
    }
}

macro_rules! vector_loads {
    ($($buffer:ident<$t:ty>: $v2:ident, $v4:ident, $read:ident;)*) => { $(
        impl $buffer<$t> {
            /// Elements `i` and `i + 1` in one access; `i` is even.
            ///
            /// # Safety
            /// Both are below the length; the buffer begins at a multiple of 8.
            #[inline(always)]
            pub unsafe fn load2(self, i: usize) -> $v2 {
                // SAFETY: the caller's promise.
                unsafe { self.from(i).cast::<$v2>().$read(0) }
            }
            /// Elements `i` to `i + 3` in one access; `i` is a multiple of 4.
            ///
            /// # Safety
            /// All four are below the length; the buffer begins at a multiple of 16.
            #[inline(always)]
            pub unsafe fn load4(self, i: usize) -> $v4 {
                // SAFETY: the caller's promise.
                unsafe { self.from(i).cast::<$v4>().$read(0) }
            }
        }
    )* };
}
vector_loads! {
    In<f32>: F32x2, F32x4, at;
    In<u32>: U32x2, U32x4, at;
    InOut<f32>: F32x2, F32x4, get;
    InOut<u32>: U32x2, U32x4, get;
}

macro_rules! vector_stores {
    ($($buffer:ident<$t:ty>: $v2:ident, $v4:ident;)*) => { $(
        impl $buffer<$t> {
            /// Writes elements `i` and `i + 1` in one access; `i` is even.
            ///
            /// # Safety
            /// Both are below the length; the buffer begins at a multiple of 8; no other thread
            /// touches them meanwhile.
            #[inline(always)]
            pub unsafe fn store2(self, i: usize, v: $v2) {
                // SAFETY: the caller's promise.
                unsafe { self.from(i).cast::<$v2>().set(0, v) }
            }
            /// Writes elements `i` to `i + 3` in one access; `i` is a multiple of 4.
            ///
            /// # Safety
            /// All four are below the length; the buffer begins at a multiple of 16; no other
            /// thread touches them meanwhile.
            #[inline(always)]
            pub unsafe fn store4(self, i: usize, v: $v4) {
                // SAFETY: the caller's promise.
                unsafe { self.from(i).cast::<$v4>().set(0, v) }
            }
        }
    )* };
}
vector_stores! {
    Out<f32>: F32x2, F32x4;
    Out<u32>: U32x2, U32x4;
    InOut<f32>: F32x2, F32x4;
    InOut<u32>: U32x2, U32x4;
}
