//! Devices, streams, typed launches and graphs on `cust`, and LLM decoding on top of them.
//!
//! | part | what it is | crate |
//! |---|---|---|
//! | [`Device`], [`Stream`], [`Buffer`], [`Pinned`], [`Event`] | the CUDA runtime: handles that own what they depend on | [`warpsmith_runtime`] |
//! | [`KernelImage`], [`include_kernels!`] | kernels that the builder compiled, as a program embeds them | |
//! | [`Stream::launch`] | a typed launch, checked against its contract, its device and its code | |
//! | [`Stream::capture`], [`Graph`], [`GraphKey`] | recorded work that owns all it refers to | |
//! | [`gguf`], [`tokenizer`], [`model`] | a model's file, its vocabulary, its tensors | [`warpsmith_llm`] |
//! | [`checkpoint`] | a folder of Hugging Face as such a file | |
//! | [`chat`] | conversations as prompts, by the template of the model | |
//! | [`reference`](mod@reference) | the model on the CPU, in f64 | |
//! | [`decode`] | the model on a device, token by token | |
//! | [`collectives`] | what several devices do together | [`warpsmith_collectives`] |
//!
//! This crate is those under one name; nothing is defined here.
//!
//! ```no_run
//! use gpu_kernels::elementwise::ResidualAdd;
//! use warpsmith_host::Device;
//!
//! let device = Device::open(0)?; // A GPU, or the software driver where there is none.
//! let stream = device.stream()?;
//! let x = stream.upload(&[1.0f32; 1000])?;
//! let mut y = stream.zeros::<f32>(1000)?;
//! stream.launch(ResidualAdd { x: &x, residual: &x, y: &mut y, n: 1000 })?;
//! assert_eq!(stream.read(&y)?, [2.0; 1000]);
//! # Ok::<(), warpsmith_host::Error>(())
//! ```
//!
//! The `cu*` functions that `cust` and the runtime call are those of [`driver`], which forwards
//! them to NVIDIA's driver or runs PTX on the CPU. A program that depends on this crate needs
//! neither a CUDA toolkit nor a driver to build and to start.
//!
//! The feature `llm`, which is on by default, is the kernels of `gpu-kernels`, compiled in a build script, and all that runs
//! a model on them: the last five rows of the table, [`builtin_image`] and [`kernels`]. Programs with kernels of their own
//! switch it off and build in a fraction of the time.

#[cfg(feature = "llm")]
pub use warpsmith_collectives as collectives;
#[cfg(feature = "llm")]
pub use warpsmith_llm::{
    builtin_image, chat, checkpoint, decode, gguf, gpu_kernels, kernels, model, reference, tokenizer,
};

pub use warpsmith_device as device;
pub use warpsmith_driver_api as driver;
pub use warpsmith_driver_api::Engine;
pub use warpsmith_runtime::*;
