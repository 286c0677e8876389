//! What becomes of the sums of a block, in one definition for all bodies of an entry point: they run into the same code.

use super::{
    super::{NEXT, SWIGLU, experts::BlockColumns, quant_format::BLOCK_ROWS, quantized::QuantizedArgs},
    COLUMNS, ROWS, THREADS,
    staging::STRIDE,
    tiles::{TILES, TileSums, WarpTile},
};
use crate::load::{Launched, Role, lane, warp_index};
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
pub fn row(a: &QuantizedArgs, rows: u32, tile: u32, i: u32) -> u32 {
    let shift = a.epilogue.shift();
    let output = ((block::idx_x() * rows) >> shift) + 8 * (tile >> shift) + i;
    output.min(a.rows - 1) + if tile & shift == 0 { 0 } else { a.rows }
}

/// Outputs of the columns from `half` on as `[column][row]`.
#[inline(always)]
pub unsafe fn store(total: &TileSums, to: Shared<f32>, part: &WarpTile, half: usize) {
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
/// or behind a barrier; a large one's are where `store` takes them from: it writes those of so many columns that its warp has among the
/// [`COLUMNS`] from a number on, each [`STRIDE`] behind the one before.
#[inline(always)]
pub unsafe fn finish(a: &QuantizedArgs, sums: Shared<f32>, block: Block, store: impl Fn(Shared<f32>, usize, usize)) {
    let (mut half, mut more) = (0, true);
    while more {
        // SAFETY: the caller's promise: the sums are there, and all threads are here.
        unsafe {
            // Found anew: what is kept over the loop costs registers in it.
            let y = Launched.again().column;
            let columns = BlockColumns::of_block(y, a.experts, a.columns, block.columns).count as usize;
            if block.large {
                sync::block();
                store(sums, columns, half);
                sync::block();
            }
            finish_half(a, sums, block, half, (columns - half).min(COLUMNS as usize));
            half += COLUMNS as usize;
            more = half < columns;
        }
    }
}

/// Columns that a warp finishes side by side, and groups of rows of each.
const SIDE_BY_SIDE: usize = 2;
const GROUPS: usize = 2;

/// What becomes of the outputs of `columns` columns of the block from number `half` on: a warp takes every eighth.
#[inline(always)]
unsafe fn finish_half(a: &QuantizedArgs, sums: Shared<f32>, block: Block, half: usize, columns: usize) {
    let shift = a.epilogue.shift();
    let stride = if block.large { STRIDE } else { SMALL_STRIDE };
    // Rows of weights that a warp finishes at a time, as many as give 32 outputs where there are so many, and how often.
    let (rows, groups) =
        if block.large { (BLOCK_ROWS << shift, (ROWS / BLOCK_ROWS) >> shift) } else { (BLOCK_ROWS, 1) };
    let outputs = rows >> shift;
    let mut first = warp_index();
    while first < columns {
        // Found anew: what is kept over the loop costs registers in it.
        let y = Launched.again().column;
        let side_by_side = first + WARPS < columns;
        // Where there is one, it is taken twice: others are of other warps, which do not wait for each other.
        let of_block: [usize; SIDE_BY_SIDE] =
            core::array::from_fn(|i| if i == 0 || !side_by_side { first } else { first + WARPS });
        // SAFETY: the block has those columns.
        let output_columns = of_block.map(|column| unsafe {
            BlockColumns::of_block(y, a.experts, a.columns, block.columns).column((half + column) as u32)
        });
        let block_of = |group: u32| block::idx_x() * groups + group;
        // SAFETY: the caller's promise: the outputs are there, and all lanes are here.
        unsafe {
            let of_columns: [Shared<f32>; SIDE_BY_SIDE] = core::array::from_fn(|i| sums.from(of_block[i] * stride));
            let roots = a.roots(output_columns);
            // Outputs and no more: a third of what the rest takes.
            if !a.epilogue.has(SWIGLU | NEXT) && a.quantizer.is_none() {
                for group in 0..groups as usize {
                    let row = group * BLOCK_ROWS as usize + lane();
                    let output = (block::idx_x() * block.rows()) as usize + row;
                    if output < a.rows as usize {
                        let products: [f32; SIDE_BY_SIDE] = core::array::from_fn(|i| of_columns[i].get(row) * roots[i]);
                        let first_row = || a.first_row(BlockColumns::tile_of(Launched.again().column));
                        for i in 0..SIDE_BY_SIDE {
                            if i == 0 || side_by_side {
                                let value = a.epilogue.biased(products[i], || first_row() + output);
                                a.epilogue.write(output_columns[i] as usize, output, value);
                            }
                        }
                    }
                }
                first += SIDE_BY_SIDE * WARPS;
                continue;
            }
            let table = BlockColumns::tile_of(y);
            let mut group = 0;
            while group < groups && block_of(group) * outputs < a.rows {
                // Where there is one group more, or one column, that is taken twice, and written once.
                let more = u32::from(group + 1 < groups && block_of(group + 1) * outputs < a.rows);
                let of_part = |n: usize| group + if n % GROUPS == 0 { 0 } else { more };
                let column_of = |n: usize| if n < GROUPS { output_columns[0] } else { output_columns[1] };
                let of_column = 1 | more << 1;
                let there = of_column | if side_by_side { of_column << GROUPS } else { 0 };
                a.finish_parts::<false, { SIDE_BY_SIDE * GROUPS }>(
                    lane() as u32,
                    |n| (block_of(of_part(n)), column_of(n)),
                    there,
                    (rows, outputs, table),
                    |n, i| {
                        let group = of_part(n);
                        let row = if shift == 0 {
                            group * rows + i
                        } else {
                            let output = group * BLOCK_ROWS + i / 2;
                            output / 8 * 16 + output % 8 + i % 2 * 8
                        };
                        of_columns[n / GROUPS].get(row as usize) * roots[n / GROUPS]
                    },
                );
                group += GROUPS as u32;
            }
        }
        first += SIDE_BY_SIDE * WARPS;
    }
}
