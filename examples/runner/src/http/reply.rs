//! What a completion says: whole, or as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, UnboundedReceiver, channel};
use warpsmith_host::chat::Stops;
use warpsmith_host::decode::{Logprob, Logprobs};
use warpsmith_host::tokenizer::{TextStream, Tokenizer};

use super::Service;
use super::error::{ApiError, json_response};
use crate::queue::{Event, Reason, Stopped};

/// Which of the two APIs answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `/v1/completions`.
    Text,
    /// `/v1/chat/completions`.
    Chat,
}

/// A completion that the engine has taken on.
pub struct Completion {
    /// What the answer looks like.
    pub shape: Shape,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// What ends it besides the model.
    pub stops: Stops,
    /// Say at the end of a stream how many tokens there were.
    pub include_usage: bool,
    /// The tokens.
    pub events: UnboundedReceiver<Event>,
}

/// The text of a completion, as its tokens come.
struct Texts<'a> {
    tokenizer: &'a Tokenizer,
    events: UnboundedReceiver<Event>,
    /// Tokens with their probabilities that were not told yet.
    likely: Vec<Logprobs>,
    /// Bytes of the tokens that were.
    told: usize,
    text: Option<TextStream<'a>>,
    stops: Stops,
    tokens: usize,
    /// Why it ended.
    ended: Option<&'static str>,
}

impl<'a> Texts<'a> {
    fn new(service: &'a Service, events: UnboundedReceiver<Event>, stops: Stops) -> Self {
        let tokenizer = &service.tokenizer;
        let (text, likely) = (Some(tokenizer.continue_stream()), Vec::new());
        Texts { tokenizer, events, likely, told: 0, text, stops, tokens: 0, ended: None }
    }

    /// The probabilities that were not told yet; null, if none were asked for.
    fn logprobs(&mut self, shape: Shape) -> Value {
        if self.likely.is_empty() {
            return Value::Null;
        }
        let likely = std::mem::take(&mut self.likely);
        // What is no text alone is shown as a replacement character; chats tell the bytes, too.
        let text = |l: &Logprob| String::from_utf8_lossy(&self.tokenizer.bytes(l.token)).into_owned();
        let entry =
            |l: &Logprob| json!({ "token": text(l), "logprob": l.logprob, "bytes": self.tokenizer.bytes(l.token) });
        let own = likely.iter().flat_map(|l| &l.asked);
        match shape {
            Shape::Chat => {
                let with_top = |(own, all): (&Logprob, &Logprobs)| {
                    let mut told = entry(own);
                    told["top_logprobs"] = all.top.iter().map(entry).collect();
                    told
                };
                json!({ "content": own.zip(&likely).map(with_top).collect::<Vec<_>>(), "refusal": null })
            }
            Shape::Text => {
                let own: Vec<&Logprob> = own.collect();
                let offsets: Vec<usize> = own
                    .iter()
                    .map(|l| {
                        let offset = self.told;
                        self.told += text(l).chars().count();
                        offset
                    })
                    .collect();
                // Of several that look alike the most likely one.
                let top = |all: &Logprobs| -> Value {
                    all.top.iter().rev().map(|l| (text(l), json!(l.logprob))).collect::<serde_json::Map<_, _>>().into()
                };
                json!({
                    "tokens": own.iter().map(|l| text(l)).collect::<Vec<_>>(),
                    "token_logprobs": own.iter().map(|l| l.logprob).collect::<Vec<_>>(),
                    "top_logprobs": likely.iter().map(top).collect::<Vec<_>>(),
                    "text_offset": offsets,
                })
            }
        }
    }

    /// The next piece, which may be empty; the last one has `ended`.
    async fn next(&mut self) -> Result<String, ApiError> {
        match self.events.recv().await {
            Some(Event::Token(token, logprobs)) => {
                self.tokens += 1;
                self.likely.extend(logprobs);
                let piece = self.text.as_mut().map(|t| t.push(token)).unwrap_or_default();
                let piece = self.stops.push(&piece);
                if self.stops.found() {
                    // The engine goes on with others.
                    self.events.close();
                    self.ended = Some("stop");
                }
                Ok(piece)
            }
            Some(Event::Done(reason)) => {
                let rest = self.text.take().map(TextStream::finish).unwrap_or_default();
                let mut rest = self.stops.push(&rest);
                let found = self.stops.found();
                rest.push_str(&std::mem::take(&mut self.stops).finish());
                self.ended = Some(match reason {
                    Reason::Length if !found => "length",
                    Reason::Length | Reason::Stop => "stop",
                });
                Ok(rest)
            }
            Some(Event::Failed(failure)) => Err(failure.into()),
            None => Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, Stopped.to_string()).code("engine_error")),
        }
    }
}

/// What all objects of one answer have in common.
#[derive(Clone)]
struct Head {
    shape: Shape,
    id: String,
    created: u64,
    model: String,
}

impl Head {
    fn new(service: &Service, shape: Shape) -> Head {
        let prefix = match shape {
            Shape::Text => "cmpl",
            Shape::Chat => "chatcmpl",
        };
        Head { shape, id: service.next_id(prefix), created: now(), model: service.model.clone() }
    }

    fn object(&self, streamed: bool, choices: Value) -> Value {
        let object = match (self.shape, streamed) {
            (Shape::Text, _) => "text_completion",
            (Shape::Chat, false) => "chat.completion",
            (Shape::Chat, true) => "chat.completion.chunk",
        };
        json!({ "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices })
    }

    fn whole(&self, text: &str, logprobs: Value, ended: &str) -> Value {
        let content = match self.shape {
            Shape::Text => ("text", json!(text)),
            Shape::Chat => ("message", json!({ "role": "assistant", "content": text, "refusal": null })),
        };
        self.object(false, json!([choice(content, logprobs, Some(ended))]))
    }

    fn piece(&self, text: &str, logprobs: Value, ended: Option<&str>) -> Value {
        let content = match self.shape {
            Shape::Text => ("text", json!(text)),
            Shape::Chat if text.is_empty() && ended.is_some() => ("delta", json!({})),
            Shape::Chat => ("delta", json!({ "content": text })),
        };
        self.object(true, json!([choice(content, logprobs, ended)]))
    }

    /// What a chat begins with.
    fn role(&self) -> Value {
        let delta = json!({ "role": "assistant", "content": "" });
        self.object(true, json!([choice(("delta", delta), Value::Null, None)]))
    }
}

fn choice((name, content): (&str, Value), logprobs: Value, ended: Option<&str>) -> Value {
    json!({ "index": 0, name: content, "logprobs": logprobs, "finish_reason": ended })
}

fn usage(prompt_tokens: usize, tokens: usize) -> Value {
    json!({ "prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens })
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The answer when all of it is there. If the client leaves before, this future goes, and with it the events.
pub async fn whole(service: &Service, completion: Completion) -> Result<Response, ApiError> {
    let head = Head::new(service, completion.shape);
    let mut texts = Texts::new(service, completion.events, completion.stops);
    let mut text = String::new();
    let ended = loop {
        text.push_str(&texts.next().await?);
        if let Some(ended) = texts.ended {
            break ended;
        }
    };
    let mut body = head.whole(&text, texts.logprobs(head.shape), ended);
    body["usage"] = usage(completion.prompt_tokens, texts.tokens);
    Ok(json_response(StatusCode::OK, &body))
}

/// Server-sent events: a piece of text each, the last with why it ended, then `[DONE]`. The answer begins with the first
/// piece, so that what fails before is told by the status.
pub async fn streamed(service: Arc<Service>, completion: Completion) -> Result<Response, ApiError> {
    // Events that wait for a slow client; the engine does not wait for it.
    let (sender, mut receiver) = channel(16);
    tokio::spawn(async move {
        // When the client leaves, the receiver goes; when nothing more is to be sent, this does.
        tokio::select! {
            () = sender.closed() => {}
            () = produce(&service, completion, &sender) => {}
        }
    });
    match receiver.recv().await {
        Some(Err(error)) => Err(error),
        None => Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, Stopped.to_string()).code("engine_error")),
        Some(Ok(first)) => {
            let rest = stream::unfold(receiver, async |mut receiver| {
                let next: Option<Result<Value, ApiError>> = receiver.recv().await;
                let data = match next? {
                    Ok(Value::Null) => "[DONE]".to_owned(),
                    Ok(value) => value.to_string(),
                    Err(error) => error.body().to_string(),
                };
                Some((data, receiver))
            });
            let events = stream::StreamExt::chain(stream::iter([first.to_string()]), rest);
            let events = stream::StreamExt::map(events, |data| Ok::<_, Infallible>(sse::Event::default().data(data)));
            let events = Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)));
            Ok(events.into_response())
        }
    }
}

/// Sends the pieces of a stream. `Null` stands for its end.
async fn produce(service: &Service, completion: Completion, sender: &Sender<Result<Value, ApiError>>) {
    let Completion { shape, prompt_tokens, stops, include_usage, events } = completion;
    let head = Head::new(service, shape);
    let mut texts = Texts::new(service, events, stops);
    let with_usage = |mut body: Value, usage: Value| {
        if include_usage {
            body["usage"] = usage;
        }
        Ok(body)
    };
    let mut begun = shape == Shape::Text;
    loop {
        let piece = match texts.next().await {
            Ok(piece) => piece,
            Err(error) => {
                let _ = sender.send(Err(error)).await;
                break;
            }
        };
        // Whoever has left is noticed by the caller.
        if !std::mem::replace(&mut begun, true) {
            let _ = sender.send(with_usage(head.role(), Value::Null)).await;
        }
        // A token may be a part of a character, or of what may become a stop text.
        if !piece.is_empty() || texts.ended.is_some() {
            let piece = head.piece(&piece, texts.logprobs(shape), texts.ended);
            let _ = sender.send(with_usage(piece, Value::Null)).await;
        }
        if texts.ended.is_some() {
            if include_usage {
                let last = with_usage(head.object(true, json!([])), usage(prompt_tokens, texts.tokens));
                let _ = sender.send(last).await;
            }
            break;
        }
    }
    let _ = sender.send(Ok(Value::Null)).await;
}
