//! The grid: how many blocks the launch has.

#[cfg(target_arch = "nvptx64")]
use core::arch::nvptx;

/// Blocks in x.
#[inline(always)]
pub fn dim_x() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_grid_dim_x() as u32 }
}

/// Blocks in y.
#[inline(always)]
pub fn dim_y() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_grid_dim_y() as u32 }
}

/// Blocks in z.
#[inline(always)]
pub fn dim_z() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_grid_dim_z() as u32 }
}

/// Blocks in all.
#[inline(always)]
pub fn blocks() -> usize {
    dim_x() as usize * dim_y() as usize * dim_z() as usize
}
