//! What small blocks share: 32 rows of weights, of which each of eight warps has a run of groups, which it takes apart in registers, once for all
//! columns of its block. Then the runs are added up by way of shared memory.

use super::{
    super::{quant_format::BLOCK_ROWS, tensor::tiles::uniform_warp},
    CLASSES, FEW_COLUMNS, SUMS_STRIDE,
    units::{LoadedWeights, Runs, VECTORS, add_steps, steps},
};
use crate::format::{
    halves::Halves,
    record::{InMemory, Record},
};
use crate::load::{again, lane};
use core::mem::MaybeUninit;
use warpsmith_device::{prelude::*, shared::Shared, static_for};

/// Tiles of 16 rows of a block.
const TILES: usize = BLOCK_ROWS as usize / 16;
/// Rows that a lane has a part of.
pub const ROWS: usize = 2 * TILES;
/// Tiles of eight columns whose sums a small block's shared memory has room for at a time.
pub const SUMMED: usize = FEW_COLUMNS as usize / 8;
/// From the sums of a run to the next, of so many tiles of columns.
const fn class_stride(summed: usize) -> usize {
    8 * summed * SUMS_STRIDE
}
/// Sums of a warp's run, by tile of rows and tile of eight columns.
pub type RunSums<const N: usize> = [[[f32; 4]; N]; TILES];

/// The products of a warp's run of groups, of `columns` columns of f16, of which `row` gives the lane's rows and `of_column` says where
/// its column of a tile begins. `AT_ONCE`: groups that are on their way or multiplied.
#[inline(always)]
pub unsafe fn run<F: Halves, const N: usize, const AT_ONCE: usize>(
    record: &Record,
    row: impl Fn(usize) -> InMemory,
    (x, of_column): (In<U32x4>, impl Fn(usize) -> u32 + Copy),
    columns: u32,
) -> RunSums<N> {
    let runs = Runs::of(record);
    let mut group = uniform_warp() as u32 * runs.length;
    let end = (group + runs.length).min(runs.groups);
    let mut sums = [[[0.0; 4]; N]; TILES];
    if group < end {
        // Of what is behind the run's end nothing is asked for: where a run is one group that would be two more.
        let load = |to: &mut MaybeUninit<[LoadedWeights<F>; ROWS]>, group: u32| {
            if group < end {
                // SAFETY: the rows are of the weights.
                let load = |r| unsafe { LoadedWeights::load(row(r), record, group, lane() % 4) };
                to.write(core::array::from_fn(load));
            }
        };
        let mut loaded = [const { MaybeUninit::uninit() }; AT_ONCE];
        static_for!(i in 0..AT_ONCE => {
            load(&mut loaded[i], group + i as u32);
        });
        while group < end {
            static_for!(i in 0..AT_ONCE => {
                if i == 0 || group + (i as u32) < end {
                    let now = group + i as u32;
                    // SAFETY: the run has the group, which was loaded therefore, and all lanes are here.
                    unsafe { add_group(&mut sums, loaded[i].assume_init_ref(), record, (x, of_column), now, columns) };
                    // Into the same registers, while the other one is multiplied.
                    load(&mut loaded[i], now + AT_ONCE as u32);
                }
            });
            group += AT_ONCE as u32;
        }
    }
    sums
}

/// Adds the products of a group: of its weights once for all columns.
#[inline(always)]
unsafe fn add_group<F: Halves, const N: usize>(
    sums: &mut RunSums<N>,
    loaded: &[LoadedWeights<F>; ROWS],
    record: &Record,
    (x, of_column): (In<U32x4>, impl Fn(usize) -> u32 + Copy),
    group: u32,
    columns: u32,
) {
    let at = |n: usize, v: usize| (of_column(n) + 16 * group) as usize + 4 * v;
    // SAFETY: the caller's promise: the group is there, and all lanes are here.
    unsafe {
        let scales: [F::Scale; ROWS] = core::array::from_fn(|r| loaded[r].scale(record));
        static_for!(v in 0..VECTORS => {
            let rows: [[u32; 4]; ROWS] = core::array::from_fn(|r| loaded[r].eight(v, &scales[r]));
            let mut add = |n: usize| {
                let x = x.at(at(n, v)).0;
                for m in 0..TILES {
                    add_steps(&mut sums[m][n], steps([rows[2 * m], rows[2 * m + 1]]), x);
                }
            };
            add(0);
            // All others behind one branch: of a tile alone the assembler makes instructions that are issued for nothing.
            if columns > 8 {
                add(1);
                static_for!(n in 0..N => {
                    if n > 1 && 8 * (n as u32) < columns {
                        add(n);
                    }
                });
            }
        });
    }
}

/// Leaves the sums of a warp's run of the columns of `TILES_SUMMED` tiles from `first` on for [`of_classes`].
#[inline(always)]
pub unsafe fn store<const N: usize, const TILES_SUMMED: usize>(
    sums: &RunSums<N>,
    first: usize,
    memory: Shared<f32>,
    columns: u32,
) {
    let (g, t) = (lane() / 4, lane() % 4);
    // SAFETY: the caller's promise: it has room for all runs, and nobody reads it before a barrier.
    unsafe {
        let to = memory.from(uniform_warp() * class_stride(TILES_SUMMED));
        static_for!(n in 0..TILES_SUMMED => {
            if 8 * (first + n) < columns as usize {
                for m in 0..TILES {
                    for i in 0..4 {
                        let (row, column) = (16 * m + i / 2 * 8 + g, 8 * n + 2 * t + i % 2);
                        to.set(column * SUMS_STRIDE + row, sums[m][first + n][i]);
                    }
                }
            }
        });
    }
}

/// The sums of all runs, of which `load` loads some that lie so far behind those of the first.
#[inline(always)]
pub fn of_classes<const N: usize, const TILES_SUMMED: usize>(load: impl Fn(usize) -> [f32; N]) -> [f32; N] {
    let mut sums = [0.0; N];
    for class in 0..CLASSES as usize {
        let of_class = load(class * class_stride(TILES_SUMMED));
        for k in 0..N {
            sums[k] += of_class[k];
        }
    }
    sums
}

/// The product of a row in a column of outputs, from the sums of all runs in its column of f16, or in the two that are a `pair`; `whole` gives
/// the product of f16 from its sum.
///
/// # Safety
/// Whoever stored them is behind a barrier.
#[inline(always)]
pub unsafe fn product_of<const TILES_SUMMED: usize>(
    of_column: Shared<f32>,
    row: u32,
    pair: u32,
    whole: impl Fn(f32) -> f32,
) -> f32 {
    // Of two the second comes first; a loop rather than the same code twice.
    let (mut sums, mut left) = ([0.0; 2], pair);
    loop {
        // SAFETY: the caller's promise.
        let [sum] = unsafe {
            let of_half = of_column.from(left as usize * SUMS_STRIDE + row as usize);
            of_classes::<1, TILES_SUMMED>(|class| [of_half.get(class)])
        };
        sums = [whole(sum), sums[0]];
        if left == 0 {
            return if pair == 0 { sums[0] } else { super::of_pair(sums) };
        }
        left = again(left) - 1;
    }
}
