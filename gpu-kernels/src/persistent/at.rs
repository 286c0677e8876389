//! How far a launch is, and which work a block takes: kept by each thread in shared memory, over what takes all registers.

use super::{PARTS, PHASES, frame::WORK};
use crate::load::{Launched, Role, again, thread_index};
use warpsmith_device::prelude::*;

/// A number that each thread keeps for itself in shared memory, over what takes all registers.
#[derive(Clone, Copy)]
pub(super) struct Spilled(Shared<u32>);

impl Spilled {
    #[inline(always)]
    pub(super) unsafe fn of(shared: Shared<F32x4>, n: usize) -> Spilled {
        // SAFETY: the array has them behind a phase's memory.
        Spilled(unsafe { shared.cast::<u32>().from(WORK / size_of::<u32>() + n * super::THREADS as usize) })
    }

    #[inline(always)]
    pub(super) fn get(self) -> u32 {
        // SAFETY: the thread's own, which it wrote first.
        unsafe { self.0.get(thread_index() as usize) }
    }

    #[inline(always)]
    pub(super) fn set(self, n: u32) {
        // SAFETY: the thread's own.
        unsafe { self.0.set(thread_index() as usize, n) }
    }
}

/// The index of this block, asked for anew wherever it is needed: a register that holds it is lost to all phases.
#[inline(always)]
pub(super) fn block_index() -> u32 {
    Launched.again().block
}

/// A block of the launch that a phase would be without grid barriers; of `THREADS` threads, where they are fewer than a block of
/// this launch has.
#[derive(Clone, Copy)]
pub(super) struct Taken<const THREADS: u32> {
    block: Spilled,
    blocks: Spilled,
}

impl<const THREADS: u32> Taken<THREADS> {
    /// Roles that a block takes at a time.
    const PARTS: u32 = super::THREADS / THREADS;

    /// The first: blocks that find no work for all of their parts are all blocks, rather than some none for any.
    #[inline(always)]
    pub(super) unsafe fn first(shared: Shared<F32x4>, blocks: u32) -> Taken<THREADS> {
        // SAFETY: the caller's promise.
        let taken = unsafe { Taken { block: Spilled::of(shared, 1), blocks: Spilled::of(shared, 2) } };
        taken.block.set(block_index() + thread_index() / THREADS * grid::dim_x());
        taken.blocks.set(blocks);
        taken
    }

    /// The first of what is behind a part of the phase: counted on from that part's last, so that blocks that had none there begin.
    #[inline(always)]
    pub(super) unsafe fn behind(shared: Shared<F32x4>, blocks: u32) -> Taken<THREADS> {
        // SAFETY: the caller's promise.
        let taken = unsafe { Taken { block: Spilled::of(shared, 1), blocks: Spilled::of(shared, 2) } };
        taken.block.set(taken.block.get() - taken.blocks.get());
        taken.blocks.set(blocks);
        taken
    }

    /// Whether there is one.
    #[inline(always)]
    pub(super) fn is_there(self) -> bool {
        self.block.get() < self.blocks.get()
    }

    /// Goes on to the next.
    #[inline(always)]
    pub(super) fn advance(self) {
        self.block.set(self.block.get() + Self::PARTS * grid::dim_x());
    }
}

impl<const THREADS: u32> Role for Taken<THREADS> {
    #[inline(always)]
    fn block(self) -> u32 {
        self.block.get()
    }
    #[inline(always)]
    fn blocks(self) -> u32 {
        self.blocks.get()
    }
    #[inline(always)]
    fn column(self) -> u32 {
        0
    }
    #[inline(always)]
    fn thread(self) -> u32 {
        thread_index() % THREADS
    }
    #[inline(always)]
    fn threads(self) -> u32 {
        THREADS
    }
    #[inline(always)]
    fn part(self) -> usize {
        (thread_index() / THREADS) as usize
    }
    const PART: Option<u32> = if THREADS == super::THREADS { None } else { Some(THREADS) };
}

/// How far the launch is.
#[derive(Clone, Copy)]
pub struct At {
    /// Of the launch's layers.
    pub layer: u32,
    pub phase: u32,
    /// Which of those of queries, keys and values.
    pub part: u32,
}

impl At {
    /// As far as the thread [kept](Self::keep). The compiler does not know it: there is one copy of the code behind it, not one for
    /// each phase, and what follows from it is worked out anew.
    #[inline(always)]
    pub unsafe fn kept(shared: Shared<F32x4>) -> At {
        // SAFETY: the caller's promise.
        let at = again(unsafe { Spilled::of(shared, 0) }.get());
        At { layer: at / 32, phase: at % 8, part: at / 8 % 4 }
    }

    /// Keeps it for the thread.
    #[inline(always)]
    pub unsafe fn keep(self, shared: Shared<F32x4>) {
        // SAFETY: the caller's promise.
        unsafe { Spilled::of(shared, 0) }.set(32 * self.layer + 8 * self.part + self.phase);
    }

    /// The part behind.
    #[inline(always)]
    pub fn behind(&self) -> At {
        At { part: self.part + 1, ..*self }
    }

    /// Which of a layer's matrices a product is of.
    #[inline(always)]
    pub(super) fn matrix(&self) -> usize {
        if self.phase == 0 { self.part as usize } else { self.phase as usize - 2 + PARTS }
    }

    #[inline(always)]
    pub fn next(self) -> At {
        if self.phase + 1 == PHASES {
            At { layer: self.layer + 1, phase: 0, part: 0 }
        } else {
            At { phase: self.phase + 1, part: 0, ..self }
        }
    }
}
