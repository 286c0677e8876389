//! What tokens are for.

/// A type of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Made of text, and shown as it.
    Normal,
    /// Never shown, and never made from text that is not to be parsed: unknown and control tokens.
    Control,
    /// Stored as plain text and always matched as a whole.
    UserDefined,
    /// Never shown.
    Unused,
    /// A byte, written as `<0x0A>`.
    Byte,
}
