//! What becomes of the sums of a block, in one definition for all bodies of an entry point: they run into the same code.

use super::{
    super::{NEXT, SWIGLU, experts::Columns, quant_format::BLOCK_ROWS, quantized::Args},
    COLUMNS, ROWS, THREADS,
    staging::STRIDE,
    tiles::{Outputs, Part, TILES},
};
use crate::load::{Launched, Place, Role, lane, warp_index};
use core::mem::MaybeUninit;
use warpsmith_device::{prelude::*, shared::Shared, static_for};

const WARPS: usize = THREADS as usize / 32;
/// From a column of outputs of a small block to the next, so that neighbouring columns begin in other banks.
pub const SMALL_STRIDE: usize = BLOCK_ROWS as usize + 4;

/// How much a block has.
#[derive(Clone, Copy)]
pub struct Block {
    /// Whether it has [`ROWS`] rows of weights, or [`BLOCK_ROWS`].
    pub large: bool,
    /// Columns at most.
    pub columns: u32,
}

impl Block {
    /// A small one with so many columns.
    #[inline(always)]
    pub fn small(columns: u32) -> Block {
        Block { large: false, columns }
    }

    /// A large one.
    #[inline(always)]
    pub fn large(columns: u32) -> Block {
        Block { large: true, columns }
    }

    /// Rows of weights.
    #[inline(always)]
    fn rows(self) -> u32 {
        if self.large { ROWS } else { BLOCK_ROWS }
    }
}

/// The row of weights that is number `8 * tile + i` of a block of `rows`: with gates and ups each tile of 16 rows has eight gates and then
/// their ups. After the last row it is taken again, and what comes of it is dropped.
#[inline(always)]
pub fn row(a: &Args, rows: u32, tile: u32, i: u32) -> u32 {
    let shift = a.epilogue.shift();
    let output = ((block::idx_x() * rows) >> shift) + 8 * (tile >> shift) + i;
    output.min(a.rows - 1) + if tile & shift == 0 { 0 } else { a.rows }
}

/// Outputs of the columns from `half` on as `[column][row]`.
#[inline(always)]
unsafe fn store(total: &Outputs, to: Shared<f32>, part: &Part, half: usize) {
    let lane = lane();
    if part.first_column / COLUMNS as usize != half / COLUMNS as usize {
        return;
    }
    static_for!(m in 0..TILES[0] => {
        if m < TILES[0] / 2 || part.whole {
            static_for!(n in 0..TILES[1] => {
                for i in 0..4 {
                    let row = part.first_row + 16 * m + lane / 4 + i / 2 * 8;
                    let column = part.first_column % COLUMNS as usize + 8 * n + lane % 4 * 2 + i % 2;
                    // SAFETY: the caller's promise: nobody reads it before a barrier.
                    unsafe { to.set(column * STRIDE + row, total[m][n][i]) };
                }
            });
        }
    });
}

/// What becomes of the outputs of a block. A small one's sums are in `sums`, where a warp takes every eighth column, which it wrote itself
/// or behind a barrier; a large one's are `total`, and `sums` is there for half of its columns at a time.
#[inline(always)]
pub unsafe fn finish(a: &Args, sums: Shared<f32>, block: Block, total: &MaybeUninit<Outputs>) {
    let (mut half, mut more) = (0, true);
    while more {
        // SAFETY: the caller's promise: the sums are there, and all threads are here.
        unsafe {
            // Found anew: what is kept over the loop costs registers in it.
            let y = Launched.again().column;
            let columns = Columns::of_block(y, a.experts, a.columns, block.columns).count as usize;
            if block.large {
                sync::block();
                store(total.assume_init_ref(), sums, &Part::of(columns, block.columns), half);
                sync::block();
            }
            finish_half(a, sums, block, half, (columns - half).min(COLUMNS as usize));
            half += COLUMNS as usize;
            more = half < columns;
        }
    }
}

/// What becomes of the outputs of `columns` columns of the block from number `half` on: a warp takes every eighth.
#[inline(always)]
unsafe fn finish_half(a: &Args, sums: Shared<f32>, block: Block, half: usize, columns: usize) {
    let shift = a.epilogue.shift();
    let stride = if block.large { STRIDE } else { SMALL_STRIDE };
    // Rows of weights that a warp finishes at a time, as many as give 32 outputs where there are so many, and how often.
    let (rows, groups) =
        if block.large { (BLOCK_ROWS << shift, (ROWS / BLOCK_ROWS) >> shift) } else { (BLOCK_ROWS, 1) };
    let mut column = warp_index();
    while column < columns {
        // SAFETY: the column is one of the outputs.
        let of_column = unsafe { sums.from(column * stride) };
        // Found anew: what is kept over the loop costs registers in it.
        let y = Launched.again().column;
        // SAFETY: the block has that column.
        let output_column =
            unsafe { Columns::of_block(y, a.experts, a.columns, block.columns).column((half + column) as u32) };
        let place =
            |group: u32| Place { thread: lane() as u32, block: block::idx_x() * groups + group, column: output_column };
        let table = Columns::tile_of(y);
        // SAFETY: the caller's promise: the outputs are there, and all lanes are here.
        unsafe {
            let root = a.root(place(0).column as usize);
            // Outputs and no more: a third of what the rest takes.
            if !a.epilogue.has(SWIGLU | NEXT) && a.quantizer.is_none() {
                for group in 0..groups as usize {
                    let row = group * BLOCK_ROWS as usize + lane();
                    let output = (block::idx_x() * block.rows()) as usize + row;
                    if output < a.rows as usize {
                        let value = of_column.get(row) * root;
                        let first_row = || a.first_row(Columns::tile_of(Launched.again().column));
                        let value = a.epilogue.biased(value, || first_row() + output);
                        a.epilogue.write(output_column as usize, output, value);
                    }
                }
                column += WARPS;
                continue;
            }
            let (mut group, outputs) = (0, rows >> shift);
            while group < groups && place(group).block * outputs < a.rows {
                a.finish_with::<true>(place(group), rows, outputs, (root, table), |i| {
                    let row = if shift == 0 {
                        group * rows + i
                    } else {
                        let output = group * BLOCK_ROWS + i / 2;
                        output / 8 * 16 + output % 8 + i % 2 * 8
                    };
                    of_column.get(row as usize)
                });
                group += 1;
            }
        }
        column += WARPS;
    }
}
