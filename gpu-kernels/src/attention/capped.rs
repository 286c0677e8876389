//! Attention whose scores are capped: `cap * tanh(q · k * scale / cap)` takes the place of `q · k / sqrt(head_dim)`.
//!
//! | | |
//! |---|---|
//! | `qkv` | f32, column `c` from `c * stride` on: queries `[q_heads, head_dim]`, turned |
//! | `columns` | [`Column`]s of any sequences; [`store`](crate::kv::store) ran before |
//! | `layer` | [`Layer`]; tables and norms are not looked at |
//! | `y` | f32, column `c` from `c * y_stride` on: `[q_heads, head_dim]` |
//! | `scale` | what products of a query and a key are multiplied with |
//! | `cap` | above 0 |
//!
//! A block takes a query head of a column, its warps every fourth group of positions, in f32 throughout; a column has the same bits
//! beside any others. A column whose position is not below its capacity and the tables' context gives NaN. Few models want this, so
//! there is one form for steps and prompts, and long caches are not divided among blocks.
//!
//! Accuracy: as [`step`](super::step), and a score is off by `2^-21 cap` more, as `tanh(u)` is `1 - 2 / (1 + e^2u)`. Source: Gemma 2, arXiv
//! 2408.00118, section 2.

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::sweep::*;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::{
    kv::cached::{Cached, Q8, Rows},
    load::{lane, warp_index},
    real::Real,
};
#[cfg(not(target_arch = "nvptx64"))]
use crate::{layer, state};
use crate::{layer::Layer, state::Column};
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 128;

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
const WARPS: usize = THREADS as usize / 32;
/// Elements of the largest head.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
const MOST: usize = 256;

/// Floats of shared memory that a block needs.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) const SCRATCH: usize = WARPS * MOST + 2 * WARPS;

/// What a block is given: queries and results are of type `E`.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
pub(crate) struct CappedArgs<E> {
    pub qkv: In<E>,
    pub columns: In<Column>,
    pub y: Out<E>,
    pub stride: u32,
    pub y_stride: u32,
    pub scale: f32,
    pub cap: f32,
    /// Scores stay as they are.
    pub uncapped: bool,
    /// A score of each query head that takes a share of its softmax and gives no value.
    pub sinks: Option<In<f32>>,
    pub layer: Layer,
}

/// `scratch` has results of each warp, and behind them its largest score and its sum.
///
/// All threads of the block make this call.
#[device]
pub(crate) unsafe fn attend<T: Cached, E: Real>(a: CappedArgs<E>, scratch: Shared<f32>) {
    // The same choice in every thread.
    if a.layer.head_dim <= 64 {
        pass::<T, E, 8>(&a, scratch);
    } else if a.layer.head_dim <= 128 {
        pass::<T, E, 16>(&a, scratch);
    } else {
        pass::<T, E, 32>(&a, scratch);
    }
}

#[device]
unsafe fn pass<T: Cached, E: Real, const LANES: usize>(a: &CappedArgs<E>, scratch: Shared<f32>) {
    let (head, column, dim) = (block::idx_x(), block::idx_y() as usize, a.layer.head_dim as usize);
    let c = a.columns.at(column);
    let valid = c.position < c.capacity && c.position < a.layer.context;
    let (from, to) = if valid { (a.layer.window_start(c.position), c.position + 1) } else { (0, 0) };
    let (keys, values) = Rows::of::<T>(&c, a.layer.index, a.layer.kv_heads, head / a.layer.group(), a.layer.head_dim);
    // Scores are kept in powers of two, and so is their cap.
    let at = column * a.stride as usize + head as usize * dim;
    let q = [query_at::<LANES>(a.qkv, at, dim, a.scale * core::f32::consts::LOG2_E)];
    let cap = a.cap * core::f32::consts::LOG2_E;
    let twice = 2.0 / cap;
    let capped = |score: f32| {
        if a.uncapped { score } else { cap * (1.0 - 2.0 / (1.0 + math::exp(score * twice))) }
    };
    let (warp, width) = (warp_index(), (64 / LANES) as u32);
    let mine = (from + warp as u32 * width, to, WARPS as u32 * width);
    let mut state = sweep::<T, LANES, 1>(&q, (&keys, &values), dim, mine, |_, _| true, capped);
    merge_rows::<LANES, 1>(&mut state);
    let e = element::<LANES>();
    if lane() < LANES && e < dim {
        for i in 0..8 {
            scratch.set(warp * MOST + e + i, state.values[0][i]);
        }
    }
    if lane() == 0 {
        scratch.set(WARPS * MOST + 2 * warp, state.largest[0]);
        scratch.set(WARPS * MOST + 2 * warp + 1, state.sum[0]);
    }
    sync::block();
    let mut top = f32::MIN;
    for w in 0..WARPS {
        top = math::max(top, scratch.get(WARPS * MOST + 2 * w));
    }
    let (mut factors, mut sum) = ([0.0f32; WARPS], 0.0);
    for w in 0..WARPS {
        factors[w] = math::exp2_approx_ftz(scratch.get(WARPS * MOST + 2 * w) - top);
        sum = math::fma(scratch.get(WARPS * MOST + 2 * w + 1), factors[w], sum);
    }
    if let Some(sinks) = a.sinks {
        // Far above all scores it counts for infinity, and leaves nothing of the values.
        sum += math::exp2_approx_ftz(sinks.at(head as usize) * core::f32::consts::LOG2_E - top);
    }
    let y = a.y.from(column * a.y_stride as usize + head as usize * dim);
    let mut d = thread::idx_x() as usize;
    while d < dim {
        let mut value = 0.0;
        for w in 0..WARPS {
            value = math::fma(scratch.get(w * MOST + d), factors[w], value);
        }
        y.set(d, E::narrow(if valid { value / sum } else { f32::NAN }));
        d += THREADS as usize;
    }
}

macro_rules! entries {
    ($( $(#[$doc:meta])* $T:ty: $name:ident $Name:ident $shared:ident; )*) => { $(
        $(#[$doc])*
        #[kernel(block = THREADS, min_blocks = 4, family = "attention", variant = "capped")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(
            qkv: Awaited<f32>,
            columns: Awaited<Column>,
            y: Out<f32>,
            stride: u32,
            y_stride: u32,
            scale: f32,
            cap: f32,
            layer: Layer,
        ) {
            let scratch = shared_array!($shared: [f32; SCRATCH]);
            grid::wait_dependencies();
            grid::launch_dependents();
            let (qkv, columns, uncapped, sinks) = (qkv.buffer(), columns.buffer(), false, None);
            let args = CappedArgs { qkv, columns, y, stride, y_stride, scale, cap, uncapped, sinks, layer };
            attend::<$T, f32>(args, scratch);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::grid(self.layer.q_heads, self.columns.len() as u64, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                let (m, l) = (Self::META, &self.layer);
                layer::check(m, l, None)?;
                contract::require(m, !l.has(layer::SINKS), "layer", "no sinks, which capped scores do not have", l.flags)?;
                state::check_columns(m, self.columns)?;
                let part = (u64::from(l.q_heads) * u64::from(l.head_dim), "q_heads * head_dim");
                state::check_strided(m, "qkv", self.qkv.len(), (self.columns.len(), self.stride), part)?;
                state::check_strided(m, "y", self.y.len(), (self.columns.len(), self.y_stride), part)?;
                for (name, x) in [("scale", self.scale), ("cap", self.cap)] {
                    contract::require(m, x.is_finite() && x > 0.0, name, "a finite number above 0", x)?;
                }
                Ok(())
            }
        }
    )* };
}

entries! {
    /// Attention with capped scores over f16 caches.
    f16: attn_capped_f16 AttnCappedF16 ATTN_CAPPED_F16;
    /// Attention with capped scores over f32 caches.
    f32: attn_capped_f32 AttnCappedF32 ATTN_CAPPED_F32;
    /// Attention with capped scores over int8 caches with a scale a row.
    Q8: attn_capped_q8 AttnCappedQ8 ATTN_CAPPED_Q8;
}

#[cfg(not(target_arch = "nvptx64"))]
pub use launch::CappedArguments;

#[cfg(not(target_arch = "nvptx64"))]
mod launch {
    use super::{AttnCappedF16, AttnCappedF32, AttnCappedQ8, Column, Layer};
    use crate::kv::KvType;
    use warpsmith_device::{DeviceSlice, Launcher};

    /// The arguments of the kernel for any type of cache.
    pub struct CappedArguments<'a> {
        /// Queries.
        pub qkv: &'a DeviceSlice<f32>,
        /// What attends.
        pub columns: &'a DeviceSlice<Column>,
        /// Results.
        pub y: &'a mut DeviceSlice<f32>,
        /// Where columns of `qkv` and `y` start.
        pub strides: (u32, u32),
        /// What products of a query and a key are multiplied with, and the cap.
        pub scores: (f32, f32),
        /// Sizes and options.
        pub layer: Layer,
    }

    impl CappedArguments<'_> {
        /// Launches the entry point for caches of a type, `programmatic` as a programmatic launch.
        ///
        /// # Errors
        /// What the launcher reports, a broken contract first of all.
        ///
        /// # Safety
        /// As for [`Launcher::launch_unchecked`], of the caches that the columns lead to; and with `programmatic` as for
        /// [`Programmatic::new`](warpsmith_device::Programmatic::new).
        pub unsafe fn launch<L: Launcher>(self, on: &mut L, kv: KvType, programmatic: bool) -> Result<(), L::Error> {
            let CappedArguments { qkv, columns, y, strides: (stride, y_stride), scores: (scale, cap), layer } = self;
            macro_rules! launch {
                ($Kernel:ident) => {{
                    let kernel = $Kernel { qkv, columns, y, stride, y_stride, scale, cap, layer };
                    // SAFETY: the caller's promise.
                    unsafe { on.launch_programmatic(kernel, programmatic) }
                }};
            }
            match kv {
                KvType::F16 => launch!(AttnCappedF16),
                KvType::F32 => launch!(AttnCappedF32),
                KvType::Int8 => launch!(AttnCappedQ8),
            }
        }
    }
}
