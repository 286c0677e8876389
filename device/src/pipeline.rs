//! Copies from global to shared memory that run beside computation (`cp.async`), and a ring of stages for them.
//!
//! A thread starts copies, closes them into a group by [`commit`], and waits until all but its newest groups are done by
//! [`wait`]. What a thread has waited for it may read; other threads may after a barrier as well. [`Ring`] keeps the books.
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// y[t] = Σ_k x[256 k + 255 - t]: two tiles are under way while one is added.
//! #[kernel(block = 256)]
//! pub unsafe fn sum_of_tiles(x: In<f32>, y: Out<f32>, tiles: u32) {
//!     let ring = pipeline::Ring::<f32, 3>::of(shared_array!(TILES: [f32; 3 * 256]));
//!     let (t, n) = (thread::idx_x() as usize, tiles as usize);
//!     for k in 0..2 {
//!         if k < n {
//!             pipeline::copy(ring.stage(k), t, x.ptr().add(256 * k + t));
//!         }
//!         pipeline::commit();
//!     }
//!     let (mut sum, mut k) = (0.0, 0);
//!     while k < n {
//!         let tile = ring.acquire(k);
//!         if k + 2 < n {
//!             pipeline::copy(ring.stage(k + 2), t, x.ptr().add(256 * (k + 2) + t));
//!         }
//!         pipeline::commit();
//!         sum += tile.get(255 - t);
//!         k += 1;
//!     }
//!     y.set(t, sum);
//! }
//! # fn main() {}
//! ```
//!
//! | | sm_80 and later | before, and under rust-cuda |
//! |---|---|---|
//! | [`copy`] of 4, 8 or 16 bytes | 1 instruction, no register holds the data; 16 bytes pass by L1 | a load and a store, done at once |
//! | [`commit`], [`wait`] | 1 instruction each | nothing |
//!
//! The results are the same. Source: PTX ISA, `cp.async`, `cp.async.wait_group`.

use crate::{
    Element,
    shared::{Shared, SharedElement},
};

/// Starts the copy of one element of 4, 8 or 16 bytes from global memory to element `i`.
///
/// # Safety
/// `i` is below the length of `to`; `from` is in global memory, aligned to the element's size, and nobody writes it before the
/// copy is waited for. Nobody touches the destination before that either.
#[inline(always)]
pub unsafe fn copy<T: Element + SharedElement>(to: Shared<T>, i: usize, from: *const T) {
    const { assert!(is_unit::<T>(), "an asynchronous copy moves 4, 8 or 16 bytes") };
    to.check(i, 1);
    #[cfg(target_feature = "sm_80")]
    // SAFETY: the caller's promise. Not `nomem`: the wait must stay after it.
    unsafe {
        let to = to.address_of(i);
        match size_of::<T>() {
            4 => {
                core::arch::asm!("cp.async.ca.shared.global [{0}], [{1}], 4;", in(reg32) to, in(reg64) from, options(nostack))
            }
            8 => {
                core::arch::asm!("cp.async.ca.shared.global [{0}], [{1}], 8;", in(reg32) to, in(reg64) from, options(nostack))
            }
            _ => {
                core::arch::asm!("cp.async.cg.shared.global [{0}], [{1}], 16;", in(reg32) to, in(reg64) from, options(nostack))
            }
        }
    }
    #[cfg(not(target_feature = "sm_80"))]
    // SAFETY: the caller's promise.
    unsafe {
        to.set(i, *from);
    }
}

/// As [`copy`] where `valid`, else writes zeros and reads nothing: for the ragged end of a matrix.
///
/// # Safety
/// As [`copy`]; where not `valid`, `from` may point anywhere in global memory.
#[inline(always)]
pub unsafe fn copy_or_zero<T: Element + SharedElement>(to: Shared<T>, i: usize, from: *const T, valid: bool) {
    const { assert!(is_unit::<T>(), "an asynchronous copy moves 4, 8 or 16 bytes") };
    to.check(i, 1);
    #[cfg(target_feature = "sm_80")]
    // SAFETY: the caller's promise; as many bytes as the last operand says are read, the rest is zero.
    unsafe {
        let to = to.address_of(i);
        let bytes = if valid { size_of::<T>() as u32 } else { 0 };
        match size_of::<T>() {
            4 => {
                core::arch::asm!("cp.async.ca.shared.global [{0}], [{1}], 4, {2};", in(reg32) to, in(reg64) from, in(reg32) bytes, options(nostack));
            }
            8 => {
                core::arch::asm!("cp.async.ca.shared.global [{0}], [{1}], 8, {2};", in(reg32) to, in(reg64) from, in(reg32) bytes, options(nostack));
            }
            _ => {
                core::arch::asm!("cp.async.cg.shared.global [{0}], [{1}], 16, {2};", in(reg32) to, in(reg64) from, in(reg32) bytes, options(nostack));
            }
        }
    }
    #[cfg(not(target_feature = "sm_80"))]
    // SAFETY: the caller's promise; zero is a valid element.
    unsafe {
        to.set(i, if valid { *from } else { core::mem::zeroed() });
    }
}

const fn is_unit<T>() -> bool {
    matches!(size_of::<T>(), 4 | 8 | 16) && align_of::<T>() <= size_of::<T>()
}

/// Closes this thread's copies since the last call into a group, which may be empty.
#[inline(always)]
pub fn commit() {
    #[cfg(target_feature = "sm_80")]
    // SAFETY: touches no memory itself; not `nomem`, so that copies stay before it.
    unsafe {
        core::arch::asm!("cp.async.commit_group;", options(nostack));
    }
}

/// Waits until at most `NEWEST` of this thread's groups, the newest, are under way. 0 waits for all.
#[inline(always)]
pub fn wait<const NEWEST: u32>() {
    #[cfg(target_feature = "sm_80")]
    // SAFETY: what it lets be read is the caller's affair; not `nomem`, so that reads stay after it.
    unsafe {
        core::arch::asm!("cp.async.wait_group {n};", n = const NEWEST, options(nostack));
    }
}

/// Shared memory as a ring of `STAGES` equal parts, of which `STAGES - 1` may be filled while one is used.
pub struct Ring<T, const STAGES: usize> {
    all: Shared<T>,
}

impl<T, const STAGES: usize> Clone for Ring<T, STAGES> {
    #[inline(always)]
    fn clone(&self) -> Ring<T, STAGES> {
        *self
    }
}
impl<T, const STAGES: usize> Copy for Ring<T, STAGES> {}

impl<T, const STAGES: usize> Ring<T, STAGES> {
    /// A ring over all of `memory`; what is over a multiple of `STAGES` elements stays unused.
    #[inline(always)]
    pub const fn of(memory: Shared<T>) -> Ring<T, STAGES> {
        const { assert!(STAGES >= 2, "a ring has a stage to use and at least one to fill") };
        Ring { all: memory }
    }

    /// Elements of a stage.
    #[inline(always)]
    pub const fn stage_len(self) -> usize {
        self.all.len() / STAGES
    }

    /// The stage of step `k`, to be filled: `k % STAGES`. A power of two makes that one instruction.
    #[inline(always)]
    pub const fn stage(self, k: usize) -> Shared<T> {
        let len = self.stage_len();
        // SAFETY: stage `k % STAGES` lies within the memory, whose alignment elements keep.
        unsafe { Shared::from_raw(self.all.address_of(k % STAGES * len), len as u32) }
    }

    /// The stage of step `k`, filled: waits for this thread's copies and for the block. Stage `k + STAGES - 1`, which the step
    /// before used, may be filled from here on.
    ///
    /// # Safety
    /// All threads of the block make this call; each has committed one group per step, up to step `k + STAGES - 2`.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn acquire(self, k: usize) -> Shared<T> {
        #[cfg(target_feature = "sm_80")]
        // SAFETY: the caller's promise: the group of step `k` is older than the newest `STAGES - 2`.
        unsafe {
            core::arch::asm!("cp.async.wait_group {n};", n = const STAGES - 2, options(nostack));
        }
        // SAFETY: the caller's promise.
        unsafe { crate::sync::block() };
        self.stage(k)
    }
}
