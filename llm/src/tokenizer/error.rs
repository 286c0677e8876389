//! What can be wrong with the tokenizer keys of a file, or with a text.

use crate::gguf::GgufError;
use std::fmt;

/// Why text cannot be turned into tokens with this file.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A key is missing or of the wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A folder whose `tokenizer.json` is missing, damaged, or asks for what is not implemented.
    #[error("{reason}; give token ids with --tokens instead of text")]
    Folder {
        /// The file and the key, and what is wrong with it.
        reason: String,
    },
    /// A tokenizer model that is neither byte-level BPE nor SentencePiece BPE.
    #[error(
        "tokenizer model `{model}` is not supported (`gpt2` byte-level BPE and `llama` SentencePiece are); give token ids with --tokens instead of text"
    )]
    Model {
        /// `tokenizer.ggml.model`.
        model: String,
    },
    /// The same token text twice.
    #[error("tokens {first} and {second} of tokenizer.ggml.tokens are both {text:?}")]
    DuplicateToken {
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
        /// Their text.
        text: String,
    },
    /// An array of a length that does not fit the others.
    #[error("key `{key}` has {actual} elements, expected {expected} (one per token)")]
    Length {
        /// The key.
        key: &'static str,
        /// Number of tokens.
        expected: usize,
        /// Elements found.
        actual: usize,
    },
    /// A special token id outside the vocabulary.
    #[error("key `{key}` names token {id}, but there are only {tokens} tokens")]
    SpecialId {
        /// The key.
        key: &'static str,
        /// The id.
        id: u32,
        /// Number of tokens.
        tokens: usize,
    },
    /// A merge that is not two parts with a space between them.
    #[error("merge {index} of tokenizer.ggml.merges is {text:?}, expected two parts with a space between them")]
    Merge {
        /// Its number.
        index: usize,
        /// Its text.
        text: String,
    },
    /// The vocabulary has no token for a byte of the text.
    #[error("the vocabulary has no token for byte {byte:#04x} of the text; give token ids with --tokens")]
    Byte {
        /// The byte.
        byte: u8,
    },
    /// A name in `tokenizer.ggml.pre` that no rule is known for.
    #[error(
        "tokenizer.ggml.pre is `{name}`, a rule for splitting text that is not supported; give token ids with --tokens instead of text"
    )]
    Rule {
        /// The name.
        name: String,
    },
    /// A score that cannot be compared.
    #[error("element {index} of tokenizer.ggml.scores is not a number")]
    Score {
        /// Its number.
        index: usize,
    },
    /// The splitting expression failed on this text.
    #[error("the splitting rule `{rule}` failed: {reason}")]
    Split {
        /// Name of the rule.
        rule: String,
        /// What the expression engine said.
        reason: String,
    },
}

/// The text of `Display`: what a `main` that returns the error, or an `unwrap`, prints.
impl fmt::Debug for TokenizerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
