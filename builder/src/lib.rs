//! For build scripts: a crate of kernels to PTX and a manifest.
//!
//! ```no_run
//! // in `main` of the build.rs of the crate that launches the kernels
//! warpsmith_builder::KernelCrate::new("../gpu-kernels")
//!     .archs(["sm_75", "sm_80", "sm_90"])
//!     .build()
//!     .unwrap_or_else(|error| error.exit());
//! ```
//!
//! # Contract
//!
//! * Input: a library crate whose entries each come with one `// @kernel {json}` line in the PTX
//!   (`#[kernel]` of `warpsmith-device` writes it).
//! * Output, in `OUT_DIR` and rewritten only where the content changed: `<library>/sm_XX.ptx`,
//!   `<library>/manifest.json`, `<library>/kernels.pack` and `<library>.rs`. The pack holds the same texts, compressed, cut
//!   into a module for each kernel (kernels that share memory of the device stay together), lines of the source apart, and
//!   the machine code that [`KernelCrate::cubins`] asks for.
//!   The last is one expression, of type `(&'static str, &'static str, &'static [u8])`: library name, manifest, and pack.
//!   `library` in file names is the package name with `_` for `-`.
//! * Every entry is checked against its metadata: argument count, size, alignment and offset. Launch
//!   bounds are inserted. The texts are linted for what fails on a GPU only as a hang or a wrong
//!   answer: see [`Manifest`] and [`BuildError::Ptx`].
//! * The stock generator needs rustc 1.95 or newer and `rust-src`, and nothing else. `core` is
//!   compiled once into `<target directory>/warpsmith/`, which dev, release, clippy and doc builds
//!   share; builds at the same time wait for each other there, never for the outer cargo.
//! * The outer build's flags, profiles and wrappers do not reach the kernels.
//!
//! # Features
//!
//! `zstd` compresses the pack by the C library of that name, which makes it smaller than ruzstd does; it needs a C compiler. Release
//! builds for several architectures take longer over it.
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `WARPSMITH_BACKEND` | `stock` or `cuda_builder`; overrides [`KernelCrate::backend`] |
//! | `WARPSMITH_RUST_CUDA` | the folder that `builder/cuda-builder/setup` made; default: `warpsmith/rust-cuda` in the user's cache |
//! | `WARPSMITH_ARCHS` | comma-separated architectures; overrides [`KernelCrate::archs`] |
//! | `WARPSMITH_CUBINS` | comma-separated targets of machine code; overrides [`KernelCrate::cubins`]; `off`: none |
//! | `WARPSMITH_CACHE_DIR` | where `core` and the kernels' build live; overrides [`KernelCrate::cache_dir`] |
//! | `DOCS_RS` | set (by docs.rs) to anything: nothing is compiled, so that a host crate is documented without a toolchain for PTX |
//! | `WARPSMITH_RUST_SRC` | the `library` directory of the Rust source, if it is in no usual place |
//! | `WARPSMITH_PTXAS` | the `ptxas` that [`ptxas::find`] returns |
//! | `WARPSMITH_NVDISASM` | the `nvdisasm` that [`nvdisasm::find`] returns |

mod arch;
mod cache;
mod cargo;
mod compile;
mod cubin;
mod cuda_builder;
mod dependency;
mod edit;
mod error;
mod hints;
mod kernel_crate;
pub mod listing;
mod made;
mod mir;
pub mod nvdisasm;
mod output;
mod plan;
mod probe;
mod process;
mod ptx;
pub mod ptxas;
mod stock;
mod sysroot;
mod toolchain;

pub use arch::Arch;
pub use cuda_builder::{CUDA_BUILDER_REVISION, CUDA_BUILDER_TOOLCHAIN};
pub use error::{BuildError, MissingPiece};
pub use kernel_crate::KernelCrate;
pub use plan::{Backend, Image, Output};
pub use probe::{Probe, ProbeState, Scope, probe};
pub use warpsmith_image::{ArgEntry, ImageEntry, KernelEntry, Manifest, ManifestError};
