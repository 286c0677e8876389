//! Layers of a decoding step in one launch, for one column, with barriers of the grid between their phases.
//!
//! | phase | reads | writes |
//! |---|---|---|
//! | 0: queries, keys and values | `scaled`, `sums`, the bias | `qkv` |
//! | 1: attention, with norm, rotation and store | `qkv`, the column's caches | `attended`, the caches |
//! | 2: output | `attended`, `x` | `y`, `scaled`, `sums` |
//! | 3: gate, up and SwiGLU | `scaled`, `sums` | `inner` |
//! | 4: down | `inner`, `y` | `x`, `scaled`, `sums` |
//!
//! What is computed is what five launches a layer compute, of [`gemv`](crate::gemv) and [`attention::step`](crate::attention::step):
//! a block takes the work of their blocks one after the other, and where these have half as many threads, of two at a time; so
//! the result has the same bits. With quantized activations a phase quantizes what it computes, as a launch does, and the
//! next one reads that.
//!
//! There is an [instance](Instance) of the kernel for each layout of weights and kind of activations that the list of formats names: a
//! layer's matrices all have the one, and their products the other. One kernel for all of them would hold the registers of the
//! largest, and some in local memory.
//!
//! | | |
//! |---|---|
//! | `layers` | [`LayerWeights`], one a layer, as [`Instance::weights`] makes them: addresses of records `[q + 2 * kv, hidden]`, `[hidden, q]`, `[2 * feed_forward, hidden]` (gates, then ups) and `[hidden, feed_forward]`, with `q = q_heads * head_dim`, `kv = kv_heads * head_dim`; of a bias `[q + 2 * kv]`, or of nothing; of the weights of norms behind phases 2 and 4, `[hidden]`, and of heads, `[head_dim]` |
//! | `next_weights` | records `[next_rows, hidden]` of what is read after this launch; or `next_rows` is 0. A hint: nothing is computed with them |
//! | `cos`, `sin`, `columns`, `layer` | as for [`attention::step`](crate::attention::step), with its `FUSED`; `layer.index` is that of the first layer |
//! | `x` | f32 `[hidden]`: the residual stream, before the launch and after it |
//! | `scaled`, `sums` | before: `x` times the weight of the norm, and `Sizes::parts` parts of the sum of squares of `x`; after: those for the next norm |
//! | `quantized_scaled` | `scaled` as [quantized activations](crate::gemv::quant_format) of the instance, before the launch, and with `Sizes::quantize_last` after it |
//! | `quantized_inner`, `group_counters` | workspaces of them: vectors for `q` and for `feed_forward` elements; counters, zero before the first launch, and again after every launch |
//! | `y`, `qkv`, `attended`, `inner` | f32 workspaces `[hidden]`, `[q + 2 * kv]`, `[q]`, `[feed_forward]` |
//! | `partials`, `counters` | as for [`attention::step`](crate::attention::step), for one column |
//! | `barrier` | u32 `[1]`: zero before the first launch, and then as a launch leaves it |
//!
//! The launch is cooperative: its blocks are all on the device at the same time, [`Sizes::blocks`] of them, any number from 1 on.
//! There are [`PHASES`] barriers a layer, but none behind the last. Before each of them every block asks for what it will read first
//! in the phase behind the next one, weights or keys and values, [`LINE`] bytes a thread: they come to L2 while it waits, and
//! while it works on.

#[macro_use]
mod arguments;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases;
#[cfg(not(target_arch = "nvptx64"))]
mod contract;
mod entries;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod frame;
#[cfg(not(target_arch = "nvptx64"))]
mod launch;

#[cfg(not(target_arch = "nvptx64"))]
use crate::format::{Format, Layout};
pub use entries::*;
#[cfg(not(target_arch = "nvptx64"))]
pub use launch::{Instance, LayerParts, Matrix, PersistentLayers, Quantized};
use warpsmith_device::prelude::*;

/// Threads of a block: those of a product of f32, and of attention.
pub const THREADS: u32 = 256;
/// Phases of a layer, with a barrier behind each.
pub const PHASES: u32 = 5;
/// The phase that is attention.
pub const ATTEND: u32 = 1;
/// Elements of the heads that there is code for: those of the models that are in use; with all others too, a kernel was twice as large.
pub const HEAD_DIMS: [u32; 2] = [64, 128];
/// Bytes of a cache line, which a thread asks for before a barrier.
pub const LINE: u32 = 128;

/// Where the weights of a layer are. They are reached by addresses, so that a launch takes any number of layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
#[repr(C)]
pub struct LayerWeights {
    /// Records of the matrices of queries, keys and values; of attention's output; of gate and up; of down.
    records: [DeviceAddress; 4],
    /// The bias of queries, keys and values, or null.
    bias: DeviceAddress,
    ffn_norm: DeviceAddress,
    next_norm: DeviceAddress,
    q_weight: DeviceAddress,
    k_weight: DeviceAddress,
    /// What products of the matrices take as `block_units`.
    block_units: [u32; 4],
}

/// The word of a layer's weights that the first of the `block_units` is.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
const BLOCK_UNITS_AT: usize = core::mem::offset_of!(LayerWeights, block_units) / size_of::<u32>();

/// Sizes of a layer beside those of its heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
#[repr(C)]
pub struct Sizes {
    /// Elements of the residual stream.
    pub hidden: u32,
    /// Elements between gate, up and down.
    pub feed_forward: u32,
    /// Parts of the sum of squares that `sums` has before the launch.
    pub parts: u32,
    /// Blocks of the launch.
    pub blocks: u32,
    /// Layers of the launch.
    pub layers: u32,
    /// 1: the last layer's `scaled` is quantized too.
    pub quantize_last: u32,
    /// Rows of `next_weights`.
    pub next_rows: u32,
    /// 16-byte vectors of such a row.
    pub next_vectors: u32,
}

/// The number that [`quant_format`](crate::gemv::quant_format) has for a kind of activations.
macro_rules! quant_of {
    (F32) => {
        $crate::gemv::quant_format::NONE
    };
    (I8) => {
        $crate::gemv::quant_format::I8
    };
    (I16) => {
        $crate::gemv::quant_format::I16
    };
    (PlanesI8) => {
        1
    };
    (PlanesI16) => {
        2
    };
    (PlanesQ2I8) => {
        3
    };
    (PlanesQ2I16) => {
        4
    };
}
use quant_of;

const _: () = assert!(THREADS as usize == crate::gemv::THREADS && THREADS == crate::attention::step::THREADS);
