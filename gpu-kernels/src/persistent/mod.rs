//! A layer of a decoding step in one launch, for one column, with barriers of the grid between its phases.
//!
//! | phase | reads | writes |
//! |---|---|---|
//! | 0: queries, keys and values | `scaled`, `sums`, `bias` | `qkv` |
//! | 1: attention, with norm, rotation and store | `qkv`, the column's caches | `attended`, the caches |
//! | 2: output | `attended`, `x` | `y`, `scaled`, `sums` |
//! | 3: gate, up and SwiGLU | `scaled`, `sums` | `inner` |
//! | 4: down | `inner`, `y` | `x`, `scaled`, `sums` |
//!
//! What is computed is what five launches compute, of [`gemv`](crate::gemv) and [`attention::step`](crate::attention::step):
//! a block takes the work of their blocks one after the other, so the result has the same bits. Arguments are theirs too:
//!
//! | | |
//! |---|---|
//! | `*_weights` | records of any formats that [`decoder`] knows: `[q + 2 * kv, hidden]`, `[hidden, q]`, `[2 * feed_forward, hidden]` (gates, then ups), `[hidden, feed_forward]`, with `q = q_heads * head_dim`, `kv = kv_heads * head_dim` |
//! | `next_weights` | records `[next_rows, hidden]` of what is read after this launch; or `next_rows` is 0. A hint: nothing is computed with them |
//! | `bias` | f32 `[q + 2 * kv]`; not read unless `Sizes::bias` |
//! | `ffn_norm`, `next_norm` | f32 `[hidden]`: weights of the norms behind phases 2 and 4 |
//! | `q_weight`, `k_weight`, `cos`, `sin`, `columns`, `layer` | as for [`attention::step`](crate::attention::step), with its `FUSED` |
//! | `x` | f32 `[hidden]`: the residual stream, before the launch and after it |
//! | `scaled`, `sums` | before: `x` times the weight of the norm, and `Sizes::parts` parts of the sum of squares of `x`; after: those for the next norm |
//! | `y`, `qkv`, `attended`, `inner` | f32 workspaces `[hidden]`, `[q + 2 * kv]`, `[q]`, `[feed_forward]` |
//! | `partials`, `counters` | as for [`attention::step`](crate::attention::step), for one column |
//! | `barrier` | u32 `[1]`: zero before the first launch, and then as a launch leaves it |
//!
//! The launch is cooperative: its blocks are all on the device at the same time, [`Sizes::blocks`] of them, any number from 1 on.
//! Before a barrier each block asks for the weights that it will read first of the product behind the next phase, [`LINE`]
//! bytes a thread: they come to L2 while it waits.

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
pub use launch::{Matrix, PersistentLayer, widest};
use warpsmith_device::prelude::*;

/// Threads of a block: those of a product, and of attention.
pub const THREADS: u32 = 256;
/// Phases, with a barrier between two.
pub const PHASES: u32 = 5;
/// The phase that is attention.
pub const ATTEND: u32 = 1;
/// Bytes of a cache line, which a thread asks for before a barrier.
pub const LINE: u32 = 128;

/// How a matrix is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
#[repr(C)]
pub struct Records {
    /// Its decoder, by the number that [`decoder`] gives.
    pub decoder: u32,
    /// What the products take as `block_units`.
    pub block_units: u32,
    /// 16-byte vectors of a row.
    pub vectors: u32,
}

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
    /// 1: `bias` is added to queries, keys and values.
    pub bias: u32,
    /// Rows of `next_weights`.
    pub next_rows: u32,
    /// 16-byte vectors of such a row.
    pub next_vectors: u32,
    /// The matrices of queries, keys and values; of attention's output; of gate and up; of down.
    pub matrices: [Records; 4],
}

/// The decoder of a number, of those that are compiled in: for `formats!(persistent by_decoder (number, one, none))`.
macro_rules! by_decoder {
    (($number:expr, $one:ident, $none:expr) $($F:ident { $($n:literal)? } $formats:tt)*) => {
        match $number {
            $($($n => $one!($F),)?)*
            _ => $none,
        }
    };
}
use by_decoder;

/// The number of a format's decoder, if it is compiled in.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn decoder(format: Format) -> Option<u32> {
    macro_rules! numbers {
        (() $($F:ident { $($n:literal)? } $formats:tt)*) => {
            match format.layout() {
                $($(Layout::$F => Some($n),)?)*
                _ => None,
            }
        };
    }
    crate::formats!(persistent numbers ())
}

const _: () = assert!(THREADS as usize == crate::gemv::THREADS && THREADS == crate::attention::step::THREADS);
