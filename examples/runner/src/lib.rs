//! An inference server on nothing but `warpsmith-host` and an HTTP stack:
//!
//! - [`engine`]: one thread that owns model, decoder and sequences. Requests join and leave between two steps
//!   (continuous batching), and each gets the tokens that it would get alone.
//! - [`draft`]: guesses of what follows, which the engine verifies.
//! - [`queue`]: how a request reaches it, and its tokens the client. Both ends notice when the other one leaves.
//! - [`ranks`]: the engine over several processes, of which the first has the clients.
//! - [`http`]: completions and chat completions in the shapes of OpenAI's API, whole or streamed, models, health, metrics.
//! - [`serve`]: connections, their limits, and how the server ends.
//! - [`metrics`]: what it counts.
//! - `main`: options, and prompts given on the command line instead of a server.

pub mod draft;
pub mod engine;
pub mod http;
pub mod metrics;
pub mod queue;
pub mod ranks;
pub mod serve;
