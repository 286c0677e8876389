//! State spaces: where an address points, how a warp's addresses relate, and what that costs.
//!
//! Generic addresses of shared, local and parameter memory lie in windows of 4 GiB, below the
//! range of global addresses and above what a user process can map.

use super::lanes::{Lane, lane_of};
use super::{Cx, LANES, Site};
use crate::fault::Place;
use crate::memory::lookup;

/// The place that a generic address points to.
#[inline(always)]
pub fn place_of(address: u64) -> Place {
    match address >> 32 {
        0x8000 => Place::Shared,
        0x9000 => Place::Local,
        0xA000 => Place::Param,
        _ => Place::Global,
    }
}

/// A type of address registers.
pub trait Addr: Lane {
    fn wide(self) -> u64;
    /// Whether all lanes step by `bytes`, and whether all are equal; all lanes are active.
    ///
    /// # Safety
    /// `row` is a row of this type; with `FAST`, the CPU has AVX2.
    unsafe fn relate<const FAST: bool>(row: *const u8, bytes: u64) -> (bool, bool);
}

macro_rules! addr {
    ($($t:ty, $steps:ident;)*) => {$(
        impl Addr for $t {
            #[inline(always)]
            fn wide(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            unsafe fn relate<const FAST: bool>(row: *const u8, bytes: u64) -> (bool, bool) {
                // SAFETY: by the contract, the row has 32 lanes, four chunks of eight.
                let (first, last) = unsafe { (row.cast::<$t>().read(), row.cast::<$t>().add(31).read()) };
                let span = last.wrapping_sub(first);
                // The ends say which of the two it can be.
                let step = if span == 0 {
                    0
                } else if span == (31 * bytes) as $t {
                    bytes as $t
                } else {
                    return (false, false);
                };
                #[cfg(target_arch = "x86_64")]
                if FAST {
                    // SAFETY: by the contract.
                    let holds = unsafe { super::vector::$steps(row, step) };
                    return (holds && span != 0, holds && span == 0);
                }
                let mut differ = [0 as $t; 8];
                for k in 0..4 {
                    // SAFETY: as above.
                    let chunk = unsafe { row.cast::<[$t; 8]>().add(k).read() };
                    for i in 0..8 {
                        let want = first.wrapping_add(((8 * k + i) as $t).wrapping_mul(step));
                        differ[i] |= chunk[i] ^ want;
                    }
                }
                let holds = differ.iter().fold(0, |x, y| x | y) == 0;
                (holds && span != 0, holds && span == 0)
            }
        }
    )*};
}

addr!(u32, steps32; u64, steps64;);

/// How the addresses of the active lanes relate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// All 32 lanes, each `bytes` after the one before; the first address.
    Linear(u64),
    /// One address for all.
    Same(u64),
    Mixed,
}

/// Classifies the active lanes' addresses.
///
/// # Safety
/// `row` is a row of `A`; `active` is not 0; with `FAST`, the CPU has AVX2.
#[inline(always)]
pub unsafe fn classify<A: Addr, const FAST: bool>(row: *const u8, active: u32, offset: u64, bytes: u64) -> Pattern {
    // SAFETY: by the contract.
    unsafe {
        if active == !0 {
            let (linear, same) = A::relate::<FAST>(row, bytes);
            if linear || same {
                let first = lane_of::<A>(row, 0).wide().wrapping_add(offset);
                return if linear { Pattern::Linear(first) } else { Pattern::Same(first) };
            }
            return Pattern::Mixed;
        }
        let first = lane_of::<A>(row, active.trailing_zeros() as usize).wide();
        let mut differ = 0;
        for lane in 0..LANES {
            let step = lane_of::<A>(row, lane).wide() ^ first;
            differ |= if active >> lane & 1 != 0 { step } else { 0 };
        }
        if differ == 0 { Pattern::Same(first.wrapping_add(offset)) } else { Pattern::Mixed }
    }
}

/// A space whose bytes lie in host memory in address order.
pub trait Space: 'static {
    type Address: Addr;
    const PLACE: Place;
    const SHARED: bool = matches!(Self::PLACE, Place::Shared);
    /// Host address of `bytes` bytes, and the key of their storage; `None` if they are not all inside, or are to be written
    /// and may not be. All accesses of a site either write or do not.
    ///
    /// # Safety
    /// `site` is a site of the running program.
    unsafe fn resolve<const WRITE: bool>(cx: &mut Cx, site: usize, address: u64, bytes: u64) -> Option<(*mut u8, u64)>;
    /// The bytes that lie together with the one at `address`.
    ///
    /// # Safety
    /// As for [`resolve`](Space::resolve).
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "vectors alone look at a whole region"))]
    unsafe fn region<const WRITE: bool>(cx: &mut Cx, site: usize, address: u64) -> Option<Site>;
}

/// Global memory.
pub struct Global;
/// Shared memory addressed by registers of type `A`.
pub struct Shared<A>(std::marker::PhantomData<A>);

impl Space for Global {
    type Address = u64;
    const PLACE: Place = Place::Global;

    #[inline(always)]
    unsafe fn resolve<const WRITE: bool>(cx: &mut Cx, site: usize, address: u64, bytes: u64) -> Option<(*mut u8, u64)> {
        // SAFETY: `site` is below the number of sites, by the contract.
        let cached = unsafe { *cx.sites.get_unchecked(site) };
        let at = address.wrapping_sub(cached.base);
        if at < cached.size && bytes <= cached.size - at {
            // SAFETY: `at` is inside the allocation, which the snapshot keeps alive.
            return Some((unsafe { cached.host.add(at as usize) }, cached.key));
        }
        find(cx, site, address, bytes, WRITE)
    }

    #[inline(always)]
    unsafe fn region<const WRITE: bool>(cx: &mut Cx, site: usize, address: u64) -> Option<Site> {
        // SAFETY: by the contract; what was resolved is cached.
        unsafe { Self::resolve::<WRITE>(cx, site, address, 1).map(|_| *cx.sites.get_unchecked(site)) }
    }
}

#[cold]
#[inline(never)]
fn find(cx: &mut Cx, site: usize, address: u64, bytes: u64, write: bool) -> Option<(*mut u8, u64)> {
    let entry = lookup(&cx.memory, address).filter(|e| !(write && e.read_only))?;
    let at = address - entry.base;
    let found = Site { base: entry.base, size: entry.size, host: entry.host(), key: entry.key };
    if let Some(slot) = cx.sites.get_mut(site) {
        *slot = found;
    }
    // SAFETY: `at` is inside the allocation, which the snapshot keeps alive.
    (bytes <= found.size - at).then(|| (unsafe { found.host.add(at as usize) }, found.key))
}

impl<A: Addr> Space for Shared<A> {
    type Address = A;
    const PLACE: Place = Place::Shared;

    #[inline(always)]
    unsafe fn resolve<const WRITE: bool>(cx: &mut Cx, _: usize, address: u64, bytes: u64) -> Option<(*mut u8, u64)> {
        let size = u64::from(cx.shared_bytes);
        // SAFETY: the offset is inside the block's shared memory.
        (address < size && bytes <= size - address).then(|| (unsafe { cx.shared.add(address as usize) }, 0))
    }

    #[inline(always)]
    unsafe fn region<const WRITE: bool>(cx: &mut Cx, _: usize, _: u64) -> Option<Site> {
        Some(Site { base: 0, size: cx.shared_bytes.into(), host: cx.shared, key: 0 })
    }
}

/// Counts one warp-wide access of `bytes` bytes a lane.
#[inline(always)]
pub fn count<S: Space>(cx: &mut Cx, store: bool, lanes: u32, bytes: u64, pattern: Pattern) {
    let total = u64::from(lanes) * bytes;
    let c = &mut cx.counters;
    if S::PLACE == Place::Shared {
        c.shared_requests += 1;
        *(if store { &mut c.shared_store_bytes } else { &mut c.shared_load_bytes }) += total;
        return;
    }
    let sectors = match pattern {
        Pattern::Linear(first) => ((first + total - 1) >> 5) - (first >> 5) + 1,
        Pattern::Same(first) => ((first + bytes - 1) >> 5) - (first >> 5) + 1,
        Pattern::Mixed => 0,
    };
    c.global_requests += 1;
    *(if store { &mut c.global_store_bytes } else { &mut c.global_load_bytes }) += total;
    *(if store { &mut c.global_store_sectors } else { &mut c.global_load_sectors }) += sectors;
}

/// Adds what depends on the single addresses of a mixed access.
pub fn count_mixed<S: Space>(cx: &mut Cx, store: bool, addresses: &[u64], bytes: u64) {
    if S::SHARED {
        count_banks(cx, addresses, bytes);
    } else {
        count_sectors(cx, store, sectors(addresses, bytes));
    }
}

pub fn count_banks(cx: &mut Cx, addresses: &[u64], bytes: u64) {
    cx.counters.shared_bank_conflicts += bank_conflicts(addresses, bytes);
}

#[inline(always)]
pub fn count_sectors(cx: &mut Cx, store: bool, sectors: u64) {
    let c = &mut cx.counters;
    *(if store { &mut c.global_store_sectors } else { &mut c.global_load_sectors }) += sectors;
}

/// Distinct 32-byte sectors. Accesses are aligned, so one of up to 32 bytes lies in one sector.
pub fn sectors(addresses: &[u64], bytes: u64) -> u64 {
    let Some(&first) = addresses.first() else { return 0 };
    // Neighbouring lanes mostly have neighbouring places, and runs of lanes one sector.
    let mut runs = [first >> 5; LANES + 1];
    let (mut count, mut rises) = (1, true);
    for &address in addresses.iter().take(LANES) {
        let (before, sector) = (runs[count - 1], address >> 5);
        runs[count] = sector;
        count += usize::from(sector != before);
        rises &= before <= sector;
    }
    let runs = &runs[..count];
    // Few are compared with each other: groups of four lanes, as fragments of matrices are read, give eight.
    let distinct = if rises {
        count
    } else if count <= 12 {
        runs.iter().enumerate().filter(|(i, sector)| !runs[..*i].contains(sector)).count()
    } else {
        distinct(runs)
    };
    distinct as u64 * bytes.div_ceil(32)
}

/// The number of different sectors.
fn distinct(sectors: &[u64]) -> usize {
    let low = sectors.iter().copied().min().unwrap_or(0);
    // Most warps stay within 8 KiB of their lowest address: a bitmap of sectors does.
    let mut near = [0u64; 4];
    let mut far = [0u64; LANES];
    let mut others = 0;
    for &sector in sectors {
        let sector = sector - low;
        match near.get_mut((sector >> 6) as usize) {
            Some(word) => *word |= 1 << (sector & 63),
            None if far[..others].contains(&sector) => {}
            None => {
                far[others] = sector;
                others += 1;
            }
        }
    }
    near.iter().map(|word| word.count_ones() as usize).sum::<usize>() + others
}

/// Passes over the banks beyond the ideal: lanes are served 32, 16 or 8 at a time, for 4, 8 or 16 bytes.
///
/// Accesses are aligned, so that many lanes' words of that size lie in as many sets of banks, each of one word or of its own set.
fn bank_conflicts(addresses: &[u64], bytes: u64) -> u64 {
    let word = bytes.next_power_of_two().clamp(4, 128);
    let sets = 128 / word;
    let of = |address: u64| (address / word, (address / word % sets) as usize % 32);
    let mut extra = 0;
    for lanes in addresses.chunks(sets as usize) {
        let (mut held, mut taken, mut clash) = ([0; 32], 0u32, false);
        for (word, set) in lanes.iter().map(|&address| of(address)) {
            clash |= taken >> set & 1 != 0 && held[set] != word;
            held[set] = word;
            taken |= 1 << set;
        }
        if clash {
            extra += passes(lanes, of) - 1;
        }
    }
    extra
}

/// The most different words that a set of banks has to give.
#[cold]
fn passes(lanes: &[u64], of: impl Fn(u64) -> (u64, usize)) -> u64 {
    const NONE: u8 = u8::MAX;
    // Of each set the lane that was the last to bring another word, and of each such lane the one before it.
    let (mut last, mut before) = ([NONE; 32], [NONE; LANES]);
    let (mut words, mut depth) = ([0; LANES], [0u8; 32]);
    for (lane, &address) in lanes.iter().take(LANES).enumerate() {
        let (word, set) = of(address);
        let mut earlier = last[set];
        while earlier != NONE && words[usize::from(earlier)] != word {
            earlier = before[usize::from(earlier)];
        }
        if earlier == NONE {
            (words[lane], before[lane], last[set]) = (word, last[set], lane as u8);
            depth[set] += 1;
        }
    }
    depth.into_iter().fold(1, u8::max).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_count_distinct_lines() {
        let stride = |s: u64| (0..32).map(|i| 0x1_0000 + i * s).collect::<Vec<_>>();
        assert_eq!(sectors(&stride(4), 4), 4);
        assert_eq!(sectors(&stride(16), 16), 16);
        assert_eq!(sectors(&stride(8), 4), 8);
        assert_eq!(sectors(&stride(32), 4), 32);
        assert_eq!(sectors(&stride(4096), 4), 32);
        assert_eq!(sectors(&[64, 64, 70, 95], 1), 1);
    }

    #[test]
    fn banks_conflict_by_different_words() {
        let stride = |s: u64| (0..32).map(|i| i * s).collect::<Vec<_>>();
        assert_eq!(bank_conflicts(&stride(4), 4), 0);
        assert_eq!(bank_conflicts(&stride(8), 4), 1);
        assert_eq!(bank_conflicts(&stride(128), 4), 31);
        assert_eq!(bank_conflicts(&stride(132), 4), 0);
        assert_eq!(bank_conflicts(&stride(0), 4), 0);
        assert_eq!(bank_conflicts(&stride(8), 8), 0);
        assert_eq!(bank_conflicts(&stride(16), 16), 0);
        assert_eq!(bank_conflicts(&stride(1), 1), 0);
        // Eight lanes at a time: quads of neighbouring rows of 128 bytes, in place and swizzled.
        let quads = |swizzle: u64| (0..32).map(|i| 128 * i + 16 * (3 ^ (i & swizzle))).collect::<Vec<u64>>();
        assert_eq!(bank_conflicts(&quads(0), 16), 4 * 7);
        assert_eq!(bank_conflicts(&quads(7), 16), 0);
        assert_eq!(bank_conflicts(&quads(3), 16), 4);
    }

    /// By the definition: as many passes as the bank with most different words has.
    #[test]
    fn banks_and_sectors_are_those_of_single_words() {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        for round in 0..20_000 {
            let bytes = 1u64 << (next() % 5);
            let (reach, step) = (1 << (3 + next() % 9), next() % 70);
            let count = 1 + next() % 32;
            let any = |i: u64, random: u64| if round % 2 == 0 { random % reach } else { step * i } * bytes;
            let addresses: Vec<u64> = (0..count).map(|i| any(i, next())).collect();
            let mut extra = 0;
            for lanes in addresses.chunks((128 / bytes.max(4)) as usize) {
                let mut banks = vec![std::collections::BTreeSet::new(); 32];
                for address in lanes {
                    for word in 0..bytes.div_ceil(4) {
                        let word = address / 4 + word;
                        banks[word as usize % 32].insert(word);
                    }
                }
                extra += banks.iter().map(|words| words.len() as u64).max().unwrap_or(1) - 1;
            }
            assert_eq!(bank_conflicts(&addresses, bytes), extra, "{bytes} bytes at {addresses:?}");
            let lines: std::collections::BTreeSet<u64> = addresses.iter().map(|address| address / 32).collect();
            assert_eq!(sectors(&addresses, bytes), lines.len() as u64, "{bytes} bytes at {addresses:?}");
        }
    }
}
