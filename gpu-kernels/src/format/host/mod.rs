//! The host's side of the formats: sizes, decoding, validation, and the way into records.

pub mod bits;
pub mod codec;

use super::decode::Decode;
use super::list;
use super::record::{Record, Spec};
use codec::Codec;
use warpsmith_device::U32x4;

macro_rules! define {
    (() $($F:ident { $($(#[$doc:meta])* $V:ident: $name:expr, $id:literal, $elems:literal, $bytes:literal, $units:literal;)* })*) => {
        /// A weight format that the kernels read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(non_camel_case_types)]
        pub enum Format {
            $($($(#[$doc])* $V,)*)*
        }

        /// How weights lie in a row's record on the device, and so which decoder reads them: one for all formats that have the
        /// same records.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(non_camel_case_types)]
        pub enum Layout {
            $(
                #[doc = concat!("That of [`", stringify!($F), "`](crate::format::", stringify!($F), ").")]
                $F,
            )*
        }

        impl Format {
            /// Every format.
            pub const ALL: [Format; [$($(Format::$V,)*)*].len()] = [$($(Format::$V,)*)*];

            fn stored(self) -> FormatEntry {
                match self {
                    $($(
                        Format::$V => FormatEntry {
                            name: $name,
                            type_id: $id,
                            elems: $elems,
                            bytes: $bytes,
                            open: $units,
                            layout: Layout::$F,
                            spec: <super::$F as Decode>::spec($units),
                        },
                    )*)*
                }
            }

            fn codec(self) -> &'static Codec {
                match self { $($(Format::$V => &list::codecs::$V,)*)* }
            }
        }

        impl Layout {
            /// Every layout.
            pub const ALL: [Layout; [$(Layout::$F,)*].len()] = [$(Layout::$F,)*];

            /// Its name, that of the decoder.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Layout::$F => stringify!($F),)* }
            }
        }
    };
}
crate::formats! { stored define () }

/// What the [list](crate::format::list) says of a format.
struct FormatEntry {
    name: &'static str,
    type_id: u32,
    /// Weights of a block.
    elems: usize,
    /// Bytes of a block.
    bytes: usize,
    /// What the layout leaves open.
    open: u32,
    layout: Layout,
    spec: Spec,
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
    /// A name that no format has.
    #[error("no weight format is called `{name}`; there are {}", Format::names())]
    UnknownName {
        /// The name.
        name: String,
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
    /// A block of a format with a scale for each row that has another than the first block of its row.
    #[error(
        "{format:?} block {block} (row {row}) has the scale {value} for its row, whose first block has {expected}; the file is damaged"
    )]
    RowScale {
        /// Format asked for.
        format: Format,
        /// Number of the block in the tensor.
        block: usize,
        /// Row of the block.
        row: usize,
        /// The scale of the first block.
        expected: f32,
        /// The scale of this one.
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

/// The format of a [name](Format::name), in letters of any case.
impl std::str::FromStr for Format {
    type Err = FormatError;

    fn from_str(name: &str) -> Result<Format, FormatError> {
        let named = Format::ALL.into_iter().find(|f| f.name().eq_ignore_ascii_case(name));
        named.ok_or_else(|| FormatError::UnknownName { name: name.to_owned() })
    }
}

impl Format {
    /// Names and type ids of all formats, for messages.
    #[must_use]
    pub fn names() -> String {
        let names: Vec<_> = Format::ALL.iter().map(|f| format!("{} ({})", f.name(), f.type_id())).collect();
        names.join(", ")
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
        self.stored().name
    }

    /// The type id in files: ggml's, or that of the program that writes the format. 42 is ggml's for [`Format::Q2_0`],
    /// OxiBonsai's for [`Format::TQ2_0_G128`], and was PrismML's for [`Format::PQ2_0`]. From 0x57530000 on it is
    /// ours: no other program writes the format, which checkpoints are made into.
    #[must_use]
    pub fn type_id(self) -> u32 {
        self.stored().type_id
    }

    /// Weights in a block.
    #[must_use]
    pub fn block_elems(self) -> usize {
        self.stored().elems
    }

    /// Bytes of a block in a file.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        self.stored().bytes
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
            codec::BlockScales::F16(offsets) => offsets,
            _ => &[],
        }
    }

    /// What its layout leaves open, as kernels want it told: for two-bit formats the binary logarithm of the units (of 32 columns) that
    /// share a scale; for other layouts of several formats which of them it is, from 0 on.
    #[must_use]
    pub fn block_units(self) -> u32 {
        self.stored().open
    }

    /// How its weights lie on the device.
    #[must_use]
    pub fn layout(self) -> Layout {
        self.stored().layout
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
        let stored = self.stored();
        Ok(stored.spec.record(cols, stored.open))
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
        self.decode_blocks(bytes, &mut out);
        Ok(out)
    }

    /// The weights of blocks, one behind the other: as many as both have room for.
    pub fn decode_blocks(self, bytes: &[u8], out: &mut [f32]) {
        for (block, out) in bytes.chunks_exact(self.block_bytes()).zip(out.chunks_exact_mut(self.block_elems())) {
            self.decode_block(block, out);
        }
    }

    /// Each row of `bytes`, of as many columns as `x` has elements, times `x`: sums of products in f64, one after the other.
    ///
    /// What references multiply by. Rows have whole blocks; what is left of one is not looked at.
    pub fn multiply(self, bytes: &[u8], x: &[f64]) -> Vec<f64> {
        let mut weights = vec![0f32; x.len()];
        let of_row = |row: &[u8]| {
            self.decode_blocks(row, &mut weights);
            weights.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum()
        };
        let row_bytes = x.len() / self.block_elems() * self.block_bytes();
        bytes.chunks_exact(row_bytes.max(1)).map(of_row).collect()
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
            // By their bits: a block of another is damaged.
            let start = &bytes[block / in_row * in_row * self.block_bytes()..];
            if let (Some(value), Some(expected)) = (codec.of_row(b), codec.of_row(start))
                && value.to_bits() != expected.to_bits()
            {
                return Err(FormatError::RowScale { format: self, block, row: block / in_row, expected, value });
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
            self.codec().pack_row((self.block_elems(), self.block_bytes()), row, (self.stored().spec, record), words);
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
