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
    outputs::{self, Block, SMALL_STRIDE as STRIDE},
    staging::{CLASSES, Indexed, Keeping, Kept, Words},
    tiles::{Columns, First, Rows, add_tile, uniform_warp},
};
use crate::format::{
    decode::{Packed, Scales},
    record::{InMemory, Record},
};
use crate::load::{again, lane, no_constants};
use warpsmith_device::{
    prelude::*,
    shared::Shared,
    static_for,
    warp::{FULL, shuffle_idx},
};

/// Tiles of 16 rows, and of eight columns, of a block.
const TILES: [usize; 2] = [BLOCK_ROWS as usize / 16, super::FEW_COLUMNS as usize / 8];
/// Rows that a lane has a part of.
const ROWS: usize = 2 * TILES[0];
/// Units that are multiplied at once: one of each of two neighbouring classes.
const AT_ONCE: usize = 2;
const WARPS: usize = THREADS as usize / 32;

type Sums = [[[f32; 4]; TILES[1]]; TILES[0]];

/// Where a lane finds its parts of units.
struct Lane {
    record: Record,
    /// Which of four it is, and the first of these.
    t: usize,
    four: usize,
    rows: [Indexed; ROWS],
    /// The row whose scales it takes apart, for four lanes.
    mine: Indexed,
    x: [In<U32x4>; TILES[1]],
}

/// What is loaded of a unit of weights, as it is.
struct Weights {
    u: usize,
    codes: [[u32; 3]; ROWS],
    numbers: Words,
}

/// What is loaded of a unit of activations, of a tile of columns.
#[derive(Clone, Copy)]
struct Inputs<const BYTES: usize> {
    codes: [[u32; 2]; BYTES],
    scale: Scale<BYTES>,
}

/// What is loaded of a unit.
struct Loaded<const BYTES: usize> {
    weights: Weights,
    x: [Inputs<BYTES>; TILES[1]],
}

impl Lane {
    #[inline(always)]
    unsafe fn of<F: Packed, const BYTES: usize>(a: &Args) -> Lane {
        let record = F::record(a.cols as usize, a.block_units);
        let (g, t) = ((lane() / 4) as u32, (lane() % 4) as u32);
        // SAFETY: the rows are among the weights, and the columns among those of `x`; after the last it is taken again.
        unsafe {
            let row = |r: u32| Indexed(InMemory(a.of_row(outputs::row(a, BLOCK_ROWS, r, g), record.vectors as u32)));
            let column = |n: usize| {
                let column = (block::idx_y() * super::FEW_COLUMNS + 8 * n as u32 + g).min(a.columns - 1);
                a.x.from(column as usize * len(a.cols, BYTES as u32) as usize)
            };
            Lane {
                t: t as usize,
                four: 4 * g as usize,
                rows: core::array::from_fn(|r| row(r as u32)),
                mine: row(t),
                x: core::array::from_fn(column),
                record,
            }
        }
    }

    /// Asks for the weights of unit `u`.
    #[inline(always)]
    unsafe fn weights<F: Packed>(&self, u: usize) -> Weights {
        let numbers = Words::default();
        // SAFETY: the caller's promise: the unit is there.
        unsafe {
            let codes = self.rows.map(|row| F::share(row, &self.record, u, self.t));
            F::scales(Keeping(self.mine, &numbers), &self.record, u);
            Weights { u, codes, numbers }
        }
    }

    /// Asks for unit `u` of the activations of a tile of columns.
    #[inline(always)]
    unsafe fn inputs<const BYTES: usize>(&self, n: usize, u: usize) -> Inputs<BYTES> {
        // Of one byte two words, and of two a vector, in which those of one lie apart.
        let at = again((4 * int8::codes(BYTES, u) + word(BYTES, 0, self.t)) as u32) as usize;
        // SAFETY: the caller's promise: the unit is there.
        let codes = unsafe {
            let words = self.x[n].cast::<u32>();
            if BYTES == 1 {
                [words.load2(at).0; BYTES]
            } else {
                core::array::from_fn(|byte| [0, 1].map(|half| words.at(at + 2 * half + byte)))
            }
        };
        let place = again(Scale::<BYTES>::place(u) as u32) as usize;
        // SAFETY: as above.
        Inputs { codes, scale: unsafe { Scale::at(self.x[n], place) } }
    }

    /// Takes the weights of a unit apart.
    #[inline(always)]
    unsafe fn taken_apart<F: Packed>(&self, weights: &Weights) -> [Rows; TILES[0]] {
        weights.numbers.again();
        // SAFETY: the caller's promise: all lanes are here.
        unsafe {
            let Scales { scale, shift } = F::scales(Kept(&weights.numbers), &self.record, weights.u);
            let second = if F::SCALES == 2 { scale[1] } else { shift[0] };
            // Of row `r` the lane of four that has it.
            let of_row = |v: f32, r: usize| shuffle_idx(FULL, v, (self.four + r) as u32);
            let codes = weights.codes.map(|share| F::of_share(share, self.t));
            core::array::from_fn(|m| {
                let [a, b] = [codes[2 * m], codes[2 * m + 1]];
                let numbers = |v: f32| [of_row(v, 2 * m), of_row(v, 2 * m + 1)];
                let others = if F::SCALES == 2 || F::SHIFTED { numbers(second) } else { [0.0; 2] };
                Rows { codes: [a[0], b[0], a[1], b[1]], numbers: [numbers(scale[0]), others] }
            })
        }
    }

    /// Adds the products of a unit, and asks for unit `after` in its place, of each part as soon as it is done with.
    #[inline(always)]
    unsafe fn add<F: Packed, const BYTES: usize>(
        &self,
        sums: &mut Sums,
        loaded: &mut Loaded<BYTES>,
        after: usize,
        two: bool,
        first: &First<BYTES>,
    ) {
        // SAFETY: the caller's promise: all lanes are here.
        unsafe {
            let rows = self.taken_apart::<F>(&loaded.weights);
            loaded.weights = self.weights::<F>(after);
            static_for!(n in 0..TILES[1] => {
                if n == 0 || two {
                    let Inputs { codes, scale } = loaded.x[n];
                    let of_column = |v: f32| [0, 1].map(|k| shuffle_idx(FULL, v, (8 * self.t + 4 * k) as u32));
                    let own = counted::<F>(scale.d);
                    let d = of_column(own);
                    let sums_of = if F::SHIFTED {
                        of_column(scale.sum::<F>(own, less::<BYTES>(own)))
                    } else {
                        [0.0; 2]
                    };
                    let columns = Columns { codes, d, less: d.map(less::<BYTES>), sums: sums_of };
                    for m in 0..TILES[0] {
                        add_tile::<F, BYTES>(&mut sums[m][n], &rows[m], &columns, first);
                    }
                    loaded.x[n] = self.inputs(n, after);
                }
            });
        }
    }
}

/// A block's sums, by way of shared memory.
#[device]
pub unsafe fn product<F: Packed, const BYTES: usize>(a: &Args, memory: Shared<f32>) -> Block {
    let of_lane = Lane::of::<F, BYTES>(a);
    let units = of_lane.record.units as u32;
    // More columns than a tile has.
    let two = a.columns - block::idx_y() * super::FEW_COLUMNS > 8;
    let (zeros, none) = (zeros::<BYTES>(), no_constants(a.x));
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
            let load = |u: usize| Loaded {
                weights: of_lane.weights::<F>(u),
                x: core::array::from_fn(|n| of_lane.inputs(n, u)),
            };
            let there = |u: u32| u.min(units - 1) as usize;
            let mut loaded = [load(there(u)), load(there(u + 1))];
            while u < units {
                let after = u + CLASSES;
                of_lane.add::<F, BYTES>(&mut sums[0], &mut loaded[0], there(after), two, &first);
                if u + 1 < units {
                    of_lane.add::<F, BYTES>(&mut sums[1], &mut loaded[1], there(after + 1), two, &first);
                }
                u = after;
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
        memory.set((warp + n * WARPS) * STRIDE + lane(), totals[n]);
    }
    // Those columns the warp finishes too.
    sync::warp(FULL);
    Block::small(super::FEW_COLUMNS)
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
