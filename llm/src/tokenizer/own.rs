//! Keys that no GGUF file has: what tokenizers of [folders](crate::checkpoint) say and ggml's keys cannot.

/// Why the vocabulary cannot be used: a string.
pub(crate) const REFUSED: &str = "warpsmith.tokenizer.refused";
/// Ids of tokens that end what is generated, beside those that ggml's keys name.
pub(crate) const ENDS: &str = "warpsmith.tokenizer.ends";
/// Ids of special tokens that take the white space behind them.
pub(crate) const GREEDY: &str = "warpsmith.tokenizer.greedy";
/// The expressions that cut text into words, instead of the name of a rule.
pub(crate) const EXPRESSIONS: &str = "warpsmith.tokenizer.expressions";
/// Whether words that are tokens are taken whole.
pub(crate) const WHOLE_WORDS: &str = "warpsmith.tokenizer.whole_words";
/// Whether text is brought into Unicode's normal form C first.
pub(crate) const COMPOSED: &str = "warpsmith.tokenizer.nfc";
/// Where a space is put in front: the name of a [`Prefix`].
pub(crate) const PREFIX: &str = "warpsmith.tokenizer.prefix";
/// The value of `tokenizer.ggml.model` for BPE of characters, by ranked merges, with tokens for bytes.
pub(crate) const CHARACTERS: &str = "warpsmith.characters";

/// Where a space is put in front of text between special tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// Nowhere.
    #[default]
    Never,
    /// Everywhere.
    Always,
    /// Wherever there is none.
    Missing,
    /// Where there is none, at the begin of the whole text alone.
    First,
}

impl Prefix {
    const ALL: [Prefix; 4] = [Prefix::Never, Prefix::Always, Prefix::Missing, Prefix::First];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Prefix::Never => "never",
            Prefix::Always => "always",
            Prefix::Missing => "missing",
            Prefix::First => "first",
        }
    }

    /// Whether one is put in front of this text; `first`: it begins the whole.
    pub(super) fn puts(self, text: &str, first: bool) -> bool {
        let missing = !text.starts_with([' ', super::spm::SPACE]);
        match self {
            Prefix::Never => false,
            Prefix::Always => true,
            Prefix::Missing => missing,
            Prefix::First => first && missing,
        }
    }

    pub(super) fn named(name: &str) -> Option<Prefix> {
        Prefix::ALL.into_iter().find(|p| p.name() == name)
    }
}
