//! Matrices in shared memory, laid out so that a warp's accesses fall into different banks.
//!
//! Shared memory has 32 banks of 4 bytes; a warp that reads different words of one bank waits for each. A row of 32 words
//! after another puts a whole column into one bank. Two ways out:
//!
//! | layout | free of conflicts | costs |
//! |---|---|---|
//! | [`Strided`] by [`odd_words`] | rows and columns, element by element | up to a word a row; rows do not begin at multiples of 16 bytes |
//! | [`Strided`] by [`odd_chunks`] | rows, and 16 bytes of each of 8 rows at a time (`ldmatrix`) | 16 bytes a row, or none |
//! | [`Swizzled`] | rows, and 16 bytes of each of 8 rows at a time | 2 integer instructions an address; a row of 16 bytes times a power of two, or times 8 |
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! # #[cfg(target_arch = "nvptx64")]
//! use warpsmith_device::shared::{Matrix, Strided, odd_words};
//!
//! /// y = xᵀ, 32 x 32, by 32 x 8 threads.
//! #[kernel(block = (32, 8))]
//! pub unsafe fn transpose(x: In<f32>, y: Out<f32>) {
//!     const STRIDE: usize = odd_words::<f32>(32);
//!     let tile = Strided::<f32, STRIDE>::of(shared_array!(TURNED: [f32; 32 * 33]));
//!     let (tx, ty) = (thread::idx_x() as usize, thread::idx_y() as usize);
//!     for r in [ty, ty + 8, ty + 16, ty + 24] {
//!         tile.set(r, tx, x.at(32 * r + tx));
//!     }
//!     sync::block();
//!     for r in [ty, ty + 8, ty + 16, ty + 24] {
//!         y.set(32 * r + tx, tile.get(tx, r));
//!     }
//! }
//! # fn main() {}
//! ```

use super::{Shared, SharedElement};
use crate::U32x4;

/// Elements from one row of `columns` to the next, so that it is an odd number of words: rows and columns of elements of up to
/// 8 bytes are free of bank conflicts.
pub const fn odd_words<T>(columns: usize) -> usize {
    let per_word = if size_of::<T>() < 4 { 4 / size_of::<T>() } else { 1 };
    (columns.div_ceil(per_word) | 1) * per_word
}

/// Elements from one row of `columns` to the next, so that it is an odd multiple of 16 bytes: 16 bytes of each of 8 rows are
/// free of bank conflicts, and rows begin at multiples of 16 bytes.
pub const fn odd_chunks<T>(columns: usize) -> usize {
    let per_chunk = 16 / size_of::<T>();
    (columns.div_ceil(per_chunk) | 1) * per_chunk
}

/// A matrix in shared memory.
pub trait Matrix<T>: Copy {
    /// The shared address of an element.
    fn address(self, row: usize, column: usize) -> u32;

    /// An element.
    ///
    /// # Safety
    /// As [`Shared::get`].
    #[inline(always)]
    unsafe fn get(self, row: usize, column: usize) -> T
    where
        T: SharedElement,
    {
        // SAFETY: the caller's promise.
        unsafe { T::load(self.address(row, column)) }
    }

    /// Writes an element.
    ///
    /// # Safety
    /// As [`Shared::set`].
    #[inline(always)]
    unsafe fn set(self, row: usize, column: usize, v: T)
    where
        T: SharedElement,
    {
        // SAFETY: the caller's promise.
        unsafe { T::store(self.address(row, column), v) }
    }

    /// The 16 bytes from an element on, in one access.
    ///
    /// # Safety
    /// As [`Shared::get`], for all of them; the element begins at a multiple of 16 bytes of its row, and rows do.
    #[inline(always)]
    unsafe fn get_chunk(self, row: usize, column: usize) -> U32x4 {
        // SAFETY: the caller's promise.
        unsafe { U32x4::load(self.address(row, column)) }
    }

    /// Writes the 16 bytes from an element on, in one access.
    ///
    /// # Safety
    /// As [`Shared::set`], for all of them; the element begins at a multiple of 16 bytes of its row, and rows do.
    #[inline(always)]
    unsafe fn set_chunk(self, row: usize, column: usize, v: U32x4) {
        // SAFETY: the caller's promise.
        unsafe { U32x4::store(self.address(row, column), v) }
    }
}

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident<$n:ident>, |$row:ident, $column:ident| $place:expr;)*) => { $(
        $(#[$doc])*
        pub struct $name<T, const $n: usize>(Shared<T>);

        impl<T, const $n: usize> Clone for $name<T, $n> {
            #[inline(always)]
            fn clone(&self) -> $name<T, $n> {
                *self
            }
        }
        impl<T, const $n: usize> Copy for $name<T, $n> {}

        impl<T, const $n: usize> $name<T, $n> {
            /// The matrix whose first row begins where `memory` does.
            #[inline(always)]
            pub const fn of(memory: Shared<T>) -> $name<T, $n> {
                $name(memory)
            }
        }

        impl<T, const $n: usize> Matrix<T> for $name<T, $n> {
            #[inline(always)]
            fn address(self, $row: usize, $column: usize) -> u32 {
                let place = $place;
                self.0.check(place, 1);
                self.0.address_of(place)
            }
        }
    )* };
}
layouts! {
    /// Rows `STRIDE` elements apart.
    Strided<STRIDE>, |row, column| row * STRIDE + column;
    /// Rows of `COLUMNS` elements, one behind the other, the 16-byte chunks of each exchanged by an exclusive or with its
    /// number. The memory begins at a multiple of 16.
    Swizzled<COLUMNS>, |row, column| {
        const { assert!(swizzles::<T>(COLUMNS), "a swizzled row has 16 bytes times 1, 2, 4 or a multiple of 8") };
        row * COLUMNS + (column ^ turn::<T>(COLUMNS, row))
    };
}

const fn swizzles<T>(columns: usize) -> bool {
    let bytes = columns * size_of::<T>();
    let chunks = bytes / 16;
    bytes.is_multiple_of(16) && (matches!(chunks, 1 | 2 | 4) || (chunks > 0 && chunks.is_multiple_of(8)))
}

/// What a row's columns are turned by: the number of the row among those that share banks, in chunks.
#[inline(always)]
const fn turn<T>(columns: usize, row: usize) -> usize {
    let chunks = columns * size_of::<T>() / 16;
    let chunk = if chunks < 8 { row / (8 / chunks) & (chunks - 1) } else { row & 7 };
    chunk * (16 / size_of::<T>())
}
