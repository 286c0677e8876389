//! The phases of a layer. What a launch writes is read as [`InOut`], so past no cache that may be stale.
//!
//! What a phase works with is put together from its number, before a loop over weights and again behind it: registers that hold it
//! meanwhile are lost to the loop.

use super::{
    PARTS, PHASES, Sizes, StoredMatrix,
    arguments::Arguments,
    at::{At, Taken},
};
use crate::{
    attention::step::{self, frame as attention},
    format::decode::QUADS,
    gemv::{
        self, ADD, NEXT, NORM, SWIGLU,
        epilogue::Epilogue,
        half,
        quant_format::{self, NONE},
        quantizer::OutputQuantizer,
    },
    kv::cached::Cached,
    layer::Layer,
    load::{again, at_address},
};
use warpsmith_device::prelude::*;

/// Units of a row that are staged at once, as by the products' own entry points.
pub(super) const UNITS: usize = 128;

/// Bytes of shared memory that a phase uses: what the one that needs most does.
pub(super) const WORK: usize = {
    let staged = UNITS * QUADS * size_of::<F32x4>();
    assert!(half::one::SUMS * size_of::<f32>() <= staged, "sums of products of f16 fit in what those of f32 stage");
    if staged > attention::StepMemory::BYTES { staged } else { attention::StepMemory::BYTES }
};

/// Bytes of shared memory; behind a phase's there are three numbers of each thread.
pub const SHARED: usize = WORK + 3 * size_of::<u32>() * super::THREADS as usize;

/// Blocks of a product, and so parts of a sum of squares, with activations of a format: [`NONE`] are f32.
#[inline(always)]
pub(super) fn blocks_of<const QUANT: u32>(rows: u32, cols: u32, swiglu: bool) -> u32 {
    if QUANT == NONE { gemv::parts(rows, cols, swiglu) } else { quant_format::parts(rows, swiglu) }
}

/// What products of all activations have in common.
pub(super) struct PhaseProduct {
    pub(super) weights: In<U32x4>,
    /// Rows of outputs, and columns.
    pub(super) shape: (u32, u32),
    /// Parts of the sum of squares of the input.
    pub(super) parts: u32,
    pub(super) block_units: u32,
    /// The number of the weights' layout.
    pub(super) layout: u32,
    pub(super) epilogue: Epilogue,
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
    pub(super) unsafe fn buffer<U: Element>(&self, address: DeviceAddress) -> In<U> {
        // SAFETY: the launch's caller promised it.
        unsafe { at_address(self.layers, address) }
    }

    /// Columns of the product of a phase.
    #[inline(always)]
    pub(super) fn cols(&self, phase: u32) -> u32 {
        let (l, s) = (&self.layer, &self.sizes);
        match phase {
            0 | 3 => s.hidden,
            2 => l.q_heads * l.head_dim,
            _ => s.feed_forward,
        }
    }

    /// The matrices of a layer.
    #[inline(always)]
    pub(super) unsafe fn matrices(&self, layer: u32) -> In<StoredMatrix> {
        // SAFETY: a layer of the launch, whose weights begin with them.
        unsafe { self.layers.from(layer as usize).cast() }
    }

    /// The matrix of a product.
    #[inline(always)]
    pub(super) unsafe fn matrix(&self, at: At) -> StoredMatrix {
        // SAFETY: a layer of the launch.
        unsafe { self.matrices(at.layer).at(at.matrix()) }
    }

    /// Whether the phase has a part behind this one.
    #[inline(always)]
    pub unsafe fn has_behind(&self, at: At) -> bool {
        let behind = at.behind();
        // SAFETY: a layer of the launch.
        at.phase == 0 && (behind.part as usize) < PARTS && unsafe { self.matrix(behind) }.rows > 0
    }

    /// The roles of a product that this block takes.
    #[inline(always)]
    pub(super) unsafe fn roles<const QUANT: u32, const THREADS: u32>(
        &self,
        at: At,
        shared: Shared<F32x4>,
    ) -> Taken<THREADS> {
        // SAFETY: the caller's promise.
        unsafe {
            let blocks = blocks_of::<QUANT>(self.matrix(at).rows, self.cols(at.phase), at.phase == 3);
            if at.part == 0 { Taken::first(shared, blocks) } else { Taken::behind(shared, blocks) }
        }
    }

    /// The product of a phase.
    #[inline(always)]
    pub(super) unsafe fn product<const QUANT: u32>(&self, at: At) -> PhaseProduct {
        let (l, s, phase) = (&self.layer, &self.sizes, at.phase);
        // SAFETY: a layer of the launch.
        let (layer, matrix) = unsafe { (self.layers.at(at.layer as usize), self.matrix(at)) };
        let (to, add, flags) = match phase {
            0 => {
                // Where the part's outputs are among those of all.
                let (mut first, mut part) = (0, 0);
                while part < at.part {
                    // SAFETY: as above.
                    first += unsafe { self.matrices(at.layer).at(part as usize) }.rows;
                    part += 1;
                }
                let flags = NORM | if matrix.bias.is_null() { 0 } else { ADD };
                // SAFETY: as above.
                unsafe { (self.qkv.from(first as usize), self.buffer::<f32>(matrix.bias).into(), flags) }
            }
            2 => (self.y, self.x.into(), ADD | NEXT),
            3 => (self.inner, self.x.into(), NORM | SWIGLU),
            _ => (self.x, self.y.into(), ADD | NEXT),
        };
        let cols_before = if phase == 0 { s.feed_forward } else { l.q_heads * l.head_dim };
        let parts =
            if phase == 0 && at.layer == 0 { s.parts } else { blocks_of::<QUANT>(s.hidden, cols_before, false) };
        PhaseProduct {
            // SAFETY: as above.
            weights: unsafe { self.buffer(matrix.records) },
            shape: (matrix.rows, self.cols(phase)),
            parts,
            block_units: matrix.block_units,
            layout: matrix.layout,
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
    pub(super) fn quantizer<const QUANT: u32>(&self, at: At) -> Option<OutputQuantizer> {
        let s = &self.sizes;
        let last = at.layer + 1 == s.layers && at.phase + 1 == PHASES;
        if QUANT == NONE || at.phase == 0 || (last && s.quantize_last == 0) {
            return None;
        }
        let to = if at.phase % 2 == 0 { self.quantized_scaled } else { self.quantized_inner };
        Some(OutputQuantizer { quant_format: QUANT, to: to.into(), group_counters: self.group_counters })
    }
}

/// The phase that is attention.
///
/// All threads of the grid make this call.
#[device]
pub unsafe fn attend<T: Cached, const QUANT: u32>(a: &Arguments, at: At, shared: Shared<F32x4>) {
    let layer = a.layers.at(at.layer as usize);
    let args = attention::AttentionArgs {
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
        attention::attend::<T>(args, role, attention::StepMemory::within(shared.cast()), || ());
        role.advance();
    }
}
