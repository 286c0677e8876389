//! Errors of reading a model out of a GGUF file.

use super::Architecture;
use crate::checkpoint::CheckpointError;
use crate::gguf::GgufError;
use gpu_kernels::format::FormatError;
use std::fmt;

/// The architectures that are known, as a sentence lists them.
fn supported() -> String {
    let names = Architecture::ALL.map(|architecture| format!("`{}`", architecture.name()));
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Why a model cannot be run.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The container or one of its keys.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A folder with a checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// An architecture whose forward pass is not known.
    #[error("architecture `{architecture}` is not supported; supported are {}", supported())]
    Architecture {
        /// `general.architecture`.
        architecture: String,
    },
    /// A key whose value makes no model, or one that is not implemented.
    #[error("key `{key}` is {value}: {reason}")]
    Config {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A part of a model that was split into several files.
    #[error("the file is part {part} of {parts} of a split model; join the parts first (llama-gguf-split --merge)")]
    Split {
        /// This part, from 1.
        part: u64,
        /// Number of parts.
        parts: u64,
    },
    /// A tensor that the architecture needs.
    #[error("tensor `{tensor}` is missing; {why}")]
    MissingTensor {
        /// The tensor.
        tensor: String,
        /// What it is needed for.
        why: &'static str,
    },
    /// A tensor of another shape than the keys say.
    #[error("tensor `{tensor}` has the shape {actual:?}, expected {expected:?} (contiguous axis first; {why})")]
    TensorShape {
        /// The tensor.
        tensor: String,
        /// The shape by the keys.
        expected: Vec<u64>,
        /// The shape in the file.
        actual: Vec<u64>,
        /// Where the expected shape comes from.
        why: &'static str,
    },
    /// A tensor of a type for which there are no kernels, or not at this place.
    #[error(
        "tensor `{tensor}` has type {actual}, supported here: {supported}; convert or quantise the model to one of these"
    )]
    TensorType {
        /// The tensor.
        tensor: String,
        /// Its type.
        actual: &'static str,
        /// The types that would do.
        supported: &'static str,
    },
    /// A tensor that changes the result in a way that is not implemented.
    #[error("tensor `{tensor}` is not supported: {reason}; running without it would give wrong text")]
    UnsupportedTensor {
        /// The tensor.
        tensor: String,
        /// What it would do.
        reason: &'static str,
    },
    /// A tensor's bytes: a scale or weight that is not finite, a row that is no whole number of blocks.
    #[error("tensor `{tensor}`: {source}")]
    TensorData {
        /// The tensor.
        tensor: String,
        /// What is wrong, and in which block.
        source: FormatError,
    },
    /// A number of processes that the layers of the model cannot be divided among.
    #[error("the layers of the model cannot be divided among {processes} processes: {reason}")]
    Stages {
        /// How many were asked for.
        processes: usize,
        /// Why not.
        reason: String,
    },
    /// A number of devices that the model cannot be divided among.
    #[error("the model cannot be divided among {devices} devices: {reason}\nhint: it can among {}", listed(fits))]
    Share {
        /// How many were asked for.
        devices: usize,
        /// What of it has no equal parts.
        reason: String,
        /// Numbers of devices that would do.
        fits: Vec<usize>,
    },
}

/// Numbers as a sentence lists them.
fn listed(numbers: &[usize]) -> String {
    let names: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => "none".into(),
    }
}

/// The text of `Display`: what a `main` that returns the error, or an `unwrap`, prints.
impl fmt::Debug for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
