//! The product of a small block: 32 rows of weights and up to 32 columns of f16. Each of its eight warps has a run of groups, whose weights
//! it takes apart in registers.

use super::{
    super::{
        quant_format::{BLOCK_ROWS, half::len},
        quantized::{Invocation, QuantizedArgs},
        tensor::tiles::uniform_warp,
    },
    CLASSES, FEW_COLUMNS, FEW_STRIDE, THREADS,
    units::{LoadedWeights, Runs, VECTORS, add_steps, steps},
};
use crate::format::{
    halves::Halves,
    record::{InMemory, Record},
};
use crate::load::{Place, again, lane};
use core::mem::MaybeUninit;
use warpsmith_device::{prelude::*, shared::Shared, static_for};

/// Tiles of 16 rows, and of eight columns, of a block.
const TILES: [usize; 2] = [BLOCK_ROWS as usize / 16, FEW_COLUMNS as usize / 8];
/// Rows that a lane has a part of.
const ROWS: usize = 2 * TILES[0];
const COLUMNS: usize = FEW_COLUMNS as usize;
/// Groups that are on their way or multiplied.
const AT_ONCE: usize = 2;

type HalfSums = [[[f32; 4]; TILES[1]]; TILES[0]];

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

/// Adds the products of a group: of its weights once for all columns.
#[inline(always)]
unsafe fn add_group<F: Halves>(
    sums: &mut HalfSums,
    loaded: &[LoadedWeights<F>; ROWS],
    record: &Record,
    (x, of_columns): (In<U32x4>, &[u32; TILES[1]]),
    group: u32,
    columns: u32,
) {
    let at = |n: usize, v: usize| (of_columns[n] + 16 * group) as usize + 4 * v;
    // SAFETY: the caller's promise: the group is there, and all lanes are here.
    unsafe {
        let scales: [F::Scale; ROWS] = core::array::from_fn(|r| loaded[r].scale(record));
        static_for!(v in 0..VECTORS => {
            let rows: [[u32; 4]; ROWS] = core::array::from_fn(|r| loaded[r].eight(v, &scales[r]));
            let mut add = |n: usize| {
                let x = x.at(at(n, v)).0;
                for m in 0..TILES[0] {
                    add_steps(&mut sums[m][n], steps([rows[2 * m], rows[2 * m + 1]]), x);
                }
            };
            add(0);
            // All others behind one branch: of a tile alone the assembler makes instructions that are issued for nothing.
            if columns > 8 {
                add(1);
                static_for!(n in 0..TILES[1] => {
                    if n > 1 && 8 * (n as u32) < columns {
                        add(n);
                    }
                });
            }
        });
    }
}

/// A block's outputs, by way of shared memory.
#[device]
pub unsafe fn product<F: Halves>(a: QuantizedArgs, memory: Shared<f32>) {
    let record = F::record(a.cols as usize, a.block_units);
    let (g, t) = ((lane() / 4) as u32, lane() % 4);
    a.begin(THREADS / BLOCK_ROWS, record.vectors as u32);
    a.wait();
    let columns = OutputColumns::of(&a);
    let matrix = a.chosen(columns.first, record.vectors as u32);
    let rows: [InMemory; ROWS] = core::array::from_fn(|r| {
        let row = a.row(a.rows, block::idx_x() * BLOCK_ROWS + g, 8 * r as u32, record.vectors as u32);
        InMemory(row.from(matrix))
    });
    let halves = columns.count << a.pair();
    // After the last column it is taken again.
    let of_columns: [u32; TILES[1]] = core::array::from_fn(|n| {
        let column = a.half_input((8 * n as u32 + g).min(halves - 1), |i| columns.first + i);
        column * len(a.cols) as u32 + t as u32
    });
    let (runs, warp) = (Runs::of(&record), uniform_warp());
    let mut group = warp as u32 * runs.length;
    let end = (group + runs.length).min(runs.groups);
    let mut sums = HalfSums::default();
    if group < end {
        // Of what is behind the run's end nothing is asked for: where a run is one group that would be two more.
        let load = |to: &mut MaybeUninit<[LoadedWeights<F>; ROWS]>, group: u32| {
            if group < end {
                to.write(rows.map(|row| LoadedWeights::<F>::load(row, &record, group, t)));
            }
        };
        let mut loaded = [const { MaybeUninit::uninit() }; AT_ONCE];
        static_for!(i in 0..AT_ONCE => {
            load(&mut loaded[i], group + i as u32);
        });
        while group < end {
            static_for!(i in 0..AT_ONCE => {
                if i == 0 || group + 1 < end {
                    let now = group + i as u32;
                    // SAFETY: the run has the group, which was loaded therefore.
                    let of_group = loaded[i].assume_init_ref();
                    add_group(&mut sums, of_group, &record, (a.x, &of_columns), now, halves);
                    // Into the same registers, while the other one is multiplied.
                    load(&mut loaded[i], now + AT_ONCE as u32);
                }
            });
            group += AT_ONCE as u32;
        }
    }
    store(&sums, memory.from(warp * COLUMNS * FEW_STRIDE), halves);
    sync::block();
    let mut column = warp;
    while column < columns.count as usize {
        let of_column = memory.from((column << a.pair()) * FEW_STRIDE);
        let column_of_all = columns.first + column as u32;
        let place = Place { thread: lane() as u32, block: block::idx_x(), column: column_of_all };
        let (outputs, root) = (BLOCK_ROWS >> a.epilogue.shift(), a.root(column_of_all as usize));
        a.finish_with::<true>(place, BLOCK_ROWS, outputs, (root, column_of_all), |row| {
            // Of two the second comes first; a loop rather than the same code twice.
            let (mut sums, mut left) = ([0.0; 2], a.pair());
            loop {
                let of_half = of_classes(of_column.from(left as usize * FEW_STRIDE), row);
                sums = [super::whole::<F>(of_half), sums[0]];
                if left == 0 {
                    return if a.pair() == 0 { sums[0] } else { super::of_pair(sums) };
                }
                left = again(left) - 1;
            }
        });
        column += CLASSES as usize;
    }
}

/// The sum of all runs of a row, of the column that `of_column` begins with.
#[inline(always)]
unsafe fn of_classes(of_column: Shared<f32>, row: u32) -> f32 {
    let mut sum = 0.0;
    for class in 0..CLASSES as usize {
        // SAFETY: the caller's promise: all warps have stored theirs.
        sum += unsafe { of_column.get(class * COLUMNS * FEW_STRIDE + row as usize) };
    }
    sum
}

/// Sums of a warp's run, as `[column][row]`.
#[inline(always)]
unsafe fn store(sums: &HalfSums, to: Shared<f32>, columns: u32) {
    let (g, t) = (lane() / 4, lane() % 4);
    static_for!(n in 0..TILES[1] => {
        if 8 * (n as u32) < columns {
            for m in 0..TILES[0] {
                for i in 0..4 {
                    let (row, column) = (16 * m + i / 2 * 8 + g, 8 * n + 2 * t + i % 2);
                    // SAFETY: the caller's promise: nobody reads it before a barrier.
                    unsafe { to.set(column * FEW_STRIDE + row, sums[m][n][i]) };
                }
            }
        }
    });
}
