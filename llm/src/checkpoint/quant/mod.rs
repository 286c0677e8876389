//! How a checkpoint's matrices are quantised, and what they are made into.

mod config;
mod float4;
mod float8;
mod grouped;
mod packing;

pub(super) use config::Quantization;
