//! The arrays of the tokenizer keys.

use super::kind::Kind;
use super::{TokenizerError, own};
use crate::gguf::{Gguf, GgufError, Value};

pub(super) fn strings(file: &Gguf, key: &'static str) -> Result<Vec<String>, TokenizerError> {
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

pub(super) fn kinds(file: &Gguf, tokens: usize) -> Result<Vec<Kind>, TokenizerError> {
    let key = "tokenizer.ggml.token_type";
    let Some(array) = file.array(key)? else { return Ok(vec![Kind::Normal; tokens]) };
    if array.len() != tokens {
        return Err(TokenizerError::Length { key, expected: tokens, actual: array.len() });
    }
    let kinds: Vec<Kind> = array
        .iter()
        .map(|v| match v.as_u64() {
            // ggml: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
            Some(2 | 3) => Kind::Control,
            Some(4) => Kind::UserDefined,
            Some(5) => Kind::Unused,
            Some(6) => Kind::Byte,
            _ => Kind::Normal,
        })
        .collect();
    Ok(kinds)
}

pub(super) fn scores(file: &Gguf) -> Result<Vec<f32>, TokenizerError> {
    let key = "tokenizer.ggml.scores";
    let array = file.array(key)?.ok_or_else(|| GgufError::MissingKey { key: key.to_owned() })?;
    let number = |v| match v {
        Value::F32(x) => Ok(x),
        _ => Err(TokenizerError::Gguf(GgufError::KeyType {
            key: key.to_owned(),
            expected: "an array of f32",
            actual: Value::Array(array).describe(),
        })),
    };
    array.iter().map(number).collect()
}

/// The ids of a list; none where there is no such key.
pub(super) fn ids(file: &Gguf, key: &'static str) -> Result<Vec<u32>, TokenizerError> {
    let Some(array) = file.array(key)? else { return Ok(Vec::new()) };
    let id = |v: Value<'_>| match v.as_u64().and_then(|n| u32::try_from(n).ok()) {
        Some(id) => Ok(id),
        None => Err(TokenizerError::Gguf(GgufError::KeyType {
            key: key.to_owned(),
            expected: "an array of ids",
            actual: Value::Array(array).describe(),
        })),
    };
    array.iter().map(id).collect()
}

/// Special tokens that take the white space behind them, by rising id. GGUF files do not say it; of the vocabularies that are known it
/// are those of Phi-3 with SentencePiece, whose tokenizer.json has `rstrip` for all but three.
pub(super) fn greedy(
    file: &Gguf,
    sentence_piece: bool,
    specials: &[(String, u32)],
) -> Result<Vec<u32>, TokenizerError> {
    if file.get(own::GREEDY).is_some() {
        let mut stated = ids(file, own::GREEDY)?;
        stated.sort_unstable();
        return Ok(stated);
    }
    if !sentence_piece || file.str("general.architecture")? != Some("phi3") {
        return Ok(Vec::new());
    }
    let takes = |text: &str| !["<unk>", "<s>", "<|endoftext|>"].contains(&text);
    let mut greedy: Vec<u32> = specials.iter().filter(|(text, _)| takes(text)).map(|(_, id)| *id).collect();
    greedy.sort_unstable();
    Ok(greedy)
}
