//! Loops over the elements of a row and eight columns. Left to itself, a compiler makes vectors of the elements, and transposes.

use super::numbers::Eight;
use std::array::from_fn;

/// The highest of `top` and of the sums.
///
/// # Safety
/// With `FAST`, the CPU has AVX2.
#[inline(always)]
pub unsafe fn highest<const FAST: bool>(top: Eight<i32>, a: &[i32], b: &[Eight<i32>]) -> Eight<i32> {
    #[cfg(target_arch = "x86_64")]
    if FAST {
        // SAFETY: by the contract.
        return unsafe { avx2::highest(top, a, b) };
    }
    a.iter().zip(b).fold(top, |top, (a, b)| from_fn(|i| top[i].max(a + b[i])))
}

/// `own` and the scaled products, each cut off towards zero.
///
/// # Safety
/// As for [`highest`]; scaled products are finite, and sums fit.
#[inline(always)]
pub unsafe fn cut<const FAST: bool>(own: Eight<i32>, a: &[f32], b: &[Eight<f32>], scale: Eight<f32>) -> Eight<i32> {
    #[cfg(target_arch = "x86_64")]
    if FAST {
        // SAFETY: by the contract.
        return unsafe { avx2::cut(own, a, b, scale) };
    }
    // SAFETY: by the contract.
    let one = |a: f32, b: f32, scale: f32| unsafe { (a * b * scale).to_int_unchecked::<i32>() };
    a.iter().zip(b).fold(own, |own, (a, b)| from_fn(|i| own[i].wrapping_add(one(*a, b[i], scale[i]))))
}

/// Sums of products.
///
/// # Safety
/// As for [`highest`].
#[inline(always)]
pub unsafe fn dot<const FAST: bool>(a: &[f32], b: &[Eight<f32>]) -> Eight<f32> {
    #[cfg(target_arch = "x86_64")]
    if FAST {
        // SAFETY: by the contract.
        return unsafe { avx2::dot(a, b) };
    }
    a.iter().zip(b).fold([0.0; 8], |sum, (a, b)| from_fn(|i| sum[i] + a * b[i]))
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::Eight;
    use std::arch::x86_64::*;

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load<T: Copy>(values: &Eight<T>) -> __m256i {
        const { assert!(size_of::<T>() == 4) };
        // SAFETY: eight elements of four bytes.
        unsafe { _mm256_loadu_si256(std::ptr::from_ref(values).cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn floats(values: &Eight<f32>) -> __m256 {
        _mm256_castsi256_ps(load(values))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(values: __m256i) -> Eight<u32> {
        let mut to = [0; 8];
        // SAFETY: eight elements of four bytes.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), values) };
        to
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn highest(top: Eight<i32>, a: &[i32], b: &[Eight<i32>]) -> Eight<i32> {
        let mut highest = load(&top);
        for (a, b) in a.iter().zip(b) {
            highest = _mm256_max_epi32(highest, _mm256_add_epi32(_mm256_set1_epi32(*a), load(b)));
        }
        store(highest).map(|top| top as i32)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn cut(own: Eight<i32>, a: &[f32], b: &[Eight<f32>], scale: Eight<f32>) -> Eight<i32> {
        let (mut sum, scale) = (load(&own), floats(&scale));
        for (a, b) in a.iter().zip(b) {
            let product = _mm256_mul_ps(_mm256_set1_ps(*a), floats(b));
            sum = _mm256_add_epi32(sum, _mm256_cvttps_epi32(_mm256_mul_ps(product, scale)));
        }
        store(sum).map(|sum| sum as i32)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn dot(a: &[f32], b: &[Eight<f32>]) -> Eight<f32> {
        let mut sum = _mm256_setzero_ps();
        for (a, b) in a.iter().zip(b) {
            sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_set1_ps(*a), floats(b)));
        }
        store(_mm256_castps_si256(sum)).map(f32::from_bits)
    }
}
