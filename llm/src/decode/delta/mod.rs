//! Layers that are gated delta nets ([`gpu_kernels::delta`]): where their states are, and the two launches that take a step's columns into
//! them between the projections.
//!
//! A sequence has its states twice, and a step reads one place and writes the other ([`States`]). So a step that fails has changed
//! nothing, and neither has one that runs ahead and is forgotten; and guesses that turn out wrong are undone by going back to the place
//! before them. What lies between that and where a sequence is to be is fed again before its next step (`decoder/replay.rs`), with the
//! results that it had.

mod buffers;
mod net;
mod states;
mod step;

pub(super) use buffers::{DeltaBuffers, most_runs};
pub(super) use net::net_of;
pub(super) use states::{States, StatesShape};

use warpsmith_runtime::Buffer;

/// The vectors of a delta net on the device.
pub(super) struct DeltaVectors {
    pub conv: Buffer<f32>,
    pub dt: Buffer<f32>,
    pub a: Buffer<f32>,
    pub norm: Buffer<f32>,
}
