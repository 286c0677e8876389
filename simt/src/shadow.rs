//! Which bytes of an allocation are defined: one bit a byte, and a flag for the usual case that all are.
//!
//! Bits are 1 where a byte is defined, so that zero pages from the operating system are "nothing is defined yet" and memory
//! that nobody touches costs nothing. Words are changed with plain loads and stores of atomics: a checked launch is
//! the only one that changes them often, and a host copy that races with it races on the data as well.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The bits of one allocation.
pub(crate) struct Shadow {
    words: NonNull<AtomicU64>,
    len: usize,
    layout: Layout,
    /// Every byte is defined; the bits are out of date.
    full: AtomicBool,
    /// Undefined bytes have been stored: a byte that is not defined may have been written all the same.
    stored: AtomicBool,
}

// SAFETY: the words are atomics that this value owns.
unsafe impl Send for Shadow {}
// SAFETY: as for Send.
unsafe impl Sync for Shadow {}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: `words` came from `alloc_zeroed` with this layout and is freed once, here.
        unsafe { dealloc(self.words.as_ptr().cast(), self.layout) }
    }
}

/// The `n` lowest bits, for `n` up to 64.
#[inline(always)]
pub(crate) fn low(n: u64) -> u64 {
    if n >= 64 { !0 } else { (1 << n) - 1 }
}

/// Calls `f` with each word that the `n` bits from `at` touch, and the bits of it that are meant.
#[inline(always)]
pub(crate) fn spans(at: u64, n: u64, mut f: impl FnMut(usize, u64) -> bool) -> bool {
    let (mut at, end) = (at, at + n);
    while at < end {
        let bit = at & 63;
        let count = (64 - bit).min(end - at);
        if !f((at >> 6) as usize, low(count) << bit) {
            return false;
        }
        at += count;
    }
    true
}

impl Shadow {
    /// Bits for `bytes` bytes, none of which is defined; `None` if there is no room.
    pub(crate) fn new(bytes: u64) -> Option<Shadow> {
        let len = usize::try_from(bytes.div_ceil(64).max(1)).ok()?;
        let layout = Layout::array::<AtomicU64>(len).ok()?;
        // SAFETY: the layout has at least eight bytes; zeroed bytes are valid atomics.
        let words = NonNull::new(unsafe { alloc_zeroed(layout) })?.cast();
        Some(Shadow { words, len, layout, full: AtomicBool::new(false), stored: AtomicBool::new(false) })
    }

    #[inline(always)]
    fn word(&self, i: usize) -> &AtomicU64 {
        debug_assert!(i < self.len);
        // SAFETY: callers stay inside the allocation, whose bits all lie in the words; checked again in debug builds.
        unsafe { &*self.words.as_ptr().add(i) }
    }

    #[inline(always)]
    pub(crate) fn full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// Whether undefined bytes have been stored here.
    pub(crate) fn stored(&self) -> bool {
        self.stored.load(Relaxed)
    }

    /// Declares every byte defined.
    pub(crate) fn fill(&self) {
        self.full.store(true, Relaxed);
    }

    /// Whether the `n` bytes from `at`, which lie inside the allocation, are all defined.
    #[inline(always)]
    pub(crate) fn all(&self, at: u64, n: u64) -> bool {
        self.full() || spans(at, n, |i, mask| self.word(i).load(Relaxed) & mask == mask)
    }

    /// The bits of the `n` bytes from `at`, at most 64, lowest first.
    #[inline(always)]
    pub(crate) fn get(&self, at: u64, n: u64) -> u64 {
        if self.full() {
            return low(n);
        }
        let (i, bit) = ((at >> 6) as usize, at & 63);
        let mut bits = self.word(i).load(Relaxed) >> bit;
        if bit + n > 64 {
            bits |= self.word(i + 1).load(Relaxed) << (64 - bit);
        }
        bits & low(n)
    }

    /// Declares the `n` bytes from `at` defined.
    #[inline(always)]
    pub(crate) fn define(&self, at: u64, n: u64) {
        if self.full() {
            return;
        }
        spans(at, n, |i, mask| {
            let old = self.word(i).load(Relaxed);
            if old & mask != mask {
                self.word(i).store(old | mask, Relaxed);
            }
            true
        });
    }

    /// Sets the bits of the `n` bytes from `at`, at most 64.
    pub(crate) fn put(&self, at: u64, n: u64, bits: u64) {
        if bits & low(n) == low(n) {
            return self.define(at, n);
        }
        self.stored.store(true, Relaxed);
        if self.full() {
            for i in 0..self.len {
                self.word(i).store(!0, Relaxed);
            }
            self.full.store(false, Relaxed);
        }
        let mut done = 0;
        spans(at, n, |i, mask| {
            let new = bits >> done << mask.trailing_zeros() & mask;
            self.word(i).store(self.word(i).load(Relaxed) & !mask | new, Relaxed);
            done += mask.count_ones();
            true
        });
    }

    /// Takes over the bits of `n` bytes of another allocation, or of this one; the ranges may overlap.
    pub(crate) fn copy(&self, at: u64, from: &Shadow, from_at: u64, n: u64) {
        if from.all(from_at, n) {
            return self.define(at, n);
        }
        let chunk = |done: u64| {
            let count = (n - done).min(64);
            let bits = from.get(from_at + done, count);
            if bits & low(count) == low(count) {
                self.define(at + done, count)
            } else {
                self.put(at + done, count, bits)
            }
        };
        let chunks = n.div_ceil(64);
        if std::ptr::eq(self, from) && at > from_at {
            (0..chunks).rev().for_each(|i| chunk(64 * i));
        } else {
            (0..chunks).for_each(|i| chunk(64 * i));
        }
    }

    /// The first undefined byte of the `n` from `at`, counted from `at`, and how many of them are.
    pub(crate) fn undefined(&self, at: u64, n: u64) -> Option<(u64, u64)> {
        if self.full() {
            return None;
        }
        let (mut first, mut count) = (None, 0);
        spans(at, n, |i, mask| {
            let missing = !self.word(i).load(Relaxed) & mask;
            if missing != 0 {
                first.get_or_insert(64 * i as u64 + u64::from(missing.trailing_zeros()) - at);
                count += u64::from(missing.count_ones());
            }
            true
        });
        first.map(|f| (f, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same on a list of booleans.
    fn model(s: &Shadow, n: u64) -> Vec<bool> {
        (0..n).map(|i| s.get(i, 1) == 1).collect()
    }

    #[test]
    fn bits_follow_a_list_of_booleans() {
        let n = 300;
        let s = Shadow::new(n).unwrap();
        let mut want = vec![false; n as usize];
        let mut seed = 1u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for _ in 0..2000 {
            let at = next(n);
            let len = 1 + next(n - at);
            match next(3) {
                0 if len < 100 => {
                    s.define(at, len);
                    want[at as usize..][..len as usize].fill(true);
                }
                1 => {
                    let (len, bits) = (len.min(64), next(1 << 31) | next(1 << 31) << 32);
                    s.put(at, len, bits);
                    (0..len).for_each(|i| want[(at + i) as usize] = bits >> i & 1 == 1);
                }
                _ => {
                    let to = next(n - len + 1);
                    s.copy(to, &s, at, len);
                    want.copy_within(at as usize..(at + len) as usize, to as usize);
                }
            }
            assert_eq!(model(&s, n), want);
            let range = &want[at as usize..][..len as usize];
            assert_eq!(s.all(at, len), range.iter().all(|&b| b));
            let missing = range.iter().filter(|&&b| !b).count() as u64;
            let first = range.iter().position(|&b| !b).map(|f| (f as u64, missing));
            assert_eq!(s.undefined(at, len), first);
        }
    }

    #[test]
    fn a_full_allocation_can_lose_bytes_again() {
        let s = Shadow::new(100).unwrap();
        s.fill();
        assert!(s.all(0, 100) && s.undefined(0, 100).is_none() && !s.stored());
        s.put(10, 4, 0b1001);
        assert_eq!(s.undefined(0, 100), Some((11, 2)));
        assert!(s.stored());
    }
}
