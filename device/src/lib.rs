//! What a GPU kernel may call, and what a host needs to describe its launch.
//!
//! The crate is compiled twice, and so is every kernels crate that uses it:
//!
//! | build | what is here |
//! |---|---|
//! | `nvptx64-nvidia-cuda` | the device library: indices, barriers, warp collectives, shared memory, wide loads, atomics; `#[kernel]` gives the PTX entry |
//! | the host | the launch description: [`DeviceSlice`], [`Kernel`], [`Contract`], [`Geometry`]; `#[kernel]` gives a struct with a field per argument |
//!
//! Both builds have [`Element`] (plain data that may cross the boundary), [`math`](mod@math),
//! [`convert`](mod@convert), [`packed`], [`fp8`], [`random`], the printing macros ([`mod@print`]) and the vector types, so
//! that a helper without collectives is an ordinary function, tested on the CPU. This documentation shows both builds; what
//! a kernel may call is there and in:
//!
//! | | |
//! |---|---|
//! | [`thread`], [`block`], [`grid`] | where a thread stands |
//! | [`args`], [`mem`], [`constant`] | buffers, cache hints, tables in constant memory |
//! | [`shared`], [`pipeline`] | shared memory, its layouts, asynchronous copies into it |
//! | [`sync`], [`barrier`], [`mod@atomic`] | barriers of a warp and a block, split ones, atomics with order and scope |
//! | [`warp`], [`tile`], [`block_reduce`] | shuffles, votes, matches, reductions, scans |
//! | [`mma`] | tensor cores |
//! | [`mod@unroll`], [`trap`] | loops, and stopping |
//!
//! # A kernels crate
//!
//! ```toml
//! [lib]
//! crate-type = ["rlib"]
//! [features]
//! nvvm = ["warpsmith-device/nvvm"]
//! ```
//! ```
//! #![cfg_attr(target_arch = "nvptx64", no_std)]
//! #![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch, f16))]
//! use warpsmith_device::prelude::*;
//!
//! /// y = a * x + y, a thread per element.
//! #[kernel(block = 256, min_blocks = 4)]
//! pub unsafe fn saxpy(x: In<f32>, y: InOut<f32>, n: u32, a: f32) {
//!     let i = thread::global_x();
//!     if i < n as usize {
//!         y.set(i, math::fma(a, x.at(i), y.get(i)));
//!     }
//! }
//!
//! #[cfg(not(target_arch = "nvptx64"))]
//! impl Contract for Saxpy<'_> {
//!     fn geometry(&self) -> Geometry {
//!         Geometry::blocks(self.n.div_ceil(256))
//!     }
//!     fn check(&self) -> Result<(), ContractError> {
//!         contract::at_least(Self::META, "x", self.x.len(), (self.n, "n"))?;
//!         contract::at_least(Self::META, "y", self.y.len(), (self.n, "n"))
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! # Generic kernels, closures, launch bounds
//!
//! A kernel may be generic over types and constants: `instances` names those that become PTX entries. Helpers are generic as
//! any function is, and take closures; all of it is inlined and costs nothing. `block` is the launch bound of threads, and
//! `min_blocks`, how many blocks a multiprocessor should hold, bounds the registers.
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! use core::ops::{Add, Mul};
//! # use warpsmith_device::prelude::*;
//!
//! /// y[i] = f(x[i]) for `V` elements, `step` apart.
//! #[device]
//! unsafe fn map<T: Element, const V: usize>(x: In<T>, y: Out<T>, first: usize, step: usize, f: impl Fn(T) -> T) {
//!     for v in 0..V {
//!         y.set(first + v * step, f(x.at(first + v * step)));
//!     }
//! }
//!
//! /// y = by · x + x, for whole blocks of 256 · `V` elements.
//! #[kernel(block = 256, min_blocks = 8, instances(grow_f32<f32, 4>, grow_u32<u32, 2>))]
//! pub unsafe fn grow<T: Element + Add<Output = T> + Mul<Output = T>, const V: usize>(x: In<T>, y: Out<T>, by: T) {
//!     let first = block::idx_x() as usize * 256 * V + thread::idx_x() as usize;
//!     map::<T, V>(x, y, first, 256, |v| by * v + v);
//! }
//! # fn main() {}
//! ```
//!
//! Each instance has a launch struct, here `GrowF32` and `GrowU32`. A closure holds no barrier and no warp collective; the other
//! limits are in [`kernel`](macro@kernel), [`device`](macro@device) and the book's chapter on device code.
//!
//! # Rules that the device half keeps for you
//!
//! * Barriers and warp collectives are LLVM intrinsics, which are `convergent`, in functions that
//!   are inlined before LLVM runs. `asm!` is not `convergent` in this compiler and is used for
//!   per-thread instructions only. Helper functions that contain collectives carry
//!   [`#[device]`](macro@device), which inlines them as early: `#[inline(always)]` does not, and
//!   LLVM then copies the call into the arms of a divergent branch.
//! * Shared memory has 32-bit addresses and is reached by `ld.shared`/`st.shared` only.
//! * Indices are `usize`: the assembler unrolls such loops and folds their addresses.
//! * Atomics name their order and their scope; `core::sync::atomic` drops orders on this target.
//!
//! # Under rust-cuda
//!
//! The feature `nvvm` (which a kernels crate forwards) is for rust-cuda's code generator. Kernels
//! are the same text there; `#[kernel]` writes another entry (`extern "C"` with
//! `nvvm_internal::kernel`), barriers and the active mask are named as LLVM 7 names them, and
//! integer reductions are shuffle trees. `target_feature = "sm_80"` is never set there, so the
//! forms for sm_75 are used. The tests have rustc's own generator compile these forms as well, and run them; what LLVM 7 and
//! libNVVM make of them takes a machine that has both.
//!
//! Nothing here needs `cuda_std`. Its indices, and the types that it re-exports, may be used beside
//! this crate; the book's chapter on the second code generator has a table of what may not. It
//! brings a panic handler and an allocator: a kernels crate that uses it turns the feature
//! `panic-handler` of this crate off.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(
        abi_ptx,
        allow_internal_unstable,
        asm_experimental_arch,
        core_float_math,
        f16,
        link_llvm_intrinsics,
        rustc_attrs,
        stdarch_nvptx
    )
)]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]

mod address;
pub mod argmax;
pub mod convert;
pub mod element;
pub mod fp8;
pub mod math;
pub mod packed;
pub mod print;
pub mod random;
pub mod static_for;

#[cfg(any(target_arch = "nvptx64", doc, test))]
mod words;

#[cfg(not(target_arch = "nvptx64"))]
pub mod launch;

#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod args;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod atomic;
#[cfg(any(target_feature = "sm_80", doc, rust_analyzer))]
pub mod barrier;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod block;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod block_reduce;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod constant;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod grid;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod mem;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod mma;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod pipeline;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod shared;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod sync;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod thread;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod tile;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod trap;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod unroll;
#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
pub mod warp;

pub use address::DeviceAddress;
#[cfg(not(target_arch = "nvptx64"))]
pub use element::Plain;
pub use element::{Element, F32x2, F32x4, U32x2, U32x4, bf16, f16};
pub use warpsmith_macros::{Element, device, kernel};

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub use args::{Awaited, In, InOut, Out};
#[cfg(not(target_arch = "nvptx64"))]
pub use launch::{
    Access, AnyKernel, ArgKind, ArgMeta, ArgSink, Confined, Contract, ContractError, DeviceSlice, Geometry, Kernel,
    KernelMeta, Launcher, Programmatic, contract,
};
#[cfg(not(any(target_arch = "nvptx64", rust_analyzer)))]
pub use launch::{Awaited, In, InOut, Out};

/// Names that a kernels crate wants in scope.
pub mod prelude {
    pub use crate::{
        Awaited, DeviceAddress, Element, F32x2, F32x4, In, InOut, Out, U32x2, U32x4, argmax::Best, bf16, convert,
        device, f16, gpu_assert, gpu_print, gpu_println, kernel, math,
    };

    #[cfg(any(target_feature = "sm_80", rust_analyzer))]
    pub use crate::barrier;
    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::launch::{
        Access, ArgKind, ArgMeta, ArgSink, Confined, Contract, ContractError, DeviceSlice, Geometry, Kernel,
        KernelMeta, Launcher, Programmatic, contract,
    };
    #[cfg(any(target_arch = "nvptx64", rust_analyzer))]
    pub use crate::{
        atomic::{self, Order, Scope},
        block, block_reduce, constant_array, device_assert, grid, mem, mma, pipeline,
        shared::{self, Shared},
        shared_array, sync, thread,
        tile::{self, Tile},
        trap::trap,
        unroll, warp,
    };
}

/// What `#[device]` expands to: a function that is inlined before LLVM runs, or a compile error.
#[cfg(target_arch = "nvptx64")]
#[doc(hidden)]
#[macro_export]
#[allow_internal_unstable(rustc_attrs)]
macro_rules! __device_fn {
    ($($f:tt)*) => {
        #[rustc_force_inline]
        $($f)*
    };
}

/// What an editor reads of kernels and `#[device]` functions on the host: their bodies, with the device's half of this crate.
///
/// rust-analyzer sets `cfg(rust_analyzer)` for what it reads; a build leaves the bodies out.
#[cfg(rust_analyzer)]
#[doc(hidden)]
#[macro_export]
macro_rules! __editor {
    ($($item:tt)*) => { $($item)* };
}
#[cfg(not(rust_analyzer))]
#[doc(hidden)]
#[macro_export]
macro_rules! __editor {
    ($($item:tt)*) => {};
}

/// What the macros expand to; not for direct use.
#[doc(hidden)]
pub mod __private {
    #[cfg(target_arch = "nvptx64")]
    pub use crate::args::Glob;
    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::element::varying;
    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::launch::args_fit;
    #[cfg(not(target_arch = "nvptx64"))]
    pub use bytemuck;

    /// Whether every GPU can run a block of these dimensions.
    pub const fn block_fits([x, y, z]: [u64; 3]) -> bool {
        x <= 1024 && y <= 1024 && z <= 64 && 1 <= x * y * z && x * y * z <= 1024
    }

    /// The bytes of a value argument.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn bytes_of<T: crate::Element>(value: &T) -> &[u8] {
        bytemuck::bytes_of(value)
    }
}
