//! Weights as pairs of f16: what products with activations in f16 multiply with on tensor cores.
//!
//! Four weights in a row become two words, of the first and the third and of the second and the fourth, as bytes of a word do with one
//! permutation each. Codes of up to eight bits go over the mantissa of 1024, from which one exact subtraction takes 1024 and the offset
//! off, and what is behind that is a product with the scale, or where there are addends an `fma`, of pairs. Scales and addends are
//! f16 then, 16 times as large, so that small ones are not subnormal.

use super::{
    decode::{Decode, Packed, Scales},
    dense::{BF16, F16},
    record::{Memory, Record},
    unpack::permute,
};
use warpsmith_device::{
    convert::{pack_f16x2, unpack_bf16x2},
    packed::F16x2,
};

/// Words of a vector of eight weights.
pub type Eight = [u32; 4];

/// A format whose weights are multiplied in f16.
pub trait Halves: Decode {
    /// How many times as large the f16 of a weight is: a power of two.
    const LARGER: f32 = 16.0;
    /// A unit's codes, loaded.
    type Unit<M: Memory>: Copy;
    /// What scales its codes.
    type Scale: Copy;

    /// Loads the codes of unit `u`.
    ///
    /// # Safety
    /// As [`Decode::codes`].
    unsafe fn unit<M: Memory>(m: M, r: &Record, u: usize) -> Self::Unit<M>;

    /// What scales the codes of a unit with these scales.
    fn scale(scales: Scales) -> Self::Scale;

    /// Weights `8 * v` to `8 * v + 7` of a unit.
    fn eight<M: Memory>(unit: &Self::Unit<M>, v: usize, scale: &Self::Scale) -> Eight;
}

/// Scales, twice each, and an addend.
#[derive(Clone, Copy)]
pub struct Pairs {
    scale: [F16x2; 2],
    shift: F16x2,
}

/// 1024 as a pair's bytes.
const MAGIC: u32 = 0x6464_6464;

impl<F: Packed> Halves for F {
    type Unit<M: Memory> = F::Codes<M>;
    type Scale = Pairs;

    #[inline(always)]
    unsafe fn unit<M: Memory>(m: M, r: &Record, u: usize) -> F::Codes<M> {
        // SAFETY: the caller's promise.
        unsafe { F::codes(m, r, u) }
    }
    #[inline(always)]
    fn scale(scales: Scales) -> Pairs {
        let twice = |v: f32| F16x2::splat_f32(v * F::LARGER);
        let scale = twice(scales.scale[0]);
        Pairs {
            scale: [scale, if F::SCALES == 2 { twice(scales.scale[1]) } else { scale }],
            shift: if F::SHIFTED { twice(scales.shift[0]) } else { scale },
        }
    }
    #[inline(always)]
    fn eight<M: Memory>(unit: &F::Codes<M>, v: usize, scale: &Pairs) -> Eight {
        // 1024 and the offset, which are exact.
        let offset = F16x2::from_bits(const { 0x6400_6400 + 0x0001_0001 * F::OFFSET as u32 });
        let by = if F::SCALES == 2 && v >= 2 { scale.scale[1] } else { scale.scale[0] };
        let pair = |bytes, select| {
            let codes = F16x2::from_bits(permute(bytes, MAGIC, select)) - offset;
            if F::SHIFTED { codes.fma(by, scale.shift) } else { codes * by }.to_bits()
        };
        let (first, second) = (F::bytes::<M>(unit, 2 * v), F::bytes::<M>(unit, 2 * v + 1));
        [pair(first, 0x4240), pair(first, 0x4341), pair(second, 0x4240), pair(second, 0x4341)]
    }
}

/// A unit of weights of 16 bits.
type Words = [[u32; 4]; 4];

#[inline(always)]
unsafe fn words<M: Memory>(m: M, r: &Record, u: usize) -> Words {
    // SAFETY: the caller's promise: the unit is there.
    [0, 1, 2, 3].map(|i| unsafe { m.vector(r.vector(u, i, 4)) })
}

/// IEEE binary16 as it is.
impl Halves for F16 {
    const LARGER: f32 = 1.0;
    type Unit<M: Memory> = Words;
    type Scale = ();

    #[inline(always)]
    unsafe fn unit<M: Memory>(m: M, r: &Record, u: usize) -> Words {
        // SAFETY: the caller's promise.
        unsafe { words(m, r, u) }
    }
    #[inline(always)]
    fn scale(_: Scales) {}
    #[inline(always)]
    fn eight<M: Memory>(unit: &Words, v: usize, (): &()) -> Eight {
        let [a, b, c, d] = unit[v];
        [permute(a, b, 0x5410), permute(a, b, 0x7632), permute(c, d, 0x5410), permute(c, d, 0x7632)]
    }
}

/// A bf16 has fewer bits: those that an f16 cannot be are too large for one, or so small that it is subnormal.
impl Halves for BF16 {
    type Unit<M: Memory> = Words;
    type Scale = ();

    #[inline(always)]
    unsafe fn unit<M: Memory>(m: M, r: &Record, u: usize) -> Words {
        // SAFETY: the caller's promise.
        unsafe { words(m, r, u) }
    }
    #[inline(always)]
    fn scale(_: Scales) {}
    #[inline(always)]
    fn eight<M: Memory>(unit: &Words, v: usize, (): &()) -> Eight {
        let four = |a, b| {
            let ((w, x), (y, z)) = (unpack_bf16x2(a), unpack_bf16x2(b));
            [(w, y), (x, z)].map(|(a, b)| pack_f16x2(a * Self::LARGER, b * Self::LARGER))
        };
        let ([a, b], [c, d]) = (four(unit[v][0], unit[v][1]), four(unit[v][2], unit[v][3]));
        [a, b, c, d]
    }
}
