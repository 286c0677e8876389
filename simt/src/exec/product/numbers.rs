//! Factors of products as numbers: what a fragment's registers hold, and the rows and columns that are multiplied.

use super::super::half::f16_to_f32;
use super::super::lanes::row_of;
use super::super::tensor::Kind;
use super::super::{Cx, LANES, Op};
use std::array::from_fn;

pub(super) type Eight<T> = [T; 8];

/// Eight rows (or columns) of a factor, of `K` elements each.
pub(super) type Rows<T, const K: usize> = [[T; K]; 8];

/// The elements of eight rows beside each other.
pub(super) type Across<T, const K: usize> = [Eight<T>; K];

/// The words of a row in a register.
type RowWords = [u32; 4];

/// What a row's words hold, by a number's lowest bits.
#[inline(always)]
fn apart<const N: usize>(words: RowWords, value: impl Fn(u32) -> f32) -> [f32; N] {
    let per = N / 4;
    from_fn(|i| value(words[i / per] >> (32 / per * (i % per))))
}

/// Eight rows from their registers; `row` takes the words of one apart.
#[inline(always)]
fn rows<const N: usize, const K: usize>(
    register: impl Fn(usize) -> [u32; LANES],
    row: impl Fn(RowWords) -> [f32; N],
) -> Rows<f32, K> {
    let mut rows = [[0.0; K]; 8];
    for step in 0..K / N {
        let words = register(step);
        for (r, to) in rows.iter_mut().enumerate() {
            to[N * step..][..N].copy_from_slice(&row([
                words[4 * r],
                words[4 * r + 1],
                words[4 * r + 2],
                words[4 * r + 3],
            ]));
        }
    }
    rows
}

/// The numbers of eight rows, of integers (`INT`) or of floating-point numbers, so that a product has no code of the others;
/// `register` gives their registers, of which each goes on where the one before it ends.
///
/// # Safety
/// With `FAST`, the CPU has AVX2 and F16C.
#[inline(always)]
pub(super) unsafe fn widen<const FAST: bool, const INT: bool, const K: usize>(
    kind: Kind,
    register: impl Fn(usize) -> [u32; LANES],
) -> Rows<f32, K> {
    #[cfg(target_arch = "x86_64")]
    if FAST {
        // SAFETY: the caller's promise.
        unsafe {
            match (kind, INT) {
                (Kind::F16, false) => return rows(register, |words| fast::f16(words)),
                (Kind::BF16, false) => return rows(register, |words| fast::bf16(words)),
                (Kind::E4M3, false) => return rows(register, |words| fast::e4m3(words)),
                (Kind::E5M2, false) => return rows(register, |words| fast::e5m2(words)),
                (Kind::S8, true) => return rows(register, |words| fast::bytes::<true>(words)),
                (Kind::U8, true) => return rows(register, |words| fast::bytes::<false>(words)),
                // The rarer ones by what follows, compiled for these features.
                _ => {}
            }
        }
    }
    match (kind, INT) {
        (Kind::F16, false) => rows(register, |words| apart::<8>(words, |w| f16_to_f32(w as u16))),
        (Kind::BF16, false) => rows(register, |words| apart::<8>(words, |w| f32::from_bits(w << 16))),
        // tf32 takes the upper 19 bits of an f32.
        (Kind::TF32, false) => rows(register, |words| words.map(|w| f32::from_bits(w & 0xffff_e000))),
        (Kind::E4M3, false) => rows(register, |words| apart::<16>(words, e4m3)),
        (Kind::E5M2, false) => rows(register, |words| apart::<16>(words, |w| f16_to_f32((w << 8) as u16))),
        (Kind::S8, true) => rows(register, |words| apart::<16>(words, |w| f32::from(w as i8))),
        (Kind::U8, true) => rows(register, |words| apart::<16>(words, |w| f32::from(w as u8))),
        (Kind::S4, true) => rows(register, |words| apart::<32>(words, |w| f32::from((w << 4) as i8 >> 4))),
        (Kind::U4, true) => rows(register, |words| apart::<32>(words, |w| f32::from(w as u8 & 15))),
        // No products of these come here: not of f32, f64, b1 and s32, and lowering pairs only types of one sort.
        (Kind::F16 | Kind::BF16 | Kind::TF32 | Kind::E4M3 | Kind::E5M2, true)
        | (Kind::S8 | Kind::U8 | Kind::S4 | Kind::U4, false)
        | (Kind::F32 | Kind::F64 | Kind::B1 | Kind::S32, _) => [[0.0; K]; 8],
    }
}

/// An e4m3 number: by way of f16, whose exponents are off by 8.
#[inline(always)]
fn e4m3(bits: u32) -> f32 {
    let value = f16_to_f32(((bits & 0x80) << 8 | (bits & 0x7f) << 7) as u16) * 256.0;
    if bits & 0x7f == 0x7f { f32::NAN } else { value }
}

/// The words of a row apart, by vectors.
#[cfg(target_arch = "x86_64")]
mod fast {
    use super::RowWords;
    use std::arch::x86_64::*;

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(words: RowWords) -> __m128i {
        // SAFETY: sixteen bytes.
        unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
    }

    /// Two vectors of eight, or one.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn store<const N: usize, const VECTORS: usize>(vectors: [__m256; VECTORS]) -> [f32; N] {
        const { assert!(N == 8 * VECTORS) };
        let mut to = [0.0; N];
        // SAFETY: as many elements of four bytes.
        unsafe { to.as_mut_ptr().cast::<[__m256; VECTORS]>().write_unaligned(vectors) };
        to
    }

    /// Sixteen halves.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn halves(halves: __m256i) -> [__m256; 2] {
        [_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(halves))]
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn f16(words: RowWords) -> [f32; 8] {
        store([_mm256_cvtph_ps(load(words))])
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn bf16(words: RowWords) -> [f32; 8] {
        store([_mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load(words))))])
    }

    /// By way of f16, as [`e4m3`](super::e4m3): what comes out as 480 is NaN.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn e4m3(words: RowWords) -> [f32; 16] {
        let bytes = _mm256_cvtepu8_epi16(load(words));
        let sign = _mm256_slli_epi16::<8>(_mm256_and_si256(bytes, _mm256_set1_epi16(0x80)));
        let rest = _mm256_slli_epi16::<7>(_mm256_and_si256(bytes, _mm256_set1_epi16(0x7f)));
        let [scale, most, magnitude] = [256.0, 480.0, f32::from_bits(!0 >> 1)].map(|x| _mm256_set1_ps(x));
        store(halves(_mm256_or_si256(sign, rest)).map(|half| {
            let value = _mm256_mul_ps(half, scale);
            // All bits where it is NaN, else none.
            let nan = _mm256_cmp_ps::<_CMP_EQ_OQ>(_mm256_and_ps(value, magnitude), most);
            _mm256_or_ps(value, nan)
        }))
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn e5m2(words: RowWords) -> [f32; 16] {
        store(halves(_mm256_slli_epi16::<8>(_mm256_cvtepu8_epi16(load(words)))))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn bytes<const SIGNED: bool>(words: RowWords) -> [f32; 16] {
        let bytes = load(words);
        store([bytes, _mm_srli_si128::<8>(bytes)].map(|bytes| {
            let words = if SIGNED { _mm256_cvtepi8_epi32(bytes) } else { _mm256_cvtepu8_epi32(bytes) };
            _mm256_cvtepi32_ps(words)
        }))
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

/// The exponents of numbers, those that sums are aligned by (a zero has that of the smallest normal number of f32), and whether none
/// of the numbers is infinite or NaN.
#[inline(always)]
pub(super) fn exponents<const A: usize, const B: usize>(kind: Kind, numbers: &[[f32; B]; A]) -> ([[i32; B]; A], bool) {
    let least = least(kind);
    let (mut exponents, mut highest) = ([[0; B]; A], 0);
    for (numbers, exponents) in numbers.iter().zip(&mut exponents) {
        for (number, exponent) in numbers.iter().zip(exponents) {
            let field = (number.to_bits() >> 23 & 0xff) as i32;
            highest = highest.max(field);
            *exponent = self::exponent(*number, field, least);
        }
    }
    (exponents, highest < 255)
}

/// A factor in the registers of an instruction.
#[derive(Clone, Copy)]
pub(super) struct Registers<'a> {
    pub cx: &'a Cx,
    pub op: &'a Op,
    /// The first of them in the list.
    pub first: usize,
    /// Of eight rows each.
    pub tiles: usize,
    pub kind: Kind,
}

impl Registers<'_> {
    /// Eight rows of `K` elements.
    ///
    /// # Safety
    /// The contract of handlers; the list has the registers of a factor there, of so many tiles and elements. With `FAST`, the CPU has
    /// AVX2 and F16C.
    #[inline(always)]
    pub unsafe fn rows<const FAST: bool, const INT: bool, const K: usize>(&self, tile: usize) -> Rows<f32, K> {
        // SAFETY: by the contract.
        unsafe {
            widen::<FAST, INT, K>(self.kind, |step| {
                row_of::<u32>(self.cx.src(self.cx.list(self.op, self.first + tile + self.tiles * step)))
            })
        }
    }

    /// Eight columns of `K` elements, beside each other.
    ///
    /// # Safety
    /// As for [`rows`](Registers::rows).
    #[inline(always)]
    pub unsafe fn columns<const FAST: bool, const INT: bool, const K: usize>(&self, tile: usize) -> Across<f32, K> {
        // SAFETY: the caller's promise.
        let rows = unsafe { self.rows::<FAST, INT, K>(tile) };
        let mut across = [[0.0; 8]; K];
        for (k, across) in across.iter_mut().enumerate() {
            *across = rows.map(|row| row[k]);
        }
        across
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Machines without AVX2 take these numbers by words.
    #[test]
    fn vectors_give_the_numbers_that_words_give() {
        fn agree<const INT: bool, const K: usize>(kind: Kind, of: impl Fn(usize) -> [u32; LANES]) {
            // SAFETY: without vectors of a CPU; and with them, where it has them.
            let (words, vectors) = unsafe { (widen::<false, INT, K>(kind, &of), widen::<true, INT, K>(kind, &of)) };
            for (word, vector) in words.as_flattened().iter().zip(vectors.as_flattened()) {
                assert!(
                    word.to_bits() == vector.to_bits() || word.is_nan() && vector.is_nan(),
                    "{kind:?}: {word} {vector}"
                );
            }
            // An element is where the figures of the ISA have it: registers go on along k.
            let of_lane = 4 * kind.per_register();
            for (r, row) in words.iter().enumerate() {
                for (k, number) in row.iter().enumerate() {
                    let word = of(k / of_lane)[4 * r + k % of_lane / kind.per_register()];
                    let code = word >> (kind.bits() as usize * (k % kind.per_register()));
                    // SAFETY: as above.
                    let one = unsafe { widen::<false, INT, K>(kind, |_| [code; LANES])[0][0] };
                    assert!(one.to_bits() == number.to_bits() || one.is_nan() && number.is_nan(), "{kind:?} {r} {k}");
                }
            }
        }
        if !super::super::super::lanes::simd() {
            return;
        }
        let mut state = 3u64;
        for _ in 0..20 {
            let data: [[u32; LANES]; 8] = from_fn(|_| {
                from_fn(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 32) as u32
                })
            });
            let of = |step: usize| data[step];
            for kind in [Kind::F16, Kind::BF16, Kind::E4M3, Kind::E5M2] {
                agree::<false, 16>(kind, of);
                agree::<false, 32>(kind, of);
            }
            agree::<false, 8>(Kind::TF32, of);
            for kind in [Kind::S8, Kind::U8, Kind::S4, Kind::U4] {
                agree::<true, 32>(kind, of);
                agree::<true, 64>(kind, of);
            }
        }
    }
}
