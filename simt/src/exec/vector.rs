//! Memory accesses with AVX2: rows of addresses compared, vectors taken apart into rows and put together.

use std::arch::x86_64::*;

/// Whether the 32 lanes of a row of `u64` step by `step`.
///
/// # Safety
/// The CPU has AVX2; `row` points to 32 words of 64 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn steps64(row: *const u8, step: u64) -> bool {
    // SAFETY: by the contract, all loads lie inside the row.
    unsafe {
        let first = row.cast::<u64>().read();
        let at = |i: u64| first.wrapping_add(step.wrapping_mul(i)) as i64;
        let mut want = _mm256_setr_epi64x(at(0), at(1), at(2), at(3));
        let by = _mm256_set1_epi64x(step.wrapping_mul(4) as i64);
        let mut differ = _mm256_setzero_si256();
        for k in 0..8 {
            let have = _mm256_loadu_si256(row.cast::<__m256i>().add(k));
            differ = _mm256_or_si256(differ, _mm256_xor_si256(have, want));
            want = _mm256_add_epi64(want, by);
        }
        _mm256_testz_si256(differ, differ) != 0
    }
}

/// Whether the 32 lanes of a row of `u32` step by `step`.
///
/// # Safety
/// The CPU has AVX2; `row` points to 32 words of 32 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn steps32(row: *const u8, step: u32) -> bool {
    // SAFETY: by the contract, all loads lie inside the row.
    unsafe {
        let first = _mm256_set1_epi32(row.cast::<i32>().read());
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let mut want = _mm256_add_epi32(first, _mm256_mullo_epi32(lanes, _mm256_set1_epi32(step as i32)));
        let by = _mm256_set1_epi32(step.wrapping_mul(8) as i32);
        let mut differ = _mm256_setzero_si256();
        for k in 0..4 {
            let have = _mm256_loadu_si256(row.cast::<__m256i>().add(k));
            differ = _mm256_or_si256(differ, _mm256_xor_si256(have, want));
            want = _mm256_add_epi32(want, by);
        }
        _mm256_testz_si256(differ, differ) != 0
    }
}

/// Takes 32 lanes' vectors of `N` (2 or 4) words apart into `N` rows, flipping the bits of `key`.
///
/// # Safety
/// The CPU has AVX2; `from` points to 32 · N words, each of `to` to a row.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn split<const N: usize>(from: *const u8, key: u32, to: &[*mut u8; N]) {
    let key = _mm256_set1_epi32(key as i32);
    // SAFETY: by the contract, all offsets lie inside the vectors and the rows.
    unsafe {
        let load = |i: usize| _mm256_xor_si256(_mm256_loadu_si256(from.cast::<__m256i>().add(i)), key);
        let store = |row: usize, k: usize, v| _mm256_storeu_si256(to[row].cast::<__m256i>().add(k), v);
        for k in 0..4 {
            if N == 2 {
                let (a, b) = (_mm256_castsi256_ps(load(2 * k)), _mm256_castsi256_ps(load(2 * k + 1)));
                let even = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(a, b));
                let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(a, b));
                store(0, k, _mm256_permute4x64_epi64::<0xd8>(even));
                store(1, k, _mm256_permute4x64_epi64::<0xd8>(odd));
                continue;
            }
            // Each register holds two lanes; bring lanes 0 and 4, 1 and 5, … together.
            let (a, b, c, d) = (load(4 * k), load(4 * k + 1), load(4 * k + 2), load(4 * k + 3));
            let (t0, t1) = (_mm256_permute2x128_si256::<0x20>(a, c), _mm256_permute2x128_si256::<0x31>(a, c));
            let (t2, t3) = (_mm256_permute2x128_si256::<0x20>(b, d), _mm256_permute2x128_si256::<0x31>(b, d));
            let (low0, high0) = (_mm256_unpacklo_epi32(t0, t1), _mm256_unpackhi_epi32(t0, t1));
            let (low1, high1) = (_mm256_unpacklo_epi32(t2, t3), _mm256_unpackhi_epi32(t2, t3));
            store(0, k, _mm256_unpacklo_epi64(low0, low1));
            store(1, k, _mm256_unpackhi_epi64(low0, low1));
            store(2, k, _mm256_unpacklo_epi64(high0, high1));
            store(3, k, _mm256_unpackhi_epi64(high0, high1));
        }
    }
}

/// Puts `N` (2 or 4) rows together to 32 lanes' vectors of `N` words.
///
/// # Safety
/// The CPU has AVX2; `to` points to 32 · N words, each of `from` to a row.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn join<const N: usize>(to: *mut u8, key: u32, from: &[*const u8; N]) {
    let key = _mm256_set1_epi32(key as i32);
    // SAFETY: by the contract, all offsets lie inside the vectors and the rows.
    unsafe {
        let load = |row: usize, k: usize| _mm256_xor_si256(_mm256_loadu_si256(from[row].cast::<__m256i>().add(k)), key);
        let store = |i: usize, v| _mm256_storeu_si256(to.cast::<__m256i>().add(i), v);
        for k in 0..4 {
            let (a, b) = (load(0, k), load(1, k));
            let (low, high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
            if N == 2 {
                store(2 * k, _mm256_permute2x128_si256::<0x20>(low, high));
                store(2 * k + 1, _mm256_permute2x128_si256::<0x31>(low, high));
                continue;
            }
            let (c, d) = (load(N - 2, k), load(N - 1, k));
            let (low2, high2) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
            // Lanes 0 and 4, 1 and 5, 2 and 6, 3 and 7.
            let (l0, l1) = (_mm256_unpacklo_epi64(low, low2), _mm256_unpackhi_epi64(low, low2));
            let (l2, l3) = (_mm256_unpacklo_epi64(high, high2), _mm256_unpackhi_epi64(high, high2));
            store(4 * k, _mm256_permute2x128_si256::<0x20>(l0, l1));
            store(4 * k + 1, _mm256_permute2x128_si256::<0x20>(l2, l3));
            store(4 * k + 2, _mm256_permute2x128_si256::<0x31>(l0, l1));
            store(4 * k + 3, _mm256_permute2x128_si256::<0x31>(l2, l3));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round<const N: usize>() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let memory: Vec<u32> = (0..32 * N as u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
        let mut rows = [[0u32; 32]; N];
        let to: [*mut u8; N] = std::array::from_fn(|j| rows[j].as_mut_ptr().cast());
        // SAFETY: AVX2 was detected; the arrays have the sizes asked for.
        unsafe { split::<N>(memory.as_ptr().cast(), 0x5a5a_5a5a, &to) };
        for lane in 0..32 {
            for j in 0..N {
                assert_eq!(rows[j][lane], memory[N * lane + j] ^ 0x5a5a_5a5a);
            }
        }
        let mut back = vec![0u32; 32 * N];
        let from: [*const u8; N] = std::array::from_fn(|j| rows[j].as_ptr().cast());
        // SAFETY: as above.
        unsafe { join::<N>(back.as_mut_ptr().cast(), 0x5a5a_5a5a, &from) };
        assert_eq!(back, memory);
    }

    #[test]
    fn steps_are_recognised() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let mut wide: [u64; 32] = std::array::from_fn(|i| (1 << 48) + 16 * i as u64);
        let mut narrow: [u32; 32] = std::array::from_fn(|i| 0xffff_fff0u32.wrapping_add(4 * i as u32));
        // SAFETY: AVX2 was detected; the rows have 32 lanes.
        unsafe {
            assert!(steps64(wide.as_ptr().cast(), 16) && !steps64(wide.as_ptr().cast(), 8));
            assert!(steps32(narrow.as_ptr().cast(), 4) && !steps32(narrow.as_ptr().cast(), 0));
            for i in 1..32 {
                (wide[i], narrow[i]) = (wide[i] ^ (1 << 60), narrow[i] ^ 1);
                assert!(!steps64(wide.as_ptr().cast(), 16) && !steps32(narrow.as_ptr().cast(), 4));
                (wide[i], narrow[i]) = (wide[i] ^ (1 << 60), narrow[i] ^ 1);
            }
        }
    }

    #[test]
    fn vectors_come_apart_and_together() {
        round::<2>();
        round::<4>();
    }
}
