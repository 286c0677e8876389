//! Devices, streams, typed launches and graphs on `cust`, and LLM decoding on top of them.
//!
//! | part | what it is |
//! |---|---|
//! | [`Device`], [`Stream`], [`Buffer`], [`Pinned`], [`Event`] | the CUDA runtime: handles that own what they depend on |
//! | [`KernelImage`], [`include_kernels!`] | kernels that the builder compiled, as a program embeds them |
//! | [`Stream::launch`] | a typed launch, checked against its contract, its device and its code |
//! | [`Stream::capture`], [`Graph`], [`GraphKey`] | recorded work that owns all it refers to |
//! | [`gguf`], [`tokenizer`], [`model`] | a model's file, its vocabulary, its tensors |
//! | [`chat`] | conversations as prompts, by the template of the model |
//! | [`reference`](mod@reference) | the model on the CPU, in f64 |
//! | [`decode`] | the model on a device, token by token |
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
//! The `cu*` functions that `cust` and this crate call are those of [`driver`], which forwards
//! them to NVIDIA's driver or runs PTX on the CPU. A program that depends on this crate needs
//! neither a CUDA toolkit nor a driver to build and to start.

pub mod chat;
pub mod decode;
pub mod gguf;
pub mod model;
pub mod reference;
mod runtime;
pub mod tokenizer;

pub use gpu_kernels;
pub use runtime::*;
pub use warpsmith_device as device;
pub use warpsmith_driver_api as driver;
pub use warpsmith_driver_api::Engine;
