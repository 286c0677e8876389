//! Decoding on a device: weights that were uploaded once, and sequences that grow token by token.
//!
//! A [`Model`] owns the weights, a [`Sequence`] its tokens with their keys and values, and a [`Decoder`] what a step needs
//! besides: stream, buffers, graphs. A decoder appends to one sequence or to several in one step; a [`Session`] is a
//! decoder with one sequence of its own. There is no state outside of these objects; any number of them live side by
//! side, on several threads and devices, and may be dropped in any order.
//!
//! One decode step is one piece of code, generic over what takes its launches. It runs on the stream
//! ([`Mode::Eager`]), or is recorded into a graph that is then launched ([`Mode::Graph`]): the same
//! launches with the same arguments, and so the same bits. Nor do a sequence's bits depend on what else is in the step,
//! on how its prompt was cut, or on the size of its cache.
//!
//! Keys and values are in `[layer][kv_head][capacity][head_dim]`, f16 unless another [`KvType`] is asked for. A position
//! at or past the capacity is an error before anything is launched.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use warpsmith_runtime::Device;
//! use warpsmith_llm::decode::{Decoder, DecoderOptions, Feed, Model, Sequence, SequenceOptions};
//! use warpsmith_llm::model::ModelFile;
//! let model = Model::load(&Device::open(0)?, &ModelFile::open("model.gguf")?)?;
//! let mut decoder = Decoder::new(&model, DecoderOptions { batch: 2, ..Default::default() })?;
//! let mut first = Sequence::new(&model, SequenceOptions::default())?;
//! let mut second = Sequence::new(&model, SequenceOptions::default())?;
//! let mut tokens = [decoder.prefill(&mut first, &[72, 105])?, decoder.prefill(&mut second, &[71, 80, 85])?];
//! for _ in 0..8 {
//!     let [a, b] = tokens;
//!     let feeds = &mut [Feed { sequence: &mut first, token: a }, Feed { sequence: &mut second, token: b }];
//!     tokens.copy_from_slice(decoder.step(feeds)?);
//! }
//! # Ok(()) }
//! ```

mod agree;
mod decoder;
mod delta;
mod error;
mod experts;
mod feed_forward;
mod input;
mod kv;
mod listing;
mod memory;
mod model;
mod norm;
mod outputs;
mod own;
mod persistent;
mod plan;
mod pool;
mod residual;
mod rope;
mod routes;
mod sampling;
mod sequence;
mod session;
mod shape;
mod stack;
mod stage;
mod step;
mod together;
mod verify;
mod weights;
mod workspace;

pub use decoder::{
    Decoder, DecoderOptions, Draft, Feed, GraphInfo, Hidden, Logprob, Logprobs, Mode, Part, Pipeline, Predict,
    Predicted, Stats,
};
pub use error::DecodeError;
pub use gpu_kernels::gemv::Activations;
pub use gpu_kernels::kv::KvType;
pub use gpu_kernels::names::UnknownName;
pub use kv::Snapshot;
pub use listing::{ListedLaunch, ListedValue};
pub use model::Model;
pub use persistent::NotPersistent;
pub use plan::MemoryPlan;
pub use pool::{Pool, PoolOptions, PoolStats};
pub use routes::Routes;
pub use sampling::Sampling;
pub use sequence::{Sequence, SequenceOptions};
pub use session::{Session, SessionOptions};
pub use together::Split;
pub use verify::{Comparison, Precision, bound, compare};
pub use weights::LoadProgress;
