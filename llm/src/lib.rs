//! LLM decoding on kernels written in Rust: a model's file, its vocabulary, its weights, the decode step.
//!
//! | part | what it is |
//! |---|---|
//! | [`gguf`], [`tokenizer`], [`model`] | a model's file, its vocabulary, its tensors |
//! | [`checkpoint`] | a folder of Hugging Face as such a file |
//! | [`chat`] | conversations as prompts, by the template of the model |
//! | [`decode`] | the model on a device, token by token |
//! | [`reference`](mod@reference) | the model on the CPU, in f64 |
//! | [`builtin_image`], [`kernels`] | the kernels of `gpu-kernels`, compiled in this crate's build script and embedded |
//!
//! It stands on [`warpsmith_runtime`], which knows nothing of models, and on [`gpu_kernels`]. A program that links this crate
//! can launch the kernels of `gpu-kernels` on any device without loading them. Programs name it as `warpsmith_host`, which has
//! both under one roof.

mod builtin;
pub mod chat;
pub mod checkpoint;
pub mod decode;
pub mod gguf;
pub mod model;
pub mod reference;
pub mod tokenizer;

pub use builtin::{builtin_image, kernels};
pub use gpu_kernels;
