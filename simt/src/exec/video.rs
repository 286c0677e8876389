//! Video instructions: operations on bytes and halves of words, as the pseudocode of the ISA says.

use super::OpFn;
use super::lanes::map4;

/// What is done with each pair of parts, or with the pair of parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Video {
    Add,
    Sub,
    Average,
    AbsoluteDifference,
    Min,
    Max,
    Set,
    ShiftLeft,
    ShiftRight,
    MultiplyAdd,
}

/// A comparison of `vset`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Compare {
    #[default]
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

fn compare(code: u32, x: i64, y: i64) -> bool {
    match code {
        0 => x == y,
        1 => x != y,
        2 => x < y,
        3 => x <= y,
        4 => x > y,
        _ => x >= y,
    }
}

/// The fourth operand of [`parts`].
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
    /// The parts that are written or added; the others are those of `c`.
    pub mask: u32,
    pub compare: Compare,
}

impl Mode {
    pub(crate) fn word(self) -> u32 {
        let flags = [self.halves, self.a_signed, self.b_signed, self.d_signed, self.saturate, self.accumulate];
        let op = flags.iter().fold(self.op as u32, |word, &flag| word << 1 | u32::from(flag));
        op | self.mask << 16 | (self.compare as u32) << 20
    }
}

/// `vadd4` and its kin, whose sources have been selected; the mode is in the fourth operand.
pub(crate) fn parts() -> OpFn {
    map4(|a: u32, b: u32, c: u32, mode: u32| {
        let flag = |bit: u32| mode >> bit & 1 != 0;
        let (accumulate, saturate, d_signed, b_signed, a_signed, halves) =
            (flag(0), flag(1), flag(2), flag(3), flag(4), flag(5));
        let width = if halves { 16 } else { 8 };
        let part = |word: u32, i: u32, signed: bool| {
            let at = word << (32 - width * (i + 1));
            if signed { i64::from(at as i32 >> (32 - width)) } else { i64::from(at >> (32 - width)) }
        };
        let (mut packed, mut sum) = (c, c);
        for i in (0..32 / width).filter(|i| flag(16 + i)) {
            let (x, y) = (part(a, i, a_signed), part(b, i, b_signed));
            let mut result = match mode >> 6 & 15 {
                0 => x + y,
                1 => x - y,
                2 => (x + y + i64::from(x + y >= 0)) >> 1,
                3 => (x - y).abs(),
                4 => x.min(y),
                5 => x.max(y),
                _ => i64::from(compare(mode >> 20, x, y)),
            };
            if saturate {
                let (low, high) = if d_signed { (-(1 << (width - 1)), 1 << (width - 1)) } else { (0, 1 << width) };
                result = result.clamp(low, high - 1);
            }
            sum = sum.wrapping_add(result as u32);
            let mask = ((1 << width) - 1) << (width * i);
            packed = packed & !mask | (result as u32) << (width * i) & mask;
        }
        if accumulate { sum } else { packed }
    })
}

/// Which part of a word, as [`Scalar`] has it: bytes 0 to 3, halves 4 and 5, or all.
pub(crate) const WHOLE: u32 = 6;

/// What becomes of a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Second {
    Nothing,
    Add,
    Min,
    Max,
}

/// The fourth operand of [`scalar`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar {
    pub op: Video,
    /// Parts of a, b and the destination.
    pub parts: [u32; 3],
    /// Whether a, b and the destination are signed.
    pub signed: [bool; 3],
    pub saturate: bool,
    pub second: Second,
    /// A comparison; 1 for `.wrap`; 1 and 2 for `.shr7` and `.shr15` of `vmad`.
    pub detail: u32,
    /// Of `vmad`: the product, or `c`, is subtracted; one is added.
    pub minus: [bool; 2],
    pub plus_one: bool,
}

impl Scalar {
    pub(crate) fn word(self) -> u32 {
        let bits = |flags: &[bool]| flags.iter().rev().fold(0, |w, &f| w << 1 | u32::from(f));
        let [a, b, d] = self.parts;
        (self.op as u32)
            | a << 4
            | b << 7
            | d << 10
            | bits(&self.signed) << 13
            | u32::from(self.saturate) << 16
            | (self.second as u32) << 17
            | self.detail << 19
            | bits(&[self.minus[0], self.minus[1], self.plus_one]) << 22
    }
}

/// Where a part lies in a word: its lowest bit, and its bits.
fn place(part: u32) -> (u32, u32) {
    match part {
        0..4 => (8 * part, 8),
        4 | 5 => (16 * (part - 4), 16),
        _ => (0, 32),
    }
}

fn extended(word: u32, part: u32, signed: bool) -> i64 {
    let (at, bits) = place(part);
    let top = word << (32 - bits - at);
    if signed { i64::from(top as i32 >> (32 - bits)) } else { i64::from(top >> (32 - bits)) }
}

fn clamped(value: i128, bits: u32, signed: bool) -> i128 {
    let (low, high) = if signed { (-(1i128 << (bits - 1)), 1i128 << (bits - 1)) } else { (0, 1i128 << bits) };
    value.clamp(low, high - 1)
}

/// `vadd` and its kin on one part of each source; the mode is in the fourth operand. Results have 33 bits before the secondary
/// operation, as the types of the ISA's pseudocode say.
pub(crate) fn scalar() -> OpFn {
    map4(|a: u32, b: u32, c: u32, mode: u32| {
        let flag = |bit: u32| mode >> bit & 1 != 0;
        let (d, d_signed, detail) = (mode >> 10 & 7, flag(15), mode >> 19 & 7);
        let x = extended(a, mode >> 4 & 7, flag(13));
        let y = extended(b, mode >> 7 & 7, flag(14));
        let amount = if detail != 0 { y & 31 } else { y.min(32) };
        let result = match mode & 15 {
            0 => i128::from(x + y),
            1 => i128::from(x - y),
            3 => i128::from((x - y).abs()),
            4 => i128::from(x.min(y)),
            5 => i128::from(x.max(y)),
            6 => i128::from(compare(detail, x, y)),
            7 => i128::from(x) << amount,
            8 => i128::from(x) >> amount,
            _ => return multiply_add(x, y, c, mode) as u32,
        };
        let result = if flag(16) { clamped(result, place(d).1, d_signed) } else { result };
        let result = (result as i64) << 31 >> 31;
        if d != WHOLE {
            let (at, bits) = place(d);
            let mask = (u32::MAX >> (32 - bits)) << at;
            return c & !mask | (result as u32) << at & mask;
        }
        let c = if d_signed { i64::from(c as i32) } else { i64::from(c) };
        (match mode >> 17 & 3 {
            0 => result,
            1 => result + c,
            2 => result.min(c),
            _ => result.max(c),
        }) as u32
    })
}

fn multiply_add(x: i64, y: i64, c: u32, mode: u32) -> i128 {
    let flag = |bit: u32| mode >> bit & 1 != 0;
    let (minus_product, minus_c, plus_one) = (flag(22), flag(23), flag(24));
    let signed = flag(13) || flag(14) || minus_product || minus_c;
    let (product, c, one) = match (plus_one, minus_product, minus_c) {
        (true, ..) => (i128::from(x) * i128::from(y), c, 1),
        (_, true, _) => (!(i128::from(x) * i128::from(y)), c, 1),
        (_, _, true) => (i128::from(x) * i128::from(y), !c, 1),
        _ => (i128::from(x) * i128::from(y), c, 0),
    };
    let c = if signed { i128::from(c as i32) } else { i128::from(c) };
    let scaled = (product + c + one) >> [0, 7, 15][(mode >> 19 & 3).min(2) as usize];
    // The result has 64 bits.
    let result = if signed { i128::from(scaled as i64) } else { i128::from(scaled as u64) };
    if flag(16) { clamped(result, 32, signed) } else { result }
}
