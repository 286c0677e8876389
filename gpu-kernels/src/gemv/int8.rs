//! Products of weights of four to eight bits with activations of eight or 16 bits: four multiplications an instruction (`dp4a`),
//! and no code becomes a float.
//!
//! The activations are rounded to codes once ([`QuantizeI8`], [`QuantizeI16`]), with a scale for each block of 32 columns, which is
//! a unit of the weights' [records](crate::format::record). A code of 16 bits is two signed bytes, `256 * high + low`, of up to
//! 127 * 257: a weight is multiplied with each, and the sums of the high ones count 256 times. With a weight
//! `scale * (code - offset) + shift`, and its unit's sums of integers, which are exact,
//!
//! `y[r] = sum over units u of d[u] * (scale[r, u] * sum (code - offset) * x + shift[r, u] * sum x)`.
//!
//! | | |
//! |---|---|
//! | `weights` | records, as for the [default](super) entry points |
//! | `x` | [`len`] vectors for each column, as [`QuantizeI8`] or [`QuantizeI16`] wrote them |
//! | `cols` | a multiple of the format's block |
//!
//! The other arguments are those of [all quantized activations](super::quantized); [`Quantize`](super::Quantize) and
//! [`Gemv::quantized`](super::Gemv::quantized) pick the entry points.
//!
//! The words of a unit lie so that [`tensor`](super::tensor) finds in one place what a lane needs: of each four columns `4 q` and of
//! columns `16 + 4 q`, `q` from 0 to 3, the codes of both; of two bytes each, the word of high ones before that of low ones. The vectors of
//! two units alternate: lanes that each load a vector of a unit of their own load whole sectors of memory, where they would load halves.
//! Behind them lie for each of the two the f32 `d` and the sums of its halves' codes, in 16 bits each: of eight bits in two words; of 16 in a
//! vector of `d`, of the sums of the higher bytes and of those of the lower ones, and of the f32 `d` times the sum of all codes.
//!
//! Sums of integers count from the bits of 1.5 * 2^23, and so are floats without a conversion, from which one fused multiply-add takes
//! that off as it multiplies by `d`; `d` has 22 bits, so that what is taken off is exact. Of two bytes the higher ones' sum is the first
//! of two such steps ([`scaled`](super::quant_format::int8::scaled)), and loses up to `3/8 d`.
//!
//! # Accuracy
//! Codes are rounded to nearest: an activation is off by up to `d / 2`, where `d` is the largest magnitude of its block over
//! 127 or 32639; the product by up to `sum |w| d / 2` beyond the `1e-5 * sum |w * x|` of the default entry points. An outlier costs
//! its block the others' precision. As shares of `sum |w * x|`, rows of 4096 columns with one of 26 times the root mean
//! square were off by 3e-4 to 8e-4 with eight bits, by 1e-6 to 4e-6 with 16 (the golden vectors of 512 columns by up to 5e-5). An activation
//! that is not finite makes everything NaN, and so does one of a magnitude of 2^110 or more.
//!
//! The instruction: PTX ISA, `dp4a`.

use super::quant_format::BLOCK_ROWS;
pub use super::quant_format::int8::{BLOCK, I8Vector, I16Vector, len};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::quantizer::write_unit;
use crate::format;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::load::{lane, warp_index};
use warpsmith_device::prelude::*;

/// Rows of weights that a warp takes.
pub(crate) const ROWS: usize = 4;
/// Warps of a block of threads, each with its own rows; with [`SWIGLU`](super::SWIGLU) up to twice as many.
const WARPS: usize = 8;
/// Threads of a block without that.
pub(crate) const THREADS: u32 = 32 * WARPS as u32;
/// From the sums of a row's lanes in shared memory to those of the next: vectors of four, an odd number of them, so that those of
/// neighbouring rows lie in other banks.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
const STRIDE: usize = 36;
const _: () = assert!(BLOCK_ROWS as usize == ROWS * WARPS && BLOCK_ROWS == BLOCK);

const fn len_of<const BYTES: u32>(cols: u32) -> u64 {
    len(cols, BYTES)
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) mod frame {
    use super::super::{
        quant_format::int8::{self, less, scaled, zeros},
        quantized::{Invocation, QuantizedArgs, asks_behind},
    };
    use super::*;
    use crate::format::{
        decode::{Packed, QUADS},
        record::{InMemory, Memory, Record},
    };
    use crate::load::{Place, Role, again, lane, sync_role};
    use warpsmith_device::shared::Shared;

    const THREADS_A_ROW: u32 = 32 / ROWS as u32;

    /// What a unit of activations has beside its codes.
    #[derive(Clone, Copy)]
    pub struct Scale<const BYTES: usize> {
        pub d: f32,
        /// Of each byte of the codes, the halves' sums in 16 bits each.
        halves: [i32; BYTES],
        /// `d` times the sum of all codes, where that is stored.
        sum: f32,
    }

    impl<const BYTES: usize> Scale<BYTES> {
        /// That of unit `u`.
        #[inline(always)]
        pub unsafe fn load(x: In<U32x4>, u: usize) -> Scale<BYTES> {
            // SAFETY: the caller's promise.
            unsafe { Self::at(x, Self::place(u)) }
        }

        /// Where that of unit `u` lies, counted in what is loaded.
        #[inline(always)]
        pub fn place(u: usize) -> usize {
            int8::scale(BYTES, u) / if BYTES == 1 { 2 } else { 4 }
        }

        /// That at such a place.
        #[inline(always)]
        pub unsafe fn at(x: In<U32x4>, place: usize) -> Scale<BYTES> {
            const { assert!(BYTES == 1 || BYTES == 2) };
            // SAFETY: the caller's promise: the unit is one of `x`.
            let [d, first, second, sum] = unsafe {
                if BYTES == 1 {
                    let U32x2([d, sums]) = x.cast::<U32x2>().at(place);
                    [d, sums, 0, 0]
                } else {
                    x.at(place).0
                }
            };
            let halves = core::array::from_fn(|byte| if byte == 0 { first as i32 } else { second as i32 });
            Scale { d: f32::from_bits(d), halves, sum: f32::from_bits(sum) }
        }

        /// What the sums of part `part` of a unit begin with: what they count from, less the offset of codes.
        #[inline(always)]
        fn first<F: Packed>(&self, part: usize) -> [i32; BYTES] {
            let zeros = zeros::<BYTES>();
            // The offset for the halves that the part has, as signed bytes.
            let of_halves = if F::SCALES == 1 { 0x0101 } else { 1 << (8 * part) };
            let offset = const { -F::OFFSET << F::UP };
            core::array::from_fn(|byte| {
                let zero = zeros[byte] as i32;
                if F::OFFSET == 0 { zero } else { math::dp2a(self.halves[byte], (offset & 0xFF) * of_halves, zero) }
            })
        }

        /// `d` times the sum of the codes; `d` as [`counted`], and [`less`] of that.
        #[inline(always)]
        pub fn sum<F: Packed>(&self, d: f32, less: f32) -> f32 {
            if BYTES == 2 {
                return self.sum;
            }
            let sum = math::dp2a(self.halves[0], const { 0x0101 << F::UP }, int8::ZERO.to_bits() as i32);
            math::fma(f32::from_bits(sum as u32), d, less)
        }
    }

    /// A unit of activations.
    struct Unit<const BYTES: usize> {
        /// The highest bytes first.
        codes: [[i32; QUADS]; BYTES],
        scale: Scale<BYTES>,
    }

    /// Activations of unit `u`.
    #[inline(always)]
    unsafe fn load<const BYTES: usize>(x: In<U32x4>, u: usize) -> Unit<BYTES> {
        // SAFETY: the caller's promise: the unit is one of `x`.
        unsafe {
            let codes = x.from(int8::codes(BYTES, u));
            let vectors: [[u32; 4]; 4] =
                core::array::from_fn(|i| if i < 2 * BYTES { codes.at(2 * i).0 } else { [0; 4] });
            let word = |byte: usize, q: usize| {
                let word = int8::word(BYTES, byte, q);
                vectors[word / 8][word % 4] as i32
            };
            Unit {
                codes: core::array::from_fn(|byte| core::array::from_fn(|q| word(byte, q))),
                scale: Scale::load(x, u),
            }
        }
    }

    /// The scale of activations for sums that count codes by `2^UP`.
    #[inline(always)]
    pub fn counted<F: Packed>(d: f32) -> f32 {
        if F::UP == 0 { d } else { d * const { 1.0 / (1 << F::UP) as f32 } }
    }

    /// Adds the products of unit `u` of each row.
    #[inline(always)]
    unsafe fn add_unit<F: Packed, const BYTES: usize>(
        acc: &mut [f32; ROWS],
        memory: &[InMemory; ROWS],
        record: &Record,
        x: &Unit<BYTES>,
        u: usize,
        words: &[[u32; 4]; ROWS],
    ) {
        let d = counted::<F>(x.scale.d);
        // SAFETY: the caller's promise: the rows have that unit.
        unsafe {
            for r in 0..ROWS {
                let codes = F::codes_of(memory[r], record, u, words[r]);
                let scales = F::scales(memory[r], record, u);
                for part in 0..F::SCALES {
                    let sums = F::add_products::<InMemory, BYTES>(&codes, part, &x.codes, x.scale.first::<F>(part));
                    let dot = scaled(sums.map(|sum| sum as u32), d, less::<BYTES>(d));
                    // The scale last: alone it may be as large as a number can be.
                    acc[r] = math::fma(scales.scale[part], dot, acc[r]);
                }
                if F::SHIFTED {
                    acc[r] = math::fma(scales.shift[0], x.scale.sum::<F>(d, less::<BYTES>(d)), acc[r]);
                }
            }
        }
    }

    /// Where the sums of a row's lanes begin: even rows first, and four places behind them odd ones, so that those of eight rows, and
    /// those of eight gates, are in banks of their own.
    #[inline(always)]
    fn place_of(row: u32, block_rows: u32) -> usize {
        (row / 2 + row % 2 * (block_rows / 2 + 4)) as usize * STRIDE
    }

    /// The sum over the lanes of a row, from the first on: an order that [`tensor`](super::super::tensor) can follow.
    #[inline(always)]
    unsafe fn sum_lanes(sums: Shared<f32>, place: usize) -> f32 {
        let (mut sum, mut lane, end) = (0.0, 0, again(32) as usize);
        while lane < end {
            // SAFETY: the caller's promise: they were written before a barrier.
            let four = unsafe { [sums.get4(place + lane).0, sums.get4(place + lane + 4).0] };
            for i in 0..8 {
                sum += four[i / 4][i % 4];
            }
            lane += 8;
        }
        sum
    }

    /// A block's outputs, by way of `sums`.
    #[device]
    pub unsafe fn product<F: Packed, const BYTES: usize>(given: impl Invocation, sums: Shared<f32>) {
        let (acc, zero, a) = lanes::<F, BYTES>(given);
        finish(&a, given.role(), zero, &acc, sums);
    }

    /// What the thread's lane has of each of its warp's rows; 0, which the assembler does not know to be that; and the arguments, found
    /// anew.
    #[device]
    pub unsafe fn lanes<F: Packed, const BYTES: usize>(given: impl Invocation) -> ([f32; ROWS], u32, QuantizedArgs) {
        let (a, role) = (given.args(), given.role());
        // Where rows of the first matrix and column are. SAFETY: the caller's promise: they are there.
        let find = |a: &QuantizedArgs, place: Place, threads: u32| unsafe {
            let record = F::record(a.cols as usize, 0);
            let first = place.thread / 32 * ROWS as u32;
            let block_rows = threads / THREADS_A_ROW;
            let memory: [InMemory; ROWS] = core::array::from_fn(|r| {
                let i = place.block * block_rows + first + r as u32 % 2;
                InMemory(a.row(a.rows, i, (r & !1) as u32, record.vectors as u32))
            });
            (record, memory, a.x.from(a.input(place.column) as usize * len(a.cols, BYTES as u32) as usize))
        };
        let (record, mut memory, x) = find(&a, Place::now(role), role.threads());
        let vectors = record.vectors as u32;
        given.ask_next(THREADS_A_ROW);
        given.start(THREADS_A_ROW, vectors, asks_behind(THREADS_A_ROW, vectors));
        if a.experts.is_some() {
            let chosen = a.chosen(role.again().column, record.vectors as u32);
            memory = memory.map(|row| InMemory(row.0.from(chosen)));
        }
        let mut acc = [0.0f32; ROWS];
        // Runs of units of 32 lanes; rows shorter than that have fewer lanes and no such run.
        let together = F::SPEC.together();
        let run = if together > 1 { together } else { 2 };
        let full = (record.units / (32 * run) * (32 * run)) as u32;
        let mut base = 0u32;
        while base < full {
            let mut words = [[0u32; 4]; ROWS];
            if together > 1 {
                // Not another pointer for each row, which the compiler would count up.
                let at = again(record.short as u32 + base / together as u32) as usize + lane();
                for r in 0..ROWS {
                    words[r] = memory[r].vector(at);
                }
            }
            for part in 0..run {
                let [a, b, c, d] = [0, 1, 2, 3].map(|i| (i + part * F::SPEC.short_words()) % 4);
                let words = words.map(|w| [w[a], w[b], w[c], w[d]]);
                let first = base as usize + 32 * part;
                // A row that ends with the 32 units: where they lie is a constant.
                let until = Record { lanes_log2: 5, units: first + 32, ..record };
                // Of the lane, what is added is known from the beginning on.
                let x = load::<BYTES>(x.from(int8::pairs(BYTES, first)), lane());
                add_unit::<F, BYTES>(&mut acc, &memory, &until, &x, first + lane(), &words);
            }
            base += 32 * run as u32;
        }
        // Found anew: what is kept over the loop costs registers in it, or local memory. The assembler takes a number for the one that
        // it was before, and so what it cannot know to be 0 is added.
        let zero = base - full;
        let a = given.again();
        let a = QuantizedArgs { rows: again(a.rows) + zero, cols: again(a.cols) + zero, ..a };
        if base < a.cols / BLOCK {
            let (record, mut memory, x) = find(&a, role.again(), role.threads() + zero);
            if a.experts.is_some() {
                let chosen = a.chosen(role.again().column, record.vectors as u32);
                memory = memory.map(|row| InMemory(row.0.from(chosen)));
            }
            let lane = role.again().thread as usize % 32;
            let (mut u, mut x) = (base as usize + lane, x.from(int8::pairs(BYTES, base as usize)));
            while u < record.units {
                let words = memory.map(|m| F::words(m, &record, u));
                add_unit::<F, BYTES>(&mut acc, &memory, &record, &load(x, lane), u, &words);
                u += 32;
                x = x.from(int8::pairs(BYTES, 32));
            }
        }
        (acc, zero, a)
    }

    /// The outputs of a block whose lanes have `acc` each, in whatever format their weights were, by way of `sums`; `zero` is 0.
    #[device]
    pub unsafe fn finish(a: &QuantizedArgs, role: impl Role, zero: u32, acc: &[f32; ROWS], sums: Shared<f32>) {
        let place = Place { block: role.again().block + zero, ..role.again() };
        let thread = place.thread as usize;
        let block_rows = (role.threads() + zero) / THREADS_A_ROW;
        for r in 0..ROWS {
            let row = (thread / 32 * ROWS + r) as u32;
            sums.set(place_of(row, block_rows) + thread % 32, acc[r]);
        }
        // Found while others may still be at work.
        let root = if thread < 32 { a.root(place.column as usize) } else { 1.0 };
        sync_role(role);
        if thread < 32 {
            let product = |row| unsafe { sum_lanes(sums, place_of(row, block_rows)) };
            a.finish(place, block_rows, root, product);
        }
    }
}

quantizer! {
    /// Activations of eight bits in blocks of 32.
    quantize_i8 QuantizeI8: I8Vector, 8, blocks of BLOCK, len_of::<1>, |x, to, cols| {
        quantize_units(1, x, to.cast(), cols)
    }
}

quantizer! {
    /// Activations of 16 bits in blocks of 32, as two signed bytes each.
    quantize_i16 QuantizeI16: I16Vector, 8, blocks of BLOCK, len_of::<2>, |x, to, cols| {
        quantize_units(2, x, to.cast(), cols)
    }
}

/// Quantizes the units of a block of threads, of four warps, each of which has all of its own on the way at once.
#[device]
unsafe fn quantize_units(bytes: u32, x: In<f32>, to: Out<U32x4>, cols: u32) {
    const EACH: usize = (super::quantized::COLUMNS / BLOCK) as usize / 4;
    let units = (cols / BLOCK) as usize;
    let mut u = block::idx_x() as usize * 4 * EACH + warp_index();
    let end = (u + 4 * EACH).min(units);
    // A unit behind the last is that, and is dropped.
    let mut values: [f32; EACH] = core::array::from_fn(|k| x.at(BLOCK as usize * (u + 4 * k).min(units - 1) + lane()));
    while u < end {
        write_unit(bytes, values[0], to, u);
        for k in 1..EACH {
            values[k - 1] = values[k];
        }
        u += 4;
    }
}

/// With gates and ups a block has all outputs that share a scale.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks_of(most: u32, flags: u32) -> (u32, u32) {
    let parts = if flags & super::SWIGLU != 0 { most } else { 1 };
    (THREADS * parts, parts)
}

macro_rules! entry {
    ($F:ident I8: $($rest:tt)*) => { entry! { $F, 1, I8Vector: $($rest)* } };
    ($F:ident I16: $($rest:tt)*) => { entry! { $F, 2, I16Vector: $($rest)* } };
    ($F:ident, $bytes:literal, $X:ident: $blocks:literal, $gemv:ident $Gemv:ident $shared:ident) => {
        // With gates and ups one block is resident where there are `$blocks` else, with all of their threads.
        product! {
            /// A matrix times columns of activations of eight or 16 bits.
            $gemv $Gemv: $X, 1 of THREADS * $blocks, by |_, flags, _| blocks_of($blocks, flags), format::$F, units 0, len_of::<$bytes>,
            $shared of (2 * BLOCK_ROWS as usize + 4) * STRIDE, |a, sums| frame::product::<format::$F, $bytes>(a, sums)
        }
    };
    ($($other:tt)*) => {};
}

macro_rules! entries {
    (() $($F:ident { $($quant_format:ident: $blocks:literal, $gemv:ident $Gemv:ident $shared:ident;)* } $formats:tt)*) => {
        $($(entry! { $F $quant_format: $blocks, $gemv $Gemv $shared })*)*
    };
}

crate::formats! { quantized entries () }
