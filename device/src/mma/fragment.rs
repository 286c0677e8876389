//! The parts of matrices that a lane holds, with their shapes in their types.

use super::{Factor, factor::multiply, load_matrices, load_two_matrices, load_two_matrices_transposed};
use crate::{
    shared::Matrix,
    thread::lane,
    words::{self, MOST},
};

/// 16 x [`DEPTH`](Factor::DEPTH) elements of a left factor, in four registers.
#[derive(Clone, Copy)]
pub struct A<T: Factor>([u32; 4], core::marker::PhantomData<T>);

/// [`DEPTH`](Factor::DEPTH) x 8 elements of a right factor, in two registers.
#[derive(Clone, Copy)]
pub struct B<T: Factor>([u32; 2], core::marker::PhantomData<T>);

/// 16 x 8 sums, in four registers.
#[derive(Clone, Copy)]
pub struct C<T: Factor>([T::Sum; 4]);

/// Place of the first element of a register's word along the depth: `half` is that of the factor.
#[inline(always)]
fn depth<T: Factor>(half: usize) -> usize {
    (4 / size_of::<T>()) * (lane() as usize & 3) + half * (T::DEPTH / 2)
}

/// Elements one behind the other as a word.
#[inline(always)]
fn word<T: Factor>(element: impl Fn(usize) -> T) -> u32 {
    let (mut word, mut i) = (0, 0);
    while i < 4 / size_of::<T>() {
        word |= words::split(element(i))[0] << (8 * size_of::<T>() * i);
        i += 1;
    }
    word
}

impl<T: Factor> A<T> {
    /// From its registers, laid out as [the last table](super) says.
    #[inline(always)]
    pub fn from_registers(registers: [u32; 4]) -> A<T> {
        A(registers, core::marker::PhantomData)
    }

    /// Its registers.
    #[inline(always)]
    pub fn registers(self) -> [u32; 4] {
        self.0
    }

    /// Of what `element(row, column)` gives; it is called for the lane's own elements, 32 bytes in all.
    #[inline(always)]
    pub fn from_fn(element: impl Fn(usize, usize) -> T) -> A<T> {
        let row = lane() as usize / 4;
        let (mut registers, mut i) = ([0; 4], 0);
        while i < 4 {
            registers[i] = word(|e| element(row + 8 * (i & 1), depth::<T>(i >> 1) + e));
            i += 1;
        }
        A::from_registers(registers)
    }

    /// From a matrix in shared memory, its upper left element at `row` and `column`. One `ldmatrix` (sm_75 and later), free of
    /// bank conflicts in a [`Swizzled`](crate::shared::Swizzled) matrix, and in a [`Strided`](crate::shared::Strided) one of
    /// [`odd_chunks`](crate::shared::odd_chunks).
    ///
    /// # Safety
    /// All 32 lanes make this call, with the same `row` and `column`; the matrix begins at a multiple of 16 bytes, as its rows
    /// do; `column` is a multiple of 16 bytes; the elements are there and were written before a barrier.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn load(from: impl Matrix<T>, row: usize, column: usize) -> A<T> {
        let lane = lane() as usize;
        let address = from.address(row + lane % 16, column + lane / 16 * (T::DEPTH / 2));
        // SAFETY: the caller's promise.
        A::from_registers(unsafe { load_matrices(address) })
    }
}

impl<T: Factor> B<T> {
    /// From its registers, laid out as [the last table](super) says.
    #[inline(always)]
    pub fn from_registers(registers: [u32; 2]) -> B<T> {
        B(registers, core::marker::PhantomData)
    }

    /// Its registers.
    #[inline(always)]
    pub fn registers(self) -> [u32; 2] {
        self.0
    }

    /// Of what `element(row, column)` gives; it is called for the lane's own elements, 16 bytes in all.
    #[inline(always)]
    pub fn from_fn(element: impl Fn(usize, usize) -> T) -> B<T> {
        let column = lane() as usize / 4;
        let (mut registers, mut i) = ([0; 2], 0);
        while i < 2 {
            registers[i] = word(|e| element(depth::<T>(i) + e, column));
            i += 1;
        }
        B::from_registers(registers)
    }

    /// From a matrix in shared memory that holds B transposed, as weight matrices do: B's columns are its rows. The upper left
    /// element is at `row` (a column of B) and `column`. One `ldmatrix`.
    ///
    /// # Safety
    /// As [`A::load`].
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn load_transposed(from: impl Matrix<T>, row: usize, column: usize) -> B<T> {
        let lane = lane() as usize;
        let address = from.address(row + lane % 8, column + lane / 8 % 2 * (T::DEPTH / 2));
        // SAFETY: the caller's promise.
        B::from_registers(unsafe { load_two_matrices(address) })
    }

    /// From a matrix in shared memory, its upper left element at `row` and `column`. One `ldmatrix`; for elements of 16 bits.
    ///
    /// # Safety
    /// As [`A::load`].
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn load(from: impl Matrix<T>, row: usize, column: usize) -> B<T> {
        const { assert!(size_of::<T>() == 2, "only 16-bit elements are turned: store B transposed, load_transposed") };
        let address = from.address(row + lane() as usize % 16, column);
        // SAFETY: the caller's promise.
        B::from_registers(unsafe { load_two_matrices_transposed(address) })
    }
}

impl<T: Factor> C<T> {
    /// Zeros.
    #[inline(always)]
    pub fn zero() -> C<T> {
        C([T::Sum::default(); 4])
    }

    /// From its registers, laid out as [the last table](super) says.
    #[inline(always)]
    pub fn from_registers(registers: [T::Sum; 4]) -> C<T> {
        C(registers)
    }

    /// Its registers.
    #[inline(always)]
    pub fn registers(self) -> [T::Sum; 4] {
        self.0
    }

    /// Of what `sum(row, column)` gives, for the lane's own four.
    #[inline(always)]
    pub fn from_fn(sum: impl Fn(usize, usize) -> T::Sum) -> C<T> {
        let (row, column) = Self::place();
        C([sum(row, column), sum(row, column + 1), sum(row + 8, column), sum(row + 8, column + 1)])
    }

    /// Calls `f(row, column, sum)` for the lane's own four. Columns come in pairs, so that a pair may be one store.
    #[inline(always)]
    pub fn for_each(self, mut f: impl FnMut(usize, usize, T::Sum)) {
        let (row, column) = Self::place();
        f(row, column, self.0[0]);
        f(row, column + 1, self.0[1]);
        f(row + 8, column, self.0[2]);
        f(row + 8, column + 1, self.0[3]);
    }

    /// Adds the product of `a` and `b`.
    ///
    /// # Safety
    /// All 32 lanes make this call together, in straight-line code or in a branch or loop that the whole warp takes.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn add_product(&mut self, a: A<T>, b: B<T>) {
        let [c0, c1, c2, c3] = self.0;
        let mut bits = [words::split(c0)[0], words::split(c1)[0], words::split(c2)[0], words::split(c3)[0]];
        // SAFETY: the caller's promise.
        unsafe { multiply(T::KIND, &mut bits, a.0, b.0) };
        let [c0, c1, c2, c3] = bits;
        self.0 = [words::join([c0; MOST]), words::join([c1; MOST]), words::join([c2; MOST]), words::join([c3; MOST])];
    }

    #[inline(always)]
    fn place() -> (usize, usize) {
        (lane() as usize / 4, 2 * (lane() as usize & 3))
    }
}
