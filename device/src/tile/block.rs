//! The block as a tile.

use super::Tile;
use crate::{
    Element,
    shared::{Shared, SharedElement},
    sync, thread,
};

/// All threads of the block.
///
/// Values cross warps through `scratch`, shared memory with an element per warp (32 are always enough), which may be used
/// again right after: the first barrier of each call keeps the uses apart. The block has a multiple of 32 threads.
///
/// | call | barriers | shuffles a word |
/// |---|---|---|
/// | `sync`, `any`, `all`, `count` | 1 | 0 |
/// | `reduce` | 2 | 10 |
/// | `inclusive_scan`, `exclusive_scan` | 2 | 11, 12 |
/// | `broadcast` | 2 | 0 |
#[derive(Clone, Copy)]
pub struct Block(());

impl Block {
    /// The block of this thread.
    #[inline(always)]
    pub fn this() -> Block {
        Block(())
    }

    /// The place of this thread in it, counted in x, then y, then z.
    #[inline(always)]
    pub fn rank(self) -> u32 {
        thread::linear()
    }

    /// Threads.
    #[inline(always)]
    pub fn size(self) -> u32 {
        crate::block::threads()
    }

    /// Waits for all threads ([`sync::block`]).
    ///
    /// # Safety
    /// All threads of the block reach this call.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn sync(self) {
        // SAFETY: the caller's promise.
        unsafe { sync::block() }
    }

    /// Whether `p` is true in any thread.
    ///
    /// # Safety
    /// All threads of the block reach this call.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn any(self, p: bool) -> bool {
        // SAFETY: the caller's promise.
        unsafe { sync::block_any(p) }
    }

    /// Whether `p` is true in all threads.
    ///
    /// # Safety
    /// All threads of the block reach this call.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn all(self, p: bool) -> bool {
        // SAFETY: the caller's promise.
        unsafe { sync::block_all(p) }
    }

    /// In how many threads `p` is true.
    ///
    /// # Safety
    /// All threads of the block reach this call.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn count(self, p: bool) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { sync::block_count(p) }
    }

    /// The value of the thread with this rank, in every thread.
    ///
    /// # Safety
    /// All threads of the block reach this call with the same `rank`, which is below the size; `scratch` has an element.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn broadcast<T: SharedElement>(self, v: T, rank: u32, scratch: Shared<T>) -> T {
        // SAFETY: the caller's promise; one thread writes between the barriers.
        unsafe {
            sync::block();
            if self.rank() == rank {
                scratch.set(0, v);
            }
            sync::block();
            scratch.get(0)
        }
    }

    /// The reduction by `op`, which is associative and commutative, with `identity`.
    ///
    /// # Safety
    /// All threads of the block reach this call; `scratch` has an element per warp.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn reduce<T: Element + SharedElement>(
        self,
        v: T,
        identity: T,
        scratch: Shared<T>,
        op: impl Fn(T, T) -> T + Copy,
    ) -> T {
        // SAFETY: the caller's promise.
        unsafe {
            let warp = Tile::<32>::this();
            let v = warp.reduce(v, op);
            let v = self.of_warps(v, identity, warp.rank() == 0, scratch);
            warp.reduce(v, op)
        }
    }

    /// What the values of ranks 0 to `rank()` give by `op`, which is associative and gets the lower ranks first, with
    /// `identity`.
    ///
    /// # Safety
    /// All threads of the block reach this call; `scratch` has an element per warp.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn inclusive_scan<T: Element + SharedElement>(
        self,
        v: T,
        identity: T,
        scratch: Shared<T>,
        op: impl Fn(T, T) -> T + Copy,
    ) -> T {
        // SAFETY: the caller's promise.
        unsafe {
            let v = Tile::<32>::this().inclusive_scan(v, op);
            let before = self.before_warp(v, identity, scratch, op);
            op(before, v)
        }
    }

    /// What the values of the ranks below give by `op`, which is associative; `identity` for rank 0.
    ///
    /// # Safety
    /// All threads of the block reach this call; `scratch` has an element per warp.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn exclusive_scan<T: Element + SharedElement>(
        self,
        v: T,
        identity: T,
        scratch: Shared<T>,
        op: impl Fn(T, T) -> T + Copy,
    ) -> T {
        // SAFETY: the caller's promise.
        unsafe {
            let warp = Tile::<32>::this();
            let v = warp.inclusive_scan(v, op);
            let before = self.before_warp(v, identity, scratch, op);
            let below = warp.shuffle_up(v, 1);
            if warp.rank() == 0 { before } else { op(before, below) }
        }
    }

    /// What the warps before this one give, from every warp's inclusive scan.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    unsafe fn before_warp<T: Element + SharedElement>(
        self,
        v: T,
        identity: T,
        scratch: Shared<T>,
        op: impl Fn(T, T) -> T + Copy,
    ) -> T {
        // SAFETY: the caller's promise.
        unsafe {
            let warp = Tile::<32>::this();
            let all = self.of_warps(v, identity, warp.rank() == 31, scratch);
            let all = warp.inclusive_scan(all, op);
            // Warp 0 takes any value and drops it.
            let before = warp.shuffle(all, thread::warp().wrapping_sub(1));
            if thread::warp() == 0 { identity } else { before }
        }
    }

    /// Lane `w` gets the value of warp `w` from its lane that says `gives`; lanes above, `identity`.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    unsafe fn of_warps<T: SharedElement>(self, v: T, identity: T, gives: bool, scratch: Shared<T>) -> T {
        // SAFETY: the caller's promise; one lane of each warp writes that warp's element between the barriers.
        unsafe {
            sync::block();
            if gives {
                scratch.set(thread::warp() as usize, v);
            }
            sync::block();
            let lane = thread::lane();
            if lane < crate::block::warps() { scratch.get(lane as usize) } else { identity }
        }
    }
}
