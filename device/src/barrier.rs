//! Barriers whose arrival and wait are two calls (`mbarrier`): a thread arrives, does something else, and waits later. From
//! sm_80 on; a kernel for earlier architectures does not compile with them (`#[cfg(target_feature = "sm_80")]` selects).
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// y[t] = x[t ^ 1], with time between the two halves of the barrier.
//! #[kernel(block = 256)]
//! pub unsafe fn neighbours(x: In<f32>, y: Out<f32>) {
//!     let cells = shared_array!(CELLS: [f32; 256]);
//!     let barrier = barrier::Barrier::of(shared_array!(BARRIER: [u64; 1]), 0);
//!     let t = thread::idx_x() as usize;
//!     if t == 0 {
//!         barrier.init(256);
//!     }
//!     sync::block();
//!     cells.set(t, x.at(t));
//!     let token = barrier.arrive();
//!     // … work that needs no other thread …
//!     barrier.wait(token);
//!     y.set(t, cells.get(t ^ 1));
//! }
//! # fn main() {}
//! ```
//!
//! Arriving and waiting are per thread: they may stand in branches, and warps of one block may do different things. An arrival
//! releases what the thread wrote before, and a wait that ends acquires it, within the block. Cost: an arrival is one operation
//! on shared memory, a wait one per look. Source: PTX ISA, `mbarrier`.

use crate::shared::Shared;
use core::arch::asm;

/// A barrier in 8 bytes of shared memory.
#[derive(Clone, Copy)]
pub struct Barrier {
    address: u32,
}

/// The phase that an arrival belongs to.
#[derive(Clone, Copy)]
pub struct Token(u64);

impl Barrier {
    /// The barrier that lies, or will lie, in element `i` of `cells`.
    ///
    /// # Safety
    /// `i` is below the length, and the element is used for nothing else.
    #[inline(always)]
    pub const unsafe fn of(cells: Shared<u64>, i: usize) -> Barrier {
        Barrier { address: cells.address_of(i) }
    }

    /// Makes it a barrier whose phases end after `arrivals` arrivals each (1 to 2^20 - 1). One thread does; the others may use
    /// it after a [`sync::block`](crate::sync::block).
    ///
    /// # Safety
    /// No barrier is there, or it was [invalidated](Self::invalidate).
    #[inline(always)]
    pub unsafe fn init(self, arrivals: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!("mbarrier.init.shared.b64 [{0}], {1};", in(reg32) self.address, in(reg32) arrivals, options(nostack))
        }
    }

    /// Arrives; does not wait.
    ///
    /// # Safety
    /// It was initialised, and fewer than its arrivals are in the phase.
    #[inline(always)]
    pub unsafe fn arrive(self) -> Token {
        let token: u64;
        // SAFETY: the caller's promise.
        unsafe {
            asm!("mbarrier.arrive.shared.b64 {0}, [{1}];", lateout(reg64) token, in(reg32) self.address, options(nostack));
        }
        Token(token)
    }

    /// Arrives for this thread when its [asynchronous copies](crate::pipeline) so far are done, without waiting for them: what
    /// waits for the phase may read what was copied. One of the barrier's arrivals; it gives no token, so that waiting for the
    /// phase takes [`wait_parity`](Self::wait_parity) or another arrival's token.
    ///
    /// # Safety
    /// As [`arrive`](Self::arrive).
    #[inline(always)]
    pub unsafe fn arrive_after_copies(self) {
        // SAFETY: the caller's promise.
        unsafe { asm!("cp.async.mbarrier.arrive.noinc.shared.b64 [{0}];", in(reg32) self.address, options(nostack)) }
    }

    /// Whether the phase of an arrival has ended.
    ///
    /// # Safety
    /// The token is of this barrier, and of its current phase or the one before.
    #[inline(always)]
    pub unsafe fn has_ended(self, token: Token) -> bool {
        let ended: u32;
        // SAFETY: the caller's promise.
        unsafe {
            asm!("{{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [{1}], {2}; selp.u32 {0}, 1, 0, p; }}",
                lateout(reg32) ended, in(reg32) self.address, in(reg64) token.0, options(nostack));
        }
        ended != 0
    }

    /// Waits until the phase of an arrival has ended.
    ///
    /// # Safety
    /// As [`has_ended`](Self::has_ended); the arrivals that are missing come from threads that do not wait for this one.
    #[inline(always)]
    pub unsafe fn wait(self, token: Token) {
        // SAFETY: the caller's promise.
        while !unsafe { self.has_ended(token) } {
            crate::thread::sleep(20);
        }
    }

    /// Waits until the phase of this parity has ended: 0 for the first phase, then 1, 0, 1, … For threads that do not arrive.
    ///
    /// # Safety
    /// The phase is the current one or the one before; the arrivals that are missing come from threads that do not wait for
    /// this one.
    #[inline(always)]
    pub unsafe fn wait_parity(self, parity: u32) {
        loop {
            let ended: u32;
            // SAFETY: the caller's promise.
            unsafe {
                asm!("{{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [{1}], {2}; selp.u32 {0}, 1, 0, p; }}",
                    lateout(reg32) ended, in(reg32) self.address, in(reg32) parity, options(nostack));
            }
            if ended != 0 {
                return;
            }
            crate::thread::sleep(20);
        }
    }

    /// Ends it, so that its memory may serve for something else after a block barrier.
    ///
    /// # Safety
    /// It was initialised, and no thread uses it any more.
    #[inline(always)]
    pub unsafe fn invalidate(self) {
        // SAFETY: the caller's promise.
        unsafe { asm!("mbarrier.inval.shared.b64 [{0}];", in(reg32) self.address, options(nostack)) }
    }
}
