//! The host's side of the formats: sizes, decoding, validation, and the way into the device planes.

use super::{F16, F32, Q1_0, Q4_0, Q8_0, padded_scales, padded_words, word_position};
use half::f16;
use warpsmith_device::U32x4;

/// How one format is stored in a file, and how a block of it becomes numbers and plane entries.
pub trait Codec: Sync {
    /// Name as ggml spells it.
    fn name(&self) -> &'static str;
    /// ggml's type id.
    fn type_id(&self) -> u32;
    /// Weights in a block.
    fn block_elems(&self) -> usize;
    /// Bytes of a block in a file.
    fn block_bytes(&self) -> usize;
    /// Code words and scales of a block in the planes; `None`: dense, rows are kept as stored.
    fn split(&self) -> Option<(usize, usize)>;
    /// Writes a block's weights into `out` (`block_elems` long).
    fn decode(&self, block: &[u8], out: &mut [f32]);
    /// The first of the block's scales (for dense formats: the weight) that is not finite.
    fn not_finite(&self, block: &[u8]) -> Option<f32>;
    /// Writes a block's code words and scales. Dense formats are never asked.
    fn pack(&self, block: &[u8], words: &mut [u32], scales: &mut [f16]);
}

/// A weight format that the kernels read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types)]
pub enum Format {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// 32 signed bytes and an f16 scale.
    Q8_0,
    /// 32 four-bit codes around 8 and an f16 scale.
    Q4_0,
    /// 128 signs and an f16 scale (also called `Q1_0_g128`).
    Q1_0,
}

/// Lengths of a tensor's planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneSizes {
    /// 16-byte vectors in a row of the codes plane.
    pub row_vectors: usize,
    /// 16-byte vectors in the codes plane.
    pub codes: usize,
    /// Scales in a row of the scales plane (0: the format has none).
    pub row_scales: usize,
    /// Scales in the scales plane.
    pub scales: usize,
}

impl PlaneSizes {
    /// Bytes of both planes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.codes * 16 + self.scales * 2
    }
}

/// A tensor in the layout of the device.
#[derive(Clone, Debug, PartialEq)]
pub struct Planes {
    /// The codes plane.
    pub codes: Vec<U32x4>,
    /// The scales plane; empty for dense formats.
    pub scales: Vec<f16>,
}

/// Why a tensor's bytes cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FormatError {
    /// A type id without kernels.
    #[error("tensor type {id} is not supported; supported are {}", supported())]
    UnknownType {
        /// ggml's type id.
        id: u32,
    },
    /// A row that is not a whole number of blocks.
    #[error("{format:?} comes in blocks of {elems}: a row of {cols} elements is not a whole number of blocks")]
    Columns {
        /// Format asked for.
        format: Format,
        /// Row length.
        cols: usize,
        /// Block length.
        elems: usize,
    },
    /// A tensor whose bytes do not fit its shape.
    #[error("{format:?} tensor of {rows} x {cols} takes {expected} bytes, got {actual}")]
    Bytes {
        /// Format asked for.
        format: Format,
        /// Rows.
        rows: usize,
        /// Row length.
        cols: usize,
        /// Bytes by the shape.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// A shape whose size no address can hold.
    #[error("{format:?} tensor of {rows} x {cols} is larger than the address space")]
    TooLarge {
        /// Format asked for.
        format: Format,
        /// Rows.
        rows: usize,
        /// Row length.
        cols: usize,
    },
    /// A scale (or, in F32 and F16, a weight) that is NaN or infinite.
    #[error("{format:?} block {block} (row {row}, columns {first}..{end}) has the scale {value}; the file is damaged")]
    NotFinite {
        /// Format asked for.
        format: Format,
        /// Number of the block in the tensor.
        block: usize,
        /// Row of the block.
        row: usize,
        /// First column of the block.
        first: usize,
        /// Column after the block.
        end: usize,
        /// The value found.
        value: f32,
    },
    /// An output of the wrong length.
    #[error("{format:?} tensor of {rows} x {cols} needs {plane} of {expected} entries, got {actual}")]
    Plane {
        /// Format asked for.
        format: Format,
        /// Rows.
        rows: usize,
        /// Row length.
        cols: usize,
        /// Which output.
        plane: &'static str,
        /// Entries by the shape.
        expected: usize,
        /// Entries given.
        actual: usize,
    },
}

fn supported() -> String {
    let names: Vec<_> = Format::ALL.iter().map(|f| format!("{} ({})", f.name(), f.type_id())).collect();
    names.join(", ")
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Format {
    /// Every format, in the order of ggml's ids.
    pub const ALL: [Format; 5] = [Format::F32, Format::F16, Format::Q4_0, Format::Q8_0, Format::Q1_0];

    /// The format's codec: the only place that lists them.
    #[must_use]
    pub fn codec(self) -> &'static dyn Codec {
        match self {
            Format::F32 => &F32,
            Format::F16 => &F16,
            Format::Q8_0 => &Q8_0,
            Format::Q4_0 => &Q4_0,
            Format::Q1_0 => &Q1_0,
        }
    }

    /// The format with ggml's type id `id`.
    pub fn from_type_id(id: u32) -> Result<Format, FormatError> {
        Format::ALL.into_iter().find(|f| f.type_id() == id).ok_or(FormatError::UnknownType { id })
    }

    /// Name as ggml spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.codec().name()
    }

    /// ggml's type id.
    #[must_use]
    pub fn type_id(self) -> u32 {
        self.codec().type_id()
    }

    /// Weights in a block.
    #[must_use]
    pub fn block_elems(self) -> usize {
        self.codec().block_elems()
    }

    /// Bytes of a block in a file.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        self.codec().block_bytes()
    }

    /// True where rows are kept as stored and there is no scale plane.
    #[must_use]
    pub fn is_dense(self) -> bool {
        self.codec().split().is_none()
    }

    /// Bytes of a row of `cols` elements in a file.
    pub fn row_bytes(self, cols: usize) -> Result<usize, FormatError> {
        let elems = self.block_elems();
        if cols == 0 || !cols.is_multiple_of(elems) {
            return Err(FormatError::Columns { format: self, cols, elems });
        }
        (cols / elems).checked_mul(self.block_bytes()).ok_or(FormatError::TooLarge { format: self, rows: 1, cols })
    }

    /// Bytes of a tensor of `rows` x `cols` in a file.
    pub fn tensor_bytes(self, rows: usize, cols: usize) -> Result<usize, FormatError> {
        self.row_bytes(cols)?.checked_mul(rows).ok_or(FormatError::TooLarge { format: self, rows, cols })
    }

    /// Lengths of the planes of a tensor of `rows` x `cols`.
    pub fn plane_sizes(self, rows: usize, cols: usize) -> Result<PlaneSizes, FormatError> {
        let row_bytes = self.row_bytes(cols)?;
        let blocks = cols / self.block_elems();
        let too_large = FormatError::TooLarge { format: self, rows, cols };
        let (row_vectors, row_scales) = match self.codec().split() {
            None => (row_bytes.div_ceil(16), 0),
            Some((words, scales)) => (padded_words(blocks * words) / 4, padded_scales(blocks * scales)),
        };
        // The sum must fit too: `PlaneSizes::bytes` relies on it.
        let row = row_vectors.checked_mul(16).and_then(|b| b.checked_add(row_scales * 2));
        if row.and_then(|b| b.checked_mul(rows)).is_none() {
            return Err(too_large);
        }
        Ok(PlaneSizes { row_vectors, codes: row_vectors * rows, row_scales, scales: row_scales * rows })
    }

    /// The tensor's weights as f32, row by row.
    pub fn decode(self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, FormatError> {
        self.check_bytes(bytes, rows, cols)?;
        let (codec, elems) = (self.codec(), self.block_elems());
        let mut out = vec![0.0; rows * cols];
        for (block, out) in bytes.chunks_exact(self.block_bytes()).zip(out.chunks_exact_mut(elems)) {
            codec.decode(block, out);
        }
        Ok(out)
    }

    /// Checks length and shape, and that every scale (in F32 and F16: every weight) is finite.
    pub fn validate(self, bytes: &[u8], rows: usize, cols: usize) -> Result<(), FormatError> {
        self.check_bytes(bytes, rows, cols)?;
        let (codec, elems) = (self.codec(), self.block_elems());
        let in_row = cols / elems;
        for (block, b) in bytes.chunks_exact(self.block_bytes()).enumerate() {
            if let Some(value) = codec.not_finite(b) {
                let first = block % in_row * elems;
                let (row, end) = (block / in_row, first + elems);
                return Err(FormatError::NotFinite { format: self, block, row, first, end, value });
            }
        }
        Ok(())
    }

    /// The tensor in the layout of the device. Validates as [`Format::validate`] does.
    pub fn repack(self, bytes: &[u8], rows: usize, cols: usize) -> Result<Planes, FormatError> {
        self.check_bytes(bytes, rows, cols)?;
        let sizes = self.plane_sizes(rows, cols)?;
        let mut planes = Planes { codes: vec![U32x4([0; 4]); sizes.codes], scales: vec![f16::ZERO; sizes.scales] };
        self.repack_into(bytes, rows, cols, &mut planes.codes, &mut planes.scales)?;
        Ok(planes)
    }

    /// [`Format::repack`] into memory of the caller (pinned staging, say), which need not be zeroed.
    pub fn repack_into(
        self,
        bytes: &[u8],
        rows: usize,
        cols: usize,
        codes: &mut [U32x4],
        scales: &mut [f16],
    ) -> Result<(), FormatError> {
        self.validate(bytes, rows, cols)?;
        let sizes = self.plane_sizes(rows, cols)?;
        let plane = |plane, expected, actual| FormatError::Plane { format: self, rows, cols, plane, expected, actual };
        if codes.len() != sizes.codes {
            return Err(plane("codes", sizes.codes, codes.len()));
        }
        if scales.len() != sizes.scales {
            return Err(plane("scales", sizes.scales, scales.len()));
        }
        let codes: &mut [u32] = bytemuck::cast_slice_mut(codes);
        codes.fill(0);
        scales.fill(f16::ZERO);
        let row_bytes = self.row_bytes(cols)?;
        let row_words = sizes.row_vectors * 4;
        let codec = self.codec();
        for (r, row) in bytes.chunks_exact(row_bytes).enumerate() {
            let codes = &mut codes[r * row_words..][..row_words];
            let Some((words, per_block)) = codec.split() else {
                for (i, piece) in row.chunks(4).enumerate() {
                    let mut word = [0; 4];
                    word[..piece.len()].copy_from_slice(piece);
                    codes[i] = u32::from_le_bytes(word);
                }
                continue;
            };
            let scales = &mut scales[r * sizes.row_scales..][..sizes.row_scales];
            let in_row = cols / self.block_elems() * words;
            let mut block_words = [0u32; 64];
            let block_words = &mut block_words[..words];
            for (b, block) in row.chunks_exact(self.block_bytes()).enumerate() {
                codec.pack(block, block_words, &mut scales[b * per_block..][..per_block]);
                for (q, word) in block_words.iter().enumerate() {
                    codes[word_position(b * words + q, in_row)] = *word;
                }
            }
        }
        Ok(())
    }

    fn check_bytes(self, bytes: &[u8], rows: usize, cols: usize) -> Result<(), FormatError> {
        let expected = self.tensor_bytes(rows, cols)?;
        if bytes.len() != expected {
            return Err(FormatError::Bytes { format: self, rows, cols, expected, actual: bytes.len() });
        }
        // The decoded tensor must be addressable too: `decode` allocates it.
        match rows.checked_mul(cols).and_then(|n| n.checked_mul(4)) {
            Some(n) if n <= isize::MAX as usize => Ok(()),
            _ => Err(FormatError::TooLarge { format: self, rows, cols }),
        }
    }
}

/// The f16 at byte `at` of a block.
pub(super) fn f16_at(block: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([block[at], block[at + 1]])
}

/// The scale at byte `at`, where it is not finite.
pub(super) fn scale_not_finite(block: &[u8], at: usize) -> Option<f32> {
    let d = f16_at(block, at).to_f32();
    (!d.is_finite()).then_some(d)
}

/// The code bytes as little-endian words.
pub(super) fn pack_words(codes: &[u8], words: &mut [u32]) {
    for (bytes, word) in codes.chunks_exact(4).zip(words) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
