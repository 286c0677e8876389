//! Formats of quantized activations: how kernels are told which, and what they take.
//!
//! A kernel may write what it computes as quantized activations too ([`OutputQuantization`](super::OutputQuantization)), for the
//! products behind it:
//!
//! | argument | |
//! |---|---|
//! | `quant_format` | [`NONE`], or a [`QuantFormat`] as a number |
//! | `quantized` | vectors of 16 bytes, as many for each column as [`QuantFormat::len`] of its elements |
//! | `group_counters` | u32 `[columns, groups]`, [`groups`] for each column: zero before the first launch, and again after every launch |
//!
//! A warp that has all elements that share a scale quantizes them at once. Where several blocks of threads compute those, the counters
//! tell which of them is the last.

#[cfg(not(target_arch = "nvptx64"))]
use super::Activations;
use warpsmith_device::prelude::*;

/// No quantized outputs are asked for.
pub const NONE: u32 = 0;
/// Activations of eight bits in blocks of 32; smaller numbers are those of bit planes.
pub const I8: u32 = 5;
/// Activations of 16 bits in blocks of 32, as two bytes each.
pub const I16: u32 = 6;

/// Activations in f16, of which none shares anything; the next format has two for each.
pub const F16: u32 = 7;
/// The same, two for each activation.
pub const F16X2: u32 = 8;

/// Bytes of a code in bit planes, and bits of the weights that it is multiplied with.
#[must_use]
#[inline(always)]
pub const fn planes_of(format: u32) -> (u32, u32) {
    (2 - format % 2, 1 + (format - 1) / 2)
}

/// Elements of a group, by the number of its format: those that share a scale, or a unit, which a warp quantizes at a time.
#[must_use]
#[inline(always)]
pub const fn group(format: u32) -> u32 {
    if format >= I8 { int8::BLOCK } else { planes::BLOCK }
}

/// Counters that a column of `n` elements takes, whatever its format.
#[must_use]
pub const fn groups(n: u32) -> u32 {
    n.div_ceil(int8::BLOCK)
}

/// Rows of weights of a block of threads of the products that read quantized activations: as many outputs, or with
/// [`SWIGLU`](super::SWIGLU) half as many. Larger blocks have twice as many rows with that, so that they have all outputs that share
/// a scale.
pub const BLOCK_ROWS: u32 = 32;

/// Parts of a sum of squares that [`NEXT`](super::NEXT) of theirs gives a column: one for each [`BLOCK_ROWS`] rows of weights.
#[must_use]
#[inline(always)]
pub const fn parts(rows: u32, swiglu: bool) -> u32 {
    rows.div_ceil(if swiglu { BLOCK_ROWS / 2 } else { BLOCK_ROWS })
}

/// Codes of one or two signed bytes with a scale for each 32 columns: what [`int8`](super::int8) multiplies with.
pub mod int8 {
    use super::*;
    pub use planes::{INFINITE, ZERO, short};

    /// Columns that share a scale.
    pub const BLOCK: u32 = 32;

    /// 16 bytes of activations that [`QuantizeI8`](crate::gemv::int8::QuantizeI8) wrote.
    #[derive(Clone, Copy, Debug, PartialEq, Element)]
    #[repr(C)]
    pub struct I8Vector(pub U32x4);

    /// 16 bytes of activations that [`QuantizeI16`](crate::gemv::int8::QuantizeI16) wrote.
    #[derive(Clone, Copy, Debug, PartialEq, Element)]
    #[repr(C)]
    pub struct I16Vector(pub U32x4);

    /// Vectors that `cols` activations of `bytes` bytes take: those of whole pairs of units.
    #[must_use]
    pub const fn len(cols: u32, bytes: u32) -> u64 {
        pairs(bytes as usize, cols.div_ceil(BLOCK).next_multiple_of(2) as usize) as u64
    }

    /// Vectors before unit `u`, an even number: of each pair of units the vectors of codes, two for each byte, which alternate, and
    /// behind them the scales. So lanes that each load a vector of a unit load whole sectors of 32 bytes.
    #[must_use]
    #[inline(always)]
    pub const fn pairs(bytes: usize, u: usize) -> usize {
        // In 32 bits, which a column's units fit by far.
        (5 * bytes as u32 * (u as u32 / 2)) as usize
    }

    /// Where the codes of unit `u` begin, in vectors, of which every second one is its own.
    #[must_use]
    #[inline(always)]
    pub const fn codes(bytes: usize, u: usize) -> usize {
        pairs(bytes, u) + u % 2
    }

    /// Where the scale of unit `u` and what is beside it begin, in words.
    #[must_use]
    #[inline(always)]
    pub const fn scale(bytes: usize, u: usize) -> usize {
        4 * (pairs(bytes, u) + 4 * bytes) + 2 * bytes * (u % 2)
    }

    /// Where the four codes of columns `4 * q` to `4 * q + 3` are among words, from the first of a unit on: byte `byte` of two, the highest
    /// first. What lane `q % 4` of four multiplies with on tensor cores lies side by side.
    #[must_use]
    #[inline(always)]
    pub const fn word(bytes: usize, byte: usize, q: usize) -> usize {
        let word = (q % 4 * 2 + q / 4) * bytes + byte;
        8 * (word / 4) + word % 4
    }

    /// The largest code of `bytes` bytes: two signed bytes, the higher of which counts 256 times, reach `127 * 257`.
    #[must_use]
    pub const fn most(bytes: u32) -> u32 {
        if bytes == 1 { 127 } else { 127 * 257 }
    }

    /// The float 1.5 * 2^31, whose last bit counts 256.
    const HIGH_ZERO: f32 = 3_221_225_472.0;

    /// What the integer sums of a unit are counted from, so that they are floats as they are: the bits of [`ZERO`]; of two bytes, the
    /// higher first, those of 1.5 * 2^31 less `ZERO`, so that both together count from 1.5 * 2^31.
    #[must_use]
    #[inline(always)]
    pub const fn zeros<const BYTES: usize>() -> [u32; BYTES] {
        let mut zeros = [ZERO.to_bits(); BYTES];
        if BYTES == 2 {
            zeros[0] = HIGH_ZERO.to_bits() - (ZERO as u32 >> 8);
        }
        zeros
    }

    /// What `d` times the sums is more than it should be, taken off: exact, as `d` has [22 bits](short).
    #[must_use]
    #[inline(always)]
    pub fn less<const BYTES: usize>(d: f32) -> f32 {
        d * if BYTES == 1 { -ZERO } else { -HIGH_ZERO }
    }

    /// `d` times the sum of products of a unit, from sums that count from [`zeros`], and [`less`] of `d`. The sum of one byte is rounded
    /// once; of two, so is that of the higher ones before, less `ZERO`: it is off by at most 2^-25 of itself and by 3/8 `d`, and
    /// not at all where no code is multiplied with anything but 0.
    #[must_use]
    #[inline(always)]
    pub fn scaled<const BYTES: usize>(sums: [u32; BYTES], d: f32, less: f32) -> f32 {
        let mut product = less;
        let mut byte = 0;
        while byte < BYTES {
            product = math::fma(f32::from_bits(sums[byte]), d, product);
            byte += 1;
        }
        product
    }
}

/// Bit planes of codes of 8 and 16 bits with a scale for each 128 columns: what [`planes`](super::planes) multiplies with.
pub mod planes {
    use super::*;

    /// Columns that share a scale.
    pub const BLOCK: u32 = 128;

    /// A vector of activations in the order of weights of two bits.
    #[derive(Clone, Copy, Debug, PartialEq, Element)]
    #[repr(C)]
    pub struct Q2Planes(pub U32x4);

    /// Vectors of 16 bytes that `cols` activations of `bytes` bytes take.
    #[must_use]
    pub const fn len(cols: u32, bytes: u32) -> u64 {
        cols.div_ceil(BLOCK) as u64 * block_vectors(bytes as usize) as u64
    }

    /// Vectors of a block of codes of `bytes` bytes: of planes, two of what else there is, and of the same codes as bytes.
    #[must_use]
    pub const fn block_vectors(bytes: usize) -> usize {
        8 * bytes + 2 + 8 * bytes
    }

    /// The first vector of byte `byte` of a block's codes of `bytes` bytes.
    #[must_use]
    #[inline(always)]
    pub const fn codes(bytes: usize, byte: usize) -> usize {
        8 * bytes + 2 + 8 * byte
    }

    /// The vector of a block's scale and sum.
    #[must_use]
    #[inline(always)]
    pub const fn scale(bytes: usize) -> usize {
        8 * bytes
    }

    /// Activations of this magnitude are taken for infinite, so that a scale times [`ZERO`] is not.
    pub const INFINITE: f32 = (1u128 << 110) as f32;

    /// The float 1.5 * 2^23: as long as less than 2^22 is added to its bits, the float is more by as much.
    pub const ZERO: f32 = 12_582_912.0;

    /// What the integer sum of a block is counted from: the bits of [`ZERO`], or 0 where sums may be too large for that.
    #[must_use]
    #[inline(always)]
    pub const fn zero(bytes: usize, bits: usize) -> u32 {
        if bytes == 2 && bits == 2 { 0 } else { ZERO.to_bits() }
    }

    /// The nearest scale of 22 bits, whose product with [`ZERO`] is exact (Veltkamp's splitting).
    #[must_use]
    #[inline(always)]
    pub const fn short(d: f32) -> f32 {
        let up = 5.0 * d;
        up - (up - d)
    }

    /// The largest code of `bytes` bytes.
    #[must_use]
    pub const fn most(bytes: u32) -> u32 {
        if bytes == 1 { 127 } else { 32767 }
    }
}

/// f16 in the order in which tensor cores take them: what [`half`](super::half) multiplies with.
pub mod half {
    use super::*;

    /// Activations that share nothing are rounded a unit at a time.
    pub const UNIT: u32 = 32;
    /// Units whose vectors alternate: each of four lanes has one of them.
    pub const TOGETHER: u32 = 4;
    /// What an f16 is of its activation: range for 2^20, where a step of the smallest is 2^-20.
    pub const SHARE: f32 = 1.0 / 16.0;
    /// What the first of two f16 is of its activation: range for 2^26, as residual streams times the weights of a norm have been seen with
    /// 2^22; what both lack of an activation is 2^-26 at most, where it is small.
    pub const SHARE_OF_TWO: f32 = 1.0 / 1024.0;
    /// By how much the second of two f16 is larger than what the first one leaves: that is then as precise as the first.
    pub const REST: f32 = 2048.0;

    /// 16 bytes of activations that [`QuantizeF16`](crate::gemv::half::QuantizeF16) wrote.
    #[derive(Clone, Copy, Debug, PartialEq, Element)]
    #[repr(C)]
    pub struct F16Vector(pub U32x4);

    /// Vectors of 16 bytes that `cols` activations take: four a unit, of whole groups of [`TOGETHER`].
    #[must_use]
    #[inline(always)]
    pub const fn len(cols: u32) -> u64 {
        16 * cols.div_ceil(UNIT * TOGETHER) as u64
    }

    /// The same of two f16 for each activation: of all the first, and behind them the second.
    #[must_use]
    #[inline(always)]
    pub const fn len_of_two(cols: u32) -> u64 {
        2 * len(cols)
    }

    /// Where activation `i` of unit `u` lies among the f16 of a column. Eight make a vector; those of the units of a group
    /// alternate; and of each four the middle ones are swapped, as bytes of a word become pairs of f16.
    #[must_use]
    #[inline(always)]
    pub const fn place(u: usize, i: usize) -> usize {
        let (group, t) = (u / TOGETHER as usize, u % TOGETHER as usize);
        let swapped = i % 4 / 2 + i % 2 * 2;
        8 * (16 * group + 4 * (i / 8) + t) + i % 8 / 4 * 4 + swapped
    }
}

/// How activations are quantized; kernels get the number.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum QuantFormat {
    /// Bit planes of eight bits.
    PlanesI8 = 1,
    /// Bit planes of 16 bits.
    PlanesI16 = 2,
    /// Bit planes of eight bits, in the order of weights of two bits.
    PlanesQ2I8 = 3,
    /// Bit planes of 16 bits, in the order of weights of two bits.
    PlanesQ2I16 = 4,
    /// Eight bits in blocks of 32.
    I8 = I8,
    /// 16 bits in blocks of 32, as two signed bytes.
    I16 = I16,
    /// f16.
    F16 = F16,
    /// Two f16.
    F16x2 = F16X2,
}

#[cfg(not(target_arch = "nvptx64"))]
impl QuantFormat {
    /// Every format.
    pub const ALL: [QuantFormat; 8] = [
        QuantFormat::PlanesI8,
        QuantFormat::PlanesI16,
        QuantFormat::PlanesQ2I8,
        QuantFormat::PlanesQ2I16,
        QuantFormat::I8,
        QuantFormat::I16,
        QuantFormat::F16,
        QuantFormat::F16x2,
    ];

    /// The format that kernels know by this number.
    #[must_use]
    pub fn numbered(number: u32) -> Option<QuantFormat> {
        QuantFormat::ALL.into_iter().find(|c| *c as u32 == number)
    }

    /// The activations that it stores.
    #[must_use]
    pub fn activations(self) -> Activations {
        match self {
            QuantFormat::F16 => Activations::F16,
            QuantFormat::F16x2 => Activations::F16x2,
            of if of.bytes() == 2 => Activations::Int16,
            _ => Activations::Int8,
        }
    }

    /// Whether its numbers are f16, one or two for each activation.
    #[must_use]
    pub fn is_half(self) -> bool {
        matches!(self, QuantFormat::F16 | QuantFormat::F16x2)
    }

    /// Bytes of a code, or of the f16 of an activation.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            QuantFormat::I8 => 1,
            QuantFormat::I16 | QuantFormat::F16 => 2,
            QuantFormat::F16x2 => 4,
            planes => planes_of(planes as u32).0,
        }
    }

    /// Whether the codes are stored as bit planes, and not as bytes.
    #[must_use]
    pub fn is_planes(self) -> bool {
        (self as u32) < I8
    }

    /// The largest code of integers.
    #[must_use]
    pub fn most(self) -> u32 {
        if self.is_planes() { planes::most(self.bytes()) } else { int8::most(self.bytes()) }
    }

    /// Columns that share a scale: there is a multiple of them. Of f16 none does.
    #[must_use]
    pub fn block(self) -> u32 {
        if self.is_half() { 1 } else { group(self as u32) }
    }

    /// Vectors of 16 bytes that a column of `cols` activations takes.
    #[must_use]
    pub fn len(self, cols: u32) -> u64 {
        match self {
            QuantFormat::F16 => half::len(cols),
            QuantFormat::F16x2 => half::len_of_two(cols),
            of if of.is_planes() => planes::len(cols, self.bytes()),
            _ => int8::len(cols, self.bytes()),
        }
    }

    /// How far products with these may be from those with exact activations: `sum |w| d / 2` for each row of decoded weights, where
    /// `d` is the scale of a block of columns, or of f16 a step.
    #[must_use]
    pub fn rounding(self, weights: &[f32], x: &[f32]) -> Vec<f64> {
        if self.is_half() {
            // Half of the last of eleven bits, or of the step of subnormal ones; and of what that leaves.
            let [of_a_number, of_a_step] = match self {
                QuantFormat::F16x2 => [2f64.powi(-22), 2f64.powi(-25) / f64::from(half::SHARE_OF_TWO * half::REST)],
                _ => [2f64.powi(-11), 2f64.powi(-25) / f64::from(half::SHARE)],
            };
            let half = |x: &f32| of_a_number * f64::from(x.abs()) + of_a_step;
            let row = |row: &[f32]| row.iter().zip(x).map(|(w, x)| f64::from(w.abs()) * half(x)).sum();
            return weights.chunks(x.len()).map(row).collect();
        }
        let most = f64::from(self.most());
        let half: Vec<f64> = x
            .chunks(self.block() as usize)
            .flat_map(|block| {
                let largest = block.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
                std::iter::repeat_n(largest / most / 2.0, block.len())
            })
            .collect();
        weights.chunks(x.len()).map(|row| row.iter().zip(&half).map(|(w, h)| f64::from(w.abs()) * h).sum()).collect()
    }
}
