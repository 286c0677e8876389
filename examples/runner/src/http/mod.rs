//! The server's API: what is where, and what requests become.
//!
//! Every answer is JSON, but for streams and metrics; every error has OpenAI's shape (see [`error::ApiError`]).

pub mod error;
pub mod reply;
pub mod request;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body as HttpBody, HttpBody as _};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tower_http::catch_panic::CatchPanicLayer;
use warpsmith_host::chat::ChatTemplate;
use warpsmith_host::tokenizer::{Special, Tokenizer};

use crate::metrics::Metrics;
use crate::queue::{Prompt, Queue};
use error::{ApiError, json_response};
use reply::{Completion, Shape};
use request::{Body, Defaults, Message, Text};

/// What every request needs.
#[derive(Debug)]
pub struct Service {
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
    /// Conversations to prompts; or why this model takes none.
    pub template: Result<ChatTemplate, String>,
    /// The model's name.
    pub model: String,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
    /// Tokens that the model knows.
    pub vocab: usize,
    /// Positions that a request may use.
    pub context: usize,
    /// What is used where a request says nothing.
    pub defaults: Defaults,
    /// Bytes of a body at most.
    pub max_body: usize,
    /// Time for a body to arrive.
    pub body_timeout: Duration,
    /// The engine's queue.
    pub queue: Queue,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Answers so far.
    pub answers: AtomicU64,
}

impl Service {
    /// A name for an answer that no other answer of this server has.
    fn next_id(&self, prefix: &str) -> String {
        format!("{prefix}-{:x}-{:x}", self.created, self.answers.fetch_add(1, Ordering::Relaxed))
    }
}

/// The paths that there are.
const ROUTES: [&str; 5] = ["/v1/completions", "/v1/chat/completions", "/v1/models", "/health", "/metrics"];

/// The paths and what answers them.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .fallback(nowhere)
        .method_not_allowed_fallback(other_method)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(service.clone(), count))
        .with_state(service)
}

/// Counts answers by route. Paths that are none share a name: clients must not make new ones.
async fn count(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let route = ROUTES.into_iter().find(|r| path == *r);
    let route = route.or(path.starts_with("/v1/models/").then_some("/v1/models")).unwrap_or("other");
    let response = next.run(request).await;
    service.metrics.answered(route, response.status().as_u16());
    response
}

fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    eprintln!("error: an answer panicked: {}", text.unwrap_or("without a text"));
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed to answer this request").into_response()
}

async fn nowhere(uri: Uri) -> ApiError {
    let text = format!("nothing at {}; there are {}", uri.path(), ROUTES.join(", "));
    ApiError::new(StatusCode::NOT_FOUND, text)
}

async fn other_method(method: Method, uri: Uri) -> ApiError {
    let takes = if uri.path().ends_with("completions") { "POST" } else { "GET" };
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} does not take {method}, but {takes}", uri.path()))
}

async fn health(State(service): State<Arc<Service>>) -> Response {
    json_response(StatusCode::OK, &json!({ "status": "ok", "model": service.model }))
}

async fn metrics(State(service): State<Arc<Service>>) -> Result<Response, ApiError> {
    let text = service.metrics.text();
    let text = text.map_err(|e| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("metrics: {e}")))?;
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn described(service: &Service) -> serde_json::Value {
    json!({
        "id": service.model, "object": "model", "created": service.created, "owned_by": "warpsmith",
        "context_length": service.context,
    })
}

async fn models(State(service): State<Arc<Service>>) -> Response {
    json_response(StatusCode::OK, &json!({ "object": "list", "data": [described(&service)] }))
}

async fn model(State(service): State<Arc<Service>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    check_model(&service, &id)?;
    Ok(json_response(StatusCode::OK, &described(&service)))
}

fn check_model(service: &Service, name: &str) -> Result<(), ApiError> {
    if name == service.model {
        return Ok(());
    }
    let text = format!("there is no model {name:?} here, but {:?}", service.model);
    Err(ApiError::new(StatusCode::NOT_FOUND, text).param("model").code("model_not_found"))
}

async fn completions(State(service): State<Arc<Service>>, request: Request) -> Result<Response, ApiError> {
    complete(service, request, Shape::Text).await
}

async fn chat_completions(State(service): State<Arc<Service>>, request: Request) -> Result<Response, ApiError> {
    complete(service, request, Shape::Chat).await
}

async fn complete(service: Arc<Service>, request: Request, shape: Shape) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    check_type(&parts.headers)?;
    let bytes = read(&service, body).await?;
    let body = Body::parse(&bytes)?;
    drop(bytes);
    if let Some(name) = &body.model {
        check_model(&service, name)?;
    }
    let (sampling, stops) = (body.sampling(&service.defaults)?, body.stops()?);
    let (max_tokens, logprobs) = (body.max_tokens(&service.defaults)?, body.logprobs(shape)?);
    let (stream, include_usage) = (body.stream.unwrap_or(false), body.include_usage());
    // Before the prompt is made, which costs more than to say that there is no place.
    let place = service.queue.enter().ok_or_else(|| {
        let text = "as many requests wait as this server lets wait: try again later";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, text).code("queue_full")
    })?;
    let encoder = service.clone();
    let tokens = tokio::task::spawn_blocking(move || match shape {
        Shape::Text => prompt(&encoder, body),
        Shape::Chat => conversation(&encoder, body),
    });
    let failed = |e| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("making the prompt failed: {e}"));
    let tokens = tokens.await.map_err(failed)??;
    let prompt_tokens = tokens.len();
    let events = place.send(Prompt { tokens, max_tokens, sampling, logprobs })?;
    let completion = Completion { shape, prompt_tokens, stops, include_usage, events };
    if stream { reply::streamed(service, completion).await } else { reply::whole(&service, completion).await }
}

/// A web page can make a browser send other types to any address without asking.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let unsupported = |text: String| Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    let text = |name| headers.get(name).map(|v: &HeaderValue| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let kind = text(header::CONTENT_TYPE).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return unsupported(format!("the body has Content-Type {kind:?}, expected application/json"));
    }
    match text(header::CONTENT_ENCODING) {
        Some(coding) if !coding.eq_ignore_ascii_case("identity") => {
            unsupported(format!("the body has Content-Encoding {coding:?}: send it as it is"))
        }
        _ => Ok(()),
    }
}

async fn read(service: &Service, body: HttpBody) -> Result<axum::body::Bytes, ApiError> {
    let too_long = || {
        let text = format!("the body is longer than {} bytes", service.max_body);
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text).code("body_too_long")
    };
    if body.size_hint().lower() > service.max_body as u64 {
        return Err(too_long());
    }
    let bytes = tokio::time::timeout(service.body_timeout, axum::body::to_bytes(body, service.max_body)).await;
    let Ok(bytes) = bytes else {
        let text = format!("the body did not arrive within {} s", service.body_timeout.as_secs_f64());
        return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, text));
    };
    bytes.map_err(|e| {
        let mut source: Option<&dyn std::error::Error> = Some(&e);
        while let Some(error) = source {
            if error.is::<http_body_util::LengthLimitError>() {
                return too_long();
            }
            source = error.source();
        }
        ApiError::bad(format!("the body cannot be read: {e}"))
    })
}

/// The tokens of a prompt.
fn prompt(service: &Service, body: Body) -> Result<Vec<u32>, ApiError> {
    if body.messages.is_some() {
        return Err(ApiError::bad("messages are for /v1/chat/completions").param("messages"));
    }
    let tokens = match body.prompt {
        None => return Err(ApiError::bad("the request has no prompt").param("prompt")),
        Some(Text::Tokens(tokens)) => {
            if let Some(token) = tokens.iter().find(|t| **t as usize >= service.vocab) {
                let text = format!("token {token} is not in the vocabulary of {}", service.vocab);
                return Err(ApiError::bad(text).param("prompt"));
            }
            tokens
        }
        Some(Text::Text(text) | Text::Texts([text])) => {
            service.tokenizer.encode(&text, Special::Text).map_err(|e| ApiError::bad(e.to_string()).param("prompt"))?
        }
    };
    fitting(service, tokens, "prompt")
}

/// The tokens of a conversation, by the model's template.
fn conversation(service: &Service, mut body: Body) -> Result<Vec<u32>, ApiError> {
    if body.prompt.is_some() {
        return Err(ApiError::bad("a prompt is for /v1/completions; a chat has messages").param("prompt"));
    }
    let template = service.template.as_ref().map_err(|e| ApiError::bad(e.clone()).code("no_chat_template"))?;
    let messages: Vec<Message> = body.messages.take().unwrap_or_default().into_iter().map(Message::from).collect();
    if messages.is_empty() {
        return Err(ApiError::bad("the request has no messages").param("messages"));
    }
    let tokens = template.encode(&service.tokenizer, &messages, &body.chat_options());
    fitting(service, tokens.map_err(|e| ApiError::bad(e.to_string()).param("messages"))?, "messages")
}

/// The tokens, if the context has room for them.
fn fitting(service: &Service, tokens: Vec<u32>, param: &'static str) -> Result<Vec<u32>, ApiError> {
    if tokens.is_empty() {
        return Err(ApiError::bad("the prompt is empty: there is nothing to continue").param(param));
    }
    if tokens.len() > service.context {
        let text = format!("the prompt has {} tokens, more than the context of {}", tokens.len(), service.context);
        return Err(ApiError::bad(text).param(param).code("context_length_exceeded"));
    }
    Ok(tokens)
}
