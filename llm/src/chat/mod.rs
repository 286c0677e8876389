//! Conversations as prompts, by the template that a model's file brings.
//!
//! A model that was trained for conversations expects them in a form of its own, which its file says as a Jinja template
//! (`tokenizer.chat_template`). [`ChatTemplate`] renders it as Hugging Face's `apply_chat_template` does and turns the result into
//! tokens: control tokens (`<|im_start|>`) that the template writes become control tokens, and the same characters in a message
//! stay text, so that nobody can end a turn by writing it. [`Tokenizer::is_eog`] says which generated tokens end a reply, and
//! [`Stops`] looks for texts that do.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use warpsmith_llm::chat::{ChatOptions, ChatTemplate, Message};
//! use warpsmith_llm::{gguf::Gguf, tokenizer::Tokenizer};
//! let file = Gguf::open("model.gguf")?;
//! let tokenizer = Tokenizer::from_gguf(&file)?;
//! let template = ChatTemplate::from_gguf(&file, &tokenizer)?;
//! let messages = [Message::new("system", "Be brief."), Message::new("user", "What is a warp?")];
//! let tokens = template.encode(&tokenizer, &messages, &ChatOptions::default())?;
//! # let _ = tokens; Ok(()) }
//! ```
//!
//! Messages may be anything that serialises to a sequence of maps with `role` and `content`: requests that carry `tool_calls` or
//! content in parts reach the template as they are. The template is part of a file that others made: what it may spend is
//! limited, and it reaches nothing but the values that it is given and the time.

mod dialect;
mod error;
mod stop;

use crate::gguf::Gguf;
use crate::tokenizer::Tokenizer;
use minijinja::Environment;
use minijinja::value::{Serde, ValueKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub use error::ChatError;
/// What templates compute with. It deserialises from JSON, and keeps the order of fields, which prompts show.
pub use minijinja::Value;
pub use stop::Stops;

/// What somebody said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A message of this role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into() }
    }
}

/// What a template is told besides the messages.
#[derive(Clone, Debug)]
pub struct ChatOptions {
    /// End with what begins a reply, for the model to go on from.
    pub generation_prompt: bool,
    /// Functions that the model may call, as their schemas.
    pub tools: Option<Value>,
    /// Further variables, such as `enable_thinking`.
    pub variables: BTreeMap<String, Value>,
}

impl Default for ChatOptions {
    fn default() -> Self {
        ChatOptions { generation_prompt: true, tools: None, variables: BTreeMap::new() }
    }
}

/// A model's chat template. See the module's documentation.
#[derive(Debug)]
pub struct ChatTemplate {
    template: Environment<'static>,
    /// For conversations with tools, where the file has a template of its own for them.
    with_tools: Option<Environment<'static>>,
    /// `bos_token` and the like, as templates name them.
    tokens: BTreeMap<&'static str, String>,
}

impl ChatTemplate {
    /// The template of a file.
    pub fn from_gguf(file: &Gguf, tokenizer: &Tokenizer) -> Result<ChatTemplate, ChatError> {
        let source = file.str("tokenizer.chat_template")?.ok_or(ChatError::Missing)?;
        let mut template = Self::new(source, tokenizer)?;
        if let Some(source) = file.str("tokenizer.chat_template.tool_use")? {
            template.with_tools = Some(dialect::compile(source)?);
        }
        Ok(template)
    }

    /// A template in the dialect of Hugging Face's tokenizers.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<ChatTemplate, ChatError> {
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.token(id)).map(str::to_owned);
        let tokens = [
            ("bos_token", tokenizer.bos()),
            ("eos_token", tokenizer.eos()),
            ("unk_token", tokenizer.unknown()),
            ("pad_token", tokenizer.padding()),
        ];
        let tokens = tokens.into_iter().filter_map(|(name, id)| Some((name, text(id)?))).collect();
        Ok(ChatTemplate { template: dialect::compile(source)?, with_tools: None, tokens })
    }

    /// The prompt as text. What messages contain looks in it as what the template wrote: use [`ChatTemplate::encode`] for
    /// tokens.
    pub fn render<M: Serialize>(&self, messages: &[M], options: &ChatOptions) -> Result<String, ChatError> {
        self.rendered(Value::from(Serde(messages)), options, &|text| text.to_owned())
    }

    /// The tokens of the prompt.
    pub fn encode<M: Serialize>(
        &self,
        tokenizer: &Tokenizer,
        messages: &[M],
        options: &ChatOptions,
    ) -> Result<Vec<u32>, ChatError> {
        let messages = Value::from(Serde(messages));
        let mark = unused_character(&[&messages, &Value::from(Serde((&options.tools, &options.variables)))]);
        let text = self.rendered(messages, options, &|text| tokenizer.broken_up(text, mark))?;
        Ok(tokenizer.encode_prompt(&text, mark)?)
    }

    fn rendered(
        &self,
        messages: Value,
        options: &ChatOptions,
        guard: &dyn Fn(&str) -> String,
    ) -> Result<String, ChatError> {
        let mut variables: BTreeMap<String, Value> = BTreeMap::new();
        for (name, value) in &options.variables {
            variables.insert(name.clone(), guarded(value, guard));
        }
        variables.insert("messages".into(), guarded(&messages, guard));
        variables.insert("tools".into(), options.tools.as_ref().map_or(Value::from(()), |tools| guarded(tools, guard)));
        variables.insert("documents".into(), Value::from(()));
        variables.insert("add_generation_prompt".into(), options.generation_prompt.into());
        for (name, text) in &self.tokens {
            variables.insert((*name).to_owned(), text.as_str().into());
        }
        let template = self.with_tools.as_ref().filter(|_| options.tools.is_some()).unwrap_or(&self.template);
        dialect::render(template, Value::from_pairs(variables))
    }
}

/// The value with every text in it, names of fields too, as `guard` gives it.
fn guarded(value: &Value, guard: &dyn Fn(&str) -> String) -> Value {
    match (value.kind(), value.as_str()) {
        (_, Some(text)) => Value::from(guard(text)),
        (ValueKind::Seq, _) => value
            .try_iter()
            .map_or_else(|_| value.clone(), |items| items.map(|item| guarded(&item, guard)).collect::<Vec<_>>().into()),
        (ValueKind::Map, _) => value.try_iter().map_or_else(
            |_| value.clone(),
            |keys| {
                let field = |key: Value| {
                    let inner = value.get_item(&key).map_or(Value::UNDEFINED, |v| guarded(&v, guard));
                    (guarded(&key, guard), inner)
                };
                Value::from_pairs(keys.map(field))
            },
        ),
        _ => value.clone(),
    }
}

/// A character of the private areas that none of these values has.
fn unused_character(values: &[&Value]) -> char {
    let private = |c: &char| *c >= FIRST_PRIVATE;
    let used: BTreeSet<char> =
        values.iter().flat_map(|v| v.to_string().chars().collect::<Vec<_>>()).filter(private).collect();
    // A text that has all of them is no text; it loses one.
    (FIRST_PRIVATE..=char::MAX).find(|c| !used.contains(c)).unwrap_or(FIRST_PRIVATE)
}

/// Where Unicode's two planes for private use begin.
const FIRST_PRIVATE: char = '\u{F0000}';

#[cfg(test)]
mod tests;
