//! What a block of the step does, on the device: queries staged, a part attended to, parts merged.

use super::{
    super::{sweep::*, tiles},
    Column, Layer, THREADS, parts, positions, splits,
};
use crate::{
    gemv::quantizer::OutputQuantizer,
    head::{Turn, turned},
    kv::cached::{Cached, Rows, store_row},
    layer::FUSED,
    load::{Role, Source, lane, warp_index},
};
use warpsmith_device::{prelude::*, unroll};

pub const WARPS: usize = THREADS as usize / 32;

/// The power of two from `n` on. Counted in 32 bits: rust-cuda miscompiles counts of bits in 64.
#[inline(always)]
fn power_of_two(n: usize) -> usize {
    (n as u32).next_power_of_two() as usize
}

/// Most queries of a warp without tensor cores.
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
    /// How `y` is quantized, if it is.
    pub quantizer: Option<OutputQuantizer>,
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
    /// Queries first, then each warp's values. On tensor cores queries are factors of products, and after the largest of
    /// them there is room for a head of each warp.
    pub values: Shared<f32>,
    largest: Shared<f32>,
    sums: Shared<f32>,
    /// What each warp's values count for. On tensor cores: what the queries' scores are scaled by.
    pub shares: Shared<f32>,
    /// For the first warp of those that share queries, all sums and the largest. On tensor cores: each warp's largest.
    pub totals: Shared<f32>,
    /// The new key. On tensor cores: each warp's sums.
    pub key: Shared<f32>,
    /// Whose turn the block was to finish, how many parts there are, and the block's own: kept here over the sweep, which takes
    /// all registers.
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

    /// Bytes of [`within`](Self::within).
    pub const BYTES: usize = 4 * (WARPS * QUERIES * (256 + 5) + 256 + 4);

    /// One after the other in an array of [`BYTES`](Self::BYTES).
    #[inline(always)]
    pub unsafe fn within(array: Shared<f32>) -> Memory {
        // SAFETY: the caller's promise; each begins at a multiple of 16 bytes.
        unsafe {
            let largest = array.from(WARPS * QUERIES * 256);
            let key = largest.from(WARPS * QUERIES * 5);
            Memory {
                values: array,
                largest,
                sums: largest.from(WARPS * QUERIES),
                shares: largest.from(WARPS * QUERIES * 2),
                totals: largest.from(WARPS * QUERIES * 3),
                key,
                ticket: key.from(256).cast(),
            }
        }
    }
}

/// The block's place, and that of its heads in what it writes.
#[derive(Clone, Copy)]
struct Spot {
    column: usize,
    head: u32,
    split: u32,
    splits: u32,
}

impl Spot {
    /// Worked out anew wherever it is asked for: registers that hold it over the sweep are lost to the sweep.
    #[inline(always)]
    fn of(a: &Args, role: impl Role) -> Spot {
        let splits = splits(a.layer.kv_heads);
        let block = unroll::opaque(role.block() as usize) as u32;
        let column = unroll::opaque(role.column() as usize);
        Spot { column, head: block / splits, split: block % splits, splits }
    }

    /// Its first element of the output.
    #[inline(always)]
    fn output(&self, a: &Args) -> usize {
        let first = self.head as usize * a.layer.group() as usize;
        self.column * a.y_stride as usize + first * a.layer.head_dim as usize
    }

    /// The first element of the workspace for head `h` of the group and the first part, and elements of a part.
    #[inline(always)]
    fn workspace(&self, a: &Args, h: usize) -> (usize, usize) {
        let head = self.head as usize * a.layer.group() as usize + h;
        let part = a.layer.head_dim as usize + 4;
        ((self.column * a.layer.q_heads as usize + head) * self.splits as usize * part, part)
    }
}

/// What a block does for a column.
///
/// All threads of the block make this call.
#[device]
pub unsafe fn attend<T: Cached>(a: Args, role: impl Role, memory: Memory) {
    let ticket = memory.ticket;
    let layer = a.layer;
    // The same in every thread.
    let tensor = cfg!(target_feature = "sm_80") && T::HALF && layer.head_dim as usize <= tiles::MOST;
    let Spot { column, head, split, splits } = Spot::of(&a, role);
    let thread = thread::idx_x() as usize;
    let c = a.columns.at(column);
    let (dim, group) = (layer.head_dim as usize, layer.group() as usize);

    let valid = c.position < c.capacity && c.position < layer.context;
    let start = layer.window_start(c.position);
    let length = if valid { c.position + 1 - start } else { 1 };
    let part = positions(length, splits);
    let before = split * part;
    // Whether the block completes its heads' results.
    let mut complete = !valid && split == 0;
    if complete {
        let (to, mut i) = (Spot::of(&a, role).output(&a), thread);
        while i < group * dim {
            a.y.set(to + i, f32::NAN);
            i += THREADS as usize;
        }
    }
    if valid && before < length {
        let from = start + before;
        let newest = length - before <= part;
        let to = if newest { c.position + 1 } else { from + part };

        if thread == 0 {
            ticket.set(1, parts(length, splits).0);
            ticket.set(2, from);
            ticket.set(3, to);
        }
        stage::<T>(&a, (c, column, head), &memory, (tensor, newest));
        sync::block();

        // SAFETY: within the column's heads, and within the part's place.
        let put = |h: usize, d: usize, value: [f32; 4], largest: f32, sum: f32| unsafe {
            let spot = Spot::of(&a, role);
            if ticket.get(1) == 1 {
                finish(a.y.from(spot.output(&a) + h * dim + d), value, sum);
            } else {
                let (first, of_part) = spot.workspace(&a, h);
                let at = first + spot.split as usize * of_part;
                a.partials.store4(at + d, F32x4(value));
                if d == 0 {
                    a.partials.store2(at + dim, F32x2([largest, sum]));
                }
            }
        };
        // Asked for again, as they would take registers all the way from where the new row was stored.
        let spot = Spot::of(&a, role);
        let c = a.columns.at(spot.column);
        let (keys, values) = Rows::of::<T>(&c, layer.index, layer.kv_heads, spot.head, layer.head_dim);
        let (rows, range) = ((&keys, &values), (ticket.get(2), ticket.get(3)));
        if tensor {
            tiles::part::<T>((dim, group), range, rows, &memory, put);
        } else {
            plain::<T>((dim, group), range, rows, &memory, put);
        }

        let used = ticket.get(1);
        complete = used == 1;
        if used > 1 {
            // What the block wrote is before the counter for thread 0, by the barrier, and so for who reads it after.
            sync::block();
            let spot = Spot::of(&a, role);
            let counter = a.counters.ptr_at(spot.column * layer.kv_heads as usize + spot.head as usize);
            if thread == 0 {
                ticket.set(0, atomic::fetch_add(counter, 1, Order::AcqRel, Scope::Gpu));
            }
            sync::block();
            complete = ticket.get(0) + 1 == used;
            if complete {
                merge_parts(&a, &spot, used);
                if thread == 0 {
                    atomic::store(counter, 0, Order::Relaxed, Scope::Gpu);
                }
            }
        }
    }
    if complete && let Some(quantizer) = a.quantizer {
        sync::block();
        quantize(&a, quantizer, role);
    }
}

/// Queries go to shared memory; where the part ends with the token of the column (`newest`), so do its key and value to the
/// cache.
///
/// All threads of the block make this call.
#[device]
unsafe fn stage<T: Cached>(
    a: &Args,
    (c, column, head): (Column, usize, u32),
    memory: &Memory,
    (tensor, newest): (bool, bool),
) {
    let layer = a.layer;
    let (dim, group) = (layer.head_dim as usize, layer.group() as usize);
    let (keys, values) = Rows::of::<T>(&c, layer.index, layer.kv_heads, head, layer.head_dim);
    let fused = layer.has(FUSED);
    let x = column * a.stride as usize;
    let mut item = warp_index();
    let items = if fused && newest { group + 2 } else { group };
    while item < items {
        let at = if item < group {
            head as usize * group + item
        } else {
            layer.q_heads as usize + (item - group) * layer.kv_heads as usize + head as usize
        };
        let at = x + at * dim;
        // SAFETY: within the column's heads.
        let get = |d: usize| unsafe { a.qkv.at(at + d) };
        let to = if tensor {
            memory.values.from((16 + warp_index()) * 256)
        } else if item < group {
            memory.values.from(item * dim)
        } else {
            memory.key
        };
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
                store_row::<T>(&keys, c.position, dim, |d| unsafe { to.get(spread(d)) });
            }
        } else {
            let mut d = lane();
            while d < dim {
                put(d, get(d));
                d += 32;
            }
        }
        if tensor {
            sync::warp(warp::FULL);
            if item < group {
                // SAFETY: written before the barrier.
                tiles::keep(memory, item, dim, |d| unsafe { to.get2(spread(d)).0 });
                sync::warp(warp::FULL);
            }
        }
        item += WARPS;
    }
}

/// The results of the block's heads from those of `used` parts, in order.
///
/// All threads of the block make this call.
#[device]
unsafe fn merge_parts(a: &Args, spot: &Spot, used: u32) {
    let (dim, group) = (a.layer.head_dim as usize, a.layer.group() as usize);
    by_fours(group, dim, |h, d| {
        // SAFETY: within the workspace of the column's heads, and within its output.
        unsafe {
            let (first, of_part) = spot.workspace(a, h);
            let mut largest = f32::MIN;
            for s in 0..used as usize {
                largest = math::max(largest, a.partials.get(first + s * of_part + dim));
            }
            let (mut sum, mut value) = (0.0f32, [0.0f32; 4]);
            for s in 0..used as usize {
                let at = first + s * of_part;
                let [own, weights] = a.partials.load2(at + dim).0;
                let share = math::exp2_approx_ftz(own - largest);
                sum = math::fma(share, weights, sum);
                let v = a.partials.load4(at + d).0;
                for i in 0..4 {
                    value[i] = math::fma(share, v[i], value[i]);
                }
            }
            finish(a.y.from(spot.output(a) + h * dim + d), value, sum);
        }
    });
}

/// Brings the results of the block's heads to be quantized, a group a warp.
///
/// All threads of the block make this call.
#[device]
unsafe fn quantize(a: &Args, quantizer: OutputQuantizer, role: impl Role) {
    let spot = Spot::of(a, role);
    let (of_group, cols) = (a.layer.group() * a.layer.head_dim, a.layer.q_heads * a.layer.head_dim);
    let (from, to) = (spot.head * of_group, (spot.head + 1) * of_group);
    let y = a.y.from(spot.column * a.y_stride as usize);
    let size = quantizer.group();
    let mut group = from / size + warp_index() as u32;
    while group * size < to {
        let (first, end) = ((group * size).max(from), ((group + 1) * size).min(to));
        quantizer.bring(y.into(), spot.column, cols, first, end - first);
        group += WARPS as u32;
    }
}

/// `run` with every head and every fourth element, over the threads of the block.
#[device]
unsafe fn by_fours(group: usize, dim: usize, run: impl Fn(usize, usize)) {
    // A power of two for each head takes no division.
    let shift = (dim as u32 / 4).next_power_of_two().trailing_zeros();
    let mut i = thread::idx_x();
    while i < (group as u32) << shift {
        let (h, d) = ((i >> shift) as usize, (4 * (i & ((1 << shift) - 1))) as usize);
        if d < dim {
            run(h, d);
        }
        i += THREADS;
    }
}

/// Four results. Without weights they are zero; NaN is not, and is handed on.
#[inline(always)]
unsafe fn finish(y: Out<f32>, value: [f32; 4], sum: f32) {
    // A sum is 1 or more. A division's rare case is a call, for which registers were kept all over the kernel.
    let share = if sum == 0.0 { 0.0 } else { math::rcp_approx(sum) };
    for i in 0..4 {
        // SAFETY: the caller's promise.
        unsafe { y.set(i, value[i] * share) };
    }
}

/// The block's positions in f32; `put` is as for [`tiles::part`].
#[device]
unsafe fn plain<T: Cached>(
    (dim, group): (usize, usize),
    (from, to): (u32, u32),
    rows: (&Rows, &Rows),
    memory: &Memory,
    put: impl Fn(usize, usize, [f32; 4], f32, f32),
) {
    let thread = thread::idx_x() as usize;
    let queries = if group < QUERIES { power_of_two(group) } else { QUERIES };
    let sharing = WARPS / power_of_two(group.div_ceil(queries));
    let place = Place { dim, group, sharing, from, to };
    // The same choice in every thread.
    if queries == 1 {
        by_width::<T, 1>(&place, rows, memory);
    } else if queries == 2 {
        by_width::<T, 2>(&place, rows, memory);
    } else {
        by_width::<T, 4>(&place, rows, memory);
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

    by_fours(group, dim, |h, d| {
        let own = h / queries * sharing * QUERIES + h % queries;
        let (mut value, mut at) = ([0.0f32; 4], own * dim + spread(d));
        for w in 0..sharing {
            let (share, v) = (memory.shares.get(own + w * QUERIES), memory.values.get4(at).0);
            for i in 0..4 {
                value[i] = math::fma(share, v[i], value[i]);
            }
            at += QUERIES * dim;
        }
        put(h, d, value, memory.totals.get(WARPS * QUERIES + own), memory.totals.get(own));
    });
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
