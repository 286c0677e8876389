//! Prefill: columns in runs of consecutive tokens of a sequence, each over the sequence's caches, causal.
//!
//! | | |
//! |---|---|
//! | `qkv` | f32, column `c` from `c * stride` on: queries `[q_heads, head_dim]`, turned |
//! | `columns` | [`Column`]s; [`store`](crate::kv::store) ran before |
//! | `tiles` | [`QueryTile`]s, a row of blocks each: which columns attend. Others' rows of `y` are not written |
//! | `layer` | [`Layer`]; tables and norms are not looked at |
//! | `sinks` | f32 `[q_heads]`, read with [`SINKS`](crate::layer::SINKS): scores beside those of positions, without values |
//! | `y` | f32, column `c` from `c * y_stride` on: `[q_heads, head_dim]` |
//!
//! A block takes a tile of up to 128 columns of a query head, or 64 of heads of more than 128 elements, its warps a part of them each. From sm_80
//! on and over caches of f16 and int8 that is a flash attention on tensor cores (`mma.sync` m16n8k16): queries and weights are
//! rounded to f16, which holds keys and values and codes of them exactly; everything is added up in f32. Elsewhere, and over f32
//! caches, of which tensor cores would lose what they are kept for, each warp passes over keys and values with four columns at a
//! time, in f32 throughout. A column whose position is not below its capacity and the tables' context gives NaN.
//!
//! What a column gets over caches of f16 and f32 depends on its queries, its position and its caches alone: not on the tile it is in nor
//! on where its caches lie. Over int8 caches weights are also rounded by the scales of later positions of its last tile of keys.
//! A value of an f16 cache that is not finite may make columns up to 63 positions before it NaN.
//!
//! Accuracy. f32: as [`step`](super::step), which gives the exact bits of single steps; this kernel does not. Tensor cores:
//! a query's elements are off by a relative 2^-11, so its scores by at most `d = 2^-11 max_t sum_i |q_i k_ti| / sqrt(head_dim)`,
//! and the weights by a factor within `e^±2d` of each other, which moves a mean of values by at most `(e^2d - 1) max |v|`. Weights
//! are relative to the largest score so far or one that is at most 8 powers of two below it, so one of them is 1 or more. They
//! are added up in f32, and rounded to f16 where they are used: a relative 2^-11 each, or 2^-25 where they are subnormal, which
//! moves the mean by at most `(2^-11 + 2^-25 length) max |v|`. Over int8 caches it is weights times scales of values that are
//! rounded, with six bits more below: `2^-31 length` times the largest value of the tiles that the column looks into, which end up
//! to 63 positions after its own, beside `2^-11 max |v|`. Source: Dao, arXiv 2307.08691.

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::layer::SINKS;
#[cfg(not(target_arch = "nvptx64"))]
use crate::{kv::KvType, layer, state};
use crate::{layer::Layer, state::Column};
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 128;

/// Columns that a block attends from: tokens of one sequence at consecutive positions. None are at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Element)]
#[repr(C)]
pub struct QueryTile {
    /// The first column; those of further positions follow it.
    pub first: u32,
    /// How many there are, up to [`rows`].
    pub count: u32,
    /// The column of the last position, which may lie elsewhere: columns that are predicted from are the last of a step.
    pub last: u32,
}

impl QueryTile {
    /// The column of the tile's position `i`, which is below `count`.
    #[inline(always)]
    #[must_use]
    pub const fn column(&self, i: u32) -> u32 {
        if i + 1 == self.count { self.last } else { self.first + i }
    }

    /// Tiles of a run of positions: `count` columns from `first` on, the last of which is `last`.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn cut(first: u32, count: u32, last: u32, head_dim: u32) -> impl Iterator<Item = QueryTile> {
        let rows = rows(head_dim);
        (0..count).step_by(rows as usize).map(move |at| {
            let n = rows.min(count - at);
            QueryTile { first: first + at, count: n, last: if at + n == count { last } else { first + at + n - 1 } }
        })
    }
}

/// Columns of a block: as many as its registers hold results of.
#[must_use]
#[inline(always)]
pub const fn rows(head_dim: u32) -> u32 {
    if head_dim > 128 { 64 } else { 128 }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(super) mod frame {
    use super::{super::sweep::*, Column, Layer, QueryTile, SINKS};
    use crate::{
        kv::cached::{Cached, Rows},
        load::{lane, warp_index},
    };
    use warpsmith_device::{prelude::*, unroll};

    /// Columns that a warp takes at once.
    const AT_ONCE: usize = 4;

    #[derive(Clone, Copy)]
    pub struct PrefillArgs<Y = Out<f32>> {
        pub qkv: In<f32>,
        pub columns: In<Column>,
        pub tiles: In<QueryTile>,
        pub y: Y,
        /// A score of each query head that takes a share of its softmax, with [`SINKS`](crate::layer::SINKS).
        pub sinks: In<f32>,
        pub stride: u32,
        pub y_stride: u32,
        pub layer: Layer,
    }

    impl<Y> PrefillArgs<Y> {
        /// The block's tile, read anew by each call: what is kept meanwhile takes registers.
        #[inline(always)]
        pub unsafe fn tile(&self) -> QueryTile {
            // SAFETY: there are as many as rows of blocks.
            unsafe { self.tile_of(block::idx_x()) }
        }

        /// A tile, read anew.
        #[inline(always)]
        pub unsafe fn tile_of(&self, index: u32) -> QueryTile {
            // SAFETY: the caller's promise.
            unsafe { self.tiles.at(unroll::opaque(index as usize)) }
        }

        /// What the sink of a head counts for beside weights relative to `largest`, a power of two; 0 without sinks.
        #[inline(always)]
        pub unsafe fn sink(&self, head: usize, largest: f32) -> f32 {
            // Asked anew: what the flags say would otherwise be kept from the beginning on.
            if unroll::opaque(self.layer.flags as usize) as u32 & SINKS == 0 {
                return 0.0;
            }
            // SAFETY: there is one for each query head.
            let score = unsafe { self.sinks.at(head) };
            // Far above all scores it counts for infinity, and leaves nothing of the values.
            math::exp2_approx_ftz(score * core::f32::consts::LOG2_E - largest)
        }

        /// Positions below it have a place, of a column's caches and the tables.
        #[inline(always)]
        pub fn limit(&self, c: &Column) -> u32 {
            if c.capacity < self.layer.context { c.capacity } else { self.layer.context }
        }

        /// The positions `first .. end` that a column attends to; none if it has no place.
        #[inline(always)]
        pub unsafe fn range(&self, column: u32) -> (u32, u32) {
            // SAFETY: the caller's promise: it is one of the columns.
            let c = unsafe { self.columns.at(column as usize) };
            if c.position < c.capacity && c.position < self.layer.context {
                (self.layer.window_start(c.position), c.position + 1)
            } else {
                (0, 0)
            }
        }
    }

    #[device]
    pub unsafe fn plain<T: Cached>(a: PrefillArgs) {
        // The same choice in every thread.
        if a.layer.head_dim <= 64 {
            passes::<T, 8>(&a);
        } else if a.layer.head_dim <= 128 {
            passes::<T, 16>(&a);
        } else {
            passes::<T, 32>(&a);
        }
    }

    #[device]
    unsafe fn passes<T: Cached, const LANES: usize>(a: &PrefillArgs) {
        let (head, dim) = (block::idx_y(), a.layer.head_dim as usize);
        let rows = super::rows(a.layer.head_dim);
        let first = warp_index() as u32 * (rows / 4);
        let tile = a.tile();
        if tile.count == 0 {
            return;
        }
        let c = a.columns.at(tile.column(0) as usize);
        let of = head / a.layer.group();
        let (keys, values) = Rows::of::<T>(&c, a.layer.index, a.layer.kv_heads, of, a.layer.head_dim);
        let scale = core::f32::consts::LOG2_E / math::sqrt(dim as f32);
        let mut pass = 0;
        while pass < rows / 4 {
            let first = first + pass;
            let mut ranges = [(0u32, 0u32); AT_ONCE];
            let mut q = [[0.0f32; 8]; AT_ONCE];
            let (mut from, mut to) = (u32::MAX, 0);
            for j in 0..AT_ONCE {
                let i = first + j as u32;
                ranges[j] = if i < tile.count { a.range(tile.column(i)) } else { (0, 0) };
                if ranges[j].1 > 0 {
                    let at = tile.column(i) as usize * a.stride as usize + head as usize * dim;
                    q[j] = query_at::<LANES>(a.qkv, at, dim, scale);
                    from = if ranges[j].0 < from { ranges[j].0 } else { from };
                    to = if ranges[j].1 > to { ranges[j].1 } else { to };
                }
            }
            let live = |j: usize, t: u32| ranges[j].0 <= t && t < ranges[j].1;
            let width = (64 / LANES) as u32;
            // So that a row's positions are taken in the same groups whichever rows are beside it.
            let from = from - from % width;
            let mut state =
                sweep::<T, LANES, AT_ONCE>(&q, (&keys, &values), dim, (from, to, width), live, |score| score);
            merge_rows::<LANES, AT_ONCE>(&mut state);
            let e = element::<LANES>();
            if lane() < LANES && e < dim {
                for j in 0..AT_ONCE {
                    let i = first + j as u32;
                    if i < tile.count {
                        let at = tile.column(i) as usize * a.y_stride as usize + head as usize * dim + e;
                        let none = ranges[j].1 == 0;
                        let sum = state.sum[j] + a.sink(head as usize, state.largest[j]);
                        for k in 0..8 {
                            let v = state.values[j][k] / sum;
                            a.y.set(at + k, if none { f32::NAN } else { v });
                        }
                    }
                }
            }
            pass += AT_ONCE as u32;
        }
    }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::kv::cached::Q8;

#[cfg(all(target_arch = "nvptx64", target_feature = "sm_80"))]
use super::mma::flash;
#[cfg(all(target_arch = "nvptx64", not(target_feature = "sm_80")))]
#[device]
unsafe fn flash<T: crate::kv::cached::Cached>(a: frame::PrefillArgs) {
    frame::plain::<T>(a);
}

macro_rules! entries {
    ($( $(#[$doc:meta])* $name:ident $Name:ident = $run:expr; )*) => { $(
        $(#[$doc])*
        #[kernel(block = THREADS, min_blocks = 2, family = "attention", variant = "prefill")]
        pub unsafe fn $name(
            qkv: Awaited<f32>,
            columns: Awaited<Column>,
            tiles: Awaited<QueryTile>,
            sinks: In<f32>,
            y: Out<f32>,
            count: u32,
            stride: u32,
            y_stride: u32,
            layer: Layer,
        ) {
            grid::wait_dependencies();
            grid::launch_dependents();
            let (qkv, columns, tiles) = (qkv.buffer(), columns.buffer(), tiles.buffer());
            // Of columns only the host's checks ask how many there are.
            let _ = count;
            $run(frame::PrefillArgs { qkv, columns, tiles, y, sinks, stride, y_stride, layer });
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::grid(self.tiles.len() as u32, self.layer.q_heads, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                check(Self::META, &Seen {
                    qkv: self.qkv,
                    columns: self.columns,
                    tiles: self.tiles,
                    sinks: self.sinks,
                    y: self.y,
                    count: self.count,
                    strides: (self.stride, self.y_stride),
                    layer: &self.layer,
                })
            }
        }
    )* };
}

/// What the contract of every entry point looks at.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) struct Seen<'a> {
    pub qkv: &'a DeviceSlice<f32>,
    pub columns: &'a DeviceSlice<Column>,
    pub tiles: &'a DeviceSlice<QueryTile>,
    pub sinks: &'a DeviceSlice<f32>,
    pub y: &'a DeviceSlice<f32>,
    pub count: u32,
    pub strides: (u32, u32),
    pub layer: &'a Layer,
}

/// The contract of every entry point.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn check(m: &'static KernelMeta, given: &Seen<'_>) -> Result<(), ContractError> {
    let (l, (stride, y_stride)) = (given.layer, given.strides);
    layer::check(m, l, None)?;
    layer::check_sinks(m, l, given.sinks)?;
    contract::within(m, "count", given.count, 1u32, i32::MAX)?;
    contract::within(m, "tiles", given.tiles.len(), 1u32, i32::MAX)?;
    let n = given.count as usize;
    contract::exactly(m, "columns", given.columns.len(), (n, "count"))?;
    let part = (u64::from(l.q_heads) * u64::from(l.head_dim), "q_heads * head_dim");
    state::check_strided(m, "qkv", given.qkv.len(), (n, stride), part)?;
    state::check_strided(m, "y", given.y.len(), (n, y_stride), part)?;
    // Pairs are loaded and stored at once.
    for (name, address, stride) in [("qkv", given.qkv.address(), stride), ("y", given.y.address(), y_stride)] {
        contract::multiple_of(m, name, (address, "its address"), 8u32)?;
        contract::multiple_of(m, "stride", stride, 2u32)?;
    }
    Ok(())
}

entries! {
    /// Attention of a prompt over f16 caches: on tensor cores from sm_80 on.
    attn_prefill_f16 AttnPrefillF16 = flash::<f16>;
    /// Attention of a prompt over f32 caches.
    attn_prefill_f32 AttnPrefillF32 = frame::plain::<f32>;
    /// Attention of a prompt over int8 caches: on tensor cores from sm_80 on.
    attn_prefill_q8 AttnPrefillQ8 = flash::<Q8>;
}

/// The arguments of the kernel for any type of cache.
#[cfg(not(target_arch = "nvptx64"))]
pub struct PrefillArguments<'a> {
    /// Queries.
    pub qkv: &'a DeviceSlice<f32>,
    /// Columns, those that attend among them.
    pub columns: &'a DeviceSlice<Column>,
    /// Which attend.
    pub tiles: &'a DeviceSlice<QueryTile>,
    /// A score of each query head, with [`SINKS`](crate::layer::SINKS).
    pub sinks: &'a DeviceSlice<f32>,
    /// Results.
    pub y: &'a mut DeviceSlice<f32>,
    /// Where columns of `qkv` and `y` start.
    pub strides: (u32, u32),
    /// Sizes and options.
    pub layer: Layer,
}

#[cfg(not(target_arch = "nvptx64"))]
impl PrefillArguments<'_> {
    /// Launches the entry point for caches of a type, `programmatic` as a programmatic launch.
    ///
    /// # Errors
    /// What the launcher reports, a broken contract first of all.
    ///
    /// # Safety
    /// As for [`Launcher::launch_unchecked`], of the caches that the columns lead to and the columns that tiles name; and with
    /// `programmatic` as for [`Programmatic::new`](warpsmith_device::Programmatic::new).
    pub unsafe fn launch<L: Launcher>(self, on: &mut L, kv: KvType, programmatic: bool) -> Result<(), L::Error> {
        let PrefillArguments { qkv, columns, tiles, sinks, y, strides, layer } = self;
        let (count, (stride, y_stride)) = (columns.len() as u32, strides);
        macro_rules! launch {
            ($Kernel:ident) => {{
                let kernel = $Kernel { qkv, columns, tiles, sinks, y, count, stride, y_stride, layer };
                // SAFETY: the caller's promise.
                unsafe { on.launch_programmatic(kernel, programmatic) }
            }};
        }
        match kv {
            KvType::F16 => launch!(AttnPrefillF16),
            KvType::F32 => launch!(AttnPrefillF32),
            KvType::Int8 => launch!(AttnPrefillQ8),
        }
    }
}

/// How far a result of the tensor-core form may be from the definition, as a share of the largest value: see the module.
/// `reach` is the largest `sum_i |q_i k_i| / sqrt(head_dim)` of the row.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn tensor_bound(reach: f64, length: usize) -> f64 {
    let d = 2f64.powi(-11) * reach;
    (2.0 * d).exp_m1() + 2f64.powi(-11) + length as f64 * 2f64.powi(-25) + 3e-5
}
