//! Loads and stores of several elements at an index that counts single ones.

use warpsmith_device::prelude::*;

/// Index of this thread in its warp, for blocks of one dimension.
#[inline(always)]
pub fn lane() -> usize {
    (thread::idx_x() % 32) as usize
}

/// Index of this thread's warp in its block, for blocks of one dimension.
#[inline(always)]
pub fn warp_index() -> usize {
    (thread::idx_x() / 32) as usize
}

/// Values that are read: an [`In`], or an [`InOut`] that other blocks of the launch wrote before a barrier of the grid, or before
/// an atomic that says so. Loads
/// take the read-only path where the compiler sees that the pointer is that of an `In`, and so never for the latter.
#[derive(Clone, Copy)]
pub struct Source(*const f32);

impl From<In<f32>> for Source {
    #[inline(always)]
    fn from(x: In<f32>) -> Source {
        Source(x.ptr())
    }
}

impl From<InOut<f32>> for Source {
    #[inline(always)]
    fn from(x: InOut<f32>) -> Source {
        Source(x.ptr())
    }
}

impl From<Out<f32>> for Source {
    /// A buffer that the kernel's argument says is read too: an [`InOut`] by another name.
    #[inline(always)]
    fn from(x: Out<f32>) -> Source {
        Source(x.ptr())
    }
}

impl Source {
    /// Element `i`.
    ///
    /// # Safety
    /// `i` is below the buffer's length, and nobody writes the element meanwhile.
    #[inline(always)]
    pub unsafe fn at(self, i: usize) -> f32 {
        // SAFETY: the caller's promise; the launch aligned the buffer to its elements.
        unsafe { *self.0.add(i) }
    }

    /// Elements `i` to `i + 3` in one access.
    ///
    /// # Safety
    /// As [`at`](Self::at), for all four; `i` is a multiple of 4, and the buffer is aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn load4(self, i: usize) -> F32x4 {
        // SAFETY: the caller's promise.
        unsafe { *self.0.add(i).cast::<F32x4>() }
    }
}

/// Which block of a grid is meant, where a kernel's work is written for one: asked for where it is used, as registers that hold
/// it over a loop are lost to the loop.
pub trait Role: Copy {
    /// Its index in x.
    fn block(self) -> u32;
    /// Blocks in x.
    fn blocks(self) -> u32;
    /// Its index in y.
    fn column(self) -> u32;
}

/// The block that was launched.
#[derive(Clone, Copy)]
pub struct Launched;

impl Role for Launched {
    #[inline(always)]
    fn block(self) -> u32 {
        block::idx_x()
    }
    #[inline(always)]
    fn blocks(self) -> u32 {
        grid::dim_x()
    }
    #[inline(always)]
    fn column(self) -> u32 {
        block::idx_y()
    }
}

/// `x[i .. i + 4]` as one load.
///
/// # Safety
/// `i` is a multiple of 4, `x` is aligned to 16 bytes and has at least `i + 4` elements.
#[inline(always)]
pub unsafe fn x4(x: In<f32>, i: usize) -> [f32; 4] {
    // SAFETY: the caller's promise.
    unsafe { x.load4(i).0 }
}

/// `y[i .. i + 4] = v` as one store.
///
/// # Safety
/// `i` is a multiple of 4, `y` is aligned to 16 bytes and has at least `i + 4` elements.
#[inline(always)]
pub unsafe fn set4(y: Out<f32>, i: usize, v: [f32; 4]) {
    // SAFETY: the caller's promise.
    unsafe { y.store4(i, F32x4(v)) }
}

/// The word at an address that a kernel read from memory.
///
/// # Safety
/// It lies in global memory, aligned; no other thread writes it meanwhile but by atomics.
#[inline(always)]
pub unsafe fn global_u32(address: u64) -> u32 {
    let v: u32;
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("ld.global.b32 {0}, [{1}];", lateout(reg32) v, in(reg64) address,
            options(readonly, nostack, preserves_flags));
    }
    v
}
