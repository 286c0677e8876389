//! Where the launches of a step leave one another their results: [`LEN`] numbers of 64 bits for each column.

use super::super::definition::BINS;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use warpsmith_device::prelude::*;

/// Most slices of a column.
pub const SLICES: u32 = 256;
/// Candidates that one block can go through without the column: those of one bin, or of the few that a threshold may be in.
pub const CANDIDATES: u32 = 4096;

const BEST: usize = 0;
const WEIGHTS: usize = BEST + SLICES as usize;
const COUNTS: usize = WEIGHTS + BINS as usize;
const SUMS: usize = COUNTS + BINS as usize / 2;
const LENGTH: usize = SUMS + SLICES as usize;
const LIST: usize = LENGTH + 1;
/// Numbers of a column.
pub const LEN: usize = LIST + CANDIDATES as usize;

/// The part of a column.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
pub struct Work {
    /// The best token of each slice: its key above the complement of its index; 0: none.
    pub best: InOut<u64>,
    /// What the tokens of each bin weigh, at the bin's [`place`].
    pub weights: InOut<u64>,
    /// How many tokens each bin has, at the bin's [`place`].
    pub counts: InOut<u32>,
    /// What those tokens of each slice weigh that are kept for certain.
    pub sums: InOut<u64>,
    /// How many candidates there are: more than [`CANDIDATES`], if the list was too short for them.
    pub length: InOut<u32>,
    /// The candidates: key above index, in any order.
    pub list: InOut<u64>,
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
impl Work {
    /// That of a column.
    #[inline(always)]
    pub unsafe fn of(all: InOut<u64>, column: usize) -> Work {
        // SAFETY: each column has `LEN` numbers.
        unsafe {
            let own = all.from(column * LEN);
            Work {
                best: own.from(BEST),
                weights: own.from(WEIGHTS),
                counts: own.from(COUNTS).cast(),
                sums: own.from(SUMS),
                length: own.from(LENGTH).cast(),
                list: own.from(LIST),
            }
        }
    }
}

/// Bins that follow one another and that one thread sums.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub const RUN: u32 = BINS / super::THREADS;

/// Where a bin is: those of all runs' first bins come first, so that the threads of a warp read side by side.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
pub fn place(bin: u32) -> usize {
    (bin % RUN * super::THREADS + bin / RUN) as usize
}
