//! Products of f16 on tensor cores, with f32 sums: of activations that are rounded once ([`QuantizeF16`]), and of weights that become
//! f16 in registers ([`halves`](crate::format::halves)), with any number of columns.
//!
//! `y[r] = sum_c f16(w[r, c]) * f16(x[c])`, by `mma.m16n8k16`.
//!
//! | | |
//! |---|---|
//! | `weights` | records, as for the [default](super) entry points |
//! | `x` | [`len`] vectors for each column, as [`QuantizeF16`] wrote them |
//! | `cols` | a multiple of the format's block; any for F16 and BF16 |
//!
//! The other arguments are those of [all quantized activations](super::quantized).
//!
//! What hardware rounds within an `mma` is not told, so that a column has the same bits beside any others, it is always multiplied
//! by the same instructions in the same order: weights are taken in groups of four units of 32 columns, of which lane `t` of four has
//! unit `t` and gives four columns of it to each `mma`; eight of these are a group. A row's groups are cut in [`CLASSES`] runs of
//! equal length (the last may have fewer), by its length alone; in a run sums begin with 0, and the sums of the runs are added up
//! from the first on. A small block, of 32 rows and up to 32 or 64 columns, has a warp for each run, which takes weights apart in
//! registers. A large one has 128 rows and 64 or 128 columns, whose warps go over all runs: weights are taken apart once, into shared
//! memory, and columns are copied there, half of a group's while the other half is multiplied.
//!
//! # Accuracy
//! An activation is stored as 1/16 of itself, rounded to nearest: by up to 2^-11 of it, or 2^-21 where it is below 2^-10; from 1,048,320 on
//! it is infinite, and what is not finite stays so and reaches no other column. A weight is rounded by up to 2^-11 of it. Where
//! a code is multiplied as f16, scale and addend are rounded before: by as much of what each brings. Small numbers of a format lose
//! more, [`rounding`] says what. Weights are 16 times as large meanwhile, and infinite from 4095 on; those of F16, F8_E4M3 and F8_E5M2
//! are as large as they are, and their scales as exact as others however small, where weights are not. Of one bit, two and three digits
//! nothing but a scale below 2^-18 is rounded, as what they are multiplied with is an f16.
//! Beside that the product is off by the `1e-5 * sum |w * x|` of the default entry points. Most of it cancels: rows of 4096 columns with
//! one activation of 26 times the root mean square were off by 1e-5 to 4e-5 of `sum |w * x|`, where eight bits are by 4e-4 to 8e-4.
//!
//! # Two f16
//! With [`PAIRS`](super::PAIRS) each column of `x` is two ([`QuantizeF16x2`]): the nearest f16 of 1/1024 of an activation, and the nearest f16 of
//! what that leaves, times 2048. The entry points multiply both, side by side in the same tiles, and add the second product, divided by
//! 2048, to the first. An activation is then rounded by 2^-22 of it, or 2^-26 where it is below 2^-4, and infinite from 67,092,480 on;
//! weights are what they are above. So where these are f16 in the file, what is left is the order of sums. A block has half as many columns.
//!
//! The instruction: PTX ISA, `mma` with `.f16` operands. Before sm_80 it is two of half the depth.

use super::quant_format::BLOCK_ROWS;
pub use super::quant_format::half::{F16Vector, len, len_of_two};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::quantizer::round_unit;
#[cfg(not(target_arch = "nvptx64"))]
use super::tensor::{COLUMNS, ROWS};
use crate::format;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::load::{lane, warp_index};
use warpsmith_device::prelude::*;

/// Runs of groups whose sums are formed one beside the other.
pub const CLASSES: u32 = 8;
/// Columns of a small block of the entry points of few columns.
pub const FEW_COLUMNS: u32 = 32;
/// Those of one of the entry points of many.
const SOME_COLUMNS: u32 = 64;
/// Columns from which on those may be better.
pub const FROM: u32 = FEW_COLUMNS + 1;
/// Threads of a block.
pub(crate) const THREADS: u32 = 256;
const _: () = assert!(THREADS == 32 * CLASSES && FEW_COLUMNS >= BLOCK_ROWS);

/// Vectors of a row, and of a column, of half of a group in shared memory.
const HALF: usize = 8;
/// Bytes of shared memory of a large block: two halves of what its rows and its columns have.
const fn large_shared(columns: u32) -> u32 {
    16 * 2 * HALF as u32 * (super::tensor::ROWS + columns)
}
/// From the sums of a column of a small block to the next, so that neighbouring columns begin in other banks.
const SUMS_STRIDE: usize = BLOCK_ROWS as usize + 4;
/// Vectors of shared memory of a small block: the sums of all runs, of as many columns as one of few has.
const SMALL_SUMS: usize = (CLASSES * FEW_COLUMNS) as usize * SUMS_STRIDE / 4;
/// The same in bytes, by which one of more columns knows what it is.
const SOME_SHARED: u32 = 16 * SMALL_SUMS as u32;
const _: () = assert!(SOME_SHARED < large_shared(super::tensor::COLUMNS));

/// The product of two f16 for each activation, from those of both as [`whole`] gives them.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
fn of_pair([first, rest]: [f32; 2]) -> f32 {
    use super::quant_format::half::{REST, SHARE, SHARE_OF_TWO};
    math::fma(rest, const { 1.0 / REST }, first) * const { SHARE / SHARE_OF_TWO }
}

/// What the sums of f16 are multiplied with.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
const fn factor<F: format::halves::Halves>() -> f32 {
    1.0 / (F::LARGER * super::quant_format::half::SHARE)
}

/// A product from the sums of its f16.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
fn whole<F: format::halves::Halves>(sum: f32) -> f32 {
    let factor = const { factor::<F>() };
    if factor == 1.0 { sum } else { sum * factor }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod few;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) mod one;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod small;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod some;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod tiles;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod units;

/// Blocks of the entry points of many columns for a matrix of so many rows of weights: small ones while large ones would be few, and
/// of large ones those with as many columns as take an H200 the fewest turns. `None`: so few that those of few columns are better.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn many(rows: u32, columns: u32) -> Option<Geometry> {
    /// With more columns than this a matrix has large blocks, however few.
    const MOST_OF_SMALL: u32 = 128;
    /// Multiprocessors, each of which has one block at a time.
    const AT_ONCE: u64 = 132;
    /// Blocks that are enough for them.
    const ENOUGH: u64 = 100;
    /// What a block with half of the columns costs, in hundredths: it takes apart as many weights.
    const HALF_COSTS: u64 = 58;
    let all = |(rows, columns): (u32, u32)| u64::from(rows) * u64::from(columns);
    let [narrow, wide] = [COLUMNS, 2 * COLUMNS].map(|of| (rows.div_ceil(ROWS), columns.div_ceil(of)));
    if columns < FROM || columns <= MOST_OF_SMALL && all(narrow) < ENOUGH {
        let blocks = (rows.div_ceil(BLOCK_ROWS), columns.div_ceil(SOME_COLUMNS));
        return (columns >= FROM && all(blocks) >= ENOUGH).then(|| small_blocks(rows, columns));
    }
    let turns = |blocks| all(blocks).div_ceil(AT_ONCE);
    let half = HALF_COSTS * turns(narrow) < 100 * turns(wide);
    let ((rows, columns), of_columns) = if half { (narrow, COLUMNS) } else { (wide, 2 * COLUMNS) };
    Some(super::contract::grid(rows, columns).shared(large_shared(of_columns)))
}

#[cfg(not(target_arch = "nvptx64"))]
fn small_blocks(rows: u32, columns: u32) -> Geometry {
    super::contract::grid(rows.div_ceil(BLOCK_ROWS), columns.div_ceil(SOME_COLUMNS)).shared(SOME_SHARED)
}

/// Those for any columns.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks_of(rows: u32, columns: u32, _: u64) -> Geometry {
    many(rows, columns).unwrap_or_else(|| small_blocks(rows, columns))
}

/// How far a product of these weights, in records of `cols` columns, may be from that of exact ones, for each row: the larger of what is
/// scaled and added up counts with 2^-11 of each, and as f16 may be off by half of the smallest step, which is 2^-24 of what it is
/// multiplied with. Empty where the format has no such products.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn rounding(format: format::Format, records: &[U32x4], cols: usize, x: &[f32]) -> Vec<f64> {
    macro_rules! by_layout {
        (() $($F:ident { $($quant_format:ident: $blocks:literal, $gemv:ident $Gemv:ident $shared:ident;)* } $formats:tt)*) => {
            $($(if let (super::QuantFormat::F16, format::Layout::$F) = (super::QuantFormat::$quant_format, format.layout()) {
                return rounding_of::<format::$F>(format.block_units(), records, cols, x);
            })*)*
        };
    }
    crate::formats! { quantized by_layout () }
    Vec::new()
}

#[cfg(not(target_arch = "nvptx64"))]
fn rounding_of<F: format::halves::Halves>(open: u32, records: &[U32x4], cols: usize, x: &[f32]) -> Vec<f64> {
    use crate::format::record::UNIT;
    let record = F::record(cols, open);
    let row = |row: &[U32x4]| {
        let mut sum = 0.0;
        for (u, x) in x.chunks(UNIT).enumerate() {
            // SAFETY: the unit is one of the record.
            let (codes, scales) = unsafe { (F::codes(row, &record, u), F::scales(row, &record, u)) };
            for (q, x) in x.chunks(4).enumerate() {
                let part = if F::SCALES == 2 { q / (UNIT / 8) } else { 0 };
                let [scale, shift] = [scales.scale[part], scales.shift[part]].map(f64::from);
                for (x, code) in x.iter().zip(F::quad::<&[U32x4]>(&codes, q)) {
                    let scaled = f64::from(code) * scale;
                    let weight = scaled + if F::SHIFTED { shift } else { 0.0 };
                    let parts = if F::SHIFTED { scaled.abs() + shift.abs() } else { scaled.abs() };
                    sum += f64::from(x.abs()) * (2f64.powi(-11) * (parts + weight.abs()) + F::small(code.into()));
                }
            }
        }
        sum
    };
    records.chunks_exact(record.vectors).map(row).collect()
}

quantizer! {
    /// Activations in f16.
    quantize_f16 QuantizeF16: F16Vector, 8, blocks of 1, len, |x, to, cols| round_units(1, x, to.cast(), cols)
}

quantizer! {
    /// Activations in two f16.
    quantize_f16x2 QuantizeF16x2: F16Vector, 8, blocks of 1, len_of_two, |x, to, cols| round_units(2, x, to.cast(), cols)
}

/// Rounds the units of a block of threads, of four warps, to so many f16 for each activation.
#[device]
unsafe fn round_units(parts: u32, x: In<f32>, to: Out<U32x4>, cols: u32) {
    const UNIT: u32 = super::quant_format::half::UNIT;
    let units = cols.div_ceil(UNIT) as usize;
    let mut u = block::idx_x() as usize * (super::quantized::COLUMNS / UNIT) as usize + warp_index();
    let end = (u + (super::quantized::COLUMNS / UNIT) as usize).min(units);
    while u < end {
        let i = UNIT as usize * u + lane();
        round_unit(parts, if i < cols as usize { x.at(i) } else { 0.0 }, to, u, cols);
        u += 4;
    }
}

/// The product with small blocks, and its contract.
macro_rules! few {
    (
        ($name:ident $Name:ident: $X:ident, $min_blocks:literal, $F:ty, $shared:ident)
        $($argument:ident: ($($ty:tt)*),)*
    ) => {
        /// A matrix times columns in f16, 32 a block.
        #[kernel(block = THREADS, min_blocks = $min_blocks, family = "gemv")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($argument: $($ty)*,)*) {
            // Of vectors, for what is read by four.
            let sums = shared_array!($shared: [F32x4; SMALL_SUMS]).cast::<f32>();
            few::product::<$F>(super::quantized::QuantizedArgs::of(super::arguments::QuantizedArguments { $($argument),* }), sums)
        }

        #[cfg(not(target_arch = "nvptx64"))]
        convert! { $Name: gemv::arguments, QuantizedGiven QuantizedSeen $X, $($argument)* }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                let parts = super::quant_format::parts(self.rows, self.flags & super::SWIGLU != 0);
                if self.flags & super::EXPERTS != 0 {
                    return super::contract::grid(parts, self.columns);
                }
                super::contract::grid(parts, super::contract::pairs(self.columns, self.flags).div_ceil(FEW_COLUMNS))
            }
            fn check(&self) -> Result<(), ContractError> {
                use super::contract::{Limits, Table, check_quantized};
                let units = 0..=<$F as format::decode::Decode>::MOST_OPEN;
                let limits = Limits { column: len(self.cols), flags: super::PAIRS, units, table: Table::Columns };
                check_quantized::<$F, _>(Self::META, &self.seen(), &limits)
            }
        }
    };
}

macro_rules! few_entry {
    ($F:ident F16: $blocks:literal, $gemv:ident $Gemv:ident $shared:ident) => {
        arguments! { quantized F16Vector few ($gemv $Gemv: F16Vector, $blocks, format::$F, $shared) }
    };
    ($($other:tt)*) => {};
}

macro_rules! few_entries {
    (() $($F:ident { $($quant_format:ident: $blocks:literal, $gemv:ident $Gemv:ident $shared:ident;)* } $formats:tt)*) => {
        $($(few_entry! { $F $quant_format: $blocks, $gemv $Gemv $shared })*)*
    };
}
crate::formats! { quantized few_entries () }

macro_rules! large_entry {
    ($F:ident F16: $gemm:ident $Gemm:ident $shared:ident) => {
        arguments! { quantized F16Vector gemm (
            /// A matrix times many columns in f16.
            $gemm $Gemm: F16Vector, 1, format::$F, units 0..=<format::$F as format::decode::Decode>::MOST_OPEN, len,
            flags super::PAIRS, blocks blocks_of,
            dynamic u64::from(large_shared(super::tensor::COLUMNS)),
            shared::dynamic(0, shared::dynamic_bytes() / 16),
            |a, memory| tiles::product::<format::$F>(a, memory)
        ) }
    };
    ($($other:tt)*) => {};
}

macro_rules! large_entries {
    (() $($F:ident { $($quant_format:ident: $gemm:ident $Gemm:ident $shared:ident;)* } $formats:tt)*) => {
        $($(large_entry! { $F $quant_format: $gemm $Gemm $shared })*)*
    };
}
crate::formats! { tensor large_entries () }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Rng, Tensor};
    use crate::format::{Format, Layout, halves::Halves, record::UNIT};
    use crate::gemv::QuantFormat;
    use warpsmith_device::convert::unpack_f16x2;

    #[test]
    fn blocks_are_small_where_large_ones_would_be_few() {
        let of = |rows, columns| many(rows, columns).map(|g| (g.grid[0], g.grid[1], g.dynamic_shared > SOME_SHARED));
        // Those of few columns, once and twice.
        assert_eq!([of(4096, 32), of(1024, 64), of(1504, 128)], [None; 3]);
        assert_eq!(
            [of(4096, 33), of(4096, 128), of(1600, 65)],
            [Some((128, 1, false)), Some((128, 2, false)), Some((50, 2, false))]
        );
        assert_eq!(
            [of(14336, 64), of(64, 129), of(151936, 33)],
            [Some((112, 1, true)), Some((1, 3, true)), Some((1187, 1, true))]
        );
        let always = |rows, columns| blocks_of(rows, columns, 0);
        assert_eq!(always(64, 8).dynamic_shared, SOME_SHARED);
    }

    /// The weights of a record as they are multiplied.
    fn weights_of<F: Halves>(record: &[U32x4], cols: usize, open: u32) -> Vec<f32> {
        let r = F::record(cols, open);
        let mut all = Vec::new();
        for u in 0..cols / UNIT {
            // SAFETY: the unit is one of the record.
            let (unit, scales) = unsafe {
                let unit = F::unit(record, &r, u);
                (unit, F::scales_of(record, &r, u, &unit))
            };
            let scale = F::scale(scales);
            for v in 0..UNIT / 8 {
                let [a, b, c, d] = F::eight::<&[U32x4]>(&unit, v, &scale).map(unpack_f16x2);
                all.extend([a.0, b.0, a.1, b.1, c.0, d.0, c.1, d.1].map(|w| w / F::LARGER));
            }
        }
        all
    }

    /// Those of a format; `None`: it has no products of f16.
    fn weights(format: Format, record: &[U32x4], cols: usize) -> Option<Vec<f32>> {
        macro_rules! by_layout {
            (() $($F:ident { $($quant_format:ident: $blocks:literal, $gemv:ident $Gemv:ident $shared:ident;)* } $formats:tt)*) => {
                $($(if let (QuantFormat::F16, Layout::$F) = (QuantFormat::$quant_format, format.layout()) {
                    return Some(weights_of::<crate::format::$F>(record, cols, format.block_units()));
                })*)*
            };
        }
        crate::formats! { quantized by_layout () }
        None
    }

    /// Each by itself is as near as products are said to be.
    #[test]
    fn weights_of_every_format_are_near_to_what_they_are() {
        const COLS: usize = 512;
        let (mut rng, mut wrong) = (Rng(89), Vec::new());
        for format in Format::ALL {
            let t = Tensor::random(&mut rng, format, 1, COLS);
            let record = format.repack(&t.bytes, 1, COLS).unwrap();
            let Some(got) = weights(format, &record, COLS) else {
                assert_eq!(format, Format::F32);
                continue;
            };
            let want = format.decode(&t.bytes, 1, COLS).unwrap();
            let far = |i: usize| {
                let one: Vec<f32> = (0..COLS).map(|j| f32::from(u8::from(i == j))).collect();
                let off = (f64::from(got[i]) - f64::from(want[i])).abs();
                off > rounding(format, &record, COLS, &one)[0] || off.is_nan()
            };
            if let Some(i) = (0..COLS).find(|i| far(*i)) {
                wrong.push(format!("{format}, weight {i}: {} for {}", got[i], want[i]));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Codes that are floats may have scales that are smaller than an f16, whose precision is theirs all the same.
    #[test]
    fn scales_that_no_f16_is_keep_their_precision() {
        let mut rng = Rng(91);
        for scale in [3e-2, 1.7e-5, 3.1e-6, 2.3e-7] {
            let mut t = Tensor::random(&mut rng, Format::F8_E5M2, 1, 512);
            for block in t.bytes.chunks_exact_mut(132) {
                // Exponents with which weights are from 1e-4 on.
                block[..128].iter_mut().for_each(|code| *code = *code & 0x87 | 0x68);
                crate::cases::set_scale(Format::F8_E5M2, block, scale);
            }
            let record = Format::F8_E5M2.repack(&t.bytes, 1, 512).unwrap();
            let want = Format::F8_E5M2.decode(&t.bytes, 1, 512).unwrap();
            for (got, want) in weights(Format::F8_E5M2, &record, 512).unwrap().into_iter().zip(want) {
                assert!((got - want).abs() <= want.abs() / 1024.0, "{scale}: {got} for {want}");
            }
        }
    }

    /// Signs, digits and floats of few bits times scales that are f16 or powers of two are f16: nothing is rounded.
    #[test]
    fn weights_of_few_bits_are_exact() {
        let mut rng = Rng(90);
        for format in [
            Format::Q1_0,
            Format::TQ2_0_G128,
            Format::Q2_0,
            Format::PQ2_0,
            Format::PTQ1_0,
            Format::TQ1_0,
            Format::TQ2_0,
            Format::MXFP4,
            Format::NVFP4,
        ] {
            let mut t = Tensor::random(&mut rng, format, 1, 512);
            for block in t.bytes.chunks_exact_mut(format.block_bytes()) {
                crate::cases::set_scale(format, block, 0.013);
            }
            let record = format.repack(&t.bytes, 1, 512).unwrap();
            assert_eq!(weights(format, &record, 512).unwrap(), format.decode(&t.bytes, 1, 512).unwrap(), "{format}");
        }
    }
}
