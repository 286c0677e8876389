//! What a block does, on the device: columns of a tile, or a part of a single step.

use super::{Arguments, Column, Layer, QueryTile, THREADS, columns_of_block, columns_of_warp, rows_shift};
use crate::{
    attention::{
        plain,
        prefill::frame::PrefillArgs,
        step::{
            frame::{self as steps, AttentionArgs},
            memory::StepMemory,
            memory::WARPS,
            partial::{Gathered, Share},
            positions, split_shift, splits,
        },
        tiles::{self, HEADS, Partition, QueryFactors, TILE, power, sharing, sweep, width},
    },
    gemv::{quant_format::NONE, quantizer::OutputQuantizer},
    head::held,
    kv::cached::{Cached, Rows},
    layer::{FUSED, SINKS},
    load::{Role, lane, warp_index},
};
use warpsmith_device::{prelude::*, unroll};

/// What the blocks of tiles work on.
type Args = PrefillArgs<InOut<f32>>;

/// The block's tile, read anew by each call.
#[inline(always)]
unsafe fn tile(a: &Args) -> QueryTile {
    // SAFETY: the block is one of a tile.
    unsafe { a.tile_of(block::idx_y()) }
}

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
        let first = block::idx_x() % rows * columns;
        // SAFETY: the caller's promise.
        let count = unsafe { tile(a) }.count;
        PromptSpot { head: block::idx_x() / rows, group, first, end: count.min(first + columns) }
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
    fn of(layer: &Layer, position: u32, tensor: bool) -> Span {
        let lowest = layer.window_start(position);
        let (start, end) = (steps::start(tensor, lowest), position + 1);
        Span { start, lowest, end, part: positions(end - start, 1 << split_shift(layer.kv_heads)) }
    }
}

/// Which block of a single step a block of the launch is: those that all steps take lie behind those of tiles, in rows of as many blocks as a
/// tile has.
#[derive(Clone, Copy)]
struct StepBlock {
    /// Blocks of the launch before it, in y.
    tiles: u32,
    /// Two to this are the rows of a step.
    shift: u32,
}

impl StepBlock {
    /// Worked out anew wherever it is asked for, as registers that hold it are lost to the tiles.
    #[inline(always)]
    fn of(layer: &Layer, steps: u32) -> StepBlock {
        let steps = unroll::opaque(steps as usize) as u32;
        let of_key_head = columns_of_block(steps::group(layer), layer.head_dim).1;
        let shift = rows_shift(layer.kv_heads, of_key_head);
        StepBlock { tiles: grid::dim_y() - (steps << shift), shift }
    }

    /// Whether the block is one of a tile instead; without steps all are.
    #[inline(always)]
    fn is_of_tile(layer: &Layer, steps: u32) -> bool {
        let steps = unroll::opaque(steps as usize) as u32;
        steps == 0 || block::idx_y() < StepBlock::of(layer, steps).tiles
    }
}

impl Role for StepBlock {
    #[inline(always)]
    fn block(self) -> u32 {
        let row = (block::idx_y() - self.tiles) & ((1 << self.shift) - 1);
        row * grid::dim_x() + block::idx_x()
    }
    #[inline(always)]
    fn blocks(self) -> u32 {
        grid::dim_x() << self.shift
    }
    #[inline(always)]
    fn column(self) -> u32 {
        (block::idx_y() - self.tiles) >> self.shift
    }
    #[inline(always)]
    fn threads(self) -> u32 {
        THREADS
    }
}

#[device]
pub unsafe fn attend<T: Cached>(given: &Arguments) {
    let memory = StepMemory::declared();
    // Norms and rotations were done before, which the compiler is not to make code for.
    let layer = Layer { flags: given.layer.flags & !FUSED, ..given.layer };
    // The block's key head, and which columns of the launch it completes: of a tile those from the first on, or the one of a step.
    let (head, first, end);
    if StepBlock::is_of_tile(&layer, given.steps_count) {
        let a = tiles_of(given);
        if tile(&a).count == 0 {
            return;
        }
        of_tile::<T>(&a, &memory);
        // Nor is the place worked out again.
        if given.quant_format == NONE {
            return;
        }
        let spot = PromptSpot::of(&a);
        (head, first, end) = (spot.head, spot.first, spot.end);
    } else {
        let role = StepBlock::of(&layer, given.steps_count);
        if role.block() >= layer.kv_heads * splits(layer.kv_heads) {
            return;
        }
        let a = steps_of(given, layer);
        // What is in a tile gets its results there.
        if a.columns.at(role.column() as usize).capacity == 0
            || steps::attend_part::<T>(&a, role, &memory, || ()) == steps::Results::Elsewhere
        {
            return;
        }
        let column = given.count - given.steps_count + role.column();
        (head, first, end) = (role.block() >> split_shift(layer.kv_heads), column, column + 1);
    }
    let Some(quantizer) = OutputQuantizer::asked(given.quant_format, given.quantized, given.group_counters) else {
        return;
    };
    sync::block();
    let of_tile = StepBlock::is_of_tile(&layer, given.steps_count);
    let mut i = first;
    while i < end {
        let column = if of_tile { tile(&tiles_of(given)).column(i) } else { i } as usize;
        let y = given.y.from(column * given.y_stride as usize);
        let own = y.from((head * steps::group(&layer) * layer.head_dim) as usize);
        steps::quantize(quantizer, y.into(), |i| own.get(i), column, head, &layer);
        i += 1;
    }
}

/// What blocks of tiles work on.
#[inline(always)]
unsafe fn tiles_of(given: &Arguments) -> Args {
    let Arguments { qkv, columns, tiles, sinks, y, stride, y_stride, layer, .. } = *given;
    // SAFETY: the launches before were waited for.
    let (qkv, columns, tiles) = unsafe { (qkv.buffer(), columns.buffer(), tiles.buffer()) };
    PrefillArgs { qkv, columns, tiles, y, sinks, stride, y_stride, layer }
}

/// What blocks of single steps work on.
#[inline(always)]
unsafe fn steps_of(given: &Arguments, layer: Layer) -> AttentionArgs {
    let first = (given.count - given.steps_count) as usize;
    // SAFETY: the launches before were waited for; the steps are the last columns.
    unsafe {
        let qkv = given.qkv.buffer().from(first * given.stride as usize);
        AttentionArgs {
            qkv: qkv.into(),
            // Without FUSED neither is read.
            weights: (given.sinks, given.sinks),
            tables: (given.sinks, given.sinks),
            columns: given.steps.buffer(),
            partials: given.partials,
            counters: given.counters,
            y: given.y.from(first * given.y_stride as usize).into(),
            sinks: layer.has(SINKS).then_some(given.sinks),
            quantizer: None,
            stride: given.stride,
            y_stride: given.y_stride,
            layer,
        }
    }
}

/// The block's columns of its tile.
#[device]
unsafe fn of_tile<T: Cached>(a: &Args, memory: &StepMemory) {
    // The same choice in every thread.
    if !steps::on_tensor_cores::<T>(&a.layer) {
        apart::<T>(a, memory);
        return;
    }
    match a.layer.head_dim {
        32 => together::<T, 32, 1, 1>(a, memory),
        64 => together::<T, 64, 2, 1>(a, memory),
        80 => together::<T, 80, 3, 2>(a, memory),
        96 => together::<T, 96, 3, 2>(a, memory),
        _ => together::<T, 128, 4, 2>(a, memory),
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
    let c = a.columns.at(tile(a).column(0) as usize);
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
    let factors = QueryFactors { words: memory.values.from(own * width(DIM)).cast(), scales: memory.states.from(own) };
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
        let at = tile(a).column(i) as usize * a.y_stride as usize;
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
        let at = tile(a).column(mine.first + i) as usize * a.stride as usize + head as usize * DIM;
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
            let at = tile(a).column(mine.first + i) as usize * a.y_stride as usize + head * DIM + 8 * g;
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
    let c = a.columns.at(tile(a).column(0) as usize);
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
unsafe fn column<T: Cached>(a: &Args, spot: &PromptSpot, c: &Column, (i, position): (u32, u32), memory: &StepMemory) {
    let (layer, dim) = (a.layer, a.layer.head_dim as usize);
    let span = Span::of(&layer, position, false);
    let column = tile(a).column(i) as usize;
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
