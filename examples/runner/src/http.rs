//! The server: `POST /v1/completions`, `GET /health`.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde::Deserialize;
use serde_json::{Value, json};
use tiny_http::{Header, Method, Request as HttpRequest, Response, Server};
use warpsmith_host::decode::Sampling;
use warpsmith_host::tokenizer::{Special, TextStream, Tokenizer};

use crate::engine::{Event, Reason, Request};

/// Bytes of a request that are read at most.
const LARGEST_BODY: u64 = 1 << 20;

/// What every connection needs.
pub struct Service {
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
    /// The model's name, for replies.
    pub model: String,
    /// The engine's queue.
    pub queue: Sender<Request>,
}

/// The body of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Completion {
    prompt: String,
    #[serde(default = "default_max_tokens")]
    max_tokens: usize,
    #[serde(default)]
    temperature: f32,
    #[serde(default = "one")]
    top_p: f32,
    #[serde(default)]
    top_k: u32,
    #[serde(default = "one")]
    repetition_penalty: f32,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    stream: bool,
    /// Accepted, as clients send it; there is one model.
    #[serde(default, rename = "model")]
    _model: Option<String>,
}

fn default_max_tokens() -> usize {
    64
}

fn one() -> f32 {
    1.0
}

/// Answers requests, each on a thread of its own, until the server is unblocked.
pub fn run(server: &Server, service: &Arc<Service>) {
    for request in server.incoming_requests() {
        let service = service.clone();
        std::thread::spawn(move || {
            // A client that has gone is no reason to do anything.
            let _ = answer(&service, request);
        });
    }
}

fn answer(service: &Service, mut request: HttpRequest) -> io::Result<()> {
    match (request.method(), request.url()) {
        (Method::Get, "/health") => respond(request, 200, &json!({ "status": "ok", "model": service.model })),
        (Method::Post, "/v1/completions") => match accept(service, &mut request) {
            Ok((prompt_tokens, true, events)) => stream(service, request, prompt_tokens, &events),
            Ok((prompt_tokens, false, events)) => whole(service, request, prompt_tokens, &events),
            Err(text) => respond(request, 400, &error(&text)),
        },
        (_, "/health" | "/v1/completions") => respond(request, 405, &error("method not allowed")),
        (_, other) => {
            let text = format!("nothing at {other}; there are POST /v1/completions and GET /health");
            respond(request, 404, &error(&text))
        }
    }
}

fn error(text: &str) -> Value {
    json!({ "error": { "message": text } })
}

fn respond(request: HttpRequest, status: u16, body: &Value) -> io::Result<()> {
    let mut response = Response::from_string(body.to_string()).with_status_code(status);
    if let Ok(header) = Header::from_bytes("Content-Type", "application/json") {
        response.add_header(header);
    }
    request.respond(response)
}

/// Reads a request and queues it; the events will be its answer.
fn accept(service: &Service, request: &mut HttpRequest) -> Result<(usize, bool, Receiver<Event>), String> {
    let mut body = String::new();
    request.as_reader().take(LARGEST_BODY + 1).read_to_string(&mut body).map_err(|e| e.to_string())?;
    if body.len() as u64 > LARGEST_BODY {
        return Err(format!("the request is longer than {LARGEST_BODY} bytes"));
    }
    let c: Completion = serde_json::from_str(&body).map_err(|e| e.to_string())?;
    let tokens = service.tokenizer.encode(&c.prompt, Special::Text).map_err(|e| e.to_string())?;
    if tokens.is_empty() {
        return Err("the prompt is empty: there is nothing to continue".into());
    }
    let sampling = Sampling {
        temperature: c.temperature,
        top_k: c.top_k,
        top_p: c.top_p,
        penalty: c.repetition_penalty,
        seed: c.seed,
    };
    let (reply, events) = channel();
    let prompt_tokens = tokens.len();
    let queued = service.queue.send(Request { tokens, max_tokens: c.max_tokens, sampling, reply });
    queued.map_err(|_| "the engine has stopped".to_owned())?;
    Ok((prompt_tokens, c.stream, events))
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Stop => "stop",
        Reason::Length => "length",
    }
}

fn completion(service: &Service, text: &str, finish: Option<&str>) -> Value {
    json!({
        "object": "text_completion",
        "model": service.model,
        "choices": [{ "index": 0, "text": text, "finish_reason": finish }],
    })
}

/// The next event; an engine that has gone without a word has failed.
fn next(events: &Receiver<Event>) -> Event {
    events.recv().unwrap_or_else(|_| Event::Failed("the engine has stopped".into()))
}

fn whole(service: &Service, request: HttpRequest, prompt_tokens: usize, events: &Receiver<Event>) -> io::Result<()> {
    let mut tokens = Vec::new();
    loop {
        match next(events) {
            Event::Token(token) => tokens.push(token),
            Event::Done(why) => {
                let mut body = completion(service, &service.tokenizer.decode(&tokens), Some(reason(why)));
                body["usage"] = json!({ "prompt_tokens": prompt_tokens, "completion_tokens": tokens.len() });
                return respond(request, 200, &body);
            }
            Event::Failed(text) => return respond(request, 500, &error(&text)),
        }
    }
}

/// Server-sent events, a token each. Written by hand: a response of the library would be held back until it is long.
fn stream(service: &Service, request: HttpRequest, prompt_tokens: usize, events: &Receiver<Event>) -> io::Result<()> {
    let mut out = request.into_writer();
    out.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")?;
    let mut text: TextStream<'_> = service.tokenizer.stream();
    let mut send = |body: &Value| -> io::Result<()> {
        write!(out, "data: {body}\n\n")?;
        out.flush()
    };
    let mut tokens = 0;
    loop {
        match next(events) {
            Event::Token(token) => {
                tokens += 1;
                send(&completion(service, &text.push(token), None))?;
            }
            Event::Done(why) => {
                let mut last = completion(service, &text.finish(), Some(reason(why)));
                last["usage"] = json!({ "prompt_tokens": prompt_tokens, "completion_tokens": tokens });
                send(&last)?;
                break;
            }
            Event::Failed(text) => {
                send(&error(&text))?;
                break;
            }
        }
    }
    out.write_all(b"data: [DONE]\n\n")?;
    out.flush()
}
