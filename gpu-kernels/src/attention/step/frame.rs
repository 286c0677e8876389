//! What a block of the step does, on the device: queries staged, a part attended to, parts merged.

pub use super::memory::StepMemory;

use super::{
    super::{plain, tiles},
    Column, Layer, TENSOR_HEAD_DIM, THREADS,
    memory::{FROM, WARPS},
    partial::{alone, by_fours, weigh_in_order, weighted_in_order},
    parts, positions, split_shift,
    stage::stage,
};
use crate::{
    gemv::quantizer::OutputQuantizer,
    kv::cached::{Cached, Rows},
    load::{Role, Source, thread_index, warp_index},
    state::GROUP,
};
use warpsmith_device::{
    prelude::*,
    unroll::{self, no_unroll},
};

#[derive(Clone, Copy)]
pub struct AttentionArgs {
    pub qkv: Source,
    pub weights: (In<f32>, In<f32>),
    pub tables: (In<f32>, In<f32>),
    pub columns: In<Column>,
    pub partials: InOut<f32>,
    pub counters: InOut<u32>,
    pub y: Out<f32>,
    /// A score of each query head that takes a share of its softmax.
    pub sinks: Option<In<f32>>,
    /// How `y` is quantized, if it is.
    pub quantizer: Option<OutputQuantizer>,
    pub stride: u32,
    pub y_stride: u32,
    pub layer: Layer,
}

/// The block's place, and that of its heads in what it writes.
#[derive(Clone, Copy)]
pub struct Spot {
    pub column: usize,
    /// Its key head.
    pub head: u32,
    /// Query heads that share it.
    pub group: u32,
    /// Its part, of two to the `shift`.
    pub split: u32,
    pub shift: u32,
}

impl Spot {
    /// Worked out anew wherever it is asked for: registers that hold it over the sweep are lost to the sweep.
    #[inline(always)]
    fn of(a: &AttentionArgs, role: impl Role, group: u32) -> Spot {
        let shift = split_shift(a.layer.kv_heads);
        let block = unroll::opaque(role.block() as usize) as u32;
        let column = unroll::opaque(role.column() as usize);
        Spot { column, head: block >> shift, group, split: block & ((1 << shift) - 1), shift }
    }

    /// Parts that there is room for.
    #[inline(always)]
    fn splits(&self) -> u32 {
        1 << self.shift
    }

    /// Keys and values of its head. They are asked for again wherever they are needed, as they would take registers all the way.
    #[inline(always)]
    pub unsafe fn rows<T: Cached>(&self, a: &AttentionArgs) -> (Rows, Rows) {
        // SAFETY: the caller's promise.
        let c = unsafe { a.columns.at(unroll::opaque(self.column)) };
        Rows::of::<T>(&c, a.layer.index, a.layer.kv_heads, self.head, a.layer.head_dim)
    }

    /// The number of its first query head among those of all columns.
    #[inline(always)]
    fn first(&self, a: &AttentionArgs) -> usize {
        self.column * a.layer.q_heads as usize + (self.head * self.group) as usize
    }

    /// Its first element of the output.
    #[inline(always)]
    fn output(&self, a: &AttentionArgs) -> usize {
        self.column * a.y_stride as usize + (self.head * self.group * a.layer.head_dim) as usize
    }

    /// Its first element of the workspace, and elements of a part. Heads have their parts one after the other.
    #[inline(always)]
    fn workspace(&self, a: &AttentionArgs) -> (usize, usize) {
        let part = a.layer.head_dim as usize + 4;
        ((self.first(a) << self.shift) * part, part)
    }
}

/// Query heads that share a key head. A quotient that is whole, and at most 16, needs no division.
#[inline(always)]
pub fn group(layer: &Layer) -> u32 {
    math::round_to_i32(layer.q_heads as f32 * math::rcp_approx_ftz(layer.kv_heads as f32)) as u32
}

/// Whether products are those of tensor cores.
#[inline(always)]
pub fn on_tensor_cores<T: Cached>(layer: &Layer) -> bool {
    cfg!(target_feature = "sm_80") && T::HALF && (T::NARROW || layer.head_dim <= TENSOR_HEAD_DIM)
}

/// Where the parts of positions begin, the first of which that counts is `lowest`: tiles of tensor cores are groups of positions, whose
/// rows follow one another in any cache.
#[inline(always)]
pub fn start(tensor: bool, lowest: u32) -> u32 {
    if tensor { lowest / GROUP * GROUP } else { lowest }
}

/// What a block does for a column; `wait`: as for [`attend_part`].
///
/// All threads of the block make this call.
#[device]
pub unsafe fn attend<T: Cached>(a: AttentionArgs, role: impl Role, memory: StepMemory, wait: impl FnOnce()) {
    let results = attend_part::<T>(&a, role, &memory, wait);
    if results == Results::Elsewhere {
        return;
    }
    let Some(quantizer) = a.quantizer else { return };
    let spot = Spot::of(&a, role, group(&a.layer));
    if results == Results::Written {
        sync::block();
        by_fours(spot.group, a.layer.head_dim as usize, |h, d| {
            let i = h * a.layer.head_dim as usize + d;
            let y = Source::from(a.y.from(spot.output(&a) + i));
            // Columns may begin anywhere.
            memory.values.set4(i, F32x4(core::array::from_fn(|k| y.at(k))));
        });
    }
    sync::block();
    let y = a.y.from(spot.column * a.y_stride as usize);
    quantize(quantizer, y, |i| memory.values.get(i), spot.column, spot.head, &a.layer);
}

/// Where the results of a block's heads are.
#[derive(Clone, Copy, PartialEq)]
pub enum Results {
    /// Another block completes them.
    Elsewhere,
    /// In `y`.
    Written,
    /// There, and in the [values](StepMemory::values) of shared memory, from where they come sooner.
    Kept,
}

/// The block's part of a column, and those of the others where it is the last to finish: where the results of its heads are then.
/// `wait` waits for what the launch right before has written, if that may still be running: the column is read, and keys and values are
/// asked for, before that.
///
/// All threads of the block make this call.
#[device]
pub unsafe fn attend_part<T: Cached>(
    a: &AttentionArgs,
    role: impl Role,
    memory: &StepMemory,
    wait: impl FnOnce(),
) -> Results {
    let (layer, ticket, thread) = (a.layer, memory.ticket, thread_index());
    // The same in every thread.
    let tensor = on_tensor_cores::<T>(&layer);
    let group = group(&layer);
    let spot = Spot::of(a, role, group);
    let c = a.columns.at(spot.column);
    let dim = layer.head_dim as usize;

    // There is no code for pages where there is none for all heads.
    let valid = c.position < c.capacity && c.position < layer.context && !(T::NARROW && !c.pages.is_null());
    let lowest = layer.window_start(c.position);
    let start = start(tensor, lowest);
    let length = if valid { c.position + 1 - start } else { 1 };
    let part = positions(length, spot.splits());
    let before = spot.split * part;
    let there = valid && before < length;
    let newest = length.wrapping_sub(before) <= part;
    let (from, to) = ((start + before).max(lowest), if newest { c.position + 1 } else { start + before + part });
    if there {
        let rows = Rows::of::<T>(&c, layer.index, layer.kv_heads, spot.head, layer.head_dim);
        if thread == 0 {
            ticket.set(1, parts(length, spot.splits()).0);
            ticket.set(FROM, from);
            ticket.set(3, to);
            memory.keep_rows(&rows);
        }
        ask::<T>(&rows, (from, to));
    }
    wait();
    let mut results = Results::Elsewhere;
    if !valid && spot.split == 0 {
        results = Results::Written;
        let (y, mut i) = (a.y.from(spot.output(a)), thread);
        while i < group * layer.head_dim {
            y.set(i as usize, f32::NAN);
            i += THREADS;
        }
    }
    if there {
        stage::<T>(a, &spot, c.position, memory, (tensor, newest));
        sync::block();

        // SAFETY: within the column's heads, and within the part's place.
        let put = |h: usize, d: usize, value: [f32; 4], largest: f32, sum: f32| unsafe {
            let spot = Spot::of(a, role, group);
            if ticket.get(1) == 1 {
                let sum = sum + sink(a, &spot, h, largest);
                // As if it were added to nothing, which makes -0 0: so do several parts, also one of which is all.
                let _ = finish(a.y.from(spot.output(a) + h * dim + d), value.map(alone), sum);
            } else {
                let (first, of_part) = spot.workspace(a);
                let at = a.partials.from(first + ((h << spot.shift) + spot.split as usize) * of_part);
                at.store4(d, F32x4(value));
                if d == 0 {
                    at.store2(dim, F32x2([largest, sum]));
                }
            }
        };
        // SAFETY: a thread kept them before a barrier.
        let rows = || unsafe { memory.rows(dim as u64 * T::BYTES) };
        let range = (ticket.get(FROM), ticket.get(3));
        if tensor {
            tiles::part::<T>((dim, group), range, rows, memory, put);
        } else {
            plain::part::<T>((dim, group), range, rows, memory, put);
        }

        let used = ticket.get(1);
        if used == 1 {
            results = Results::Written;
        } else {
            // What the block wrote is before the counter for thread 0, by the barrier, and so for who reads it after.
            sync::block();
            let spot = Spot::of(a, role, group);
            let counter = a.counters.ptr_at(spot.column * layer.kv_heads as usize + spot.head as usize);
            if thread == 0 {
                ticket.set(0, atomic::fetch_add(counter, 1, Order::AcqRel, Scope::Gpu));
            }
            sync::block();
            if ticket.get(0) + 1 == used {
                results = Results::Kept;
                merge_parts(a, &spot, used, memory);
                if thread == 0 {
                    atomic::store(counter, 0, Order::Relaxed, Scope::Gpu);
                }
            }
        }
    }
    results
}

/// Asks for the keys and values of positions `from .. to` in L2, which are on their way while queries are staged: half of the threads
/// ask for either, two for a row.
///
/// All threads of the block make this call.
#[device]
unsafe fn ask<T: Cached>((keys, values): &(Rows, Rows), (from, to): (u32, u32)) {
    const HALF: u32 = THREADS / 2;
    /// Of what is asked for at once.
    const LINE: u64 = 128;
    let thread = thread_index();
    let rows = if thread < HALF { keys } else { values };
    let mut position = from + thread % HALF / 2;
    while position < to {
        no_unroll();
        // SAFETY: the position is below the column's next one, and so within the cache.
        let row = unsafe { rows.row::<T>(position) };
        let mut at = LINE * u64::from(thread % 2);
        while at < rows.bytes {
            no_unroll();
            mem::prefetch_l2((row + at) as *const u8);
            at += 2 * LINE;
        }
        position += HALF / 2;
    }
}

/// The results of the block's heads from those of `used` parts, in order: in `y`, and among the values of shared memory.
///
/// All threads of the block make this call.
#[device]
unsafe fn merge_parts(a: &AttentionArgs, spot: &Spot, used: u32, memory: &StepMemory) {
    let dim = a.layer.head_dim as usize;
    let (first, of_part) = spot.workspace(a);
    let partials = a.partials.from(first);
    // SAFETY: within the workspace of the column's heads.
    weigh_in_order(memory, spot.group, (used, spot.splits()), |h, s| unsafe {
        partials.load2(((h << spot.shift) + s) * of_part + dim).0
    });
    sync::block();
    by_fours(spot.group, dim, |h, d| {
        // SAFETY: as above, and within the column's output.
        unsafe {
            let of_head = partials.from((h << spot.shift) * of_part + d);
            let (value, sum) = weighted_in_order(memory, h, (used, spot.splits()), |s| of_head.load4(s * of_part).0);
            let largest = memory.totals.get(h);
            let value = finish(a.y.from(spot.output(a) + h * dim + d), value, sum + sink(a, spot, h, largest));
            memory.values.set4(h * dim + d, F32x4(value));
        }
    });
}

/// What the sink of the block's head `h` counts for beside weights relative to `largest`, a power of two; 0 without sinks.
#[inline(always)]
unsafe fn sink(a: &AttentionArgs, spot: &Spot, h: usize, largest: f32) -> f32 {
    // SAFETY: there is one for each query head.
    let score = |sinks: In<f32>| unsafe { sinks.at((spot.head * spot.group) as usize + h) };
    // Far above all scores it counts for infinity, and leaves nothing of the values.
    a.sinks.map_or(0.0, |sinks| math::exp2_approx_ftz(score(sinks) * core::f32::consts::LOG2_E - largest))
}

/// Quantizes the results of the query heads of key head `head`, those of a column that begins at `y`; `own` gives those of the heads alone.
/// Where a group has others as well, a warp brings its part of it.
///
/// All threads of the block make this call.
#[device]
pub unsafe fn quantize(
    quantizer: OutputQuantizer,
    y: Out<f32>,
    own: impl Fn(usize) -> f32,
    column: usize,
    head: u32,
    layer: &Layer,
) {
    let (of_group, cols) = (group(layer) * layer.head_dim, layer.q_heads * layer.head_dim);
    let (from, to) = (head * of_group, (head + 1) * of_group);
    if quantizer.divides(from, to) {
        return quantizer.divide(own, column, cols, (from, to), (warp_index() as u32, WARPS as u32));
    }
    let size = quantizer.group();
    let mut group = from / size + warp_index() as u32;
    while group * size < to {
        no_unroll();
        let (first, end) = ((group * size).max(from), ((group + 1) * size).min(to));
        quantizer.bring(y.into(), column, cols, first, end - first);
        group += WARPS as u32;
    }
}

/// What values are multiplied by at last. Without weights they are zero; NaN is not, and is handed on.
#[inline(always)]
pub fn divided_by(sum: f32) -> f32 {
    // A sum is 1 or more. A division's rare case is a call, for which registers were kept all over the kernel.
    if sum == 0.0 { 0.0 } else { math::rcp_approx(sum) }
}

/// Writes four results, and gives them.
#[inline(always)]
unsafe fn finish(y: Out<f32>, value: [f32; 4], sum: f32) -> [f32; 4] {
    let share = divided_by(sum);
    let value = value.map(|v| v * share);
    for i in 0..4 {
        // SAFETY: the caller's promise.
        unsafe { y.set(i, value[i]) };
    }
    value
}
