//! How tiles of keys and values come into shared memory as f16, for [`mma`](super::mma): a ring of two stages, of which one is
//! filled while the other is multiplied.
//!
//! Caches of f16 are copied as they are ([`HalfCopies`]). Codes of int8 ([`Codes`]) are loaded and stored as f16, which holds them
//! exactly; the scales of their rows stay numbers of a position, by which scores and weights are multiplied. Either takes one
//! barrier a tile.

#![allow(unsafe_op_in_unsafe_fn)] // as in functions that are `#[device]`, which those of traits cannot be

use super::prefill::THREADS;
use crate::{
    kv::cached::{Cached, Q8, Rows, load_f32, row_in_pages},
    load::{lane, warp_index},
};
use warpsmith_device::{
    pipeline::{self, Ring},
    prelude::*,
    unroll,
};

/// Chunks of 16 bytes in a stage: keys and values, each row with a chunk more to put rows into different banks.
const ROWS: usize = 2 * 64 * (64 / 8 + 1);
/// Positions of the largest tile.
const MOST: usize = 64;
/// Powers of two that a score may be above the one that weights are relative to.
pub const SLACK: i32 = 8;
/// Powers of two that results over scaled values are less by: weights relative to a score and a scale stay far from what f32 makes
/// zero or infinite.
pub const SMALLER: i32 = 13;

/// A tile that is there, by where it lies in shared memory.
pub trait Tile: Copy {
    /// The shared address of its first key. Rows of keys, then of values, lie [`row_bytes`] from each other.
    fn keys(self) -> u32;

    /// By what the scores of positions `p` and `p + 1` are to be multiplied, to be powers of two.
    unsafe fn key_scales(self, p: usize) -> [f32; 2];

    /// By what their weights are to be multiplied, which makes a result one of [`SMALLER`] powers of two less.
    unsafe fn value_scales(self, p: usize) -> [f32; 2];

    /// What weights are relative to, above the largest score, so that f16 holds them times their scales: about the logarithm of
    /// the largest one.
    unsafe fn lift(self) -> f32;
}

/// By what a product of a query and a key is multiplied to be a power of two: log2(e) / sqrt(dim).
pub const fn share(dim: usize) -> f32 {
    // By Newton's method, so that it is a constant.
    let (dim, mut root, mut turns) = (dim as f64, 16.0, 0);
    while turns < 8 {
        root = 0.5 * (root + dim / root);
        turns += 1;
    }
    (core::f64::consts::LOG2_E / root) as f32
}

/// Bytes from a row to the next.
#[inline(always)]
pub const fn row_bytes(dim: usize) -> u32 {
    16 * (dim / 8 + 1) as u32
}

/// A thread's part of bringing the tiles of `8 * next` positions of a block, whose threads all make the same calls.
pub trait Copies: Copy {
    type Tile: Tile;

    /// Starts with the `left` positions before `end`. Those before `from` nothing attends to, and they need not be there any more.
    unsafe fn begin(rows: (&Rows, &Rows), range: (u32, u32), left: i32) -> Self;

    /// The tile of which `left` positions are there, or would be if it were full, among them those that follow: as many fewer
    /// from call to call as a tile has. Other positions of it are zeros, or repeat the last one: nothing may attend to them.
    unsafe fn acquire(&mut self, left: i32) -> Self::Tile;
}

/// Which positions a block attends to, and where caches in pages have them; in shared memory, as registers are short.
#[derive(Clone, Copy)]
struct Positions;

impl Positions {
    fn pages() -> Shared<u64> {
        shared_array!(PREFILL_PAGES: [u64; 1])
    }

    fn range() -> Shared<u32> {
        shared_array!(PREFILL_RANGE: [u32; 2])
    }

    /// Says what they are to the block, before a barrier.
    #[inline(always)]
    unsafe fn keep(pages: u64, (from, end): (u32, u32)) {
        // SAFETY: one thread writes them.
        unsafe {
            Self::pages().set(0, pages);
            Self::range().set2(0, U32x2([from, end]));
        }
    }
}

/// The step of the tile of which `left` positions are there: steps count down.
#[inline(always)]
fn step_of<const NEXT: usize>(left: i32) -> usize {
    (left as u32 / (8 * NEXT) as u32) as usize
}

/// A cache from which prompts are multiplied on tensor cores.
pub trait Staged {
    /// Brings tiles of `8 * NEXT` positions of heads of `DIM` elements.
    type Copies<const DIM: usize, const NEXT: usize>: Copies;
}

impl Staged for f16 {
    type Copies<const DIM: usize, const NEXT: usize> = HalfCopies<DIM, NEXT>;
}

impl Staged for Q8 {
    type Copies<const DIM: usize, const NEXT: usize> = Codes<DIM, NEXT>;
}

/// Rows of f16, copied into their stage.
#[derive(Clone, Copy)]
pub struct HalfCopies<const DIM: usize, const NEXT: usize> {
    /// This thread's first 16 bytes of the next tile's keys and values; in pages, of row 0.
    keys: u64,
    values: u64,
}

impl<const DIM: usize, const NEXT: usize> HalfCopies<DIM, NEXT> {
    /// Threads for a row, of which the last may have nothing to copy, and chunks of 16 bytes from a row to the next.
    const LANES: usize = (DIM / 8).next_power_of_two();
    const STRIDE: usize = DIM / 8 + 1;

    #[inline(always)]
    fn ring() -> Ring<U32x4, 2> {
        Ring::of(shared_array!(PREFILL_RING: [U32x4; 2 * ROWS]))
    }

    /// Starts the copies of the next tile; what is not there becomes zeros, of which a weight of 0 takes nothing.
    #[inline(always)]
    unsafe fn start(&mut self, stage: Shared<U32x4>, left: i32) {
        let (r, e) = (thread::idx_x() as usize / Self::LANES, thread::idx_x() as usize % Self::LANES);
        let at_once = THREADS as usize / Self::LANES;
        let pages = Positions::pages().get(0);
        if e < DIM / 8 {
            if pages == 0 {
                let left = left - r as i32;
                for n in 0..8 * NEXT / at_once {
                    let from = (n * at_once * DIM * 2) as u64;
                    let valid = left > (n * at_once) as i32;
                    Self::copy(stage, (r + n * at_once, e), (self.keys + from, self.values + from), valid);
                }
            } else {
                let [from, end] = Positions::range().get2(0).0;
                let first = end - left as u32 + r as u32;
                for n in 0..8 * NEXT / at_once {
                    let position = first + (n * at_once) as u32;
                    let valid = from <= position && position < end;
                    let index = if valid { row_in_pages(pages, position) } else { 0 };
                    let from = index as u64 * (DIM * 2) as u64;
                    Self::copy(stage, (r + n * at_once, e), (self.keys + from, self.values + from), valid);
                }
            }
        }
        if pages == 0 {
            self.keys += (8 * NEXT * DIM * 2) as u64;
            self.values += (8 * NEXT * DIM * 2) as u64;
        }
        pipeline::commit();
    }

    /// Starts the copy of chunk `e` of row `r` of keys and values.
    #[inline(always)]
    unsafe fn copy(stage: Shared<U32x4>, (r, e): (usize, usize), (key, value): (u64, u64), valid: bool) {
        let to = r * Self::STRIDE + e;
        // SAFETY: within the stage, and within the cache where `valid`.
        unsafe {
            pipeline::copy_or_zero(stage, to, key as *const U32x4, valid);
            pipeline::copy_or_zero(stage, to + 8 * NEXT * Self::STRIDE, value as *const U32x4, valid);
        }
    }
}

impl<const DIM: usize, const NEXT: usize> Copies for HalfCopies<DIM, NEXT> {
    type Tile = HalvesTile;

    #[inline(always)]
    unsafe fn begin((keys, values): (&Rows, &Rows), (from, end): (u32, u32), left: i32) -> Self {
        let (r, e) = (thread::idx_x() as usize / Self::LANES, thread::idx_x() as usize % Self::LANES);
        let row = if keys.paged() { 0 } else { (end as i32 - left) as u32 + r as u32 };
        let chunk = 16 * e as u64;
        let mut copies = HalfCopies { keys: keys.at(row) + chunk, values: values.at(row) + chunk };
        if left > 0 {
            if thread::idx_x() == 0 {
                Positions::keep(keys.pages, (from, end));
            }
            sync::block();
            copies.start(Self::ring().stage(step_of::<NEXT>(left)), left);
        }
        copies
    }

    #[inline(always)]
    unsafe fn acquire(&mut self, left: i32) -> Self::Tile {
        let step = step_of::<NEXT>(left);
        let stage = Self::ring().acquire(step);
        if left > 8 * NEXT as i32 {
            self.start(Self::ring().stage(step + 1), left - 8 * NEXT as i32);
        }
        HalvesTile(stage)
    }
}

/// A tile of a cache without scales.
#[derive(Clone, Copy)]
pub struct HalvesTile(Shared<U32x4>);

impl Tile for HalvesTile {
    #[inline(always)]
    fn keys(self) -> u32 {
        self.0.address()
    }

    #[inline(always)]
    unsafe fn key_scales(self, _: usize) -> [f32; 2] {
        [1.0; 2]
    }

    #[inline(always)]
    unsafe fn value_scales(self, _: usize) -> [f32; 2] {
        [1.0; 2]
    }

    #[inline(always)]
    unsafe fn lift(self) -> f32 {
        0.0
    }
}

/// Rows of codes, each with a scale, turned into f16 on their way. What a thread works with between two tiles lies in shared memory,
/// as its registers are taken by what it computes; loads of the next tile wait for the block together with it.
#[derive(Clone, Copy)]
pub struct Codes<const DIM: usize, const NEXT: usize>;

/// What a thread brings of a tile: of keys and of values, of two rows, eight elements in each half.
type RawTile = [[[<Q8 as Cached>::Eight; 2]; 2]; 2];
/// The scales that it brings: of keys and values of two positions.
type RawScales = [[f32; 2]; 2];

impl<const DIM: usize, const NEXT: usize> Codes<DIM, NEXT> {
    /// Threads for a row, of which the last may have nothing to bring, and rows that have threads at once.
    const LANES: usize = (DIM / 16).next_power_of_two();
    const AT_ONCE: usize = THREADS as usize / Self::LANES;
    /// Rows of a thread, of keys and of values each, and chunks from a row of f16 to the next.
    const TURNS: usize = 8 * NEXT / Self::AT_ONCE;
    const STRIDE: usize = DIM / 8 + 1;

    #[inline(always)]
    fn ring() -> Ring<U32x4, 2> {
        Ring::of(shared_array!(PREFILL_SCALED_RING: [U32x4; 2 * (ROWS + 2 * MOST / 4 + 1)]))
    }

    /// Where the first rows are: of keys, of values, and of their scales.
    #[inline(always)]
    fn firsts() -> Shared<u64> {
        shared_array!(PREFILL_FIRSTS: [u64; 4])
    }

    /// Makes of how far two positions are before the end the numbers of their rows; in pages of the first one that the block attends to
    /// where that is later.
    #[inline(always)]
    unsafe fn rows(one: &mut u32, other: &mut u32) {
        // SAFETY: kept before a barrier.
        let (pages, [from, end]) = unsafe { (Positions::pages().get(0), Positions::range().get2(0).0) };
        (*one, *other) = (end - *one, end - *other);
        if pages != 0 {
            // SAFETY: the block attends to them. All lanes are here, and wait for nothing: `ptxas` would make the branch predicates of
            // each instruction, which other caches pay for.
            unsafe {
                sync::warp(warp::FULL);
                *one = row_in_pages(pages, if *one < from { from } else { *one });
                *other = row_in_pages(pages, if *other < from { from } else { *other });
            }
        }
    }

    /// A thread's row of those that have threads at once, and its chunk in both halves of the row. Of eight threads that store at
    /// once, those of different rows are as far from each other as puts them into different banks.
    #[inline(always)]
    fn own() -> (usize, usize) {
        // Worked out again for each tile.
        let tid = unroll::opaque(thread::idx_x() as usize);
        let (u, e) = (tid / Self::LANES, tid % Self::LANES);
        if Self::LANES >= 8 {
            return (u, e);
        }
        let together = 8 / Self::LANES;
        (u % together * Self::LANES + u / together % Self::LANES + u / 8 * 8, e)
    }

    /// Loads of the tile of which `left` positions are there. Others repeat the last one, and nothing attends to them: so all is
    /// loaded in any case, and no register has to be kept for what would be undefined otherwise.
    #[inline(always)]
    unsafe fn load(left: i32) -> (RawTile, RawScales) {
        let (mut raw, mut scales) = ([[[Q8::NONE; 2]; 2]; 2], [[0.0f32; 2]; 2]);
        let one_or = |n: i32| if n > 1 { n as u32 } else { 1 };
        let (r, e) = Self::own();
        let e = if Self::LANES == DIM / 16 || e < DIM / 16 { e } else { 0 };
        // From its row to the end.
        let back = one_or(left - r as i32);
        let on = |n: usize| (n * Self::AT_ONCE) as u32;
        const { assert!(Self::TURNS <= 2) };
        let (mut one, mut other) = (back, if on(1) < back { back - on(1) } else { 1 });
        Self::rows(&mut one, &mut other);
        for of in 0..2 {
            let first = Self::firsts().get(of) + 8 * e as u64;
            for n in 0..Self::TURNS {
                let row = first + if n == 0 { one } else { other } as u64 * DIM as u64;
                for half in 0..2 {
                    raw[of][n][half] = Q8::load8(row + (half * DIM / 2) as u64);
                }
            }
        }
        if warp_index() == 0 {
            let left = left - lane() as i32;
            let (mut one, mut other) = (one_or(left), one_or(left - 32));
            Self::rows(&mut one, &mut other);
            for of in 0..2 {
                let first = Self::firsts().get(2 + of);
                for i in 0..NEXT.div_ceil(4) {
                    scales[of][i] = load_f32(first + 4 * if i == 0 { one } else { other } as u64);
                }
            }
        }
        (raw, scales)
    }

    /// Makes what was loaded the tile of step `k`.
    #[inline(always)]
    unsafe fn store((raw, scales): (RawTile, RawScales), k: usize) {
        let stage = Self::ring().stage(k);
        let (r, e) = Self::own();
        if e < DIM / 16 {
            for of in 0..2 {
                for n in 0..Self::TURNS {
                    let to = (r + n * Self::AT_ONCE + of * 8 * NEXT) * Self::STRIDE + e;
                    for half in 0..2 {
                        stage.set(to + half * DIM / 16, U32x4(Q8::halves(raw[of][n][half])));
                    }
                }
            }
        }
        if unroll::opaque(warp_index()) == 0 {
            let tile = CodesTile(stage);
            let ([mut of_keys, mut of_values], mut largest) = (scales, 0.0f32);
            for i in 0..NEXT.div_ceil(4) {
                of_keys[i] *= const { share(DIM) };
                // Where a row of values is not a number, its key is made none: what does not attend to it stays as it is.
                if !of_values[i].is_finite() {
                    (of_keys[i], of_values[i]) = (f32::NAN, 0.0);
                }
                largest = math::max(largest, of_values[i]);
            }
            // The power of two above all scales, or 2^-80. Times its scale, a weight stays below 2^15.
            let e = (warp::max_f32(largest).to_bits() >> 23) as i32 - 126;
            let e = if e > -80 { e } else { -80 };
            for i in 0..NEXT.div_ceil(4) {
                let p = lane() + 32 * i;
                if p < 8 * NEXT {
                    tile.scales().set(p, of_keys[i]);
                    tile.scales().set(p + MOST, of_values[i] * const { 1.0 / (1 << SMALLER) as f32 });
                }
            }
            if lane() == 0 {
                tile.place_of_lift().set(0, (e - const { 15 - SLACK + SMALLER }) as f32);
            }
        }
    }
}

impl<const DIM: usize, const NEXT: usize> Copies for Codes<DIM, NEXT> {
    type Tile = CodesTile;

    #[inline(always)]
    unsafe fn begin((keys, values): (&Rows, &Rows), range: (u32, u32), left: i32) -> Self {
        if left > 0 {
            if thread::idx_x() == 0 {
                let firsts = Self::firsts();
                firsts.set(0, keys.data);
                firsts.set(1, values.data);
                firsts.set(2, keys.scales);
                firsts.set(3, values.scales);
                Positions::keep(keys.pages, range);
            }
            sync::block();
            Self::store(Self::load(left), step_of::<NEXT>(left));
        }
        Codes
    }

    #[inline(always)]
    unsafe fn acquire(&mut self, left: i32) -> CodesTile {
        let step = step_of::<NEXT>(left);
        let next = Self::load(left - 8 * NEXT as i32);
        // Behind it this tile is there, and the one before is done with.
        sync::block();
        if left > 8 * NEXT as i32 {
            Self::store(next, step + 1);
        }
        CodesTile(Self::ring().stage(step))
    }
}

/// A tile of a cache with scales, which lie behind its rows: of keys, of values, then the lift.
#[derive(Clone, Copy)]
pub struct CodesTile(Shared<U32x4>);

impl CodesTile {
    #[inline(always)]
    unsafe fn scales(self) -> Shared<f32> {
        self.0.from(ROWS).cast()
    }

    #[inline(always)]
    unsafe fn place_of_lift(self) -> Shared<f32> {
        self.0.from(ROWS + 2 * MOST / 4).cast()
    }
}

impl Tile for CodesTile {
    #[inline(always)]
    fn keys(self) -> u32 {
        self.0.address()
    }

    #[inline(always)]
    unsafe fn key_scales(self, p: usize) -> [f32; 2] {
        self.scales().get2(p).0
    }

    #[inline(always)]
    unsafe fn value_scales(self, p: usize) -> [f32; 2] {
        self.scales().get2(p + MOST).0
    }

    #[inline(always)]
    unsafe fn lift(self) -> f32 {
        self.place_of_lift().get(0)
    }
}
