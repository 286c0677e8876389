//! Products of weights of one and two bits with activations in bit planes, on tensor cores: no weight is taken apart.
//!
//! The activations are rounded to codes of 8 or 16 bits once ([`PlanesI8`], [`PlanesI16`]), with a scale for each block of
//! 128 columns, and stored as bit planes: words of 32 columns, as the weights are. A count of common bits
//! (`mma.m16n8k128` with `.and.popc`) of a plane and a row's signs is then the sum of that plane over the columns with a
//! minus; with `N = sum over planes p of 2^p * count_p`, the last plane with a minus as two's complement has it,
//!
//! `y[r] = sum over blocks b of w[r, b] * (d[b] * (sum of the codes of b - 2 N[r, b]))`.
//!
//! Weights of two bits are planes too: with `N` of their low bits and `M` of their high ones,
//!
//! `y[r] = sum over blocks b of w[r, b] * (d[b] * (N[r, b] + 2 M[r, b] - sum of the codes of b))`.
//!
//! The instruction gives a lane the counts of two planes for four rows. `N` is formed on tensor cores as well: the counts, each a byte
//! of a left factor as they are, are multiplied with powers of two (`mma.m16n8k32`), so that every lane of four gets the whole integer
//! of one of their four rows. Only that row's scale is loaded, and what is rounded is one product with `d` and one fused
//! multiply-add a block, in an order that [`tensor_planes`](super::tensor_planes) has too.
//!
//! Two words of a unit, each with both bits of 16 weights, are its two planes after two shifts and two selections of bits,
//! with the columns of its first half in the even bits and those of its second in the odd ones. Activations for them
//! ([`PlanesQ2I8`], [`PlanesQ2I16`]) have their columns in that order.
//!
//! | | |
//! |---|---|
//! | `weights` | records of Q1_0 or of Q2_0, as for [`GemvQ10`](super::GemvQ10) and [`GemvQ20`](super::GemvQ20) |
//! | `x` | [`len`] vectors for each column, as `planes_*` of the same width and order wrote them |
//! | `cols` | a multiple of 128 and of the format's block |
//! | `block_units` | of two bits: 2 or 3, as at least 128 weights have to share a scale; else 0 |
//!
//! Where outputs become bit planes too, a block has 512 threads and all 128 outputs that share a scale, unless rows are long
//! (`wide`). Sums have the same order whatever the blocks are. What sets of a wide block need takes instructions and registers, so other blocks
//! have code without it.
//!
//! The other arguments are those of [all quantized activations](super::quantized); [`Quantize`](super::Quantize) and
//! [`Gemv::quantized`](super::Gemv::quantized) pick the entry points.
//!
//! A block of `x` has three parts: `32 * bytes` words of planes (word `4 p + t` of plane `p` is that of columns `32 t` to `32 t + 31`);
//! two vectors, the first words of which are `d` and the integer that a sum is counted from, where every bit of the weights is 0: the
//! sum of the codes, or of two bits its negative; and the codes as bytes, 128 for each byte of a code, for
//! [many columns](super::tensor_planes). The integer is the bits of the float `1.5 * 2^23` more, so that the sum, with at most 22 bits
//! and a sign, is a float without a conversion; of codes of 16 bits and weights of two it may have 23, and is what it is. `d` is
//! rounded to 22 bits, so that `1.5 * 2^23 * d` is exact and one fused multiply-add gives `d` times the sum, rounded once.
//!
//! # Accuracy
//! Codes are rounded to nearest: an activation is off by up to `d[b] / 2`, where `d[b]` is the largest magnitude of its
//! block over 127 or 32767; the product by up to `sum |w| d / 2` beyond the `1e-5 * sum |w * x|` of the other entry points.
//! An outlier costs its block the others' precision. As shares of `sum |w * x|`, measured: a row of 4096 columns with one of
//! 26 times the root mean square is off by 8e-4 with 8 bits, 4e-6 with 16 (and 8e-9 with f32); the golden vectors of 512
//! columns by 3e-3 and 2e-5; ternary weights, many of which are 0, by 2e-3 and 5e-6. An activation that is not finite makes
//! everything NaN, and so does one of a magnitude of 2^110 or more.
//!
//! The instructions: PTX ISA, `mma` with `.b1` and with `.u8` operands.

pub use super::quant_format::planes::{BLOCK, Q2Planes, len};
#[cfg(not(target_arch = "nvptx64"))]
use super::wide::shape;
pub(crate) use super::wide::{SETS, THREADS};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::{
    quant_format::{BLOCK_ROWS, planes::block_vectors},
    quantizer::quantize_planes,
    wide,
};
use crate::format;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::load::warp_index;
use warpsmith_device::prelude::*;

/// Warps of a set, among which the columns are divided.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(super) const WARPS: usize = (THREADS / 32) as usize;

const fn len_of<const BYTES: u32>(cols: u32) -> u64 {
    len(cols, BYTES)
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) mod frame {
    use super::super::quantized::{Invocation, QuantizedArgs, rows_are_long};
    use super::*;
    use crate::format::{
        decode::Decode,
        record::{Record, UNIT, codes_and_scales},
        unpack::select_bits,
    };
    use crate::gemv::quant_format::planes::{ZERO, scale as scale_at, zero};
    use crate::load::{Place, Role, again, lane, sync_role};
    use warpsmith_device::mma::{mma_and_popc, mma_u8, mma_u8_i8};
    use warpsmith_device::shared::Shared;

    /// The even bits of a word.
    const EVEN: u32 = 0x5555_5555;

    /// Rows that a lane has a part of: `g`, and every eighth behind it. They are two tiles of the instruction, so that activations
    /// are loaded half as often.
    pub const PARTS: usize = BLOCK_ROWS as usize / 8;

    /// Whether the vectors of two groups of blocks are on the way at once.
    const AHEAD: bool = cfg!(target_feature = "sm_80");

    /// What the counts of a lane's planes count for, as a factor of an instruction that adds up the counts of four lanes' planes for four
    /// rows, and gives a lane the sum of row `g + 8 t`: the tile that does not have that row counts for nothing in the lane's columns.
    type Weights = [[u32; 2]; PARTS / 2];

    #[inline(always)]
    fn weights<const BITS: usize>() -> Weights {
        let (g, t) = (lane() / 4, lane() & 3);
        let bytes = [0, 1].map(|i| (1 << (2 * t + i)) * if BITS == 1 { 1 } else { 0x01_0101 });
        core::array::from_fn(|tile| if g / 4 == tile { bytes } else { [0; 2] })
    }

    /// `d` times the integer sum of a block, rounded once; the sum counts from [`zero`].
    #[inline(always)]
    pub fn scaled<const BYTES: usize, const BITS: usize>(sum: u32, d: f32) -> f32 {
        if zero(BYTES, BITS) == 0 { d * sum as i32 as f32 } else { math::fma(d, f32::from_bits(sum), -ZERO * d) }
    }

    /// Adds a block to what a lane has of its row.
    #[inline(always)]
    unsafe fn add_block<const BYTES: usize, const BITS: usize>(
        acc: &mut f32,
        x: In<U32x4>,
        block: usize,
        words: [[u32; 2]; PARTS],
        scale: u16,
        weights: &Weights,
    ) {
        const { assert!(BYTES <= 2) };
        let low = words.map(|[a, b]| if BITS == 1 { a } else { select_bits(EVEN, a, b << 1) });
        let high = words.map(|[a, b]| select_bits(EVEN, a >> 1, b));
        // SAFETY: the caller's promise: the block is one of `x`, and all lanes are here.
        unsafe {
            let x = x.from(block * block_vectors(BYTES));
            let U32x2([d, zero]) = x.from(scale_at(BYTES)).cast::<U32x2>().at(0);
            let mut sum = 0u32;
            for byte in (0..BYTES).rev() {
                let planes = x.cast::<u32>().at(32 * byte + lane());
                let mut sums = [0; 4];
                for tile in 0..PARTS / 2 {
                    let (i, j) = (2 * tile, 2 * tile + 1);
                    let mut counts = mma_and_popc([low[i], low[j]], planes, [0; 4]);
                    if BITS == 2 {
                        // Twice, as what they count for: a byte holds no more than a plane's weight.
                        let high = mma_and_popc([high[i], high[j]], planes, [0; 4]);
                        counts = core::array::from_fn(|k| high[k].wrapping_mul(0x01_0100).wrapping_add(counts[k]));
                    }
                    let [a, b, c, d] = counts;
                    // The last plane of all counts negatively: its weight of 128 is then read as -128.
                    let counts = [a, c, b, d];
                    sums = if byte + 1 == BYTES {
                        mma_u8_i8(sums, counts, weights[tile])
                    } else {
                        mma_u8(sums, counts, weights[tile])
                    };
                }
                let [even, _, odd, _] = sums.map(|sum| sum as u32);
                let of_byte = if lane() & 1 == 0 { even } else { odd };
                sum = sum.wrapping_mul(256).wrapping_add(of_byte);
            }
            let sum = if BITS == 1 { zero.wrapping_sub(sum.wrapping_mul(2)) } else { zero.wrapping_add(sum) };
            *acc = math::fma(convert::f16_bits_to_f32(scale), scaled::<BYTES, BITS>(sum, f32::from_bits(d)), *acc);
        }
    }

    /// The order in which a row's blocks are added up. The blocks are divided among [`WARPS`] warps, and each adds up its own one after
    /// the other; the sums of the warps are added up from the first on. Four vectors of weights, one a lane of four, hold a group of
    /// blocks: of a whole run those 8 apart, of the shorter one those as far apart as it has groups. A warp takes every fourth group,
    /// and then every fourth block of the rest, which lies block after block.
    #[derive(Clone, Copy)]
    pub struct Order {
        pub blocks: u32,
        pub groups: u32,
        full_groups: u32,
    }

    impl Order {
        /// Blocks of a group, of weights of `bits` bits.
        pub const fn together(bits: usize) -> u32 {
            4 / bits as u32
        }

        /// Of rows of `blocks` blocks.
        #[inline(always)]
        pub fn of<const BITS: usize>(blocks: u32) -> Order {
            let together = Order::together(BITS);
            let full = blocks / (8 * together) * (8 * together);
            let shorter = Record::shorter_run(4 * (blocks - full), BITS as u32) / 4;
            Order { blocks, groups: (full + shorter) / together, full_groups: full / together }
        }

        /// How far the blocks of a group are apart.
        #[inline(always)]
        pub fn apart(&self, group: u32) -> u32 {
            if group < self.full_groups { 8 } else { self.groups - self.full_groups }
        }

        /// Block `part` of group `group`.
        #[inline(always)]
        pub fn block<const BITS: usize>(&self, group: u32, part: u32) -> u32 {
            let first = if group < self.full_groups {
                (group & !7) * Order::together(BITS) + (group & 7)
            } else {
                self.full_groups * Order::together(BITS) + group - self.full_groups
            };
            first + part * self.apart(group)
        }

        /// The first block that is in no group.
        #[inline(always)]
        pub fn rest<const BITS: usize>(&self) -> u32 {
            self.groups * Order::together(BITS)
        }
    }

    /// The sum of the warps' sums of a row.
    #[inline(always)]
    pub fn sum_warps(of_warp: impl Fn(usize) -> f32) -> f32 {
        let mut sum = 0.0;
        for warp in 0..WARPS {
            sum += of_warp(warp);
        }
        sum
    }

    /// Sums of the warps of a block: of gates and ups there are two rounds of sets.
    pub const SUMS: usize = 2 * SETS as usize * WARPS * BLOCK_ROWS as usize;

    /// A block's outputs, by way of `sums`.
    #[device]
    pub unsafe fn product<F: Decode, const BYTES: usize, const BITS: usize>(given: impl Invocation, sums: Shared<f32>) {
        sum::<F, BYTES, BITS>(given, sums);
        sync_role(given.role());
        if given.role().again().thread < 32 {
            finish(given, sums);
        }
    }

    /// Where the sums of the warps of a role are.
    #[inline(always)]
    unsafe fn of_role(role: impl Role, sums: Shared<f32>) -> Shared<f32> {
        // SAFETY: the caller's promise: there is room for those of all roles.
        unsafe { sums.from(role.part() * WARPS * BLOCK_ROWS as usize) }
    }

    /// What the warps of a role have of its rows, in `sums`.
    #[device]
    pub unsafe fn sum<F: Decode, const BYTES: usize, const BITS: usize>(given: impl Invocation, sums: Shared<f32>) {
        let (a, role) = (given.args(), given.role());
        // Where rows of the first matrix, scales and column are. SAFETY: the caller's promise: they are there.
        let find = |a: &QuantizedArgs, place: Place, rows: u32, cols: u32| unsafe {
            // Units fill blocks: `BITS` vectors of codes for each. A scale is for one block or for several.
            let block_units = F::record(cols as usize, a.block_units).block_units;
            let (of_scales, vectors) = codes_and_scales(cols / UNIT as u32, BITS as u32, block_units);
            let row = |even: usize| {
                let first = place.block * BLOCK_ROWS + (lane() / 4) as u32;
                a.row(rows, first, 8 * even as u32, vectors)
            };
            let scales = row(lane() & 3).from(of_scales as usize).cast::<u16>();
            let x = a.x.from(a.input(place.column) as usize * len(cols, BYTES as u32) as usize);
            (vectors, block_units - 2, core::array::from_fn::<_, PARTS, _>(row), scales, x)
        };
        let (place, t) = (Place::now(role), lane() & 3);
        let (vectors, shared, mut row, mut scales, x) = find(&a, place, a.rows, a.cols);
        given.start(WARPS as u32, vectors, rows_are_long(WARPS as u32, vectors));
        if a.experts.is_some() {
            let chosen = a.chosen(role.again().column, vectors);
            (row, scales) = (row.map(|row| row.from(chosen)), scales.from(8 * chosen));
        }
        let load =
            |group: u32| -> [[u32; 4]; PARTS] { core::array::from_fn(|r| row[r].ld_nc128((4 * group) as usize + t).0) };
        let order = Order::of::<BITS>(a.cols / BLOCK);
        let weights = weights::<BITS>();
        let mut acc = 0.0f32;
        let add_group = |acc: &mut f32, group: u32, vectors: [[u32; 4]; PARTS]| {
            for part in 0..Order::together(BITS) as usize {
                let block = order.block::<BITS>(group, part as u32) as usize;
                let words = vectors.map(|v| [v[part * BITS], v[part * BITS + BITS - 1]]);
                add_block::<BYTES, BITS>(acc, x, block, words, scales.at(block >> shared), &weights);
            }
        };
        let mut group = place.thread / 32;
        while group < order.groups {
            // The vectors of two groups are on the way at once; before sm_80, where the product of bits is many instructions, of one.
            let behind = group + WARPS as u32;
            let (vectors, more) = (load(group), AHEAD && behind < order.groups);
            let vectors_behind = if more { load(behind) } else { vectors };
            add_group(&mut acc, group, vectors);
            if more {
                add_group(&mut acc, behind, vectors_behind);
            }
            group += if AHEAD { 2 } else { 1 } * WARPS as u32;
        }
        // Found anew: what is kept over the loop costs registers in it.
        let (a, place) = (given.again(), role.again());
        let (rows, cols) = (again(a.rows), again(a.cols));
        let order = Order::of::<BITS>(cols / BLOCK);
        let mut block = (order.rest::<BITS>() + place.thread / 32) as usize;
        if block < order.blocks as usize {
            let (vectors, shared, mut row, mut scales, x) = find(&a, place, rows, cols);
            if a.experts.is_some() {
                let chosen = a.chosen(place.column, vectors);
                (row, scales) = (row.map(|row| row.from(chosen)), scales.from(8 * chosen));
            }
            while block < order.blocks as usize {
                let words = row.map(|row| {
                    let codes = row.cast::<u32>();
                    if BITS == 1 { [codes.at(4 * block + t); 2] } else { codes.load2(8 * block + 2 * t).0 }
                });
                let scale = scales.at(block >> shared);
                add_block::<BYTES, BITS>(&mut acc, x, block, words, scale, &weights);
                block += WARPS;
            }
        }

        let (warp, g) = ((place.thread / 32) as usize, lane() / 4);
        of_role(role, sums).set(warp * BLOCK_ROWS as usize + g + 8 * t, acc);
    }

    /// The outputs of a role whose warps' sums are there.
    ///
    /// All lanes of a warp make this call.
    #[device]
    pub unsafe fn finish(given: impl Invocation, sums: Shared<f32>) {
        let (a, place, sums) = (given.again(), given.role().again(), of_role(given.role(), sums));
        let root = a.root(place.column as usize);
        a.finish(place, BLOCK_ROWS, root, |row| {
            sum_warps(|warp| unsafe { sums.get(warp * BLOCK_ROWS as usize + row as usize) })
        });
    }
}

macro_rules! quantizers {
    ($($bits:literal, $bytes:literal: $X:ident $planes:ident $Planes:ident;)*) => { $(
        quantizer! {
            /// Activations in bit planes.
            $planes $Planes: $X, 4, blocks of BLOCK, len_of::<$bytes>, |x, to, cols| {
                let block = block::idx_x() as usize * WARPS + warp_index();
                if block < (cols / BLOCK) as usize {
                    quantize_planes(($bytes, $bits), |c| x.at(c), to.cast::<U32x4>(), block, (0, $bytes));
                }
            }
        }
    )* };
}

quantizers! {
    1, 1: U32x4 planes_i8 PlanesI8;
    1, 2: U32x4 planes_i16 PlanesI16;
    2, 1: Q2Planes planes_q2_i8 PlanesQ2I8;
    2, 2: Q2Planes planes_q2_i16 PlanesQ2I16;
}

macro_rules! entry {
    ($F:ident PlanesI8: $($rest:tt)*) => { entry! { $F, 1, 1, 0, U32x4: $($rest)* } };
    ($F:ident PlanesI16: $($rest:tt)*) => { entry! { $F, 1, 2, 0, U32x4: $($rest)* } };
    ($F:ident PlanesQ2I8: $($rest:tt)*) => { entry! { $F, 2, 1, 3, Q2Planes: $($rest)* } };
    ($F:ident PlanesQ2I16: $($rest:tt)*) => { entry! { $F, 2, 2, 3, Q2Planes: $($rest)* } };
    (
        $F:ident, $bits:literal, $bytes:literal, $units:literal, $X:ident:
        $blocks:literal, $gemv:ident $Gemv:ident $shared:ident
    ) => {
        const _: () = assert!($blocks == SETS, "as many registers, whether there are so many blocks or one of so many sets");
        product! {
            /// A matrix of codes of one or two bits times columns in bit planes.
            $gemv $Gemv: $X, 1 of THREADS * SETS, by shape, format::$F, units $units, len_of::<$bytes>,
            $shared of frame::SUMS + BLOCK as usize,
            // The same in all threads of the grid.
            |a, sums| if block::dim_x() > THREADS {
                wide::launched(
                    a,
                    sums.from(frame::SUMS),
                    |given| unsafe { frame::sum::<format::$F, $bytes, $bits>(given, sums) },
                    |given| unsafe { frame::finish(given, sums) },
                )
            } else {
                frame::product::<format::$F, $bytes, $bits>(a, sums)
            }
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
