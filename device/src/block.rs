//! The block of this thread: its place in the grid, and its size.

#[cfg(target_arch = "nvptx64")]
use core::arch::nvptx;

macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident = $f:ident;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u32 {
            // SAFETY: reads a special register.
            unsafe { nvptx::$f() as u32 }
        }
    )* };
}
registers! {
    /// Index within the grid, x.
    idx_x = _block_idx_x;
    /// Index within the grid, y.
    idx_y = _block_idx_y;
    /// Index within the grid, z.
    idx_z = _block_idx_z;
    /// Threads in x.
    dim_x = _block_dim_x;
    /// Threads in y.
    dim_y = _block_dim_y;
    /// Threads in z.
    dim_z = _block_dim_z;
}

/// Threads in all.
#[inline(always)]
pub fn threads() -> u32 {
    dim_x() * dim_y() * dim_z()
}

/// Warps, the last of which may be partly empty.
#[inline(always)]
pub fn warps() -> u32 {
    threads().div_ceil(crate::thread::WARP as u32)
}
