//! Models as GGUF files describe them: numbers, tensors, and the rules between them.
//!
//! [`ModelFile`] is the one place that knows tensor names. It checks presence, shape, type and content
//! of everything that the forward pass reads, so that decoding and the CPU reference can take it as
//! given. Types are taken from the file, never inferred from sizes or names; what is not implemented is
//! refused with the reason, because most of it (another RoPE scaling, a bias, a shared expert) would
//! otherwise run and give text that gets worse slowly.

mod architecture;
mod config;
mod delta;
mod delta_heads;
mod error;
mod experts;
mod file;
mod find;
mod gating;
mod in_layer;
mod keys;
mod kinds;
mod layer;
mod matrix;
mod per_layer;
mod pieces;
mod random;
mod rope;
mod scaling;
mod sections;
mod shape;
mod share;
mod stage;

pub use architecture::{Architecture, DeltaLayout, Presence, SharedExpert};
pub use config::Config;
pub use delta::{DeltaNets, Recurrent};
pub(crate) use delta_heads::DeltaHeads;
pub use error::ModelError;
pub use experts::{ExpertLayers, Experts};
pub use file::ModelFile;
pub use gating::Gating;
pub use kinds::LayerKinds;
pub use layer::LayerTensors;
pub use matrix::{Cut, Matrix};
pub(crate) use pieces::Pieces;
pub use rope::{Rope, RopeStyle, Yarn};
pub use shape::{ModelShape, ProductShape};
pub use share::MOST_DEVICES;
pub(crate) use share::head_rows;
pub(crate) use stage::layers_of;
