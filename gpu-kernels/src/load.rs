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
