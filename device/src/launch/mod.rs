//! The host's half: what describes a launch.
//!
//! * [`DeviceSlice`]: a borrow of device memory that cannot be copied out of its buffer;
//! * [`Kernel`]: what `#[kernel]` implements: metadata, and the arguments in order;
//! * [`Contract`]: what the kernel's author implements: geometry and checks;
//! * [`contract`]: helpers for those checks;
//! * [`Confined`]: kernels that reach no memory but that of their arguments, which is what a safe launch takes;
//! * [`Launcher`]: what takes launches, each of them as [`AnyKernel`].
//!
//! Nothing here calls a driver: a runtime gives an [`ArgSink`] and does the rest.

pub mod contract;
mod geometry;
mod launcher;
mod markers;
mod meta;
mod slice;

pub use contract::ContractError;
pub use geometry::{Geometry, Programmatic, Start};
pub use launcher::Launcher;
pub use markers::{Awaited, In, InOut, Out};
pub use meta::{Access, AnyKernel, ArgKind, ArgMeta, ArgSink, Confined, Contract, Kernel, KernelMeta, param_block};
pub use slice::DeviceSlice;

#[doc(hidden)]
pub use meta::args_fit;

// Device addresses are 64 bits wide and live in the pointer half of `&DeviceSlice`.
const _: () = assert!(size_of::<usize>() == 8, "warpsmith needs a 64-bit host");
