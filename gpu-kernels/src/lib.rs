//! The kernels of an LLM decode step, written in Rust.
//!
//! One family a module, each with its formula, a reference in f64, the variants in rising
//! cleverness, the contracts and the tests. The crate is compiled twice: for the GPU, where every
//! `#[kernel]` is an entry point, and for the host, where it is a launch struct with a field an
//! argument (see `warpsmith-device`).
//!
//! | family | entry points |
//! |---|---|
//! | [`embed`] | the row of a token, from a table of any format |
//! | [`norm`] | RMS norm, alone and with the residual addition before it |
//! | [`layer_norm`] | layer norm, of embeddings with those of their positions too |
//! | [`gemv`] | matrix times vector, for every format of [`mod@format`], with or without a residual |
//! | [`gather`] | columns in the order of a matrix whose columns are permuted, as f32 or quantized |
//! | [`delta`] | gated delta nets: convolution, rule and norm, with their states; gates of attention's results |
//! | [`experts`] | mixtures of experts: which of them a column has, and what they give added up |
//! | [`rope`] | rotary embedding, with or without a norm of each head |
//! | [`kv`] | keys and values into the cache, with norm and rotation on the way |
//! | [`attention`] | one token over the cache; a step of any number of columns in one launch; a prompt |
//! | [`persistent`] | layers of a step in one launch |
//! | [`collective`] | all-reduce and its kin over the memory of several devices |
//! | [`elementwise`] | residual addition, SwiGLU, GEGLU |
//! | [`residual`] | what a layer adds, normed, onto the residual stream |
//! | [`sampling`] | from logits to a token |
//! | [`sixteen`] | the operations of a layer but products, on tensors of f16 and of bf16 |
//!
//! What changes from token to token (token, position, length) is read from device memory:
//! [`state`]. Everything else is a launch argument, checked by the kernel's contract.
#![cfg_attr(target_arch = "nvptx64", no_std)]
// Functions of a kernel are inlined before LLVM runs, up to this many calls: layers in one launch have those of attention and of the products of all formats.
#![recursion_limit = "16384"]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch, f16))]

pub mod activation;
#[macro_use]
mod arguments;
pub mod attention;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases;
pub mod collective;
pub mod delta;
pub mod elementwise;
pub mod embed;
pub mod experts;
pub mod format;
pub mod gather;
pub mod gemv;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod head;
pub mod kv;
pub mod layer;
pub mod layer_norm;
#[cfg(not(target_arch = "nvptx64"))]
pub mod list;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod load;
#[cfg(not(target_arch = "nvptx64"))]
pub mod names;
pub mod norm;
pub mod persistent;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod real;
pub mod residual;
pub mod rope;
pub mod sampling;
pub mod sixteen;
pub mod state;

pub use sampling::argmax;

#[cfg(not(target_arch = "nvptx64"))]
pub use list::catalogue;
