//! The product of a block of threads with few rows and more columns than one of [`few`](super::few): 32 rows of weights, and 32 or 64
//! columns. Each of the eight warps has all of them and some of the classes of units, whose weights it takes apart in registers, once for
//! all columns; no warp waits for another but where classes are added up.
//!
//! Activations are the left factor: a lane then has results of the columns whose activations it loads, with their scales, and what it
//! needs of a unit lies in one place. What it multiplied it asks for of its next unit at once, into the same registers.

use super::{
    super::{
        int8::frame::{Scale, counted},
        quant_format::{
            BLOCK_ROWS,
            int8::{codes, len, less, scaled, word, zeros},
        },
        quantized::QuantizedArgs,
    },
    SOME_COLUMNS, SOME_SHARED, THREADS,
    outputs::{self, Block, SMALL_STRIDE},
    staging::{CLASSES, Indexed, Keeping, Kept, Words},
    tiles::uniform_warp,
};
use crate::format::{
    decode::{Packed, Scales},
    record::{InMemory, Record},
};
use crate::load::{lane, no_constants};
use warpsmith_device::{
    mma::{mma_i8, mma_i8_k16, mma_i8_u8},
    prelude::*,
    shared::Shared,
    static_for, unroll,
    warp::{FULL, shuffle_idx},
};

/// Tiles of eight rows of a block, and of 16 columns that it has at most.
const TILES: [usize; 2] = [BLOCK_ROWS as usize / 8, SOME_COLUMNS as usize / 16];
const ROWS: usize = BLOCK_ROWS as usize;
const WARPS: usize = THREADS as usize / 32;
/// Quads of rows of a column's sums, and such quads that a thread adds up at most.
const QUADS: usize = ROWS / 4;
const OF_THREAD: usize = SOME_COLUMNS as usize * QUADS / THREADS as usize;
const _: () = assert!(SOME_SHARED as usize == 4 * WARPS * ROWS);

/// Sums of a tile of columns, by tile of rows.
type ColumnSums = [[f32; 4]; TILES[0]];

/// What a lane has of the codes of a tile of columns of a unit. Of eight bits the first is a left factor with a column in the upper half of
/// its rows and another in the lower one; of 16 each is one with the high bytes of a column and the low ones.
type Factors = [[u32; 4]; 2];

/// Where a lane finds its parts of units: of its row in each tile, and of its two columns in each.
struct LanePointers<const BYTES: usize> {
    record: Record,
    rows: [Indexed; TILES[0]],
    /// The row whose scales it takes apart, for all lanes.
    mine: Indexed,
    x: [[In<u32>; 2]; TILES[1]],
    /// The columns whose scales it loads, for the lanes that share them: one of each two tiles.
    scaled: [In<U32x4>; TILES[1] / 2],
}

/// What is loaded of a unit of weights, as it is.
pub struct WeightUnit {
    pub u: usize,
    pub codes: [[u32; 3]; TILES[0]],
    pub numbers: Words,
}

/// What a lane has of a tile of rows of a unit, as a right factor: two quads of a row, and the numbers of two rows.
#[derive(Default)]
pub struct RightRows {
    codes: [u32; 2],
    numbers: [[f32; 2]; 2],
}

impl RightRows {
    /// Those of tile `n`, of its codes and of the numbers of row `8 * t + g`, where lane `t` of four is in group `g` of these.
    #[inline(always)]
    pub unsafe fn of<F: Packed>(n: usize, codes: [u32; 2], [first, second]: [f32; 2]) -> RightRows {
        let t = lane() % 4;
        // Of the rows whose results the lane has the lanes that have them. SAFETY: the caller's promise: all lanes are here.
        let of_rows = |v: f32| [0, 1].map(|i| unsafe { shuffle_idx(FULL, v, (8 * t + 4 * i + n) as u32) });
        let others = if F::SCALES == 2 || F::SHIFTED { of_rows(second) } else { [0.0; 2] };
        RightRows { codes, numbers: [of_rows(first), others] }
    }
}

impl<const BYTES: usize> LanePointers<BYTES> {
    /// Of a block of `of_block` columns.
    #[inline(always)]
    unsafe fn of<F: Packed>(a: &QuantizedArgs, of_block: u32) -> Self {
        let record = F::record(a.cols as usize, a.block_units);
        let (g, t) = ((lane() / 4) as u32, (lane() % 4) as u32);
        // SAFETY: the rows are among the weights, and the columns among those of `x`; after the last it is taken again.
        unsafe {
            let row = |r: u32| Indexed(InMemory(a.of_row(outputs::row(a, BLOCK_ROWS, r, g), record.vectors as u32)));
            let column = |n: u32| {
                let column = (block::idx_y() * of_block + 8 * n + g).min(a.columns - 1);
                a.x.from(column as usize * len(a.cols, BYTES as u32) as usize)
            };
            let codes = |n: usize| column(n as u32).cast::<u32>().from(word(BYTES, 0, t as usize));
            LanePointers {
                rows: core::array::from_fn(|r| row(r as u32)),
                mine: row(t),
                x: core::array::from_fn(|m| [codes(2 * m), codes(2 * m + 1)]),
                scaled: core::array::from_fn(|i| column(4 * i as u32 + t)),
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
            let codes = self.rows.map(|row| F::share(row, &self.record, u, lane() % 4));
            F::scales(Keeping(self.mine, &numbers), &self.record, u);
            WeightUnit { u, codes, numbers }
        }
    }

    /// Asks for the codes of a tile of columns of the unit that begins at vector `at`.
    #[inline(always)]
    unsafe fn factors(&self, m: usize, at: usize) -> Factors {
        let [a, b] = self.x[m];
        // SAFETY: the caller's promise: the unit is there.
        unsafe {
            if BYTES == 1 {
                [[a.at(4 * at), b.at(4 * at), a.at(4 * at + 1), b.at(4 * at + 1)], [0; 4]]
            } else {
                [a, b].map(|x| x.load4(4 * at).0)
            }
        }
    }

    /// Takes the weights of a unit apart.
    #[inline(always)]
    unsafe fn taken_apart<F: Packed>(&self, weights: &WeightUnit) -> [RightRows; TILES[0]] {
        let t = lane() % 4;
        // SAFETY: the caller's promise: all lanes are here.
        unsafe {
            weights.numbers.again();
            let Scales { scale, shift } = F::scales(Kept(&weights.numbers), &self.record, weights.u);
            let second = if F::SCALES == 2 { scale[1] } else { shift[0] };
            core::array::from_fn(|n| RightRows::of::<F>(n, F::of_share(weights.codes[n], t), [scale[0], second]))
        }
    }
}

/// The scale of a column, what products by it are too large by, and what addends of weights are multiplied with.
#[derive(Clone, Copy)]
pub struct Numbers {
    pub d: f32,
    pub less: f32,
    pub sum: f32,
}

impl Numbers {
    /// Those of column `j` of eight among the tiles of two loaded scales.
    #[inline(always)]
    unsafe fn of<F: Packed, const BYTES: usize>(scale: &Scale<BYTES>, j: usize) -> Numbers {
        let own = counted::<F>(scale.d);
        let from = (lane() & !3 | j % 4) as u32;
        // SAFETY: the caller's promise: all lanes are here.
        unsafe {
            let d = shuffle_idx(FULL, own, from);
            let sum = if F::SHIFTED { shuffle_idx(FULL, scale.sum::<F>(own, less::<BYTES>(own)), from) } else { 0.0 };
            Numbers { d, less: less::<BYTES>(d), sum }
        }
    }
}

/// Integer sums of a tile of rows and a left factor, over each part of a unit.
#[inline(always)]
unsafe fn dots<F: Packed>(a: [u32; 4], b: [u32; 2], first: [i32; 4]) -> [[i32; 4]; 2] {
    // SAFETY: the caller's promise: all lanes are here.
    unsafe {
        match (F::SCALES, F::OFFSET) {
            (2, _) => [mma_i8_k16(first, [a[0], a[1]], b[0]), mma_i8_k16(first, [a[2], a[3]], b[1])],
            (_, 0) => [mma_i8_u8(first, a, b), [0; 4]],
            _ => [mma_i8(first, a, b), [0; 4]],
        }
    }
}

/// Adds the products of a column of a tile of them, in its lower or upper half. `sums`: for each part of the unit and byte.
#[inline(always)]
fn add<F: Packed, const BYTES: usize>(
    to: &mut [f32; 4],
    half: usize,
    rows: &RightRows,
    sums: impl Fn(usize, usize, usize) -> u32,
    of: &Numbers,
) {
    for k in 0..2 {
        let to = &mut to[2 * half + k];
        for part in 0..F::SCALES {
            let sums: [u32; BYTES] = core::array::from_fn(|byte| sums(part, byte, k));
            *to = math::fma(rows.numbers[part][k], scaled(sums, of.d, of.less), *to);
        }
        if F::SHIFTED {
            *to = math::fma(rows.numbers[1][k], of.sum, *to);
        }
    }
}

/// Adds the products of all tiles of rows and one of columns over a unit. `two`: there is more than the first half of the columns.
#[inline(always)]
unsafe fn add_tile<F: Packed, const BYTES: usize>(
    to: &mut ColumnSums,
    rows: &[RightRows; TILES[0]],
    x: &Factors,
    numbers: [impl Fn() -> Numbers; 2],
    two: bool,
    first: [i32; 4],
) {
    let [lower, upper] = numbers;
    // SAFETY: the caller's promise: all lanes are here.
    unsafe {
        if BYTES == 1 {
            let dots: [_; TILES[0]] = core::array::from_fn(|n| dots::<F>(x[0], rows[n].codes, first));
            let of_half = |half: usize| {
                move |of: [[i32; 4]; 2]| move |part: usize, _: usize, k: usize| of[part][2 * half + k] as u32
            };
            let numbers = lower();
            static_for!(n in 0..TILES[0] => {
                add::<F, BYTES>(&mut to[n], 0, &rows[n], of_half(0)(dots[n]), &numbers);
            });
            if two {
                let numbers = upper();
                static_for!(n in 0..TILES[0] => {
                    add::<F, BYTES>(&mut to[n], 1, &rows[n], of_half(1)(dots[n]), &numbers);
                });
            }
        } else {
            add_column::<F, BYTES>(to, 0, rows, x[0], &lower(), first);
            if two {
                add_column::<F, BYTES>(to, 1, rows, x[1], &upper(), first);
            }
        }
    }
}

/// Adds the products of all tiles of rows and half of a tile of columns of two bytes over a unit.
#[inline(always)]
pub unsafe fn add_column<F: Packed, const BYTES: usize>(
    to: &mut ColumnSums,
    half: usize,
    rows: &[RightRows; TILES[0]],
    x: [u32; 4],
    numbers: &Numbers,
    first: [i32; 4],
) {
    static_for!(n in 0..TILES[0] => {
        // SAFETY: the caller's promise: all lanes are here.
        let of = unsafe { dots::<F>(x, rows[n].codes, first) };
        add::<F, BYTES>(&mut to[n], half, &rows[n], |part, byte, k| of[part][2 * byte + k] as u32, numbers);
    });
}

/// Where quad `quad` of a column lies: of neighbouring columns in other banks.
#[inline(always)]
fn place(column: usize, quad: usize) -> usize {
    column * ROWS + 4 * (quad ^ 2 * (column % 4))
}

/// A block's sums, by way of shared memory, of which it has as much as it has columns.
#[device]
pub unsafe fn product<F: Packed, const BYTES: usize>(a: &QuantizedArgs, memory: Shared<f32>) -> Block {
    let of_block = shared::dynamic_bytes() as u32 / SOME_SHARED;
    let of_lane = LanePointers::<BYTES>::of::<F>(a, of_block);
    let units = of_lane.record.units as u32;
    let columns = (a.columns - block::idx_y() * of_block).min(of_block);
    let (zeros, none) = (zeros::<BYTES>(), no_constants(a.x));
    // Of two bytes a column has the sums of the high ones in the upper rows, and of the low ones in the lower.
    let first: [i32; 4] = core::array::from_fn(|i| (zeros[i / 2 * (BYTES - 1)] + none[i]) as i32);
    let (mut totals, warp) = ([[0.0f32; 4]; OF_THREAD], uniform_warp());
    // A class of each warp at a time. Behind the last unit it is taken again, and dropped.
    let (mut class, last) = (warp as u32, units - 1);
    let begin = class.min(last) as usize;
    let mut weights = of_lane.weights::<F>(begin);
    let mut x: [Factors; TILES[1]] = core::array::from_fn(|m| of_lane.factors(m, codes(BYTES, begin)));
    let mut scales: [Scale<BYTES>; TILES[1] / 2] = of_lane.scaled.map(|x| Scale::load(x, begin));
    let mut sums: [ColumnSums; TILES[1]] = Default::default();
    let exchange = Exchange::of(memory, warp, of_block);
    while class < CLASSES {
        let mut u = class;
        while u < units {
            let after = if u + CLASSES < units { u + CLASSES } else { (class + WARPS as u32).min(last) } as usize;
            let rows = of_lane.taken_apart::<F>(&weights);
            weights = of_lane.weights::<F>(after);
            // One number for all columns, and not one that each is found by.
            let at = unroll::opaque(codes(BYTES, after));
            let mut now = scales[0];
            static_for!(m in 0..TILES[1] => {
                if m == 0 || 16 * (m as u32) < columns {
                    if m % 2 == 0 {
                        now = scales[m / 2];
                        scales[m / 2] = Scale::load(of_lane.scaled[m / 2], after);
                    }
                    let numbers = [0, 1].map(|half| move || unsafe { Numbers::of::<F, BYTES>(&now, 2 * m + half) });
                    add_tile::<F, BYTES>(&mut sums[m], &rows, &x[m], numbers, m > 0 || columns > 8, first);
                    x[m] = of_lane.factors(m, at);
                }
            });
            u += CLASSES;
        }
        exchange.store(&mut sums, columns);
        sync::block();
        exchange.add_up(&mut totals);
        sync::block();
        class += WARPS as u32;
    }
    exchange.leave(&totals);
    Block::small(of_block)
}

/// How the warps add up their classes: where each stores its own, and what a thread adds up.
#[derive(Clone, Copy)]
struct Exchange {
    memory: Shared<f32>,
    /// Where the lane's sums of the first tile of rows are; those of the others lie in other places of the column's.
    mine: usize,
    /// The quads of rows of columns that the thread has.
    quads: [(bool, usize); OF_THREAD],
    of_block: u32,
}

impl Exchange {
    #[inline(always)]
    fn of(memory: Shared<f32>, warp: usize, of_block: u32) -> Exchange {
        let (g, t) = (lane() / 4, lane() % 4);
        let mine = warp * of_block as usize * ROWS + place(g, t / 2) + 2 * (t % 2);
        let quads = core::array::from_fn(|i| {
            let quad = i * THREADS as usize + warp * 32 + lane();
            // All lanes of a warp have one or none.
            ((i * WARPS + warp) as u32 * 4 < of_block, place(quad / QUADS, quad % QUADS))
        });
        Exchange { memory, mine, quads, of_block }
    }

    /// Stores the sums of a class, and begins another.
    #[inline(always)]
    unsafe fn store(&self, sums: &mut [ColumnSums; TILES[1]], columns: u32) {
        // SAFETY: the caller's promise: there is room for them, and nobody reads it before a barrier.
        unsafe {
            let to: [Shared<f32>; TILES[0]] = core::array::from_fn(|n| self.memory.from(self.mine ^ (8 * n)));
            static_for!(m in 0..TILES[1] => {
                if m == 0 || 16 * (m as u32) < columns {
                    for half in 0..2 {
                        for n in 0..TILES[0] {
                            let pair = F32x2([sums[m][n][2 * half], sums[m][n][2 * half + 1]]);
                            to[n].set2((16 * m + 8 * half) * ROWS, pair);
                        }
                    }
                    sums[m] = Default::default();
                }
            });
        }
    }

    /// Adds up the sums of the warps' classes.
    #[inline(always)]
    unsafe fn add_up(&self, totals: &mut [[f32; 4]; OF_THREAD]) {
        static_for!(i in 0..OF_THREAD => {
            let (there, at) = self.quads[i];
            if there {
                static_for!(class in 0..WARPS => {
                    // SAFETY: the caller's promise: they were written before a barrier.
                    let four = unsafe { self.memory.get4(class * self.of_block as usize * ROWS + at) }.0;
                    for k in 0..4 {
                        totals[i][k] += four[k];
                    }
                });
            }
        });
    }

    /// Leaves the sums of all classes, as a block is finished, once nobody reads those of single ones.
    #[inline(always)]
    unsafe fn leave(&self, totals: &[[f32; 4]; OF_THREAD]) {
        // SAFETY: the caller's promise.
        unsafe {
            for i in 0..OF_THREAD {
                if self.quads[i].0 {
                    let quad = i * THREADS as usize + thread::idx_x() as usize;
                    self.memory.set4(quad / QUADS * SMALL_STRIDE + 4 * (quad % QUADS), F32x4(totals[i]));
                }
            }
            sync::block();
        }
    }
}
