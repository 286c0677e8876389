//! The phases of a layer. What a launch writes is read as [`InOut`], so past no cache that may be stale.
//!
//! What a phase works with is put together from its number, before a loop over weights and again behind it: registers that hold it
//! meanwhile are lost to the loop.

use super::{ATTEND, LINE, PHASES, Sizes, arguments::Arguments};
use crate::{
    attention::step::{self, frame as attention},
    format::decode::{Decode, Packed, QUADS},
    gemv::{
        self, ADD, NEXT, NORM, ROWS, SWIGLU,
        epilogue::Epilogue,
        frame as product, int8, planes,
        quant_format::{self, BLOCK_ROWS, NONE},
        quantized::{self, Given},
        quantizer::OutputQuantizer,
    },
    kv::cached::{Cached, Rows},
    layer::Layer,
    load::{Launched, Role, again, at_address, sync_role, thread_index},
    state::GROUP,
};
use warpsmith_device::prelude::*;

/// Units of a row that are staged at once, as by the products' own entry points.
const UNITS: usize = 128;

/// Bytes of shared memory that a phase uses: what the one that needs most does.
const WORK: usize = {
    let staged = UNITS * QUADS * size_of::<F32x4>();
    if staged > attention::Memory::BYTES { staged } else { attention::Memory::BYTES }
};

/// Bytes of shared memory; behind a phase's there are three numbers of each thread.
pub const SHARED: usize = WORK + 3 * size_of::<u32>() * super::THREADS as usize;

/// A number that each thread keeps for itself in shared memory, over what takes all registers.
#[derive(Clone, Copy)]
struct Kept(Shared<u32>);

impl Kept {
    #[inline(always)]
    unsafe fn of(shared: Shared<F32x4>, n: usize) -> Kept {
        // SAFETY: the array has them behind a phase's memory.
        Kept(unsafe { shared.cast::<u32>().from(WORK / size_of::<u32>() + n * super::THREADS as usize) })
    }

    #[inline(always)]
    fn get(self) -> u32 {
        // SAFETY: the thread's own, which it wrote first.
        unsafe { self.0.get(thread_index() as usize) }
    }

    #[inline(always)]
    fn set(self, n: u32) {
        // SAFETY: the thread's own.
        unsafe { self.0.set(thread_index() as usize, n) }
    }
}

/// The index of this block, asked for anew wherever it is needed: a register that holds it is lost to all phases.
#[inline(always)]
fn block_index() -> u32 {
    Launched.again().block
}

/// A block of the launch that a phase would be without grid barriers; of `THREADS` threads, where they are fewer than a block of
/// this launch has.
#[derive(Clone, Copy)]
struct Taken<const THREADS: u32> {
    block: Kept,
    blocks: Kept,
}

impl<const THREADS: u32> Taken<THREADS> {
    /// Roles that a block takes at a time.
    const PARTS: u32 = super::THREADS / THREADS;

    /// The first: blocks that find no work for all of their parts are all blocks, rather than some none for any.
    #[inline(always)]
    unsafe fn first(shared: Shared<F32x4>, blocks: u32) -> Taken<THREADS> {
        // SAFETY: the caller's promise.
        let taken = unsafe { Taken { block: Kept::of(shared, 1), blocks: Kept::of(shared, 2) } };
        taken.block.set(block_index() + thread_index() / THREADS * grid::dim_x());
        taken.blocks.set(blocks);
        taken
    }

    /// Whether there is one.
    #[inline(always)]
    fn is_there(self) -> bool {
        self.block.get() < self.blocks.get()
    }

    /// Goes on to the next.
    #[inline(always)]
    fn advance(self) {
        self.block.set(self.block.get() + Self::PARTS * grid::dim_x());
    }
}

impl<const THREADS: u32> Role for Taken<THREADS> {
    #[inline(always)]
    fn block(self) -> u32 {
        self.block.get()
    }
    #[inline(always)]
    fn blocks(self) -> u32 {
        self.blocks.get()
    }
    #[inline(always)]
    fn column(self) -> u32 {
        0
    }
    #[inline(always)]
    fn thread(self) -> u32 {
        thread_index() % THREADS
    }
    #[inline(always)]
    fn threads(self) -> u32 {
        THREADS
    }
    #[inline(always)]
    fn part(self) -> usize {
        (thread_index() / THREADS) as usize
    }
    const PART: Option<u32> = if THREADS == super::THREADS { None } else { Some(THREADS) };
}

/// How far the launch is.
#[derive(Clone, Copy)]
pub struct At {
    /// Of the launch's layers.
    pub layer: u32,
    pub phase: u32,
}

impl At {
    /// As far as the thread [kept](Self::keep). The compiler does not know it: there is one copy of the code behind it, not one for
    /// each phase, and what follows from it is worked out anew.
    #[inline(always)]
    pub unsafe fn kept(shared: Shared<F32x4>) -> At {
        // SAFETY: the caller's promise.
        let at = again(unsafe { Kept::of(shared, 0) }.get());
        At { layer: at / 8, phase: at % 8 }
    }

    /// Keeps it for the thread.
    #[inline(always)]
    pub unsafe fn keep(self, shared: Shared<F32x4>) {
        // SAFETY: the caller's promise.
        unsafe { Kept::of(shared, 0) }.set(8 * self.layer + self.phase);
    }

    #[inline(always)]
    pub fn next(self) -> At {
        if self.phase + 1 == PHASES {
            At { layer: self.layer + 1, phase: 0 }
        } else {
            At { phase: self.phase + 1, ..self }
        }
    }
}

/// Blocks of a product, and so parts of a sum of squares, with activations of a format: [`NONE`] are f32.
#[inline(always)]
fn blocks_of<const QUANT: u32>(rows: u32, cols: u32, swiglu: bool) -> u32 {
    if QUANT == NONE { gemv::parts(rows, cols, swiglu) } else { quant_format::parts(rows, swiglu) }
}

/// What products of all activations have in common.
struct Product {
    weights: In<U32x4>,
    /// Rows of outputs, and columns.
    shape: (u32, u32),
    /// Parts of the sum of squares of the input.
    parts: u32,
    block_units: u32,
    epilogue: Epilogue,
}

impl Arguments {
    /// The same, with numbers of which the compiler does not know that they are the same: else what follows from them alone is
    /// worked out before the loop over layers, and takes registers all the way.
    #[inline(always)]
    pub fn anew(&self) -> Arguments {
        let (l, s) = (&self.layer, &self.sizes);
        Arguments {
            layer: Layer {
                index: again(l.index),
                q_heads: again(l.q_heads),
                kv_heads: again(l.kv_heads),
                head_dim: again(l.head_dim),
                n_rot: again(l.n_rot),
                context: again(l.context),
                window: again(l.window),
                flags: again(l.flags),
                eps: f32::from_bits(again(l.eps.to_bits())),
            },
            sizes: Sizes {
                hidden: again(s.hidden),
                feed_forward: again(s.feed_forward),
                parts: again(s.parts),
                layers: again(s.layers),
                quantize_last: again(s.quantize_last),
                next_rows: again(s.next_rows),
                next_vectors: again(s.next_vectors),
                ..*s
            },
            ..*self
        }
    }

    /// A field of the layer's weights; `near` lets loads be those of an [`In`].
    #[inline(always)]
    unsafe fn buffer<U: Element>(&self, address: DeviceAddress) -> In<U> {
        // SAFETY: the launch's caller promised it.
        unsafe { at_address(self.layers, address) }
    }

    /// Rows of outputs, and columns, of the product of a phase.
    #[inline(always)]
    fn shape(&self, phase: u32) -> (u32, u32) {
        let (l, s) = (&self.layer, &self.sizes);
        match phase {
            0 => (l.qkv(), s.hidden),
            2 => (s.hidden, l.q_heads * l.head_dim),
            3 => (s.feed_forward, s.hidden),
            _ => (s.hidden, s.feed_forward),
        }
    }

    /// The records of a phase's weights, and what they leave open.
    #[inline(always)]
    unsafe fn records(&self, at: At) -> (In<U32x4>, u32) {
        let n = if at.phase > ATTEND { at.phase - 1 } else { at.phase } as usize;
        // SAFETY: a layer of the launch.
        unsafe {
            let layer = self.layers.from(at.layer as usize);
            let (records, units) = (layer.cast::<DeviceAddress>(), layer.cast::<u32>());
            (self.buffer(records.at(n)), units.at(super::BLOCK_UNITS_AT + n))
        }
    }

    /// The product of a phase.
    #[inline(always)]
    unsafe fn product<const QUANT: u32>(&self, at: At) -> Product {
        let (l, s, phase) = (&self.layer, &self.sizes, at.phase);
        // SAFETY: a layer of the launch.
        let (weights, block_units) = unsafe { self.records(at) };
        // SAFETY: as above.
        let layer = unsafe { self.layers.at(at.layer as usize) };
        let shape = self.shape(phase);
        let (to, add, flags) = match phase {
            0 => (
                self.qkv,
                unsafe { self.buffer::<f32>(layer.bias) }.into(),
                NORM | if layer.bias.is_null() { 0 } else { ADD },
            ),
            2 => (self.y, self.x.into(), ADD | NEXT),
            3 => (self.inner, self.x.into(), NORM | SWIGLU),
            _ => (self.x, self.y.into(), ADD | NEXT),
        };
        let cols_before = if phase == 0 { s.feed_forward } else { l.q_heads * l.head_dim };
        let parts =
            if phase == 0 && at.layer == 0 { s.parts } else { blocks_of::<QUANT>(s.hidden, cols_before, false) };
        Product {
            weights,
            shape,
            parts,
            block_units,
            epilogue: Epilogue {
                add,
                // That of queries, keys and values is added as a residual is.
                bias: None,
                next_weight: unsafe { self.buffer(if phase == 2 { layer.ffn_norm } else { layer.next_norm }) },
                y: to.into(),
                scaled: self.scaled.into(),
                next_sums: self.sums.into(),
                y_stride: 0,
                add_stride: 0,
                flags,
            },
        }
    }

    /// How what a phase computes is quantized. Phases that read and write codes do so in two places.
    #[inline(always)]
    fn quantizer<const QUANT: u32>(&self, at: At) -> Option<OutputQuantizer> {
        let s = &self.sizes;
        let last = at.layer + 1 == s.layers && at.phase + 1 == PHASES;
        if QUANT == NONE || at.phase == 0 || (last && s.quantize_last == 0) {
            return None;
        }
        let to = if at.phase % 2 == 0 { self.quantized_scaled } else { self.quantized_inner };
        Some(OutputQuantizer { quant_format: QUANT, to: to.into(), group_counters: self.group_counters })
    }

    /// Asks for what this block will read first of the phase behind the one that is next: it comes to L2 while the block waits,
    /// and in the next phase. A thread asks for a line.
    #[inline(always)]
    pub unsafe fn ask<F: Decode, T: Cached, const QUANT: u32>(&self, at: At) {
        let (last, phase) = (at.layer + 1 == self.sizes.layers, at.phase);
        if phase + 1 == PHASES {
            if !last {
                // SAFETY: the layer is one of the launch.
                unsafe { self.ask_rows::<T>(at.layer + 1) }
            }
            return;
        }
        // SAFETY: the layer is one of the launch.
        unsafe {
            if phase + 2 < PHASES {
                let of = At { phase: phase + 2, ..at };
                let (weights, block_units) = self.records(of);
                let vectors = F::record(self.shape(of.phase).1 as usize, block_units).vectors as u32;
                self.ask_weights::<QUANT>(weights, vectors, self.shape(of.phase), of.phase == 3);
            } else if last {
                let shape = (self.sizes.next_rows, self.sizes.hidden);
                self.ask_weights::<QUANT>(self.next_weights, self.sizes.next_vectors, shape, false);
            } else {
                let of = At { layer: at.layer + 1, phase: 0 };
                let (weights, block_units) = self.records(of);
                let vectors = F::record(self.sizes.hidden as usize, block_units).vectors as u32;
                self.ask_weights::<QUANT>(weights, vectors, self.shape(0), false);
            }
        }
    }

    /// A line of the rows of this block's first roles, of a matrix with rows of `vectors` vectors.
    #[inline(always)]
    unsafe fn ask_weights<const QUANT: u32>(
        &self,
        weights: In<U32x4>,
        vectors: u32,
        (rows, cols): (u32, u32),
        swiglu: bool,
    ) {
        // A role reads outputs' rows one after the other, or some of gates and as many of ups.
        let outputs = if QUANT == NONE {
            gemv::groups(cols) * if swiglu { 1 } else { ROWS as u32 }
        } else {
            BLOCK_ROWS >> u32::from(swiglu)
        };
        let run = (outputs * vectors).max(1);
        let at = thread_index() * (LINE / size_of::<U32x4>() as u32);
        let (n, within) = (at / run, at % run);
        let (turn, up) = if swiglu { (n / 2, n % 2) } else { (n, 0) };
        let row = (block_index() + turn * grid::dim_x()) * outputs;
        if row < rows {
            let at = (up * rows + row) as usize * vectors as usize + within as usize;
            // SAFETY: at most a role's rows past a row of the matrix, and nothing is read there: a hint.
            unsafe { mem::prefetch_l2(weights.from(at).ptr()) }
        }
    }

    /// A line of the keys, or of the values, that this block attends to first in a layer.
    #[inline(always)]
    unsafe fn ask_rows<T: Cached>(&self, layer: u32) {
        let l = &self.layer;
        let splits = step::splits(l.kv_heads);
        let (head, split) = (block_index() / splits, block_index() % splits);
        // SAFETY: there is one column.
        let c = unsafe { self.columns.at(0) };
        if head >= l.kv_heads || c.position >= c.capacity {
            return;
        }
        let (keys, values) = Rows::of::<T>(&c, l.index + layer, l.kv_heads, head, l.head_dim);
        let start = l.window_start(c.position) / GROUP * GROUP;
        let (_, part) = step::parts(c.position + 1 - start, splits);
        let from = start + split * part;
        let rows = if thread_index() % 2 == 0 { keys } else { values };
        let within = (thread_index() / 2 * LINE) as u64;
        let to = (from + part).min(c.position + 1);
        if from < to && within < (to - from) as u64 * rows.bytes {
            // SAFETY: within the column's cache: a hint.
            unsafe { mem::prefetch_l2((rows.row::<T>(from) + within) as *const u32) };
        }
    }
}

/// A phase as the products of quantized activations find it.
#[derive(Clone, Copy)]
struct Phase<'a, const QUANT: u32, const THREADS: u32> {
    a: &'a Arguments,
    shared: Shared<F32x4>,
    role: Taken<THREADS>,
}

impl<const QUANT: u32, const THREADS: u32> Given for Phase<'_, QUANT, THREADS> {
    type Role = Taken<THREADS>;
    #[inline(always)]
    fn role(self) -> Self::Role {
        self.role
    }
    #[inline(always)]
    unsafe fn args(self) -> quantized::Args {
        let a = self.a;
        // SAFETY: the phase is a product of a layer of the launch.
        let (at, Product { weights, shape: (rows, cols), parts, block_units, epilogue }) = unsafe {
            let at = At::kept(self.shared);
            (at, a.product::<QUANT>(at))
        };
        let x = if at.phase == 0 || at.phase == 3 { a.quantized_scaled } else { a.quantized_inner };
        quantized::Args {
            weights,
            // SAFETY: blocks wrote it before a barrier of the grid.
            x: unsafe { Awaited::from_raw(x.ptr()).buffer() },
            rows,
            cols,
            columns: 1,
            block_units,
            sums: a.sums.into(),
            parts,
            eps: a.layer.eps,
            epilogue,
            experts: None,
            quantizer: a.quantizer::<QUANT>(at),
        }
    }
    #[inline(always)]
    unsafe fn again(self) -> quantized::Args {
        // SAFETY: the caller's promise.
        unsafe { Phase::<QUANT, THREADS> { a: &self.a.anew(), ..self }.args() }
    }
    #[inline(always)]
    unsafe fn begin(self, _: u32, _: u32) {}
    #[inline(always)]
    unsafe fn wait(self) {}
}

/// A phase that is a product of f32.
///
/// All threads of the grid make this call.
#[device]
pub unsafe fn multiply<F: Decode>(a: &Arguments, at: At, shared: Shared<F32x4>) {
    let Product { weights, shape: (rows, cols), parts, block_units, epilogue } = a.product::<NONE>(at);
    let x = match at.phase {
        0 | 3 => a.scaled,
        2 => a.attended,
        _ => a.inner,
    };
    let args = product::Args {
        weights,
        x: x.into(),
        sums: a.sums.into(),
        rows: rows as usize,
        cols: cols as usize,
        columns: 1,
        x_stride: 0,
        parts: parts as usize,
        block_units,
        eps: a.layer.eps,
        epilogue,
        experts: None,
    };
    let role = Taken::<{ super::THREADS }>::first(shared, blocks_of::<NONE>(rows, cols, epilogue.has(SWIGLU)));
    while role.is_there() {
        product::run::<F, 1, UNITS>(&args, role, shared);
        role.advance();
    }
}

/// The roles of a phase that is a product of quantized activations: `product` runs one.
macro_rules! multiply_quantized {
    ($($(#[$doc:meta])* $name:ident<$F:ident: $bound:ident $(, $N:ident)*>, $product:expr, $threads:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// All threads of the grid make this call.
        #[device]
        pub unsafe fn $name<$F: $bound $(, const $N: usize)*, const QUANT: u32>(a: &Arguments, at: At, shared: Shared<F32x4>) {
            let (rows, cols) = a.shape(at.phase);
            let blocks = blocks_of::<QUANT>(rows, cols, at.phase == 3);
            let role = Taken::<{ $threads }>::first(shared, blocks);
            while role.is_there() {
                // What the last role left in shared memory was read.
                sync_role(role);
                $product(Phase::<QUANT, { $threads }> { a, shared, role }, shared.cast());
                role.advance();
            }
        }
    )* };
}

multiply_quantized! {
    /// A phase that is a product of activations of eight or 16 bits, in bytes.
    multiply_bytes<F: Packed, BYTES>, int8::frame::product::<F, BYTES>, int8::THREADS;
    /// A phase that is a product of activations in bit planes.
    multiply_planes<F: Decode, BYTES, BITS>, planes::frame::product::<F, BYTES, BITS>, planes::THREADS;
}

/// The phase that is attention.
///
/// All threads of the grid make this call.
#[device]
pub unsafe fn attend<T: Cached, const QUANT: u32>(a: &Arguments, at: At, shared: Shared<F32x4>) {
    let layer = a.layers.at(at.layer as usize);
    let args = attention::Args {
        qkv: a.qkv.into(),
        weights: (a.buffer(layer.q_weight), a.buffer(layer.k_weight)),
        tables: (a.cos, a.sin),
        columns: a.columns,
        partials: a.partials,
        counters: a.counters,
        y: a.attended.into(),
        sinks: None,
        quantizer: a.quantizer::<QUANT>(at),
        stride: 0,
        y_stride: 0,
        layer: Layer { index: a.layer.index + at.layer, ..a.layer },
    };
    let role = Taken::<{ super::THREADS }>::first(shared, a.layer.kv_heads * step::splits(a.layer.kv_heads));
    while role.is_there() {
        // What the last role left in shared memory was read.
        sync::block();
        attention::attend::<T>(args, role, attention::Memory::within(shared.cast()));
        role.advance();
    }
}
