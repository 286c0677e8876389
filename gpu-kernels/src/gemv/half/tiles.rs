//! The product of many columns, and that of a large block: 128 rows and 64 or 128 columns, tiles of 16 rows and eight columns on tensor cores.

use super::{
    super::{
        experts::BlockColumns,
        quant_format::{BLOCK_ROWS, half::len},
        quantized::{Invocation, QuantizedArgs},
        tensor::{
            COLUMNS, ROWS,
            outputs::{self, Block, finish},
            staging::STRIDE,
            tiles::{TILES, TileSums, WarpTile, add_class},
        },
    },
    HALF, THREADS, some,
    units::{LoadedWeights, Runs, add_steps, steps},
};
use crate::format::{
    halves::Halves,
    record::{InMemory, Record},
};
use crate::load::{dynamic_bytes, lane};
use core::mem::MaybeUninit;
use warpsmith_device::{pipeline, prelude::*, shared::Shared, static_for};

/// Rows that a thread takes weights apart of, each of its lane's unit: two that a lane multiplies at once, eight apart.
const STAGED: usize = 2;
/// Columns of which a thread copies a vector at a time.
const COPIED: usize = THREADS as usize / HALF;
/// The same, all of them.
const COPIES: usize = 2 * COLUMNS as usize / COPIED;
/// Halves of a group, and vectors of eight weights of a unit in each.
const HALVES: usize = 2;
const OF_HALF: usize = HALF / 4;

/// Where vector `i` of a line of `vectors` lies: of neighbours fours are swapped, so that lanes that read the same ones of both meet in no
/// bank.
#[inline(always)]
fn place(vectors: usize, line: usize, i: usize) -> usize {
    vectors * line + (i ^ (line % 2 * 4))
}

/// Vectors of a half of a group of two rows: of each step that is multiplied, what lanes have of both.
const OF_ROWS: usize = STAGED * HALF;
/// Lines of such.
const LINES: usize = ROWS as usize / STAGED;

/// What a thread brings to shared memory.
struct HalfStager {
    record: Record,
    rows: [InMemory; STAGED],
    x: In<U32x4>,
    /// From there to the thread's columns.
    columns: [u32; COPIES],
    /// Columns of the block, of those that are copied at once.
    copies: usize,
    memory: Shared<U32x4>,
}

impl HalfStager {
    /// Of a block that has these columns of outputs, and up to `most` of f16.
    #[inline(always)]
    unsafe fn of(
        a: &QuantizedArgs,
        record: Record,
        columns: BlockColumns,
        most: u32,
        memory: Shared<U32x4>,
    ) -> HalfStager {
        let thread = thread::idx_x();
        // SAFETY: the rows are among the weights, and the columns among those of `x`.
        unsafe {
            let weights = a.weights.from(a.chosen(BlockColumns::tile_of(block::idx_y()), record.vectors as u32));
            let rows = core::array::from_fn(|i| {
                let row = outputs::row(a, ROWS, thread / 32 * 2 + i as u32, thread % 32 / 4);
                InMemory(weights.from((u64::from(row) * record.vectors as u64) as usize))
            });
            let columns = core::array::from_fn(|i| {
                let column = a.half_input(thread / HALF as u32 + (COPIED * i) as u32, |i| columns.column(i));
                column * len(a.cols) as u32 + thread % HALF as u32
            });
            HalfStager { record, rows, x: a.x, columns, copies: most as usize / COPIED, memory }
        }
    }

    #[inline(always)]
    unsafe fn load<F: Halves>(&self, group: u32) -> [LoadedWeights<F>; STAGED] {
        // SAFETY: the caller's promise: the group is there.
        self.rows.map(|row| unsafe { LoadedWeights::load(row, &self.record, group, lane() % 4) })
    }

    /// Takes apart half `half` of what is loaded.
    #[inline(always)]
    unsafe fn store<F: Halves>(&self, half: usize, loaded: &[LoadedWeights<F>; STAGED]) {
        let (line, t) = (thread::idx_x() as usize / 4, lane() % 4);
        // SAFETY: the caller's promise: nobody reads that half.
        unsafe {
            let scales = [loaded[0].scale(&self.record), loaded[1].scale(&self.record)];
            let to = self.memory.from(half * OF_ROWS * LINES);
            static_for!(v in 0..OF_HALF => {
                let of = |i: usize| loaded[i].eight(OF_HALF * half + v, &scales[i]);
                let [first, second] = steps([of(0), of(1)]);
                to.set(place(OF_ROWS, line, 8 * v + t), U32x4(first));
                to.set(place(OF_ROWS, line, 8 * v + 4 + t), U32x4(second));
            });
        }
    }

    /// Starts the copies of half `half` of a group of the columns.
    #[inline(always)]
    unsafe fn copy(&self, half: usize, group: u32) {
        let (column, i) = (thread::idx_x() as usize / HALF, thread::idx_x() as usize % HALF);
        let (columns, first) = (self.copies * COPIED, 16 * group + (HALF * half) as u32);
        // SAFETY: the caller's promise: the group is there, and nobody reads that half.
        unsafe {
            let to = self.memory.from(HALVES * OF_ROWS * LINES + half * HALF * columns);
            for k in 0..COPIES {
                if k < self.copies {
                    let from = self.x.from((self.columns[k] + first) as usize);
                    pipeline::copy(to, place(HALF, column + COPIED * k, i), from.ptr());
                }
            }
            pipeline::commit();
        }
    }
}

/// Where a lane finds what it multiplies.
#[derive(Clone, Copy)]
struct StagePointers {
    rows: Shared<U32x4>,
    columns: Shared<U32x4>,
    /// Vectors of a half of the columns.
    of_half: usize,
    /// Where the first vectors of a line are, and from there to the next four, which may be the four before.
    at: [usize; 2],
}

impl StagePointers {
    #[inline(always)]
    unsafe fn of(memory: Shared<U32x4>, part: &WarpTile, columns: u32) -> StagePointers {
        let (g, t) = (lane() / 4, lane() % 4);
        // SAFETY: they lie in shared memory.
        unsafe {
            StagePointers {
                rows: memory.from(OF_ROWS * part.first_row / STAGED),
                columns: memory.from(HALVES * OF_ROWS * LINES + HALF * part.first_column),
                of_half: HALF * columns as usize,
                at: [place(0, g, t), place(0, g, 4 + t)],
            }
        }
    }

    /// What a lane multiplies of two rows of tile `m`, vectors `v`.
    #[inline(always)]
    unsafe fn rows(&self, rows: Shared<U32x4>, v: usize, m: usize) -> [[u32; 4]; 2] {
        // SAFETY: the caller's promise: the half is staged.
        [0, 1].map(|step| unsafe { rows.get(8 * OF_ROWS * m + 8 * v + self.at[step]).0 })
    }

    /// The same of its columns.
    #[inline(always)]
    unsafe fn columns(&self, columns: Shared<U32x4>, v: usize) -> [[u32; 4]; TILES[1]] {
        // SAFETY: the caller's promise: the half is staged.
        core::array::from_fn(|n| unsafe { columns.get(8 * HALF * n + self.at[v]).0 })
    }

    /// Adds the products of a half of a group. What is multiplied next is loaded before what is multiplied now, columns where units are
    /// so small that there are registers for them.
    #[inline(always)]
    unsafe fn add<F: Halves, const WHOLE: bool>(&self, acc: &mut TileSums, half: usize) {
        let tiles = const { if WHOLE { TILES[0] } else { TILES[0] / 2 } };
        let ahead = const { size_of::<F::Unit<InMemory>>() <= 32 };
        // SAFETY: the caller's promise: the half is staged, and all lanes are here.
        unsafe {
            let g = lane() / 4;
            let of_rows = self.rows.from(half * OF_ROWS * LINES + OF_ROWS * g);
            let of_columns = self.columns.from(half * self.of_half + HALF * g);
            let mut columns = self.columns(of_columns, 0);
            let mut rows = self.rows(of_rows, 0, 0);
            static_for!(v in 0..OF_HALF => {
                if v > 0 && !ahead {
                    columns = self.columns(of_columns, v);
                }
                let mut next_columns = columns;
                static_for!(m in 0..TILES[0] => {
                    if m < tiles {
                        let now = rows;
                        if m + 1 < tiles {
                            rows = self.rows(of_rows, v, m + 1);
                        } else if v + 1 < OF_HALF {
                            rows = self.rows(of_rows, v + 1, 0);
                        }
                        if ahead && m == 0 && v + 1 < OF_HALF {
                            next_columns = self.columns(of_columns, v + 1);
                        }
                        for n in 0..TILES[1] {
                            add_steps(&mut acc[m][n], now, columns[n]);
                        }
                    }
                });
                columns = next_columns;
            });
        }
    }
}

/// A block's outputs, by way of shared memory: by how much it has it knows what it is, and both end in the same code.
#[device]
pub unsafe fn product<F: Halves>(a: QuantizedArgs, memory: Shared<U32x4>) {
    let record = F::record(a.cols as usize, a.block_units);
    let small = dynamic_bytes() == super::SOME_SHARED;
    a.begin(THREADS / if small { BLOCK_ROWS } else { ROWS }, record.vectors as u32, false);
    a.wait();
    let mut total = MaybeUninit::uninit();
    let block = if small {
        some::product::<F>(&a, &record, memory.cast())
    } else if let Some(block) = large::<F>(&a, record, memory, &mut total) {
        block
    } else {
        return;
    };
    finish(&a, memory.cast(), block, |to, columns, half| {
        let part = WarpTile::of(columns << a.pair(), self::block_columns());
        // Large blocks have come here with their sums.
        let total = total.assume_init_ref();
        if a.pair() == 0 {
            outputs::store(total, to, &part, half);
        } else {
            store_pairs(total, to, &part);
        }
    });
}

/// The sums of a large block; `None`: it has no columns.
#[inline(always)]
unsafe fn large<F: Halves>(
    a: &QuantizedArgs,
    record: Record,
    memory: Shared<U32x4>,
    sums: &mut MaybeUninit<TileSums>,
) -> Option<Block> {
    let block_columns = block_columns();
    // SAFETY: the caller's promise: all threads are here.
    unsafe {
        let of_block = BlockColumns::of_block(block::idx_y(), a.experts, a.columns, block_columns >> a.pair());
        if of_block.count == 0 {
            return None;
        }
        let columns = (of_block.count << a.pair()) as usize;
        let stager = HalfStager::of(a, record, of_block, block_columns, memory);
        let part = WarpTile::of(columns, block_columns);
        let places = StagePointers::of(memory, &part, block_columns);
        let runs = Runs::of(&record);
        let total = sums.write(TileSums::default());
        if part.whole {
            add_all::<F, true>(&stager, &places, runs, total);
        } else {
            add_all::<F, false>(&stager, &places, runs, total);
        }
        static_for!(m in 0..TILES[0] => {
            static_for!(n in 0..TILES[1] => {
                total[m][n] = total[m][n].map(super::whole::<F>);
            });
        });
    }
    // Found anew: what is kept over the loop costs registers in it.
    Some(Block::large(self::block_columns() >> a.pair()))
}

/// Columns of f16 of a block, by its shared memory. Not by a branch, into both sides of which the compiler copies the shuffle behind it.
#[inline(always)]
fn block_columns() -> u32 {
    COLUMNS << u32::from(dynamic_bytes() > super::large_shared(COLUMNS))
}

/// Outputs of all columns as `[column][row]`: of two columns of f16 side by side, which a lane has both of.
#[inline(always)]
unsafe fn store_pairs(total: &TileSums, to: Shared<f32>, part: &WarpTile) {
    static_for!(m in 0..TILES[0] => {
        if m < TILES[0] / 2 || part.whole {
            static_for!(n in 0..TILES[1] => {
                for i in 0..2 {
                    let row = part.first_row + 16 * m + lane() / 4 + 8 * i;
                    let column = part.first_column / 2 + 4 * n + lane() % 4;
                    let [first, rest] = [total[m][n][2 * i], total[m][n][2 * i + 1]];
                    // SAFETY: the caller's promise: nobody reads it before a barrier.
                    unsafe { to.set(column * STRIDE + row, super::of_pair([first, rest])) };
                }
            });
        }
    });
}

/// Adds up the products of all groups, of all tiles of a warp or of half of its rows.
#[inline(always)]
unsafe fn add_all<F: Halves, const WHOLE: bool>(
    stager: &HalfStager,
    places: &StagePointers,
    runs: Runs,
    total: &mut TileSums,
) {
    let mut acc = TileSums::default();
    // SAFETY: the caller's promise: all threads are here.
    unsafe {
        stager.copy(0, 0);
        let mut loaded = stager.load::<F>(0);
        stager.store(0, &loaded);
        pipeline::wait::<0>();
        sync::block();
        let mut group = 0;
        while group < runs.groups {
            let end = (group + runs.length).min(runs.groups);
            while group < end {
                stager.copy(1, group);
                places.add::<F, WHOLE>(&mut acc, 0);
                stager.store(1, &loaded);
                pipeline::wait::<0>();
                sync::block();
                group += 1;
                // Behind the last one it is taken again.
                let next = group.min(runs.groups - 1);
                stager.copy(0, next);
                loaded = stager.load::<F>(next);
                places.add::<F, WHOLE>(&mut acc, 1);
                stager.store(0, &loaded);
                pipeline::wait::<0>();
                sync::block();
            }
            // Here nothing that is loaded takes registers.
            add_class(total, &mut acc);
        }
    }
}
