//! What can be wrong with a folder of Hugging Face.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a folder cannot be read as a model.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file that cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that is no JSON of the expected form.
    #[error("{}: {reason}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// A key of a JSON file that is missing, of another type, or asks for what is not implemented.
    #[error("{file}: `{key}` {reason}")]
    Key {
        /// The file.
        file: &'static str,
        /// The key, with those that it is in.
        key: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A family of models whose tensors are not known.
    #[error("config.json: model_type `{model_type}` is not supported; supported are {supported}")]
    ModelType {
        /// `model_type`.
        model_type: String,
        /// Those that are.
        supported: String,
    },
    /// A file that is no safetensors file, or whose header does not fit it.
    #[error("{}: {reason}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file that the index names and the folder does not have.
    #[error("{} is missing; model.safetensors.index.json says that `{tensor}` is in it", path.display())]
    MissingShard {
        /// The file.
        path: PathBuf,
        /// A tensor that should be in it.
        tensor: String,
    },
    /// A tensor that two files have.
    #[error("tensor `{tensor}` is in {} and in {}", first.display(), second.display())]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
        /// A file that has it.
        first: PathBuf,
        /// Another.
        second: PathBuf,
    },
    /// A tensor that the model needs.
    #[error("tensor `{tensor}` is missing")]
    MissingTensor {
        /// The tensor.
        tensor: String,
    },
    /// A tensor that nobody asked for, and that could change what the model computes.
    #[error("tensor `{tensor}` is not supported; running without it could give wrong text")]
    UnknownTensor {
        /// The tensor.
        tensor: String,
    },
    /// A tensor of another shape than those that it belongs to say.
    #[error("tensor `{tensor}` has the shape {actual:?}, expected {expected}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// The shape in the file.
        actual: Vec<usize>,
        /// What it should be, and why.
        expected: String,
    },
    /// A tensor of a type that cannot stand at its place.
    #[error("tensor `{tensor}` has type {actual}, supported here: {supported}")]
    Dtype {
        /// The tensor.
        tensor: String,
        /// Its type.
        actual: String,
        /// The types that would do.
        supported: &'static str,
    },
    /// A way of quantising that is not implemented.
    #[error("quantisation `{method}` is not supported: {reason}")]
    Quantization {
        /// `quant_method`.
        method: String,
        /// What of it, and what is implemented.
        reason: String,
    },
    /// A column of a group that does not exist.
    #[error("tensor `{tensor}` puts column {column} into group {group}, but there are {groups}")]
    GroupIndex {
        /// The tensor.
        tensor: String,
        /// The column.
        column: usize,
        /// What it says.
        group: i32,
        /// Groups that have scales.
        groups: usize,
    },
    /// A scale that is not finite, or too large for a record.
    #[error("tensor `{tensor}` has the scale {value} for row {row}; expected a finite number below {most}")]
    Scale {
        /// The tensor.
        tensor: String,
        /// The row of the matrix.
        row: usize,
        /// The scale.
        value: f32,
        /// What records hold.
        most: f32,
    },
}

impl CheckpointError {
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> CheckpointError + '_ {
        |source| CheckpointError::Io { path: path.to_owned(), source }
    }
}

/// The text of `Display`: what a `main` that returns the error, or an `unwrap`, prints.
impl fmt::Debug for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
