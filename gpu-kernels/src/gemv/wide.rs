//! Blocks of several sets of warps for products of [bit planes](super::planes): a block that has all outputs that share a
//! scale quantizes them without waiting for others, which takes two ways to memory less.

use super::quant_format::{BLOCK_ROWS, planes};
#[cfg(not(target_arch = "nvptx64"))]
use super::quant_format::{I8, NONE};

/// Threads of a set, which has [`BLOCK_ROWS`] rows of weights.
pub const THREADS: u32 = 128;
/// Sets of a wide block: as many as have the rows of a [block](planes::BLOCK) of outputs.
pub const SETS: u32 = planes::BLOCK / BLOCK_ROWS;
/// Columns up to which rows are short enough for wide blocks, of which there are a quarter as many.
#[cfg(not(target_arch = "nvptx64"))]
const WIDE_COLS: u32 = 8192;

/// Threads of a block, and sets of rows that it takes. A block is wide where its outputs become bit planes: it then has all that share
/// a scale, and need not wait for others. With gates and ups it takes two sets of rows one after the other.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shape(cols: u32, flags: u32, quant_format: u32) -> (u32, u32) {
    let (swiglu, planes) = (flags & super::SWIGLU != 0, quant_format != NONE && quant_format < I8);
    match (planes && (swiglu || cols <= WIDE_COLS), swiglu) {
        (false, _) => (THREADS, 1),
        (true, false) => (THREADS * SETS, SETS),
        (true, true) => (THREADS * SETS, 2 * SETS),
    }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(super) use frame::launched;

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod frame {
    use super::super::{
        SWIGLU,
        epilogue::{Epilogue, has},
        quantized::{Invocation, QuantizedArgs},
    };
    use super::*;
    use crate::load::{Launched, Place, Role, again, warp_index};
    use warpsmith_device::{prelude::*, shared::Shared, unroll::no_unroll};

    /// Which set of a launched block's rows a thread is at. All threads of a block take as many at once as it has sets of threads, in one
    /// round or two; their outputs a warp then finishes for each of the rows' sets.
    #[derive(Clone, Copy)]
    pub struct Set {
        round: u32,
        /// Threads that have a set.
        threads: u32,
        /// Of the launch.
        flags: u32,
    }

    impl Set {
        /// Sets of rows that a set of threads takes: two where there are gates and ups.
        #[inline(always)]
        fn rounds(self) -> u32 {
            1 << u32::from(has(again(self.flags), SWIGLU))
        }

        /// The number of its rows among those of the block's sets.
        #[inline(always)]
        fn of_block(self, thread: u32) -> u32 {
            self.round * SETS + thread / self.threads
        }

        /// The number of its rows among those of all sets.
        #[inline(always)]
        fn number(self, block: u32, thread: u32) -> u32 {
            block * self.rounds() * SETS + self.of_block(thread)
        }
    }

    impl Role for Set {
        #[inline(always)]
        fn block(self) -> u32 {
            self.number(block::idx_x(), thread::idx_x())
        }
        #[inline(always)]
        fn blocks(self) -> u32 {
            grid::dim_x() * self.rounds() * SETS
        }
        #[inline(always)]
        fn column(self) -> u32 {
            block::idx_y()
        }
        #[inline(always)]
        fn thread(self) -> u32 {
            thread::idx_x() % self.threads
        }
        #[inline(always)]
        fn threads(self) -> u32 {
            self.threads
        }
        #[inline(always)]
        fn again(self) -> Place {
            let Place { thread, block, column } = Launched.again();
            Place { thread: thread % self.threads, block: self.number(block, thread), column }
        }
        #[inline(always)]
        fn part(self) -> usize {
            self.of_block(thread::idx_x()) as usize
        }
    }

    /// What a set of a launched block got.
    #[derive(Clone, Copy)]
    pub struct OfSet {
        args: QuantizedArgs,
        set: Set,
    }

    impl Invocation for OfSet {
        type Role = Set;
        #[inline(always)]
        fn role(self) -> Set {
            self.set
        }
        #[inline(always)]
        unsafe fn args(self) -> QuantizedArgs {
            let QuantizedArgs { rows, cols, block_units, epilogue, .. } = self.args;
            let epilogue = Epilogue { flags: again(epilogue.flags), ..epilogue };
            // Nothing that follows from them alone is kept from one set of rows to the next.
            QuantizedArgs {
                rows: again(rows),
                cols: again(cols),
                block_units: again(block_units),
                epilogue,
                ..self.args
            }
        }
        #[inline(always)]
        unsafe fn again(self) -> QuantizedArgs {
            // SAFETY: the caller's promise.
            unsafe { self.args() }
        }
        #[inline(always)]
        unsafe fn begin(self, threads: u32, vectors: u32, ahead: bool) {
            if self.set.round == 0 {
                // SAFETY: the caller's promise.
                unsafe { self.args.ask_weights(self.set.rounds(), threads, vectors, ahead) }
            }
        }
        #[inline(always)]
        unsafe fn wait(self) {
            grid::wait_dependencies();
            grid::launch_dependents();
        }
    }

    /// The outputs of a launched block, of [`SETS`] sets of rows or twice as many: `sum` puts what warps have of a set's rows into shared
    /// memory, and `finish` makes outputs of it. What is quantized of them two warps do, once all are `kept`.
    ///
    /// All threads of the block make this call.
    #[device]
    pub unsafe fn launched(a: QuantizedArgs, kept: Shared<f32>, sum: impl Fn(OfSet), finish: impl Fn(OfSet)) {
        let args = QuantizedArgs { quantizer: None, kept: Some(kept), ..a };
        let mut set = Set { round: 0, threads: THREADS, flags: a.epilogue.flags };
        loop {
            no_unroll();
            sum(OfSet { args, set });
            set.round += 1;
            if set.round == set.rounds() {
                break;
            }
        }
        sync::block();
        let set = Set { round: 0, threads: 32, ..set };
        if set.of_block(thread::idx_x()) < set.rounds() * SETS {
            finish(OfSet { args, set });
        }
        let Some(quantizer) = a.quantizer else { return };
        sync::block();
        // As many as a code has bytes.
        const WARPS: u32 = 2;
        if (warp_index() as u32) < WARPS {
            // With gates and ups twice the rows, and half as many outputs.
            let outputs = SETS * BLOCK_ROWS;
            let (column, first) = (block::idx_y() as usize, block::idx_x() * outputs);
            quantizer.divide(|i| kept.get(i), column, a.rows, (first, first + outputs), (warp_index() as u32, WARPS));
        }
    }
}
