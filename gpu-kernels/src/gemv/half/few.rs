//! The product of a [small block](super::small) of up to 32 columns of f16.

use super::{
    super::{
        quant_format::{BLOCK_ROWS, half::len},
        quantized::{Invocation, QuantizedArgs, asks_behind},
        tensor::tiles::uniform_warp,
    },
    CLASSES, FEW_COLUMNS, SUMS_STRIDE, THREADS,
    small::{self, ROWS, SUMMED},
};
use crate::format::{halves::Halves, record::InMemory};
use crate::load::{Place, lane};
use warpsmith_device::{prelude::*, shared::Shared};

/// Groups of weights in registers: while one is multiplied, the other is on its way.
const AT_ONCE: usize = 2;

/// Which columns of outputs a block has.
#[derive(Clone, Copy)]
struct OutputColumns {
    first: u32,
    count: u32,
}

impl OutputColumns {
    #[inline(always)]
    fn of(a: &QuantizedArgs) -> OutputColumns {
        let most = if a.experts.is_some() { 1 } else { FEW_COLUMNS >> a.pair() };
        let first = block::idx_y() * most;
        OutputColumns { first, count: (a.columns - first).min(most) }
    }
}

/// A block's outputs, by way of shared memory.
#[device]
pub unsafe fn product<F: Halves>(a: QuantizedArgs, memory: Shared<f32>) {
    let record = F::record(a.cols as usize, a.block_units);
    let (threads, vectors) = (THREADS / BLOCK_ROWS, record.vectors as u32);
    a.start(threads, vectors, asks_behind(threads, vectors));
    let columns = OutputColumns::of(&a);
    let matrix = a.chosen(columns.first, record.vectors as u32);
    let rows: [InMemory; ROWS] = core::array::from_fn(|r| {
        let first = block::idx_x() * BLOCK_ROWS + (lane() / 4) as u32;
        InMemory(a.row(a.rows, first, 8 * r as u32, record.vectors as u32).from(matrix))
    });
    let halves = columns.count << a.pair();
    // After the last column it is taken again.
    let of_columns: [u32; SUMMED] = core::array::from_fn(|n| {
        let column = a.half_input((8 * n as u32 + (lane() / 4) as u32).min(halves - 1), |i| columns.first + i);
        column * len(a.cols) as u32 + (lane() % 4) as u32
    });
    let sums = small::run::<F, SUMMED, AT_ONCE>(&record, |r| rows[r], (a.x, |n| of_columns[n]), halves);
    small::store::<SUMMED, SUMMED>(&sums, 0, memory, halves);
    sync::block();
    let mut column = uniform_warp();
    while column < columns.count as usize {
        let of_column = memory.from((column << a.pair()) * SUMS_STRIDE);
        let column_of_all = columns.first + column as u32;
        let place = Place { thread: lane() as u32, block: block::idx_x(), column: column_of_all };
        let (outputs, root) = (BLOCK_ROWS >> a.epilogue.shift(), a.root(column_of_all as usize));
        a.finish_with::<false>(place, BLOCK_ROWS, outputs, (root, column_of_all), |row| {
            small::product_of::<SUMMED>(of_column, row, a.pair(), super::whole::<F>)
        });
        column += CLASSES as usize;
    }
}
