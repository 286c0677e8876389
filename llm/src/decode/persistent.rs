//! Layers that a step does in one launch: [`DecoderOptions::persistent`](super::DecoderOptions::persistent).

use super::KvType;
use super::input::{Choice, Held, Input};
use super::shape::{Shape, layer_of};
use super::stack::Stack;
use super::step::{DecodeStep, head_norms, norm_flags};
use super::weights::{LayerWeights, Weights, padded};
use super::workspace::Workspace;
use super::{DecodeError, Model};
use crate::model::{Config, Rope};
use gpu_kernels::elementwise::Glu;
use gpu_kernels::format::Format;
use gpu_kernels::gemv::{Activations, QuantFormat, QuantizedProduct};
use gpu_kernels::layer::{FUSED, Layer};
use gpu_kernels::persistent::{self, HEAD_DIMS, Instance, LayerParts, Matrix, PersistentLayers, Quantized, Sizes};
use std::fmt;
use std::ops::Range;
use warpsmith_device::{DeviceSlice, Launcher};
use warpsmith_runtime::{Buffer, Error, Stream};

/// In what layers of one launch are alike: their window, and how they rotate.
type LayerKind = (usize, Option<Rope>);

fn kind(c: &Config, layer: usize) -> LayerKind {
    (c.window_of(layer), c.rope_of(layer).copied())
}

/// Layers that follow one another and take one launch.
#[derive(Debug)]
struct LayerRun {
    layers: Range<usize>,
    instance: Instance,
    kind: LayerKind,
    /// Blocks of the launch.
    blocks: u32,
}

/// Why a layer is not done in one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPersistent {
    /// Gates and ups are in several formats: each is a launch of its own.
    Parts,
    /// Its products, other than those that give queries, keys and values, have biases.
    Biases,
    /// It is a gated delta net.
    DeltaNet,
    /// What attention gives has gates.
    Gates,
    /// Its feed-forward part is a mixture of experts.
    Experts,
    /// Columns of its matrices are in another order than what they are multiplied with.
    Columns,
    /// Two of its matrices differ in what they are multiplied with.
    Mixed([(Format, Activations); 2]),
    /// What attention and the feed-forward part give is normed before it is added.
    PostNorms,
    /// Its feed-forward part is not SwiGLU.
    FeedForward,
    /// Its norms are layer norms.
    LayerNorms,
    /// The heads are of so many elements, for which there is no code.
    Heads(usize),
    /// There is no kernel for layers of this format, multiplied with such activations.
    NoKernel(Format, Activations),
}

impl fmt::Display for NotPersistent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotPersistent::Parts => f.write_str("gates and ups are in several formats, each a launch of its own"),
            NotPersistent::Biases => {
                f.write_str("biases of products behind attention, which layers in one launch do not add")
            }
            NotPersistent::DeltaNet => f.write_str("a gated delta net: layers in one launch attend"),
            NotPersistent::Gates => f.write_str("gates of what attention gives, in a launch of their own"),
            NotPersistent::Experts => {
                f.write_str("a mixture of experts: its launches know only on the device what they multiply with")
            }
            NotPersistent::Columns => {
                f.write_str("columns in another order (act-order), gathered in launches of their own")
            }
            NotPersistent::Mixed([(a, with_a), (b, with_b)]) => {
                write!(
                    f,
                    "{a} times {with_a} beside {b} times {with_b}: a launch takes layers whose matrices are all multiplied with the same"
                )
            }
            NotPersistent::PostNorms => f.write_str("what parts of a layer add is normed, in launches of their own"),
            NotPersistent::FeedForward => f.write_str("a feed-forward part that is not SwiGLU, in launches of its own"),
            NotPersistent::LayerNorms => f.write_str("layer norms, which are launches of their own"),
            NotPersistent::Heads(n) => {
                write!(f, "heads of {n} elements: layers in one launch have heads of {HEAD_DIMS:?}")
            }
            NotPersistent::NoKernel(format, with) => {
                write!(f, "no kernel does layers of {format} times {with} in one launch")
            }
        }
    }
}

impl std::error::Error for NotPersistent {}

/// Which layers are done in one launch.
#[derive(Debug, Default)]
pub(super) struct Plan {
    runs: Vec<LayerRun>,
    /// An element for each layer of the model.
    weights: Option<Buffer<persistent::LayerWeights>>,
    /// The first layer that is not, and why.
    left: Option<(usize, NotPersistent)>,
}

impl Plan {
    /// As many layers in a launch as follow one another and are alike.
    pub fn new(model: &Model, stream: &Stream, choice: Choice) -> Result<Plan, DecodeError> {
        let (c, weights) = (model.config(), model.weights());
        let (mut plan, mut elements) = (Plan::default(), Vec::with_capacity(weights.layers.len()));
        for (index, layer) in weights.layers.iter().enumerate() {
            let (instance, stacks) = match instance(c, layer, choice) {
                Ok(taken) => taken,
                Err(why) => {
                    plan.left.get_or_insert((index, why));
                    elements.push(persistent::LayerWeights::default());
                    continue;
                }
            };
            let heads = heads(c, layer);
            let qkv: Vec<_> = stacks.qkv.iter().map(matrix).collect();
            let parts = parts(weights, index, layer, &qkv, stacks.others);
            elements.push(instance.weights(&parts, &heads, &sizes(c)).map_err(Error::from)?);
            match plan.runs.last_mut() {
                Some(run) if run.instance == instance && run.layers.end == index && run.kind == kind(c, index) => {
                    run.layers.end += 1;
                }
                _ => {
                    // As many as the device holds at once, and no more than have work.
                    let resident = model.device().resident_blocks(instance.meta(), 0)?;
                    let blocks = u32::try_from(resident).unwrap_or(u32::MAX).min(instance.widest(&heads, &sizes(c)));
                    plan.runs.push(LayerRun { layers: index..index + 1, instance, kind: kind(c, index), blocks });
                }
            }
        }
        if !plan.runs.is_empty() {
            plan.weights = Some(stream.upload(&elements)?);
        }
        Ok(plan)
    }

    /// Bytes of device memory that it takes at most.
    pub fn bytes(c: &Config) -> u64 {
        padded(c.layers as u64 * size_of::<persistent::LayerWeights>() as u64)
    }

    /// Layers that are done in one launch, or in a few.
    pub fn layers(&self) -> usize {
        self.runs.iter().map(|r| r.layers.len()).sum()
    }

    /// Launches that do them.
    pub fn launches(&self) -> usize {
        self.runs.len()
    }

    /// The first layer that is not among them, and why.
    pub fn left(&self) -> Option<(usize, NotPersistent)> {
        self.left
    }

    /// The launch that begins at a layer, if a step of this shape takes one.
    fn at(&self, shape: Shape, layer: usize) -> Option<(&LayerRun, &DeviceSlice<persistent::LayerWeights>)> {
        let fits = shape.columns == 1 && !shape.shared && !shape.pages && shape.kv == KvType::F16;
        let run = self.runs.iter().find(|r| r.layers.contains(&layer)).filter(|_| fits)?;
        Some((run, self.weights.as_deref()?))
    }
}

/// The matrices of a layer: queries, keys and values; output; gate and up; down.
struct Stacks<'a> {
    qkv: &'a [Stack],
    others: [&'a Stack; 3],
}

/// The kernel that takes a layer's weights, and its matrices.
fn instance<'a>(c: &Config, layer: &'a LayerWeights, choice: Choice) -> Result<(Instance, Stacks<'a>), NotPersistent> {
    if layer.delta.is_some() {
        return Err(NotPersistent::DeltaNet);
    }
    if c.gate_dim() > 0 {
        return Err(NotPersistent::Gates);
    }
    let mut all = layer.qkv.stacks.iter().chain(&layer.gate_up.stacks).chain([&layer.attn_output, &layer.down]);
    if all.any(|s| s.order().is_some()) {
        return Err(NotPersistent::Columns);
    }
    if !HEAD_DIMS.contains(&(c.head_dim as u32)) {
        return Err(NotPersistent::Heads(c.head_dim));
    }
    if c.architecture.layer_norm() {
        return Err(NotPersistent::LayerNorms);
    }
    if layer.post_norms.is_some() {
        return Err(NotPersistent::PostNorms);
    }
    if layer.router.is_some() {
        return Err(NotPersistent::Experts);
    }
    if c.architecture.ungated().is_some() || c.architecture.glu() != Glu::Silu {
        return Err(NotPersistent::FeedForward);
    }
    let [gate_up] = &layer.gate_up.stacks[..] else {
        return Err(NotPersistent::Parts);
    };
    let stacks = Stacks { qkv: &layer.qkv.stacks, others: [&layer.attn_output, gate_up, &layer.down] };
    if stacks.others.iter().any(|s| s.bias().is_some()) {
        return Err(NotPersistent::Biases);
    }
    let quantized = |s: &Stack| choice.of(s).map(QuantizedProduct::quant_format);
    let activations = |s: &Stack| quantized(s).map_or(Activations::F32, QuantFormat::activations);
    let of = |s: &Stack| Instance::of(s.format, quantized(s));
    let all = || stacks.qkv.iter().chain(stacks.others);
    if let Some(s) = all().find(|s| of(s).is_none()) {
        return Err(NotPersistent::NoKernel(s.format, activations(s)));
    }
    let Some((first, instance)) = all().find_map(|s| Some((s, of(s)?))) else {
        return Err(NotPersistent::Parts);
    };
    match all().find(|s| of(s) != Some(instance)) {
        Some(other) => Err(NotPersistent::Mixed([first, other].map(|s| (s.format, activations(s))))),
        None => Ok((instance, stacks)),
    }
}

fn matrix(stack: &Stack) -> Matrix<'_> {
    Matrix { format: stack.format, rows: stack.rows(), records: stack.records(), bias: stack.bias() }
}

/// What the weights of a layer have to fit.
fn heads(c: &Config, layer: &LayerWeights) -> Layer {
    Layer { flags: norm_flags(c, layer), ..layer_of(c) }
}

fn sizes(c: &Config) -> Sizes {
    Sizes { hidden: c.hidden as u32, feed_forward: c.dense_width() as u32, ..Sizes::default() }
}

/// A layer's weights for the kernel, of which `qkv` are those that give queries, keys and values.
fn parts<'a>(
    weights: &'a Weights,
    index: usize,
    layer: &'a LayerWeights,
    qkv: &'a [Matrix<'a>],
    others: [&'a Stack; 3],
) -> LayerParts<'a> {
    let (q_weight, k_weight) = head_norms(layer);
    LayerParts {
        qkv,
        matrices: others.map(matrix),
        ffn_norm: layer.ffn_norm.as_ref().map_or(DeviceSlice::empty(), |norm| &norm.weight),
        next_norm: &weights.layers.get(index + 1).map_or(&weights.output_norm, |l| &l.attn_norm).weight,
        q_weight,
        k_weight,
    }
}

impl DecodeStep<'_> {
    /// Layers from `first` on in one launch, at most so many; how many those are. With 0 they take several launches each, and
    /// nothing was launched.
    ///
    /// # Safety
    /// That of [`DecodeStep`].
    pub(super) unsafe fn persistent<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        first: usize,
        most: usize,
    ) -> Result<usize, Error> {
        let Some((run, elements)) = self.plan.at(self.shape, first) else { return Ok(0) };
        let Some(layer) = self.weights.layers.get(first) else { return Ok(0) };
        let last = run.layers.end.min(first.saturating_add(most));
        let (c, weights, next_layer) = (self.config, self.weights, self.weights.layers.get(last));
        let quant_format = run.instance.quant_format();
        let wanted = match next_layer {
            Some(next) => self.choice.wanted(&next.qkv.stacks),
            None => self.choice.wanted(std::slice::from_ref(weights.output())),
        };
        let quantize_last = quant_format.is_some() && wanted == quant_format;
        let mut heads = self.heads(layer, first);
        heads.flags |= FUSED;
        let (cos, sin) = self.tables.of(c, first);
        let Workspace {
            columns,
            x,
            y,
            scaled,
            sums,
            qkv,
            attended,
            inner,
            partials,
            counters,
            barrier,
            quantized,
            sizes: of,
            ..
        } = &mut *self.buffers;
        let (ready, [of_scaled, of_inner], group_counters) = quantized.both(wanted.filter(|_| quantize_last));
        if let Some(format) = quant_format {
            let (stride, choice) = (of.hidden, self.choice);
            let mut input =
                Input { x: scaled, columns: 1, stride, norm: None, choice, held: Held::of(&mut *of_scaled, ready) };
            input.quantize(on, format, c.hidden as u32)?;
        }
        let launch = PersistentLayers {
            instance: run.instance,
            layers: &elements[first..last],
            next: next_layer.map_or(Some(weights.output()), |l| l.qkv.stacks.first()).map(matrix),
            cos,
            sin,
            columns: &columns[..1],
            x,
            y,
            scaled,
            sums,
            qkv,
            attended,
            inner,
            partials,
            counters,
            quantized: quant_format.map(|_| Quantized { scaled: of_scaled, inner: of_inner, group_counters }),
            barrier,
            layer: heads,
            sizes: Sizes { parts: self.parts, blocks: run.blocks, quantize_last: u32::from(quantize_last), ..sizes(c) },
        };
        self.parts = launch.parts();
        // SAFETY: the caller's promise; the addresses of weights are those of the step's own.
        unsafe { launch.launch(on) }?;
        Ok(last - first)
    }
}
