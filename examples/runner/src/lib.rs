//! An inference server in three parts, on nothing but `warpsmith-host`:
//!
//! - [`engine`]: one thread that owns model, decoder and sequences. Requests join and leave between two steps
//!   (continuous batching), and each gets the tokens that it would get alone.
//! - [`http`]: `POST /v1/completions` with the fields of OpenAI's API that apply, streamed or not, and `GET /health`.
//! - `main`: options, and prompts given on the command line instead of a server.

pub mod engine;
pub mod http;
