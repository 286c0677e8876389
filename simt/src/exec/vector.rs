//! Memory accesses with AVX2: rows of addresses compared, vectors taken apart into rows and put together.

use std::arch::x86_64::*;

use super::lanes::wide;

/// Whether the 32 lanes of a row of `u64` step by `step`.
///
/// # Safety
/// The CPU has AVX2; `row` points to 32 words of 64 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub unsafe fn steps64(row: *const u8, step: u64) -> bool {
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
pub unsafe fn steps32(row: *const u8, step: u32) -> bool {
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

/// Asks for bytes that may be needed soon, wherever they are.
#[inline(always)]
pub fn prefetch(from: *const u8, bytes: u64) {
    for line in (0..bytes).step_by(64) {
        // SAFETY: a hint; it does nothing where there is no memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(line as usize).cast()) }
    }
}

/// What [`survey`] finds.
pub struct Survey {
    /// All lanes' bytes lie inside the region, aligned.
    pub inside: bool,
    /// No address is lower than that of the lane before.
    pub rises: bool,
    /// How often the sector of 32 bytes is another one than that of the lane before.
    pub changes: u32,
    /// Groups of four lanes access 4 bytes each, side by side.
    pub quads: bool,
}

/// Looks at 32 lanes' addresses of `bytes` bytes (a power of two) in a region that begins at `base` and whose last place
/// for an access is `last` bytes behind that; writes them to `to`, the last one twice. The row is one of `u64`, or of
/// `u32` unless `WIDE`.
///
/// # Safety
/// The CPU has AVX2; `row` points to 32 such words.
#[inline]
pub unsafe fn survey<const WIDE: bool>(
    row: *const u8,
    offset: u64,
    bytes: u64,
    range: (u64, u64),
    to: &mut [u64; 33],
) -> Survey {
    // SAFETY: the contract; the wider one runs where the CPU has its instructions.
    unsafe {
        match wide() {
            true => survey_of_eights::<WIDE>(row, offset, bytes, range, to),
            false => survey_of_fours::<WIDE>(row, offset, bytes, range, to),
        }
    }
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,popcnt")]
unsafe fn survey_of_eights<const WIDE: bool>(
    row: *const u8,
    offset: u64,
    bytes: u64,
    (base, last): (u64, u64),
    to: &mut [u64; 33],
) -> Survey {
    // SAFETY: by the contract of `survey`, all loads lie inside the row; `to` has room for 33.
    unsafe {
        let all = |v: u64| _mm512_set1_epi64(v as i64);
        let (offset, base, last, odd) = (all(offset), all(base), all(last), all(bytes - 1));
        let steps = _mm512_setr_epi64(0, 4, 8, 12, 0, 4, 8, 12);
        let mut addresses = [_mm512_setzero_si512(); 4];
        let (mut outside, mut unaligned, mut apart) = (0, 0, 0);
        for (k, address) in addresses.iter_mut().enumerate() {
            let register = if WIDE {
                _mm512_loadu_si512(row.cast::<__m512i>().add(k))
            } else {
                _mm512_cvtepu32_epi64(_mm256_loadu_si256(row.cast::<__m256i>().add(k)))
            };
            *address = _mm512_add_epi64(register, offset);
            _mm512_storeu_si512(to.as_mut_ptr().cast::<__m512i>().add(k), *address);
            outside |= _mm512_cmpgt_epu64_mask(_mm512_sub_epi64(*address, base), last);
            unaligned |= _mm512_test_epi64_mask(*address, odd);
            let want = _mm512_add_epi64(_mm512_permutex_epi64::<0>(*address), steps);
            apart |= _mm512_cmpneq_epi64_mask(*address, want);
        }
        to[32] = to[31];
        let (mut falls, mut same) = (0, 0);
        // Behind the last lane stands its own address.
        let mut behind = all(to[31]);
        for one in addresses.into_iter().rev() {
            let next = _mm512_alignr_epi64::<1>(behind, one);
            falls |= _mm512_movepi64_mask(_mm512_sub_epi64(next, one));
            same += _mm512_testn_epi64_mask(_mm512_xor_si512(next, one), all(!31)).count_ones();
            behind = one;
        }
        Survey {
            inside: outside == 0 && unaligned == 0,
            rises: falls == 0,
            changes: 32 - same,
            quads: bytes == 4 && apart == 0,
        }
    }
}

#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn survey_of_fours<const WIDE: bool>(
    row: *const u8,
    offset: u64,
    bytes: u64,
    (base, last): (u64, u64),
    to: &mut [u64; 33],
) -> Survey {
    // SAFETY: by the contract, all loads lie inside the row; `to` has room for 33.
    unsafe {
        let all = |v: u64| _mm256_set1_epi64x(v as i64);
        let (offset, base, last, odd) = (all(offset), all(base), all(last), all(bytes - 1));
        let steps = _mm256_setr_epi64x(0, 4, 8, 12);
        let zero = _mm256_setzero_si256();
        let (mut outside, mut unaligned, mut apart) = (zero, zero, zero);
        let out = to.as_mut_ptr().cast::<__m256i>();
        for k in 0..8 {
            let register = if WIDE {
                _mm256_loadu_si256(row.cast::<__m256i>().add(k))
            } else {
                _mm256_cvtepu32_epi64(_mm_loadu_si128(row.cast::<__m128i>().add(k)))
            };
            let address = _mm256_add_epi64(register, offset);
            _mm256_storeu_si256(out.add(k), address);
            let at = _mm256_sub_epi64(address, base);
            // Regions are smaller than 2^63: what is beyond in unsigned numbers is larger or negative.
            outside = _mm256_or_si256(outside, _mm256_or_si256(at, _mm256_cmpgt_epi64(at, last)));
            unaligned = _mm256_or_si256(unaligned, _mm256_and_si256(address, odd));
            let want = _mm256_add_epi64(_mm256_permute4x64_epi64::<0>(address), steps);
            apart = _mm256_or_si256(apart, _mm256_xor_si256(address, want));
        }
        to[32] = to[31];
        let (mut falls, mut same) = (zero, zero);
        for k in 0..8 {
            let one = _mm256_loadu_si256(to.as_ptr().add(4 * k).cast());
            let next = _mm256_loadu_si256(to.as_ptr().add(4 * k + 1).cast());
            falls = _mm256_or_si256(falls, _mm256_sub_epi64(next, one));
            let sector = _mm256_srli_epi64::<5>(_mm256_xor_si256(next, one));
            same = _mm256_sub_epi64(same, _mm256_cmpeq_epi64(sector, zero));
        }
        let negative = |v| _mm256_movemask_pd(_mm256_castsi256_pd(v)) != 0;
        Survey {
            inside: !negative(outside) && _mm256_testz_si256(unaligned, unaligned) != 0,
            rises: !negative(falls),
            changes: 32 - sum(same) as u32,
            quads: bytes == 4 && _mm256_testz_si256(apart, apart) != 0,
        }
    }
}

/// Writes 32 lanes' addresses of `bytes` bytes (a power of two) to `to`; gives the lanes that do not begin where the one before
/// ends, lane 0 among them, if none begins before that and all are aligned.
///
/// # Safety
/// The CPU has AVX2; `row` points to 32 words of 64 bits.
#[inline(never)]
#[target_feature(enable = "avx2")]
pub unsafe fn rises(row: *const u8, offset: u64, bytes: u64, to: &mut [u64; 33]) -> Option<u32> {
    // SAFETY: by the contract, all loads lie inside the row; `to` has room for 33.
    unsafe {
        let all = |v: u64| _mm256_set1_epi64x(v as i64);
        let (offset, step, odd) = (all(offset), all(bytes), all(bytes - 1));
        let mut unaligned = _mm256_setzero_si256();
        let out = to.as_mut_ptr().cast::<__m256i>();
        for k in 0..8 {
            let address = _mm256_add_epi64(_mm256_loadu_si256(row.cast::<__m256i>().add(k)), offset);
            _mm256_storeu_si256(out.add(k), address);
            unaligned = _mm256_or_si256(unaligned, _mm256_and_si256(address, odd));
        }
        to[32] = to[31].wrapping_add(bytes);
        let (mut early, mut follow) = (_mm256_setzero_si256(), 0u64);
        for k in 0..8 {
            let one = _mm256_loadu_si256(to.as_ptr().add(4 * k).cast());
            let next = _mm256_loadu_si256(to.as_ptr().add(4 * k + 1).cast());
            let far = _mm256_sub_epi64(next, one);
            early = _mm256_or_si256(early, _mm256_cmpgt_epi64(step, far));
            let equal = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(far, step)));
            follow |= (equal as u64) << (4 * k + 1);
        }
        let fits = _mm256_testz_si256(early, early) & _mm256_testz_si256(unaligned, unaligned) != 0;
        fits.then_some(!(follow as u32))
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn sum(v: __m256i) -> u64 {
    let halves = _mm_add_epi64(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
    (_mm_cvtsi128_si64(halves) as u64).wrapping_add(_mm_extract_epi64::<1>(halves) as u64)
}

/// Whether lanes that are served together (32, 16, 8 or 4 of them, with 4 to 32 bytes each) use every bank once.
///
/// # Safety
/// The CPU has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
pub unsafe fn permutes(at: &[u64; 33], bytes: u64) -> bool {
    if !(4..=32).contains(&bytes) {
        return false;
    }
    let places = 128 / bytes;
    let (shift, mask) = (_mm_cvtsi64_si128(bytes.trailing_zeros().into()), _mm256_set1_epi64x(places as i64 - 1));
    let one = _mm256_set1_epi64x(1);
    let mut holds = true;
    for group in at[..32].chunks_exact(places as usize) {
        let mut used = _mm256_setzero_si256();
        for four in group.chunks_exact(4) {
            // SAFETY: the chunk has four words.
            let four = unsafe { _mm256_loadu_si256(four.as_ptr().cast()) };
            let place = _mm256_and_si256(_mm256_srl_epi64(four, shift), mask);
            used = _mm256_add_epi64(used, _mm256_sllv_epi64(one, place));
        }
        // So many powers of two have this sum only if each is there once.
        holds &= sum(used) == u64::MAX >> (64 - places);
    }
    holds
}

/// Takes 32 lanes' vectors of `N` (2 or 4) words apart into `N` rows, flipping the bits of `key`.
///
/// # Safety
/// The CPU has AVX2; `from` points to 32 · N words, each of `to` to a row.
#[inline]
#[target_feature(enable = "avx2")]
pub unsafe fn split<const N: usize>(from: *const u8, key: u32, to: &[*mut u8; N]) {
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
            let rows = transpose([t0, t1, t2, t3]);
            rows.into_iter().enumerate().for_each(|(j, v)| store(j, k, v));
        }
    }
}

/// From the vectors of lanes 0 and 4, 1 and 5, 2 and 6, 3 and 7, the four words of all eight.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose([t0, t1, t2, t3]: [__m256i; 4]) -> [__m256i; 4] {
    let (low0, high0) = (_mm256_unpacklo_epi32(t0, t1), _mm256_unpackhi_epi32(t0, t1));
    let (low1, high1) = (_mm256_unpacklo_epi32(t2, t3), _mm256_unpackhi_epi32(t2, t3));
    [
        _mm256_unpacklo_epi64(low0, low1),
        _mm256_unpackhi_epi64(low0, low1),
        _mm256_unpacklo_epi64(high0, high1),
        _mm256_unpackhi_epi64(high0, high1),
    ]
}

/// Takes 32 lanes' vectors of four words, which lie anywhere, apart into four rows, flipping the bits of `key`.
///
/// # Safety
/// The CPU has AVX2; `from` gives where 16 bytes of each lane lie, each of `to` points to a row.
#[inline]
#[target_feature(enable = "avx2")]
pub unsafe fn gather(from: impl Fn(usize) -> *const u8, key: u32, to: &[*mut u8; 4]) {
    let key = _mm256_set1_epi32(key as i32);
    // SAFETY: by the contract.
    unsafe {
        let one = |lane: usize| _mm_loadu_si128(from(lane).cast::<__m128i>());
        let two = |lane: usize| _mm256_xor_si256(_mm256_set_m128i(one(lane + 4), one(lane)), key);
        for k in 0..4 {
            let rows = transpose([two(8 * k), two(8 * k + 1), two(8 * k + 2), two(8 * k + 3)]);
            rows.into_iter().zip(to).for_each(|(v, to)| _mm256_storeu_si256(to.cast::<__m256i>().add(k), v));
        }
    }
}

/// Puts `N` (2 or 4) rows together to 32 lanes' vectors of `N` words.
///
/// # Safety
/// The CPU has AVX2; `to` points to 32 · N words, each of `from` to a row.
#[inline]
#[target_feature(enable = "avx2")]
pub unsafe fn join<const N: usize>(to: *mut u8, key: u32, from: &[*const u8; N]) {
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
    fn surveys_agree_with_the_lanes() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let base = 1u64 << 48;
        let quads = |i: u64| base + i / 4 * 512 + i % 4 * 4;
        type Case<'a> = (&'a dyn Fn(u64) -> u64, u64, [bool; 3]);
        let cases: [Case<'_>; 9] = [
            (&quads, 4, [true, true, true]),
            (&|i| quads(i) + 4092 - 3596, 4, [true, true, true]),
            (&|i| quads(i) + 4096 - 3596, 4, [false, true, true]),
            (&|i| quads(i) - 4, 4, [false, true, true]),
            (&|i| quads(i) ^ (u64::from(i == 31) << 60), 4, [false, true, false]),
            (&|i| quads(i) + u64::from(i == 17), 4, [false, true, false]),
            (&|i| base + (i ^ 1) * 4, 4, [true, false, false]),
            (&|i| base + i * 128 + (i % 8) * 16, 16, [true, true, false]),
            (&|_| base + 64, 8, [true, true, false]),
        ];
        type Surveyor = unsafe fn(*const u8, u64, u64, (u64, u64), &mut [u64; 33]) -> Survey;
        let mut all: Vec<[Surveyor; 2]> = vec![[survey_of_fours::<true>, survey_of_fours::<false>]];
        if wide() {
            all.push([survey_of_eights::<true>, survey_of_eights::<false>]);
        }
        let each = all.iter().flat_map(|both| cases.iter().enumerate().map(move |case| (both, case)));
        for ([survey, survey_short], (n, (address, bytes, [inside, rises, quads]))) in each {
            let (bytes, inside, rises, quads) = (*bytes, *inside, *rises, *quads);
            let row: [u64; 32] = std::array::from_fn(|i| address(i as u64).wrapping_sub(64));
            let mut to = [0; 33];
            // SAFETY: AVX2 was detected; the row has 32 words.
            let found = unsafe { survey(row.as_ptr().cast(), 64, bytes, (base, 4096 - bytes), &mut to) };
            assert_eq!((found.inside, found.rises, found.quads), (inside, rises, quads), "case {n}");
            let want: [u64; 33] = std::array::from_fn(|i| address(i.min(31) as u64));
            assert_eq!(to, want);
            let changes = want.windows(2).filter(|w| w[0] / 32 != w[1] / 32).count();
            assert_eq!(found.changes as usize, changes, "case {n}");
            let narrow: [u32; 32] = std::array::from_fn(|i| address(i as u64) as u32);
            // SAFETY: as above.
            let short = unsafe { survey_short(narrow.as_ptr().cast(), 0, bytes, (0, 4096 - bytes), &mut to) };
            if inside {
                assert_eq!((short.inside, short.rises, short.changes), (true, rises, found.changes), "case {n}");
            }
        }
    }

    #[test]
    fn permutations_of_the_banks_are_recognised() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        // SAFETY: AVX2 was detected.
        let holds = |f: &dyn Fn(u64) -> u64, bytes| unsafe { permutes(&std::array::from_fn(|i| f(i as u64)), bytes) };
        for bytes in [4, 8, 16, 32] {
            assert!(holds(&|i| bytes * i, bytes) && holds(&|i| bytes * (i ^ 3) + 128 * i, bytes));
            assert!(!holds(&|i| bytes * (i - i % 2), bytes) && !holds(&|_| 0, bytes) && !holds(&|i| 128 * i, bytes));
        }
        assert!(holds(&|i| 128 * i + 16 * (5 ^ (i & 7)), 16) && !holds(&|i| 128 * i + 16 * (5 ^ (i & 3)), 16));
        assert!(!holds(&|i| 2 * i, 2));
    }

    #[test]
    fn scattered_vectors_come_apart() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let memory: Vec<u32> = (0..256).map(|i: u32| i.wrapping_mul(0x9e37_79b9)).collect();
        let place = |lane: usize| 4 * (lane * 29 % 64);
        let mut rows = [[0u32; 32]; 4];
        let to: [*mut u8; 4] = std::array::from_fn(|j| rows[j].as_mut_ptr().cast());
        // SAFETY: AVX2 was detected; places lie inside the memory, and the rows have 32 lanes.
        unsafe { gather(|lane| memory.as_ptr().add(place(lane)).cast(), 0x5a5a_5a5a, &to) };
        for lane in 0..32 {
            for j in 0..4 {
                assert_eq!(rows[j][lane], memory[place(lane) + j] ^ 0x5a5a_5a5a);
            }
        }
    }

    #[test]
    fn vectors_come_apart_and_together() {
        round::<2>();
        round::<4>();
    }
}
