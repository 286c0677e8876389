//! The CUDA runtime: devices, streams, buffers, typed launches, graphs.
//!
//! The handles own what they depend on, so they can be dropped in any order. What the process has in common is the engine that
//! was chosen, the devices that are open, and, a thread at a time, whether it records a capture. No kernel and no model is known
//! here; crates that ship kernels add them to [`SHIPPED`].
//!
//! # What is made of `cust`, and what is not
//!
//! `cust` is used where its types say what the driver promises:
//!
//! | of `cust` | for |
//! |---|---|
//! | `init`, `device::Device` | initialisation, the number of devices, names and attributes |
//! | `context::Context` | the device's primary context, retained and released |
//! | `module::Module`, `function::Function` | loading PTX, looking up kernels and their attributes |
//! | `memory::{cuda_malloc, cuda_free, cuda_malloc_locked, cuda_free_locked, mem_get_info}` | device and page-locked memory |
//! | `error::CudaError` | the results of all these |
//!
//! The rest of the driver is called directly, by the declarations of [`warpsmith_driver_api`], which has every function of it once:
//!
//! | of the driver | why not by `cust` 0.3.2 |
//! |---|---|
//! | streams | its `Stream::new` takes the flag `NON_BLOCKING` away, so that all of its streams wait for the null stream |
//! | events | its `Event` cannot be recorded on, or waited for by, a stream that is not its own kind |
//! | copies, fills | asynchronous ones are `unsafe` for all that they promise; here the memory is kept until they are done |
//! | capture and graphs | there is no capture, and its module `graph` is private |
//! | launches | `launch!` checks neither types nor limits, and starts nothing cooperatively or programmatically |
//! | `cuModuleLoadDataEx` with a log | its options have no buffer for what the compiler says |
//! | `cuCtxGetCurrent` | it has none for primary contexts |
//!
//! A result of `cust` is a Rust `enum`; a driver newer than it may answer a code that it lacks. The declarations here answer
//! integers, and [`warpsmith_driver_api`] lets no code pass to `cust` that its `enum` has no name for.

mod buffer;
mod capture;
pub mod code_cache;
mod constants;
mod device;
mod error;
mod event;
mod findings;
mod foreign;
mod graph;
mod host_work;
mod image;
mod launch;
mod load;
mod memory;
mod module;
mod nodes;
mod ops;
mod order;
mod peer;
mod pinned;
mod profile;
mod shared;
mod stream;
mod sys;

pub use buffer::Buffer;
pub use capture::Capture;
pub use constants::Constants;
pub use device::{Device, Limits, MemoryInfo};
pub use error::Error;
pub use event::Event;
pub use findings::findings;
pub use graph::{Graph, GraphKey};
pub use host_work::{HostWork, Passage};
pub use image::{KernelImage, Modules, SHIPPED};
pub use launch::Launcher;
pub use nodes::{GraphBuilder, InOrder, Node};
pub use pinned::Pinned;
pub use profile::{KernelTime, Profile};
pub use shared::{BufferHandle, EventHandle, SharedEvent};
pub use stream::Stream;
pub use warpsmith_image::{ArgEntry, KernelEntry, Manifest};

use device::DeviceInner;
