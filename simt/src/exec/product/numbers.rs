//! Factors of products as numbers: what a fragment's registers hold, and the rows and columns that are multiplied.

use super::super::half::f16_to_f32;
use super::super::lanes::row_of;
use super::super::tensor::Kind;
use super::super::{Cx, LANES, Op};

pub(super) type Eight<T> = [T; 8];

/// Elements of a factor at most: 16 rows of 64.
const MOST: usize = 1024;
/// Elements of a row at most.
pub(super) const LONGEST: usize = 64;

/// A factor as numbers.
pub(super) struct Numbers {
    pub values: [f32; MOST],
    /// Those that sums are aligned by: a zero has that of the smallest normal number of f32.
    pub exponents: [i32; MOST],
    /// None of them is infinite or NaN.
    pub finite: bool,
    /// Of eight rows each.
    tiles: usize,
    /// Elements that a tile has of a row.
    along: usize,
}

/// An e4m3 number: by way of f16, whose exponents are off by 8.
#[inline(always)]
fn e4m3(bits: u32) -> f32 {
    let value = f16_to_f32(((bits & 0x80) << 8 | (bits & 0x7f) << 7) as u16) * 256.0;
    if bits & 0x7f == 0x7f { f32::NAN } else { value }
}

/// Takes words apart; `value` looks at the lowest bits of what it is given.
#[inline(always)]
fn spread<const PER: usize>(words: &[u32; LANES], to: &mut [f32], value: impl Fn(u32) -> f32) {
    for (word, to) in words.iter().zip(to.chunks_exact_mut(PER)) {
        for (e, to) in to.iter_mut().enumerate() {
            *to = value(word >> (32 / PER * e));
        }
    }
}

/// The numbers of a register.
#[inline(always)]
pub(super) fn widen(kind: Kind, words: &[u32; LANES], to: &mut [f32]) {
    match kind {
        Kind::F16 => spread::<2>(words, to, |w| f16_to_f32(w as u16)),
        Kind::BF16 => spread::<2>(words, to, |w| f32::from_bits(w << 16)),
        // tf32 takes the upper 19 bits of an f32.
        Kind::TF32 => spread::<1>(words, to, |w| f32::from_bits(w & 0xffff_e000)),
        Kind::E4M3 => spread::<4>(words, to, e4m3),
        Kind::E5M2 => spread::<4>(words, to, |w| f16_to_f32((w << 8) as u16)),
        Kind::S8 => spread::<4>(words, to, |w| f32::from(w as i8)),
        Kind::U8 => spread::<4>(words, to, |w| f32::from(w as u8)),
        Kind::S4 => spread::<8>(words, to, |w| f32::from((w << 4) as i8 >> 4)),
        Kind::U4 => spread::<8>(words, to, |w| f32::from(w as u8 & 15)),
        // No products of these come here.
        Kind::F32 | Kind::F64 | Kind::B1 | Kind::S32 => {}
    }
}

/// The exponent of a type's smallest normal number, which its smaller ones have too.
pub(super) fn least(kind: Kind) -> i32 {
    match kind {
        Kind::F16 | Kind::E5M2 => -14,
        Kind::E4M3 => -6,
        _ => -126,
    }
}

/// The exponent of a number that sums are aligned by, from that field of its bits.
#[inline(always)]
pub(super) fn exponent(value: f32, field: i32, least: i32) -> i32 {
    if value == 0.0 { -126 } else { (field - 127).max(least) }
}

impl Numbers {
    /// Reads the factor whose registers stand in the list from `first` on, of `rows` rows (or columns) of `k` elements.
    ///
    /// # Safety
    /// The contract of handlers; the list has the factor's registers there.
    #[inline(always)]
    pub unsafe fn read(cx: &Cx, op: &Op, first: usize, (rows, k, kind): (usize, usize, Kind)) -> Numbers {
        let per = kind.per_register();
        let (tiles, along, each) = (rows / 8, 4 * per, LANES * per);
        let (values, exponents) = ([0.0; MOST], [0; MOST]);
        let mut numbers = Numbers { values, exponents, finite: true, tiles, along };
        let count = (rows * k).min(MOST);
        for (r, to) in numbers.values[..count].chunks_exact_mut(each).enumerate() {
            // SAFETY: by the contract.
            let words = unsafe { row_of::<u32>(cx.src(cx.list(op, first + r))) };
            widen(kind, &words, to);
        }
        if !kind.is_int() {
            let least = least(kind);
            let mut highest = 0;
            for (value, exponent) in numbers.values[..count].iter().zip(&mut numbers.exponents) {
                let field = (value.to_bits() >> 23 & 0xff) as i32;
                highest = highest.max(field);
                *exponent = self::exponent(*value, field, least);
            }
            numbers.finite = highest < 255;
        }
        numbers
    }

    /// Elements of a row, tile by tile.
    #[inline(always)]
    pub fn row<T: Copy + Default>(&self, all: &[T; MOST], row: usize, k: usize) -> [T; LONGEST] {
        let mut elements = [T::default(); LONGEST];
        for (step, to) in elements[..k].chunks_exact_mut(self.along).enumerate() {
            let from = (row / 8 + self.tiles * step) * 8 + row % 8;
            to.copy_from_slice(&all[from * self.along..][..self.along]);
        }
        elements
    }

    /// Eight rows beside each other.
    #[inline(always)]
    pub fn columns<T: Copy + Default>(&self, all: &[T; MOST], tile: usize, k: usize) -> [Eight<T>; LONGEST] {
        let mut columns = [[T::default(); 8]; LONGEST];
        for i in 0..8 {
            let row = self.row(all, 8 * tile + i, k);
            columns[..k].iter_mut().zip(row).for_each(|(column, element)| column[i] = element);
        }
        columns
    }
}
