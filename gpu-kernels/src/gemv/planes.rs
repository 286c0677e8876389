//! Products of weights of one and two bits with activations in bit planes, on tensor cores: no weight is taken apart.
//!
//! The activations are rounded to codes of 8 or 16 bits once ([`PlanesI8`], [`PlanesI16`]), with a scale for each block of
//! 128 columns, and stored as bit planes: words of 32 columns, as the weights are. A count of common bits
//! (`mma.m16n8k128` with `.and.popc`) of a plane and a row's signs is then the sum of that plane over the columns with a
//! minus; with `N = sum over planes p of 2^p * count_p`, the last plane with a minus as two's complement has it,
//!
//! `y[r] = sum over blocks b of w[r, b] * d[b] * (sum of the codes of b - 2 N[r, b])`.
//!
//! Weights of two bits are planes too: with `N` of their low bits and `M` of their high ones,
//!
//! `y[r] = sum over blocks b of w[r, b] * d[b] * (N[r, b] + 2 M[r, b] - sum of the codes of b)`.
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
//! The other arguments are those of [all quantized activations](super::quantized); [`Quantize`](super::Quantize) and
//! [`Gemv::quantized`](super::Gemv::quantized) pick the entry points.
//!
//! A block of `x` is `32 * bytes` words of planes (word `4 p + t` of plane `p` is that of columns `32 t` to `32 t + 31`) and,
//! for `t` in `0..4`, two f32: `-2 d`, and `d` times what the planes that lane `t` adds up would give if every sign were a
//! minus.
//!
//! # Accuracy
//! Codes are rounded to nearest: an activation is off by up to `d[b] / 2`, where `d[b]` is the largest magnitude of its
//! block over 127 or 32767; the product by up to `sum |w| d / 2` beyond the `1e-5 * sum |w * x|` of the other entry points.
//! An outlier costs its block the others' precision. As shares of `sum |w * x|`, measured: a row of 4096 columns with one of
//! 26 times the root mean square is off by 8e-4 with 8 bits, 4e-6 with 16 (and 8e-9 with f32); the golden vectors of 512
//! columns by 3e-3 and 2e-5; ternary weights, many of which are 0, by 2e-3 and 5e-6. An activation that is not finite makes
//! everything NaN.
//!
//! The instruction: PTX ISA, `mma` with `.b1` operands.

pub use super::quant_format::planes::{BLOCK, Q2Planes, len};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::{
    quant_format::{BLOCK_ROWS, planes::block_vectors},
    quantizer::quantize_planes,
};
use crate::format;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::load::warp_index;
use warpsmith_device::prelude::*;

/// Warps of a block of threads, among which the columns are divided.
const WARPS: usize = 4;
/// Threads of a block.
pub(crate) const THREADS: u32 = 32 * WARPS as u32;

const fn len_of<const BYTES: u32>(cols: u32) -> u64 {
    len(cols, BYTES)
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) mod frame {
    use super::super::quantized::Given;
    use super::super::quantizer::last_factor;
    use super::*;
    use crate::format::{decode::Decode, record::Record, unpack::select_bits};
    use crate::load::{Place, Role, lane, sync_role};
    use warpsmith_device::mma::mma_and_popc;
    use warpsmith_device::shared::Shared;
    use warpsmith_device::warp::{FULL, shuffle_xor};

    /// As bits of an integer, the float 1.5 * 2^23; as long as less than 2^22 is added to it, the float is more by as much.
    const MAGIC: u32 = 0x4B40_0000;

    /// `a * B + c` as one instruction: of a power of two, LLVM makes a shift and an addition.
    #[inline(always)]
    fn multiply_add<const B: u32>(a: u32, c: u32) -> u32 {
        let sum: u32;
        // SAFETY: a pure instruction of one thread on registers.
        unsafe {
            core::arch::asm!("mad.lo.u32 {0}, {1}, {b}, {2};", lateout(reg32) sum, in(reg32) a, in(reg32) c, b = const B,
                options(pure, nomem, nostack, preserves_flags));
        }
        sum
    }

    /// The even bits of a word.
    const EVEN: u32 = 0x5555_5555;

    /// Rows that a lane has a part of: `g`, and every eighth behind it. They are two tiles of the instruction, so that activations
    /// are loaded half as often.
    const PARTS: usize = BLOCK_ROWS as usize / 8;

    /// Whether the vectors of two groups of blocks are on the way at once.
    const AHEAD: bool = cfg!(target_feature = "sm_80");

    /// Adds a block to what a lane has of its rows. The result is to be multiplied by `4^t`, and with two bits by -1/2.
    #[inline(always)]
    unsafe fn add_block<const BYTES: usize, const BITS: usize>(
        acc: &mut [f32; PARTS],
        x: In<U32x4>,
        block: usize,
        words: [[u32; 2]; PARTS],
        scales: [u16; PARTS],
        last: i32,
    ) {
        const { assert!(BYTES <= 2) };
        let low = words.map(|[a, b]| if BITS == 1 { a } else { select_bits(EVEN, a, b << 1) });
        let high = words.map(|[a, b]| select_bits(EVEN, a >> 1, b));
        // SAFETY: the caller's promise: the block is one of `x`, and all lanes are here.
        unsafe {
            let words = x.from(block * block_vectors(BYTES)).cast::<u32>();
            let F32x2([minus_2d, mut all]) = words.from(32 * BYTES + 2 * (lane() & 3)).cast::<F32x2>().at(0);
            if BITS == 2 {
                all += all;
            }
            let mut sums = [0u32; PARTS];
            for byte in 0..BYTES {
                let seed = if byte == 0 { MAGIC } else { 0 };
                let factor = if byte + 1 == BYTES { last as u32 } else { 2 };
                let planes = words.at(32 * byte + lane());
                for tile in 0..PARTS / 2 {
                    let (i, j) = (2 * tile, 2 * tile + 1);
                    let mut counts = [seed, 0, seed, 0];
                    if BITS == 2 {
                        let high = mma_and_popc([high[i], high[j]], planes, [0; 4]);
                        counts = [0, 1, 2, 3].map(|k| multiply_add::<2>(high[k], counts[k]));
                    }
                    let counts = mma_and_popc([low[i], low[j]], planes, counts);
                    for r in 0..2 {
                        let sum = counts[2 * r].wrapping_add(counts[2 * r + 1].wrapping_mul(factor));
                        let of = &mut sums[2 * tile + r];
                        *of = if byte == 0 { sum } else { multiply_add::<256>(sum, *of) };
                    }
                }
            }
            for r in 0..PARTS {
                let minus = f32::from_bits(sums[r]) - f32::from_bits(MAGIC);
                let scale = convert::f16_bits_to_f32(scales[r]);
                acc[r] = math::fma(scale, math::fma(minus_2d, minus, all), acc[r]);
            }
        }
    }

    /// A block's outputs, by way of `sums`.
    #[device]
    pub unsafe fn product<F: Decode, const BYTES: usize, const BITS: usize>(given: impl Given, sums: Shared<f32>) {
        let (a, role) = (given.args(), given.role());
        let (place, warp) = (Place::now(role), (role.thread() / 32) as usize);
        // Units fill blocks: `BITS` vectors of codes for each. A scale is for one block or for several.
        let record = F::SPEC.record(a.cols as usize, a.block_units);
        let blocks = a.cols / BLOCK;
        let (g, t) = (lane() / 4, lane() & 3);
        let row: [In<U32x4>; PARTS] = core::array::from_fn(|r| {
            a.row(a.rows, place.block * BLOCK_ROWS + g as u32, 8 * r as u32, record.vectors as u32)
        });
        // Four vectors, one a lane of four, hold a number of blocks: of a whole run those 8 apart, of the shorter one those as far
        // apart as it has groups of four lanes.
        let together = 4 / BITS as u32;
        let full = blocks / (8 * together) * (8 * together);
        let shorter = Record::shorter_run(4 * (blocks - full), BITS as u32) / 4;
        let (full_groups, shorter_groups) = (full / together, shorter / together);
        let groups = full_groups + shorter_groups;
        let load =
            |group: u32| -> [[u32; 4]; PARTS] { core::array::from_fn(|r| row[r].ld_nc128((4 * group) as usize + t).0) };
        given.begin(WARPS as u32, record.vectors as u32);
        given.wait();
        let x = a.x.from(place.column as usize * len(a.cols, BYTES as u32) as usize);
        let shared = record.block_units - 2;
        let scales = row.map(|row| row.from(record.blocks / 16).cast::<u16>());
        let last = last_factor(t);
        let mut acc = [0.0f32; PARTS];
        let add_group = |acc: &mut [f32; PARTS], group: u32, vectors: [[u32; 4]; PARTS]| {
            let (first, apart) = if group < full_groups {
                ((group & !7) * together + (group & 7), 8)
            } else {
                (full + group - full_groups, shorter_groups)
            };
            for part in 0..together as usize {
                let block = (first + part as u32 * apart) as usize;
                let words = vectors.map(|v| [v[part * BITS], v[part * BITS + BITS - 1]]);
                add_block::<BYTES, BITS>(acc, x, block, words, scales.map(|s| s.at(block >> shared)), last);
            }
        };
        let mut group = warp as u32;
        while group < groups {
            // The vectors of two groups are on the way at once; before sm_80, where the product of bits is many instructions, of one.
            let behind = group + WARPS as u32;
            let (vectors, more) = (load(group), AHEAD && behind < groups);
            let vectors_behind = if more { load(behind) } else { vectors };
            add_group(&mut acc, group, vectors);
            if more {
                add_group(&mut acc, behind, vectors_behind);
            }
            group += if AHEAD { 2 } else { 1 } * WARPS as u32;
        }
        // The rest lies block after block.
        let mut block = (full + shorter + warp as u32) as usize;
        while block < blocks as usize {
            let words = core::array::from_fn(|r| {
                let codes = row[r].cast::<u32>();
                if BITS == 1 { [codes.at(4 * block + t); 2] } else { codes.load2(8 * block + 2 * t).0 }
            });
            add_block::<BYTES, BITS>(&mut acc, x, block, words, scales.map(|s| s.at(block >> shared)), last);
            block += WARPS;
        }

        let sums = sums.from(role.part() * WARPS * BLOCK_ROWS as usize);
        // 4^t, or -4^t / 2.
        let weight = f32::from_bits(if BITS == 1 { 127 + 2 * t as u32 } else { 256 + 126 + 2 * t as u32 } << 23);
        for r in 0..PARTS {
            let mut sum = acc[r] * weight;
            sum += shuffle_xor(FULL, sum, 1);
            sum += shuffle_xor(FULL, sum, 2);
            if t == 0 {
                sums.set(warp * BLOCK_ROWS as usize + g + 8 * r, sum);
            }
        }
        sync_role(role);
        let place = role.again();
        if place.thread < 32 {
            given.again().finish::<false>(place, BLOCK_ROWS, |row| {
                let mut sum = 0.0;
                for warp in 0..WARPS {
                    sum += unsafe { sums.get(warp * BLOCK_ROWS as usize + row as usize) };
                }
                sum
            });
        }
    }
}

macro_rules! quantizers {
    ($($bits:literal, $bytes:literal: $X:ident $planes:ident $Planes:ident;)*) => { $(
        quantizer! {
            /// Activations in bit planes.
            $planes $Planes: $X, 4, blocks of BLOCK, len_of::<$bytes>, |x, to, cols| {
                let block = block::idx_x() as usize * WARPS + warp_index();
                if block < (cols / BLOCK) as usize {
                    quantize_planes::<false>($bytes, $bits, |c| x.at(c), to.cast::<U32x4>(), block);
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
        product! {
            /// A matrix of codes of one or two bits times columns in bit planes.
            $gemv $Gemv: $X, $blocks of THREADS, else THREADS, format::$F, units $units, len_of::<$bytes>,
            $shared of WARPS * BLOCK_ROWS as usize, |a, sums| frame::product::<format::$F, $bytes, $bits>(a, sums)
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
