//! What a format is to the kernels: a decoder of units, the rest is [one frame](crate::gemv).

use super::{
    record::{Memory, Record, Spec, UNIT},
    unpack::pairs_minus,
};
use warpsmith_device::{convert::f16_bits_to_f32, math::dp4a_us, packed::F16x2, static_for};

/// Four weights each.
pub const QUADS: usize = UNIT / 4;

/// The scales of a unit's halves (or of the unit, in the first): a weight is `code * scale + shift`.
#[derive(Clone, Copy, Debug)]
pub struct Scales {
    /// Factors.
    pub scale: [f32; 2],
    /// Addends.
    pub shift: [f32; 2],
}

impl Scales {
    /// One factor for the whole unit.
    #[inline(always)]
    pub(super) fn one(scale: f32) -> Scales {
        Scales { scale: [scale; 2], shift: [0.0; 2] }
    }
    /// One factor and one addend for the whole unit.
    #[inline(always)]
    pub(super) fn shifted(scale: f32, shift: f32) -> Scales {
        Scales { scale: [scale; 2], shift: [shift; 2] }
    }
}

/// A format as the kernels read it. Plain functions, the same on the host.
pub trait Decode: Copy + 'static {
    /// The sections of its records; of layouts that leave something open, those of the first variant.
    const SPEC: Spec;
    /// The largest of what the layout leaves open, which kernels get as `block_units`: the binary logarithm of the units that share a
    /// scale, or which of the formats that have the layout it is.
    const MOST_OPEN: u32 = if Self::SPEC.block_units == Spec::ANY { 8 } else { 0 };
    /// Scales in a unit, one or two.
    const SCALES: usize = 1;
    /// Whether there are scales; if not, codes are weights.
    const SCALED: bool = true;
    /// Whether there are addends.
    const SHIFTED: bool = false;
    /// A unit's codes, or where to find them.
    type Codes<M: Memory>: Copy;

    /// The sections of the records of a variant: what each unit takes beside codes and high bits may depend on it.
    #[inline(always)]
    fn spec(_open: u32) -> Spec {
        Self::SPEC
    }

    /// The record of a row of `cols` columns.
    #[inline(always)]
    fn record(cols: usize, open: u32) -> Record {
        Self::spec(open).record(cols, open)
    }

    /// The codes of unit `u`.
    ///
    /// # Safety
    /// `m` is a record of the layout `r`, which has that unit.
    #[inline(always)]
    unsafe fn codes<M: Memory>(m: M, r: &Record, u: usize) -> Self::Codes<M> {
        // SAFETY: the caller's promise.
        unsafe { Self::codes_of(m, r, u, Self::words(m, r, u)) }
    }

    /// As [`codes`](Decode::codes), where the [words](Decode::words) are loaded: they are the first of `words`.
    ///
    /// # Safety
    /// As [`codes`](Decode::codes).
    unsafe fn codes_of<M: Memory>(m: M, r: &Record, u: usize, words: [u32; 4]) -> Self::Codes<M>;

    /// The words of unit `u` in the section where units share vectors, as the first of four.
    ///
    /// # Safety
    /// As [`codes`](Decode::codes).
    #[inline(always)]
    unsafe fn words<M: Memory>(m: M, r: &Record, u: usize) -> [u32; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            match Self::SPEC.short_words() {
                1 => [m.word(4 * r.short + r.word(u, 1)), 0, 0, 0],
                2 => {
                    let [a, b] = m.pair(4 * r.short + r.word(u, 2));
                    [a, b, 0, 0]
                }
                _ => [0; 4],
            }
        }
    }

    /// The codes of columns `4 * q` to `4 * q + 3`.
    fn quad<M: Memory>(codes: &Self::Codes<M>, q: usize) -> [f32; 4];

    /// The scales of unit `u`.
    ///
    /// # Safety
    /// As [`codes`](Decode::codes).
    unsafe fn scales<M: Memory>(m: M, r: &Record, u: usize) -> Scales;
}

/// A format whose codes are bytes less an offset.
pub trait Bytes: Decode {
    /// What is taken off a byte.
    const OFFSET: i32;

    /// Columns `4 * q` to `4 * q + 3` as bytes.
    fn bytes<M: Memory>(codes: &Self::Codes<M>, q: usize) -> u32;

    /// The same less the offset as pairs of f16: the first and the third, the second and the fourth.
    #[inline(always)]
    fn pairs<M: Memory>(codes: &Self::Codes<M>, q: usize) -> [F16x2; 2] {
        pairs_minus(Self::bytes::<M>(codes, q), Self::OFFSET as u32)
    }
}

/// A format whose bytes products with integer activations read.
pub trait Packed: Bytes {
    /// Binary logarithm of what sums of products count codes by: nibbles in the upper halves of their bytes are 16 times as large.
    const UP: u32 = 0;

    /// Columns `4 * q` to `4 * q + 3` as bytes `2^UP * (byte - OFFSET)`: signed ones where there is an offset, else unsigned.
    #[inline(always)]
    fn multiplied<M: Memory>(codes: &Self::Codes<M>, q: usize) -> u32 {
        Self::less_offset(Self::bytes::<M>(codes, q))
    }

    /// What lane `t` of four loads of the codes of unit `u`: what it needs of it where each lane has two quads.
    ///
    /// # Safety
    /// As [`Decode::codes`].
    unsafe fn share<M: Memory>(m: M, r: &Record, u: usize, t: usize) -> [u32; 3];

    /// The lane's quads as [`multiplied`](Self::multiplied): quads `t` and `t + 4`.
    fn of_share(share: [u32; 3], t: usize) -> [u32; 2];

    /// Bytes below 128 less an offset, signed where there is one.
    #[inline(always)]
    fn less_offset(bytes: u32) -> u32 {
        const HIGHEST: u32 = 0x8080_8080;
        match Self::OFFSET {
            0 => bytes,
            128 => bytes ^ HIGHEST,
            // Of bytes below 128 and what is taken off less: none carries into the next.
            offset => (bytes + 0x0101_0101 * (128 - offset as u32)) ^ HIGHEST,
        }
    }

    /// Adds `sum 2^UP * byte * x` over part `part` of the [`SCALES`](Decode::SCALES) of a unit, for each byte of `x` to a sum of its
    /// own: four signed bytes a word. Exact: no sum of products exceeds `32 * 255 * 128`.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)]
    fn add_products<M: Memory, const BYTES: usize>(
        codes: &Self::Codes<M>,
        part: usize,
        x: &[[i32; QUADS]; BYTES],
        mut sums: [i32; BYTES],
    ) -> [i32; BYTES] {
        for byte in 0..BYTES {
            static_for!(k in 0..QUADS / Self::SCALES => {
                let q = part * QUADS / Self::SCALES + k;
                sums[byte] = dp4a_us(Self::bytes(codes, q), x[byte][q], sums[byte]);
            });
        }
        sums
    }
}

/// The f16 of a unit.
///
/// # Safety
/// As [`Decode::codes`]; the format has two bytes of scales a unit.
#[inline(always)]
pub(super) unsafe fn unit_f16<M: Memory>(m: M, r: &Record, u: usize) -> f32 {
    // SAFETY: the caller's promise.
    f16_bits_to_f32(unsafe { m.half(r.scales / 2 + u) })
}

/// The f16 of a unit's block.
///
/// # Safety
/// As [`Decode::codes`]; the format has two bytes a block.
#[inline(always)]
pub(super) unsafe fn block_f16<M: Memory>(m: M, r: &Record, u: usize) -> f32 {
    // SAFETY: the caller's promise.
    f16_bits_to_f32(unsafe { m.half(r.blocks / 2 + (u >> r.block_units)) })
}
