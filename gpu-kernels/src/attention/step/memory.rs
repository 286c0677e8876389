//! A block's shared memory, and how its threads are spread over warps.

use super::THREADS;
use crate::kv::cached::Rows;
use warpsmith_device::prelude::*;

/// Warps of a block.
pub const WARPS: usize = THREADS as usize / 32;
/// Most queries of a warp without tensor cores.
pub const QUERIES: usize = 4;

/// Where the ticket has the first position of the block's part.
pub const FROM: usize = 2;

/// Elements of each array.
const VALUES: usize = WARPS * QUERIES * 256;
const QUERY_WORDS: usize = 16 * 128;
const STATES: usize = 2 * WARPS * 4 * QUERIES;
const TOTALS: usize = 2 * 16;
/// Where the ticket has the place of keys and values, of two words each: both, their scales, and their pages.
const PLACES: usize = 4;
const TICKET: usize = PLACES + 2 * 5 + 2;

/// A block's shared memory.
#[derive(Clone, Copy)]
pub struct StepMemory {
    /// Values of each partial result. Before them a warp's heads on their way, and queries as numbers; after them the results of the
    /// block's heads, for those who quantize them.
    pub values: Shared<f32>,
    /// Queries as factors of products on tensor cores. After them what each partial result of a head counts for, up to 32 a head, up to
    /// four numbers each.
    pub queries: Shared<f32>,
    /// The largest score of each partial result and its sum of weights.
    pub states: Shared<f32>,
    /// Of each head: what its scores are scaled by, on tensor cores; then the largest of all scores, and the sum of all weights.
    pub totals: Shared<f32>,
    /// Of each warp: what its values are scaled by.
    pub units: Shared<f32>,
    /// Whose turn the block was to finish, how many parts there are, and the block's own, then where its keys and values lie: kept here
    /// over the sweep, which takes all registers.
    pub ticket: Shared<u32>,
}

impl StepMemory {
    /// Arrays of its own.
    #[inline(always)]
    pub unsafe fn declared() -> StepMemory {
        StepMemory {
            values: shared_array!(ATTN_STEP_VALUES: [f32; VALUES]),
            queries: shared_array!(ATTN_STEP_QUERIES: [f32; QUERY_WORDS]),
            states: shared_array!(ATTN_STEP_STATES: [f32; STATES]),
            totals: shared_array!(ATTN_STEP_TOTALS: [f32; TOTALS]),
            units: shared_array!(ATTN_STEP_UNITS: [f32; WARPS]),
            ticket: shared_array!(ATTN_STEP_TICKET: [u32; TICKET]),
        }
    }

    /// Bytes of [`within`](Self::within).
    pub const BYTES: usize = 4 * (VALUES + QUERY_WORDS + STATES + TOTALS + WARPS + TICKET);

    /// One after the other in an array of [`BYTES`](Self::BYTES).
    #[inline(always)]
    pub unsafe fn within(array: Shared<f32>) -> StepMemory {
        // SAFETY: the caller's promise; each begins at a multiple of 16 bytes.
        unsafe {
            let queries = array.from(VALUES);
            let states = queries.from(QUERY_WORDS);
            let totals = states.from(STATES);
            let units = totals.from(TOTALS);
            StepMemory { values: array, queries, states, totals, units, ticket: units.from(WARPS).cast() }
        }
    }

    /// Keeps where keys and values lie; a thread does.
    #[inline(always)]
    pub unsafe fn keep_rows(&self, (keys, values): &(Rows, Rows)) {
        let keep = |i: usize, address: u64| {
            // SAFETY: the ticket has room for five.
            unsafe { self.ticket.set2(PLACES + 2 * i, U32x2([address as u32, (address >> 32) as u32])) };
        };
        keep(0, keys.data);
        keep(1, values.data);
        keep(2, keys.scales);
        keep(3, values.scales);
        keep(4, keys.pages);
    }

    /// What was [kept](Self::keep_rows) before a barrier, of rows of so many bytes.
    #[inline(always)]
    pub unsafe fn rows(&self, bytes: u64) -> (Rows, Rows) {
        let address = |i: usize| {
            // SAFETY: the caller's promise.
            let [low, high] = unsafe { self.ticket.get2(PLACES + 2 * i).0 };
            u64::from(high) << 32 | u64::from(low)
        };
        let rows = |data: usize, scales: usize| Rows {
            data: address(data),
            scales: address(scales),
            bytes,
            pages: address(4),
        };
        (rows(0, 2), rows(1, 3))
    }
}
