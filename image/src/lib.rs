//! What a build of kernels hands to the host.
//!
//! The builder compiles a crate of kernels to PTX for each architecture and writes two things that the program embeds: the
//! [`Manifest`], which says what kernels there are and how they are launched, and the [pack](mod@pack), which holds their texts.
//! The runtime reads both. What is written and what is read is one type each, so that neither side can drift from the other.

mod manifest;
pub mod pack;
mod threads;

pub use manifest::{ArgEntry, CUDA_BUILDER, ImageEntry, KernelEntry, Manifest, ManifestError, STOCK};
pub use threads::map_in_threads;
