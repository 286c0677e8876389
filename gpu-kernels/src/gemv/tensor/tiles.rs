//! The product of a block of threads: tiles of 16 rows and eight columns on tensor cores, and what becomes of their sums.

use super::{
    super::{
        experts::BlockColumns,
        quant_format::int8::{scaled, zeros},
        quantized::QuantizedArgs,
    },
    COLUMNS, FEW_SHARED, ROWS,
    outputs::Block,
    staging::{STAGED, Slot, Stager, next, numbers, of_class, shared},
};
use crate::format::decode::Packed;
use crate::load::{again, lane, no_constants, warp_index};
use core::mem::MaybeUninit;
use warpsmith_device::{
    mma::{load_matrices, mma_i8, mma_i8_k16, mma_u8_i8},
    prelude::*,
    shared::Shared,
    static_for,
    warp::{FULL, shuffle_idx},
};

/// Tiles of 16 rows, and of eight columns, that a warp has. Where a block has few columns, a warp has half of these rows.
pub const TILES: [usize; 2] = [4, 4];
/// Bytes of a vector.
const VECTOR: u32 = size_of::<U32x4>() as u32;

pub type TileSums = [[[f32; 4]; TILES[1]]; TILES[0]];

/// What the sums of a tile begin with, in registers of their own.
pub type First<const BYTES: usize> = [[i32; 4]; BYTES];

/// Sums of products of a tile of rows and one of columns, over part `part` of a unit, for each byte of activations.
#[inline(always)]
unsafe fn sums<F: Packed, const BYTES: usize>(
    a: [u32; 4],
    b: [[u32; 2]; BYTES],
    part: usize,
    first: &First<BYTES>,
) -> [[i32; 4]; BYTES] {
    let mut sums = *first;
    for byte in 0..BYTES {
        // SAFETY: the caller's promise: all lanes are here.
        sums[byte] = unsafe {
            if F::SCALES == 2 {
                mma_i8_k16(first[byte], [a[2 * part], a[2 * part + 1]], b[byte][part])
            } else if F::OFFSET == 0 {
                mma_u8_i8(first[byte], a, b[byte])
            } else {
                mma_i8(first[byte], a, b[byte])
            }
        };
    }
    sums
}

/// Index of the warp, of which the compiler knows that all lanes have the same: what branches on it does not diverge.
#[inline(always)]
pub fn uniform_warp() -> usize {
    // SAFETY: all lanes are here.
    unsafe { shuffle_idx(FULL, warp_index() as u32, 0) as usize }
}

/// Which rows and columns of its block a warp has.
#[derive(Clone, Copy)]
pub struct WarpTile {
    pub first_row: usize,
    pub first_column: usize,
    /// Columns from the first on that there are.
    columns: u32,
    /// Whether it has all of its tiles of rows.
    pub whole: bool,
}

impl WarpTile {
    #[inline(always)]
    pub fn of(columns: usize, block_columns: u32) -> WarpTile {
        let (warp, whole) = (uniform_warp(), block_columns > COLUMNS);
        let (row, column) = if whole { (warp % 2 * 64, warp / 2 * 32) } else { (warp % 4 * 32, warp / 4 * 32) };
        WarpTile {
            first_row: row,
            first_column: column,
            columns: (columns as u32).saturating_sub(column as u32),
            whole,
        }
    }
}

/// Where a lane finds what it multiplies in a slot. It is found anew for each unit: what is kept over the loop costs registers in it, and
/// a place in local memory is waited for as long as what is loaded behind it.
#[derive(Clone, Copy)]
struct SlotPointers {
    codes: u32,
    x: Shared<u32>,
    scales: Shared<f32>,
    sums: Shared<f32>,
    numbers: Shared<f32>,
    /// From a tile of rows to that of the other half of them, which are the same where a warp has no such half.
    other: usize,
}

impl SlotPointers {
    #[inline(always)]
    unsafe fn of<F: Packed, const BYTES: usize>(memory: Shared<U32x4>, lane: usize, part: &WarpTile) -> SlotPointers {
        let row = part.first_row + lane % 16 + lane / 16 * ROWS as usize;
        // Of two tiles of columns both matrices, or of one the lane's own column, where it has one or two quads of pairs.
        let (column, vector, word) = match (Slot::<F, BYTES>::MATRICES, BYTES) {
            (true, _) => (lane % 8 + lane / 16 * 8, lane / 8 % 2, 0),
            (false, 1) => (lane / 4, lane % 4 / 2, lane % 2 * 2),
            _ => (lane / 4, lane % 4, 0),
        };
        let x = Slot::<F, BYTES>::X + part.first_column + column + vector * Slot::<F, BYTES>::X_STRIDE;
        let mine = part.first_column + lane % 4 * 2;
        // SAFETY: they lie in a slot.
        unsafe {
            SlotPointers {
                codes: memory.address_of(Slot::<F, BYTES>::CODES + row),
                x: memory.from(x).cast::<u32>().from(word),
                scales: memory.from(Slot::<F, BYTES>::SCALES).cast::<f32>().from(2 * mine),
                sums: memory.from(Slot::<F, BYTES>::SUMS).cast::<f32>().from(mine),
                numbers: memory.from(Slot::<F, BYTES>::NUMBERS).cast::<f32>().from(part.first_row + lane / 4 * 2),
                other: if part.whole { 16 * TILES[0] / 2 } else { 0 },
            }
        }
    }
}

/// What a lane has of a tile of rows of a unit, as a left factor.
#[derive(Clone, Copy, Default)]
pub struct LeftRows {
    pub codes: [u32; 4],
    /// Scales of two rows, and what else there is.
    pub numbers: [[f32; 2]; 2],
}

impl LeftRows {
    #[inline(always)]
    unsafe fn load<F: Packed>(places: &SlotPointers, m: usize) -> LeftRows {
        let half = TILES[0] / 2;
        let row = if m < half { 0 } else { places.other };
        // SAFETY: the caller's promise: the slot is staged, and all lanes are here.
        unsafe {
            let numbers = places.numbers.from(row).from(16 * (m % half));
            let second = if self::numbers::<F>() == 2 { numbers.get2(ROWS as usize).0 } else { [0.0; 2] };
            let codes = places.codes + row as u32 * VECTOR + 16 * (m % half) as u32 * VECTOR;
            LeftRows { codes: load_matrices(codes), numbers: [numbers.get2(0).0, second] }
        }
    }
}

/// What a lane has of a tile of columns of a unit, as a right factor.
#[derive(Clone, Copy)]
pub struct RightColumns<const BYTES: usize> {
    pub codes: [[u32; 2]; BYTES],
    pub d: [f32; 2],
    pub less: [f32; 2],
    /// What addends of weights are multiplied with.
    pub sums: [f32; 2],
}

/// Adds the products of a tile of rows and one of columns over a unit.
#[inline(always)]
pub unsafe fn add_tile<F: Packed, const BYTES: usize>(
    to: &mut [f32; 4],
    rows: &LeftRows,
    columns: &RightColumns<BYTES>,
    first: &First<BYTES>,
) {
    for part in 0..F::SCALES {
        // SAFETY: the caller's promise: all lanes are here.
        let sums = unsafe { sums::<F, BYTES>(rows.codes, columns.codes, part, first) };
        for i in 0..4 {
            let dot = scaled(sums.map(|of_byte| of_byte[i] as u32), columns.d[i % 2], columns.less[i % 2]);
            to[i] = math::fma(rows.numbers[part][i / 2], dot, to[i]);
        }
    }
    if F::SHIFTED {
        for i in 0..4 {
            to[i] = math::fma(rows.numbers[1][i / 2], columns.sums[i % 2], to[i]);
        }
    }
}

/// The same of `N` tiles of columns, from tile `n` on, with all of a warp's rows.
#[inline(always)]
unsafe fn add_tiles<F: Packed, const BYTES: usize, const N: usize>(
    acc: &mut TileSums,
    n: usize,
    rows: &[LeftRows; TILES[0]],
    columns: &[RightColumns<BYTES>; N],
    part: &WarpTile,
    first: &First<BYTES>,
) {
    let half = TILES[0] / 2;
    // SAFETY: the caller's promise: all lanes are here.
    unsafe {
        for m in 0..half {
            for i in 0..N {
                add_tile::<F, BYTES>(&mut acc[m][n + i], &rows[m], &columns[i], first);
            }
        }
        if part.whole {
            for m in half..TILES[0] {
                for i in 0..N {
                    add_tile::<F, BYTES>(&mut acc[m][n + i], &rows[m], &columns[i], first);
                }
            }
        }
    }
}

/// Adds the products of the unit in a slot for the warp's rows and columns.
#[inline(always)]
unsafe fn add_unit<F: Packed, const BYTES: usize>(
    acc: &mut TileSums,
    (slot, thread): (Shared<U32x4>, u32),
    part: &WarpTile,
    first: &First<BYTES>,
) {
    // SAFETY: the caller's promise: the slot is staged, and all lanes are here.
    unsafe {
        let places = SlotPointers::of::<F, BYTES>(slot, (again(thread) % 32) as usize, part);
        let rows: [LeftRows; TILES[0]] = core::array::from_fn(|m| LeftRows::load::<F>(&places, m));
        static_for!(pair in 0..TILES[1] / 2 => {
            if 16 * (pair as u32) < part.columns {
                // Of eight bits the codes of both tiles of columns, which are multiplied together; of 16 registers are short.
                let of_both = if Slot::<F, BYTES>::MATRICES {
                    load_matrices(places.x.address_of(64 * pair))
                } else {
                    [0; 4]
                };
                let columns = |i: usize| {
                    let n = 2 * pair + i;
                    let [a, b, c, d] = match (Slot::<F, BYTES>::MATRICES, BYTES) {
                        (true, _) => [of_both[2 * i], of_both[2 * i + 1], 0, 0],
                        (false, 1) => {
                            let U32x2([a, b]) = places.x.get2(32 * n);
                            [a, b, 0, 0]
                        }
                        _ => places.x.get4(32 * n).0,
                    };
                    let [d0, less0, d1, less1] = places.scales.get4(16 * n).0;
                    RightColumns {
                        codes: core::array::from_fn(|byte| if byte == 0 { [a, b] } else { [c, d] }),
                        d: [d0, d1],
                        less: [less0, less1],
                        sums: if F::SHIFTED { places.sums.get2(8 * n).0 } else { [0.0; 2] },
                    }
                };
                if BYTES == 1 {
                    let columns = [columns(0), columns(1)];
                    add_tiles::<F, BYTES, 2>(acc, 2 * pair, &rows, &columns, part, first);
                } else {
                    add_tiles::<F, BYTES, 1>(acc, 2 * pair, &rows, &[columns(0)], part, first);
                    add_tiles::<F, BYTES, 1>(acc, 2 * pair + 1, &rows, &[columns(1)], part, first);
                }
            }
        });
    }
}

/// A block's sums, and how much it has; `None`: it has no columns.
#[device]
pub unsafe fn product<F: Packed, const BYTES: usize>(
    a: &QuantizedArgs,
    memory: Shared<U32x4>,
    total: &mut MaybeUninit<TileSums>,
) -> Option<Block> {
    const { assert!(F::SCALES == 1 || !F::SHIFTED, "no such format has entry points here") };
    const {
        let large = size_of::<U32x4>() * shared::<F, BYTES>();
        assert!(!super::is_some(large) && large != FEW_SHARED as usize, "by its shared memory a block knows what it is")
    };
    let block_columns = if grid::dim_y() * COLUMNS < a.columns { 2 * COLUMNS } else { COLUMNS };
    let record = F::record(a.cols as usize, a.block_units);
    let of_block = BlockColumns::of_block(block::idx_y(), a.experts, a.columns, block_columns);
    if of_block.count == 0 {
        return None;
    }
    let columns = of_block.count as usize;
    let stager = Stager::of::<F, BYTES>(a, record, of_block);
    let units = stager.record.units as u32;
    let part = WarpTile::of(columns, block_columns);
    let thread = thread::idx_x();
    let zeros = zeros::<BYTES>();
    let none = no_constants(a.x);
    let first = core::array::from_fn(|byte| none.map(|none| (zeros[byte] + none) as i32));
    let total = total.write(Default::default());
    let mut acc = TileSums::default();
    let slot = (lane() % 2) as u32;
    let of_slot = |buffer: u32| memory.from(((buffer + slot) as usize) * Slot::<F, BYTES>::VECTORS);
    // The thread's unit to stage, and the block's class of units.
    let mut unit = if slot == 0 { 0 } else { next(0, units) };
    stager.store::<F, BYTES>(of_slot(0), stager.load::<F, BYTES>(unit));
    sync::block();
    let (mut class, mut left) = (0, of_class(0, units));
    let (mut to_do, mut now) = (units, 0);
    while to_do > 0 {
        for _ in 0..STAGED {
            unit = next(unit, units);
        }
        let loaded = stager.load::<F, BYTES>(unit);
        let mut staged = to_do.min(STAGED as u32);
        to_do -= staged;
        let mut slot = now;
        while staged > 0 {
            let of_slot = memory.from(slot as usize * Slot::<F, BYTES>::VECTORS);
            add_unit::<F, BYTES>(&mut acc, (of_slot, thread), &part, &first);
            slot += 1;
            staged -= 1;
            left -= 1;
            if left == 0 {
                add_class(total, &mut acc);
                class += 1;
                left = of_class(class, units);
            }
        }
        now ^= STAGED as u32;
        stager.store::<F, BYTES>(of_slot(now), loaded);
        sync::block();
    }
    Some(Block::large(block_columns))
}

/// The sums of a class are whole: they are added to those before.
#[inline(always)]
pub fn add_class(total: &mut TileSums, acc: &mut TileSums) {
    static_for!(m in 0..TILES[0] => {
        static_for!(n in 0..TILES[1] => {
            for i in 0..4 {
                total[m][n][i] += acc[m][n][i];
                acc[m][n][i] = 0.0;
            }
        });
    });
}
