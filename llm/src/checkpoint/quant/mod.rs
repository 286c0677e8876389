//! How a checkpoint's matrices are quantised, and what they are made into.

mod config;
mod float4;
mod float8;
mod grouped;
mod mxfp4;
mod packing;

pub(super) use config::Quantization;
pub(super) use mxfp4::Mxfp4;
