//! Products of quantized activations, integers with scales: what [`planes`](super::planes) and [`int8`](super::int8) have in common.
//!
//! A launch rounds columns of f32 to integers; any number of products then read them. Columns of them lie one behind the other;
//! a launch has as many blocks of threads for each, in the second dimension of its grid.
//!
//! | argument | of a quantizing entry point |
//! |---|---|
//! | `x` | f32 `[columns, cols]`, column `n` from `n * x_stride` on |
//! | `quantized` | a number of vectors of 16 bytes for each column |
//!
//! Products can, at run time (`flags`), divide by a root mean square ([`NORM`](super::NORM)), add a [`BIAS`](super::BIAS), [`ADD`](super::ADD), prepare the
//! [`NEXT`](super::NEXT) norm, in [`parts`](super::quant_format::parts) parts for each column, and take gates and ups ([`SWIGLU`](super::SWIGLU)), with
//! outputs and strides as the default entry points have them. What they compute, or with [`NEXT`](super::NEXT) `scaled`, they
//! can [quantize](super::quant_format) for the products behind them, for which no launch that only rounds is then needed.

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::{
    NEXT, NORM, PAIRS, PREFETCH, SWIGLU,
    arguments::QuantizedArguments,
    epilogue::{Epilogue, inverse_roots},
    experts::Experts,
    quant_format::{BLOCK_ROWS, int8, parts, planes},
    quantizer::OutputQuantizer,
};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::load::{Launched, Place, Role, Source};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use warpsmith_device::{
    prelude::*,
    shared::Shared,
    unroll::{self, no_unroll},
    warp::{FULL, shuffle_xor},
};

/// Columns that a block of threads of a quantizing entry point takes.
pub const COLUMNS: u32 = 512;

/// Where a product finds what it got, and which block of it is meant.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) trait Invocation: Copy {
    /// Whose block.
    type Role: Role;
    /// Which.
    fn role(self) -> Self::Role;
    /// What the product got.
    unsafe fn args(self) -> QuantizedArgs;
    /// The same, found anew: what is kept over a loop costs registers in it.
    unsafe fn again(self) -> QuantizedArgs;
    /// The start of a block with a row of weights for each `threads` threads, of `vectors` vectors: weights are asked for. `ahead`: also
    /// those of the block that takes its slot.
    unsafe fn begin(self, threads: u32, vectors: u32, ahead: bool);
    /// What launches before wrote may be read from here on.
    unsafe fn wait(self);
    /// What the next norm weighs the block's outputs by is asked for; `threads` is that of [`begin`](Self::begin).
    unsafe fn ask_next(self, _threads: u32) {}
    /// The start of a block, up to where what launches before wrote may be read: arguments are those of [`begin`](Self::begin).
    #[inline(always)]
    unsafe fn start(self, threads: u32, vectors: u32, ahead: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            self.begin(threads, vectors, ahead);
            self.wait();
        }
    }
}

/// The arguments of an entry point.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
impl Invocation for QuantizedArgs {
    type Role = Launched;
    #[inline(always)]
    fn role(self) -> Launched {
        Launched
    }
    #[inline(always)]
    unsafe fn args(self) -> QuantizedArgs {
        self
    }
    #[inline(always)]
    unsafe fn again(self) -> QuantizedArgs {
        self
    }
    #[inline(always)]
    unsafe fn begin(self, threads: u32, vectors: u32, ahead: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.ask_weights(1, threads, vectors, ahead) }
    }
    #[inline(always)]
    unsafe fn wait(self) {
        grid::wait_dependencies();
        grid::launch_dependents();
    }
    #[inline(always)]
    unsafe fn ask_next(self, threads: u32) {
        // As many rows as a line has weights.
        if thread::idx_x() % (threads * BLOCK_ROWS) == 0 {
            // SAFETY: the caller's promise.
            unsafe { self.epilogue.ask_next(thread::global_x() as u32 / threads, self.rows) }
        }
    }
}

/// What a product got; `x` holds the activations of all columns.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
pub(crate) struct QuantizedArgs {
    pub weights: In<U32x4>,
    pub x: In<U32x4>,
    pub rows: u32,
    pub cols: u32,
    pub columns: u32,
    pub block_units: u32,
    /// The parts of the sums of squares of the input, as [`NORM`] has them.
    pub sums: Source,
    pub parts: u32,
    pub eps: f32,
    pub epilogue: Epilogue,
    pub experts: Option<Experts>,
    /// How what is computed is quantized, if it is.
    pub quantizer: Option<OutputQuantizer>,
    /// Where what would be quantized is kept for other warps of the block, if they do it: one value for each output of the block.
    pub kept: Option<Shared<f32>>,
}

/// Threads of these kernels that a multiprocessor holds. Where it holds more or less, blocks ask for weights somewhat late or early.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
const RESIDENT: u32 = 512;

/// Blocks that run at once.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
fn slots() -> u32 {
    let threads = block::dim_x();
    grid::multiprocessors() * if threads >= RESIDENT { 1 } else { RESIDENT / threads }
}

/// Whether much is left of rows behind the lines that a block asks for at first: else it is not worth the code that asks. `threads` and
/// `vectors` are as for [`begin`](Invocation::begin).
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
pub(super) fn rows_are_long(threads: u32, vectors: u32) -> bool {
    cfg!(target_feature = "sm_90") && vectors >= 16 * threads
}

/// Whether blocks ask for weights [ahead](Invocation::begin): [rows are long](rows_are_long), or blocks follow on others.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
pub(super) fn asks_behind(threads: u32, vectors: u32) -> bool {
    // Of 128 multiprocessors.
    const SLOTS: u32 = 128 * RESIDENT;
    cfg!(target_feature = "sm_90") && (rows_are_long(threads, vectors) || grid::dim_x() * block::dim_x() > SLOTS)
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
impl QuantizedArgs {
    /// The arguments of an entry point.
    ///
    /// # Safety
    /// What is awaited is not read before [`begin`](Invocation::begin), and `x` holds vectors of 16 bytes.
    #[inline(always)]
    pub(super) unsafe fn of<X: Element>(given: QuantizedArguments<X>) -> QuantizedArgs {
        // SAFETY: the caller's promise.
        let (x, sums, add) = unsafe { (given.x.buffer().cast::<U32x4>(), given.sums.buffer(), given.add.buffer()) };
        QuantizedArgs {
            weights: given.weights,
            x,
            rows: given.rows,
            cols: given.cols,
            columns: given.columns,
            block_units: given.block_units,
            sums: sums.into(),
            parts: given.parts,
            eps: given.eps,
            quantizer: OutputQuantizer::asked(given.quant_format, given.quantized, given.group_counters),
            kept: None,
            epilogue: Epilogue {
                add: add.into(),
                bias: Some(given.bias),
                next_weight: given.next_weight,
                y: given.y.into(),
                scaled: given.scaled.into(),
                next_sums: given.next_sums,
                y_stride: given.y_stride as usize,
                add_stride: given.add_stride as usize,
                flags: given.flags,
            },
            // SAFETY: the caller's promise.
            experts: unsafe { Experts::asked(given.flags, given.chosen, given.matrices, given.sharing) },
        }
    }

    /// The row of this thread in a set of rows, of as many as a block has at once; behind the last it is that once more.
    #[inline(always)]
    unsafe fn row_of(self, set: u32, threads: u32, vectors: u32) -> In<U32x4> {
        // SAFETY: as in `row`.
        unsafe { self.row(self.rows, set * (block::dim_x() / threads) + thread::idx_x() / threads, 0, vectors) }
    }

    /// Asks for the weights of a set of rows, of as many as a block has at once: each thread for at most `most` lines of its row.
    /// `threads` and `vectors` are as for [`begin`](Invocation::begin).
    #[inline(always)]
    unsafe fn ask_lines(self, set: u32, most: u32, threads: u32, vectors: u32) {
        let thread = thread::idx_x();
        if set * (block::dim_x() / threads) + thread / threads < self.rows << self.epilogue.shift() {
            // SAFETY: the caller's promise.
            let row = unsafe { self.row_of(set, threads, vectors) };
            let (mut at, end) = (8 * (thread % threads), vectors.min(8 * most * threads));
            while at < end {
                no_unroll();
                // SAFETY: the vector is the row's.
                mem::prefetch_l2(unsafe { row.from(at as usize) }.ptr());
                at += 8 * threads;
            }
        }
    }

    /// Asks for the weights of the block, which has `rounds` sets of rows: for as many lines of each row of the first set as it has threads.
    /// `ahead`: for more of them, and for those of the block that takes its [slot](slots) behind it: each block but the first ones so finds
    /// its weights in L2, and memory delivers on while blocks end and begin. Of blocks that share weights only the first ask.
    ///
    /// A line a thread is 64 KiB for a multiprocessor, 8.4 MB for an H100, of whose 50 MB of L2 weights that nobody has read yet should
    /// not take more than half: of its own a block reads the first ones while memory still delivers the last ones, of another's none.
    #[inline(always)]
    pub(super) unsafe fn ask_weights(self, rounds: u32, threads: u32, vectors: u32, ahead: bool) {
        const OWN: u32 = 8;
        const OTHERS: u32 = 3;
        if !cfg!(target_feature = "sm_90") || !self.epilogue.has(PREFETCH) || block::idx_y() != 0 {
            return;
        }
        let index = block::idx_x();
        let (mut set, mut lines) = (index * rounds, OWN);
        if !ahead {
            // SAFETY: the caller's promise.
            let row = unsafe { self.row_of(set, threads, vectors) };
            // SAFETY: as above.
            return unsafe { self.epilogue.ask(row, vectors as usize, (thread::idx_x() % threads) as usize) };
        }
        let slots = slots();
        if index >= slots {
            // Its own were asked for by the block that had its slot before.
            (set, lines) = ((index + slots) * rounds, OTHERS);
        }
        loop {
            no_unroll();
            // SAFETY: the caller's promise.
            unsafe { self.ask_lines(set, lines, threads, vectors) };
            lines = OTHERS;
            set += 1;
            if set == (index + slots + 1) * rounds {
                return;
            }
            if set == (index + 1) * rounds {
                set += (slots - 1) * rounds;
            }
        }
    }

    /// The weights of row `i + even` of all blocks', as [`Epilogue::row`] says, of `vectors` vectors each; of the first matrix,
    /// where there are several.
    #[inline(always)]
    pub(super) unsafe fn row(&self, rows: u32, i: u32, even: u32, vectors: u32) -> In<U32x4> {
        // SAFETY: the row is one of the weights.
        unsafe { self.of_row(self.epilogue.row(rows, i, even), vectors) }
    }

    /// The weights of a row of the first matrix, of `vectors` vectors.
    #[inline(always)]
    pub(super) unsafe fn of_row(&self, row: u32, vectors: u32) -> In<U32x4> {
        // SAFETY: the caller's promise: the row is one of the weights.
        unsafe { self.weights.from((u64::from(row) * u64::from(vectors)) as usize) }
    }

    /// By how many bits columns of f16 are more than those that they are the [pairs](PAIRS) of.
    #[inline(always)]
    pub(super) fn pair(&self) -> u32 {
        u32::from(self.epilogue.has(PAIRS))
    }

    /// The column of f16 that is number `i` of those of a block, whose columns of outputs `column` gives.
    #[inline(always)]
    pub(super) fn half_input(&self, i: u32, column: impl Fn(u32) -> u32) -> u32 {
        let pair = self.pair();
        (self.input(column(i >> pair)) << pair) | (i & pair)
    }

    /// The column of `x` that a column of outputs comes from.
    #[inline(always)]
    pub(super) fn input(&self, column: u32) -> u32 {
        self.experts.map_or(column, |experts| experts.input(column))
    }

    /// How many vectors behind the first matrix that lies that a column is multiplied with, whose rows are of `vectors` vectors.
    ///
    /// # Safety
    /// What wrote the table of the chosen is waited for.
    #[inline(always)]
    pub(super) unsafe fn chosen(&self, column: u32, vectors: u32) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.first_row(column) * vectors as usize }
    }

    /// The number of the first row of that matrix among those of all.
    ///
    /// # Safety
    /// As for [`chosen`](Self::chosen).
    #[inline(always)]
    pub(super) unsafe fn first_row(&self, column: u32) -> usize {
        let Some(experts) = self.experts else { return 0 };
        // SAFETY: the caller's promise.
        let matrix = unsafe { experts.matrix(column) };
        (u64::from(matrix) * u64::from(self.rows << self.epilogue.shift())) as usize
    }

    /// What the products of a column of outputs are multiplied with.
    ///
    /// All lanes of a warp make this call.
    #[inline(always)]
    pub(super) unsafe fn root(&self, column: usize) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { self.roots([column as u32])[0] }
    }

    /// The same of several columns.
    ///
    /// All lanes of a warp make this call.
    #[inline(always)]
    pub(super) unsafe fn roots<const N: usize>(&self, columns: [u32; N]) -> [f32; N] {
        if self.epilogue.has(NORM) {
            let columns = columns.map(|column| self.input(column) as usize);
            // SAFETY: the caller's promise.
            unsafe { inverse_roots(self.sums, self.parts as usize, columns, self.cols as usize, self.eps) }
        } else {
            [1.0; N]
        }
    }

    /// A block's outputs from the products of its rows of weights, [`BLOCK_ROWS`] or with [`SWIGLU`] up to twice as many; `product`
    /// gives that of a row, and [`root`](Self::root) what they are multiplied with.
    ///
    /// All lanes of the block's first warp make this call.
    #[inline(always)]
    pub(super) unsafe fn finish(&self, place: Place, block_rows: u32, root: f32, product: impl Fn(u32) -> f32) {
        let outputs = block_rows >> self.epilogue.shift();
        // SAFETY: the caller's promise.
        unsafe {
            self.finish_with::<true>(place, block_rows, outputs, (root, place.column), product);
        }
    }

    /// As [`finish`](Self::finish), in any warp, for a column whose [`root`](Self::root) is known, and with the place where the table
    /// has its matrix. `outputs`: those of `block_rows` rows of weights, which a caller may know better than they tell. `EARLY`: there are
    /// registers for what is added, and for the weight of the next norm, while products are summed up, so that nothing waits for them.
    #[inline(always)]
    pub(super) unsafe fn finish_with<const EARLY: bool>(
        &self,
        place: Place,
        block_rows: u32,
        outputs: u32,
        (root, table): (f32, u32),
        product: impl Fn(u32) -> f32,
    ) {
        let part = |_: usize| (place.block, place.column);
        // SAFETY: the caller's promise.
        unsafe {
            let of = (block_rows, outputs, table);
            self.finish_parts::<EARLY, 1>(place.thread, part, 1, of, |_, row| product(row) * root);
        }
    }

    /// As [`finish_with`](Self::finish_with), several parts, which share the matrix and whose products, and what is added to them, are not
    /// waited for one by one: `part` says which rows each has, counted in as many as they are, and which column. Those are written whose
    /// bits `there` has; the others are places of the same matrix. `product` gives that of a row of a part, which its root was multiplied
    /// with. `EARLY` is for one part.
    #[inline(always)]
    pub(super) unsafe fn finish_parts<const EARLY: bool, const N: usize>(
        &self,
        lane: u32,
        part: impl Fn(usize) -> (u32, u32),
        there: u32,
        (block_rows, outputs, table): (u32, u32, u32),
        product: impl Fn(usize, u32) -> f32,
    ) {
        const { assert!(!EARLY || N == 1, "several parts have no registers for it") };
        let QuantizedArgs { epilogue, rows, .. } = self;
        let shift = epilogue.shift();
        // A power of two.
        let of = (lane << shift) & (block_rows - 1);
        // A lane without an output has another's.
        let row_of = |n: usize| (part(n).0 * outputs + lane).min(*rows - 1);
        // SAFETY: the caller's promise: all lanes are here, and rows below `rows` are outputs.
        unsafe {
            // Which matrix it is, is asked for anew.
            let row_of_all = |n: usize, more: u32| {
                let table = unroll::opaque(table as usize) as u32;
                self.first_row(table) + (row_of(n) + more) as usize
            };
            let addend = |n: usize| epilogue.addend(part(n).1 as usize, row_of(n) as usize);
            let early = if EARLY { [addend(0), epilogue.next(row_of(0) as usize)] } else { [0.0; 2] };
            let products: [f32; N] = core::array::from_fn(|n| product(n, of));
            let mut of_parts: [f32; N] = core::array::from_fn(|n| epilogue.biased(products[n], || row_of_all(n, 0)));
            if epilogue.has(SWIGLU) {
                let products: [f32; N] = core::array::from_fn(|n| product(n, of + 1));
                let ups: [f32; N] = core::array::from_fn(|n| epilogue.biased(products[n], || row_of_all(n, *rows)));
                of_parts = core::array::from_fn(|n| epilogue.gated(of_parts[n], ups[n]));
            }
            of_parts = core::array::from_fn(|n| epilogue.sum(of_parts[n], if EARLY { early[0] } else { addend(n) }));
            if N == 1 {
                let next = if EARLY { early[1] } else { epilogue.next(row_of(0) as usize) };
                return self.write_part(lane, part(0), (block_rows, outputs), of_parts[0], next);
            }
            let mut n = 0;
            while n < N {
                if there >> n & 1 == 1 {
                    let next = epilogue.next(row_of(n) as usize);
                    self.write_part(lane, part(n), (block_rows, outputs), of_parts[0], next);
                }
                // Numbers in registers have no places to count up.
                of_parts = core::array::from_fn(|n| of_parts[(n + 1) % N]);
                n = unroll::opaque(n + 1);
            }
        }
    }

    /// Writes a part's outputs, of which each lane has one, and what else becomes of them; `next` is the weight of its output in a norm.
    #[inline(always)]
    unsafe fn write_part(
        &self,
        lane: u32,
        (block, column): (u32, u32),
        (block_rows, outputs): (u32, u32),
        output: f32,
        next: f32,
    ) {
        let QuantizedArgs { epilogue, rows, quantizer, kept, .. } = self;
        let (column, first) = (column as usize, block * outputs);
        let row = first + lane;
        // SAFETY: the caller's promise: all lanes are here, and rows below `rows` are outputs.
        unsafe {
            let mut written = [0.0; 2];
            if lane < outputs && row < *rows {
                written = epilogue.write_sum_of(column, row as usize, output, next);
            }
            let [value, square] = written;
            if let Some(kept) = kept
                && lane < outputs
            {
                // Blocks that keep them have as many as share a scale of bit planes.
                kept.set((row % planes::BLOCK) as usize, value);
            }
            if epilogue.has(NEXT) {
                // A part for each `BLOCK_ROWS` rows of weights, so that it does not depend on the size of blocks.
                let (wide, parts) = (block_rows > BLOCK_ROWS, parts(*rows, epilogue.has(SWIGLU)));
                let (mut number, mut sum) = (block, warp::reduce_group::<16, f32>(square, |a, b| a + b));
                if wide {
                    number = 2 * number + lane / 16;
                } else {
                    sum += shuffle_xor(FULL, sum, 16);
                }
                if (lane == 0 || (wide && lane == 16)) && number < parts {
                    epilogue.write_sum(column, (number, parts), sum);
                }
            }
            if let Some(quantizer) = quantizer {
                if quantizer.in_bytes() && outputs == int8::BLOCK {
                    // A unit, and a lane has each of its elements.
                    quantizer.unit(column, *rows, block as usize, value);
                } else {
                    let values = if epilogue.has(NEXT) { epilogue.scaled } else { epilogue.y };
                    let n = outputs.min(rows - first);
                    quantizer.bring(values.from(column * epilogue.y_stride).into(), column, *rows, first, n);
                }
            }
        }
    }
}

/// A quantizing entry point and its contract.
macro_rules! quantizer {
    (
        $(#[$doc:meta])* $name:ident $Name:ident: $QuantFormat:ty, $min_blocks:literal, blocks of $block:expr, $len:expr,
        |$x:ident, $quantized:ident, $cols:ident| $body:expr
    ) => {
        $(#[$doc])*
        #[kernel(block = 128, min_blocks = $min_blocks, family = "gemv")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(
            x: Awaited<f32>,
            quantized: Out<$QuantFormat>,
            cols: u32,
            columns: u32,
            x_stride: u32,
        ) {
            // The grid has them.
            let _ = columns;
            grid::wait_dependencies();
            grid::launch_dependents();
            let (column, $cols) = (block::idx_y() as usize, cols);
            let $x = x.buffer().from(column * x_stride as usize);
            let $quantized = quantized.from(column * $len(cols) as usize);
            $body
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::grid(self.cols.div_ceil(super::quantized::COLUMNS), self.columns, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                let x = super::contract::Columns {
                    x: self.x,
                    cols: self.cols,
                    columns: self.columns,
                    x_stride: self.x_stride,
                };
                super::contract::check_quantizer(Self::META, &x, $block, (self.quantized.len(), $len(self.cols)))
            }
        }
    };
}

/// A product and its contract; `units`: the largest `block_units`, 0 where the format has its own. A block may have `most` threads;
/// how many it is launched with, and how many [parts](super::quant_format::parts) it then has, `by` says of the product's `cols`,
/// `flags` and `quant_format`.
macro_rules! product {
    (
        $(#[$doc:meta])* $name:ident $Name:ident: $X:ident, $min_blocks:literal of $most:expr, by $shape:expr, $F:ty,
        units $units:literal, $len:expr, $shared:ident of $sums:expr, |$args:ident, $memory:ident| $body:expr
    ) => {
        arguments! { quantized $X product_entry (
            $(#[$doc])* $name $Name: $X, $min_blocks, $most, $shape, $F, $units, $len,
            $shared, $sums, $args, $memory, $body
        ) }
    };
}

macro_rules! product_entry {
    (
        (
            $(#[$doc:meta])* $name:ident $Name:ident: $X:ident, $min_blocks:literal, $most:expr, $shape:expr, $F:ty,
            $units:literal, $len:expr,
            $shared:ident, $sums:expr, $args:ident, $memory:ident, $body:expr
        )
        $($argument:ident: ($($ty:tt)*),)*
    ) => {
        $(#[$doc])*
        #[kernel(block = $most, min_blocks = $min_blocks, family = "gemv")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($argument: $($ty)*,)*) {
            // Of vectors, for what is read by four.
            let $memory = shared_array!($shared: [F32x4; $sums / 4]).cast::<f32>();
            let $args = super::quantized::QuantizedArgs::of(super::arguments::QuantizedArguments { $($argument),* });
            $body
        }

        #[cfg(not(target_arch = "nvptx64"))]
        convert! { $Name: gemv::arguments, QuantizedGiven QuantizedSeen $X, $($argument)* }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                let (threads, of_block) = $shape(self.cols, self.flags, self.quant_format);
                let parts = super::quant_format::parts(self.rows, self.flags & super::SWIGLU != 0);
                super::contract::grid(parts.div_ceil(of_block), self.columns).block([threads, 1, 1])
            }
            fn check(&self) -> Result<(), ContractError> {
                use super::contract::{Limits, Table, check_quantized, of_blocks};
                let limits = Limits { column: $len(self.cols), flags: 0, units: of_blocks($units), table: Table::Columns };
                check_quantized::<$F, _>(Self::META, &self.seen(), &limits)
            }
        }
    };
}
