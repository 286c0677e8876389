//! The frame: every format's product, with one vector or several, with what comes before and after it.
//!
//! A group of `lanes` lanes (a power of two up to a warp, [`Record::lanes`]) takes two rows of weights: neighbours, or a
//! gate and its up. The block's 256 threads stage a part of the vector in shared memory, swizzled by quads of a unit so
//! that lanes that read the same quad of neighbouring units meet in no bank; then each lane takes its units, 16 bytes of
//! codes a load, sums `code * x` over what shares a scale, and applies the scale. Of several columns each of the eight warps stages
//! one, and codes are taken apart once and multiplied with each; a column's sums are formed in the same order whatever the number of
//! columns, so that its result is the same to the bit. In the end the sums go through shared memory, so that neighbouring threads
//! write neighbouring outputs.
//!
//! Only the loop over a unit's quads is unrolled: there are many formats, and the rest of the code is not hot.

use super::arguments::Arguments;
use super::epilogue::{Epilogue, inverse_root};
use super::experts::{BlockColumns, Experts};
use super::{COLUMNS, NEXT, NORM, ROWS, SWIGLU, THREADS};
use crate::experts::group::TILE;
use crate::format::{
    decode::{Decode, QUADS, Scales},
    record::{InMemory, Memory, Record, UNIT},
};
use crate::load::{Role, Source};
use warpsmith_device::prelude::*;
use warpsmith_device::shared::Shared;
use warpsmith_device::static_for;
use warpsmith_device::warp::{FULL, shuffle_xor};

/// What a kernel got.
#[derive(Clone, Copy)]
pub struct GemvArgs {
    pub weights: In<U32x4>,
    pub x: Source,
    pub sums: Source,
    pub rows: usize,
    pub cols: usize,
    pub columns: usize,
    pub x_stride: usize,
    pub parts: usize,
    pub block_units: u32,
    pub eps: f32,
    pub epilogue: Epilogue,
    pub experts: Option<Experts>,
}

impl GemvArgs {
    /// The arguments of an entry point.
    ///
    /// # Safety
    /// What is awaited is not read before [`begin`].
    #[inline(always)]
    pub unsafe fn of(given: Arguments) -> GemvArgs {
        // SAFETY: the caller's promise.
        let (x, sums, add) = unsafe { (given.x.buffer(), given.sums.buffer(), given.add.buffer()) };
        GemvArgs {
            weights: given.weights,
            x: x.into(),
            sums: sums.into(),
            rows: given.rows as usize,
            cols: given.cols as usize,
            columns: given.columns as usize,
            x_stride: given.x_stride as usize,
            parts: given.parts as usize,
            block_units: given.block_units,
            eps: given.eps,
            epilogue: Epilogue {
                add: add.into(),
                bias: Some(given.bias),
                next_weight: given.next_weight,
                y: given.y,
                scaled: given.scaled,
                next_sums: given.next_sums,
                y_stride: given.y_stride as usize,
                add_stride: given.add_stride as usize,
                flags: given.flags,
            },
            // SAFETY: the caller's promise.
            experts: unsafe { Experts::asked(given.flags, given.chosen, given.matrices, given.sharing) },
        }
    }
}

/// The number, which the compiler does not know: a loop up to it stays a loop.
#[inline(always)]
fn opaque(n: usize) -> usize {
    let same: usize;
    // SAFETY: a move between registers.
    unsafe {
        core::arch::asm!("mov.b64 {0}, {1};", lateout(reg64) same, in(reg64) n, options(pure, nomem, nostack, preserves_flags));
    }
    same
}

/// Where quad `q` (of all quads staged of a column) is kept.
#[inline(always)]
fn place(q: usize) -> usize {
    (q & !7) | ((q ^ (q >> 3)) & 7)
}

/// Brings units `from .. to` of `column` to shared memory, zeros after the last element: of one column all threads, of several each warp
/// its own.
///
/// All threads of the block make this call.
#[device]
unsafe fn stage<const N: usize, const UNITS: usize>(
    xs: Shared<F32x4>,
    a: &GemvArgs,
    from: usize,
    to: usize,
    column: usize,
) {
    const { assert!(N == 1 || N == THREADS / 32, "a warp for each column") };
    sync::block();
    let thread = thread::idx_x() as usize;
    let (n, first, threads) = if N == 1 { (0, thread, THREADS) } else { (thread / 32, thread % 32, 32) };
    let (row, mut q) = (column * a.x_stride, first);
    while q < (to - from) * QUADS {
        let c = from * UNIT + 4 * q;
        let mut v = [0.0; 4];
        if c + 4 <= a.cols {
            v = a.x.load4(row + c).0;
        } else {
            for i in 0..4 {
                if c + i < a.cols {
                    v[i] = a.x.at(row + c + i);
                }
            }
        }
        xs.set(n * UNITS * QUADS + place(q), F32x4(v));
        q += threads;
    }
    sync::block();
}

/// Adds the products of a unit of each row, which is unit `at` of those that are staged.
#[inline(always)]
unsafe fn add_unit<F: Decode, const R: usize, const N: usize, const UNITS: usize>(
    acc: &mut [[f32; N]; R],
    codes: &[F::Codes<InMemory>; R],
    scales: &[Scales; R],
    xs: Shared<F32x4>,
    at: usize,
) {
    // `place` of the unit's quads, as addresses.
    let unit = xs.address_of(at * QUADS);
    let swizzle = (at as u32 & 7) * 16;
    let x = |n: usize, q: usize| {
        let address = unit + (swizzle ^ (q as u32 * 16)) + (n * UNITS * QUADS * 16) as u32;
        // SAFETY: the unit is staged.
        unsafe { Shared::<F32x4>::from_raw(address, 1).get(0).0 }
    };
    let (mut dots, mut sums) = ([[0.0f32; N]; R], [0.0f32; N]);
    static_for!(q in 0..QUADS => {
        let w: [[f32; 4]; R] = core::array::from_fn(|r| F::quad(&codes[r], q));
        static_for!(n in 0..N => {
            let x = x(n, q);
            for r in 0..R {
                for i in 0..4 {
                    dots[r][n] = math::fma(w[r][i], x[i], dots[r][n]);
                }
            }
            if F::SHIFTED {
                sums[n] += (x[0] + x[1]) + (x[2] + x[3]);
            }
        });
        // The last quad of those that share a scale.
        if (q + 1) % (QUADS / F::SCALES) == 0 {
            add_scaled::<F, R, N>(acc, scales, q * F::SCALES / QUADS, &dots, &sums);
            (dots, sums) = ([[0.0; N]; R], [0.0; N]);
        }
    });
}

/// Adds the sums of products that share the scales `part`.
#[inline(always)]
fn add_scaled<F: Decode, const R: usize, const N: usize>(
    acc: &mut [[f32; N]; R],
    scales: &[Scales; R],
    part: usize,
    dots: &[[f32; N]; R],
    sums: &[f32; N],
) {
    for r in 0..R {
        for n in 0..N {
            acc[r][n] = if F::SCALED {
                math::fma(scales[r].scale[part], dots[r][n], acc[r][n])
            } else {
                acc[r][n] + dots[r][n]
            };
            if F::SHIFTED {
                acc[r][n] = math::fma(scales[r].shift[part], sums[n], acc[r][n]);
            }
        }
    }
}

/// The products of `R` rows with `N` columns, in every lane of the group. `column`: of `x`, that of the thread's warp where there are
/// several.
///
/// All threads of the block make this call.
#[device]
pub unsafe fn products<F: Decode, const R: usize, const N: usize, const UNITS: usize>(
    a: &GemvArgs,
    record: &Record,
    rows: [usize; R],
    column: usize,
    xs: Shared<F32x4>,
) -> [[f32; N]; R] {
    let lanes = record.lanes();
    let lane = thread::idx_x() as usize & (lanes - 1);
    let memory: [InMemory; R] = core::array::from_fn(|r| InMemory(a.weights.from(rows[r] * record.vectors)));
    let mut acc = [[0.0f32; N]; R];
    let mut from = 0;
    while from < record.units {
        let to = (from + UNITS).min(record.units);
        stage::<N, UNITS>(xs, a, from, to, column);
        // High bits that share vectors are loaded in time too: a loop over the units of a vector costs more.
        let together = if F::SPEC.code_words < 4 { F::SPEC.together() } else { 1 };
        let mut u = from;
        while u < to {
            // `from` is a multiple of a run; what is left after the last full one is stored unit after unit.
            let run = together > 1 && N == 1 && u + lanes * together <= to;
            // Words that are loaded before the units that they belong to; others are loaded in time.
            let mut words = [[0u32; 4]; R];
            if together > 1 && (run || u + lane < to) {
                for r in 0..R {
                    words[r] = if run {
                        memory[r].vector(record.short + u / together + lane)
                    } else {
                        F::words(memory[r], record, u + lane)
                    };
                }
            }
            let parts = if together > 1 && N == 1 { opaque(if run { together } else { 1 }) } else { 1 };
            let mut part = 0;
            while part < parts {
                let unit = u + lane;
                if unit < to {
                    let codes = core::array::from_fn(|r| {
                        if together > 1 {
                            F::codes_of(memory[r], record, unit, words[r])
                        } else {
                            F::codes(memory[r], record, unit)
                        }
                    });
                    let scales = core::array::from_fn(|r| F::scales(memory[r], record, unit));
                    add_unit::<F, R, N, UNITS>(&mut acc, &codes, &scales, xs, unit - from);
                }
                for r in 0..R {
                    let [a, b, c, d] = words[r];
                    words[r] = if F::SPEC.short_words() == 1 { [b, c, d, a] } else { [c, d, a, b] };
                }
                u += lanes;
                part += 1;
            }
        }
        from = to;
    }
    let mut distance = lanes as u32 / 2;
    while distance > 0 {
        for r in 0..R {
            for n in 0..N {
                acc[r][n] += shuffle_xor(FULL, acc[r][n], distance);
            }
        }
        distance /= 2;
    }
    acc
}

/// The products of a block's rows, `R` for each group of lanes, with one vector.
#[device]
pub unsafe fn rows<F: Decode, const R: usize, const UNITS: usize>(
    weights: In<U32x4>,
    x: In<f32>,
    y: Out<f32>,
    rows: usize,
    cols: usize,
    xs: Shared<F32x4>,
) {
    let record = F::record(cols, 0);
    let group = thread::idx_x() as usize >> record.lanes_log2;
    let first = (block::idx_x() as usize * (THREADS >> record.lanes_log2) + group) * R;
    // As in `run`, a row after the last is the last.
    let of_group = core::array::from_fn(|r| (first + r).min(rows - 1));
    let a = GemvArgs {
        weights,
        x: x.into(),
        sums: x.into(),
        rows,
        cols,
        columns: 1,
        x_stride: 0,
        parts: 0,
        block_units: 0,
        eps: 0.0,
        epilogue: Epilogue {
            add: x.into(),
            bias: None,
            next_weight: x,
            y,
            scaled: y,
            next_sums: y,
            y_stride: 0,
            add_stride: 0,
            flags: 0,
        },
        experts: None,
    };
    let acc = products::<F, R, 1, UNITS>(&a, &record, of_group, 0, xs);
    if thread::idx_x() as usize & (record.lanes() - 1) == 0 {
        for r in 0..R {
            if first + r < rows {
                y.set(first + r, acc[r][0]);
            }
        }
    }
}

/// The rows of weights of a group of a block whose first output is `first`. A group after the last row takes it again, and the
/// results are dropped: all threads stage.
#[inline(always)]
fn rows_of(a: &GemvArgs, first: usize, group: usize) -> [usize; ROWS] {
    let last = a.rows - 1;
    if a.epilogue.has(SWIGLU) {
        let row = (first + group).min(last);
        [row, a.rows + row]
    } else {
        let row = first + group * ROWS;
        [row.min(last), (row + 1).min(last)]
    }
}

/// The start of a launch: it asks for weights and waits for what is before it, and then the launch behind may begin.
#[device]
pub unsafe fn begin<F: Decode>(a: &GemvArgs) {
    let record = F::record(a.cols, a.block_units);
    let (lane, group) =
        (thread::idx_x() as usize & (record.lanes() - 1), thread::idx_x() as usize >> record.lanes_log2);
    let outputs = (THREADS >> record.lanes_log2) * if a.epilogue.has(SWIGLU) { 1 } else { ROWS };
    let [even, odd] = rows_of(a, block::idx_x() as usize * outputs, group);
    let row = if lane & 1 == 0 { even } else { odd };
    a.epilogue.ask(a.weights.from(row * record.vectors), record.vectors, lane / 2);
    grid::wait_dependencies();
    grid::launch_dependents();
}

/// What a block has at a time: a column, or several, of which each warp has one.
#[derive(Clone, Copy)]
pub struct Part {
    /// The warp's column of outputs, and that of `x` which it comes from.
    pub column: usize,
    pub input: usize,
    /// Columns that there are.
    pub count: usize,
    /// The number of the first row of their matrix among the rows of all matrices.
    pub first_row: usize,
}

impl Part {
    /// The first column, of the first matrix.
    pub const FIRST: Part = Part { column: 0, input: 0, count: 1, first_row: 0 };
}

/// A block's outputs. `xs` holds `N * UNITS * QUADS` vectors; a block may take several roles, one after the other.
///
/// All threads of the block make this call.
#[device]
pub unsafe fn run<F: Decode, const N: usize, const UNITS: usize>(a: &GemvArgs, role: impl Role, xs: Shared<F32x4>) {
    let record = F::record(a.cols, a.block_units);
    let (rows, y) = (rows_of_role(a, &record, role), role.column());
    // Where the table has the matrix of a column, or of a tile.
    let table = if N == 1 { y } else { BlockColumns::tile_of(y) };
    let (mut of_matrix, mut first_row) = (*a, 0);
    if let Some(experts) = a.experts {
        first_row = experts.matrix(table) as usize * (a.rows << u32::from(a.epilogue.has(SWIGLU)));
        of_matrix.weights = a.weights.from(first_row * record.vectors);
    }
    if N == 1 {
        let mut part = Part { first_row, ..Part::FIRST };
        if let Some(experts) = a.experts {
            (part.column, part.input) = (y as usize, experts.input(y) as usize);
        }
        let acc = products::<F, ROWS, N, UNITS>(&of_matrix, &record, rows, part.input, xs);
        finish::<N>(a, role, &record, part, &acc, xs);
        return;
    }
    // A tile of a group has more than are taken at a time.
    let most = if a.experts.is_some() { TILE } else { COLUMNS as u32 };
    let columns = BlockColumns::of_block(y, a.experts, a.columns as u32, most);
    let mut from = 0;
    while from < columns.count {
        let column = columns.column(from + thread::idx_x() / 32);
        let input = a.experts.map_or(column, |experts| experts.input(column)) as usize;
        let count = (columns.count - from).min(COLUMNS as u32) as usize;
        let part = Part { column: column as usize, input, count, first_row };
        let acc = products::<F, ROWS, N, UNITS>(&of_matrix, &record, rows, input, xs);
        finish::<N>(a, role, &record, part, &acc, xs);
        from += COLUMNS as u32;
    }
}

/// The rows of weights of a thread's group.
#[inline(always)]
pub fn rows_of_role(a: &GemvArgs, record: &Record, role: impl Role) -> [usize; ROWS] {
    let group = thread::idx_x() as usize >> record.lanes_log2;
    let groups = THREADS >> record.lanes_log2;
    let outputs = if a.epilogue.has(SWIGLU) { groups } else { groups * ROWS };
    rows_of(a, role.block() as usize * outputs, group)
}

/// The outputs of a block whose groups have `acc` each, in whatever format their weights were. `xs` is as for [`run`].
///
/// All threads of the block make this call.
#[device]
pub unsafe fn finish<const N: usize>(
    a: &GemvArgs,
    role: impl Role,
    record: &Record,
    part: Part,
    acc: &[[f32; N]; ROWS],
    xs: Shared<F32x4>,
) {
    let group = thread::idx_x() as usize >> record.lanes_log2;
    let groups = THREADS >> record.lanes_log2;
    let swiglu = a.epilogue.has(SWIGLU);
    let outputs = if swiglu { groups } else { groups * ROWS };
    let first = role.block() as usize * outputs;
    // The sums of all groups, `[row][group][column]`, and behind them a factor for each column, and its number.
    let sums = xs.cast::<f32>();
    let factors = ROWS * groups * N;
    let numbers = xs.cast::<u32>().from(factors + N);
    sync::block();
    if thread::idx_x() as usize & (record.lanes() - 1) == 0 {
        for r in 0..ROWS {
            for n in 0..N {
                sums.set((r * groups + group) * N + n, acc[r][n]);
            }
        }
    }
    // A warp for each column.
    let warp = thread::idx_x() as usize / 32;
    let busy = warp < part.count;
    if busy {
        let factor = if a.epilogue.has(NORM) { inverse_root(a.sums, a.parts, part.input, a.cols, a.eps) } else { 1.0 };
        if thread::lane() == 0 {
            sums.set(factors + warp, factor);
            if N > 1 {
                numbers.set(warp, part.column as u32);
            }
        }
    }
    sync::block();
    let mut i = thread::idx_x() as usize;
    while i < outputs * part.count {
        let (n, output) = if N == 1 { (0, i) } else { (i / outputs, i % outputs) };
        let row = first + output;
        let (r, group) = if swiglu { (0, output) } else { (output % ROWS, output / ROWS) };
        let at = (r * groups + group) * N + n;
        let mut square = 0.0;
        if row < a.rows {
            let factor = sums.get(factors + n);
            let mut y = a.epilogue.biased(sums.get(at) * factor, || part.first_row + row);
            if swiglu {
                let up = sums.get(at + groups * N) * factor;
                y = a.epilogue.gated(y, a.epilogue.biased(up, || part.first_row + a.rows + row));
            }
            let column = if N == 1 { part.column } else { numbers.get(n) as usize };
            [_, square] = a.epilogue.write(column, row, y);
        }
        sums.set(at, square);
        i += THREADS;
    }
    if a.epilogue.has(NEXT) {
        sync::block();
        if busy {
            let mut sum = 0.0;
            let mut i = thread::lane() as usize;
            while i < outputs {
                sum += sums.get(i * N + warp);
                i += 32;
            }
            let sum = warp::sum_f32(sum);
            if thread::lane() == 0 {
                a.epilogue.write_sum(part.column, (role.block(), role.blocks()), sum);
            }
        }
    }
}
