//! Which sectors of global memory a launch has touched, each once: what would pass between memory and the chip if every
//! cache were perfect.

use std::ops::Range;

use rustc_hash::FxHashMap;
use warpsmith_simt::machine::lanes::simd;

/// The sectors of global memory that a launch has touched.
#[derive(Clone, Debug)]
pub(crate) struct Touched {
    pages: FxHashMap<u64, u32>,
    bits: Vec<SectorPage>,
    /// Pages that were used lately, by the low bits of their number.
    recent: [(u64, u32); 16],
    /// The CPU has AVX2, and it may be used.
    pub fast: bool,
    /// Sectors that were loaded before the launch had stored to them.
    pub loaded: u64,
    /// Those of them that no cache had before the launch.
    pub first: u64,
    /// Sectors that were stored to.
    pub stored: u64,
    /// Ranges of sectors that caches have when the launch begins.
    cached: Vec<Range<u64>>,
}

/// 4096 sectors.
#[derive(Clone, Debug)]
struct SectorPage {
    loaded: [u64; 64],
    stored: [u64; 64],
}

impl Default for Touched {
    fn default() -> Touched {
        let recent = [(u64::MAX, 0); 16];
        let (pages, bits, cached) = Default::default();
        Touched { pages, bits, recent, fast: simd(), loaded: 0, first: 0, stored: 0, cached }
    }
}

impl Touched {
    /// None yet, by a launch that finds these ranges of addresses in caches, which are in order and apart.
    pub(crate) fn with_cached(cached: &[Range<u64>]) -> Touched {
        let cached = cached.iter().map(|r| r.start >> 5..r.end.div_ceil(32)).collect();
        Touched { cached, ..Touched::default() }
    }

    /// Those of the 64 sectors from `64 * word` on that `bits` names and caches have.
    fn cached(&self, word: u64, bits: u64) -> u64 {
        let (from, end) = (64 * word, 64 * word + 64);
        let behind = self.cached.partition_point(|r| r.end <= from);
        let within = |r: &Range<u64>| (!0 << (r.start.max(from) - from)) & (!0 >> (end - r.end.min(end)));
        self.cached[behind..].iter().take_while(|r| r.start < end).fold(0, |all, r| all | (bits & within(r)))
    }

    /// The page with this number.
    fn page(&mut self, number: u64) -> &mut SectorPage {
        let slot = &mut self.recent[(number & 15) as usize];
        if slot.0 != number {
            let bits = &mut self.bits;
            let at = *self.pages.entry(number).or_insert_with(|| {
                bits.push(SectorPage { loaded: [0; 64], stored: [0; 64] });
                bits.len() as u32 - 1
            });
            *slot = (number, at);
        }
        &mut self.bits[slot.1 as usize]
    }

    /// Marks those sectors of the 64 from `64 * word` on that `bits` names.
    pub(crate) fn mark_word(&mut self, word: u64, bits: u64, load: bool, store: bool) {
        if bits == 0 {
            return;
        }
        let page = self.page(word >> 6);
        let at = (word & 63) as usize;
        let new_load = if load { bits & !(page.loaded[at] | page.stored[at]) } else { 0 };
        page.loaded[at] |= new_load;
        let new_store = if store { bits & !page.stored[at] } else { 0 };
        page.stored[at] |= new_store;
        self.loaded += u64::from(new_load.count_ones());
        if new_load != 0 {
            self.first += u64::from((new_load & !self.cached(word, new_load)).count_ones());
        }
        self.stored += u64::from(new_store.count_ones());
    }

    /// How many sectors from `first` on and before `end` were touched.
    pub(crate) fn count(&self, first: u64, end: u64) -> u64 {
        let of_word = |page: &SectorPage, at: usize, word: u64| {
            let [from, past] = [first, end].map(|sector| sector.clamp(word, word + 64) - word);
            if from >= past {
                return 0;
            }
            let within = (!0 << from) & (!0 >> (64 - past));
            u64::from(((page.loaded[at] | page.stored[at]) & within).count_ones())
        };
        let of_page = |(number, at): (&u64, &u32)| {
            let Some(page) = self.bits.get(*at as usize) else { return 0 };
            (0..64).map(|word| of_word(page, word, (number << 12) + 64 * word as u64)).sum::<u64>()
        };
        self.pages.iter().map(of_page).sum()
    }

    pub(crate) fn mark(&mut self, sector: u64, load: bool, store: bool) {
        self.mark_word(sector >> 6, 1 << (sector & 63), load, store);
    }

    /// Marks the sectors from `first` to `last`; gives their number.
    pub(crate) fn mark_all(&mut self, first: u64, last: u64, store: bool) -> u64 {
        for word in first >> 6..=last >> 6 {
            let from = if word == first >> 6 { first & 63 } else { 0 };
            let to = if word == last >> 6 { last & 63 } else { 63 };
            self.mark_word(word, (!0 << from) & (!0 >> (63 - to)), !store, store);
        }
        last - first + 1
    }
}
