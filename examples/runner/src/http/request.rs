//! The bodies of requests: which fields there are, and what they may say.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use warpsmith_host::chat::{self, ChatOptions, Stops};
use warpsmith_host::decode::{DecodeError, Sampling};

use super::error::ApiError;
use super::reply::Shape;

/// Texts in `stop` at most, and bytes in each: every token is compared with all of them.
const STOPS: (usize, usize) = (16, 256);

/// Most likely tokens beside each that is generated, at most.
const LOGPROBS: usize = 20;

/// The fields of both kinds of completions.
#[derive(Debug, Deserialize)]
pub struct Body {
    /// The model's name.
    pub model: Option<String>,
    /// What is to be continued.
    pub prompt: Option<Text>,
    /// The conversation that is to be continued.
    pub messages: Option<Vec<ChatMessage>>,
    /// Variables of the chat template.
    chat_template_kwargs: Option<BTreeMap<String, chat::Value>>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    repetition_penalty: Option<f32>,
    seed: Option<i64>,
    stop: Option<OneOrMore>,
    logprobs: Option<Value>,
    top_logprobs: Option<usize>,
    /// Send the text as it comes.
    pub stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    others: OtherFields,
}

/// Fields of OpenAI's API that are not implemented: each may be there with the value that asks for nothing.
type OtherFields = BTreeMap<String, Value>;

/// A prompt.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`prompt` is neither a text nor a list of token ids, nor a list of one text")]
pub enum Text {
    /// As text.
    Text(String),
    /// As token ids.
    Tokens(Vec<u32>),
    /// As text in a list of one.
    Texts([String; 1]),
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`stop` is neither a text nor a list of texts")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    include_usage: Option<bool>,
    #[serde(rename = "include_obfuscation")]
    _include_obfuscation: Option<bool>,
}

/// A message as requests have it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatMessage {
    role: String,
    content: Option<Content>,
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`content` is neither a text nor a list of parts of type text")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Part {
    Text { text: String },
}

/// A message as templates have it.
#[derive(Debug, Serialize)]
pub struct Message {
    role: String,
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

impl From<ChatMessage> for Message {
    fn from(message: ChatMessage) -> Message {
        let content = match message.content {
            None => String::new(),
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => parts.into_iter().map(|Part::Text { text }| text).collect(),
        };
        Message { role: message.role, content, name: message.name }
    }
}

/// What is used where a request says nothing.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Tokens to generate at most.
    pub max_tokens: usize,
    /// Logits are divided by it.
    pub temperature: f32,
}

impl Body {
    /// Reads a body, and refuses what is not implemented.
    pub fn parse(bytes: &[u8]) -> Result<Body, ApiError> {
        let body: Body =
            serde_json::from_slice(bytes).map_err(|e| ApiError::bad(format!("the body is no request: {e}")))?;
        body.others.iter().try_for_each(|(name, value)| refuse(name, value))?;
        Ok(body)
    }

    /// Tokens to generate at most.
    pub fn max_tokens(&self, defaults: &Defaults) -> Result<usize, ApiError> {
        match self.max_completion_tokens.or(self.max_tokens) {
            Some(0) => Err(ApiError::bad("max_tokens is 0: there is nothing to generate").param("max_tokens")),
            Some(n) => Ok(n),
            None => Ok(defaults.max_tokens),
        }
    }

    /// How tokens are chosen. Without a seed, every request has another one.
    pub fn sampling(&self, defaults: &Defaults) -> Result<Sampling, ApiError> {
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k: self.top_k.unwrap_or(0),
            top_p: self.top_p.unwrap_or(1.0),
            penalty: self.repetition_penalty.unwrap_or(1.0),
            seed: self.seed.map_or_else(|| RandomState::new().hash_one(()), i64::cast_unsigned),
        };
        sampling.check().map_err(|error| {
            let param = match error {
                DecodeError::Sampling { what: "penalty", .. } => "repetition_penalty",
                DecodeError::Sampling { what, .. } => what,
                _ => "temperature",
            };
            ApiError::bad(error.to_string()).param(param)
        })?;
        Ok(sampling)
    }

    /// The texts that end a completion.
    pub fn stops(&self) -> Result<Stops, ApiError> {
        let texts = match &self.stop {
            None => Vec::new(),
            Some(OneOrMore::One(text)) => vec![text.clone()],
            Some(OneOrMore::More(texts)) => texts.clone(),
        };
        let (most, longest) = STOPS;
        if texts.len() > most || texts.iter().any(|t| t.len() > longest) {
            let text = format!("stop has {} texts; there may be {most}, of {longest} bytes each", texts.len());
            return Err(ApiError::bad(text).param("stop"));
        }
        Stops::new(texts).map_err(|e| ApiError::bad(e.to_string()).param("stop"))
    }

    /// Whether each token comes with its probability, and with how many of the most likely ones.
    pub fn logprobs(&self, shape: Shape) -> Result<Option<usize>, ApiError> {
        let most = |n: usize, name: &'static str| match n {
            0..=LOGPROBS => Ok(Some(n)),
            _ => Err(ApiError::bad(format!("{name} is {n}; there may be {LOGPROBS}")).param(name)),
        };
        let (top, chat) = (self.top_logprobs.unwrap_or(0), shape == Shape::Chat);
        match &self.logprobs {
            Some(Value::Bool(true)) if chat => most(top, "top_logprobs"),
            _ if top > 0 => {
                Err(ApiError::bad("top_logprobs is for chats with \"logprobs\": true").param("top_logprobs"))
            }
            None | Some(Value::Null | Value::Bool(false)) => Ok(None),
            Some(value) => match value.as_u64().filter(|_| !chat) {
                Some(n) => most(usize::try_from(n).unwrap_or(usize::MAX), "logprobs"),
                None => {
                    let expected = if chat { "true or false" } else { "a number of tokens" };
                    Err(ApiError::bad(format!("logprobs is {value}; expected {expected}")).param("logprobs"))
                }
            },
        }
    }

    /// Whether a stream says at its end how many tokens there were.
    pub fn include_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|o| o.include_usage).unwrap_or(false)
    }

    /// What the chat template is told besides the messages.
    pub fn chat_options(&mut self) -> ChatOptions {
        ChatOptions { variables: self.chat_template_kwargs.take().unwrap_or_default(), ..Default::default() }
    }
}

/// Whether a field that is not implemented may be ignored with this value.
fn asks_for_nothing(name: &str, value: &Value) -> Option<bool> {
    let is = |values: &[&str]| value.as_str().is_some_and(|v| values.contains(&v));
    let zero = value.as_f64() == Some(0.0);
    let empty = value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty);
    Some(match name {
        // These change nothing in an answer.
        "user" | "metadata" | "safety_identifier" | "prompt_cache_key" | "parallel_tool_calls" | "store" => true,
        "service_tier" => is(&["auto", "default"]),
        "n" | "best_of" => value.as_u64() == Some(1),
        "echo" => value.as_bool() == Some(false),
        "presence_penalty" | "frequency_penalty" => zero,
        "logit_bias" | "tools" | "functions" => empty,
        "tool_choice" | "function_call" => is(&["none", "auto"]),
        "suffix" => is(&[""]),
        "response_format" => value.get("type").and_then(Value::as_str) == Some("text"),
        "modalities" => value.as_array().is_some_and(|m| m.iter().all(|m| m.as_str() == Some("text"))),
        _ => return None,
    })
}

fn refuse(name: &str, value: &Value) -> Result<(), ApiError> {
    match asks_for_nothing(name, value) {
        Some(ignored) if ignored || value.is_null() => Ok(()),
        Some(_) => {
            let text = format!("this server does not do what `{name}` asks for: leave it out");
            Err(ApiError::bad(text).code("unsupported_parameter"))
        }
        None => Err(ApiError::bad(format!("unknown field `{name}`")).code("unknown_parameter")),
    }
}
