//! The CUDA runtime: devices, streams, buffers, typed launches, graphs.
//!
//! It is built on `cust` where that is sound (the context, modules, allocation, attributes), and
//! on the driver API itself for what `cust` lacks: non-blocking streams, capture and graphs, the
//! compiler's log. The handles own what they depend on, so they can be dropped in any order; there
//! is no state of the process but the engine.

mod buffer;
mod capture;
mod device;
mod error;
mod event;
mod findings;
mod foreign;
mod graph;
mod image;
mod launch;
mod manifest;
mod memory;
mod module;
mod nodes;
mod ops;
mod order;
mod pack;
mod pinned;
mod profile;
mod stream;
mod sys;

pub use buffer::Buffer;
pub use capture::Capture;
pub use device::{Device, Limits, MemoryInfo};
pub use error::Error;
pub use event::Event;
pub use findings::findings;
pub use graph::{Graph, GraphKey};
pub use image::{KernelImage, Modules, SHIPPED};
pub use launch::Launcher;
pub use manifest::{ArgEntry, KernelEntry, Manifest};
pub use nodes::{GraphBuilder, InOrder, Node};
pub use pinned::Pinned;
pub use profile::{KernelTime, Profile};
pub use stream::Stream;

use device::DeviceInner;
