//! Errors of the GGUF reader and writer.

use std::fmt;
use std::path::PathBuf;

/// Why a file is not a GGUF file that can be used, or why a key cannot be read as asked.
///
/// Every offset is in bytes from the start of the file.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The operating system refused the file.
    #[error("cannot read {path}: {source}")]
    Io {
        /// File asked for.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Bytes that were there when the file was opened cannot be read.
    #[error(
        "cannot read {needed} bytes of {what} at offset {offset}: {source}; was the file changed since it was opened?"
    )]
    Read {
        /// What they are, with the name of the tensor.
        what: String,
        /// Where they start.
        offset: u64,
        /// How many there were.
        needed: u64,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A header that is larger than any model's.
    #[error("the header is larger than {most} bytes, which no model needs: the file is corrupt")]
    HeaderSize {
        /// Bytes that are read of it at most.
        most: u64,
    },
    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file: it starts with bytes {found:02x?}, expected 47 47 55 46 (`GGUF`)")]
    Magic {
        /// The first bytes of the file, at most four.
        found: Vec<u8>,
    },
    /// The file was written on or for a big-endian machine.
    #[error(
        "big-endian GGUF (version field {field:#010x}) is not supported; convert the model again on a little-endian machine"
    )]
    BigEndian {
        /// The version field as read in little-endian order.
        field: u32,
    },
    /// A version whose layout differs, or that does not exist.
    #[error(
        "GGUF version {version} is not supported (2 and 3 are; version 1 used 32-bit lengths); convert the model again with a current converter"
    )]
    Version {
        /// The version that the file claims.
        version: u32,
    },
    /// The file ends before something that it announces.
    #[error(
        "{what} needs {needed} bytes at offset {offset}, but only {available} are left: the file is truncated or corrupt"
    )]
    Truncated {
        /// What was being read, with its key or tensor name.
        what: String,
        /// Where it starts.
        offset: u64,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that the file still has.
        available: u64,
    },
    /// A count that cannot fit into the file, found before anything is allocated for it.
    #[error(
        "{what} at offset {offset} announces {count} entries, but {available} bytes can hold at most {most}: the file is corrupt"
    )]
    Count {
        /// What is counted, with its key where there is one.
        what: String,
        /// Where the count stands.
        offset: u64,
        /// The announced count.
        count: u64,
        /// Bytes left in the file after the count.
        available: u64,
        /// The greatest count that these bytes could hold.
        most: u64,
    },
    /// A string that is not UTF-8, or a name with a NUL byte.
    #[error("{what} at offset {offset} is not valid text (UTF-8, and no NUL in names)")]
    Text {
        /// Which string, with its key or tensor name.
        what: String,
        /// Where its bytes start.
        offset: u64,
    },
    /// A key or tensor name of a length that the format forbids.
    #[error("{what} at offset {offset} has a name of {length} bytes, expected 1 to {most}")]
    NameLength {
        /// Which key or tensor, by number.
        what: String,
        /// Where the length stands.
        offset: u64,
        /// The length found.
        length: u64,
        /// The greatest length allowed.
        most: u64,
    },
    /// The same key twice.
    #[error("key `{key}` at offset {offset} occurs a second time")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Where the second one starts.
        offset: u64,
    },
    /// The same tensor name twice.
    #[error("tensor `{tensor}` at offset {offset} occurs a second time")]
    DuplicateTensor {
        /// The name.
        tensor: String,
        /// Where the second one starts.
        offset: u64,
    },
    /// A metadata value type outside 0..=12.
    #[error("key `{key}` has value type {id} at offset {offset}; GGUF defines 0 to 12")]
    ValueType {
        /// The key.
        key: String,
        /// The type id found.
        id: u32,
        /// Where it stands.
        offset: u64,
    },
    /// An array whose elements are arrays.
    #[error("key `{key}` at offset {offset} is an array of arrays, which GGUF readers do not support")]
    NestedArray {
        /// The key.
        key: String,
        /// Where the element type stands.
        offset: u64,
    },
    /// A boolean byte that is neither 0 nor 1.
    #[error("key `{key}` at offset {offset} holds {value} where a boolean is 0 or 1")]
    Bool {
        /// The key.
        key: String,
        /// Where the byte stands.
        offset: u64,
        /// The byte.
        value: u8,
    },
    /// `general.alignment` is not a power of two.
    #[error("general.alignment is {value}, expected a power of two")]
    Alignment {
        /// The value found.
        value: u32,
    },
    /// More than four dimensions, or none.
    #[error("tensor `{tensor}` at offset {offset} has {count} dimensions, expected 1 to 4")]
    Dimensions {
        /// The tensor.
        tensor: String,
        /// Where the count stands.
        offset: u64,
        /// The count.
        count: u32,
    },
    /// A dimension of zero, or a product of dimensions that does not fit.
    #[error("tensor `{tensor}` at offset {offset} has the impossible shape {dims:?}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// Where the shape stands.
        offset: u64,
        /// The dimensions, contiguous axis first.
        dims: Vec<u64>,
    },
    /// A tensor type id that ggml does not define.
    #[error("tensor `{tensor}` at offset {offset} has type id {id}, which is not a known ggml type{note}")]
    UnknownType {
        /// The tensor.
        tensor: String,
        /// Where the id stands.
        offset: u64,
        /// The id.
        id: u32,
        /// What is known about this id, or nothing.
        note: &'static str,
    },
    /// A tensor that is made of others, which cannot be read.
    #[error("{source}")]
    Made {
        /// What is wrong with them.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Type id 42, of which three incompatible layouts exist, and none or several fit.
    #[error(
        "tensor `{tensor}` at offset {offset} has type id 42, for which three incompatible layouts are in use (ggml Q2_0: 64 weights in 18 bytes; \
         older PrismML Q2_0: 128 in 34 with the scale first; OxiBonsai TQ2_0_g128: 128 in 34 with the scale last), and {reason}; \
         a wrong guess would load and give noise; convert the model again to a type with an id of its own"
    )]
    AmbiguousType {
        /// The tensor.
        tensor: String,
        /// Where its entry stands.
        offset: u64,
        /// Why it cannot be told which.
        reason: &'static str,
    },
    /// A row that is not a whole number of blocks.
    #[error(
        "tensor `{tensor}` has rows of {row} elements, which is not a multiple of the {block} elements of a {type_name} block"
    )]
    RowLength {
        /// The tensor.
        tensor: String,
        /// Elements in a row (the first dimension).
        row: u64,
        /// Elements in a block.
        block: u64,
        /// The type's name.
        type_name: &'static str,
    },
    /// A tensor that does not start at a multiple of the alignment.
    #[error("tensor `{tensor}` starts at data offset {start}, which is not a multiple of the alignment {alignment}")]
    Misaligned {
        /// The tensor.
        tensor: String,
        /// Its offset from the start of the data section.
        start: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// A tensor that reaches past the end of the file.
    #[error(
        "tensor `{tensor}` takes {bytes} bytes at data offset {start} (data begins at {data}), but the file has only {file} bytes: it is truncated or corrupt"
    )]
    OutsideFile {
        /// The tensor.
        tensor: String,
        /// Its offset from the start of the data section.
        start: u64,
        /// Its size.
        bytes: u64,
        /// Where the data section starts.
        data: u64,
        /// The size of the file.
        file: u64,
    },
    /// Two tensors that share bytes.
    #[error(
        "tensors `{first}` and `{second}` overlap: the first ends at data offset {end}, the second starts at {start}"
    )]
    Overlap {
        /// The tensor that starts earlier.
        first: String,
        /// The tensor that starts inside it.
        second: String,
        /// End of the first, from the start of the data section.
        end: u64,
        /// Start of the second, from the start of the data section.
        start: u64,
    },
    /// A tensor that does not follow the one before it.
    #[error(
        "tensor `{tensor}` starts at data offset {start}, expected {expected}: tensors are stored in the order of the header, each padded to the alignment {alignment}, without gaps; convert the model again"
    )]
    Gap {
        /// The tensor.
        tensor: String,
        /// Its offset from the start of the data section.
        start: u64,
        /// Where the tensor before it ends, padded.
        expected: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// A required key is absent.
    #[error("key `{key}` is missing; without it the model cannot be run")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A key holds a value of another type.
    #[error("key `{key}` holds {actual}, expected {expected}")]
    KeyType {
        /// The key.
        key: String,
        /// What was expected.
        expected: &'static str,
        /// What the file holds.
        actual: String,
    },
    /// A tensor handed to the writer does not have the bytes that its shape needs.
    #[error("tensor `{tensor}` needs {expected} bytes for its shape, got {actual}")]
    WriteLength {
        /// The tensor.
        tensor: String,
        /// Bytes that shape and type need.
        expected: u64,
        /// Bytes given.
        actual: u64,
    },
}

/// The text of `Display`: what a `main` that returns the error, or an `unwrap`, prints.
impl fmt::Debug for GgufError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
