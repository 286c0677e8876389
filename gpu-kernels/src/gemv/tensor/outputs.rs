//! What becomes of the sums of a large block.

use super::{
    super::{NEXT, SWIGLU, experts::Columns, quant_format::BLOCK_ROWS, quantized::Args},
    COLUMNS, ROWS, THREADS,
    staging::STRIDE,
    tiles::{Outputs, Part, TILES},
};
use crate::load::{Launched, Place, Role, lane, warp_index};
use warpsmith_device::{prelude::*, shared::Shared, static_for};

const WARPS: usize = THREADS as usize / 32;

/// Outputs of the columns from `half` on as `[column][row]`.
#[inline(always)]
pub unsafe fn store(total: &Outputs, to: Shared<f32>, part: &Part, half: usize) {
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

/// What becomes of the outputs of `columns` columns of the block, which may have `most`, from number `half` on: a warp takes every eighth.
#[inline(always)]
pub unsafe fn finish(a: &Args, sums: Shared<f32>, most: u32, half: usize, columns: usize) {
    let shift = a.epilogue.shift();
    // Rows of weights that a warp finishes at a time: as many as give 32 outputs.
    let rows = BLOCK_ROWS << shift;
    let mut column = warp_index();
    while column < columns {
        // SAFETY: the column is one of the outputs.
        let of_column = unsafe { sums.from(column * STRIDE) };
        // Found anew: what is kept over the loop costs registers in it.
        let block = Launched.again().column;
        // SAFETY: the block has that column.
        let output_column =
            unsafe { Columns::of_block(block, a.experts, a.columns, most).column((half + column) as u32) };
        let place = |group: u32| Place {
            thread: lane() as u32,
            block: block::idx_x() * (ROWS / rows) + group,
            column: output_column,
        };
        // SAFETY: the caller's promise: the outputs are there, and all lanes are here.
        unsafe {
            let root = a.root(place(0).column as usize);
            // Outputs and no more: a third of what the rest takes.
            if !a.epilogue.has(SWIGLU | NEXT) && a.quantizer.is_none() {
                for group in 0..(ROWS / BLOCK_ROWS) as usize {
                    let row = group * BLOCK_ROWS as usize + lane();
                    let output = block::idx_x() as usize * ROWS as usize + row;
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
            let mut group = 0;
            while group < ROWS / rows && place(group).block * BLOCK_ROWS < a.rows {
                a.finish_with::<true>(place(group), rows, BLOCK_ROWS, (root, Columns::tile_of(block)), |i| {
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
