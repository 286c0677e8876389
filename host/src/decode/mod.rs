//! Decoding on a device: weights that were uploaded once, and sequences that grow token by token.
//!
//! A [`Model`] owns the weights, a [`Sequence`] owns everything else: stream, cache of keys and values,
//! buffers, graphs. There is no state outside of these objects; any number of models and sequences live
//! side by side, on several threads and devices, and may be dropped in any order.
//!
//! One decode step is one piece of code, generic over what takes its launches. It runs on the stream
//! ([`Mode::Eager`]), or is recorded into a graph that is then launched ([`Mode::Graph`]): the same
//! launches with the same arguments, and so the same bits.
//!
//! Keys and values are in `[layer][kv_head, capacity, head_dim]`, f16 unless f32 is asked for. A position
//! at or past the capacity is an error before anything is launched.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use warpsmith_host::Device;
//! use warpsmith_host::decode::{Model, Sequence, SequenceOptions};
//! use warpsmith_host::model::ModelFile;
//! let model = Model::load(&Device::open(0)?, &ModelFile::open("model.gguf")?)?;
//! let mut sequence = Sequence::new(&model, SequenceOptions::default())?;
//! let mut token = sequence.prefill(&[72, 105])?;
//! for _ in 0..8 {
//!     token = sequence.feed(token)?;
//! }
//! # Ok(()) }
//! ```

mod error;
mod kv;
mod sequence;
mod step;
mod weights;

pub use error::DecodeError;
pub use kv::{KvType, Snapshot};
pub use sequence::{GraphInfo, Hidden, Mode, Sequence, SequenceOptions, Stats};
pub use weights::Model;
