//! Prompts with the bits of single steps, beside such steps: the attention of any mix of columns in one launch.
//!
//! | | |
//! |---|---|
//! | `qkv`, `columns`, `tiles`, `sinks`, `layer` | as for [`prefill`] |
//! | `steps` | [`Column`]s of the last `steps_count` of `columns` as single steps. One of capacity 0 is no step: it is in a tile |
//! | `partials`, `counters` | as for [`step`], for `steps` |
//! | `y` | f32, column `c` from `c * y_stride` on: `[q_heads, head_dim]` |
//! | `quant_format`, `quantized`, `group_counters` | `y` as [quantized activations](crate::gemv::quant_format), if they are asked for |
//!
//! Blocks of tiles come first, in the order of the tiles: a host that puts those with the most positions first has the longest blocks begin
//! first. Behind them come the blocks of single steps, each a part of a column's positions, which are short: they fill the places that
//! tiles leave.
//!
//! A column of a tile gets the results that [`step`] gives. What a step of one token does
//! in many blocks, each for a part of the positions, a warp does here one after the other: for each part of positions and each turn
//! of a step's warps the same tiles of tensor cores, put together in the same order (`attention/tiles.rs`). A warp takes as many
//! columns at once as have up to eight query heads of a key head together; keys and values are then read once for all of them, and
//! by the warps of a block at about the same time. Tiles to which some of its columns attend and others not, or not to all of
//! their positions, it takes for each column apart, as a value that is not a number would reach the others through a weight of 0.
//!
//! Where [`step`] has no tensor cores, a block does what the blocks of single steps do, a column after the other: that is
//! not made to be fast.

use super::{prefill, step, step::HEADS};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::kv::cached::Q8;
#[cfg(not(target_arch = "nvptx64"))]
use crate::{
    gemv::{OutputQuantization, QuantizedOutputs},
    kv::KvType,
    state,
};
use crate::{layer::Layer, state::Column};
use prefill::QueryTile;
use warpsmith_device::prelude::*;

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod run;

/// Threads of a block.
pub const THREADS: u32 = step::THREADS;
/// Warps of a block.
const WARPS: u32 = THREADS / 32;

/// Columns of a warp, whose query heads of a key head it has at once; of more query heads than it has, two warps take one column.
#[inline(always)]
const fn columns_of_warp(group: u32) -> u32 {
    if group > HEADS { 1 } else { HEADS / group }
}

/// Columns of a block, and blocks of each key head for a tile: a power of two.
#[inline(always)]
const fn columns_of_block(group: u32, head_dim: u32) -> (u32, u32) {
    let columns = if group > HEADS { WARPS / 2 } else { WARPS * columns_of_warp(group) };
    (columns, prefill::rows(head_dim).div_ceil(columns))
}

/// Two to this are the rows of blocks that a single step takes, where a row of blocks has `of_key_head` for each of its key heads.
#[inline(always)]
const fn rows_shift(kv_heads: u32, of_key_head: u32) -> u32 {
    step::split_shift(kv_heads).saturating_sub(of_key_head.trailing_zeros())
}

/// `arguments! { callback (args) }` calls `callback! { (args) NAME: (TYPE), … }` with the arguments of every entry point.
macro_rules! arguments {
    ($callback:ident $args:tt) => {
        $callback! { $args
            qkv: (Awaited<f32>),
            columns: (Awaited<Column>),
            tiles: (Awaited<QueryTile>),
            steps: (Awaited<Column>),
            sinks: (In<f32>),
            partials: (InOut<f32>),
            counters: (InOut<u32>),
            y: (InOut<f32>),
            quantized: (Out<U32x4>),
            group_counters: (InOut<u32>),
            count: (u32),
            steps_count: (u32),
            stride: (u32),
            y_stride: (u32),
            quant_format: (u32),
            layer: (Layer),
        }
    };
}
arguments! { define (Arguments PromptArguments Seen) }

#[cfg(not(target_arch = "nvptx64"))]
impl<'a> From<prefill::PrefillArguments<'a>> for PromptArguments<'a> {
    /// Tiles alone, whose results are not quantized.
    fn from(given: prefill::PrefillArguments<'a>) -> PromptArguments<'a> {
        let prefill::PrefillArguments { qkv, columns, tiles, sinks, y, strides: (stride, y_stride), layer } = given;
        let (quant_format, quantized, group_counters) = OutputQuantization::arguments(None);
        PromptArguments {
            qkv,
            columns,
            tiles,
            steps: DeviceSlice::empty(),
            sinks,
            partials: DeviceSlice::empty_mut(),
            counters: DeviceSlice::empty_mut(),
            y,
            quantized,
            group_counters,
            count: columns.len() as u32,
            steps_count: 0,
            stride,
            y_stride,
            quant_format,
            layer,
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a> PromptArguments<'a> {
    /// The last columns attend as single steps, but for those that are in tiles: `steps`, with the workspace of [`step`].
    #[must_use]
    pub fn with_steps(
        self,
        steps: &'a DeviceSlice<Column>,
        (partials, counters): (&'a mut DeviceSlice<f32>, &'a mut DeviceSlice<u32>),
    ) -> PromptArguments<'a> {
        PromptArguments { steps, steps_count: steps.len() as u32, partials, counters, ..self }
    }

    /// Results are quantized as well, if this asks for it.
    #[must_use]
    pub fn quantized(self, outputs: Option<OutputQuantization<'a>>) -> PromptArguments<'a> {
        let (quant_format, quantized, group_counters) = OutputQuantization::arguments(outputs);
        PromptArguments { quant_format, quantized, group_counters, ..self }
    }

    /// Launches the entry point for caches of a type, `programmatic` as a programmatic launch.
    ///
    /// # Errors
    /// What the launcher reports, a broken contract first of all.
    ///
    /// # Safety
    /// As for [`PrefillArguments::launch`](prefill::PrefillArguments::launch). Of the last columns each that is in no tile is among `steps`, and no other.
    pub unsafe fn launch<L: Launcher>(self, on: &mut L, kv: KvType, programmatic: bool) -> Result<(), L::Error> {
        // SAFETY: the caller's promise.
        unsafe {
            match kv {
                KvType::F16 => on.launch_programmatic(AttnPromptF16::from(self), programmatic),
                KvType::F32 => on.launch_programmatic(AttnPromptF32::from(self), programmatic),
                KvType::Int8 => on.launch_programmatic(AttnPromptQ8::from(self), programmatic),
            }
        }
    }
}

macro_rules! entry {
    (($(#[$doc:meta])* $T:ty, $name:ident $Name:ident) $($argument:ident: ($($ty:tt)*),)*) => {
        $(#[$doc])*
        #[kernel(block = THREADS, min_blocks = 1, family = "attention", variant = "prompt")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($argument: $($ty)*,)*) {
            grid::wait_dependencies();
            grid::launch_dependents();
            run::attend::<$T>(&Arguments { $($argument),* });
        }

        #[cfg(not(target_arch = "nvptx64"))]
        convert! { $Name: attention::prompt, PromptArguments Seen, $($argument)* }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                let (l, heads) = (&self.layer, self.layer.kv_heads.max(1));
                let of_key_head = columns_of_block((l.q_heads / heads).max(1), l.head_dim).1;
                let steps = u64::from(self.steps_count) << rows_shift(heads, of_key_head);
                Geometry::grid(u64::from(heads) * u64::from(of_key_head), self.tiles.len() as u64 + steps, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                check(Self::META, &self.seen())
            }
        }
    };
}

/// The contract of every entry point.
#[cfg(not(target_arch = "nvptx64"))]
fn check(m: &'static KernelMeta, given: &Seen<'_>) -> Result<(), ContractError> {
    let &Seen { qkv, columns, tiles, steps, sinks, y, count, steps_count, stride, y_stride, ref layer, .. } = given;
    prefill::check(m, &prefill::Seen { qkv, columns, tiles, sinks, y, count, strides: (stride, y_stride), layer })?;
    contract::exactly(m, "steps", steps.len(), (steps_count, "steps_count"))?;
    contract::within(m, "steps_count", steps_count, 0u32, count)?;
    if steps_count > 0 {
        state::check_columns(m, steps)?;
        step::check_workspace(m, layer, steps.len(), (given.partials, given.counters))?;
    }
    let outputs = QuantizedOutputs {
        quant_format: given.quant_format,
        quantized: given.quantized,
        group_counters: given.group_counters,
    };
    outputs.check(m, count, (layer.q_heads * layer.head_dim, "q_heads * head_dim"))
}

macro_rules! entries {
    ($($(#[$doc:meta])* $T:ty: $name:ident $Name:ident;)*) => {
        $(arguments! { entry ($(#[$doc])* $T, $name $Name) })*
    };
}

entries! {
    /// Attention of prompts and single steps over f16 caches, each with the bits of a step: on tensor cores from sm_80 on.
    f16: attn_prompt_f16 AttnPromptF16;
    /// The same over f32 caches.
    f32: attn_prompt_f32 AttnPromptF32;
    /// The same over int8 caches: on tensor cores from sm_80 on.
    Q8: attn_prompt_q8 AttnPromptQ8;
}

/// Whether a device of compute capability `sm` multiplies on tensor cores here.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn on_tensor_cores(kv: KvType, head_dim: u32, sm: u32) -> bool {
    sm >= 80 && kv != KvType::F32 && head_dim <= step::TENSOR_HEAD_DIM
}
