//! v3: one launch for a decode step of any number of columns: norm, rotation, store, and attention in splits.
//!
//! | | |
//! |---|---|
//! | `qkv` | f32, column `c` from `c * stride` on: `[q_heads + 2 * kv_heads, head_dim]` |
//! | `q_weight`, `k_weight`, `cos`, `sin`, `columns`, `layer` | as for [`store`](crate::kv::store) |
//! | | of a [programmatic](warpsmith_device::Programmatic) launch `columns` are read before what is right in front of it has ended |
//! | `sinks` | f32 `[q_heads]`, read with [`SINKS`](crate::layer::SINKS): scores beside those of positions, without values |
//! | `partials` | f32 workspace of [`partials_len`] |
//! | `counters` | u32 `[columns, kv_heads]`: zero before the first launch, and again after every launch |
//! | `y` | f32, column `c` from `c * y_stride` on: `[q_heads, head_dim]` |
//! | `quant_format`, `quantized`, `group_counters` | `y` as [quantized activations](crate::gemv::quant_format), if they are asked for |
//!
//! With [`FUSED`](crate::layer::FUSED) each column is of a sequence of its own, and `qkv` is as the projection left it. Without,
//! [`store`](crate::kv::store) came before, `qkv` holds turned queries, and columns may be of one sequence: token `i` of a
//! prompt then gives the same bits as a step that feeds it alone. A column whose position is not below its capacity and
//! the tables' context gives NaN and stores nothing.
//!
//! A block takes all query heads of a key head, so that keys and values are read once, and one of [`splits`] parts of the
//! positions. How many parts are used depends on the length alone, and is decided on the device; the last block to finish
//! merges them in order. So neither batch nor capacity nor schedule changes a bit.
//! int8 rows are attended to as they are stored, the newest one too.
//!
//! From sm_80 on, over caches of f16 and int8 and for heads of up to 128 elements, products are those of tensor cores, with each
//! query and each weight in two parts of f16. Elsewhere they are made in f32.
//!
//! Accuracy, both ways: a score is off by at most `d = 2^-20 max_t sum_i |q_i k_ti| / sqrt(head_dim)`, so that weights are by a
//! factor within `e^±2d` of each other, which moves a mean of values by at most `(e^2d - 1) max |v|`; weights and sums in f32 add
//! `1e-5 max |v|`. A NaN of a query, a key or a value is handed on; on tensor cores so is an infinite one, as NaN.

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::layer::SINKS;
#[cfg(not(target_arch = "nvptx64"))]
use crate::{gemv::QuantizedOutputs, kv::KvType, layer, state};
use crate::{layer::Layer, state::Column};
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Elements of the largest head on tensor cores: the registers of a thread hold no more results beside keys, values and queries.
pub(super) const TENSOR_HEAD_DIM: u32 = 128;
/// Query heads that a warp has at once on tensor cores.
pub(super) const HEADS: u32 = 8;
/// Positions that a part has at least, where there are several.
pub const PART: u32 = 64;

/// Parts that the launch has room for: enough to fill a large GPU with the blocks of one column. A power of two, by which the
/// device divides with a shift.
#[must_use]
#[inline(always)]
pub const fn splits(kv_heads: u32) -> u32 {
    1 << split_shift(kv_heads)
}

/// Two to this are the [`splits`].
#[inline(always)]
pub(super) const fn split_shift(kv_heads: u32) -> u32 {
    // 128 / kv_heads, to the next power of two.
    let shift = (kv_heads | 1).leading_zeros() as i32 - 24;
    if shift > 5 {
        5
    } else if shift < 2 {
        2
    } else {
        shift as u32
    }
}

/// How many parts `length` positions make, and positions of a part.
#[must_use]
#[inline(always)]
pub const fn parts(length: u32, splits: u32) -> (u32, u32) {
    let part = positions(length, splits);
    (length.div_ceil(part), part)
}

/// Positions of a part, without the division.
#[inline(always)]
pub(super) const fn positions(length: u32, splits: u32) -> u32 {
    // The quotient, rounded up, to the next multiple of 16.
    let even = (((length - 1) / splits) | 15) + 1;
    if even < PART { PART } else { even }
}

/// Elements of `partials` for `columns` columns: each part's values, its largest score and its sum.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn partials_len(columns: usize, layer: &Layer) -> u64 {
    let heads = columns as u64 * u64::from(layer.q_heads);
    heads.saturating_mul(u64::from(splits(layer.kv_heads.max(1)))).saturating_mul(u64::from(layer.head_dim) + 4)
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) mod frame;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(super) mod memory;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(super) mod partial;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod stage;

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::{gemv::quantizer::OutputQuantizer, kv::cached::Q8};

/// `arguments! { callback (args) }` calls `callback! { (args) NAME: (TYPE), … }` with the arguments of every entry point.
macro_rules! arguments {
    ($callback:ident $args:tt) => {
        $callback! { $args
            qkv: (Awaited<f32>),
            q_weight: (In<f32>),
            k_weight: (In<f32>),
            cos: (In<f32>),
            sin: (In<f32>),
            sinks: (In<f32>),
            columns: (In<Column>),
            partials: (InOut<f32>),
            counters: (InOut<u32>),
            y: (InOut<f32>),
            quantized: (Out<U32x4>),
            group_counters: (InOut<u32>),
            stride: (u32),
            y_stride: (u32),
            quant_format: (u32),
            layer: (Layer),
        }
    };
}
arguments! { define (Arguments StepArguments Seen) }

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
impl frame::AttentionArgs {
    /// The arguments of an entry point.
    ///
    /// # Safety
    /// What is awaited is not read before the launches before were waited for.
    #[inline(always)]
    unsafe fn of(given: Arguments) -> frame::AttentionArgs {
        // SAFETY: the caller's promise.
        let qkv = unsafe { given.qkv.buffer() };
        frame::AttentionArgs {
            qkv: qkv.into(),
            weights: (given.q_weight, given.k_weight),
            tables: (given.cos, given.sin),
            columns: given.columns,
            partials: given.partials,
            counters: given.counters,
            y: given.y.into(),
            sinks: given.layer.has(SINKS).then_some(given.sinks),
            quantizer: OutputQuantizer::asked(given.quant_format, given.quantized, given.group_counters),
            stride: given.stride,
            y_stride: given.y_stride,
            layer: given.layer,
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl StepArguments<'_> {
    /// Launches the entry point for caches of a type, `programmatic` as a programmatic launch.
    ///
    /// # Errors
    /// What the launcher reports, a broken contract first of all.
    ///
    /// # Safety
    /// As for [`Launcher::launch_unchecked`], of the caches that the columns lead to; and with `programmatic` as for [`Programmatic::new`].
    pub unsafe fn launch<L: Launcher>(self, on: &mut L, kv: KvType, programmatic: bool) -> Result<(), L::Error> {
        // SAFETY: the caller's promise.
        unsafe {
            match kv {
                KvType::F16 => on.launch_programmatic(AttnStepF16::from(self), programmatic),
                KvType::F32 => on.launch_programmatic(AttnStepF32::from(self), programmatic),
                KvType::Int8 => on.launch_programmatic(AttnStepQ8::from(self), programmatic),
            }
        }
    }
}

macro_rules! entry {
    (($(#[$doc:meta])* $T:ty, $name:ident $Name:ident, $blocks:literal) $($argument:ident: ($($ty:tt)*),)*) => {
        $(#[$doc])*
        #[kernel(block = THREADS, min_blocks = $blocks, family = "attention", variant = "v3")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($argument: $($ty)*,)*) {
            let args = frame::AttentionArgs::of(Arguments { $($argument),* });
            frame::attend::<$T>(args, crate::load::Launched, frame::StepMemory::declared(), || {
                grid::wait_dependencies();
                grid::launch_dependents();
            });
        }

        #[cfg(not(target_arch = "nvptx64"))]
        convert! { $Name: attention::step, StepArguments Seen, $($argument)* }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                let blocks = u64::from(self.layer.kv_heads) * u64::from(splits(self.layer.kv_heads.max(1)));
                Geometry::grid(blocks, self.columns.len() as u64, 1u32)
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
    let l = &given.layer;
    let Seen { q_weight, k_weight, cos, sin, .. } = *given;
    let tables = layer::Tables { q_weight, k_weight, cos, sin };
    layer::check(m, l, l.has(layer::FUSED).then_some(&tables))?;
    layer::check_sinks(m, l, given.sinks)?;
    state::check_columns(m, given.columns)?;
    let n = given.columns.len();
    let (dim, q_heads, kv_heads) = (u64::from(l.head_dim), u64::from(l.q_heads), u64::from(l.kv_heads));
    let part = ((q_heads + 2 * kv_heads) * dim, "(q_heads + 2 * kv_heads) * head_dim");
    state::check_strided(m, "qkv", given.qkv.len(), (n, given.stride), part)?;
    layer::check_pairs(m, "qkv", given.qkv.address(), Some(given.stride))?;
    state::check_strided(m, "y", given.y.len(), (n, given.y_stride), (q_heads * dim, "q_heads * head_dim"))?;
    check_workspace(m, l, n, (given.partials, given.counters))?;
    let outputs = QuantizedOutputs {
        quant_format: given.quant_format,
        quantized: given.quantized,
        group_counters: given.group_counters,
    };
    outputs.check(m, n as u32, (l.q_heads * l.head_dim, "q_heads * head_dim"))
}

/// The part of a contract that is about the workspace of `columns` single steps.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn check_workspace(
    m: &'static KernelMeta,
    layer: &Layer,
    columns: usize,
    (partials, counters): (&DeviceSlice<f32>, &DeviceSlice<u32>),
) -> Result<(), ContractError> {
    contract::at_least(m, "partials", partials.len(), (partials_len(columns, layer), "partials_len"))?;
    contract::multiple_of(m, "partials", (partials.address(), "its address"), 16u32)?;
    let kv_heads = u64::from(layer.kv_heads);
    contract::at_least(m, "counters", counters.len(), (columns as u64 * kv_heads, "columns * kv_heads"))
}

macro_rules! entries {
    ($($(#[$doc:meta])* $T:ty: $name:ident $Name:ident, $blocks:literal;)*) => {
        $(arguments! { entry ($(#[$doc])* $T, $name $Name, $blocks) })*
    };
}

entries! {
    /// A decode step's attention over f16 caches: norm, rotation, store and attention, split over positions.
    f16: attn_step_f16 AttnStepF16, 1;
    /// The same over f32 caches.
    f32: attn_step_f32 AttnStepF32, 1;
    /// The same over int8 caches with a scale a row.
    Q8: attn_step_q8 AttnStepQ8, 1;
}

/// How far a result may be from the definition, as a share of the largest value: see the module. `reach` is the largest
/// `sum_i |q_i k_i| / sqrt(head_dim)` of the row.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn step_bound(reach: f64) -> f64 {
    (2.0 * 2f64.powi(-20) * reach).exp_m1() + 1e-5
}
