//! The product of a [small block](super::small) of up to 64 columns of f16: weights are taken apart once for twice as many columns as a block
//! of few has, and are as many registers.

use super::{
    super::{
        quant_format::{BLOCK_ROWS, half::len},
        quantized::QuantizedArgs,
        tensor::outputs::{self, Block, SMALL_STRIDE},
    },
    FEW_COLUMNS, SOME_COLUMNS, SUMS_STRIDE,
    small::{self, ROWS, SUMMED},
};
use crate::format::{
    halves::Halves,
    record::{InMemory, Record},
};
use crate::load::{Launched, Place, Role, again};
use warpsmith_device::{
    prelude::*,
    shared::Shared,
    static_for,
    warp::{FULL, shuffle_xor},
};

/// Quads of rows of a column: a thread adds up one, of a column each time that runs are added up.
const QUADS: usize = BLOCK_ROWS as usize / 4;
const TIMES: usize = (SOME_COLUMNS / FEW_COLUMNS) as usize;
const _: () = assert!(FEW_COLUMNS as usize * QUADS == super::THREADS as usize && TIMES == 2);

/// A block's sums, by way of shared memory.
#[device]
pub unsafe fn product<F: Halves>(a: &QuantizedArgs, record: &Record, memory: Shared<f32>) -> Block {
    // Read anew: what is kept over its loop costs a large block registers.
    let Place { thread, column, .. } = Launched.again();
    let (g, t) = (thread % 32 / 4, thread % 4);
    let of_block = SOME_COLUMNS >> a.pair();
    let first = column * of_block;
    let halves = (a.columns - first).min(of_block) << a.pair();
    // Rows and columns are found anew for each group: there are no registers for all of them.
    let rows: [u32; ROWS] = core::array::from_fn(|r| outputs::row(a, BLOCK_ROWS, r as u32, g));
    let row = |r: usize| InMemory(a.of_row(again(rows[r]), record.vectors as u32));
    // After the last column it is taken again.
    let len = len(a.cols) as u32;
    let of_first = (first << a.pair()) * len + t;
    let of_column = |n: usize| of_first + (8 * n as u32 + g).min(again(halves - 1)) * len;
    let sums = small::run::<F, { TIMES * SUMMED }, 1>(record, row, (a.x, of_column), halves);
    let thread = thread as usize;
    let (column, row) = (thread / QUADS, 4 * (thread % QUADS));
    let mut totals = [[0.0; 4]; TIMES];
    static_for!(i in 0..2 => {
        let before = i as u32 * FEW_COLUMNS;
        if i == 0 || before < halves {
            small::store::<{ TIMES * SUMMED }, SUMMED>(&sums, i * SUMMED, memory, halves);
            sync::block();
            // Of other columns nothing is stored.
            if before + (column as u32) < halves {
                let of_column = memory.from(column * SUMS_STRIDE + row);
                totals[i] = small::of_classes::<4, SUMMED>(|class| of_column.get4(class).0).map(super::whole::<F>);
            }
            sync::block();
        }
    });
    // Of two f16 the first lies in an even column and the rest in the next, eight lanes on.
    let pair = a.pair();
    for (i, total) in totals.iter_mut().enumerate() {
        let sums = total.map(|first| {
            let rest = shuffle_xor(FULL, first, QUADS as u32);
            if pair == 0 { first } else { super::of_pair([first, rest]) }
        });
        if column as u32 & pair == 0 {
            let to = (i * FEW_COLUMNS as usize + column) >> pair;
            memory.set4(to * SMALL_STRIDE + row, F32x4(sums));
        }
    }
    sync::block();
    Block::small(of_block)
}
