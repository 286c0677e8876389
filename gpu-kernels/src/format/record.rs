//! The layout of a row on the device.
//!
//! A tensor is one buffer of 16-byte vectors: a *record* a row, all of one length, so that tensors of equal format and
//! width are stacked by writing one behind the other. A row is counted in *units* of 32 columns (the last one padded
//! with weights of zero), and a record has up to four sections, each padded to 16 bytes:
//!
//! | section | for each |
//! |---|---|
//! | codes | unit: 1, 2 or a multiple of 4 words |
//! | high bits | unit: 0, 1 or 2 words |
//! | scales | unit: 0, 1, 2 or 4 bytes |
//! | block scales | run of `2^n` units, or the row: 0, 2, 4, 6, 8 or 16 bytes |
//!
//! A row is read by `lanes` lanes, a power of two up to 32, of which lane `l` takes the units `l`, `l + lanes`, …
//! The codes lie so that the loads of neighbouring lanes are neighbours, 16 bytes each:
//! - units of several vectors: within each run of `lanes` units first the first vector of every unit, then the second;
//! - units of one or two words, in the codes or else in the high bits ([`Spec::short_words`]): four words of one lane, from
//!   units `lanes` apart, share a vector ([`Spec::together`] units). Of what does not fill such a run, codes share vectors too, as
//!   if there were fewer lanes ([`Record::shorter_run`]); what is left of them, and high bits, are stored unit after unit, as
//!   are high bits beside short codes.

/// Columns in a unit.
pub const UNIT: usize = 32;

/// What a unit takes in each section of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Words of codes: 1, 2 or a multiple of 4.
    pub code_words: usize,
    /// Words of high bits.
    pub high_words: usize,
    /// Bytes of scales.
    pub scale_bytes: usize,
    /// Bytes of a block's scales.
    pub block_bytes: usize,
    /// Binary logarithm of the units in a block; [`Spec::ANY`]: told at run time.
    pub block_units: u32,
}

/// Where the sections of a record begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Units in a row.
    pub units: usize,
    /// Binary logarithm of the lanes that read a row.
    pub lanes_log2: u32,
    /// Binary logarithm of the units in a block.
    pub block_units: u32,
    /// What the layout leaves open, as [`Decode::MOST_OPEN`](super::decode::Decode::MOST_OPEN) says.
    pub open: u32,
    /// First word of the high bits.
    pub high: usize,
    /// First vector of the section where units share vectors, if there is one.
    pub short: usize,
    /// First byte of the scales.
    pub scales: usize,
    /// First byte of the blocks' scales.
    pub blocks: usize,
    /// 16-byte vectors in the record.
    pub vectors: usize,
}

impl Spec {
    /// A format whose blocks' length is an argument of the kernels.
    pub const ANY: u32 = u32::MAX;
    /// A format with one block a row.
    pub const ROW: u32 = 31;

    /// Words of a unit in the section where units share vectors; 0 if there is none.
    #[inline(always)]
    #[must_use]
    pub const fn short_words(self) -> usize {
        if self.code_words < 4 { self.code_words } else { self.high_words }
    }

    /// Units that share a vector.
    #[inline(always)]
    #[must_use]
    pub const fn together(self) -> usize {
        if self.short_words() > 0 { 4 / self.short_words() } else { 1 }
    }

    /// The record of a row of `cols` columns. `open`: what the layout leaves open, which may be the units of a block.
    #[inline(always)]
    #[must_use]
    pub const fn record(self, cols: usize, open: u32) -> Record {
        let block_units = if self.block_units == Spec::ANY { open } else { self.block_units };
        let units = cols.div_ceil(UNIT);
        let lanes_log2 = if units >= 32 { 5 } else { 32 - (units as u32).wrapping_sub(1).leading_zeros() };
        let high = (units * self.code_words).div_ceil(4) * 4;
        let scales = (high + (units * self.high_words).div_ceil(4) * 4) * 4;
        let blocks = scales + (units * self.scale_bytes).div_ceil(16) * 16;
        let in_blocks = if self.block_bytes == 0 { 0 } else { ((units - 1) >> block_units) + 1 };
        let end = blocks + (in_blocks * self.block_bytes).div_ceil(16) * 16;
        let short = if self.code_words < 4 { 0 } else { high / 4 };
        Record { units, lanes_log2, block_units, open, high, short, scales, blocks, vectors: end / 16 }
    }
}

/// Of a row of units of `words` words of codes, which fill vectors, with two bytes of scale for each `2^block_units` of them: where the scales
/// begin, and how long the record is, in vectors. As [`Spec::record`] says, in a few instructions of 32 bits.
#[inline(always)]
#[must_use]
pub const fn codes_and_scales(units: u32, words: u32, block_units: u32) -> (u32, u32) {
    let codes = units * words / 4;
    (codes, codes + ((units - 1) >> block_units) / 8 + 1)
}

impl Record {
    /// Lanes that read a row.
    #[inline(always)]
    #[must_use]
    pub const fn lanes(&self) -> usize {
        1 << self.lanes_log2
    }

    /// Where vector `i` of unit `u` lies, for units of `vectors` vectors.
    #[inline(always)]
    #[must_use]
    pub const fn vector(&self, u: usize, i: usize, vectors: usize) -> usize {
        if vectors == 1 {
            return u;
        }
        // In 32 bits, which a row's units fit by far.
        let (u, i, vectors, lanes) = (u as u32, i as u32, vectors as u32, 1 << self.lanes_log2);
        let first = u & !(lanes - 1);
        let rest = self.units as u32 - first;
        let run = if rest < lanes { rest } else { lanes };
        (first * vectors + i * run + (u - first)) as usize
    }

    /// Units behind the whole runs that make a shorter run, in which words share vectors as in the others: of as many lanes as
    /// that takes, a multiple of four. `rest` units of `words` words are behind the whole runs.
    #[inline(always)]
    #[must_use]
    pub const fn shorter_run(rest: u32, words: u32) -> u32 {
        rest & !(16 / words - 1)
    }

    /// Where the first word of unit `u` lies in its section, for units of one or two words.
    #[inline(always)]
    #[must_use]
    pub const fn word(&self, u: usize, words: usize) -> usize {
        // In 32 bits, which a row's units fit by far.
        let (u, words) = (u as u32, words as u32);
        let run = (4 / words) << self.lanes_log2;
        let first = u & !(run - 1);
        let place = if first + run > self.units as u32 {
            let (rest, i) = (self.units as u32 - first, u - first);
            let shorter = if self.short == 0 { Record::shorter_run(rest, words) } else { 0 };
            if i < shorter {
                let lanes = shorter * words / 4;
                let part = if words == 2 {
                    (i >= lanes) as u32
                } else {
                    (i >= lanes) as u32 + (i >= 2 * lanes) as u32 + (i >= 3 * lanes) as u32
                };
                first * words + (i - part * lanes) * 4 + part * words
            } else {
                u * words
            }
        } else {
            let lane = u & ((1 << self.lanes_log2) - 1);
            first * words + lane * 4 + ((u - first) >> self.lanes_log2) * words
        };
        place as usize
    }
}

/// A record's bytes, to load from. Indices count from the record's first byte, in units of what is loaded.
pub trait Memory: Copy {
    /// 16 bytes that are read once.
    ///
    /// # Safety
    /// The index is within the record.
    unsafe fn vector(self, i: usize) -> [u32; 4];
    /// Two words, the first of them even.
    ///
    /// # Safety
    /// The index is within the record.
    unsafe fn pair(self, i: usize) -> [u32; 2];
    /// A word.
    ///
    /// # Safety
    /// The index is within the record.
    unsafe fn word(self, i: usize) -> u32;
    /// 16 bits.
    ///
    /// # Safety
    /// The index is within the record.
    unsafe fn half(self, i: usize) -> u16;
    /// 8 bits.
    ///
    /// # Safety
    /// The index is within the record.
    unsafe fn byte(self, i: usize) -> u8;
}

/// A record in the memory of the device.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
pub struct InMemory(pub warpsmith_device::args::In<warpsmith_device::U32x4>);

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
impl Memory for InMemory {
    #[inline(always)]
    unsafe fn vector(self, i: usize) -> [u32; 4] {
        // SAFETY: the caller's promise.
        unsafe { self.0.ld_nc128(i).0 }
    }
    #[inline(always)]
    unsafe fn pair(self, i: usize) -> [u32; 2] {
        // SAFETY: the caller's promise.
        unsafe { self.0.cast::<u32>().load2(i).0 }
    }
    #[inline(always)]
    unsafe fn word(self, i: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.0.cast::<u32>().at(i) }
    }
    #[inline(always)]
    unsafe fn half(self, i: usize) -> u16 {
        // SAFETY: the caller's promise.
        unsafe { self.0.cast::<u16>().at(i) }
    }
    #[inline(always)]
    unsafe fn byte(self, i: usize) -> u8 {
        // SAFETY: the caller's promise.
        unsafe { self.0.cast::<u8>().at(i) }
    }
}

/// A record on the host.
#[cfg(not(target_arch = "nvptx64"))]
impl Memory for &[warpsmith_device::U32x4] {
    unsafe fn vector(self, i: usize) -> [u32; 4] {
        self[i].0
    }
    unsafe fn pair(self, i: usize) -> [u32; 2] {
        bytemuck::cast_slice::<_, [u32; 2]>(self)[i / 2]
    }
    unsafe fn word(self, i: usize) -> u32 {
        bytemuck::cast_slice::<_, u32>(self)[i]
    }
    unsafe fn half(self, i: usize) -> u16 {
        bytemuck::cast_slice::<_, u16>(self)[i]
    }
    unsafe fn byte(self, i: usize) -> u8 {
        bytemuck::cast_slice::<_, u8>(self)[i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: Spec = Spec { code_words: 1, high_words: 0, scale_bytes: 0, block_bytes: 2, block_units: 2 };

    #[test]
    fn every_word_of_the_codes_has_one_place() {
        for units in (1..40).chain([63, 64, 65, 128, 129, 255, 256, 300]) {
            for words in [1, 2, 4, 8, 16, 32] {
                let record = Spec { code_words: words, ..SPEC }.record(units * UNIT, 0);
                let mut seen = vec![false; units * words];
                for u in 0..units {
                    for w in 0..words {
                        let at = match words {
                            1 | 2 => record.word(u, words) + w,
                            _ => record.vector(u, w / 4, words / 4) * 4 + w % 4,
                        };
                        assert!(!seen[at], "unit {u} of {units}, word {w} of {words}: {at}");
                        seen[at] = true;
                    }
                }
            }
        }
    }

    #[test]
    fn codes_with_a_scale_a_block_lie_where_records_say() {
        for units in (4..=600).step_by(4) {
            for (words, block_units) in [(1, 2), (2, 2), (2, 3)] {
                let record = Spec { code_words: words, block_units, ..SPEC }.record(units * UNIT, 0);
                let (scales, vectors) = codes_and_scales(units as u32, words as u32, block_units);
                assert_eq!(
                    (16 * scales as usize, vectors as usize),
                    (record.blocks, record.vectors),
                    "{units} {words}"
                );
            }
        }
    }

    #[test]
    fn neighbouring_lanes_load_neighbouring_vectors() {
        let record = Spec { code_words: 1, ..SPEC }.record(300 * UNIT, 0);
        for lane in 0..32 {
            for part in 0..4 {
                assert_eq!(record.word(128 + part * 32 + lane, 1), (32 + lane) * 4 + part);
            }
        }
        // 300 = 2 runs of 128, one of 32 for 8 lanes, and 12 units one after the other.
        for (unit, part, lane) in [(256, 0, 0), (263, 0, 7), (264, 1, 0), (285, 3, 5)] {
            assert_eq!(record.word(unit, 1), 256 + 4 * lane + part, "unit {unit}");
        }
        assert_eq!((record.word(288, 1), record.word(299, 1)), (288, 299));
        // 40 units of two words: 20 lanes.
        let record = Spec { code_words: 2, ..SPEC }.record(40 * UNIT, 0);
        assert_eq!([0, 19, 20, 39].map(|u| record.word(u, 2)), [0, 76, 2, 78]);
        // High bits behind codes of whole vectors: unit after unit.
        let record = Spec { code_words: 4, high_words: 1, ..SPEC }.record(40 * UNIT, 0);
        assert_eq!([0, 1, 39].map(|u| record.word(u, 1)), [0, 1, 39]);
        let record = Spec { code_words: 8, ..SPEC }.record(40 * UNIT, 0);
        assert_eq!([record.vector(3, 0, 2), record.vector(3, 1, 2)], [3, 35]);
        assert_eq!([record.vector(33, 0, 2), record.vector(33, 1, 2)], [65, 73]);
    }

    #[test]
    fn sections_begin_at_16_bytes() {
        let spec = Spec { code_words: 2, high_words: 1, scale_bytes: 2, block_bytes: 2, block_units: 3 };
        let r = spec.record(9 * UNIT, 0);
        // 18 words, 9 words, 18 bytes, 2 blocks of 2 bytes.
        assert_eq!((r.high, r.scales, r.blocks, r.vectors), (20, 32 * 4, 32 * 4 + 32, 8 + 2 + 1));
        assert_eq!((r.units, r.lanes(), r.short), (9, 16, 0));
        let long = Spec { code_words: 4, high_words: 2, ..spec };
        assert_eq!((long.together(), long.record(9 * UNIT, 0).short, spec.together()), (2, 9, 2));
        assert_eq!([1, 2, 3, 4, 5, 31, 32, 33].map(|u| spec.record(u * UNIT, 0).lanes()), [1, 2, 4, 4, 8, 32, 32, 32]);
    }
}
