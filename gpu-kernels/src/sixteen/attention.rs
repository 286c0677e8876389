//! Attention with queries and results of f16 and of bf16, over caches of f16: of single tokens, of tokens of several sequences, and of prompts.
//!
//! | | |
//! |---|---|
//! | `q` | column `c` from `c * stride` on: `[q_heads, head_dim]`, turned |
//! | `columns` | [`Column`]s of any sequences; what they attend to is stored already, their own keys and values too |
//! | `sinks` | f32 `[q_heads]`, read with [`SINKS`](crate::layer::SINKS): scores beside those of positions, without values |
//! | `y` | column `c` from `c * y_stride` on: `[q_heads, head_dim]` |
//! | `layer` | [`Layer`]: heads, window and sinks; tables and norms are not looked at |
//! | `scale` | what products of a query and a key are multiplied with: `1 / sqrt(head_dim)` in most models |
//! | `cap` | scores are `cap * tanh(score / cap)`; 0: as they are |
//!
//! The body is that of [`capped`](crate::attention::capped): a block takes a query head of a column, in f32 throughout; a column has the
//! same bits beside any others, and one whose position is not below its capacity and `layer.context` gives NaN. Of a prompt every
//! column is one of a launch. Long caches are not divided among blocks, nor are there tensor cores: where the former matters,
//! [`step`](crate::attention::step), and where the latter, [`prefill`](crate::attention::prefill) take queries of f32, which
//! [`CastF16F32`](super::CastF16F32) makes of these without rounding.

use crate::attention::capped::THREADS;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::attention::capped::{CappedArgs, SCRATCH, attend};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::layer::SINKS;
#[cfg(not(target_arch = "nvptx64"))]
use crate::{layer, state};
use crate::{layer::Layer, state::Column};
use warpsmith_device::prelude::*;

/// What the warps of a block found.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
fn scratch() -> Shared<f32> {
    shared_array!(ATTENTION_OF_SIXTEEN: [f32; SCRATCH])
}

macro_rules! kernels {
    ($($T:ident: $name:ident $Name:ident;)*) => { $(
        /// Attention over caches of f16, a block a query head of a column.
        #[kernel(block = THREADS, min_blocks = 4, family = "sixteen")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(
            q: In<$T>,
            columns: In<Column>,
            sinks: In<f32>,
            y: Out<$T>,
            stride: u32,
            y_stride: u32,
            scale: f32,
            cap: f32,
            layer: Layer,
        ) {
            let (uncapped, sinks) = (cap == 0.0, if layer.has(SINKS) { Some(sinks) } else { None });
            let args = CappedArgs { qkv: q, columns, y, stride, y_stride, scale, cap, uncapped, sinks, layer };
            attend::<f16, $T>(args, scratch());
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::grid(self.layer.q_heads, self.columns.len() as u64, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                let (m, l, cap) = (Self::META, &self.layer, self.cap);
                layer::check(m, l, None)?;
                layer::check_sinks(m, l, self.sinks)?;
                state::check_columns(m, self.columns)?;
                let part = (u64::from(l.q_heads) * u64::from(l.head_dim), "q_heads * head_dim");
                state::check_strided(m, "q", self.q.len(), (self.columns.len(), self.stride), part)?;
                state::check_strided(m, "y", self.y.len(), (self.columns.len(), self.y_stride), part)?;
                let (scale, above) = (self.scale, "a finite number above 0");
                contract::require(m, scale.is_finite() && scale > 0.0, "scale", above, scale)?;
                contract::require(m, cap.is_finite() && cap >= 0.0, "cap", "a finite number, 0 for none", cap)
            }
        }
    )* };
}

kernels! {
    f16: attn_f16 AttnF16;
    bf16: attn_bf16 AttnBf16;
}
