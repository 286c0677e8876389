//! Which bytes of an allocation are defined: one bit a byte, and a flag for the usual case that all are. Where undefined data has
//! been stored, four bytes have four more that say where it came from.
//!
//! Bits are 1 where a byte is defined, so that zero pages from the operating system are "nothing is defined yet" and memory
//! that nobody touches costs nothing. Words are changed with plain loads and stores of atomics: a checked launch is
//! the only one that changes them often, and a host copy that races with it races on the data as well.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Atomics that begin as zeros, in pages that cost nothing until they are touched.
struct Zeros<T> {
    first: NonNull<T>,
    len: usize,
    layout: Layout,
}

/// Integers that any thread may change and for which zero bytes are a value.
trait Atomic {}
impl Atomic for AtomicU32 {}
impl Atomic for AtomicU64 {}

// SAFETY: the elements are atomics that this value owns.
unsafe impl<T: Atomic> Send for Zeros<T> {}
// SAFETY: as for Send.
unsafe impl<T: Atomic> Sync for Zeros<T> {}

impl<T> Drop for Zeros<T> {
    fn drop(&mut self) {
        // SAFETY: `first` came from `alloc_zeroed` with this layout and is freed once, here.
        unsafe { dealloc(self.first.as_ptr().cast(), self.layout) }
    }
}

impl<T: Atomic> Zeros<T> {
    /// At least `len` of them; `None` if there is no room.
    fn new(len: u64) -> Option<Zeros<T>> {
        let len = usize::try_from(len.max(1)).ok()?;
        let layout = Layout::array::<T>(len).ok()?;
        // SAFETY: the layout is not empty; zeroed bytes are valid atomics.
        let first = NonNull::new(unsafe { alloc_zeroed(layout) })?.cast();
        Some(Zeros { first, len, layout })
    }

    #[inline(always)]
    fn at(&self, i: usize) -> &T {
        debug_assert!(i < self.len);
        // SAFETY: callers stay inside the allocation, for whose bytes there are elements; checked again in debug builds.
        unsafe { &*self.first.as_ptr().add(i) }
    }
}

/// Bytes that share one story.
const GRANULE: u64 = 4;

/// The bits of one allocation.
pub struct Shadow {
    words: Zeros<AtomicU64>,
    bytes: u64,
    /// Every byte is defined; the bits are out of date.
    full: AtomicBool,
    /// For each four bytes the number of the story of the undefined data that was stored there last; made when
    /// such data is stored for the first time. It means nothing where bytes are defined.
    stories: OnceLock<Option<Zeros<AtomicU32>>>,
    /// The story of a store to the allocation, whatever its value.
    writer: AtomicU32,
}

/// The `n` lowest bits, for `n` up to 64.
#[inline(always)]
pub fn low(n: u64) -> u64 {
    if n >= 64 { !0 } else { (1 << n) - 1 }
}

/// Calls `f` with each word that the `n` bits from `at` touch, and the bits of it that are meant.
#[inline(always)]
pub fn spans(at: u64, n: u64, mut f: impl FnMut(usize, u64) -> bool) -> bool {
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
    pub fn new(bytes: u64) -> Option<Shadow> {
        Some(Shadow {
            words: Zeros::new(bytes.div_ceil(64))?,
            bytes,
            full: AtomicBool::new(false),
            stories: OnceLock::new(),
            writer: AtomicU32::new(0),
        })
    }

    #[inline(always)]
    fn word(&self, i: usize) -> &AtomicU64 {
        self.words.at(i)
    }

    #[inline(always)]
    pub fn full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// The story of the undefined data at `at`; 0: nothing has been stored there.
    #[inline]
    pub fn story(&self, at: u64) -> u32 {
        let told = self.stories.get().and_then(Option::as_ref).filter(|_| at < self.bytes);
        told.map_or(0, |s| s.at((at / GRANULE) as usize).load(Relaxed))
    }

    /// Undefined data with this story has been stored to some of the `n` bytes from `at`. Without room for stories, none is told.
    fn tell(&self, at: u64, n: u64, story: u32) {
        let stories = self.stories.get_or_init(|| Zeros::new(self.bytes.div_ceil(GRANULE)));
        if let Some(stories) = stories.as_ref().filter(|_| n > 0) {
            let granules = at / GRANULE..=(at + n - 1) / GRANULE;
            granules.for_each(|i| stories.at(i as usize).store(story, Relaxed));
        }
    }

    /// The story of a store to the allocation; 0: no kernel has been seen to store here.
    pub fn writer(&self) -> u32 {
        self.writer.load(Relaxed)
    }

    /// A store with this story goes here.
    #[inline]
    pub fn written(&self, story: u32) {
        self.writer.store(story, Relaxed);
    }

    /// Declares every byte defined.
    pub fn fill(&self) {
        self.full.store(true, Relaxed);
    }

    /// Whether the `n` bytes from `at`, which lie inside the allocation, are all defined.
    #[inline(always)]
    pub fn all(&self, at: u64, n: u64) -> bool {
        self.full() || spans(at, n, |i, mask| self.word(i).load(Relaxed) & mask == mask)
    }

    /// The bits of the `n` bytes from `at`, at most 64, lowest first.
    #[inline(always)]
    pub fn get(&self, at: u64, n: u64) -> u64 {
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
    pub fn define(&self, at: u64, n: u64) {
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

    /// Sets the bits of the `n` bytes from `at`, at most 64; undefined ones have this story.
    #[inline]
    pub fn put(&self, at: u64, n: u64, bits: u64, story: u32) {
        if bits & low(n) == low(n) {
            return self.define(at, n);
        }
        let missing = !bits & low(n);
        let first = u64::from(missing.trailing_zeros());
        self.tell(at + first, 64 - u64::from(missing.leading_zeros()) - first, story);
        if self.full() {
            for i in 0..self.words.len {
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

    /// Takes over the bits and stories of `n` bytes of another allocation, or of this one; the ranges may overlap. Bytes that
    /// have never been written get the story `blank`.
    pub fn copy(&self, at: u64, from: &Shadow, from_at: u64, n: u64, blank: u32) {
        if from.all(from_at, n) {
            return self.define(at, n);
        }
        let chunk = |done: u64| {
            let count = (n - done).min(GRANULE);
            let bits = from.get(from_at + done, count);
            if bits & low(count) == low(count) {
                return self.define(at + done, count);
            }
            let first = u64::from((!bits).trailing_zeros());
            let story = from.story(from_at + done + first);
            self.put(at + done, count, bits, if story == 0 { blank } else { story })
        };
        let back = std::ptr::eq(self, from) && at > from_at;
        let each = |n: u64, step: u64, f: &dyn Fn(u64)| {
            let steps = n.div_ceil(step);
            (0..steps).for_each(|i| f(step * if back { steps - 1 - i } else { i }));
        };
        each(n, 64, &|done| {
            let count = (n - done).min(64);
            match from.all(from_at + done, count) {
                true => self.define(at + done, count),
                false => each(count, GRANULE, &|more| chunk(done + more)),
            }
        });
    }

    /// The first undefined byte of the `n` from `at`, counted from `at`, and how many of them are.
    pub fn undefined(&self, at: u64, n: u64) -> Option<(u64, u64)> {
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
                    s.put(at, len, bits, 7);
                    (0..len).for_each(|i| want[(at + i) as usize] = bits >> i & 1 == 1);
                }
                _ => {
                    let to = next(n - len + 1);
                    s.copy(to, &s, at, len, 9);
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
        assert!(s.all(0, 100) && s.undefined(0, 100).is_none());
        s.put(10, 4, 0b1001, 5);
        assert_eq!(s.undefined(0, 100), Some((11, 2)));
    }

    #[test]
    fn stories_travel_with_undefined_bytes() {
        let (a, b) = (Shadow::new(64).unwrap(), Shadow::new(64).unwrap());
        a.fill();
        assert_eq!(a.story(12), 0);
        a.put(12, 4, 0, 5);
        a.put(20, 8, 0x0f, 6);
        let told: Vec<u32> = (0..64).step_by(4).map(|at| a.story(at)).collect();
        assert_eq!(told[..8], [0, 0, 0, 5, 0, 0, 6, 0]);
        b.copy(1, &a, 12, 16, 9);
        assert_eq!((b.story(1), b.story(4), b.story(13), b.undefined(0, 64)), (5, 5, 6, Some((0, 56))));
        // What nobody has written has the story of the copy that brings it.
        a.copy(32, &b, 40, 4, 9);
        assert_eq!((a.story(32), a.undefined(32, 4)), (9, Some((0, 4))));
        assert_eq!(a.story(u64::MAX), 0);
    }
}
