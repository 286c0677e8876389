//! What a client is told when it does not get what it asked for.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::queue::{Failure, Stopped};

/// An answer that is not a success, in OpenAI's shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The status of the answer.
    pub status: StatusCode,
    /// What is wrong, and what to do.
    pub message: String,
    /// The field of the request that it is about.
    pub param: Option<&'static str>,
    /// What programs tell it by.
    pub code: Option<&'static str>,
}

impl ApiError {
    /// An error with this status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, code: None }
    }

    /// A request that cannot be served as it is.
    pub fn bad(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// The field that it is about.
    pub fn param(self, param: &'static str) -> ApiError {
        ApiError { param: Some(param), ..self }
    }

    /// What programs tell it by.
    pub fn code(self, code: &'static str) -> ApiError {
        ApiError { code: Some(code), ..self }
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// `{"error": {…}}`.
    pub fn body(&self) -> Value {
        json!({ "error": { "message": self.message, "type": self.kind(), "param": self.param, "code": self.code } })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &self.body());
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> ApiError {
        match failure {
            Failure::Request(text) => ApiError::bad(text),
            Failure::Memory(text) => ApiError::new(StatusCode::INSUFFICIENT_STORAGE, text).code("insufficient_memory"),
            Failure::Engine(text) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, text).code("engine_error"),
        }
    }
}

impl From<Stopped> for ApiError {
    fn from(stopped: Stopped) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, stopped.to_string()).code("engine_stopped")
    }
}

/// JSON with this status.
pub fn json_response(status: StatusCode, body: &Value) -> Response {
    let json = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, json)], body.to_string()).into_response()
}
