//! Where a thread stands: in its warp, its block and the grid.

#[cfg(target_arch = "nvptx64")]
use core::arch::nvptx;

/// Lanes of a warp.
pub const WARP: usize = 32;

/// Index within the block, x.
#[inline(always)]
pub fn idx_x() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_thread_idx_x() as u32 }
}

/// Index within the block, y.
#[inline(always)]
pub fn idx_y() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_thread_idx_y() as u32 }
}

/// Index within the block, z.
#[inline(always)]
pub fn idx_z() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_thread_idx_z() as u32 }
}

/// Index within the block, counted in x, then y, then z. Warps are cut from this order.
#[inline(always)]
pub fn linear() -> u32 {
    use crate::block;
    idx_x() + block::dim_x() * (idx_y() + block::dim_y() * idx_z())
}

/// Index within the grid, x: `block::idx_x() * block::dim_x() + idx_x()`.
#[inline(always)]
pub fn global_x() -> usize {
    use crate::block;
    block::idx_x() as usize * block::dim_x() as usize + idx_x() as usize
}

/// Threads of the grid, x: the stride of a loop over more elements than threads.
#[inline(always)]
pub fn global_dim_x() -> usize {
    crate::grid::dim_x() as usize * crate::block::dim_x() as usize
}

/// Index within the warp, 0 to 31.
#[inline(always)]
pub fn lane() -> u32 {
    #[cfg(target_arch = "nvptx64")]
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.read.ptx.sreg.laneid"]
        fn laneid() -> u32;
    }
    // SAFETY: reads a special register.
    unsafe { laneid() }
}

/// Index of the warp within its block.
#[inline(always)]
pub fn warp() -> u32 {
    linear() / WARP as u32
}

/// Waits for about `nanoseconds` (0 to twice as many), so that other warps get on.
#[inline(always)]
pub fn sleep(nanoseconds: u32) {
    // SAFETY: touches no memory.
    unsafe {
        core::arch::asm!("nanosleep.u32 {0};", in(reg32) nanoseconds, options(nomem, nostack));
    }
}

/// Ticks of the multiprocessor's clock. Not comparable between multiprocessors.
#[inline(always)]
pub fn clock() -> u64 {
    let ticks: u64;
    // SAFETY: reads a special register. Not `pure`: two reads differ.
    unsafe {
        core::arch::asm!("mov.u64 {0}, %clock64;", lateout(reg64) ticks, options(nomem, nostack));
    }
    ticks
}
