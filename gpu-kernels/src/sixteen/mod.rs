//! The operations of a layer on tensors of f16 and of bf16, for programs whose tensors are that: of candle, of cudarc, of their own.
//!
//! | operation | kernels, of f16 and of bf16 | |
//! |---|---|---|
//! | RMS norm; residual addition and RMS norm | [`RmsNormF16`], [`AddRmsNormF16`] | [`norms`] |
//! | the same with a residual stream of f32; RMS norm onto such a stream | [`AddRmsNormShadowF16`], [`RmsNormAddShadowF16`] | [`norms`] |
//! | layer norm | [`LayerNormF16`] | [`norms`] |
//! | residual addition, bias, factor; onto a residual stream of f32 | [`ScaledAddF16`], [`AddShadowF16`] | [`elementwise`] |
//! | SwiGLU, GEGLU, SiLU, GELU | [`GluF16`] | [`elementwise`] |
//! | f32 to f16, bf16 to f32 and so on | [`CastF32F16`] | [`elementwise`] |
//! | rotary embedding with or without a norm of each head | [`QkNormRopeF16`] | [`heads`] |
//! | keys and values into caches of f16, f32 or int8 | [`KvAppendF16`] | [`heads`] |
//! | attention over caches of f16, of single tokens and of prompts | [`AttnF16`] | [`attention`] |
//! | rows of an embedding table | [`EmbeddingF16`] | [`tokens`] |
//! | index of the largest logit | [`ArgmaxF16`] | [`tokens`] |
//!
//! All arithmetic and all sums are of f32, by the bodies of the kernels for tensors of f32. What is stored is rounded once, to nearest,
//! of two the even one: a number past the largest of the type becomes infinite (f16: from 65520 on), and NaN stays NaN. Weights
//! of norms, biases and tables are of the tensors' type; cosines and sines are of f32, and so are sinks.
//!
//! Rows lie one behind the other unless an operation says otherwise. They are loaded and stored 16 bytes at a time where that can be.

pub mod attention;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases;
pub mod elementwise;
pub mod heads;
pub mod norms;
pub mod tokens;

#[cfg(not(target_arch = "nvptx64"))]
pub use {attention::*, elementwise::*, heads::*, norms::*, tokens::*};

/// Elements of 16 bytes.
pub const WIDTH: u32 = 8;

/// Threads of a block that take [`WIDTH`] elements each.
pub const THREADS: u32 = 128;

/// Elements that a block takes.
pub const SPAN: u32 = THREADS * WIDTH;

/// A type of tensors.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sixteen {
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
}

#[cfg(not(target_arch = "nvptx64"))]
impl Sixteen {
    /// Both.
    pub const ALL: [Sixteen; 2] = [Sixteen::F16, Sixteen::Bf16];
}

/// The elements of this thread's part of a row, eight or one after the other, whichever all of the buffers allow.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod spread {
    use super::{SPAN, WIDTH};
    use warpsmith_device::prelude::*;

    /// Calls `eight` for [`WIDTH`] elements, or `one` for each of fewer: those of this thread of `n` elements. `addresses` are the
    /// bits of all addresses that eight are loaded from and stored to.
    #[inline(always)]
    pub fn spread(n: u32, addresses: usize, eight: impl Fn(usize), one: impl Fn(usize)) {
        let first = block::idx_x() * SPAN + thread::idx_x() * WIDTH;
        if first >= n {
            return;
        }
        let left = n - first;
        if addresses % 16 == 0 && left >= WIDTH {
            eight(first as usize);
            return;
        }
        let mut i = 0;
        while i < WIDTH && i < left {
            one((first + i) as usize);
            i += 1;
        }
    }
}

/// A buffer of whole rows of `cols` elements.
#[cfg(not(target_arch = "nvptx64"))]
fn check_rows(
    m: &'static warpsmith_device::KernelMeta,
    name: &'static str,
    len: usize,
    cols: u32,
) -> Result<(), warpsmith_device::ContractError> {
    use warpsmith_device::contract;
    contract::within(m, "cols", cols, 1u32, i32::MAX)?;
    contract::require(m, len > 0, name, "at least one row", 0)?;
    contract::multiple_of(m, name, len, (cols, "cols"))
}

#[cfg(test)]
mod tests;
