//! Write CUDA kernels in Rust: typed launches, graphs that own what they capture, and a software CUDA driver.
//!
//! This crate is the command line and a façade: `use warpsmith::…` gives everything of
//! [`warpsmith_host`] (devices, streams, buffers, graphs, decoding) at its root, and the other crates as modules.
//!
//! ```no_run
//! use warpsmith::{Device, kernels::norm::RmsNorm};
//!
//! # fn main() -> Result<(), warpsmith::Error> {
//! let device = Device::open(0)?;
//! let stream = device.stream()?;
//! let x = stream.upload(&[1.0f32, -2.0, 3.0, -4.0])?;
//! let w = stream.upload(&[1.0f32; 4])?;
//! let mut y = stream.zeros::<f32>(4)?;
//! stream.launch(RmsNorm { x: &x, w: &w, y: &mut y, cols: 4, eps: 1e-6 })?;
//! println!("{} on {}: {:?}", device.name(), device.engine(), stream.read(&y)?);
//! # Ok(())
//! # }
//! ```

pub use gpu_kernels as kernels;
pub use warpsmith_builder as builder;
pub use warpsmith_device as device;
pub use warpsmith_driver_api as driver;
pub use warpsmith_host::*;
