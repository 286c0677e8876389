//! Weights as pairs of f16: what products with activations in f16 multiply with on tensor cores.
//!
//! Four weights in a row become two words, of the first and the third and of the second and the fourth, as bytes of a word do with one
//! permutation each. Codes that are [`Bytes`] go over the mantissa of 1024, from which one exact subtraction takes 1024 and the offset
//! off, or are upper bytes of f16 themselves, and what is behind that is a product with the scale, or where there are addends an `fma`,
//! of pairs. Scales and addends are f16 then, 16 times as large, so that small ones are not subnormal. Signs flip those of scales or
//! products, eight-bit floats are f16 once their exponents are, and [places of a grid](super::grid) are bytes once they are looked up.

use super::{
    decode::{Bytes, Decode, Scales},
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

    /// The scales of unit `u`, whose codes are loaded.
    ///
    /// # Safety
    /// As [`Decode::codes`].
    #[inline(always)]
    unsafe fn scales_of<M: Memory, C: Memory>(m: M, r: &Record, u: usize, _unit: &Self::Unit<C>) -> Scales {
        // SAFETY: the caller's promise.
        unsafe { Self::scales(m, r, u) }
    }

    /// What scales the codes of a unit with these scales.
    fn scale(scales: Scales) -> Self::Scale;

    /// Weights `8 * v` to `8 * v + 7` of a unit.
    fn eight<M: Memory>(unit: &Self::Unit<M>, v: usize, scale: &Self::Scale) -> Eight;

    /// How far off a weight with this code may be as small f16 have fewer bits: a scale, an addend and what comes of them by half of the
    /// smallest step each.
    #[cfg(not(target_arch = "nvptx64"))]
    fn small(code: f64) -> f64 {
        2f64.powi(-25) * if Self::SCALED { 2.0 + code.abs() } else { 1.0 }
    }
}

/// Scales and addends of a unit's halves, twice each.
#[derive(Clone, Copy)]
pub struct Pairs {
    scale: [F16x2; 2],
    shift: [F16x2; 2],
}

impl Pairs {
    /// Those of a format.
    #[inline(always)]
    pub(super) fn of<F: Halves>(scales: Scales) -> Pairs {
        let twice = |v: f32| F16x2::splat_f32(v * F::LARGER);
        let halves = |[first, second]: [f32; 2]| {
            let first = twice(first);
            [first, if F::SCALES == 2 { twice(second) } else { first }]
        };
        let scale = halves(scales.scale);
        Pairs { scale, shift: if F::SHIFTED { halves(scales.shift) } else { scale } }
    }

    /// What codes `8 * v` to `8 * v + 7` are multiplied with.
    #[inline(always)]
    pub(super) fn scale(&self, v: usize) -> F16x2 {
        self.scale[v / 2]
    }
}

/// Eight weights, of which those are less than 0 whose bits of eight are set.
#[inline(always)]
pub(super) fn flip_signs(eight: Eight, minus: u32) -> Eight {
    // One product brings the bits of a pair to its signs.
    let flipped = |pair: u32, first: u32| {
        let both = const { 1 << 15 | 1u32 << 29 } >> first;
        pair ^ (minus.wrapping_mul(both) & 0x8000_8000)
    };
    [flipped(eight[0], 0), flipped(eight[1], 1), flipped(eight[2], 4), flipped(eight[3], 5)]
}

impl<F: Bytes> Halves for F {
    type Unit<M: Memory> = F::Codes<M>;
    type Scale = Pairs;

    #[inline(always)]
    unsafe fn unit<M: Memory>(m: M, r: &Record, u: usize) -> F::Codes<M> {
        // SAFETY: the caller's promise.
        unsafe { F::codes(m, r, u) }
    }
    #[inline(always)]
    fn scale(scales: Scales) -> Pairs {
        Pairs::of::<F>(scales)
    }
    #[inline(always)]
    fn eight<M: Memory>(unit: &F::Codes<M>, v: usize, scale: &Pairs) -> Eight {
        let pairs = |q: usize| {
            F::pairs::<M>(unit, q).map(|codes| {
                let scaled =
                    if F::SHIFTED { codes.fma(scale.scale(v), scale.shift[v / 2]) } else { codes * scale.scale(v) };
                scaled.to_bits()
            })
        };
        let ([a, b], [c, d]) = (pairs(2 * v), pairs(2 * v + 1));
        [a, b, c, d]
    }
}

/// A unit of weights of 16 bits.
type HalfWords = [[u32; 4]; 4];

#[inline(always)]
unsafe fn words<M: Memory>(m: M, r: &Record, u: usize) -> HalfWords {
    // SAFETY: the caller's promise: the unit is there.
    [0, 1, 2, 3].map(|i| unsafe { m.vector(r.vector(u, i, 4)) })
}

/// IEEE binary16 as it is.
impl Halves for F16 {
    const LARGER: f32 = 1.0;
    type Unit<M: Memory> = HalfWords;
    type Scale = ();

    #[inline(always)]
    unsafe fn unit<M: Memory>(m: M, r: &Record, u: usize) -> HalfWords {
        // SAFETY: the caller's promise.
        unsafe { words(m, r, u) }
    }
    #[inline(always)]
    fn scale(_: Scales) {}
    #[inline(always)]
    fn eight<M: Memory>(unit: &HalfWords, v: usize, (): &()) -> Eight {
        let [a, b, c, d] = unit[v];
        [permute(a, b, 0x5410), permute(a, b, 0x7632), permute(c, d, 0x5410), permute(c, d, 0x7632)]
    }
}

/// A bf16 has fewer bits: those that an f16 cannot be are too large for one, or so small that it is subnormal.
impl Halves for BF16 {
    type Unit<M: Memory> = HalfWords;
    type Scale = ();

    #[inline(always)]
    unsafe fn unit<M: Memory>(m: M, r: &Record, u: usize) -> HalfWords {
        // SAFETY: the caller's promise.
        unsafe { words(m, r, u) }
    }
    #[inline(always)]
    fn scale(_: Scales) {}
    #[inline(always)]
    fn eight<M: Memory>(unit: &HalfWords, v: usize, (): &()) -> Eight {
        let four = |a, b| {
            let ((w, x), (y, z)) = (unpack_bf16x2(a), unpack_bf16x2(b));
            [(w, y), (x, z)].map(|(a, b)| pack_f16x2(a * Self::LARGER, b * Self::LARGER))
        };
        let ([a, b], [c, d]) = (four(unit[v][0], unit[v][1]), four(unit[v][2], unit[v][3]));
        [a, b, c, d]
    }
}
