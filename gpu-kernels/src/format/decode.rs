//! What a format is to the kernels: a decoder of units, the rest is [one frame](crate::gemv).

use super::record::{Memory, Record, Spec, UNIT};
use warpsmith_device::convert::f16_bits_to_f32;

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
    /// The sections of its records.
    const SPEC: Spec;
    /// Scales in a unit, one or two.
    const SCALES: usize = 1;
    /// Whether there are scales; if not, codes are weights.
    const SCALED: bool = true;
    /// Whether there are addends.
    const SHIFTED: bool = false;
    /// A unit's codes, or where to find them.
    type Codes<M: Memory>: Copy;

    /// The codes of unit `u`.
    ///
    /// # Safety
    /// `m` is a record of the layout `r`, which has that unit.
    unsafe fn codes<M: Memory>(m: M, r: &Record, u: usize) -> Self::Codes<M>;

    /// As [`codes`](Decode::codes), where the words of codes are loaded: they are the first of `words`.
    ///
    /// # Safety
    /// As [`codes`](Decode::codes).
    #[inline(always)]
    unsafe fn codes_of<M: Memory>(m: M, r: &Record, u: usize, words: [u32; 4]) -> Self::Codes<M> {
        let _ = words;
        // SAFETY: the caller's promise.
        unsafe { Self::codes(m, r, u) }
    }

    /// The codes of columns `4 * q` to `4 * q + 3`.
    fn quad<M: Memory>(codes: &Self::Codes<M>, q: usize) -> [f32; 4];

    /// The scales of unit `u`.
    ///
    /// # Safety
    /// As [`codes`](Decode::codes).
    unsafe fn scales<M: Memory>(m: M, r: &Record, u: usize) -> Scales;
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
