//! Shared memory: a block's own, with 32-bit addresses.
//!
//! * [`shared_array!`](crate::shared_array) declares a static array by name;
//! * [`dynamic`] gives the part that the launch sizes (`Geometry::shared`);
//! * [`Shared<T>`] is the handle to either: an address and a length, both free after inlining;
//! * [`Strided`] and [`Swizzled`] are matrices whose rows and columns are free of bank conflicts.
//!
//! Loads are `ld.shared`, stores `st.shared`, of up to 128 bits. They are not moved over each
//! other's stores or over barriers. Memory is not initialised, and nothing orders threads but
//! barriers: a value that another thread wrote may be read after [`sync::block`](crate::sync::block).
//!
//! | | shape | cost |
//! |---|---|---|
//! | [`Shared::get`], [`Shared::set`] | an element of 1 to 16 bytes, or a struct | 1 `ld.shared` or `st.shared` for each 16 bytes at most; none for the handle |
//! | `get2`, `get4`, `set2`, `set4` | two or four neighbours of 4 bytes | 1 |
//! | a warp's access | 32 elements | a pass for each 128 bytes, and one more for each further word that it wants of one bank |
//!
//! Bounds are the caller's promise. With the feature `checked` of this crate, an access outside a
//! handle's length traps.

mod element;
mod layout;

pub use element::SharedElement;
#[doc(hidden)]
pub use element::{load_plain, store_plain};
pub use layout::{Matrix, Strided, Swizzled, odd_chunks, odd_words};

use core::marker::PhantomData;

/// A run of `T` in shared memory.
#[repr(C)]
pub struct Shared<T> {
    address: u32,
    len: u32,
    element: PhantomData<*mut T>,
}

impl<T> Clone for Shared<T> {
    #[inline(always)]
    fn clone(&self) -> Shared<T> {
        *self
    }
}
impl<T> Copy for Shared<T> {}

impl<T> Shared<T> {
    /// The handle of `len` elements from the shared address `address` on.
    ///
    /// # Safety
    /// The bytes lie in the block's shared memory, and `address` is a multiple of the alignment.
    #[inline(always)]
    pub const unsafe fn from_raw(address: u32, len: u32) -> Shared<T> {
        Shared { address, len, element: PhantomData }
    }

    /// The shared address of its first element.
    #[inline(always)]
    pub const fn address(self) -> u32 {
        self.address
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

    /// The shared address of element `i`.
    #[inline(always)]
    pub const fn address_of(self, i: usize) -> u32 {
        self.address.wrapping_add((i as u32).wrapping_mul(size_of::<T>() as u32))
    }

    /// The elements from `start` on.
    ///
    /// # Safety
    /// `start` is not over the length.
    #[inline(always)]
    pub const unsafe fn from(self, start: usize) -> Shared<T> {
        Shared { address: self.address_of(start), len: self.len.wrapping_sub(start as u32), element: PhantomData }
    }

    /// The same bytes as elements of another type.
    ///
    /// # Safety
    /// The address is a multiple of `U`'s alignment. Arrays begin at multiples of 16.
    #[inline(always)]
    pub const unsafe fn cast<U>(self) -> Shared<U> {
        let bytes = self.len as usize * size_of::<T>();
        Shared { address: self.address, len: (bytes / size_of::<U>()) as u32, element: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn check(self, i: usize, n: usize) {
        #[cfg(feature = "checked")]
        crate::device_assert!(i + n <= self.len());
        #[cfg(not(feature = "checked"))]
        let _ = (i, n);
    }
}

impl<T: SharedElement> Shared<T> {
    /// Element `i`.
    ///
    /// # Safety
    /// `i` is below the length, the element was written, and a barrier stands between its writer
    /// and this thread if they differ.
    #[inline(always)]
    pub unsafe fn get(self, i: usize) -> T {
        self.check(i, 1);
        // SAFETY: the caller's promise.
        unsafe { T::load(self.address_of(i)) }
    }

    /// Writes element `i`.
    ///
    /// # Safety
    /// `i` is below the length, and no other thread touches the element before a barrier.
    #[inline(always)]
    pub unsafe fn set(self, i: usize, v: T) {
        self.check(i, 1);
        // SAFETY: the caller's promise.
        unsafe { T::store(self.address_of(i), v) }
    }
}

macro_rules! vectors {
    ($($t:ty: $get2:ident, $set2:ident -> $v2:ident; $get4:ident, $set4:ident -> $v4:ident;)*) => { $(
        impl Shared<$t> {
            /// Elements `i` and `i + 1` in one access; `i` is even.
            ///
            /// # Safety
            /// As [`get`](Self::get), for both.
            #[inline(always)]
            pub unsafe fn $get2(self, i: usize) -> crate::$v2 {
                self.check(i, 2);
                // SAFETY: the caller's promise; arrays begin at multiples of 16.
                unsafe { crate::$v2::load(self.address_of(i)) }
            }
            /// Writes elements `i` and `i + 1` in one access; `i` is even.
            ///
            /// # Safety
            /// As [`set`](Self::set), for both.
            #[inline(always)]
            pub unsafe fn $set2(self, i: usize, v: crate::$v2) {
                self.check(i, 2);
                // SAFETY: the caller's promise; arrays begin at multiples of 16.
                unsafe { crate::$v2::store(self.address_of(i), v) }
            }
            /// Elements `i` to `i + 3` in one access; `i` is a multiple of 4.
            ///
            /// # Safety
            /// As [`get`](Self::get), for all four.
            #[inline(always)]
            pub unsafe fn $get4(self, i: usize) -> crate::$v4 {
                self.check(i, 4);
                // SAFETY: the caller's promise; arrays begin at multiples of 16.
                unsafe { crate::$v4::load(self.address_of(i)) }
            }
            /// Writes elements `i` to `i + 3` in one access; `i` is a multiple of 4.
            ///
            /// # Safety
            /// As [`set`](Self::set), for all four.
            #[inline(always)]
            pub unsafe fn $set4(self, i: usize, v: crate::$v4) {
                self.check(i, 4);
                // SAFETY: the caller's promise; arrays begin at multiples of 16.
                unsafe { crate::$v4::store(self.address_of(i), v) }
            }
        }
    )* };
}
vectors! {
    f32: get2, set2 -> F32x2; get4, set4 -> F32x4;
    u32: get2, set2 -> U32x2; get4, set4 -> U32x4;
}

// One symbol for all kernels: the driver places it after a kernel's static arrays, at a multiple
// of 16. Kernels that do not name it are not charged for it.
#[cfg(target_arch = "nvptx64")]
core::arch::global_asm!(".extern .shared .align 16 .b8 warpsmith_dynamic_shared[];");

/// Dynamic shared memory as `len` elements, from byte `offset` on: what `Geometry::shared` asked
/// for, carved up by offsets that kernel and contract agree on.
///
/// ```
/// # #![cfg_attr(target_arch = "nvptx64", no_std)]
/// # use warpsmith_device::prelude::*;
/// /// Each row backwards, in place; a block a row.
/// #[kernel(block = 256)]
/// pub unsafe fn rows_backwards(x: InOut<f32>, cols: u32) {
///     let n = cols as usize;
///     let (row, cells) = (x.from(block::idx_x() as usize * n), shared::dynamic::<f32>(0, n));
///     let first = thread::idx_x() as usize;
///     unroll!(2, i in first, n, 256 => {
///         cells.set(i, row.get(i));
///     });
///     sync::block();
///     unroll!(2, i in first, n, 256 => {
///         row.set(i, cells.get(n - 1 - i));
///     });
/// }
///
/// #[cfg(not(target_arch = "nvptx64"))]
/// impl Contract for RowsBackwards<'_> {
///     fn geometry(&self) -> Geometry {
///         Geometry::blocks(self.x.len() / self.cols.max(1) as usize).shared(4 * u64::from(self.cols))
///     }
///     fn check(&self) -> Result<(), ContractError> {
///         contract::multiple_of(Self::META, "x", self.x.len(), self.cols)
///     }
/// }
/// # fn main() {}
/// ```
///
/// # Safety
/// `offset` is a multiple of `T`'s alignment, and the launch has `offset + len * size_of::<T>()`
/// bytes of dynamic shared memory.
#[inline(always)]
pub unsafe fn dynamic<T>(offset: usize, len: usize) -> Shared<T> {
    let base: u32;
    // SAFETY: takes an address; touches no memory.
    unsafe {
        core::arch::asm!(
            "mov.b32 {0}, warpsmith_dynamic_shared;",
            lateout(reg32) base,
            options(pure, nomem, nostack, preserves_flags)
        );
        Shared::from_raw(base.wrapping_add(offset as u32), len as u32)
    }
}

/// Bytes of dynamic shared memory of this launch.
#[inline(always)]
pub fn dynamic_bytes() -> usize {
    let bytes: u32;
    // SAFETY: reads a special register.
    unsafe {
        core::arch::asm!(
            "mov.u32 {0}, %dynamic_smem_size;",
            lateout(reg32) bytes,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    bytes as usize
}

/// Declares a static array in shared memory and gives its [`Shared`](crate::shared::Shared) handle.
///
/// ```
/// # #![cfg_attr(target_arch = "nvptx64", no_std)]
/// # use warpsmith_device::prelude::*;
/// /// y[t] = x[255 - t] in each block.
/// #[kernel(block = 256)]
/// pub unsafe fn backwards(x: In<f32>, y: Out<f32>) {
///     let (t, i) = (thread::idx_x() as usize, thread::global_x());
///     let row = shared_array!(BACKWARDS: [f32; 256]);
///     row.set(t, x.at(i));
///     sync::block();
///     y.set(i, row.get(255 - t));
/// }
/// # fn main() {}
/// ```
///
/// The name is a symbol of the whole PTX module: it is used once, begins with a letter, and is
/// neither a kernel's name nor a PTX word. A name that is used twice is an error of the builder.
/// The length is a constant that the *module* around the function can see. The array begins at a multiple of 16 and is not
/// initialised. A kernel has 48 KiB of static shared memory; ask for more as dynamic.
///
/// Declare it once at the top of a kernel and pass the handle on. Every kernel that reaches the
/// macro, directly or through an inlined helper, has an array of its own.
#[macro_export]
macro_rules! shared_array {
    ($name:ident: [$t:ty; $n:expr]) => {{
        #[allow(non_snake_case)]
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            pub const LEN: usize = $n;
            const _: () = assert!(LEN * ::core::mem::size_of::<$t>() <= 48 * 1024, "static shared memory is at most 48 KiB: use `shared::dynamic`");
            ::core::arch::global_asm!(
                concat!(".shared .align 16 .b8 ", stringify!($name), "[{bytes}];"),
                bytes = const { LEN * ::core::mem::size_of::<$t>() }
            );
        }
        let address: u32;
        // SAFETY: takes the address of the array that the line above declares.
        unsafe {
            ::core::arch::asm!(
                concat!("mov.b32 {0}, ", stringify!($name), ";"),
                lateout(reg32) address,
                options(pure, nomem, nostack, preserves_flags)
            );
            $crate::shared::Shared::<$t>::from_raw(address, $name::LEN as u32)
        }
    }};
}
