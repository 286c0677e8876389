//! GGUF, the model container of ggml: a bounds-checked reader and a small writer.
//!
//! [`Gguf::open`] reads the header, up to 256 MiB, and checks it once: every count and length
//! against the size of the file before anything is allocated for it, every string for UTF-8, every
//! tensor for type, shape, alignment and place. Afterwards metadata is borrowed from that copy, and tensors are
//! copied out of the file when they are asked for: [`TensorData`]. Nothing panics on any input.
//!
//! Versions 2 and 3, little-endian. As in ggml, tensors are packed in the order of the header, without gaps but for the
//! padding to the alignment. Stricter than ggml: a repeated key is refused, and so are zero dimensions.
//!
//! The file stays open. If another process changes it, later copies of tensors differ, and one that has become too short is an
//! error; no borrow of anything changes.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = warpsmith_llm::gguf::Gguf::open("model.gguf")?;
//! let architecture = file.require_str("general.architecture")?;
//! let table = file.tensor("token_embd.weight").map(|t| (t.info.kind, t.data.len()));
//! # let _ = (architecture, table); Ok(()) }
//! ```

mod ambiguous;
mod cursor;
mod error;
mod reader;
mod source;
mod types;
mod value;
mod writer;

pub use error::GgufError;
pub use reader::{Gguf, Tensor, TensorInfo};
pub use source::TensorData;
pub(crate) use source::{MadeTensor, read_exact_at};
pub use types::{AMBIGUOUS_TYPE_ID, TensorType};
pub use value::{Array, ArrayIter, Value, ValueType};
pub use writer::{GgufWriter, OwnedValue};
