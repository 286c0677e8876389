//! What a folder says of text: special tokens and the chat template. The vocabulary is a file of its own.

use super::CheckpointError;
use super::json::{self, Object};
use super::vocabulary::Vocabulary;
use crate::gguf::GgufWriter;
use crate::tokenizer::own;
use serde_json::Value;
use std::path::Path;

const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const GENERATION: &str = "generation_config.json";

/// Writes the keys of tokenizer and chat template. A vocabulary that cannot be used is said to be so in a key.
pub(super) fn keys(folder: &Path, config: Object<'_>, keys: &mut GgufWriter) -> Result<(), CheckpointError> {
    let stated = json::read(folder, TOKENIZER_CONFIG)?.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let stated = Object::of_file(TOKENIZER_CONFIG, &stated)?;
    let generation = json::read(folder, GENERATION)?.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let generation = Object::of_file(GENERATION, &generation)?;
    template(folder, stated, keys)?;
    let used = tokenizer(folder).and_then(|json| {
        let file = Object::of_file(TOKENIZER, &json)?;
        let vocabulary = Vocabulary::read(file)?;
        specials(&vocabulary, [stated, config, generation], keys)?;
        vocabulary.write(file, stated, keys)
    });
    if let Err(reason) = used {
        keys.key(own::REFUSED, reason.to_string());
    }
    Ok(())
}

fn tokenizer(folder: &Path) -> Result<Value, CheckpointError> {
    match json::read(folder, TOKENIZER)? {
        Some(json) => Ok(json),
        None => {
            let path = folder.join(TOKENIZER);
            Err(CheckpointError::Io { path, source: std::io::ErrorKind::NotFound.into() })
        }
    }
}

/// The template of chats: a file of its own goes before what the tokenizer's configuration has, as it does for transformers.
fn template(folder: &Path, stated: Object<'_>, keys: &mut GgufWriter) -> Result<(), CheckpointError> {
    let path = folder.join("chat_template.jinja");
    match std::fs::read_to_string(&path) {
        Ok(source) => {
            keys.key("tokenizer.chat_template", source);
            return Ok(());
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(CheckpointError::io(&path)(e)),
    }
    const FILE: &str = "chat_template.json";
    if let Some(json) = json::read(folder, FILE)? {
        if let Some(source) = Object::of_file(FILE, &json)?.text("chat_template")? {
            keys.key("tokenizer.chat_template", source);
        }
        return Ok(());
    }
    match stated.get("chat_template") {
        Some(Value::Array(all)) => {
            for one in all {
                let one = Object::within(TOKENIZER_CONFIG, "chat_template.", one)?;
                let key = match one.text("name")? {
                    Some("default") => "tokenizer.chat_template",
                    Some("tool_use") => "tokenizer.chat_template.tool_use",
                    _ => continue,
                };
                if let Some(source) = one.text("template")? {
                    keys.key(key, source);
                }
            }
        }
        _ => {
            if let Some(source) = stated.text("chat_template")? {
                keys.key("tokenizer.chat_template", source);
            }
        }
    }
    Ok(())
}

/// Ids that a key gives: one or a list.
fn ids(file: Object<'_>, key: &str) -> Result<Vec<u32>, CheckpointError> {
    let id = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
    let wrong = || file.wrong(key, "is no id of a token, nor a list of them");
    match file.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(all)) => all.iter().map(|v| id(v).ok_or_else(wrong)).collect(),
        Some(one) => Ok(vec![id(one).ok_or_else(wrong)?]),
    }
}

/// Which tokens begin and end texts: those that the tokenizer's configuration names, or the model's gives by their ids.
fn specials(
    vocabulary: &Vocabulary,
    [stated, config, generation]: [Object<'_>; 3],
    keys: &mut GgufWriter,
) -> Result<(), CheckpointError> {
    let names = [("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")];
    for (from, to) in names {
        let key = format!("{from}_token");
        let text = match stated.get(&key) {
            Some(Value::Object(token)) => token.get("content").and_then(Value::as_str),
            _ => stated.text(&key)?,
        };
        let id = match text.and_then(|text| vocabulary.id(text)) {
            Some(id) => Some(id),
            None => ids(config, &format!("{key}_id"))?.first().copied(),
        };
        if let Some(id) = id {
            keys.key(format!("tokenizer.ggml.{to}_token_id"), id);
        }
    }
    let mut ends = ids(generation, "eos_token_id")?;
    ends.extend(ids(config, "eos_token_id")?);
    keys.key(own::ENDS, ends);
    Ok(())
}
