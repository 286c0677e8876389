//! Products of many columns of activations of eight or 16 bits, on tensor cores: what [`int8`](super::int8) computes, to the bit.
//!
//! A block of threads has 128 rows of weights and 64 columns. Codes of weights are taken apart once for all of its columns: they
//! become signed bytes in shared memory, and the scales f32. Each of the eight warps multiplies 32 rows with every other tile of eight
//! columns (`mma.m16n8k32` of signed bytes, one or two a unit of 32 columns of weights).
//!
//! The integers of a unit are the same whatever adds them up. What is rounded, the sum over a row's units, is formed in the order
//! that a warp of [`int8`](super::int8) has: for each of its 32 lanes one unit after the other, `l`, `l + 32`, …, and then the
//! sums of the lanes, from the first on. So a column's results do not depend on how many others there are.
//!
//! The arguments are those of [`int8`](super::int8); [`Gemv::quantized`](super::Gemv::quantized) takes these entry points from
//! [`FROM`] columns on.
//!
//! The instruction: PTX ISA, `mma` with `.s8` operands.

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::quant_format::BLOCK_ROWS;
use super::quant_format::int8::{I8Vector, I16Vector, len};
use crate::format;
use warpsmith_device::prelude::*;

/// Columns from which on products take these entry points. They cost as much as six or seven columns of [`int8`](super::int8) and a
/// tenth of one for each, but have few blocks where a matrix has few rows: 32 of 4096, for 132 multiprocessors of an H200. By counted
/// instructions a layer of a model of 8 billion weights takes longer with these up to ten columns, and less from there on. Those of
/// [`tensor_planes`](super::tensor_planes) cost as much as four to seven of one column, with 64 blocks for 4096 rows.
pub const FROM: u32 = 12;
/// Rows of weights of a block of threads.
pub const ROWS: u32 = 128;
/// Columns of a block of threads.
pub const COLUMNS: u32 = 64;
/// Threads of a block.
const THREADS: u32 = 256;

#[cfg(not(target_arch = "nvptx64"))]
const fn len_of<const BYTES: u32>(cols: u32) -> u64 {
    len(cols, BYTES)
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod frame {
    use super::super::{
        int8::frame::Scale,
        quantized::{Args, Given},
    };
    use super::*;
    use crate::format::{
        decode::{Packed, Scales},
        record::{InMemory, Record},
    };
    use crate::load::{Place, lane, warp_index};
    use warpsmith_device::{
        mma::{load_matrices, load_two_matrices, mma_i8, mma_i8_k16},
        shared::Shared,
        static_for,
    };

    const ROWS: usize = super::ROWS as usize;
    const COLUMNS: usize = super::COLUMNS as usize;
    /// Units that are staged at once.
    const STAGED: usize = 4;
    /// Classes of units whose sums are formed one after the other: the lanes of a warp that multiplies one column.
    const CLASSES: usize = 32;
    const WARPS: usize = 8;
    /// Tiles of 16 rows, and of eight columns, that a warp has.
    const TILES: [usize; 2] = [2, 4];
    /// From a column of outputs to the next, so that neighbouring columns begin in other banks.
    const STRIDE: usize = ROWS + 4;

    /// Numbers that a row has for a unit.
    const fn numbers<F: Packed>() -> usize {
        if F::SCALES == 2 || F::SHIFTED { 2 } else { 1 }
    }

    /// Words that a column of activations has for a unit, beside codes.
    const fn words<F: Packed>() -> usize {
        if F::SHIFTED { 2 } else { 1 }
    }

    /// Codes as signed bytes.
    #[inline(always)]
    fn signed<F: Packed>(bytes: u32) -> u32 {
        const HIGHEST: u32 = 0x8080_8080;
        match F::OFFSET {
            0 => bytes,
            128 => bytes ^ HIGHEST,
            // Of bytes below 128: none borrows from the next.
            offset => ((bytes | HIGHEST) - 0x0101_0101 * offset as u32) ^ HIGHEST,
        }
    }

    /// Where what is staged of a unit lies, in vectors.
    struct Slot<F: Packed, const BYTES: usize>(core::marker::PhantomData<F>);
    impl<F: Packed, const BYTES: usize> Slot<F, BYTES> {
        /// Bytes of weights: the first 16 columns of every row, then the others.
        const CODES: usize = 0;
        /// Bytes of activations: for each of them the first 16 of every column, then the others.
        const X: usize = 2 * ROWS;
        /// Scales of all columns, each with what addends of weights are multiplied with, where there are such.
        const SCALES: usize = Self::X + 2 * BYTES * COLUMNS;
        /// Scales of all rows, and then what else there is.
        const NUMBERS: usize = Self::SCALES + COLUMNS * words::<F>() / 4;
        /// Two more, so that slots begin in other banks.
        const VECTORS: usize = Self::NUMBERS + numbers::<F>() * ROWS / 4 + 2;
    }

    /// Vectors of shared memory that a block takes.
    pub const fn shared<F: Packed, const BYTES: usize>() -> usize {
        let (staged, outputs) = (STAGED * Slot::<F, BYTES>::VECTORS, COLUMNS * STRIDE / 4);
        if staged > outputs { staged } else { outputs }
    }

    /// The unit behind `u`, of `units`, in the order in which they are added up.
    #[inline(always)]
    fn next(u: u32, units: u32) -> u32 {
        if u + (CLASSES as u32) < units { u + CLASSES as u32 } else { (u & (CLASSES as u32 - 1)) + 1 }
    }

    /// What a thread stages: of four units in turn one of two rows of weights and of a column.
    #[derive(Clone, Copy)]
    struct Stager {
        record: Record,
        rows: [InMemory; 2],
        x: In<U32x4>,
    }

    impl Stager {
        #[inline(always)]
        unsafe fn of<F: Packed, const BYTES: usize>(a: &Args) -> Stager {
            let record = F::SPEC.record(a.cols as usize, a.block_units);
            let (shift, of_warp) = (a.epilogue.shift(), (lane() / 4) as u32);
            let first = ((block::idx_x() * super::ROWS + warp_index() as u32 * 16) >> shift) + of_warp;
            // A tile of 16 rows has eight gates and then their ups. After the last row it is taken again.
            let row = |upper: u32| {
                let last = a.rows - 1;
                if shift == 0 { (first + 8 * upper).min(last) } else { first.min(last) + upper * a.rows }
            };
            // SAFETY: the rows are among the weights, and the column among those of `x`.
            unsafe {
                let rows = [0, 1]
                    .map(|upper| InMemory(a.weights.from((u64::from(row(upper)) * record.vectors as u64) as usize)));
                let column = block::idx_y() * super::COLUMNS + warp_index() as u32 * 8 + of_warp;
                let column = column.min(a.columns - 1) as usize;
                Stager { record, rows, x: a.x.from(column * len(a.cols, BYTES as u32) as usize) }
            }
        }

        /// Stages unit `u` in a slot.
        #[inline(always)]
        unsafe fn stage<F: Packed, const BYTES: usize>(&self, slot: Shared<U32x4>, u: usize) {
            let (row, column) = (warp_index() * 16 + lane() / 4, warp_index() * 8 + lane() / 4);
            // SAFETY: the caller's promise: the unit is there, and nobody reads the slot.
            unsafe {
                let mut numbers = [[0.0; 2]; 2];
                for upper in 0..2 {
                    let codes = F::codes(self.rows[upper], &self.record, u);
                    let [a, b, c, d, e, f, g, h] =
                        core::array::from_fn(|q| signed::<F>(F::bytes::<InMemory>(&codes, q)));
                    let at = Slot::<F, BYTES>::CODES + row + 8 * upper;
                    slot.set(at, U32x4([a, b, c, d]));
                    slot.set(at + ROWS, U32x4([e, f, g, h]));
                    let Scales { scale, shift } = F::scales(self.rows[upper], &self.record, u);
                    numbers[0][upper] = scale[0];
                    numbers[1][upper] = if F::SCALES == 2 { scale[1] } else { shift[0] };
                }
                // Rows that a lane multiplies are neighbours.
                let of_rows = slot.from(Slot::<F, BYTES>::NUMBERS).cast::<f32>();
                let at = warp_index() * 16 + lane() / 4 * 2;
                of_rows.set2(at, F32x2(numbers[0]));
                if self::numbers::<F>() == 2 {
                    of_rows.set2(ROWS + at, F32x2(numbers[1]));
                }
                let units = self.record.units;
                for section in 0..2 * BYTES {
                    let at = Slot::<F, BYTES>::X + section * COLUMNS + column;
                    slot.set(at, self.x.at(section * units + u));
                }
                let Scale { d, sum, .. } = Scale::load::<BYTES>(self.x, units, u);
                let scales = slot.from(Slot::<F, BYTES>::SCALES).cast::<f32>();
                if F::SHIFTED {
                    scales.set2(2 * column, F32x2([d, d * sum as f32]));
                } else {
                    scales.set(column, d);
                }
            }
        }
    }

    /// `sum (code - offset) * x` of a tile of rows and one of columns, over part `part` of a unit.
    #[inline(always)]
    unsafe fn dots<F: Packed, const BYTES: usize>(a: [u32; 4], b: [[u32; 2]; BYTES], part: usize) -> [f32; 4] {
        let multiply = |c, b: [u32; 2]| {
            // SAFETY: the caller's promise: all lanes are here.
            unsafe {
                if F::SCALES == 2 { mma_i8_k16(c, [a[2 * part], a[2 * part + 1]], b[part]) } else { mma_i8(c, a, b) }
            }
        };
        let mut sums = multiply([0; 4], b[0]);
        if BYTES == 2 {
            sums = multiply(sums.map(|high| high << 8), b[1]);
        }
        sums.map(|sum| sum as f32)
    }

    type Outputs = [[[f32; 4]; TILES[1]]; TILES[0]];

    /// Where a lane finds what it multiplies in the first slot; in the others as much further as slots are apart.
    #[derive(Clone, Copy)]
    struct Places {
        codes: u32,
        x: u32,
        scales: Shared<f32>,
        numbers: Shared<f32>,
        /// Columns from the warp's first on.
        columns: u32,
    }

    impl Places {
        #[inline(always)]
        unsafe fn of<F: Packed, const BYTES: usize>(memory: Shared<U32x4>, columns: usize) -> Places {
            let (lane, warp) = (lane(), warp_index());
            let (first_row, first_column) = (warp / 2 * 16 * TILES[0], warp % 2 * 8);
            let row = first_row + lane % 8 + lane / 8 % 2 * 8 + lane / 16 * ROWS;
            let column = first_column + lane % 8 + lane / 8 % (2 * BYTES) * COLUMNS;
            let my_column = first_column + lane % 4 * 2;
            // SAFETY: they lie in a slot.
            unsafe {
                Places {
                    codes: memory.address_of(Slot::<F, BYTES>::CODES + row),
                    x: memory.address_of(Slot::<F, BYTES>::X + column),
                    scales: memory.from(Slot::<F, BYTES>::SCALES).cast::<f32>().from(my_column * words::<F>()),
                    numbers: memory.from(Slot::<F, BYTES>::NUMBERS).cast::<f32>().from(first_row + lane / 4 * 2),
                    columns: (columns as u32).saturating_sub(first_column as u32),
                }
            }
        }
    }

    /// Adds the products of the unit in slot `slot` for the warp's rows and columns.
    #[inline(always)]
    unsafe fn add_unit<F: Packed, const BYTES: usize>(acc: &mut Outputs, places: Places, slot: u32) {
        const VECTOR: u32 = size_of::<U32x4>() as u32;
        let slot = slot * Slot::<F, BYTES>::VECTORS as u32;
        // SAFETY: the caller's promise: the slot is staged, and all lanes are here.
        unsafe {
            let numbers = places.numbers.from(4 * slot as usize);
            let numbers_of = |m: usize| {
                let [first, second] = [16 * m, ROWS + 16 * m];
                [numbers.get2(first).0, if self::numbers::<F>() == 2 { numbers.get2(second).0 } else { [0.0; 2] }]
            };
            let (mut a, mut scales) = ([[0; 4]; TILES[0]], [[[0.0; 2]; 2]; TILES[0]]);
            for m in 0..TILES[0] {
                a[m] = load_matrices(places.codes + (slot + 16 * m as u32) * VECTOR);
                // Where halves have scales of their own they are loaded anew for each tile: registers are short.
                if F::SCALES == 1 {
                    scales[m] = numbers_of(m);
                }
            }
            let (x, of_columns) = (places.x + slot * VECTOR, places.scales.from(4 * slot as usize));
            static_for!(n in 0..TILES[1] => {
                if 16 * (n as u32) < places.columns {
                    let x = x + 16 * n as u32 * VECTOR;
                    let b: [[u32; 2]; BYTES] = if BYTES == 1 {
                        [load_two_matrices(x); BYTES]
                    } else {
                        let [a, b, c, d] = load_matrices(x);
                        core::array::from_fn(|byte| if byte == 0 { [a, b] } else { [c, d] })
                    };
                    let (d, shifts) = if F::SHIFTED {
                        let [d, a, e, b] = of_columns.get4(32 * n).0;
                        ([d, e], [a, b])
                    } else {
                        (of_columns.get2(16 * n).0, [0.0; 2])
                    };
                    for m in 0..TILES[0] {
                        let to = &mut acc[m][n];
                        if F::SCALES == 1 {
                            let dots = dots::<F, BYTES>(a[m], b, 0);
                            for i in 0..4 {
                                to[i] = math::fma(scales[m][0][i / 2], d[i % 2] * dots[i], to[i]);
                                if F::SHIFTED {
                                    to[i] = math::fma(scales[m][1][i / 2], shifts[i % 2], to[i]);
                                }
                            }
                        } else {
                            let [of_first, of_second] = numbers_of(m);
                            let first = dots::<F, BYTES>(a[m], b, 0);
                            let first: [f32; 4] = core::array::from_fn(|i| of_first[i / 2] * first[i]);
                            let second = dots::<F, BYTES>(a[m], b, 1);
                            for i in 0..4 {
                                let sum = math::fma(of_second[i / 2], second[i], first[i]);
                                to[i] = math::fma(d[i % 2], sum, to[i]);
                            }
                        }
                    }
                }
            });
        }
    }

    /// A block's outputs, by way of shared memory.
    #[device]
    pub unsafe fn product<F: Packed, const BYTES: usize>(a: Args, memory: Shared<U32x4>) {
        const { assert!(F::SCALES == 1 || !F::SHIFTED, "no such format has entry points here") };
        let stager = Stager::of::<F, BYTES>(&a);
        a.begin(THREADS / super::ROWS, stager.record.vectors as u32);
        a.wait();
        let units = stager.record.units as u32;
        let columns = ((a.columns - block::idx_y() * super::COLUMNS) as usize).min(COLUMNS);
        let (mut total, mut acc): (Outputs, Outputs) = Default::default();
        // The thread's next unit to stage, and the block's next to multiply.
        let slot = lane() % 4;
        let (mut mine, mut now) = (0, 0);
        for _ in 0..slot {
            mine = next(mine, units);
        }
        let mut done = 0;
        while done < units {
            sync::block();
            if done + (slot as u32) < units {
                stager.stage::<F, BYTES>(memory.from(slot * Slot::<F, BYTES>::VECTORS), mine as usize);
            }
            for _ in 0..STAGED {
                mine = next(mine, units);
            }
            sync::block();
            let places = Places::of::<F, BYTES>(memory, columns);
            let staged = (units - done).min(STAGED as u32);
            let mut k = 0;
            while k < staged {
                add_unit::<F, BYTES>(&mut acc, places, k);
                if now + CLASSES as u32 >= units {
                    add_class(&mut total, &mut acc);
                }
                now = next(now, units);
                k += 1;
            }
            done += staged;
        }
        sync::block();
        store(&total, memory.cast());
        sync::block();
        finish(&a, memory.cast(), columns);
    }

    /// The sums of a class are whole: they are added to those before.
    #[inline(always)]
    fn add_class(total: &mut Outputs, acc: &mut Outputs) {
        for m in 0..TILES[0] {
            for n in 0..TILES[1] {
                for i in 0..4 {
                    total[m][n][i] += acc[m][n][i];
                    acc[m][n][i] = 0.0;
                }
            }
        }
    }

    /// Outputs as `[column][row]`.
    #[inline(always)]
    unsafe fn store(total: &Outputs, to: Shared<f32>) {
        let (lane, warp) = (lane(), warp_index());
        for m in 0..TILES[0] {
            for n in 0..TILES[1] {
                for i in 0..4 {
                    let row = (warp / 2 * TILES[0] + m) * 16 + lane / 4 + i / 2 * 8;
                    let column = warp % 2 * 8 + 16 * n + lane % 4 * 2 + i % 2;
                    // SAFETY: the caller's promise: nobody reads it before a barrier.
                    unsafe { to.set(column * STRIDE + row, total[m][n][i]) };
                }
            }
        }
    }

    /// What becomes of the outputs: a warp takes every eighth column.
    #[inline(always)]
    unsafe fn finish(a: &Args, sums: Shared<f32>, columns: usize) {
        let shift = a.epilogue.shift();
        // Rows of weights that a warp finishes at a time: as many as give 32 outputs.
        let rows = BLOCK_ROWS << shift;
        let mut column = warp_index();
        while column < columns {
            // SAFETY: the column is one of the outputs.
            let of_column = unsafe { sums.from(column * STRIDE) };
            let place = |group: u32| Place {
                thread: lane() as u32,
                block: block::idx_x() * (super::ROWS / rows) + group,
                column: block::idx_y() * super::COLUMNS + column as u32,
            };
            // SAFETY: the caller's promise: the outputs are there, and all lanes are here.
            unsafe {
                let root = a.root(place(0).column as usize);
                let mut group = 0;
                while group < super::ROWS / rows && place(group).block * BLOCK_ROWS < a.rows {
                    a.finish_with::<true>(place(group), rows, BLOCK_ROWS, root, |i| {
                        let row = if shift == 0 {
                            group * rows + i
                        } else {
                            let output = group * BLOCK_ROWS + i / 2;
                            output / 8 * 16 + output % 8 + i % 2 * 8
                        };
                        of_column.get(row as usize)
                    });
                    group += 1;
                }
            }
            column += WARPS;
        }
    }
}

/// A product of many columns and its contract. A block of threads has `ROWS` rows of weights and `COLUMNS` columns; `units`: the
/// largest `block_units`, 0 where the format has its own.
macro_rules! gemm {
    (
        (
            $(#[$doc:meta])* $name:ident $Name:ident: $X:ident, $F:ty, units $units:literal, $len:expr,
            $shared:ident of $vectors:expr, |$args:ident, $memory:ident| $body:expr
        )
        $($argument:ident: ($($ty:tt)*),)*
    ) => {
        $(#[$doc])*
        #[kernel(block = THREADS, min_blocks = 2, family = "gemm")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($argument: $($ty)*,)*) {
            let $memory = shared_array!($shared: [U32x4; $vectors]);
            let $args = super::quantized::Args::of(super::arguments::QuantizedArguments { $($argument),* });
            $body
        }

        #[cfg(not(target_arch = "nvptx64"))]
        convert! { $Name: gemv::arguments, QuantizedGiven QuantizedSeen $X, $($argument)* }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                let stacked = self.rows << u32::from(self.flags & super::SWIGLU != 0);
                super::contract::grid(stacked.div_ceil(ROWS), self.columns.div_ceil(COLUMNS))
            }
            fn check(&self) -> Result<(), ContractError> {
                use super::contract::{Limits, check_quantized};
                let limits = Limits { column: $len(self.cols), most_units: $units };
                check_quantized::<$F, _>(Self::META, &self.seen(), &limits)
            }
        }
    };
}

macro_rules! entry {
    ($F:ident I8: $($rest:tt)*) => { entry! { $F, 1, I8Vector: $($rest)* } };
    ($F:ident I16: $($rest:tt)*) => { entry! { $F, 2, I16Vector: $($rest)* } };
    ($F:ident, $bytes:literal, $X:ident: $gemm:ident $Gemm:ident $shared:ident) => {
        arguments! { quantized $X gemm (
            /// A matrix times many columns of activations of eight or 16 bits.
            $gemm $Gemm: $X, format::$F, units 0, len_of::<$bytes>,
            $shared of frame::shared::<format::$F, $bytes>(), |a, memory| frame::product::<format::$F, $bytes>(a, memory)
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
