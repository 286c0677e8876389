//! The addresses of a request, and what they cost.

use warpsmith_simt::machine::LANES;

/// Passes of a whole warp whose lanes step by `bytes`, or use one address: one for each group of lanes.
pub(super) fn regular_passes(bytes: u64) -> Option<u64> {
    match bytes {
        0..=4 => Some(1),
        5..=8 => Some(2),
        9..=16 => Some(4),
        _ => None,
    }
}

/// The lanes of a request in one space, with their addresses, in the order of lanes.
pub(super) struct Lanes {
    pub count: usize,
    lane: [u8; LANES],
    address: [u64; LANES],
}

impl Lanes {
    pub(super) fn new() -> Lanes {
        Lanes { count: 0, lane: [0; LANES], address: [0; LANES] }
    }

    pub(super) fn push(&mut self, lane: usize, address: u64) {
        (self.lane[self.count], self.address[self.count]) = (lane as u8, address);
        self.count += 1;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.lane[..self.count].iter().zip(&self.address).map(|(&lane, &address)| (usize::from(lane), address))
    }

    /// Distinct sectors, each of which is given to `each`, and distinct bytes. Accesses are aligned to their size, so two
    /// of them are the same or apart.
    pub(super) fn sectors(&self, bytes: u64, mut each: impl FnMut(u64)) -> (u64, u64) {
        let mut sorted = self.address;
        let sorted = &mut sorted[..self.count];
        if !sorted.is_sorted() {
            sorted.sort_unstable();
        }
        let (mut sectors, mut used) = (0, 0);
        let (mut address_before, mut sector_before) = (None, None);
        for &address in sorted.iter() {
            if address_before == Some(address) {
                continue;
            }
            address_before = Some(address);
            used += bytes;
            for sector in address >> 5..=address.wrapping_add(bytes - 1) >> 5 {
                if sector_before.is_none_or(|before| sector > before) {
                    sector_before = Some(sector);
                    sectors += 1;
                    each(sector);
                }
            }
        }
        (sectors, used)
    }

    /// Passes over the banks, and groups of lanes that need at least one.
    pub(super) fn wavefronts(&self, bytes: u64) -> (u64, u64) {
        let group = match bytes {
            0..=4 => 32,
            5..=8 => 16,
            _ => 8,
        };
        let (mut passes, mut groups) = (0, 0);
        let mut at = 0;
        while at < self.count {
            let of = usize::from(self.lane[at]) / group;
            let end = (at..self.count).find(|&i| usize::from(self.lane[i]) / group != of).unwrap_or(self.count);
            // Lanes of more than 16 bytes take several turns of 16.
            for part in 0..bytes.div_ceil(16).max(1) {
                let piece = (bytes - 16 * part).min(16);
                groups += 1;
                passes += passes_of(&self.address[at..end], 16 * part, piece);
            }
            at = end;
        }
        (passes, groups)
    }
}

/// The most distinct words that one of the 32 banks has to give to lanes that access `bytes` at `offset` of their addresses.
fn passes_of(addresses: &[u64], offset: u64, bytes: u64) -> u64 {
    // A group asks for at most 32 words: 32 lanes of one, 16 of two, 8 of four.
    let mut words = [0u64; LANES];
    let mut n = 0;
    for &address in addresses {
        let first = address.wrapping_add(offset) >> 2;
        for word in first..=address.wrapping_add(offset + bytes - 1) >> 2 {
            if n < LANES {
                words[n] = word;
                n += 1;
            }
        }
    }
    let words = &mut words[..n];
    if words.windows(2).all(|w| w[1] == w[0] + 1) {
        return 1;
    }
    words.sort_unstable();
    let mut banks = [0u8; 32];
    let mut before = None;
    for &word in words.iter() {
        if before != Some(word) {
            banks[(word & 31) as usize] += 1;
            before = Some(word);
        }
    }
    u64::from(banks.into_iter().max().unwrap_or(1)).max(1)
}
#[cfg(test)]
mod tests {
    use super::super::super::touched::Touched;
    use super::*;
    use warpsmith_simt::machine::lanes::lanes_of;

    #[test]
    fn regular_warps_count_like_any_other() {
        for bytes in [1, 2, 4, 8, 16, 32] {
            for (start, step) in [(0, bytes), (bytes, bytes), (4096 * 32 - 64, bytes), (64, 0)] {
                let warp = lanes(!0, |l| start + l * step);
                let (mut one_by_one, mut at_once) = (Touched::default(), Touched::default());
                for store in [false, true, false] {
                    let (sectors, used) = warp.sectors(bytes, |s| one_by_one.mark(s, !store, store));
                    let first = 0x1_0000 + start;
                    let span = if step == 0 { bytes } else { 32 * bytes };
                    assert_eq!((at_once.mark_all(first >> 5, (first + span - 1) >> 5, store), span), (sectors, used));
                    assert_eq!((at_once.loaded, at_once.stored), (one_by_one.loaded, one_by_one.stored));
                }
                if let Some(passes) = regular_passes(bytes) {
                    assert_eq!((passes, passes), warp.wavefronts(bytes), "{bytes} bytes, step {step}");
                }
            }
        }
    }

    /// Lane `l` of `lanes` at `base + f(l)`.
    fn lanes(active: u32, f: impl Fn(u64) -> u64) -> Lanes {
        let mut all = Lanes::new();
        for lane in lanes_of(active) {
            all.push(lane, 0x1_0000 + f(lane as u64));
        }
        all
    }

    fn sectors(lanes: &Lanes, bytes: u64) -> (u64, u64) {
        lanes.sectors(bytes, |_| {})
    }

    /// By hand, from the definition of a sector: 32 lanes of b bytes that lie s bytes apart touch ceil(32 s / 32) sectors for
    /// s up to 32 (base aligned to a sector), and one each beyond.
    #[test]
    fn sectors_of_strided_and_shared_accesses() {
        for (bytes, stride, want, used) in [
            (4, 4, 4, 128),
            (8, 8, 8, 256),
            (16, 16, 16, 512),
            (4, 8, 8, 128),
            (4, 32, 32, 128),
            (4, 128, 32, 128),
            (1, 1, 1, 32),
            (2, 2, 2, 64),
            (4, 0, 1, 4),
            (32, 32, 32, 1024),
        ] {
            assert_eq!(sectors(&lanes(!0, |l| l * stride), bytes), (want, used), "{bytes} bytes every {stride}");
        }
        // One element past alignment: five sectors instead of four.
        assert_eq!(sectors(&lanes(!0, |l| 4 + 4 * l), 4), (5, 128));
        // The order of lanes does not matter; half of the lanes touch half of the sectors.
        assert_eq!(sectors(&lanes(!0, |l| 4 * (31 - l)), 4), (4, 128));
        assert_eq!(sectors(&lanes(0xffff, |l| 4 * l), 4), (2, 64));
        // Pairs of lanes share an address.
        assert_eq!(sectors(&lanes(!0, |l| l / 2 * 4), 4), (2, 64));
    }

    /// By hand: bank = word mod 32; words of one bank that differ take a pass each ("CUDA C++ Programming Guide", shared
    /// memory, figures "Strided Shared Memory Accesses" and "Irregular Shared Memory Accesses").
    #[test]
    fn wavefronts_of_shared_accesses() {
        for (bytes, stride, passes, groups) in [
            (4, 4, 1, 1),
            (4, 8, 2, 1),    // stride of two words: two-way conflict
            (4, 12, 1, 1),   // stride of three words: none
            (4, 128, 32, 1), // all lanes in one bank
            (4, 132, 1, 1),  // padded column
            (4, 0, 1, 1),    // broadcast
            (1, 1, 1, 1),    // four lanes a word
            (2, 2, 1, 1),
            (8, 8, 2, 2),   // 64 bits: half-warps
            (8, 16, 4, 2),  // each half-warp two-way
            (16, 16, 4, 4), // 128 bits: quarter-warps
            (16, 32, 8, 4),
            (16, 0, 4, 4),
        ] {
            assert_eq!(lanes(!0, |l| l * stride).wavefronts(bytes), (passes, groups), "{bytes} bytes every {stride}");
        }
        // A half-warp that is not there needs no pass.
        assert_eq!(lanes(0xffff, |l| 8 * l).wavefronts(8), (1, 1));
        assert_eq!(lanes(0xff00_00ff, |l| 16 * l).wavefronts(16), (2, 2));
        // Lanes 0 and 16 of one half of the mask each: both halves.
        assert_eq!(lanes(0x0001_0001, |l| 8 * l).wavefronts(8), (2, 2));
    }

    #[test]
    fn touched_sectors_of_a_range_are_counted() {
        let mut touched = Touched::default();
        // Both sides of a word's end and of a page's.
        touched.mark_all(60, 69, false);
        touched.mark_all(4094, 4097, true);
        touched.mark_all(65, 66, true);
        let count = |first, end| touched.count(first, end);
        assert_eq!((count(0, 1 << 50), count(0, 60), count(60, 70), count(61, 65)), (14, 0, 10, 4));
        assert_eq!((count(63, 64), count(64, 64), count(4095, 4097), count(4097, 9999)), (1, 0, 2, 1));
    }

    #[test]
    fn touched_sectors_are_counted_once() {
        let mut touched = Touched::default();
        for sector in [0, 1, 1, 4096, 1 << 40, 0] {
            touched.mark(sector, true, false);
        }
        assert_eq!((touched.loaded, touched.stored), (4, 0));
        // Stored to, then loaded: nothing has to come from memory.
        touched.mark(7, false, true);
        touched.mark(7, true, false);
        touched.mark(0, false, true);
        assert_eq!((touched.loaded, touched.stored), (4, 2));
    }
}
