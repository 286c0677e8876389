//! Why a conversation cannot become a prompt.

use crate::gguf::GgufError;
use crate::tokenizer::TokenizerError;

/// Why a conversation cannot become a prompt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The file says nothing of conversations.
    #[error(
        "the file has no chat template (key `tokenizer.chat_template`): it was not made for conversations, or was converted without"
    )]
    Missing,
    /// A key of the file.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The template is not one that can be read.
    #[error("the chat template cannot be read: {reason}")]
    Syntax {
        /// What is wrong, and in which line.
        reason: String,
    },
    /// The template refused the conversation, by `raise_exception`.
    #[error("the chat template refuses the conversation: {reason}")]
    Refused {
        /// What it said.
        reason: String,
    },
    /// The template did something that does not work.
    #[error("the chat template failed: {reason}")]
    Render {
        /// What, and in which line.
        reason: String,
    },
    /// The prompt cannot be turned into tokens.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A stop text without characters would end every reply before it begins.
    #[error("a stop text is empty: every reply would end before it begins")]
    EmptyStop,
}
