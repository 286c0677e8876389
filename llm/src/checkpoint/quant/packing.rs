//! How codes and zeros lie in words of 32 bits.

use super::super::CheckpointError;
use super::super::shards::{Shards, Stored};
use safetensors::Dtype;

/// Columns of eight in AutoAWQ's words, from the lowest four bits on: 0 2 4 6 1 3 5 7. This is the place of each column.
const AWQ_PLACES: [u32; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Words that hold so many codes one behind the other.
fn stream_words(bits: u32, count: usize) -> usize {
    count.saturating_mul(bits as usize).div_ceil(32)
}

/// The code of that number of words that hold codes one behind the other, the lowest bits first.
fn stream(word: impl Fn(usize) -> u32, bits: u32, number: usize) -> u8 {
    let at = number * bits as usize;
    let (first, shift) = (at / 32, at % 32);
    // Only codes that are not whole in this one ask for the next, which there may not be.
    let next = if shift + bits as usize > 32 { word(first + 1) } else { 0 };
    let both = u64::from(word(first)) | u64::from(next) << 32;
    (both >> shift & ((1 << bits) - 1)) as u8
}

/// Where the code of a row and a column is.
#[derive(Clone, Copy)]
pub(in super::super) enum Packing {
    /// GPTQ: `[cols * bits / 32, rows]`, the bits of a row's columns one behind the other, the first lowest. Codes of three bits may begin in
    /// one word and end in the next.
    Inputs,
    /// AWQ: `[cols, rows / 8]`, a word has eight rows of a column.
    Outputs,
    /// compressed-tensors: `[rows, cols / n]`.
    Rows,
    /// Signed bytes, `[rows, cols]`.
    Bytes,
}

impl Packing {
    /// The words of a matrix, or its bytes as words.
    pub fn words(self, shards: &Shards, codes: &Stored) -> Result<Vec<u32>, CheckpointError> {
        if !matches!(self, Packing::Bytes) {
            return shards.integers(codes);
        }
        let mut bytes = shards.bytes(codes)?;
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Ok(bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect())
    }

    /// The code at a place.
    pub fn code(self, words: &[u32], [rows, cols]: [usize; 2], bits: u32, [row, column]: [usize; 2]) -> i32 {
        let (per, mask) = ((32 / bits) as usize, (1u64 << bits) as u32 - 1);
        let place = |word: u32, i: usize| (word >> (bits * i as u32) & mask) as i32;
        match self {
            Packing::Inputs => {
                let word = |number: usize| words.get(number * rows + row).copied().unwrap_or(0);
                i32::from(stream(word, bits, column))
            }
            Packing::Outputs => place(words[column * (rows / 8) + row / 8], AWQ_PLACES[row % 8] as usize),
            Packing::Rows => place(words[row * cols.div_ceil(per) + column / per], column % per),
            Packing::Bytes => {
                let at = row * cols + column;
                // Around 128, as other codes of eight bits are.
                i32::from((words[at / 4] >> (8 * (at % 4))) as u8 as i8) + 128
            }
        }
    }
}

/// What is taken off codes.
pub(in super::super) enum Zeros {
    /// Half of what a code has room for.
    Half,
    /// Words with the zeros of the rows of a group, `[groups, rows * bits / 32]`, as [`Packing::Inputs`] has codes, and each less this.
    Rows(Stored, i16),
    /// AWQ's, in the order of its codes.
    Awq(Stored),
    /// `[rows / n, groups]`, the first row lowest.
    Columns(Stored),
}

impl Zeros {
    /// That words have their type and shape.
    pub fn check(&self, [groups, rows]: [usize; 2], bits: u32) -> Result<(), CheckpointError> {
        let words = rows.div_ceil((32 / bits) as usize);
        let (stored, shape) = match self {
            Zeros::Half => return Ok(()),
            Zeros::Rows(stored, _) => (stored, [groups, stream_words(bits, rows)]),
            Zeros::Awq(stored) => (stored, [groups, words]),
            Zeros::Columns(stored) => (stored, [words, groups]),
        };
        if !matches!(stored.dtype, Dtype::I32 | Dtype::U32) {
            return Err(stored.mistyped("I32"));
        }
        stored.expect(&shape, "from the codes and the size of a group")
    }

    /// `[groups, rows]`.
    pub fn read(&self, shards: &Shards, [groups, rows]: [usize; 2], bits: u32) -> Result<Vec<i16>, CheckpointError> {
        let (per, mask) = ((32 / bits) as usize, (1u64 << bits) as u32 - 1);
        let place = |word: u32, i: u32| (word >> (bits * i) & mask) as i16;
        let each = |words: &[u32], zero: &dyn Fn(&[u32], usize, usize) -> i16| {
            (0..groups * rows).map(|i| zero(words, i / rows, i % rows)).collect()
        };
        let row_words = rows.div_ceil(per);
        Ok(match self {
            Zeros::Half => vec![1 << (bits - 1); groups * rows],
            Zeros::Rows(stored, less) => each(&shards.integers(stored)?, &|words, group, row| {
                let of_group = words.get(group * stream_words(bits, rows)..).unwrap_or_default();
                stream(|number| of_group.get(number).copied().unwrap_or(0), bits, row) as i16 + less
            }),
            Zeros::Awq(stored) => each(&shards.integers(stored)?, &|words, group, row| {
                place(words[group * row_words + row / per], AWQ_PLACES[row % 8])
            }),
            Zeros::Columns(stored) => each(&shards.integers(stored)?, &|words, group, row| {
                place(words[row / per * groups + group], (row % per) as u32)
            }),
        })
    }
}
