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
//! There is an [instance](Instance) of the kernel for each kind of activations: f32 times any weights, bytes of one or two, and one f16 or
//! two, times any weights that have a product with them, and bit planes times those of one bit, or of two. A layer's matrices, and those of queries,
//! keys and values, may each have a format of their own: which code a matrix takes, its layout says, the same in every thread of the grid.
//! What follows the sum of a lane is one code for all of them.
//!
//! | | |
//! |---|---|
//! | `layers` | [`LayerWeights`], one a layer, as [`Instance::weights`] makes them: addresses of records `[q + 2 * kv, hidden]`, in up to [`PARTS`] parts one below the other, each with a bias or without, `[hidden, q]`, `[2 * feed_forward, hidden]` (gates, then ups) and `[hidden, feed_forward]`, with `q = q_heads * head_dim`, `kv = kv_heads * head_dim`; of the weights of norms behind phases 2 and 4, `[hidden]`, and of heads, `[head_dim]` |
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
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod ask;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod at;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases;
#[cfg(not(target_arch = "nvptx64"))]
mod contract;
mod entries;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod frame;
#[cfg(not(target_arch = "nvptx64"))]
mod launch;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod products;

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

/// Parts that queries, keys and values may be in, each with a format of its own.
pub const PARTS: usize = 3;
/// Matrices of a layer: these parts; attention's output; gate and up; down.
const MATRICES: usize = PARTS + 3;

/// Where a matrix is, and how it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
#[repr(C)]
struct StoredMatrix {
    records: DeviceAddress,
    /// A bias of each row, or null.
    bias: DeviceAddress,
    /// The [number](LayoutNumber) of its layout.
    layout: u32,
    /// What products take as `block_units`.
    block_units: u32,
    /// Rows of outputs: 0, where there is no such part; of gates and ups half of those that are stored.
    rows: u32,
    /// 16-byte vectors of a row.
    vectors: u32,
}

/// Where the weights of a layer are. They are reached by addresses, so that a launch takes any number of layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
#[repr(C)]
pub struct LayerWeights {
    matrices: [StoredMatrix; MATRICES],
    ffn_norm: DeviceAddress,
    next_norm: DeviceAddress,
    q_weight: DeviceAddress,
    k_weight: DeviceAddress,
}

macro_rules! numbers {
    (() $($F:ident $part:tt $formats:tt)*) => {
        /// The number of a layout, by which a kernel knows it.
        #[derive(Clone, Copy)]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u32)]
        enum LayoutNumber { $($F),* }

        #[cfg(not(target_arch = "nvptx64"))]
        impl From<Layout> for LayoutNumber {
            fn from(layout: Layout) -> LayoutNumber {
                match layout { $(Layout::$F => LayoutNumber::$F),* }
            }
        }
    };
}
crate::formats! { product numbers () }

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

/// The kinds of activations: `kinds! { callback (args) }` calls `callback! { (args) KIND: least blocks, entry point; … }`.
macro_rules! kinds {
    ($callback:ident $args:tt) => {
        $callback! { $args
            F32: 2, layers_f32 LayersF32 LAYERS_F32;
            I8: 2, layers_i8 LayersI8 LAYERS_I8;
            I16: 2, layers_i16 LayersI16 LAYERS_I16;
            F16: 2, layers_f16 LayersF16 LAYERS_F16;
            F16x2: 2, layers_f16x2 LayersF16x2 LAYERS_F16X2;
            PlanesI8: 2, layers_q1_0_i8 LayersQ10I8 LAYERS_Q1_0_I8;
            PlanesI16: 2, layers_q1_0_i16 LayersQ10I16 LAYERS_Q1_0_I16;
            PlanesQ2I8: 2, layers_q2_0_i8 LayersQ20I8 LAYERS_Q2_0_I8;
            PlanesQ2I16: 2, layers_q2_0_i16 LayersQ20I16 LAYERS_Q2_0_I16;
        }
    };
}
use kinds;

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
    (F16) => {
        $crate::gemv::quant_format::F16
    };
    (F16x2) => {
        $crate::gemv::quant_format::F16X2
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
const _: () = assert!(THREADS == crate::gemv::half::THREADS);
