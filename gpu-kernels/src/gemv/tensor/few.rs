//! The product of a block of threads with few rows and columns, for launches that have few outputs: 32 rows of weights and 16 columns, so
//! that a matrix fills a GPU. Each of the eight warps has all of them and some of the classes of units, two at a time, whose weights it
//! takes apart in registers; no warp waits for another but where classes are added up.
//!
//! Of one byte the weights are the left factor, and a tile of columns that there is not costs nothing. Of two the activations are, as in
//! blocks of [`some`](super::some) columns: both bytes of a column come of one instruction, to the lane that has its scale, and are
//! loaded as they are multiplied.

use super::{
    super::{
        int8::frame::{Scale, counted},
        quant_format::{
            BLOCK_ROWS,
            int8::{self, len, less, word, zeros},
        },
        quantized::QuantizedArgs,
    },
    THREADS,
    outputs::{self, Block, SMALL_STRIDE},
    some::{self, WeightUnit},
    staging::{CLASSES, Indexed, Keeping, Kept, Words},
    tiles::{First, LeftRows, RightColumns, add_tile, uniform_warp},
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

/// Tiles of eight rows, and of eight columns, of a block.
const TILES: [usize; 2] = [BLOCK_ROWS as usize / 8, super::FEW_COLUMNS as usize / 8];
/// Units that are multiplied at once: one of each of two neighbouring classes.
const AT_ONCE: usize = 2;
const WARPS: usize = THREADS as usize / 32;

/// Of one byte by two tiles of rows and one of columns, `2 * rows + column`; of two by tile of rows, with both of columns.
type FewSums = [[f32; 4]; TILES[0] / 2 * TILES[1]];
const _: () = assert!(TILES[0] / 2 * TILES[1] == TILES[0]);

/// From a column of the sums of a class to the next: what lanes store at once lies in other banks.
const fn stride(bytes: usize) -> usize {
    BLOCK_ROWS as usize + 4 * bytes
}
const _: () = assert!(super::FEW_SHARED as usize == 4 * AT_ONCE * WARPS * super::FEW_COLUMNS as usize * stride(2));

/// Where a lane finds its parts of units.
struct Lane {
    record: Record,
    /// Which of four it is, and the first of these.
    t: usize,
    four: usize,
    rows: [Indexed; TILES[0]],
    /// The row whose scales it takes apart, for the lanes that share them.
    mine: Indexed,
    x: [In<U32x4>; TILES[1]],
}

/// What is loaded of a unit of activations, of a tile of columns: two words of each byte.
#[derive(Clone, Copy)]
struct ActivationUnit<const BYTES: usize> {
    codes: [u32; 4],
    scale: Scale<BYTES>,
}

/// What is loaded of a unit, of both operands of its product.
struct Operands<const BYTES: usize> {
    weights: WeightUnit,
    x: [ActivationUnit<BYTES>; TILES[1]],
}

impl Lane {
    #[inline(always)]
    unsafe fn of<F: Packed, const BYTES: usize>(a: &QuantizedArgs) -> Lane {
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
    unsafe fn weights<F: Packed>(&self, u: usize) -> WeightUnit {
        let numbers = Words::default();
        // SAFETY: the caller's promise: the unit is there.
        unsafe {
            let codes = self.rows.map(|row| F::share(row, &self.record, u, self.t));
            F::scales(Keeping(self.mine, &numbers), &self.record, u);
            WeightUnit { u, codes, numbers }
        }
    }

    /// Asks for unit `u` of the activations of a tile of columns.
    #[inline(always)]
    unsafe fn inputs<const BYTES: usize>(&self, n: usize, u: usize) -> ActivationUnit<BYTES> {
        let at = again((4 * int8::codes(BYTES, u) + word(BYTES, 0, self.t)) as u32) as usize;
        // SAFETY: the caller's promise: the unit is there.
        let codes = unsafe {
            let words = self.x[n].cast::<u32>();
            if BYTES == 1 {
                let U32x2([a, b]) = words.load2(at);
                [a, b, 0, 0]
            } else {
                words.load4(at).0
            }
        };
        let place = again(Scale::<BYTES>::place(u) as u32) as usize;
        // SAFETY: as above.
        ActivationUnit { codes, scale: unsafe { Scale::at(self.x[n], place) } }
    }

    /// Takes the weights of a unit apart: the codes of each of its rows, and the numbers of one.
    #[inline(always)]
    unsafe fn taken_apart<F: Packed>(&self, weights: &WeightUnit) -> ([[u32; 2]; TILES[0]], [f32; 2]) {
        weights.numbers.again();
        // SAFETY: the caller's promise: they were loaded.
        let Scales { scale, shift } = unsafe { F::scales(Kept(&weights.numbers), &self.record, weights.u) };
        let second = if F::SCALES == 2 { scale[1] } else { shift[0] };
        (weights.codes.map(|share| F::of_share(share, self.t)), [scale[0], second])
    }

    /// Adds the products of a unit, and asks for unit `after` in its place, of each part as soon as it is done with.
    #[inline(always)]
    unsafe fn add<F: Packed, const BYTES: usize>(
        &self,
        sums: &mut FewSums,
        loaded: &mut Operands<BYTES>,
        after: usize,
        two: bool,
        first: &First<BYTES>,
    ) {
        // SAFETY: the caller's promise: all lanes are here.
        unsafe {
            let (codes, numbers) = self.taken_apart::<F>(&loaded.weights);
            let rows: [LeftRows; TILES[0] / 2] =
                core::array::from_fn(
                    |m| if BYTES == 1 { self.left::<F>(m, &codes, numbers) } else { LeftRows::default() },
                );
            let of_tiles: [some::RightRows; TILES[0]] = core::array::from_fn(|n| {
                if BYTES == 1 { some::RightRows::default() } else { some::RightRows::of::<F>(n, codes[n], numbers) }
            });
            loaded.weights = self.weights::<F>(after);
            static_for!(n in 0..TILES[1] => {
                if n == 0 || two {
                    let ActivationUnit { codes, scale } = loaded.x[n];
                    let d = counted::<F>(scale.d);
                    if BYTES == 1 {
                        let columns = self.columns::<F, BYTES>(codes, &scale, d);
                        for m in 0..TILES[0] / 2 {
                            add_tile::<F, BYTES>(&mut sums[2 * m + n], &rows[m], &columns, first);
                        }
                    } else {
                        let less = less::<BYTES>(d);
                        let sum = if F::SHIFTED { scale.sum::<F>(d, less) } else { 0.0 };
                        let numbers = some::Numbers { d, less, sum };
                        some::add_column::<F, BYTES>(sums, n, &of_tiles, codes, &numbers, first[0]);
                    }
                    loaded.x[n] = self.inputs(n, after);
                }
            });
        }
    }

    /// Two tiles of rows as a left factor.
    #[inline(always)]
    unsafe fn left<F: Packed>(&self, m: usize, codes: &[[u32; 2]; TILES[0]], numbers: [f32; 2]) -> LeftRows {
        let [a, b] = [codes[2 * m], codes[2 * m + 1]];
        // Of each row the lane of four that has it. SAFETY: the caller's promise: all lanes are here.
        let of_rows = |v: f32| [0, 1].map(|i| unsafe { shuffle_idx(FULL, v, (self.four + 2 * m + i) as u32) });
        let others = if F::SCALES == 2 || F::SHIFTED { of_rows(numbers[1]) } else { [0.0; 2] };
        LeftRows { codes: [a[0], b[0], a[1], b[1]], numbers: [of_rows(numbers[0]), others] }
    }

    /// A tile of columns of one byte as a right factor; `d` as [`counted`].
    #[inline(always)]
    unsafe fn columns<F: Packed, const BYTES: usize>(
        &self,
        codes: [u32; 4],
        scale: &Scale<BYTES>,
        d: f32,
    ) -> RightColumns<BYTES> {
        // SAFETY: the caller's promise: all lanes are here.
        let of_column = |v: f32| [0, 1].map(|k| unsafe { shuffle_idx(FULL, v, (8 * self.t + 4 * k) as u32) });
        let of_both = of_column(d);
        let sums = if F::SHIFTED { of_column(scale.sum::<F>(d, less::<BYTES>(d))) } else { [0.0; 2] };
        RightColumns { codes: [[codes[0], codes[1]]; BYTES], d: of_both, less: of_both.map(less::<BYTES>), sums }
    }
}

/// A block's sums, by way of shared memory.
#[device]
pub unsafe fn product<F: Packed, const BYTES: usize>(a: &QuantizedArgs, memory: Shared<f32>) -> Block {
    let of_lane = Lane::of::<F, BYTES>(a);
    let units = of_lane.record.units as u32;
    // More columns than a tile has.
    let two = a.columns - block::idx_y() * super::FEW_COLUMNS > 8;
    let (zeros, none) = (zeros::<BYTES>(), no_constants(a.x));
    // Of two bytes a column has the sums of the high ones in the upper rows, and of the low ones in the lower.
    let first: First<BYTES> = [core::array::from_fn(|i| (zeros[i / 2 * (BYTES - 1)] + none[i]) as i32); BYTES];
    let (mut total, warp) = ([0.0f32; 2], uniform_warp());
    // Two rows of a column for each thread.
    let (column, row) = (warp + lane() / 16 * WARPS, lane() % 16 * 2);
    // Half of the classes, of which each warp has two, and then the others. Behind the last unit it is taken again, and dropped.
    let (mut done, of_half) = (0, (AT_ONCE * WARPS) as u32);
    let there = |u: u32| u.min(units - 1) as usize;
    let load =
        |u: usize| Operands { weights: of_lane.weights::<F>(u), x: core::array::from_fn(|n| of_lane.inputs(n, u)) };
    let begin = (AT_ONCE * warp) as u32;
    let mut loaded = [load(there(begin)), load(there(begin + 1))];
    while done < CLASSES {
        let class = done + begin;
        let mut sums = [FewSums::default(); AT_ONCE];
        let mut u = class;
        // The next unit of a class, or the first of the class of the other half.
        let after = |u: u32, class: u32| there(if u + CLASSES < units { u + CLASSES } else { class + of_half });
        while u < units {
            of_lane.add::<F, BYTES>(&mut sums[0], &mut loaded[0], after(u, class), two, &first);
            if u + 1 < units {
                of_lane.add::<F, BYTES>(&mut sums[1], &mut loaded[1], after(u + 1, class + 1), two, &first);
            }
            u += CLASSES;
        }
        store::<BYTES>(&sums, memory.from((AT_ONCE * warp) * super::FEW_COLUMNS as usize * stride(BYTES)));
        sync::block();
        let mine = memory.from(column * stride(BYTES) + row);
        static_for!(of_warp in 0..WARPS => {
            static_for!(i in 0..AT_ONCE => {
                let class = AT_ONCE * of_warp + i;
                let F32x2(pair) = mine.get2(class * super::FEW_COLUMNS as usize * stride(BYTES));
                total = [total[0] + pair[0], total[1] + pair[1]];
            });
        });
        sync::block();
        done += of_half;
    }
    memory.set2(column * SMALL_STRIDE + row, F32x2(total));
    // Those columns the warp finishes too.
    sync::warp(FULL);
    Block::small(super::FEW_COLUMNS)
}

/// Sums of the classes of a warp, as `[class][column][row]`.
#[inline(always)]
unsafe fn store<const BYTES: usize>(sums: &[FewSums; AT_ONCE], to: Shared<f32>) {
    let (g, t) = (lane() / 4, lane() % 4);
    static_for!(class in 0..AT_ONCE => {
        let place = |column: usize, row: usize| {
            (class * super::FEW_COLUMNS as usize + column) * stride(BYTES) + row
        };
        static_for!(i in 0..TILES[0] => {
            let of_tile = sums[class][i];
            // SAFETY: the caller's promise: nobody reads it before a barrier.
            unsafe {
                if BYTES == 1 {
                    let (m, n) = (i / 2, i % 2);
                    for k in 0..4 {
                        to.set(place(8 * n + 2 * t + k % 2, 16 * m + k / 2 * 8 + g), of_tile[k]);
                    }
                } else {
                    for half in 0..2 {
                        let pair = F32x2([of_tile[2 * half], of_tile[2 * half + 1]]);
                        to.set2(place(8 * half + g, 8 * i + 2 * t), pair);
                    }
                }
            }
        });
    });
}
