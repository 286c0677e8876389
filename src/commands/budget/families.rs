//! What products are held to beside the issue slots of [their families](warpsmith_host::gpu_kernels::gemv::budget).

use warpsmith_host::gpu_kernels::gemv::Activations;
pub use warpsmith_host::gpu_kernels::gemv::budget::{FAMILIES, Family, MANY, product};

/// Bytes of `cols` activations; integers have a pair of f32 for each 32 of them.
pub fn bytes(activations: Activations, cols: usize) -> usize {
    match activations {
        Activations::F32 => 4 * cols,
        Activations::F16x2 => 4 * cols,
        Activations::Int16 => 2 * cols + cols / 4,
        Activations::F16 => 2 * cols,
        Activations::Int8 => cols + cols / 4,
    }
}

/// Bytes of memory traffic by those that are needed.
pub const TRAFFIC: f64 = 1.02;
/// Bytes that a multiprocessor of an H200 has to have on the way: 4.48 TB/s for 0.65 us, by 132 (Little's law).
pub const IN_FLIGHT: f64 = 22.0 * 1024.0;
/// The same of a product, with some more for what does not come in time: 25 KiB, or all of a matrix that has less.
pub const PRODUCT_IN_FLIGHT: f64 = 25.0 * 1024.0;
