//! What a codec is, and how units get into a record.

use crate::format::record::{Record, Spec, UNIT};
use half::{bf16, f16};

/// How a format's blocks become numbers and records.
pub struct Codec {
    pub scales: BlockScales,
    /// A block's weights.
    pub decode: fn(&[u8], &mut [f32]),
    pub pack: Pack,
}

/// What must be finite in a block.
pub enum BlockScales {
    /// The f16 at these bytes.
    F16(&'static [usize]),
    /// The exponent at byte 0: 255 is no number.
    E8M0,
    /// The block itself, a single weight.
    Weight,
    /// What this gives: a number that is none, of a block's scales or weights.
    Of(fn(&[u8]) -> Option<f32>),
    /// The same, where the f32 at these bytes is that of the row: a block that has another than the first of its row is damaged.
    OfRow(usize, fn(&[u8]) -> Option<f32>),
}

/// How rows become units.
pub enum Pack {
    /// The bytes of 32 weights, as they stand.
    Dense,
    /// A block into the units from the given one on.
    Blocks(fn(&[u8], usize, &mut Writer<'_>)),
}

impl Codec {
    /// The first of a block's scales (in a dense format: the weight) that is not finite.
    pub fn not_finite(&self, block: &[u8]) -> Option<f32> {
        let bad = |v: f32| (!v.is_finite()).then_some(v);
        match self.scales {
            BlockScales::F16(places) => places.iter().find_map(|&at| bad(f16_at(block, at))),
            BlockScales::E8M0 => (block[0] == 255).then_some(f32::NAN),
            BlockScales::Weight => {
                let mut weight = [0.0];
                (self.decode)(block, &mut weight);
                bad(weight[0])
            }
            BlockScales::Of(wrong) | BlockScales::OfRow(_, wrong) => wrong(block),
        }
    }

    /// The scale of the row, in a format that has such in every block.
    pub fn of_row(&self, block: &[u8]) -> Option<f32> {
        match self.scales {
            BlockScales::OfRow(at, _) => Some(f32_at(block, at)),
            _ => None,
        }
    }

    /// Writes a row of blocks of `elems` weights and `bytes` bytes into its record, which is zero.
    pub fn pack_row(
        &self,
        (elems, bytes): (usize, usize),
        row: &[u8],
        (spec, record): (Spec, Record),
        words: &mut [u32],
    ) {
        let mut to = Writer { spec, record, words };
        match self.pack {
            Pack::Dense => {
                let unit = UNIT * bytes;
                let mut padded = [0u8; 4 * UNIT];
                for (u, part) in row.chunks(unit).enumerate() {
                    padded.fill(0);
                    padded[..part.len()].copy_from_slice(part);
                    to.codes(u, &words_of::<UNIT>(&padded)[..spec.code_words]);
                }
            }
            Pack::Blocks(pack) => {
                for (b, block) in row.chunks_exact(bytes).enumerate() {
                    pack(block, b * elems / UNIT, &mut to);
                }
            }
        }
    }
}

/// Writes a record.
pub struct Writer<'a> {
    spec: Spec,
    record: Record,
    words: &'a mut [u32],
}

impl Writer<'_> {
    /// The codes of unit `u`.
    pub fn codes(&mut self, u: usize, codes: &[u32]) {
        match codes.len() {
            n @ (1 | 2) => self.words[self.record.word(u, n)..][..n].copy_from_slice(codes),
            n => {
                for (i, vector) in codes.chunks_exact(4).enumerate() {
                    let at = self.record.vector(u, i, n / 4) * 4;
                    self.words[at..at + 4].copy_from_slice(vector);
                }
            }
        }
    }

    /// The high bits of unit `u`.
    pub fn high(&mut self, u: usize, high: &[u32]) {
        let short = self.record.short * 4 == self.record.high;
        let place = if short { self.record.word(u, high.len()) } else { u * high.len() };
        let at = self.record.high + place;
        self.words[at..at + high.len()].copy_from_slice(high);
    }

    /// The scales of unit `u`.
    pub fn scales<const N: usize>(&mut self, u: usize, bytes: [u8; N]) {
        let at = self.record.scales + u * self.spec.scale_bytes;
        bytemuck::cast_slice_mut::<u32, u8>(self.words)[at..at + N].copy_from_slice(&bytes);
    }

    /// The scales of the block that unit `u` is in.
    pub fn block<const N: usize>(&mut self, u: usize, bytes: [u8; N]) {
        let at = self.record.blocks + (u >> self.record.block_units) * self.spec.block_bytes;
        bytemuck::cast_slice_mut::<u32, u8>(self.words)[at..at + N].copy_from_slice(&bytes);
    }
}

/// The f16 at byte `at` of a block.
pub fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The f16 of these bits.
pub fn f16_of(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

/// The f32 at byte `at` of a block.
pub fn f32_at(block: &[u8], at: usize) -> f32 {
    f32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// The bf16 at byte `at` of a block.
pub fn bf16_at(block: &[u8], at: usize) -> f32 {
    bf16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Bytes as little-endian words.
pub fn words_of<const N: usize>(bytes: &[u8]) -> [u32; N] {
    std::array::from_fn(|i| u32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]))
}

/// Each element's `bits` at a place `(word, bit)` of `N` words.
fn place<const N: usize>(bits: impl Fn(usize) -> u8, at: impl Fn(usize, usize) -> (usize, usize)) -> [u32; N] {
    let mut words = [0; N];
    for i in 0..UNIT {
        // Quad and index in it.
        let (word, bit) = at(i / 4, i % 4);
        words[word] |= u32::from(bits(i)) << bit;
    }
    words
}

/// Sign bits, in order.
pub fn one_bit(code: impl Fn(usize) -> u8) -> [u32; 1] {
    place(code, |q, j| (0, 4 * q + j))
}

/// Codes of two bits, as `narrow` reads them.
pub fn two_bits(code: impl Fn(usize) -> u8) -> [u32; 2] {
    place(|i| code(i) & 3, |q, j| (q / 4, 8 * j + 2 * (q % 4)))
}

/// Third bits, as `narrow` reads them.
pub fn third_bits(code: impl Fn(usize) -> u8) -> [u32; 1] {
    place(|i| code(i) >> 2 & 1, |q, j| (0, 8 * j + (q + 2) % 8))
}

/// The low nibbles of codes, as `wide` reads them.
pub fn nibbles(code: impl Fn(usize) -> u8) -> [u32; 4] {
    place(|i| code(i) & 15, |q, j| (q % 4, 8 * j + q / 4 * 4))
}

/// Nibbles that index a table, as `wide` reads them.
pub fn indices(code: impl Fn(usize) -> u8) -> [u32; 4] {
    place(|i| code(i) & 15, |q, j| (q % 4, q / 4 * 16 + 4 * j))
}

/// Fifth bits, as `wide` reads them.
pub fn fifth_bits(code: impl Fn(usize) -> u8) -> [u32; 1] {
    place(|i| code(i) >> 4 & 1, |q, j| (0, 8 * j + (q + 4) % 8))
}

/// Fifth and sixth bits, as `wide` reads them.
pub fn sixth_bits(code: impl Fn(usize) -> u8) -> [u32; 2] {
    place(|i| code(i) >> 4 & 3, |q, j| (q / 4, 8 * j + (q + 2) % 4 * 2))
}
