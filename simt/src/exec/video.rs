//! SIMD video instructions: operations on the bytes or halves of words.

use super::OpFn;
use super::lanes::map4;

/// What is done with each pair of parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Video {
    Add,
    Sub,
    Average,
    AbsoluteDifference,
    Min,
    Max,
}

/// The fourth operand of [`video`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub op: Video,
    /// Halves instead of bytes.
    pub halves: bool,
    pub a_signed: bool,
    pub b_signed: bool,
    pub d_signed: bool,
    pub saturate: bool,
    /// The parts' results are added to `c`.
    pub accumulate: bool,
}

impl Mode {
    pub(crate) fn word(self) -> u32 {
        let flags = [self.halves, self.a_signed, self.b_signed, self.d_signed, self.saturate, self.accumulate];
        flags.iter().fold(self.op as u32, |word, &flag| word << 1 | u32::from(flag))
    }
}

/// `vadd4` and its kin without selectors, as the pseudocode of the ISA says; the mode is in the fourth operand.
pub(crate) fn video() -> OpFn {
    map4(|a: u32, b: u32, c: u32, mode: u32| {
        let flag = |bit: u32| mode >> bit & 1 != 0;
        let (accumulate, saturate, d_signed, b_signed, a_signed, halves) =
            (flag(0), flag(1), flag(2), flag(3), flag(4), flag(5));
        let width = if halves { 16 } else { 8 };
        let part = |word: u32, i: u32, signed: bool| {
            let at = word << (32 - width * (i + 1));
            if signed { i64::from(at as i32 >> (32 - width)) } else { i64::from(at >> (32 - width)) }
        };
        let (mut packed, mut sum) = (0u32, c);
        for i in 0..32 / width {
            let (x, y) = (part(a, i, a_signed), part(b, i, b_signed));
            let mut result = match mode >> 6 {
                0 => x + y,
                1 => x - y,
                2 => (x + y + i64::from(x + y >= 0)) >> 1,
                3 => (x - y).abs(),
                4 => x.min(y),
                _ => x.max(y),
            };
            if saturate {
                let (low, high) = if d_signed { (-(1 << (width - 1)), 1 << (width - 1)) } else { (0, 1 << width) };
                result = result.clamp(low, high - 1);
            }
            sum = sum.wrapping_add(result as u32);
            packed |= (result as u32 & ((1 << width) - 1)) << (width * i);
        }
        if accumulate { sum } else { packed }
    })
}
