//! Products of weights of one and two bits with many columns of activations, on tensor cores: what [`planes`](super::planes) computes,
//! to the bit.
//!
//! A block of threads has 64 rows of weights and 32 columns, neighbours or a tile of a [group](crate::experts::group). Each of its eight
//! warps has 32 of the rows, all columns, and those blocks of 128 weights that one of the four warps of [`planes`](super::planes) has, in
//! the same order. Codes of weights become signed bytes in registers (`prmt` as a table of codes), once for all columns. Activations are
//! read as bytes, which lie beside the planes in the order in which codes come out of words. No warp waits for another before the end,
//! and shared memory has nothing but sums.
//!
//! The integer sum of a block (`mma.m16n8k32`, four for each byte of an activation) is the same whatever adds it up, and becomes a float
//! once. So a column's results do not depend on how many others there are.
//!
//! The arguments are those of [`planes`](super::planes); [`Gemv::quantized`](super::Gemv::quantized) takes these entry points from
//! [`FROM`] columns on.
//!
//! The instruction: PTX ISA, `mma` with `.s8` and `.u8` operands.

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::quant_format::planes::BLOCK;
use super::quant_format::{
    BLOCK_ROWS,
    planes::{Q2Planes, len},
};
use crate::format;
use warpsmith_device::prelude::*;

/// Columns from which on products take these entry points: they cost as much as four to seven of one column, with 64 blocks for 4096
/// rows, for 132 multiprocessors of an H200.
pub const FROM: u32 = 12;
/// Rows of weights of a block of threads: as many as two of [`planes`](super::planes) have.
const ROWS: u32 = 2 * BLOCK_ROWS;
/// Columns of a block of threads.
const COLUMNS: u32 = 32;
/// Threads of a block.
const THREADS: u32 = 256;
const _: () = assert!(crate::experts::group::TILE <= COLUMNS);

#[cfg(not(target_arch = "nvptx64"))]
const fn len_of<const BYTES: u32>(cols: u32) -> u64 {
    len(cols, BYTES)
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod frame {
    use super::super::{
        experts::BlockColumns,
        planes::{
            WARPS as CLASSES,
            frame::{Order, PARTS, scaled, sum_warps},
        },
        quant_format::planes::{block_vectors, codes as codes_at, scale as scale_at, zero},
        quantized::{Invocation, QuantizedArgs},
    };
    use super::*;
    use crate::format::{decode::Decode, unpack::permute};
    use crate::load::{Launched, Place, Role, again, lane, no_constants, warp_index};
    use warpsmith_device::{
        mma::{mma_i8, mma_i8_u8},
        shared::Shared,
        static_for,
        warp::{FULL, shuffle_idx},
    };

    const COLUMNS: usize = super::COLUMNS as usize;
    const WARPS: usize = THREADS as usize / 32;
    /// Tiles of 16 rows, and of eight columns, that a warp has.
    const TILES: [usize; 2] = [PARTS / 2, COLUMNS / 8];
    /// Steps of 32 columns of weights, of which a lane has eight.
    const STEPS: usize = BLOCK as usize / 32;
    /// From the sums of a column to the next, so that neighbouring columns begin in other banks.
    const STRIDE: usize = ROWS as usize + 4;
    /// Vectors of shared memory: the sums of all classes of blocks.
    pub const SHARED: usize = CLASSES * COLUMNS * STRIDE / 4;

    /// Two words of bytes of a lane, by step.
    type Bytes = [[u32; 2]; STEPS];

    /// Tables of codes for an index of three bits. Of one bit, which is a minus: by the lowest, by the next, by the highest of the three.
    type Tables = [[u32; 2]; 3];

    #[inline(always)]
    fn tables<const BITS: usize>([a, b, c]: [u32; 3]) -> Tables {
        if BITS == 1 {
            [[0xFF01_FF01 + a, 0xFF01_FF01], [0xFFFF_0101 + b, 0xFFFF_0101], [0x0101_0101 + c, 0xFFFF_FFFF]]
        } else {
            [[0x0201_00FF + a, 0]; 3]
        }
    }

    /// Codes of a row as signed bytes. A nibble of a selector is an index of a table; its highest bit has to be 0.
    #[inline(always)]
    fn signed<const BITS: usize>([a, b]: [u32; 2], tables: &Tables) -> Bytes {
        if BITS == 1 {
            let (lower, upper) = (a & 0x7777_7777, a >> 1 & 0x7777_7777);
            core::array::from_fn(|step| {
                let (of, [low, high]) = if step == 3 { (upper, tables[2]) } else { (lower, tables[step]) };
                [of, of >> 16].map(|selector| permute(low, high, selector))
            })
        } else {
            core::array::from_fn(|step| {
                [a, b].map(|word| {
                    let codes = word >> (2 * (step / 2)) & 0x3333_3333;
                    permute(tables[0][0], 0, codes >> (16 * (step % 2)))
                })
            })
        }
    }

    /// A block of rows whose turn it is, among those of a class.
    #[derive(Clone, Copy)]
    struct Cursor {
        block: u32,
        /// Where a lane has words of it.
        word: u32,
        /// Its group and its part of that. Behind the groups every block is the last part of one more.
        group: u32,
        part: u32,
    }

    impl Cursor {
        #[inline(always)]
        fn of<const BITS: usize>(order: &Order, group: u32) -> Cursor {
            let t = (lane() & 3) as u32;
            if group < order.groups {
                Cursor { block: order.block::<BITS>(group, 0), word: 16 * group + 4 * t, group, part: 0 }
            } else {
                let block = order.rest::<BITS>() + group - order.groups;
                Cursor { block, word: BITS as u32 * (4 * block + t), group, part: Order::together(BITS) - 1 }
            }
        }

        /// The first of a class.
        #[inline(always)]
        fn first<const BITS: usize>(order: &Order, class: u32) -> Cursor {
            Cursor::of::<BITS>(order, if class < order.groups { class } else { order.groups + class })
        }

        /// Whether there is such a block.
        #[inline(always)]
        fn exists<const BITS: usize>(&self, order: &Order) -> bool {
            self.block < order.blocks
        }

        #[inline(always)]
        fn next<const BITS: usize>(self, order: &Order, class: u32) -> Cursor {
            if self.part + 1 < Order::together(BITS) {
                let block = self.block + order.apart(self.group);
                return Cursor { block, word: self.word + BITS as u32, part: self.part + 1, ..self };
            }
            let group = self.group + CLASSES as u32;
            let leaves = self.group < order.groups && group >= order.groups;
            Cursor::of::<BITS>(order, if leaves { order.groups + class } else { group })
        }
    }

    /// The rows of a warp.
    #[derive(Clone, Copy)]
    struct WarpRows {
        rows: [In<U32x4>; PARTS],
        /// Of the record: the first f16 of the scales, and the logarithm of the blocks that share one.
        scales: u32,
        shared: u32,
    }

    impl WarpRows {
        /// What a lane has of the codes of a block.
        #[inline(always)]
        unsafe fn words<const BITS: usize>(&self, turn: &Cursor) -> [[u32; 2]; PARTS] {
            // SAFETY: the caller's promise: there is such a block.
            self.rows.map(|row| unsafe {
                let codes = row.cast::<u32>();
                if BITS == 1 { [codes.at(turn.word as usize); 2] } else { codes.load2(turn.word as usize).0 }
            })
        }

        #[inline(always)]
        unsafe fn scales(&self, block: u32) -> [f32; PARTS] {
            let of = self.scales + (block >> self.shared);
            // SAFETY: the caller's promise: there is such a block.
            self.rows.map(|row| convert::f16_bits_to_f32(unsafe { row.cast::<u16>().at(of as usize) }))
        }
    }

    type Outputs = [[[f32; 4]; TILES[1]]; TILES[0]];

    /// Adds the products of a block's codes and scales with the columns: where the lane's of each tile begins behind `x`, with its
    /// vectors of codes.
    #[inline(always)]
    unsafe fn add_block<const BYTES: usize, const BITS: usize>(
        acc: &mut Outputs,
        block: u32,
        (rows, scales): ([Bytes; PARTS], [f32; PARTS]),
        (x, of_columns): (In<U32x4>, &[u32; TILES[1]]),
        columns: usize,
        seed: [i32; 4],
        lanes: [u32; 2],
    ) {
        static_for!(n in 0..TILES[1] => {
            if 8 * n < columns {
                // SAFETY: the caller's promise: the block is one of `x`, and all lanes are here.
                unsafe {
                    let x = x.from((of_columns[n] + block * block_vectors(BYTES) as u32) as usize);
                    let mut sums = [seed; TILES[0]];
                    static_for!(i in 0..BYTES => {
                        let byte = BYTES - 1 - i;
                        let codes = x.from(codes_at(BYTES, byte));
                        let [a, b] = [codes.at(0).0, codes.at(4).0];
                        let columns: Bytes = [[a[0], a[1]], [a[2], a[3]], [b[0], b[1]], [b[2], b[3]]];
                        for m in 0..TILES[0] {
                            let mut sum = if i > 0 {
                                core::array::from_fn(|k| sums[m][k].wrapping_mul(256).wrapping_add(seed[k]))
                            } else if BYTES > 1 {
                                [0; 4]
                            } else {
                                seed
                            };
                            for step in 0..STEPS {
                                let [first, second] = [rows[2 * m][step], rows[2 * m + 1][step]];
                                let a = [first[0], second[0], first[1], second[1]];
                                // The highest byte has the sign.
                                sum = if i == 0 { mma_i8(sum, a, columns[step]) } else { mma_i8_u8(sum, a, columns[step]) };
                            }
                            sums[m] = sum;
                        }
                    });
                    // Of the lane's column, where it has the first vector; it needs those of two others.
                    let mine = x.from(scale_at(BYTES)).cast::<f32>().at(0);
                    let d = lanes.map(|lane| shuffle_idx(FULL, mine, lane));
                    for m in 0..TILES[0] {
                        for k in 0..4 {
                            let sum = scaled::<BYTES, BITS>(sums[m][k] as u32, d[k % 2]);
                            acc[m][n][k] = math::fma(scales[2 * m + k / 2], sum, acc[m][n][k]);
                        }
                    }
                }
            }
        });
    }

    /// A block's outputs, by way of shared memory.
    #[device]
    pub unsafe fn product<F: Decode, const BYTES: usize, const BITS: usize>(a: QuantizedArgs, memory: Shared<U32x4>) {
        let (g, t) = (lane() / 4, lane() & 3);
        let (class, half) = (warp_index() % CLASSES, warp_index() / CLASSES);
        let record = F::record(a.cols as usize, a.block_units);
        let vectors = record.vectors as u32;
        let first = (block::idx_x() * (ROWS / BLOCK_ROWS) + half as u32) * BLOCK_ROWS;
        a.begin(THREADS / ROWS, vectors, false);
        a.wait();
        let of_block = BlockColumns::of_block(block::idx_y(), a.experts, a.columns, super::COLUMNS);
        if of_block.count == 0 {
            return;
        }
        // That there is one, the compiler is not to know: it would load the first ones while registers are short.
        let columns = again(of_block.count) as usize;
        let matrix = a.chosen(BlockColumns::tile_of(block::idx_y()), vectors);
        let rows = WarpRows {
            rows: core::array::from_fn(|r| a.row(a.rows, first + g as u32, 8 * r as u32, vectors).from(matrix)),
            scales: record.blocks as u32 / 2,
            shared: record.block_units - 2,
        };
        let (order, class) = (Order::of::<BITS>(a.cols / BLOCK), class as u32);
        let of_columns: [u32; TILES[1]] = core::array::from_fn(|n| {
            let column = a.input(of_block.column((8 * n + g) as u32));
            column * len(a.cols, BYTES as u32) as u32 + t as u32
        });
        let mut acc = Outputs::default();
        let [a0, a1, a2, a3] = no_constants(a.x.from(of_columns[0] as usize));
        // Of two bits and two bytes registers are short.
        let tables = tables::<BITS>(if BITS == 2 && BYTES == 2 { [0; 3] } else { [a0, a1, a2] });
        let seed = match (BYTES, zero(BYTES, BITS)) {
            (_, 0) => [0; 4],
            (1, zero) => [a0, a1, a2, a3].map(|none| (zero + none) as i32),
            (_, zero) => [(zero + a3) as i32; 4],
        };
        let lanes = [0, 1].map(|k| 4 * (2 * t as u32 + k));
        let mut turn = Cursor::first::<BITS>(&order, class);
        if turn.exists::<BITS>(&order) {
            let mut words = rows.words::<BITS>(&turn);
            let mut more = true;
            while more {
                let now = (words.map(|words| signed::<BITS>(words, &tables)), rows.scales(turn.block));
                let (block, next) = (turn.block, turn.next::<BITS>(&order, class));
                more = next.exists::<BITS>(&order);
                // The last one loads its own again.
                turn = if more { next } else { turn };
                words = rows.words::<BITS>(&turn);
                add_block::<BYTES, BITS>(&mut acc, block, now, (a.x, &of_columns), columns, seed, lanes);
            }
        }
        let sums = memory.cast::<f32>();
        let of_class = sums.from((class as usize * COLUMNS + 2 * t) * STRIDE + half * BLOCK_ROWS as usize + g);
        for m in 0..TILES[0] {
            for n in 0..TILES[1] {
                for k in 0..4 {
                    of_class.set((8 * n + k % 2) * STRIDE + 16 * m + k / 2 * 8, acc[m][n][k]);
                }
            }
        }
        sync::block();
        finish(&a, sums, columns);
    }

    /// What becomes of the outputs: a warp takes every eighth column.
    #[inline(always)]
    unsafe fn finish(a: &QuantizedArgs, sums: Shared<f32>, columns: usize) {
        let outputs = BLOCK_ROWS >> a.epilogue.shift();
        let mut column = warp_index();
        // Found anew: what is kept over the loop before costs registers in it.
        let y = Launched.again().column;
        // SAFETY: what wrote the table is waited for.
        let of_block = unsafe { BlockColumns::of_block(y, a.experts, a.columns, super::COLUMNS) };
        while column < columns {
            // SAFETY: the caller's promise: the sums are there, and all lanes are here.
            unsafe {
                let of_all = of_block.column(column as u32);
                let place = |half: u32| Place {
                    thread: lane() as u32,
                    block: block::idx_x() * (ROWS / BLOCK_ROWS) + half,
                    column: of_all,
                };
                let (root, table) = (a.root(of_all as usize), BlockColumns::tile_of(y));
                let mut half = 0;
                while half < ROWS / BLOCK_ROWS && place(half).block * outputs < a.rows {
                    a.finish_with::<false>(place(half), BLOCK_ROWS, outputs, (root, table), |row| {
                        let row = (half * BLOCK_ROWS + row) as usize;
                        sum_warps(|class| sums.get((class * COLUMNS + column) * STRIDE + row))
                    });
                    half += 1;
                }
            }
            column += WARPS;
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
fn blocks_of(rows: u32, columns: u32, _: u64) -> Geometry {
    super::contract::grid(rows.div_ceil(ROWS), columns.div_ceil(COLUMNS))
}

macro_rules! entry {
    ($F:ident PlanesI8: $($rest:tt)*) => { entry! { $F, 1, 1, 0, U32x4: $($rest)* } };
    ($F:ident PlanesI16: $($rest:tt)*) => { entry! { $F, 1, 2, 0, U32x4: $($rest)* } };
    ($F:ident PlanesQ2I8: $($rest:tt)*) => { entry! { $F, 2, 1, 3, Q2Planes: $($rest)* } };
    ($F:ident PlanesQ2I16: $($rest:tt)*) => { entry! { $F, 2, 2, 3, Q2Planes: $($rest)* } };
    ($F:ident, $bits:literal, $bytes:literal, $units:literal, $X:ident: $gemm:ident $Gemm:ident $shared:ident) => {
        arguments! { quantized $X gemm (
            /// A matrix of codes of one or two bits times many columns.
            $gemm $Gemm: $X, 2, format::$F, units super::contract::of_blocks($units), len_of::<$bytes>,
            flags 0, blocks blocks_of, dynamic 0,
            shared_array!($shared: [U32x4; frame::SHARED]),
            |a, memory| frame::product::<format::$F, $bytes, $bits>(a, memory)
        ) }
    };
    ($($other:tt)*) => {};
}

macro_rules! entries {
    (() $($F:ident { $($quant_format:ident: $gemm:ident $Gemm:ident $shared:ident;)* } $formats:tt)*) => {
        $($(entry! { $F $quant_format: $gemm $Gemm $shared })*)*
    };
}

crate::formats! { tensor entries () }
