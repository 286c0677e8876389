//! Cooperative tiles: groups of threads that compute together, of a size that the compiler knows.
//!
//! * [`Tile<N>`] is `N` neighbouring lanes of a warp, `N` a power of two up to 32; `Tile<32>` is the warp.
//! * [`Block`] is the block, which goes through shared memory.
//!
//! Both have a rank, a size, barriers, votes, reductions and scans; a tile has shuffles and matches as well. Values are of
//! any [`Element`](crate::Element) type up to 128 bytes: numbers, vectors, arrays and structs of your own.
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// y[r] = Σ x[r, 0..16], a tile of 16 lanes for each row.
//! #[kernel(block = 128)]
//! pub unsafe fn row_sums(x: In<f32>, y: Out<f32>) {
//!     let tile = Tile::<16>::this();
//!     let row = thread::global_x() / 16;
//!     let sum = tile.reduce(x.at(16 * row + tile.rank() as usize), |a, b| a + b);
//!     if tile.rank() == 0 {
//!         y.set(row, sum);
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! | CUDA C++ (`cooperative_groups`) | here | cost for a value of `W` words |
//! |---|---|---|
//! | `tiled_partition<N>(this_thread_block())` | `Tile::<N>::this()` | 3 instructions; none for 32 |
//! | `thread_rank`, `meta_group_rank`, `num_threads` | `rank`, `index`, `SIZE` | 1 |
//! | `shfl`, `shfl_up`, `shfl_down`, `shfl_xor` | `shuffle`, `shuffle_up`, `shuffle_down`, `shuffle_xor` | `W` shuffles |
//! | `ballot`, `any`, `all` | the same | 1 vote |
//! | `match_any`, `match_all` | the same | `W` matches; `W` shuffles and a vote |
//! | `reduce` | `reduce`; `sum_u32` and friends | log2 `N` · `W` shuffles; 1 `redux` from sm_80 on |
//! | `inclusive_scan`, `exclusive_scan` | the same | log2 `N` · `W` shuffles; `W` more for the exclusive one |
//! | `block.sync()`, `reduce(block, …)` | `Block::this().sync()`, `.reduce(…)` | see [`Block`] |
//!
//! # The rule
//! All are `unsafe` for one reason: **every lane of the tile must reach the same call**. Tiles need not keep together: one
//! tile may take a branch that its neighbour does not. Closures are called per thread; no collective may hide in one.

mod block;
mod reduce;
mod shuffle;

pub use block::Block;

use crate::thread;

/// `N` neighbouring lanes of a warp: lanes `N i` to `N i + N - 1`.
#[derive(Clone, Copy)]
pub struct Tile<const N: u32> {
    mask: u32,
}

impl<const N: u32> Tile<N> {
    /// Lanes.
    pub const SIZE: u32 = N;

    /// The tile of this thread.
    #[inline(always)]
    pub fn this() -> Tile<N> {
        const { assert!(N.is_power_of_two() && N <= 32, "a tile has 1, 2, 4, 8, 16 or 32 lanes") };
        if N == 32 {
            return Tile { mask: !0 };
        }
        Tile { mask: (!0 >> (32 - N)) << (thread::lane() & !(N - 1)) }
    }

    /// Its lanes, as a mask of the warp.
    #[inline(always)]
    pub fn mask(self) -> u32 {
        self.mask
    }

    /// The place of this thread in it, 0 to `N - 1`.
    #[inline(always)]
    pub fn rank(self) -> u32 {
        thread::lane() & (N - 1)
    }

    /// Its place among the tiles of the warp.
    #[inline(always)]
    pub fn index(self) -> u32 {
        thread::lane() / N
    }

    /// Waits for its lanes; what they wrote before is visible to them after (`bar.warp.sync`).
    ///
    /// # Safety
    /// The module's rule.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn sync(self) {
        // SAFETY: the caller's promise: all lanes of the mask are here.
        unsafe { crate::sync::warp(self.mask) }
    }

    /// The lanes whose `p` is true: bit `r` for rank `r`.
    ///
    /// # Safety
    /// The module's rule.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn ballot(self, p: bool) -> u32 {
        // SAFETY: the caller's promise.
        self.own(unsafe { crate::warp::ballot(self.mask, p) })
    }

    /// Whether `p` is true in any lane.
    ///
    /// # Safety
    /// The module's rule.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn any(self, p: bool) -> bool {
        // SAFETY: the caller's promise.
        unsafe { crate::warp::any(self.mask, p) }
    }

    /// Whether `p` is true in all lanes.
    ///
    /// # Safety
    /// The module's rule.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn all(self, p: bool) -> bool {
        // SAFETY: the caller's promise.
        unsafe { crate::warp::all(self.mask, p) }
    }

    /// Bits of the warp's lanes as bits of ranks.
    #[inline(always)]
    fn own(self, lanes: u32) -> u32 {
        if N == 32 { lanes } else { (lanes >> (thread::lane() & !(N - 1))) & (!0 >> (32 - N)) }
    }
}
