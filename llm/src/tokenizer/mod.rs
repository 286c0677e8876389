//! Text to tokens and back, from the tokenizer keys of a GGUF file.
//!
//! Of [folders](crate::checkpoint) the file `tokenizer.json` becomes such keys, and some of its own.
//!
//! Two kinds of `tokenizer.ggml.model` are implemented: `gpt2`, the byte-level BPE of Qwen, Llama 3, GPT-2 and most
//! current models, and `llama`, the SentencePiece BPE of Llama 2 and its relatives, with the rules of llama.cpp where
//! they differ from SentencePiece's (a space is put in front of what follows every special token). They are our own,
//! because what GGUF stores is exactly what they need — tokens with ranked merges and the name of a splitting rule, or
//! tokens with scores — and the general tokenizer libraries read other files and bring normalisers, trainers and thread
//! pools that a decode loop has no use for. The splitting rules need look-ahead and Unicode classes, which come from
//! `fancy-regex`. Other tokenizer models and splitting rules are refused with a typed error that names them; such
//! models still run on token ids.
//!
//! Encoding is `O(n log n)` in the length of the text. Any text can be encoded if the vocabulary has a
//! token for every byte; decoding never fails: unknown ids give nothing, and bytes that are not UTF-8 are
//! shown as U+FFFD once the sequence cannot become valid any more.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use warpsmith_llm::{gguf::Gguf, tokenizer::{Special, Tokenizer}};
//! let tokenizer = Tokenizer::from_gguf(&Gguf::open("model.gguf")?)?;
//! let ids = tokenizer.encode("Hi, GPU!", Special::Parse)?;
//! let mut text = tokenizer.stream();
//! for id in ids { print!("{}", text.push(id)); }
//! println!("{}", text.finish());
//! # Ok(()) }
//! ```

mod bpe;
mod eog;
mod error;
mod keys;
mod kind;
pub(crate) mod own;
mod scheme;
mod split;
mod spm;
mod stream;

use crate::gguf::Gguf;
use kind::Kind;
use own::Prefix;
use scheme::Scheme;
use std::collections::{BTreeMap, HashMap};
use unicode_normalization::UnicodeNormalization;

pub use error::TokenizerError;
pub use stream::TextStream;

/// What to do with the text of control tokens (such as `<|im_start|>`) inside a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Turn it into the control token: for text that the program or its user wrote as a prompt.
    Parse,
    /// Encode it as ordinary characters: for text from elsewhere.
    Text,
}

/// A tokenizer. See the module's documentation.
#[derive(Debug)]
pub struct Tokenizer {
    tokens: Vec<String>,
    kinds: Vec<Kind>,
    ids: HashMap<String, u32>,
    scheme: Scheme,
    specials: Vec<(String, u32)>,
    bos: Option<u32>,
    eos: Option<u32>,
    unknown: Option<u32>,
    padding: Option<u32>,
    eog: Vec<u32>,
    /// Special tokens that take the white space behind them, by rising id.
    greedy: Vec<u32>,
    /// Text is brought into Unicode's normal form C.
    composed: bool,
    add_bos: bool,
    add_eos: bool,
}

impl Tokenizer {
    /// Reads the tokenizer keys of a file.
    pub fn from_gguf(file: &Gguf) -> Result<Self, TokenizerError> {
        if let Some(reason) = file.str(own::REFUSED)? {
            return Err(TokenizerError::Folder { reason: reason.to_owned() });
        }
        let model = file.require_str("tokenizer.ggml.model")?;
        let sentence_piece = model == "llama";
        let tokens = keys::strings(file, "tokenizer.ggml.tokens")?;
        let mut kinds = keys::kinds(file, tokens.len())?;
        let mut ids = HashMap::with_capacity(tokens.len());
        for (id, text) in (0u32..).zip(&tokens) {
            if let Some(first) = ids.insert(text.clone(), id) {
                return Err(TokenizerError::DuplicateToken { first, second: id, text: text.clone() });
            }
        }
        let scheme = Scheme::read(file, model, &ids, &kinds)?;
        let special = |key: &'static str| -> Result<Option<u32>, TokenizerError> {
            match file.u32(key)? {
                Some(id) if id as usize >= tokens.len() => {
                    Err(TokenizerError::SpecialId { key, id, tokens: tokens.len() })
                }
                other => Ok(other),
            }
        };
        let named = |key, default: u32| match special(key)? {
            // SentencePiece's own ids, where the file has such tokens.
            None if sentence_piece && kinds.get(default as usize) == Some(&Kind::Control) => Ok(Some(default)),
            other => Ok::<_, TokenizerError>(other),
        };
        let bos = named("tokenizer.ggml.bos_token_id", 1)?;
        let eos = named("tokenizer.ggml.eos_token_id", 2)?;
        let unknown = named("tokenizer.ggml.unknown_token_id", 0)?;
        let padding = special("tokenizer.ggml.padding_token_id")?;
        let mut stated = eog::KEYS.iter().map(|key| special(key)).collect::<Result<Vec<_>, _>>()?;
        for id in keys::ids(file, own::ENDS)? {
            if id as usize >= tokens.len() {
                return Err(TokenizerError::SpecialId { key: own::ENDS, id, tokens: tokens.len() });
            }
            stated.push(Some(id));
        }
        let eog = eog::find(&ids, &mut kinds, eos, &stated);
        let mut specials: Vec<(String, u32)> = (0u32..)
            .zip(&tokens)
            .filter(|(id, t)| matches!(kinds[*id as usize], Kind::Control | Kind::UserDefined) && !t.is_empty())
            .map(|(id, t)| (t.clone(), id))
            .collect();
        let greedy = keys::greedy(file, sentence_piece, &specials)?;
        // Longest first: of two that match at one place, the longer one is meant.
        specials.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then(a.1.cmp(&b.1)));

        let bos_by_default = match &scheme {
            Scheme::ByteLevel { splitter, .. } => splitter.starts_text,
            Scheme::SentencePiece(_) | Scheme::Characters { .. } => true,
        };
        let add_bos = file.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(bos_by_default);
        let add_eos = file.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false);
        Ok(Tokenizer {
            tokens,
            kinds,
            ids,
            scheme,
            specials,
            bos,
            eos,
            unknown,
            padding,
            eog,
            greedy,
            composed: file.bool(own::COMPOSED)?.unwrap_or(false),
            add_bos,
            add_eos,
        })
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The token that starts a text, if the file names one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text, if the file names one.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The token for what the vocabulary does not have, if the file names one.
    pub fn unknown(&self) -> Option<u32> {
        self.unknown
    }

    /// The token that fills up batches in training, if the file names one.
    pub fn padding(&self) -> Option<u32> {
        self.padding
    }

    /// The tokens that end what a model generates (EOG, end of generation), by rising id: the end of a text, of a turn, of a message.
    pub fn eog(&self) -> &[u32] {
        &self.eog
    }

    /// Whether this token is one of [`eog`](Self::eog).
    pub fn is_eog(&self, id: u32) -> bool {
        self.eog.binary_search(&id).is_ok()
    }

    /// Whether [`Tokenizer::encode`] puts the start token in front.
    pub fn adds_bos(&self) -> bool {
        self.add_bos && self.bos.is_some()
    }

    /// The token's text as stored (in the byte-level alphabet, or with U+2581 for a space), if there is such a token.
    pub fn token(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize).map(String::as_str)
    }

    /// The token with this stored text.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// The tokens of a text, with start and end tokens where the file asks for them.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        let mut out = Vec::new();
        if self.add_bos {
            out.extend(self.bos);
        }
        self.encode_pieces(text, special, None, &mut out)?;
        if self.add_eos {
            out.extend(self.eos);
        }
        Ok(out)
    }

    /// The text between special tokens without `mark`, and the special tokens.
    fn encode_pieces(
        &self,
        text: &str,
        special: Special,
        mark: Option<char>,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut plain = 0;
        let encode = |piece: &str, first: bool, out: &mut Vec<u32>| match mark {
            Some(mark) if piece.contains(mark) => self.encode_plain(&piece.replace(mark, ""), first, out),
            _ => self.encode_plain(piece, first, out),
        };
        for (range, id) in self.special_places(text, special) {
            encode(text.get(plain..range.start).unwrap_or_default(), plain == 0, out)?;
            out.push(id);
            plain = range.end;
            if self.greedy.binary_search(&id).is_ok() {
                let rest = &text[plain..];
                plain += rest.len() - rest.trim_start().len();
            }
        }
        encode(&text[plain..], plain == 0, out)
    }

    /// The text with `mark` inside everything that would be parsed as a control token. [`Tokenizer::encode_prompt`] takes the
    /// marks away again.
    pub(crate) fn broken_up(&self, text: &str, mark: char) -> String {
        let mut text = text.to_owned();
        loop {
            let inside = |range: &std::ops::Range<usize>| {
                let mut characters = text[range.clone()].char_indices().skip(1);
                characters.next().map(|(at, _)| range.start + at)
            };
            let control = |id: u32| self.kinds.get(id as usize) == Some(&Kind::Control);
            let places = self.special_places(&text, Special::Parse);
            let marks: Vec<usize> = places.iter().filter(|p| control(p.1)).filter_map(|p| inside(&p.0)).collect();
            // Breaking up one may leave another that began within it.
            if marks.is_empty() {
                return text;
            }
            let mut marked = String::with_capacity(text.len() + marks.len() * mark.len_utf8());
            let mut done = 0;
            for at in marks {
                marked.push_str(&text[done..at]);
                marked.push(mark);
                done = at;
            }
            marked.push_str(&text[done..]);
            text = marked;
        }
    }

    /// The tokens of a whole prompt: special tokens are parsed but where a `mark` is in them. The start token stands in front
    /// if the file asks for it, once.
    pub(crate) fn encode_prompt(&self, text: &str, mark: char) -> Result<Vec<u32>, TokenizerError> {
        let mut out = Vec::new();
        self.encode_pieces(text, Special::Parse, Some(mark), &mut out)?;
        if let Some(bos) = self.bos.filter(|bos| self.add_bos && out.first() != Some(bos)) {
            out.insert(0, bos);
        }
        Ok(out)
    }

    /// Where whole special tokens stand in the text, from left to right.
    fn special_places(&self, text: &str, special: Special) -> Vec<(std::ops::Range<usize>, u32)> {
        // By their starts: none overlaps another, so that the last that starts before an end is the only one to look at.
        let mut places: BTreeMap<usize, (usize, u32)> = BTreeMap::new();
        let wanted = |id: u32| match self.kinds[id as usize] {
            Kind::Normal | Kind::Unused | Kind::Byte => false,
            Kind::Control => special == Special::Parse,
            Kind::UserDefined => true,
        };
        // Longest token first; a place that is taken stays taken.
        for (token, id) in self.specials.iter().filter(|(t, id)| t.len() <= text.len() && wanted(*id)) {
            for (start, _) in text.match_indices(token.as_str()) {
                let end = start + token.len();
                if places.range(..end).next_back().is_none_or(|(_, place)| place.0 <= start) {
                    places.insert(start, (end, *id));
                }
            }
        }
        places.into_iter().map(|(start, (end, id))| (start..end, id)).collect()
    }

    /// The tokens of text without special tokens; `first`: it begins the whole text.
    fn encode_plain(&self, text: &str, first: bool, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if text.is_empty() {
            return Ok(());
        }
        let composed: String;
        let text = match self.composed {
            true => {
                composed = text.nfc().collect();
                &composed
            }
            false => text,
        };
        self.scheme.encode(text, first, (&self.ids, &self.kinds), out)
    }

    /// The bytes that a token stands for: nothing for control tokens and unknown ids.
    pub fn bytes(&self, id: u32) -> Vec<u8> {
        let Some(text) = self.tokens.get(id as usize) else { return Vec::new() };
        match (self.kinds[id as usize], &self.scheme) {
            (Kind::Control | Kind::Unused, _) => Vec::new(),
            (Kind::UserDefined, Scheme::ByteLevel { .. } | Scheme::SentencePiece(_)) => text.as_bytes().to_vec(),
            (Kind::Byte, Scheme::SentencePiece(_) | Scheme::Characters { .. }) => spm::byte(text).into_iter().collect(),
            (_, Scheme::SentencePiece(_) | Scheme::Characters { .. }) => text.replace(spm::SPACE, " ").into_bytes(),
            // A token with characters outside the byte alphabet is stored as plain text.
            (_, Scheme::ByteLevel { .. }) => bpe::to_bytes(text).unwrap_or_else(|| text.as_bytes().to_vec()),
        }
    }

    /// The text of some tokens, which start a text.
    pub fn decode(&self, ids: &[u32]) -> String {
        collect(self.stream(), ids)
    }

    /// The text of some tokens that go on from others.
    pub fn decode_continuation(&self, ids: &[u32]) -> String {
        collect(self.continue_stream(), ids)
    }

    /// A decoder for tokens that arrive one by one, from the start of a text: the space that [`Tokenizer::encode`]
    /// puts in front of a text where the file asks for it is not shown.
    pub fn stream(&self) -> TextStream<'_> {
        let strip = match &self.scheme {
            Scheme::ByteLevel { .. } => false,
            Scheme::SentencePiece(spm) => spm.space_prefix,
            Scheme::Characters { prefix, .. } => *prefix != Prefix::Never,
        };
        TextStream::new(self, strip)
    }

    /// The same for tokens that go on from others.
    pub fn continue_stream(&self) -> TextStream<'_> {
        TextStream::new(self, false)
    }
}

fn collect(mut stream: TextStream<'_>, ids: &[u32]) -> String {
    let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
    text.push_str(&stream.finish());
    text
}

#[cfg(test)]
mod spm_tests;
#[cfg(test)]
mod tests;
