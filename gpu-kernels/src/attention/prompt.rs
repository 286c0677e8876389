//! Prompts with the bits of single steps: columns in runs of consecutive tokens of a sequence, as [`prefill`] takes
//! them, with the results that [`step`] gives.
//!
//! Arguments are those of [`prefill`], and so is what a column without a place gives. What a step of one token does
//! in many blocks, each for a part of the positions, a warp does here one after the other: for each part of positions and each turn
//! of a step's warps the same tiles of tensor cores, put together in the same order (`attention/tiles.rs`). A warp takes as many
//! columns at once as have up to eight query heads of a key head together; keys and values are then read once for all of them, and
//! by the warps of a block at about the same time. Tiles to which some of its columns attend and others not, or not to all of
//! their positions, it takes for each column apart, as a value that is not a number would reach the others through a weight of 0.
//!
//! Where [`step`] has no tensor cores, a block does what the blocks of single steps do, a column after the other: that is
//! not made to be fast.

use super::{prefill, step, step::HEADS};
#[cfg(not(target_arch = "nvptx64"))]
use crate::kv::KvType;
use crate::{layer::Layer, state::Column};
use prefill::QueryTile;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use prefill::frame;
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = step::THREADS;
/// Warps of a block.
const WARPS: u32 = THREADS / 32;

/// Columns of a warp, whose query heads of a key head it has at once; of more query heads than it has, two warps take one column.
#[inline(always)]
const fn columns_of_warp(group: u32) -> u32 {
    if group > HEADS { 1 } else { HEADS / group }
}

/// Columns of a block, and rows of blocks for each key head of a tile.
#[inline(always)]
const fn columns_of_block(group: u32, head_dim: u32) -> (u32, u32) {
    let columns = if group > HEADS { WARPS / 2 } else { WARPS * columns_of_warp(group) };
    (columns, prefill::rows(head_dim).div_ceil(columns))
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod run {
    use super::{Column, columns_of_block, columns_of_warp, frame};
    use crate::{
        attention::{
            plain,
            step::{
                frame as steps,
                memory::StepMemory,
                memory::WARPS,
                partial::{Gathered, Share},
                positions, split_shift,
            },
            tiles::{self, HEADS, Partition, QueryFactors, TILE, power, sharing, sweep, width},
        },
        head::held,
        kv::cached::{Cached, Rows},
        load::{lane, warp_index},
    };
    use warpsmith_device::prelude::*;

    /// What the block works on.
    type Args = frame::PrefillArgs<InOut<f32>>;

    /// The block's key head, the query heads of each, and its first column of the tile.
    #[derive(Clone, Copy)]
    struct PromptSpot {
        head: u32,
        group: u32,
        first: u32,
        /// Columns up to this one.
        end: u32,
    }

    impl PromptSpot {
        #[inline(always)]
        unsafe fn of(a: &Args) -> PromptSpot {
            let group = steps::group(&a.layer);
            let (columns, rows) = columns_of_block(group, a.layer.head_dim);
            let first = block::idx_y() % rows * columns;
            // SAFETY: the caller's promise.
            let count = unsafe { a.tile() }.count;
            PromptSpot { head: block::idx_y() / rows, group, first, end: count.min(first + columns) }
        }
    }

    /// The positions that a column attends to.
    #[derive(Clone, Copy)]
    struct Span {
        /// Where the parts of a step begin.
        start: u32,
        /// The first position, and that behind the last.
        lowest: u32,
        end: u32,
        /// Positions of a part.
        part: u32,
    }

    impl Span {
        /// That of a column at a position.
        #[inline(always)]
        fn of(layer: &super::Layer, position: u32, tensor: bool) -> Span {
            let lowest = layer.window_start(position);
            let (start, end) = (steps::start(tensor, lowest), position + 1);
            Span { start, lowest, end, part: positions(end - start, 1 << split_shift(layer.kv_heads)) }
        }
    }

    #[device]
    pub unsafe fn attend<T: Cached>(a: Args) {
        let memory = StepMemory::declared();
        if a.tile().count == 0 {
            return;
        }
        // The same choice in every thread.
        if !steps::on_tensor_cores::<T>(&a.layer) {
            apart::<T>(&a, &memory);
            return;
        }
        match a.layer.head_dim {
            32 => together::<T, 32, 1, 1>(&a, &memory),
            64 => together::<T, 64, 2, 1>(&a, &memory),
            80 => together::<T, 80, 3, 2>(&a, &memory),
            96 => together::<T, 96, 3, 2>(&a, &memory),
            _ => together::<T, 128, 4, 2>(&a, &memory),
        }
    }

    /// A warp's columns, counted from its first one, and its query heads.
    #[derive(Clone, Copy)]
    struct Mine {
        /// The first column, and how many there are.
        first: u32,
        count: u32,
        /// The position of the first.
        position: u32,
        /// The first query head of each, and how many.
        head: u32,
        heads: u32,
    }

    /// The warp's columns on tensor cores.
    #[device]
    unsafe fn together<T: Cached, const DIM: usize, const STEPS: usize, const CHUNKS: usize>(
        a: &Args,
        memory: &StepMemory,
    ) {
        let (spot, layer, warp) = (PromptSpot::of(a), a.layer, warp_index() as u32);
        let sharing = sharing(spot.group);
        let (set, place, most) = (warp / sharing, warp % sharing, columns_of_warp(spot.group));
        let first = spot.first + place * most;
        if first >= spot.end {
            return;
        }
        let c = a.columns.at(a.tile().column(0) as usize);
        let mine = Mine {
            first,
            count: most.min(spot.end - first),
            position: c.position + first,
            head: set * HEADS as u32,
            heads: (spot.group - set * HEADS as u32).min(HEADS as u32),
        };
        let there = a.limit(&c).saturating_sub(mine.position).min(mine.count);
        none(a, &spot, (first + there, first + mine.count), (mine.head, mine.heads));
        if there == 0 {
            return;
        }
        let own = warp as usize * HEADS;
        let factors =
            QueryFactors { words: memory.values.from(own * width(DIM)).cast(), scales: memory.states.from(own) };
        queries::<DIM, CHUNKS>(a, &spot, &mine, there, &factors);
        sync::warp(warp::FULL);

        let rows = Rows::of::<T>(&c, layer.index, layer.kv_heads, spot.head, DIM as u32);
        let span = |i: u32| Span::of(&layer, mine.position + i, true);
        let mut i = 0;
        while i < there {
            // Columns with the same parts.
            let (of, mut end) = (span(i), i + 1);
            while end < there && span(end).start == of.start && span(end).part == of.part {
                end += 1;
            }
            alike::<T, DIM, STEPS, CHUNKS>(a, &spot, &mine, (i, end), (&rows.0, &rows.1), &factors);
            i = end;
        }
    }

    /// NaN for columns without a place.
    #[device]
    unsafe fn none(a: &Args, spot: &PromptSpot, (first, end): (u32, u32), (head, heads): (u32, u32)) {
        let mut i = first;
        while i < end {
            let dim = a.layer.head_dim;
            let at = a.tile().column(i) as usize * a.y_stride as usize;
            let y = a.y.from(at + ((spot.head * spot.group + head) * dim) as usize);
            let mut d = lane();
            while d < (heads * dim) as usize {
                y.set(d, f32::NAN);
                d += 32;
            }
            i += 1;
        }
    }

    /// The factors of the warp's queries: the heads of a column after those of the column before.
    #[device]
    unsafe fn queries<const DIM: usize, const CHUNKS: usize>(
        a: &Args,
        spot: &PromptSpot,
        mine: &Mine,
        there: u32,
        factors: &QueryFactors,
    ) {
        let (mut i, mut h) = (0, 0);
        let mut slot = 0;
        while i < there {
            let head = spot.head * spot.group + mine.head + h;
            let at = a.tile().column(mine.first + i) as usize * a.stride as usize + head as usize * DIM;
            // SAFETY: within the column's heads.
            let query = held::<CHUNKS>(DIM, |d| unsafe { a.qkv.load2(at + d) });
            tiles::keep::<CHUNKS>(factors, slot, &query);
            slot += 1;
            h += 1;
            if h == mine.heads {
                (i, h) = (i + 1, 0);
            }
        }
    }

    /// The warp's columns `first .. end`, whose parts are the same.
    #[device]
    unsafe fn alike<T: Cached, const DIM: usize, const STEPS: usize, const CHUNKS: usize>(
        a: &Args,
        spot: &PromptSpot,
        mine: &Mine,
        (first, end): (u32, u32),
        rows: (&Rows, &Rows),
        factors: &QueryFactors,
    ) {
        let (g, t) = (lane() / 4, lane() % 4);
        let span = |i: u32| Span::of(&a.layer, mine.position + i, true);
        let (earliest, latest) = (span(first), span(end - 1));
        // The lane's two heads: their columns, and which heads of these they are.
        let owner = [2 * t as u32, 2 * t as u32 + 1].map(|slot| (slot / mine.heads, slot % mine.heads));
        // Places past the last head repeat it.
        let last = (mine.heads * end - 1) as usize;
        let head = if g < last { g } else { last };
        let sharing = sharing(spot.group);

        let mut all = [Gathered::<CHUNKS, 8>::NONE; 2];
        let mut before = earliest.start;
        while before < latest.end {
            let limit = before + earliest.part;
            let mut of_part = [Gathered::<CHUNKS, 8>::NONE; 2];
            let turns = (latest.end.min(limit) - before).div_ceil(TILE).min(sharing);
            let mut turn = 0;
            while turn < turns {
                let (base, step) = (before + turn * TILE, sharing * TILE);
                // Where the last tile of this turn ends.
                let over = base + ((latest.end.min(limit) - 1 - base) & !(step - 1)) + TILE;
                let whole = latest.lowest <= base && over <= earliest.end;
                let mut i = first;
                loop {
                    let of = span(i);
                    let (from, to) = (before.max(of.lowest), limit.min(of.end));
                    if base < to {
                        let place = Partition { group: spot.group, sharing, from, to };
                        let state = sweep::<T, true, DIM, STEPS, CHUNKS>(&place, rows, (factors, head), base, || from);
                        let units = if T::SCALED { power(state.unit) } else { 1.0 };
                        for e in 0..2 {
                            let at = (8 * t + 4 * e) as u32;
                            let top = warp::shuffle_idx(warp::FULL, state.top, at);
                            let sum = warp::shuffle_idx(warp::FULL, state.sum, at);
                            if owner[e].0 == i || whole {
                                of_part[e].add((top, sum), units, |c, k| state.out[c][k / 2][e + k % 2 * 2]);
                            }
                        }
                    }
                    i += 1;
                    if whole || i == end {
                        break;
                    }
                }
                turn += 1;
            }
            for e in 0..2 {
                if before <= mine.position + owner[e].0 {
                    all[e].add((of_part[e].most, of_part[e].sum), 1.0, |c, k| of_part[e].values[c][k]);
                }
            }
            before = limit;
        }

        for e in 0..2 {
            let (i, h) = owner[e];
            if first <= i && i < end && h < mine.heads {
                let head = (spot.head * spot.group + mine.head + h) as usize;
                let share = steps::divided_by(all[e].sum + a.sink(head, all[e].most));
                let at = a.tile().column(mine.first + i) as usize * a.y_stride as usize + head * DIM + 8 * g;
                for c in 0..CHUNKS {
                    if DIM % 64 == 0 || 64 * c + 8 * g < DIM {
                        for k in 0..4 {
                            let [x, y] = [all[e].values[c][2 * k], all[e].values[c][2 * k + 1]];
                            a.y.store2(at + 64 * c + 2 * k, F32x2([x * share, y * share]));
                        }
                    }
                }
            }
        }
    }

    /// The block's columns one after the other, each as the blocks of a step do.
    ///
    /// All threads of the block make this call.
    #[device]
    unsafe fn apart<T: Cached>(a: &Args, memory: &StepMemory) {
        let spot = PromptSpot::of(a);
        let c = a.columns.at(a.tile().column(0) as usize);
        let mut i = spot.first;
        while i < spot.end {
            let position = c.position + i;
            if position >= a.limit(&c) {
                if warp_index() == 0 {
                    none(a, &spot, (i, i + 1), (0, spot.group));
                }
            } else {
                column::<T>(a, &spot, &c, (i, position), memory);
            }
            i += 1;
        }
    }

    /// A column of a tile, part after part.
    #[device]
    unsafe fn column<T: Cached>(
        a: &Args,
        spot: &PromptSpot,
        c: &Column,
        (i, position): (u32, u32),
        memory: &StepMemory,
    ) {
        let (layer, dim) = (a.layer, a.layer.head_dim as usize);
        let span = Span::of(&layer, position, false);
        let column = a.tile().column(i) as usize;
        let first = (spot.head * spot.group) as usize * dim;
        let (x, y) = (column * a.stride as usize + first, a.y.from(column * a.y_stride as usize + first));
        let rows = Rows::of::<T>(c, layer.index, layer.kv_heads, spot.head, layer.head_dim);
        // What all parts so far come to: of each head what weights are relative to, and their sum. Two of them take turns.
        let sums = shared_array!(ATTN_PROMPT_SUMS: [f32; 4 * 16]);
        let mut before = span.start;
        let mut turn = 0;
        while before < span.end {
            // The part before, or the column, is done with its queries and sums.
            sync::block();
            keep_all(a, x, (dim, spot.group), memory);
            sync::block();
            let end = span.end.min(before + span.part);
            let (was, is) = (sums.from(32 * turn), sums.from(32 * (1 - turn)));
            // SAFETY: within the column's heads; a thread has the same elements in every part.
            let put = |h: usize, d: usize, value: [f32; 4], largest: f32, sum: f32| unsafe {
                let at = y.from(h * dim + d);
                let nothing = before == span.start;
                let [most, weights] = if nothing { [f32::MIN, 0.0] } else { was.get2(2 * h).0 };
                let (share, most) = Share::of(most, largest);
                let weights = share.add(weights, sum);
                let by = if end == span.end {
                    steps::divided_by(weights + a.sink((spot.head * spot.group) as usize + h, most))
                } else {
                    1.0
                };
                for k in 0..4 {
                    let all = share.add(if nothing { 0.0 } else { at.get(k) }, value[k]);
                    at.set(k, if end == span.end { all * by } else { all });
                }
                if d == 0 {
                    is.set2(2 * h, F32x2([most, weights]));
                }
            };
            plain::part::<T>((dim, spot.group), (before, end), || rows, memory, put);
            before = end;
            turn = 1 - turn;
        }
    }

    /// The queries of a column, whose first element is `at`, as numbers.
    #[device]
    unsafe fn keep_all(a: &Args, at: usize, (dim, group): (usize, u32), memory: &StepMemory) {
        // The same choice in every thread.
        if dim <= 64 {
            keep::<1>(a, at, (dim, group), memory);
        } else if dim <= 128 {
            keep::<2>(a, at, (dim, group), memory);
        } else {
            keep::<4>(a, at, (dim, group), memory);
        }
    }

    #[device]
    unsafe fn keep<const N: usize>(a: &Args, at: usize, (dim, group): (usize, u32), memory: &StepMemory) {
        let mut h = warp_index();
        while h < group as usize {
            // SAFETY: within the column's heads.
            let query = held::<N>(dim, |d| unsafe { a.qkv.load2(at + h * dim + d) });
            plain::keep::<N>(memory, h, dim, &query);
            h += WARPS;
        }
    }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::kv::cached::Q8;

prefill::entries! {
    (THREADS, 1, "prompt", InOut, |layer: &Layer| {
        layer.kv_heads * columns_of_block(layer.group(), layer.head_dim).1
    });
    /// Attention of a prompt over f16 caches with the bits of single steps: on tensor cores from sm_80 on.
    attn_prompt_f16 AttnPromptF16 = run::attend::<f16>;
    /// The same over f32 caches.
    attn_prompt_f32 AttnPromptF32 = run::attend::<f32>;
    /// The same over int8 caches: on tensor cores from sm_80 on.
    attn_prompt_q8 AttnPromptQ8 = run::attend::<Q8>;
}

/// Whether a device of compute capability `sm` multiplies on tensor cores here.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn on_tensor_cores(kv: KvType, head_dim: u32, sm: u32) -> bool {
    sm >= 80 && kv != KvType::F32 && head_dim <= step::TENSOR_HEAD_DIM
}

/// Launches the entry point for caches of a type, `programmatic` as a programmatic launch.
///
/// # Errors
/// What the launcher reports, a broken contract first of all.
///
/// # Safety
/// As for [`PrefillArguments::launch`](prefill::PrefillArguments::launch).
#[cfg(not(target_arch = "nvptx64"))]
pub unsafe fn launch<L: Launcher>(
    given: prefill::PrefillArguments<'_>,
    on: &mut L,
    kv: KvType,
    programmatic: bool,
) -> Result<(), L::Error> {
    prefill::launch_for! { (given, on, programmatic) kv => AttnPromptF16, AttnPromptF32, AttnPromptQ8 }
}
