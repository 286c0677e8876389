//! What a decoder is made with, and the memory that it takes.

use crate::decode::input::Choice;
use crate::decode::persistent::Plan;
use crate::decode::rope::RopeTables;
use crate::decode::sampling::Samplers;
use crate::decode::workspace::{Extent, Workspace};
use crate::decode::{DecodeError, Model};
use gpu_kernels::gemv::Activations;
use warpsmith_collectives::{PeerOptions, Peers};

/// How steps are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Every launch by itself.
    Eager,
    /// One graph launch a step. The same launches, recorded once.
    #[default]
    Graph,
}

/// What a decoder is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderOptions {
    /// Most sequences in one step: 1 to [`MAX_COLUMNS`](gpu_kernels::gemv::MAX_COLUMNS).
    pub batch: usize,
    /// Tokens that a step of a prompt or of [any mix](super::Decoder::step_mixed) has at most: 1 to
    /// [`MAX_COLUMNS`](gpu_kernels::gemv::MAX_COLUMNS); fewer where buffers for so many would take more than an eighth of the memory
    /// that is free: [`Decoder::chunk`](super::Decoder::chunk) says how many. However many they are, the results are those of a step
    /// for each token, bit for bit, unless [`fast_prefill`](Self::fast_prefill) is on.
    pub chunk: usize,
    /// Tokens of drafts that a step may [verify](super::Decoder::step_drafts), beside the token of each sequence of the batch: memory
    /// for their logits.
    pub drafts: usize,
    /// Positions that steps are prepared for from the start. Where a sequence gets longer, more are prepared, which
    /// allocates; `None`: 4096, or the model's context if that is shorter.
    pub positions: Option<usize>,
    /// How steps are run.
    pub mode: Mode,
    /// Steps that are run eagerly before one is captured.
    pub capture_after: u64,
    /// Prompts attend by [`gpu_kernels::attention::prefill`]: on tensor cores where the cache is f16 or int8 and the device has them,
    /// with queries and weights rounded to f16, and in another order of sums elsewhere. What a prompt's tokens get then is not what
    /// they would get in single steps; over caches of f16 and f32 it still does not depend on how the prompt is cut, on what is
    /// beside it in a step, nor on where its cache lies. Gated delta nets take parts of prompts of 32 tokens and more in chunks of 16, on
    /// tensor cores ([`gpu_kernels::delta::chunk`]): off by no more than f32 is, with bits that depend on where a prompt is cut, but for cuts
    /// into such parts at multiples of 16 positions. Without, long prompts attend by [`gpu_kernels::attention::prompt`] where it
    /// has tensor cores, which gives the bits of single steps.
    pub fast_prefill: bool,
    /// Memory for the logits of every token of a chunk, which [`Decoder::prefill_each`](super::Decoder::prefill_each) gives;
    /// else a prompt has those of its last token alone.
    pub prompt_logits: bool,
    /// The cheapest activations that weights may be multiplied with, in decoding steps and in prompts. A matrix whose format has
    /// no kernel for them is multiplied with the next more exact ones.
    pub activations: Activations,
    /// They are used only in matrices for which `warpsmith tune` found them faster on such a device
    /// ([`gpu_kernels::gemv::fastest`]); else in all whose formats have kernels for them.
    pub tuned: bool,
    /// All launches of a step but the first are [programmatic](warpsmith_device::Geometry::programmatic): their blocks begin while
    /// the launch before ends, and ask for weights before they wait for it. Results are the same to the bit. Where a device has
    /// none (before sm_90), or the kernels' code cannot wait (rust-cuda's), launches are ordinary ones;
    /// [`Decoder::programmatic`](super::Decoder::programmatic) says which.
    pub programmatic: bool,
    /// Graphs of steps of one token have kernels in which what launches pass by value is constant
    /// ([`Capture::specialise`](warpsmith_runtime::Capture::specialise)): shapes, flags, strides. The results have the same bits. The
    /// first capture compiles them, some 0.2 s for each launch of a layer on a GPU, unless they are in the cache of compiled code.
    /// `None`: on GPUs; on the software driver nothing waits for code.
    pub specialise: Option<bool>,
    /// Steps of one sequence with a cache of f16 do all layers that follow one another and are alike in one launch, whose blocks
    /// wait for one another between its phases ([`gpu_kernels::persistent`]), wherever there is an instance of that kernel for the
    /// format of a layer's matrices and their activations.
    /// [`Decoder::persistent_layers`](super::Decoder::persistent_layers) counts those layers, and
    /// [`Decoder::not_persistent`](super::Decoder::not_persistent) says why others are not. The results have the same bits.
    /// Nothing about it was measured on a GPU. For models on one device.
    pub persistent: bool,
    /// How devices of one process that run a model together add up what each of them has, and how long the host waits for them. They stage
    /// at least the logits, or the residual stream, of a column at a time.
    pub peers: PeerOptions,
}

impl Default for DecoderOptions {
    fn default() -> Self {
        DecoderOptions {
            batch: 1,
            chunk: 512,
            drafts: 0,
            positions: None,
            mode: Mode::Graph,
            capture_after: 0,
            fast_prefill: false,
            prompt_logits: false,
            activations: Activations::default(),
            tuned: false,
            programmatic: true,
            specialise: None,
            persistent: false,
            peers: PeerOptions::default(),
        }
    }
}

/// The activations of decoding steps.
pub(super) fn choice(model: &Model, options: &DecoderOptions) -> Choice {
    let DecoderOptions { activations, tuned, fast_prefill, .. } = *options;
    Choice { allowed: activations, tuned, sm: model.device().sm(), programmatic: false, rounded: fast_prefill }
}

/// What the steps of a decoder with these options hold at once, of up to `columns` columns.
pub(super) fn extent(model: &Model, options: &DecoderOptions, columns: usize) -> Extent {
    let predicted = options.batch + options.drafts;
    let logits = if options.prompt_logits { predicted.max(options.chunk) } else { predicted };
    let (ranks, processes) = (model.shares(), model.processes().is_some());
    Extent { predicted, columns, logits, ranks, processes, gathered: model.gathered() }
}

/// Bytes of the longest column that a group has to stage at a time.
pub(super) fn column_bytes(model: &Model) -> usize {
    4 * model.config().vocab.max(model.config().hidden).next_multiple_of(4)
}

/// Those that a group of several devices is made with.
pub(super) fn peer_options(model: &Model, options: &DecoderOptions) -> PeerOptions {
    PeerOptions { capacity: options.peers.capacity.max(column_bytes(model)), ..options.peers }
}

pub(super) fn parts(model: &Model, options: &DecoderOptions, columns: usize, positions: usize) -> Option<[u64; 2]> {
    let (c, predicted) = (model.config(), options.batch + options.drafts);
    let buffers = Workspace::bytes(model.share(), extent(model, options, columns), options.activations)?;
    let plan = if options.persistent { Plan::bytes(c) } else { 0 };
    let peers = match model.ranks() {
        1 => 0,
        ranks => Peers::device_bytes(ranks, &peer_options(model, options))?,
    };
    let buffers = buffers.checked_add(Samplers::bytes(predicted))?.checked_add(plan)?.checked_add(peers)?;
    Some([RopeTables::bytes(c, positions)?, buffers])
}

/// Buffers for the tokens of a chunk take one of so many parts of the memory that is free, at most: the rest is for caches.
const SHARE: u64 = 8;

/// The tokens of a chunk that memory allows, and at most those that were asked for.
pub(super) fn fitting_chunk(model: &Model, options: &DecoderOptions) -> Result<usize, DecodeError> {
    let free = model.memory_info()?.free;
    let bytes = |chunk: usize| {
        let options = DecoderOptions { chunk, ..*options };
        let columns = chunk.max(options.batch + options.drafts);
        Workspace::bytes(model.share(), extent(model, &options, columns), options.activations)
    };
    let fits = |chunk| match (bytes(chunk), bytes(1)) {
        (Some(all), Some(least)) => all - least <= free / SHARE,
        _ => false,
    };
    let mut chunk = options.chunk;
    while chunk > 1 && !fits(chunk) {
        chunk /= 2;
    }
    if chunk < options.chunk {
        tracing::debug!(chunk, asked = options.chunk, free, "fewer tokens at once, as memory is short");
    }
    Ok(chunk)
}

pub(super) fn check_memory(
    model: &Model,
    options: &DecoderOptions,
    columns: usize,
    positions: usize,
) -> Result<(), DecodeError> {
    let memory = model.memory_info()?;
    let parts = parts(model, options, columns, positions);
    let needed = parts.and_then(|[a, b]| a.checked_add(b)).unwrap_or(u64::MAX);
    if needed <= memory.free {
        return Ok(());
    }
    let parts = match parts {
        Some([tables, buffers]) => {
            format!("{tables} for the RoPE tables of {positions} positions, {buffers} for buffers of {columns} columns")
        }
        None => format!("{positions} positions, {columns} columns"),
    };
    Err(DecodeError::Memory {
        what: "the decoder",
        needed,
        parts,
        free: memory.free,
        total: memory.total,
        hint: "ask for fewer positions, a smaller batch or a smaller chunk",
    })
}
