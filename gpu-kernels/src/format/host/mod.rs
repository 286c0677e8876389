//! The host's side of the formats: sizes, decoding, validation, and the way into records.

mod blocks;
mod codec;

use super::record::Record;
use codec::Codec;
use warpsmith_device::U32x4;

/// A weight format that the kernels read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types)]
pub enum Format {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// 128 signs and an f16 scale (also called `Q1_0_g128`).
    Q1_0,
    /// OxiBonsai's ternary: 128 codes of two bits, then an f16 scale; code 3 is 0.
    TQ2_0_G128,
    /// ggml's two bits: an f16 scale, then 64 codes.
    Q2_0,
    /// PrismML's two bits: an f16 scale, then 128 codes.
    PQ2_0,
    /// PrismML's ternary: 128 digits in base 3 and an f16 scale.
    PTQ1_0,
    /// ggml's ternary: 256 digits in base 3 and an f16 scale.
    TQ1_0,
    /// ggml's ternary: 256 codes of two bits and an f16 scale.
    TQ2_0,
    /// 32 four-bit codes around 8 and an f16 scale.
    Q4_0,
    /// 32 four-bit codes, an f16 scale and an f16 addend.
    Q4_1,
    /// 32 five-bit codes around 16 and an f16 scale.
    Q5_0,
    /// 32 five-bit codes, an f16 scale and an f16 addend.
    Q5_1,
    /// 32 signed bytes and an f16 scale.
    Q8_0,
    /// 256 two-bit codes, a scale and a minimum of four bits for each 16.
    Q2_K,
    /// 256 three-bit codes and a six-bit scale for each 16.
    Q3_K,
    /// 256 four-bit codes, a scale and a minimum of six bits for each 32.
    Q4_K,
    /// 256 five-bit codes, a scale and a minimum of six bits for each 32.
    Q5_K,
    /// 256 six-bit codes and an eight-bit scale for each 16.
    Q6_K,
    /// 32 indices into a table of 16 and an f16 scale.
    IQ4_NL,
    /// 256 indices into a table of 16 and a six-bit scale for each 32.
    IQ4_XS,
    /// 32 four-bit floats and a power of two.
    MXFP4,
}

/// Why a tensor's bytes cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FormatError {
    /// A type id without kernels.
    #[error("tensor type {id} is not supported; supported are {}", Format::names())]
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
    #[error("{format:?} tensor of {rows} x {cols} takes {expected} vectors of 16 bytes, got {actual}")]
    Records {
        /// Format asked for.
        format: Format,
        /// Rows.
        rows: usize,
        /// Row length.
        cols: usize,
        /// Vectors by the shape.
        expected: usize,
        /// Vectors given.
        actual: usize,
    },
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 23] = [
        Format::F32,
        Format::F16,
        Format::BF16,
        Format::Q1_0,
        Format::TQ2_0_G128,
        Format::Q2_0,
        Format::PQ2_0,
        Format::PTQ1_0,
        Format::TQ1_0,
        Format::TQ2_0,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q2_K,
        Format::Q3_K,
        Format::Q4_K,
        Format::Q5_K,
        Format::Q6_K,
        Format::IQ4_NL,
        Format::IQ4_XS,
        Format::MXFP4,
    ];

    /// Names and type ids of all formats, for messages.
    #[must_use]
    pub fn names() -> String {
        let names: Vec<_> = Format::ALL.iter().map(|f| format!("{} ({})", f.name(), f.type_id())).collect();
        names.join(", ")
    }

    fn codec(self) -> &'static Codec {
        macro_rules! codecs {
            ($($name:ident)*) => { match self { $(Format::$name => &blocks::$name,)* } };
        }
        codecs!(F32 F16 BF16 Q1_0 TQ2_0_G128 Q2_0 PQ2_0 PTQ1_0 TQ1_0 TQ2_0 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K
            Q6_K IQ4_NL IQ4_XS MXFP4)
    }

    /// The format with ggml's type id `id`. Id 42 is refused: [two formats](Format::type_id) have it.
    pub fn from_type_id(id: u32) -> Result<Format, FormatError> {
        let mut all = Format::ALL.into_iter().filter(|f| f.type_id() == id);
        match (all.next(), all.next()) {
            (Some(format), None) => Ok(format),
            _ => Err(FormatError::UnknownType { id }),
        }
    }

    /// Name as ggml spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.codec().name
    }

    /// The type id in files: ggml's, or that of the program that writes the format. 42 is ggml's for [`Format::Q2_0`],
    /// OxiBonsai's for [`Format::TQ2_0_G128`], and was PrismML's for [`Format::PQ2_0`].
    #[must_use]
    pub fn type_id(self) -> u32 {
        self.codec().type_id
    }

    /// Weights in a block.
    #[must_use]
    pub fn block_elems(self) -> usize {
        self.codec().elems
    }

    /// Bytes of a block in a file.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        self.codec().bytes
    }

    /// True where a row may have any length: F32, F16, BF16.
    #[must_use]
    pub fn is_dense(self) -> bool {
        self.block_elems() == 1
    }

    /// Byte offsets of the f16 scales in a block.
    #[must_use]
    pub fn scale_offsets(self) -> &'static [usize] {
        match self.codec().scales {
            codec::Scales::F16(offsets) => offsets,
            _ => &[],
        }
    }

    /// Binary logarithm of the units (of 32 columns) that share a scale, as the kernels of two-bit formats want it told;
    /// 0 for all others.
    #[must_use]
    pub fn block_units(self) -> u32 {
        self.codec().block_units
    }

    /// The weights of one block.
    ///
    /// # Panics
    /// If `block` is shorter than [`block_bytes`](Format::block_bytes).
    pub fn decode_block(self, block: &[u8], out: &mut [f32]) {
        (self.codec().decode)(block, out);
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

    /// The layout of a row of `cols` elements on the device.
    pub fn record(self, cols: usize) -> Result<Record, FormatError> {
        self.row_bytes(cols)?;
        // No section takes more than 4 bytes a column and the paddings.
        if cols > usize::MAX / 16 {
            return Err(FormatError::TooLarge { format: self, rows: 1, cols });
        }
        let codec = self.codec();
        Ok(codec.spec.record(cols, codec.block_units))
    }

    /// 16-byte vectors in a row of `cols` elements on the device.
    pub fn row_vectors(self, cols: usize) -> Result<usize, FormatError> {
        Ok(self.record(cols)?.vectors)
    }

    /// 16-byte vectors in a tensor of `rows` x `cols` on the device.
    pub fn tensor_vectors(self, rows: usize, cols: usize) -> Result<usize, FormatError> {
        let vectors = self.row_vectors(cols)?.checked_mul(rows);
        // Its bytes must be addressable too.
        let vectors = vectors.filter(|n| n.checked_mul(16).is_some());
        vectors.ok_or(FormatError::TooLarge { format: self, rows, cols })
    }

    /// The tensor's weights as f32, row by row.
    pub fn decode(self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, FormatError> {
        self.check_bytes(bytes, rows, cols)?;
        let mut out = vec![0.0; rows * cols];
        for (block, out) in bytes.chunks_exact(self.block_bytes()).zip(out.chunks_exact_mut(self.block_elems())) {
            self.decode_block(block, out);
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
    pub fn repack(self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<U32x4>, FormatError> {
        self.check_bytes(bytes, rows, cols)?;
        let mut records = vec![U32x4([0; 4]); self.tensor_vectors(rows, cols)?];
        self.repack_into(bytes, rows, cols, &mut records)?;
        Ok(records)
    }

    /// [`Format::repack`] into memory of the caller (pinned staging, say), which need not be zeroed. A tensor may go a
    /// few rows at a time.
    pub fn repack_into(self, bytes: &[u8], rows: usize, cols: usize, records: &mut [U32x4]) -> Result<(), FormatError> {
        self.validate(bytes, rows, cols)?;
        let (record, expected) = (self.record(cols)?, self.tensor_vectors(rows, cols)?);
        if records.len() != expected {
            return Err(FormatError::Records { format: self, rows, cols, expected, actual: records.len() });
        }
        let words: &mut [u32] = bytemuck::cast_slice_mut(records);
        words.fill(0);
        let row_bytes = self.row_bytes(cols)?;
        for (row, words) in bytes.chunks_exact(row_bytes).zip(words.chunks_exact_mut(record.vectors * 4)) {
            self.codec().pack_row(row, record, words);
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

#[cfg(test)]
mod tests;
