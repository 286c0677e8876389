//! One decode step, written once: run eagerly, recorded into a graph, or checked without a device.
//!
//! A layer is five launches for columns of several sequences, and for one: the projection to queries, keys and values;
//! attention, with norm, rotation and store inside; its output onto the residual stream; gate, up and SwiGLU; down onto
//! the residual stream. RMS norms are split between their neighbours: what writes the residual stream `x` also writes
//! `x * w`, with the weight `w` of the norm that follows, and sums of squares; what reads it divides its result by the
//! root of their mean. Where [`Activations`](gpu_kernels::gemv::Activations) other than f32 are allowed, what a projection
//! of a decoding step reads is rounded to codes by the launch that computes it; only what no product with codes and no
//! attention computes, such as the embedding, takes one more launch for that. A step of one column may do all layers in one launch ([`persistent`](super::persistent)). Launches may be programmatic: from
//! sm_90 on the blocks of each then begin while the launch before ends, ask for their weights in L2, and wait. The first of a
//! step follows a copy and is an ordinary one. Where a file stores parts of a projection in different formats, each part is a
//! launch, and a step of several tokens of a sequence stores its keys and values before it attends. Where a model norms what a layer adds,
//! that is a launch behind each of the two outputs ([`residual`](super::residual)); capped scores and logits are a launch each, and so are
//! gates of attention's results. A layer that is a gated delta net has two launches in place of attention ([`delta`](super::delta)). A
//! [mixture of experts](super::experts) takes three launches more than a dense feed-forward part. [Layer norms](super::norm) are a launch each.
//! What matrices with act-order read is gathered in the order of their columns by a launch for each order, in place of the one that only quantizes.

use super::feed_forward::FeedForward;
use super::input::{Choice, Input, pending};
use super::persistent::Plan;
use super::residual::Onto;
use super::rope::RopeTables;
use super::sampling::Parameters;
use super::shape::{Shape, layer_of};
use super::together::{Member, Shares, Stage, StepLauncher};
use super::weights::{LayerWeights, Norm, Weights};
use super::workspace::Workspace;
use crate::model::{Config, RopeStyle};
use gpu_kernels::attention::{
    capped::CappedArguments, prefill::PrefillArguments, prompt::PromptArguments, step::StepArguments,
};
use gpu_kernels::elementwise::Softcap;
use gpu_kernels::embed::{self, Embed};
use gpu_kernels::gemv::{OutputQuantization, QuantFormat};
use gpu_kernels::kv::store::StoreArguments;
use gpu_kernels::layer::{FUSED, Layer, NEOX, NORM_BEHIND, QK_NORM, SINKS};
use gpu_kernels::sampling::sample::Sample;
use warpsmith_collectives::{Elements, Operation};
use warpsmith_device::{AnyKernel, DeviceSlice, Launcher};
use warpsmith_runtime::Error;

/// Weights of the norms of query and key heads; empty ones where there are none.
pub(super) fn head_norms(weights: &LayerWeights) -> (&DeviceSlice<f32>, &DeviceSlice<f32>) {
    match &weights.head_norms {
        Some((q, k)) => (q, k),
        None => (DeviceSlice::empty(), DeviceSlice::empty()),
    }
}

/// How they are applied, as a flag of [`Layer`].
pub(super) fn norm_flags(c: &Config, weights: &LayerWeights) -> u32 {
    let behind = if c.architecture.norms_behind_rope() { NORM_BEHIND } else { 0 };
    if weights.head_norms.is_some() { QK_NORM | behind } else { 0 }
}

/// A score of each query head; none where the layer has none.
fn sinks(weights: &LayerWeights) -> &DeviceSlice<f32> {
    weights.sinks.as_deref().unwrap_or(DeviceSlice::empty())
}

/// The norm behind layer `index`, and what the product behind that reads, if it is quantized.
pub(super) fn behind(weights: &Weights, index: usize, choice: Choice, shape: Shape) -> (&Norm, Option<QuantFormat>) {
    match weights.layers.get(index + 1) {
        Some(next) => (&next.attn_norm, choice.wanted(&next.qkv.stacks)),
        None if shape.logits == shape.columns => {
            (&weights.output_norm, choice.wanted(std::slice::from_ref(weights.output())))
        }
        // The logits of some columns only, or none.
        None => (&weights.output_norm, None),
    }
}

/// Everything that a step refers to.
///
/// # Safety of its launches
/// Columns and samplers in device memory lead to caches and bitsets of sequences that nothing else uses until what was
/// launched has ended: for each launch of a step, eager or by its graph, whoever staged them sees to that. Weights, tables and
/// norms, which programmatic launches read before they wait, were uploaded, and waited for, before the first step.
pub(super) struct DecodeStep<'a> {
    pub config: &'a Config,
    pub weights: &'a Weights,
    pub tables: &'a RopeTables,
    pub buffers: &'a mut Workspace,
    pub samplers: &'a DeviceSlice<Parameters>,
    pub shape: Shape,
    pub choice: Choice,
    /// Layers that are done in one launch.
    pub plan: &'a Plan,
    /// This device or process among those that have shares of every layer, if it is one of several: numbers and weights are then those of
    /// its share.
    pub shares: Option<Shares<'a>>,
    /// This process among those that have other layers, if it is one of several: the layers are then its own.
    pub stage: Option<Stage<'a>>,
    /// Parts of a column's sum of squares that the last launch left; 0: what products read is normed.
    pub parts: u32,
}

impl DecodeStep<'_> {
    /// All launches of a step, in order.
    ///
    /// # Safety
    /// That of [`DecodeStep`].
    pub unsafe fn run<L: StepLauncher>(&mut self, on: &mut L) -> Result<(), Error> {
        let mut layer = Some(0);
        while let Some(next) = layer {
            // SAFETY: the caller's promise.
            layer = unsafe { self.advance(on, next) }?;
        }
        Ok(())
    }

    /// The launches of layer `index`, and of those that one launch does with it; with the embeddings before the first, and with the head
    /// behind the last. The layer that follows, if there is one.
    ///
    /// # Safety
    /// That of [`DecodeStep`].
    unsafe fn advance<L: StepLauncher>(&mut self, on: &mut L, index: usize) -> Result<Option<usize>, Error> {
        if index == 0 {
            match self.stage.filter(|stage| !stage.is_first()) {
                Some(stage) => self.take_over(on, stage)?,
                None => self.embed(on)?,
            }
        }
        if index < self.config.layers {
            // SAFETY: the caller's promise.
            let next = index + unsafe { self.layers(on, index, usize::MAX) }?;
            if next < self.config.layers {
                return Ok(Some(next));
            }
        }
        if let Some(stage) = self.stage.filter(|stage| !stage.is_last()) {
            let width = self.buffers.sizes.hidden;
            stage.pass_on(on, &mut self.buffers.x[..self.shape.columns * width])?;
        } else if self.shape.logits > 0 {
            // SAFETY: the caller's promise.
            unsafe { self.head(on) }?;
        }
        // What the last has chosen may be fed by the next step of the first, and is known to all.
        if let (Some(stage), tokens @ 1..) = (self.stage, self.shape.sampled().len()) {
            stage.tell(on, &mut self.buffers.next[..tokens])?;
        }
        Ok(None)
    }

    /// The tokens' embeddings into the residual stream.
    pub fn embed<L: Launcher<Error = Error>>(&mut self, on: &mut L) -> Result<(), Error> {
        let weights = self.weights;
        let norm = weights.layers.first().map_or(&weights.output_norm, |l| &l.attn_norm);
        let (weight, layer_norm): (&DeviceSlice<f32>, _) = (&norm.weight, self.config.architecture.layer_norm());
        let table = &weights.embedding;
        let Workspace { columns, x, scaled, sums, quantized, sizes, next, .. } = &mut *self.buffers;
        quantized.clear();
        self.parts = embed::parts(table.cols);
        let scale = Some(self.config.embedding_scale as f32).filter(|&scale| scale != 1.0);
        let wanted = weights.layers.first().and_then(|first| self.choice.wanted(&first.qkv.stacks));
        let normed = scale.is_none() && !layer_norm;
        let (_, written) = quantized.pass(wanted.filter(|_| normed));
        Embed {
            format: table.format,
            table: table.records(),
            columns: &columns[..self.shape.columns],
            chosen: next,
            y: x,
            next: if normed { Some((weight, &mut *scaled, &mut *sums)) } else { None },
            quantized: written.map(|to| (to.format, to.quantized)),
            vocab: table.rows(),
            cols: table.cols,
            stride: sizes.hidden as u32,
        }
        .launch(on)?;
        if layer_norm {
            return self.layer_norm_of_embeddings(on, norm, wanted);
        }
        let Some(scale) = scale else { return Ok(()) };
        let onto = Onto {
            next: weight,
            scaled,
            sums,
            columns: self.shape.columns,
            stride: sizes.hidden,
            eps: self.config.eps,
        };
        self.parts = onto.embeddings(on, x, scale, self.choice.programmatic)?;
        Ok(())
    }

    /// One layer: reads and writes the residual stream `x`.
    ///
    /// # Safety
    /// That of [`DecodeStep`].
    pub unsafe fn layer<L: StepLauncher>(&mut self, on: &mut L, index: usize) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.layers(on, index, 1) }.map(|_| ())
    }

    /// Layers from `first` on, at most so many, and as many as one launch does; one, where it takes several launches. How many
    /// were done.
    ///
    /// # Safety
    /// That of [`DecodeStep`].
    unsafe fn layers<L: StepLauncher>(&mut self, on: &mut L, first: usize, most: usize) -> Result<usize, Error> {
        // SAFETY: the caller's promise.
        let done = unsafe { self.persistent(on, first, most) }?;
        if done == 0 {
            // SAFETY: the caller's promise.
            unsafe { self.layer_in_launches(on, first) }?;
        }
        Ok(done.max(1))
    }

    /// One layer in five launches, or more.
    ///
    /// # Safety
    /// That of [`DecodeStep`].
    unsafe fn layer_in_launches<L: StepLauncher>(&mut self, on: &mut L, index: usize) -> Result<(), Error> {
        let weights = self.weights;
        let Some(layer) = weights.layers.get(index) else { return Ok(()) };
        self.project_qkv(on, layer)?;
        // SAFETY: the caller's promise.
        unsafe {
            match &layer.delta {
                Some(vectors) => self.delta(on, (index, layer), vectors)?,
                None => self.attend(on, layer, index)?,
            }
        }
        self.attention_output(on, layer)?;
        if let Some(router) = &layer.router {
            return self.mixture(on, (index, layer), router);
        }
        self.feed_forward(on, FeedForward::of(layer, self.config.dense_width()), None)?;
        self.down(on, (index, layer))
    }

    fn project_qkv<L: Launcher<Error = Error>>(&mut self, on: &mut L, layer: &LayerWeights) -> Result<(), Error> {
        let (columns, eps, parts, choice) = (self.shape.columns as u32, self.config.eps, self.parts, self.choice);
        let Workspace { scaled, sums, qkv, quantized, sizes, .. } = &mut *self.buffers;
        let (stride, norm) = (sizes.hidden, pending(sums, parts, eps));
        let (held, _) = quantized.pass(None);
        let mut input = Input { x: scaled, columns, stride, norm, choice, held };
        for stack in choice.sorted(&layer.qkv.stacks) {
            let y = &mut qkv[stack.outputs.start..];
            input.product(on, stack, stack.rows(), (y, sizes.qkv))?.launch(on)?;
        }
        Ok(())
    }

    /// Sizes and options of a layer's attention.
    pub(super) fn heads(&self, weights: &LayerWeights, index: usize) -> Layer {
        let neox = if self.config.rope.style == RopeStyle::Neox { NEOX } else { 0 };
        let norm = norm_flags(self.config, weights);
        let sinks = if weights.sinks.is_some() { SINKS } else { 0 };
        let (c, context, flags) = (self.config, self.tables.context, neox | norm | sinks);
        let (n_rot, window) = (c.rope_of(index).map_or(0, |rope| rope.dims as u32), c.window_of(index) as u32);
        Layer { index: c.place_of(index) as u32, context, window, n_rot, flags, ..layer_of(c) }
    }

    /// Norm and rotation of queries and keys, the store of keys and values, attention to all that are stored, and the gates of what that gives.
    ///
    /// # Safety
    /// That of [`DecodeStep`].
    unsafe fn attend<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        weights: &LayerWeights,
        index: usize,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.attend_ungated(on, weights, index) }?;
        self.gate_heads(on)
    }

    /// # Safety
    /// That of [`DecodeStep`].
    unsafe fn attend_ungated<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        weights: &LayerWeights,
        index: usize,
    ) -> Result<(), Error> {
        let (cos, sin) = self.tables.of(self.config, index);
        let (q_weight, k_weight) = head_norms(weights);
        let mut layer = self.heads(weights, index);
        let capped = self.config.score_cap > 0.0;
        let wanted = self.choice.wanted(std::slice::from_ref(&weights.attn_output));
        let gates = self.config.gate_dim();
        let Workspace { columns, steps, tiles: all_tiles, qkv, attended, partials, counters, quantized, sizes, .. } =
            &mut *self.buffers;
        let qkv = &mut qkv[gates..];
        let columns = &columns[..self.shape.columns];
        let (tiles, exact) = (self.shape.tiles, !self.choice.rounded);
        let (_, written) = quantized.pass(wanted.filter(|_| !capped && gates == 0 && (tiles == 0 || exact)));
        let (stride, y_stride) = (sizes.qkv as u32, sizes.attended as u32);
        let programmatic = self.choice.programmatic;
        // Of columns from `first` on.
        let mut first = 0;
        let mut attending = columns;
        if self.shape.shared || capped {
            let store = StoreArguments { qkv, q_weight, k_weight, cos, sin, columns, stride, layer };
            // SAFETY: the caller's promise.
            unsafe { store.launch(on, self.shape.kv, programmatic) }?;
            if capped {
                let (y, scale) = (attended, self.config.score_scale as f32);
                let scores = (scale, self.config.score_cap);
                let attend = CappedArguments { qkv, columns, y, strides: (stride, y_stride), scores, layer };
                // SAFETY: the caller's promise.
                return unsafe { attend.launch(on, self.shape.kv, programmatic) };
            }
            if tiles > 0 {
                (first, attending) = (columns.len() - self.shape.steps, &steps[..self.shape.steps]);
            }
        } else {
            layer.flags |= FUSED;
        }
        let in_tiles = PrefillArguments {
            qkv,
            columns,
            tiles: &all_tiles[..tiles],
            sinks: sinks(weights),
            y: attended,
            strides: (stride, y_stride),
            layer,
        };
        if tiles > 0 && exact {
            let all = PromptArguments::from(in_tiles).with_steps(attending, (partials, counters)).quantized(written);
            // SAFETY: the caller's promise; what is in a tile has no place among the steps.
            return unsafe { all.launch(on, self.shape.kv, programmatic) };
        }
        if !attending.is_empty() {
            let (quant_format, quantized, group_counters) = OutputQuantization::arguments(written);
            let attend = StepArguments {
                qkv: &in_tiles.qkv[first * sizes.qkv..],
                q_weight,
                k_weight,
                cos,
                sin,
                sinks: in_tiles.sinks,
                columns: attending,
                partials,
                counters,
                y: &mut in_tiles.y[first * sizes.attended..],
                quantized,
                group_counters,
                stride,
                y_stride,
                quant_format,
                layer,
            };
            // SAFETY: the caller's promise.
            unsafe { attend.launch(on, self.shape.kv, programmatic) }?;
        }
        if tiles > 0 {
            // SAFETY: the caller's promise. What is in a tile got NaN as a step, and its results here.
            unsafe { in_tiles.launch(on, self.shape.kv, programmatic) }?;
        }
        Ok(())
    }

    /// The logits of the columns that get any, and their tokens.
    ///
    /// # Safety
    /// That of [`DecodeStep`].
    pub unsafe fn head<L: StepLauncher>(&mut self, on: &mut L) -> Result<(), Error> {
        let (taken, sampled) = (self.shape.taken(), self.shape.sampled());
        let (n, eps, parts, choice) = (taken.len() as u32, self.config.eps, self.parts, self.choice);
        let Workspace { columns, scaled, sums, logits, next, work, tickets, quantized, sizes, vocab, .. } =
            &mut *self.buffers;
        let x = &scaled[taken.start * sizes.hidden..];
        let sums = &sums[taken.start * parts as usize..];
        let (stack, stride, norm) = (self.weights.output(), sizes.hidden, pending(sums, parts, eps));
        let (held, _) = quantized.pass(None);
        let mut input = Input { x, columns: n, stride, norm, choice, held };
        let own = &mut logits[self.weights.first_token..];
        input.product(on, stack, stack.rows(), (own, sizes.logits))?.launch(on)?;
        if let Some(shares) = self.shares {
            shares.gather(on, logits, (taken.len(), *vocab, sizes.logits), sizes.head)?;
        }
        if self.config.logit_cap > 0.0 {
            let (cols, stride, cap) = (*vocab as u32, sizes.logits as u32, self.config.logit_cap);
            on.launch(Softcap { x: logits, cols, columns: n, stride, cap })?;
        }
        if sampled.is_empty() {
            return Ok(());
        }
        let stride = sizes.logits as u32;
        if self.shares.is_none_or(Shares::is_first) {
            let params = &self.samplers[..sampled.len()];
            let logits = &logits[(sampled.start - taken.start) * sizes.logits..];
            let columns = &columns[sampled.clone()];
            let sample = Sample { logits, params, columns, y: next, work, tickets, n: *vocab as u32, stride };
            // SAFETY: the caller's promise.
            unsafe { sample.launch(on, self.shape.draws, choice.programmatic) }?;
        }
        // What was chosen may be fed by the next step, on every device.
        self.shares.map_or(Ok(()), |shares| shares.tell(on, &mut next[..sampled.len()]))
    }

    /// The residual stream of the first column, after [`DecodeStep::embed`] or [`DecodeStep::layer`].
    pub fn residual(&self) -> &DeviceSlice<f32> {
        &self.buffers.x[..self.config.hidden]
    }
}

/// The steps of all devices, layer by layer: so what a device has queued while it waits for others is never more than a layer. An error
/// comes with the place of its step.
///
/// # Safety
/// That of [`DecodeStep`].
pub(super) unsafe fn run_together<L: StepLauncher>(steps: &mut [(DecodeStep<'_>, L)]) -> Result<(), (usize, Error)> {
    let mut layer = Some(0);
    while let Some(index) = layer {
        for (rank, (step, on)) in steps.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            layer = unsafe { step.advance(on, index) }.map_err(|source| (rank, source))?;
        }
    }
    Ok(())
}

/// Passes launches on to a stream or a capture, and counts them.
pub(super) struct Counted<L> {
    on: L,
    pub launches: usize,
}

impl<L> Counted<L> {
    pub fn new(on: L) -> Self {
        Counted { on, launches: 0 }
    }
}

impl<L: StepLauncher> StepLauncher for Counted<L> {
    fn together(&mut self, rank: &Member, operation: Operation, x: Elements<'_>) -> Result<(), Error> {
        self.on.together(rank, operation, x)
    }
}

impl<L: Launcher<Error = Error>> Launcher for Counted<L> {
    type Error = Error;

    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.on.launch_any(kernel) }?;
        self.launches += 1;
        Ok(())
    }
}
