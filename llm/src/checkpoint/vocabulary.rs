//! The vocabulary of `tokenizer.json`, and how text becomes tokens of it.
//!
//! Two ways are known: byte-level BPE, which cuts text by expressions, and BPE of characters with a token for every byte, as vocabularies
//! of SentencePiece are converted to. What else a file asks for is refused.

use super::CheckpointError;
use super::json::Object;
use crate::gguf::GgufWriter;
use crate::tokenizer::own;
use serde_json::Value;
use std::collections::HashMap;

/// GGUF's types of tokens.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;
/// Ids that no token has, at most: a number that lies costs an error, not memory.
const HOLES: usize = 1 << 16;
/// GPT-2's expression, which the step `ByteLevel` cuts text by unless it is told not to.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// What stands for a space in vocabularies of SentencePiece.
const SPACE: &str = "\u{2581}";

/// Tokens, by id.
pub(super) struct Vocabulary {
    tokens: Vec<String>,
    kinds: Vec<i32>,
    ids: HashMap<String, u32>,
    /// Tokens that take the white space behind them.
    greedy: Vec<u32>,
}

/// How text becomes tokens.
#[derive(Default)]
struct Way {
    /// Expressions that cut it; bytes are characters of an alphabet.
    bytes: Option<Vec<String>>,
    /// Spaces become [`SPACE`].
    spaces: bool,
    /// Whether and where one is put in front.
    prefix: own::Prefix,
    /// Text is brought into Unicode's composed form first.
    composed: bool,
}

impl Vocabulary {
    /// Reads the tokens.
    pub fn read(file: Object<'_>) -> Result<Vocabulary, CheckpointError> {
        let model = model(file)?;
        let fallback = model.flag("byte_fallback")?.unwrap_or(false);
        let vocab = model.map("vocab")?.ok_or_else(|| model.wrong("vocab", "is missing"))?;
        let added = file.list("added_tokens")?.unwrap_or_default();
        let most = vocab.len() + added.len() + HOLES;
        let mut all = Vocabulary { tokens: Vec::new(), kinds: Vec::new(), ids: HashMap::new(), greedy: Vec::new() };
        for (text, id) in vocab {
            let id = id.as_u64().filter(|&id| id < most as u64);
            let id = id.ok_or_else(|| model.wrong("vocab", format!("gives {text:?} no id below {most}")))?;
            let byte = fallback && text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
            all.set(id as usize, text, if byte { BYTE } else { NORMAL });
        }
        for token in added {
            let token = Object::within(file.file, "added_tokens.", token)?;
            let text = token.text("content")?.ok_or_else(|| token.wrong("content", "is missing"))?;
            let id = token.require_count("id")?;
            if id as usize >= most {
                return Err(token.wrong("id", format!("is {id} for {text:?}, expected less than {most}")));
            }
            for key in ["lstrip", "single_word"] {
                if token.flag(key)? == Some(true) {
                    return Err(token.wrong(key, format!("is true for {text:?}, which is not implemented")));
                }
            }
            if token.flag("rstrip")? == Some(true) {
                all.greedy.push(id);
            }
            let special = token.flag("special")?.unwrap_or(false);
            all.set(id as usize, text, if special { CONTROL } else { USER_DEFINED });
        }
        all.greedy.sort_unstable();
        Ok(all)
    }

    fn set(&mut self, id: usize, text: &str, kind: i32) {
        while self.tokens.len() <= id {
            // As llama.cpp's converter names them.
            self.tokens.push(format!("[PAD{}]", self.tokens.len()));
            self.kinds.push(UNUSED);
        }
        self.tokens[id] = text.to_owned();
        self.kinds[id] = kind;
        self.ids.insert(text.to_owned(), id as u32);
    }

    pub fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// Writes the keys.
    pub fn write(&self, file: Object<'_>, stated: Object<'_>, keys: &mut GgufWriter) -> Result<(), CheckpointError> {
        let model = model(file)?;
        let mut way = Way::default();
        if let Some(step) = file.get("normalizer") {
            way.normalizer(file, step)?;
        }
        if let Some(step) = file.get("pre_tokenizer") {
            way.cut(file, step)?;
        }
        let (begins, ends) = self.around(file)?;
        if let Some(begin) = begins {
            keys.key("tokenizer.ggml.bos_token_id", begin);
        }
        if let Some(end) = ends {
            keys.key("tokenizer.ggml.eos_token_id", end);
        }
        let by_config = file.get("post_processor").is_none() && stated.flag("add_bos_token")? == Some(true);
        keys.key("tokenizer.ggml.add_bos_token", begins.is_some() || by_config);
        keys.key("tokenizer.ggml.add_eos_token", ends.is_some());
        keys.key("tokenizer.ggml.tokens", self.tokens.clone());
        keys.key("tokenizer.ggml.token_type", self.kinds.clone());
        keys.key("tokenizer.ggml.merges", merges(model)?);
        keys.key(own::GREEDY, self.greedy.clone());
        keys.key(own::COMPOSED, way.composed);
        let whole_words = model.flag("ignore_merges")?.unwrap_or(false);
        match way {
            Way { bytes: Some(expressions), spaces: false, prefix: own::Prefix::Never, .. } => {
                keys.key("tokenizer.ggml.model", "gpt2");
                keys.key(own::EXPRESSIONS, expressions);
                keys.key(own::WHOLE_WORDS, whole_words);
            }
            Way { bytes: None, spaces: true, prefix, .. } if !whole_words => {
                if model.flag("byte_fallback")? != Some(true) {
                    return Err(
                        model.wrong("byte_fallback", "is not true: characters without a token are not implemented")
                    );
                }
                keys.key("tokenizer.ggml.model", own::CHARACTERS);
                keys.key(own::PREFIX, prefix.name());
            }
            _ => {
                let reason = "is neither byte-level BPE nor BPE of characters whose spaces are U+2581";
                return Err(file.wrong("pre_tokenizer", reason));
            }
        }
        Ok(())
    }

    /// The token before a text and the one behind it.
    fn around(&self, file: Object<'_>) -> Result<(Option<u32>, Option<u32>), CheckpointError> {
        let key = "post_processor";
        let Some(step) = file.get(key) else { return Ok((None, None)) };
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        for step in steps(step, "processors") {
            let own = Object::within(file.file, "post_processor.", step)?;
            match own.text("type")? {
                // It moves offsets alone.
                Some("ByteLevel") => {}
                Some("TemplateProcessing") => {
                    let mut text_seen = false;
                    for piece in own.list("single")?.unwrap_or_default() {
                        let name = piece.get("SpecialToken").and_then(|t| t.get("id")).and_then(Value::as_str);
                        match name {
                            None => text_seen = true,
                            Some(name) => {
                                let id = self.id(name);
                                let id =
                                    id.ok_or_else(|| own.wrong("single", format!("has {name:?}, which is no token")))?;
                                if text_seen { behind.push(id) } else { before.push(id) }
                            }
                        }
                    }
                }
                other => {
                    return Err(own
                        .wrong("type", format!("is {other:?}; `ByteLevel` and `TemplateProcessing` are implemented")));
                }
            }
        }
        if before.len() > 1 || behind.len() > 1 {
            return Err(file.wrong(key, "puts several tokens in front of a text or behind it; one is implemented"));
        }
        Ok((before.pop(), behind.pop()))
    }
}

/// The model, if it is BPE as it is implemented.
fn model(file: Object<'_>) -> Result<Object<'_>, CheckpointError> {
    let model = file.get("model").ok_or_else(|| file.wrong("model", "is missing"))?;
    let model = Object::within(file.file, "model.", model)?;
    // Files of before types were written have BPE where they have merges.
    match model.text("type")? {
        Some("BPE") => {}
        None if model.get("merges").is_some() => {}
        other => return Err(model.wrong("type", format!("is {other:?}; `BPE` is implemented"))),
    }
    for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if model.text(key)?.is_some_and(|text| !text.is_empty()) {
            return Err(model.wrong(key, "is not empty, which is not implemented"));
        }
    }
    if model.number("dropout")?.is_some_and(|p| p != 0.0) {
        return Err(model.wrong("dropout", "is no 0, which is not implemented"));
    }
    Ok(model)
}

/// Merges as GGUF has them, two parts with a space between: `"a b"`, or `["a", "b"]` in newer files.
fn merges(model: Object<'_>) -> Result<Vec<String>, CheckpointError> {
    let wrong = |i: usize| model.wrong("merges", format!("has {i} merges and then what is no two parts"));
    let mut all = Vec::new();
    for (i, merge) in model.list("merges")?.unwrap_or_default().iter().enumerate() {
        match merge {
            Value::String(both) => all.push(both.clone()),
            Value::Array(parts) => match parts.as_slice() {
                // Text has no spaces where it is merged: it is bytes in an alphabet without one, or they were replaced.
                [Value::String(a), Value::String(b)] if a.contains(' ') || b.contains(' ') => {}
                [Value::String(a), Value::String(b)] => all.push(format!("{a} {b}")),
                _ => return Err(wrong(i)),
            },
            _ => return Err(wrong(i)),
        }
    }
    Ok(all)
}

/// The steps of a sequence, or the one step.
fn steps<'a>(step: &'a Value, of: &str) -> Vec<&'a Value> {
    match (step.get("type").and_then(Value::as_str), step.get(of).and_then(Value::as_array)) {
        (Some("Sequence"), Some(all)) => all.iter().flat_map(|step| steps(step, of)).collect(),
        _ => vec![step],
    }
}

/// A pattern as an expression.
fn pattern(step: Object<'_>) -> Result<String, CheckpointError> {
    let pattern = step.map("pattern")?.ok_or_else(|| step.wrong("pattern", "is missing"))?;
    match (pattern.get("Regex").and_then(Value::as_str), pattern.get("String").and_then(Value::as_str)) {
        (Some(expression), _) => Ok(expression.to_owned()),
        (None, Some(text)) => Ok(escaped(text)),
        (None, None) => Err(step.wrong("pattern", "is neither an expression nor a text")),
    }
}

/// An expression that is this text.
fn escaped(text: &str) -> String {
    let special = |c: char| c.is_ascii_punctuation();
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

impl Way {
    fn normalizer(&mut self, file: Object<'_>, step: &Value) -> Result<(), CheckpointError> {
        for step in steps(step, "normalizers") {
            let own = Object::within(file.file, "normalizer.", step)?;
            match own.text("type")? {
                Some("NFC") if !self.spaces => self.composed = true,
                Some("Prepend") if own.text("prepend")? == Some(SPACE) && !self.spaces => {
                    self.prefix = own::Prefix::Always;
                }
                Some("Replace") if pattern(own)? == escaped(" ") && own.text("content")? == Some(SPACE) => {
                    self.spaces = true;
                }
                other => {
                    let known = "`NFC`, and `Prepend` and `Replace` of spaces by U+2581, are implemented";
                    return Err(own.wrong("type", format!("is {}; {known}", other.unwrap_or("missing"))));
                }
            }
        }
        Ok(())
    }

    fn cut(&mut self, file: Object<'_>, step: &Value) -> Result<(), CheckpointError> {
        let mut expressions = Vec::new();
        for step in steps(step, "pretokenizers") {
            let own = Object::within(file.file, "pre_tokenizer.", step)?;
            let kind = own.text("type")?;
            if self.bytes.is_some() {
                return Err(own.wrong("type", "is a step behind `ByteLevel`, which is not implemented"));
            }
            match kind {
                // There are no spaces left to cut at.
                Some("Split") if self.spaces && pattern(own)? == escaped(" ") => {}
                Some("Split") => {
                    let inverted = own.flag("invert")?.unwrap_or(false);
                    match (own.text("behavior")?, inverted) {
                        // Expressions of whole words leave nothing that would be removed.
                        (Some("Isolated"), false) | (Some("Removed"), true) => expressions.push(pattern(own)?),
                        (other, _) => {
                            let other = other.unwrap_or("missing");
                            return Err(own.wrong("behavior", format!("is {other}; `Isolated` is implemented")));
                        }
                    }
                }
                Some("Digits") => {
                    let alone = own.flag("individual_digits")?.unwrap_or(false);
                    expressions.push(if alone { r"\p{N}" } else { r"\p{N}+" }.to_owned());
                }
                Some("ByteLevel") => {
                    if own.flag("add_prefix_space")?.unwrap_or(true) {
                        return Err(own.wrong("add_prefix_space", "is true, which is not implemented"));
                    }
                    if own.flag("use_regex")?.unwrap_or(true) {
                        expressions.push(GPT2.to_owned());
                    }
                    self.bytes = Some(std::mem::take(&mut expressions));
                }
                Some("Metaspace") if !self.spaces && expressions.is_empty() => self.spaces(own)?,
                other => {
                    let known = "`Split`, `Digits`, `ByteLevel` and `Metaspace` are implemented";
                    return Err(own.wrong("type", format!("is {}; {known}", other.unwrap_or("missing"))));
                }
            }
        }
        match expressions.is_empty() {
            true => Ok(()),
            false => {
                Err(file.wrong("pre_tokenizer", "cuts text without `ByteLevel` behind it, which is not implemented"))
            }
        }
    }

    /// The step `Metaspace`: spaces become U+2581, and one is put in front of text that has none.
    fn spaces(&mut self, own: Object<'_>) -> Result<(), CheckpointError> {
        if own.text("replacement")? != Some(SPACE) {
            return Err(own.wrong("replacement", "is not U+2581, which alone is implemented"));
        }
        if own.flag("split")?.unwrap_or(true) {
            return Err(own.wrong("split", "is not false, which alone is implemented"));
        }
        self.prefix = match own.text("prepend_scheme")? {
            Some("first") => own::Prefix::First,
            Some("always") | None => own::Prefix::Missing,
            Some("never") => own::Prefix::Never,
            Some(other) => return Err(own.wrong("prepend_scheme", format!("is {other:?}"))),
        };
        self.spaces = true;
        Ok(())
    }
}
