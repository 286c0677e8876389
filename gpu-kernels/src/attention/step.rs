//! v3: one launch for a decode step of any number of columns: norm, rotation, store, and attention in splits.
//!
//! | | |
//! |---|---|
//! | `qkv` | f32, column `c` from `c * stride` on: `[q_heads + 2 * kv_heads, head_dim]` |
//! | `q_weight`, `k_weight`, `cos`, `sin`, `columns`, `layer` | as for [`store`](crate::kv::store) |
//! | `partials` | f32 workspace of [`partials_len`] |
//! | `counters` | u32 `[columns, kv_heads]`: zero before the first launch, and again after every launch |
//! | `y` | f32, column `c` from `c * y_stride` on: `[q_heads, head_dim]` |
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

#[cfg(not(target_arch = "nvptx64"))]
use crate::{layer, state};
use crate::{layer::Layer, state::Column};
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Positions that a part has at least, where there are several.
pub const PART: u32 = 64;

/// Parts that the launch has room for: enough to fill a large GPU with the blocks of one column.
#[must_use]
#[inline(always)]
pub const fn splits(kv_heads: u32) -> u32 {
    let n = 128 / kv_heads;
    if n > 32 {
        32
    } else if n < 4 {
        4
    } else {
        n
    }
}

/// How many parts `length` positions make, and positions of a part.
#[must_use]
#[inline(always)]
pub const fn parts(length: u32, splits: u32) -> (u32, u32) {
    let wanted = length.div_ceil(PART);
    let wanted = if wanted > splits { splits } else { wanted };
    let part = length.div_ceil(wanted).next_multiple_of(8);
    (length.div_ceil(part), part)
}

/// Elements of `partials` for `columns` columns: each part's values, its largest score and its sum.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn partials_len(columns: usize, layer: &Layer) -> u64 {
    let heads = columns as u64 * u64::from(layer.q_heads);
    heads.saturating_mul(u64::from(splits(layer.kv_heads.max(1)))).saturating_mul(u64::from(layer.head_dim) + 4)
}

#[cfg(target_arch = "nvptx64")]
mod frame {
    use super::{super::sweep::*, Column, Layer, THREADS, parts, splits};
    use crate::{
        head::{Turn, turned},
        kv::cached::{Cached, Rows, store_row},
        layer::FUSED,
        load::{Role, Source, lane, warp_index},
    };
    use warpsmith_device::prelude::*;

    const WARPS: usize = THREADS as usize / 32;
    /// Most queries of a warp.
    const QUERIES: usize = 4;

    #[derive(Clone, Copy)]
    pub struct Args {
        pub qkv: Source,
        pub weights: (In<f32>, In<f32>),
        pub tables: (In<f32>, In<f32>),
        pub columns: In<Column>,
        pub partials: InOut<f32>,
        pub counters: InOut<u32>,
        pub y: Out<f32>,
        pub stride: u32,
        pub y_stride: u32,
        pub layer: Layer,
    }

    /// The block's place, and how its queries are spread over warps.
    #[derive(Clone, Copy)]
    struct Place {
        dim: usize,
        group: usize,
        /// Warps that share a warp's queries.
        sharing: usize,
        /// Positions of the part.
        from: u32,
        to: u32,
    }

    /// A block's shared memory.
    #[derive(Clone, Copy)]
    pub struct Memory {
        /// Queries first, then each warp's values.
        values: Shared<f32>,
        largest: Shared<f32>,
        sums: Shared<f32>,
        /// What each warp's values count for; then, for the first of those that share queries, all sums and the largest.
        shares: Shared<f32>,
        totals: Shared<f32>,
        key: Shared<f32>,
        ticket: Shared<u32>,
    }

    impl Memory {
        /// Arrays of its own.
        #[inline(always)]
        pub unsafe fn declared() -> Memory {
            Memory {
                values: shared_array!(ATTN_STEP_VALUES: [f32; WARPS * QUERIES * 256]),
                largest: shared_array!(ATTN_STEP_LARGEST: [f32; WARPS * QUERIES]),
                sums: shared_array!(ATTN_STEP_SUMS: [f32; WARPS * QUERIES]),
                shares: shared_array!(ATTN_STEP_SHARES: [f32; WARPS * QUERIES]),
                totals: shared_array!(ATTN_STEP_TOTALS: [f32; 2 * WARPS * QUERIES]),
                key: shared_array!(ATTN_STEP_KEY: [f32; 256]),
                ticket: shared_array!(ATTN_STEP_TICKET: [u32; 4]),
            }
        }
    }

    /// What a block does for a column.
    ///
    /// All threads of the block make this call.
    #[device]
    pub unsafe fn attend<T: Cached>(a: Args, role: impl Role, memory: Memory) {
        let Memory { key, ticket, .. } = memory;
        let layer = a.layer;
        let splits = splits(layer.kv_heads);
        let (head, split) = (role.block() / splits, role.block() % splits);
        let column = role.column() as usize;
        let thread = thread::idx_x() as usize;
        let c = a.columns.at(column);
        let (dim, group) = (layer.head_dim as usize, layer.group() as usize);
        let first_head = head as usize * group;
        let y_at = column * a.y_stride as usize + first_head * dim;

        let valid = c.position < c.capacity && c.position < layer.context;
        let start = layer.first(c.position);
        let (used, part) = parts(if valid { c.position + 1 - start } else { 1 }, splits);
        if !valid && split == 0 {
            let mut i = thread;
            while i < group * dim {
                a.y.set(y_at + i, f32::NAN);
                i += THREADS as usize;
            }
        }
        if valid && split < used {
            let from = start + split * part;
            let to = if split + 1 == used { c.position + 1 } else { from + part };
            let (keys, values) = Rows::of::<T>(&c, layer.index, layer.kv_heads, head, layer.head_dim);

            // Queries go to shared memory; where the part ends with this token, so do its key and value to the cache.
            let fused = layer.has(FUSED);
            let x = column * a.stride as usize;
            let mut item = warp_index();
            let items = if fused && split + 1 == used { group + 2 } else { group };
            while item < items {
                let at = if item < group {
                    first_head + item
                } else {
                    layer.q_heads as usize + (item - group) * layer.kv_heads as usize + head as usize
                };
                let at = x + at * dim;
                // SAFETY: within the column's heads.
                let get = |d: usize| unsafe { a.qkv.at(at + d) };
                let to = if item < group { memory.values.from(item * dim) } else { key };
                // SAFETY: a head has at most 256 elements, and there are at most 16 of them.
                let put = |d: usize, v: f32| unsafe { to.set(spread(d), v) };
                if item > group {
                    store_row::<T>(&values, c.position, dim, get);
                } else if fused {
                    let weight = if item < group { a.weights.0 } else { a.weights.1 };
                    turned(&Turn::of(&layer, weight, a.tables, c.position), get, put);
                    if item == group {
                        sync::warp(warp::FULL);
                        // SAFETY: written before the barrier.
                        store_row::<T>(&keys, c.position, dim, |d| unsafe { key.get(spread(d)) });
                    }
                } else {
                    let mut d = lane();
                    while d < dim {
                        put(d, get(d));
                        d += 32;
                    }
                }
                item += WARPS;
            }
            sync::block();

            let queries = if group < QUERIES { group.next_power_of_two() } else { QUERIES };
            let sharing = WARPS / group.div_ceil(queries).next_power_of_two();
            let place = Place { dim, group, sharing, from, to };
            let rows = (&keys, &values);
            // The same choice in every thread.
            if queries == 1 {
                by_width::<T, 1>(&place, rows, &memory);
            } else if queries == 2 {
                by_width::<T, 2>(&place, rows, &memory);
            } else {
                by_width::<T, 4>(&place, rows, &memory);
            }
            sync::block();

            // The warps' results in order: first what each counts for, a thread each.
            if thread < WARPS * QUERIES && thread % QUERIES < queries {
                let own = thread / QUERIES / sharing * sharing * QUERIES + thread % QUERIES;
                let mut largest = f32::MIN;
                for w in 0..sharing {
                    largest = math::max(largest, memory.largest.get(own + w * QUERIES));
                }
                memory.shares.set(thread, math::exp2_approx(memory.largest.get(thread) - largest));
                if thread == own {
                    let mut sum = 0.0f32;
                    for w in 0..sharing {
                        let share = math::exp2_approx(memory.largest.get(own + w * QUERIES) - largest);
                        sum = math::fma(share, memory.sums.get(own + w * QUERIES), sum);
                    }
                    memory.totals.set(own, sum);
                    memory.totals.set(WARPS * QUERIES + own, largest);
                }
            }
            sync::block();

            let slot = dim + 4;
            let mut i = thread;
            while i < group * dim {
                let (h, d) = ((i as u32 / dim as u32) as usize, (i as u32 % dim as u32) as usize);
                let own = h / queries * sharing * QUERIES + h % queries;
                let (mut value, mut at) = (0.0f32, own * dim + spread(d));
                for w in 0..sharing {
                    value = math::fma(memory.shares.get(own + w * QUERIES), memory.values.get(at), value);
                    at += QUERIES * dim;
                }
                if used == 1 {
                    a.y.set(y_at + i, quotient(value, memory.totals.get(own)));
                } else {
                    let at =
                        ((column * layer.q_heads as usize + first_head + h) * splits as usize + split as usize) * slot;
                    a.partials.set(at + d, value);
                    if d == 0 {
                        a.partials.set(at + dim, memory.totals.get(WARPS * QUERIES + own));
                        a.partials.set(at + dim + 1, memory.totals.get(own));
                    }
                }
                i += THREADS as usize;
            }

            if used > 1 {
                // What the block wrote is before the counter for thread 0, by the barrier, and so for who reads it after.
                sync::block();
                let counter = a.counters.ptr_at(column * layer.kv_heads as usize + head as usize);
                if thread == 0 {
                    ticket.set(0, atomic::fetch_add(counter, 1, Order::AcqRel, Scope::Gpu));
                }
                sync::block();
                if ticket.get(0) + 1 == used {
                    let mut i = thread;
                    while i < group * dim {
                        let (h, d) = ((i as u32 / dim as u32) as usize, (i as u32 % dim as u32) as usize);
                        let at = (column * layer.q_heads as usize + first_head + h) * splits as usize * slot;
                        let mut largest = f32::MIN;
                        for s in 0..used as usize {
                            largest = math::max(largest, a.partials.get(at + s * slot + dim));
                        }
                        let (mut sum, mut value) = (0.0f32, 0.0f32);
                        for s in 0..used as usize {
                            let at = at + s * slot;
                            let share = math::exp2_approx(a.partials.get(at + dim) - largest);
                            sum = math::fma(share, a.partials.get(at + dim + 1), sum);
                            value = math::fma(share, a.partials.get(at + d), value);
                        }
                        a.y.set(y_at + i, quotient(value, sum));
                        i += THREADS as usize;
                    }
                    if thread == 0 {
                        atomic::store(counter, 0, Order::Relaxed, Scope::Gpu);
                    }
                }
            }
        }
    }

    /// NaN is not zero: it is handed on.
    #[inline(always)]
    fn quotient(value: f32, sum: f32) -> f32 {
        if sum == 0.0 { 0.0 } else { value / sum }
    }

    #[device]
    unsafe fn by_width<T: Cached, const QW: usize>(p: &Place, rows: (&Rows, &Rows), memory: &Memory) {
        if p.dim <= 64 {
            part::<T, 8, QW>(p, rows, memory);
        } else if p.dim <= 128 {
            part::<T, 16, QW>(p, rows, memory);
        } else {
            part::<T, 32, QW>(p, rows, memory);
        }
    }

    /// This warp's positions of the part, for its queries; the result goes to shared memory.
    #[device]
    unsafe fn part<T: Cached, const LANES: usize, const QW: usize>(p: &Place, rows: (&Rows, &Rows), memory: &Memory) {
        let warp = warp_index();
        let first = warp / p.sharing * QW;
        // Scores are kept in powers of two: log2(e) goes into the queries.
        let scale = core::f32::consts::LOG2_E / math::sqrt(p.dim as f32);
        let mut q = [[0.0f32; 8]; QW];
        for j in 0..QW {
            if first + j < p.group {
                q[j] = query::<LANES>(memory.values.from((first + j) * p.dim), p.dim, scale);
            }
        }
        // The queries' place becomes that of the values.
        sync::block();
        let width = (64 / LANES) as u32;
        let from = p.from + (warp % p.sharing) as u32 * width;
        let mut state = sweep::<T, LANES, QW>(&q, rows, p.dim, (from, p.to, p.sharing as u32 * width), |_, _| true);
        merge_rows::<LANES, QW>(&mut state);
        let e = element::<LANES>();
        if lane() < LANES && e < p.dim {
            for j in 0..QW {
                let at = warp * QUERIES + j;
                let v = state.values[j];
                memory.values.set4(at * p.dim + spread(e), F32x4([v[0], v[1], v[2], v[3]]));
                memory.values.set4(at * p.dim + spread(e + 4), F32x4([v[4], v[5], v[6], v[7]]));
                if e == 0 {
                    memory.largest.set(at, state.largest[j]);
                    memory.sums.set(at, state.sum[j]);
                }
            }
        }
    }
}

#[cfg(target_arch = "nvptx64")]
use crate::kv::cached::Q8;

macro_rules! entries {
    ($( $(#[$doc:meta])* $T:ty: $name:ident $Name:ident, $blocks:literal; )*) => { $(
        $(#[$doc])*
        #[kernel(block = THREADS, min_blocks = $blocks, family = "attention", variant = "v3")]
        pub unsafe fn $name(
            qkv: Awaited<f32>,
            q_weight: In<f32>,
            k_weight: In<f32>,
            cos: In<f32>,
            sin: In<f32>,
            columns: Awaited<Column>,
            partials: InOut<f32>,
            counters: InOut<u32>,
            y: Out<f32>,
            stride: u32,
            y_stride: u32,
            layer: Layer,
        ) {
            grid::launch_dependents();
            grid::wait_dependencies();
            let (qkv, columns) = (qkv.buffer(), columns.buffer());
            let (weights, tables) = ((q_weight, k_weight), (cos, sin));
            let qkv = qkv.into();
            let args = frame::Args { qkv, weights, tables, columns, partials, counters, y, stride, y_stride, layer };
            frame::attend::<$T>(args, crate::load::Launched, frame::Memory::declared());
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                let blocks = u64::from(self.layer.kv_heads) * u64::from(splits(self.layer.kv_heads.max(1)));
                Geometry::grid(blocks, self.columns.len() as u64, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                let (m, l) = (Self::META, &self.layer);
                let Self { q_weight, k_weight, cos, sin, .. } = self;
                let tables = layer::Tables { q_weight, k_weight, cos, sin };
                layer::check(m, l, l.has(layer::FUSED).then_some(&tables))?;
                state::check_columns(m, self.columns)?;
                let n = self.columns.len();
                let (dim, q_heads, kv_heads) = (u64::from(l.head_dim), u64::from(l.q_heads), u64::from(l.kv_heads));
                let part = ((q_heads + 2 * kv_heads) * dim, "(q_heads + 2 * kv_heads) * head_dim");
                state::check_strided(m, "qkv", self.qkv.len(), (n, self.stride), part)?;
                state::check_strided(m, "y", self.y.len(), (n, self.y_stride), (q_heads * dim, "q_heads * head_dim"))?;
                contract::at_least(m, "partials", self.partials.len(), (partials_len(n, l), "partials_len"))?;
                contract::at_least(m, "counters", self.counters.len(), (n as u64 * kv_heads, "columns * kv_heads"))
            }
        }
    )* };
}

entries! {
    /// A decode step's attention over f16 caches: norm, rotation, store and attention, split over positions.
    f16: attn_step_f16 AttnStepF16, 2;
    /// The same over f32 caches.
    f32: attn_step_f32 AttnStepF32, 1;
    /// The same over int8 caches with a scale a row.
    Q8: attn_step_q8 AttnStepQ8, 2;
}
