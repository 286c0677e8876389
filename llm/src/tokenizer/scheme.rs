//! The ways in which text without special tokens becomes tokens.

use super::bpe::{self, Merges};
use super::kind::Kind;
use super::own::{self, Prefix};
use super::split::Splitter;
use super::spm::{self, Spm};
use super::{TokenizerError, keys};
use crate::gguf::Gguf;
use std::collections::HashMap;

/// How text without special tokens becomes tokens.
#[derive(Debug)]
pub(super) enum Scheme {
    /// `gpt2`: words in a printable alphabet of bytes, joined by ranked merges.
    ByteLevel { merges: Merges, byte_ids: [Option<u32>; 256], splitter: Splitter },
    /// `llama`: characters joined by the scores of the tokens that they make.
    SentencePiece(Spm),
    /// Of a [folder](crate::checkpoint): characters, and bytes of those that are no tokens, joined by ranked merges.
    Characters { merges: Merges, byte_ids: [Option<u32>; 256], prefix: Prefix },
}

impl Scheme {
    /// That of a file, by its `tokenizer.ggml.model`.
    pub(super) fn read(
        file: &Gguf,
        model: &str,
        ids: &HashMap<String, u32>,
        kinds: &[Kind],
    ) -> Result<Scheme, TokenizerError> {
        if model == "llama" {
            let space_prefix = file.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
            return Ok(Scheme::SentencePiece(Spm::new(keys::scores(file)?, ids, kinds, space_prefix)?));
        }
        let merges = || -> Result<Merges, TokenizerError> {
            let lines = match file.get("tokenizer.ggml.merges") {
                Some(_) => keys::strings(file, "tokenizer.ggml.merges")?,
                None => Vec::new(),
            };
            Merges::new(&lines, ids)
        };
        match model {
            "gpt2" => {
                let splitter = match file.get(own::EXPRESSIONS) {
                    Some(_) => {
                        let whole_words = file.bool(own::WHOLE_WORDS)?.unwrap_or(false);
                        Splitter::of(&keys::strings(file, own::EXPRESSIONS)?, whole_words)?
                    }
                    None => Splitter::new(file.str("tokenizer.ggml.pre")?)?,
                };
                let byte_ids = bpe::byte_characters().map(|c| ids.get(c.encode_utf8(&mut [0; 4])).copied());
                Ok(Scheme::ByteLevel { merges: merges()?, byte_ids, splitter })
            }
            own::CHARACTERS => {
                let name = file.require_str(own::PREFIX)?;
                let prefix = Prefix::named(name).ok_or_else(|| TokenizerError::Rule { name: name.to_owned() })?;
                Ok(Scheme::Characters { merges: merges()?, byte_ids: spm::byte_ids(ids), prefix })
            }
            other => Err(TokenizerError::Model { model: other.to_owned() }),
        }
    }

    /// The tokens of a text that is not empty; `first`: it begins the whole text.
    pub(super) fn encode(
        &self,
        text: &str,
        first: bool,
        (ids, kinds): (&HashMap<String, u32>, &[Kind]),
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        match self {
            Scheme::SentencePiece(spm) => spm.encode(text, spm.space_prefix, ids, kinds, out),
            Scheme::Characters { merges, byte_ids, prefix } => {
                merges.apply(spm::characters(text, prefix.puts(text, first), ids, byte_ids)?, out);
                Ok(())
            }
            Scheme::ByteLevel { merges, byte_ids, splitter } => {
                for word in splitter.split(text)? {
                    if splitter.whole_words
                        && let Some(&id) = ids.get(&bpe::to_characters(word.as_bytes()))
                    {
                        out.push(id);
                        continue;
                    }
                    let bytes = word.bytes().map(|b| byte_ids[usize::from(b)].ok_or(TokenizerError::Byte { byte: b }));
                    merges.apply(bytes.collect::<Result<_, _>>()?, out);
                }
                Ok(())
            }
        }
    }
}
