//! Text to tokens and back, from the tokenizer keys of a GGUF file.
//!
//! Only the byte-level BPE of `tokenizer.ggml.model = gpt2` is implemented (Qwen, Llama 3, GPT-2, and most
//! current models). It is our own, because what GGUF stores is exactly what BPE needs — tokens, ranked
//! merges and the name of a splitting rule — and the general tokenizer libraries bring normalisers,
//! trainers and thread pools that a decode loop has no use for. The splitting rules need look-ahead and
//! Unicode classes, which come from `fancy-regex`. Other tokenizer models are refused with a typed error;
//! such models still run on token ids.
//!
//! Encoding is `O(n log n)` in the length of the text. Any text can be encoded if the vocabulary has a
//! token for every byte; decoding never fails: unknown ids give nothing, and bytes that are not UTF-8 are
//! shown as U+FFFD once the sequence cannot become valid any more.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use warpsmith_host::{gguf::Gguf, tokenizer::{Special, Tokenizer}};
//! let tokenizer = Tokenizer::from_gguf(&Gguf::open("model.gguf")?)?;
//! let ids = tokenizer.encode("Hi, GPU!", Special::Parse)?;
//! let mut text = tokenizer.stream();
//! for id in ids { print!("{}", text.push(id)); }
//! println!("{}", text.finish());
//! # Ok(()) }
//! ```

mod bpe;
mod split;

use crate::gguf::{Gguf, GgufError, Value};
use bpe::Merges;
use split::Splitter;
use std::collections::HashMap;

/// Why text cannot be turned into tokens with this file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A key is missing or of the wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A tokenizer model other than byte-level BPE.
    #[error(
        "tokenizer model `{model}` is not supported yet (`gpt2` byte-level BPE is); give token ids with --tokens instead of text"
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
    /// The splitting expression failed on this text.
    #[error("the splitting rule `{rule}` failed: {reason}")]
    Split {
        /// Name of the rule.
        rule: String,
        /// What the expression engine said.
        reason: String,
    },
}

/// What to do with the text of control tokens (such as `<|im_start|>`) inside a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Turn it into the control token: for text that the program or its user wrote as a prompt.
    Parse,
    /// Encode it as ordinary characters: for text from elsewhere.
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    /// Never shown: unknown, control and unused tokens.
    Control,
    /// Stored as plain text and always matched as a whole.
    UserDefined,
}

/// A byte-level BPE tokenizer. See the module's documentation.
#[derive(Debug)]
pub struct Tokenizer {
    tokens: Vec<String>,
    kinds: Vec<Kind>,
    ids: HashMap<String, u32>,
    merges: Merges,
    byte_ids: [Option<u32>; 256],
    splitter: Splitter,
    specials: Vec<(String, u32)>,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    whole_words_first: bool,
}

impl Tokenizer {
    /// Reads the tokenizer keys of a file.
    pub fn from_gguf(file: &Gguf) -> Result<Self, TokenizerError> {
        let model = file.require_str("tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(TokenizerError::Model { model: model.to_owned() });
        }
        let tokens = strings(file, "tokenizer.ggml.tokens")?;
        let merges = match file.get("tokenizer.ggml.merges") {
            Some(_) => strings(file, "tokenizer.ggml.merges")?,
            None => Vec::new(),
        };
        let kinds = kinds(file, tokens.len())?;
        let rule = file.str("tokenizer.ggml.pre")?;
        let splitter = Splitter::new(rule)?;

        let mut ids = HashMap::with_capacity(tokens.len());
        for (id, text) in (0u32..).zip(&tokens) {
            if let Some(first) = ids.insert(text.clone(), id) {
                return Err(TokenizerError::DuplicateToken { first, second: id, text: text.clone() });
            }
        }
        let merges = Merges::new(&merges, &ids)?;
        let byte_ids = bpe::byte_characters().map(|c| ids.get(c.encode_utf8(&mut [0; 4])).copied());
        let mut specials: Vec<(String, u32)> = (0u32..)
            .zip(&tokens)
            .filter(|(id, t)| kinds[*id as usize] != Kind::Normal && !t.is_empty())
            .map(|(id, t)| (t.clone(), id))
            .collect();
        // Longest first: of two that match at one place, the longer one is meant.
        specials.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then(a.1.cmp(&b.1)));

        let special = |key: &'static str| -> Result<Option<u32>, TokenizerError> {
            match file.u32(key)? {
                Some(id) if id as usize >= tokens.len() => {
                    Err(TokenizerError::SpecialId { key, id, tokens: tokens.len() })
                }
                other => Ok(other),
            }
        };
        let bos = special("tokenizer.ggml.bos_token_id")?;
        let eos = special("tokenizer.ggml.eos_token_id")?;
        let add_bos = file.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(splitter.llama3());
        let add_eos = file.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false);
        let whole_words_first = splitter.llama3();
        Ok(Tokenizer {
            tokens,
            kinds,
            ids,
            merges,
            byte_ids,
            splitter,
            specials,
            bos,
            eos,
            add_bos,
            add_eos,
            whole_words_first,
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

    /// Whether [`Tokenizer::encode`] puts the start token in front.
    pub fn adds_bos(&self) -> bool {
        self.add_bos && self.bos.is_some()
    }

    /// The token's text as stored (in the byte-level alphabet), if there is such a token.
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
        let mut plain = 0;
        for (range, id) in self.special_places(text, special) {
            self.encode_plain(&text[plain..range.start], &mut out)?;
            out.push(id);
            plain = range.end;
        }
        self.encode_plain(&text[plain..], &mut out)?;
        if self.add_eos {
            out.extend(self.eos);
        }
        Ok(out)
    }

    /// Where whole special tokens stand in the text, from left to right.
    fn special_places(&self, text: &str, special: Special) -> Vec<(std::ops::Range<usize>, u32)> {
        let mut places: Vec<(std::ops::Range<usize>, u32)> = Vec::new();
        let wanted = |id: u32| match self.kinds[id as usize] {
            Kind::Normal => false,
            Kind::Control => special == Special::Parse,
            Kind::UserDefined => true,
        };
        // Longest token first; a place that is taken stays taken.
        for (token, id) in self.specials.iter().filter(|(_, id)| wanted(*id)) {
            for (start, _) in text.match_indices(token.as_str()) {
                let end = start + token.len();
                let before = places.partition_point(|(r, _)| r.end <= start);
                if places.get(before).is_none_or(|(r, _)| r.start >= end) {
                    places.insert(before, (start..end, *id));
                }
            }
        }
        places
    }

    fn encode_plain(&self, text: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        for word in self.splitter.split(text)? {
            if self.whole_words_first
                && let Some(&id) = self.ids.get(&bpe::to_characters(word.as_bytes()))
            {
                out.push(id);
                continue;
            }
            let bytes = word.bytes().map(|b| self.byte_ids[usize::from(b)].ok_or(TokenizerError::Byte { byte: b }));
            self.merges.apply(bytes.collect::<Result<_, _>>()?, out);
        }
        Ok(())
    }

    /// The bytes that a token stands for: nothing for control tokens and unknown ids.
    pub fn bytes(&self, id: u32) -> Vec<u8> {
        let Some(text) = self.tokens.get(id as usize) else { return Vec::new() };
        match self.kinds[id as usize] {
            Kind::Control => Vec::new(),
            Kind::UserDefined => text.as_bytes().to_vec(),
            // A token with characters outside the byte alphabet is stored as plain text.
            Kind::Normal => bpe::to_bytes(text).unwrap_or_else(|| text.as_bytes().to_vec()),
        }
    }

    /// The text of some tokens.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut stream = self.stream();
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// A decoder for tokens that arrive one by one.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream { tokenizer: self, pending: Vec::new() }
    }
}

/// Turns tokens into text as they arrive; a character that is spread over several tokens appears when
/// it is complete.
#[derive(Clone, Debug)]
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    pending: Vec<u8>,
}

impl TextStream<'_> {
    /// The text that this token completes, possibly none.
    pub fn push(&mut self, id: u32) -> String {
        self.pending.extend(self.tokenizer.bytes(id));
        let mut text = String::new();
        let mut done = 0;
        loop {
            match std::str::from_utf8(&self.pending[done..]) {
                Ok(valid) => {
                    text.push_str(valid);
                    done = self.pending.len();
                    break;
                }
                Err(e) => {
                    let (valid, rest) = self.pending[done..].split_at(e.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    done += valid.len();
                    // No error length: an unfinished character, to be continued by the next token.
                    let Some(bad) = e.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    done += bad.min(rest.len());
                }
            }
        }
        self.pending.drain(..done);
        text
    }

    /// What is left at the end: an unfinished character shows as U+FFFD.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

fn strings(file: &Gguf, key: &'static str) -> Result<Vec<String>, TokenizerError> {
    let array = file.array(key)?.ok_or_else(|| GgufError::MissingKey { key: key.to_owned() })?;
    let mut out = Vec::new();
    for value in array.iter() {
        match value {
            Value::String(s) => out.push(s.to_owned()),
            _ => {
                return Err(TokenizerError::Gguf(GgufError::KeyType {
                    key: key.to_owned(),
                    expected: "an array of strings",
                    actual: Value::Array(array).describe(),
                }));
            }
        }
    }
    Ok(out)
}

fn kinds(file: &Gguf, tokens: usize) -> Result<Vec<Kind>, TokenizerError> {
    let key = "tokenizer.ggml.token_type";
    let Some(array) = file.array(key)? else { return Ok(vec![Kind::Normal; tokens]) };
    if array.len() != tokens {
        return Err(TokenizerError::Length { key, expected: tokens, actual: array.len() });
    }
    let kinds: Vec<Kind> = array
        .iter()
        .map(|v| match v.as_u64() {
            // ggml: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
            Some(2 | 3 | 5) => Kind::Control,
            Some(4) => Kind::UserDefined,
            _ => Kind::Normal,
        })
        .collect();
    Ok(kinds)
}

#[cfg(test)]
mod tests;
