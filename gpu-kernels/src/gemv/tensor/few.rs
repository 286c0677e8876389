//! The product of a block of threads with few rows and columns, for launches that have few outputs: 32 rows of weights and 16 columns, so
//! that a matrix fills a GPU. Each of the eight warps has all of them and some of the classes of units, two at a time, whose weights it
//! takes apart in registers; no warp waits for another but where classes are added up.

use super::{
    super::{
        int8::frame::{Scale, counted},
        quant_format::{
            BLOCK_ROWS,
            int8::{self, len, less, word, zeros},
        },
        quantized::Args,
    },
    THREADS,
    staging::{CLASSES, Keeping, Kept, Words},
    tiles::{Columns, First, Rows, add_tile, uniform_warp},
};
use crate::format::{
    decode::{Packed, Scales},
    record::{InMemory, Record},
};
use crate::load::{Place, lane, no_constants};
use warpsmith_device::{
    prelude::*,
    shared::Shared,
    static_for, unroll,
    warp::{FULL, shuffle_idx},
};

/// Tiles of 16 rows, and of eight columns, of a block.
const TILES: [usize; 2] = [BLOCK_ROWS as usize / 16, super::FEW_COLUMNS as usize / 8];
/// Rows that a lane has a part of.
const ROWS: usize = 2 * TILES[0];
/// Units that are multiplied at once: one of each of two neighbouring classes.
const AT_ONCE: usize = 2;
/// From the sums of a column to the next, so that neighbouring columns begin in other banks.
const STRIDE: usize = super::FEW_STRIDE;
const WARPS: usize = THREADS as usize / 32;

type Sums = [[[f32; 4]; TILES[1]]; TILES[0]];

/// Where a lane finds its parts of units.
struct Lane {
    record: Record,
    rows: [InMemory; ROWS],
    /// The row whose scales it takes apart, for four lanes.
    mine: InMemory,
    x: [In<U32x4>; TILES[1]],
}

/// What is loaded of a unit, as it is.
struct Loaded<const BYTES: usize> {
    u: usize,
    codes: [[u32; 3]; ROWS],
    numbers: Words,
    x: [[[u32; 2]; BYTES]; TILES[1]],
    scales: [Scale<BYTES>; TILES[1]],
}

impl Lane {
    #[inline(always)]
    unsafe fn of<F: Packed, const BYTES: usize>(a: &Args) -> Lane {
        let record = F::record(a.cols as usize, a.block_units);
        let (g, t) = ((lane() / 4) as u32, (lane() % 4) as u32);
        let first = block::idx_x() * BLOCK_ROWS + g;
        // SAFETY: the rows are among the weights, and the columns among those of `x`; after the last it is taken again.
        unsafe {
            let row = |r: u32| InMemory(a.row(a.rows, first, 8 * r, record.vectors as u32));
            let column = |n: usize| {
                let column = (block::idx_y() * super::FEW_COLUMNS + 8 * n as u32 + g).min(a.columns - 1);
                a.x.from(column as usize * len(a.cols, BYTES as u32) as usize)
            };
            Lane {
                rows: core::array::from_fn(|r| row(r as u32)),
                mine: row(t),
                x: core::array::from_fn(column),
                record,
            }
        }
    }

    #[inline(always)]
    unsafe fn load<F: Packed, const BYTES: usize>(&self, u: usize) -> Loaded<BYTES> {
        let (numbers, t) = (Words::default(), lane() % 4);
        // One number for all columns, and not one that each is found by.
        let [codes_at, scale_at] = [int8::codes(BYTES, u), int8::scale(BYTES, u)].map(unroll::opaque);
        // SAFETY: the caller's promise: the unit is there.
        unsafe {
            let codes = self.rows.map(|row| F::share(row, &self.record, u, t));
            F::scales(Keeping(self.mine, &numbers), &self.record, u);
            let x = self.x.map(|x| {
                let words = x.from(codes_at).cast::<u32>().from(word(BYTES, 0, t));
                core::array::from_fn(|byte| {
                    if BYTES == 1 { words.load2(0).0 } else { [0, 1].map(|half| words.at(2 * half + byte)) }
                })
            });
            Loaded { u, codes, numbers, x, scales: self.x.map(|x| Scale::at(x, scale_at)) }
        }
    }

    /// Adds the products of a unit.
    #[inline(always)]
    unsafe fn add<F: Packed, const BYTES: usize>(
        &self,
        sums: &mut Sums,
        loaded: &Loaded<BYTES>,
        two: bool,
        first: &First<BYTES>,
    ) {
        let t = lane() % 4;
        // SAFETY: the caller's promise: all lanes are here.
        unsafe {
            loaded.numbers.again();
            let Scales { scale, shift } = F::scales(Kept(&loaded.numbers), &self.record, loaded.u);
            let second = if F::SCALES == 2 { scale[1] } else { shift[0] };
            // Of row `r` the lane of four that has it.
            let of_row = |v: f32, r: usize| shuffle_idx(FULL, v, (lane() - t + r) as u32);
            let codes = loaded.codes.map(|share| F::of_share(share, t));
            let rows: [Rows; TILES[0]] = core::array::from_fn(|m| {
                let [a, b] = [codes[2 * m], codes[2 * m + 1]];
                let numbers = |v: f32| [of_row(v, 2 * m), of_row(v, 2 * m + 1)];
                let others = if F::SCALES == 2 || F::SHIFTED { numbers(second) } else { [0.0; 2] };
                Rows { codes: [a[0], b[0], a[1], b[1]], numbers: [numbers(scale[0]), others] }
            });
            static_for!(n in 0..TILES[1] => {
                if n == 0 || two {
                    let of_column = |v: f32| [0, 1].map(|k| shuffle_idx(FULL, v, (8 * t + 4 * k) as u32));
                    let own = counted::<F>(loaded.scales[n].d);
                    let d = of_column(own);
                    let columns = Columns {
                        codes: loaded.x[n],
                        d,
                        less: d.map(less::<BYTES>),
                        sums: if F::SHIFTED {
                            of_column(loaded.scales[n].sum::<F>(own, less::<BYTES>(own)))
                        } else {
                            [0.0; 2]
                        },
                    };
                    for m in 0..TILES[0] {
                        add_tile::<F, BYTES>(&mut sums[m][n], &rows[m], &columns, first);
                    }
                }
            });
        }
    }
}

/// A block's outputs, by way of shared memory.
#[device]
pub unsafe fn product<F: Packed, const BYTES: usize>(a: Args, memory: Shared<f32>) {
    // Columns with tables have large blocks.
    let a = Args { experts: None, ..a };
    let of_lane = Lane::of::<F, BYTES>(&a);
    grid::launch_dependents();
    let (thread, per_row) = (thread::idx_x(), THREADS / BLOCK_ROWS);
    let row = a.row(a.rows, block::idx_x() * BLOCK_ROWS + thread / per_row, 0, of_lane.record.vectors as u32);
    a.epilogue.ask(row, of_lane.record.vectors, (thread % per_row) as usize);
    grid::wait_dependencies();
    let units = of_lane.record.units as u32;
    let columns = (a.columns - block::idx_y() * super::FEW_COLUMNS).min(super::FEW_COLUMNS) as usize;
    let (two, zeros, none) = (columns > 8, zeros::<BYTES>(), no_constants(a.x));
    let first: First<BYTES> = core::array::from_fn(|byte| none.map(|none| (zeros[byte] + none) as i32));
    let (mut totals, warp) = ([0.0f32; TILES[1]], uniform_warp());
    let mut done = 0;
    // Half of the classes, of which each warp has two, and then the others.
    while done < CLASSES {
        let class = done + (AT_ONCE * warp) as u32;
        let mut sums: [Sums; AT_ONCE] = Default::default();
        let mut u = class;
        if u < units {
            // Behind the last unit it is taken again, and dropped.
            let load = |u: u32| [0, 1].map(|i| of_lane.load::<F, BYTES>((u + i).min(units - 1) as usize));
            let mut loaded = load(u);
            let mut more = true;
            while more {
                let after = u + CLASSES;
                more = after < units;
                let next = load(if more { after } else { u });
                of_lane.add::<F, BYTES>(&mut sums[0], &loaded[0], two, &first);
                if u + 1 < units {
                    of_lane.add::<F, BYTES>(&mut sums[1], &loaded[1], two, &first);
                }
                (u, loaded) = (after, next);
            }
        }
        store(&sums, memory.from((AT_ONCE * warp) * super::FEW_COLUMNS as usize * STRIDE));
        sync::block();
        for n in 0..TILES[1] {
            let at = (warp + n * WARPS) * STRIDE + lane();
            let mut i = 0;
            while i < AT_ONCE * WARPS {
                totals[n] += memory.get(i * super::FEW_COLUMNS as usize * STRIDE + at);
                i += 1;
            }
        }
        sync::block();
        done += (AT_ONCE * WARPS) as u32;
    }
    for n in 0..TILES[1] {
        let column = warp + n * WARPS;
        let of_column = memory.from(column * STRIDE);
        of_column.set(lane(), totals[n]);
        sync::warp(FULL);
        if column < columns {
            let column = block::idx_y() * super::FEW_COLUMNS + column as u32;
            let place = Place { thread: lane() as u32, block: block::idx_x(), column };
            let (outputs, root) = (BLOCK_ROWS >> a.epilogue.shift(), a.root(column as usize));
            a.finish_with::<true>(place, BLOCK_ROWS, outputs, (root, column), |row| of_column.get(row as usize));
        }
    }
}

/// Sums of the classes of a warp, as `[class][column][row]`.
#[inline(always)]
unsafe fn store(sums: &[Sums; AT_ONCE], to: Shared<f32>) {
    let (g, t) = (lane() / 4, lane() % 4);
    static_for!(class in 0..AT_ONCE => {
        static_for!(n in 0..TILES[1] => {
            for m in 0..TILES[0] {
                for i in 0..4 {
                    let column = class * super::FEW_COLUMNS as usize + 8 * n + 2 * t + i % 2;
                    // SAFETY: the caller's promise: nobody reads it before a barrier.
                    unsafe { to.set(column * STRIDE + 16 * m + i / 2 * 8 + g, sums[class][m][n][i]) };
                }
            }
        });
    });
}
