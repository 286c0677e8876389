//! The engine of decoding: a stream, the buffers of a step, and the graphs of its shapes.

mod feed;
mod graphs;
mod group;
mod lane;
mod logprobs;
mod mixed;
mod options;
mod pipeline;
mod ranks;
mod replay;
mod results;
mod runs;
mod stage;

pub use feed::{Feed, Hidden, Predicted};
pub use graphs::GraphInfo;
pub use logprobs::{Logprob, Logprobs};
pub use mixed::{Draft, Part, Predict};
pub use options::{DecoderOptions, Mode};
pub use pipeline::Pipeline;

use super::listing::ListedLaunch;
use super::persistent::{NotPersistent, Plan};
use super::rope::RopeTables;
use super::sampling::Samplers;
use super::sequence::Sequence;
use super::shape::Shape;
use super::workspace::Workspace;
use super::{DecodeError, KvType, Model};
use gpu_kernels::gemv::MAX_COLUMNS;
use gpu_kernels::norm::RmsNorm;
use gpu_kernels::sampling::NONE;
use graphs::Graphs;
use group::Group;
use lane::{Lane, Stages};
use options::{check_memory, choice, extent, fitting_chunk, parts};
use runs::RunStages;
use std::ops::Range;
use warpsmith_device::Kernel;
use warpsmith_runtime::{Pinned, Profile, Stream};

/// What a decoder has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Steps run launch by launch: those of a decoder in eager mode, and mixed ones of a size that came for the first time.
    pub eager_steps: u64,
    /// Kernels launched by them.
    pub eager_launches: u64,
    /// Steps run by a graph launch.
    pub replays: u64,
    /// Graphs captured.
    pub captures: u64,
}

/// Appends tokens to sequences of one model: one sequence, or several in one step.
///
/// It owns a stream and buffers, allocated once: a step allocates nothing and waits once, for its tokens. All that
/// changes from step to step (tokens, positions, and where each sequence's cache is) goes through staging memory into
/// cells on the device, so a graph depends on the shape of a step alone: on how many sequences are in it and how they
/// store keys and values, not on which. There is one graph for each shape, made when the shape first occurs, and used
/// only with the weights, buffers and tables that it was captured with.
///
/// A call that fails leaves the sequences as they were. There is no silent fallback: if a step cannot be captured, the
/// call says so, and the caller may go on with [`Decoder::set_mode`].
pub struct Decoder {
    model: Model,
    options: DecoderOptions,
    programmatic: bool,
    /// On the first device, which chooses tokens, and on the others of a model on several.
    lead: Lane,
    others: Vec<Lane>,
    /// What these are to each other, or this process to others.
    group: Group,
    /// Others may wait for what this one has yet to queue of a step.
    under_way: bool,
    samplers: Samplers,
    plan: Plan,
    next: Pinned<u32>,
    /// The tokens of the last step.
    tokens: Vec<u32>,
    graphs: Graphs,
    /// Where the logits of the last step are, by the place of their columns.
    logits: Range<usize>,
    /// Columns of the last step before those that got logits.
    before: usize,
    /// Where the most likely tokens go, once somebody has asked for them.
    found: Option<logprobs::TopLogits>,
    stats: Stats,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("options", &self.options).field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder for sequences of `model`. If its buffers do not fit into free memory, nothing is allocated; if any
    /// launch of its steps would break a contract (a head width that the kernels do not have, say), that is the error.
    pub fn new(model: &Model, options: DecoderOptions) -> Result<Decoder, DecodeError> {
        let c = model.config();
        let most = MAX_COLUMNS as usize;
        for (what, given) in [("batch", options.batch), ("chunk", options.chunk)] {
            if given == 0 || given > most {
                return Err(DecodeError::Batch { what, given, most });
            }
        }
        let predicted = options.batch.saturating_add(options.drafts);
        if predicted > most {
            return Err(DecodeError::Batch { what: "batch and drafts", given: predicted, most });
        }
        let positions = options.positions.unwrap_or(4096.min(c.context));
        if positions == 0 || positions > c.context {
            return Err(DecodeError::Capacity { capacity: positions, most: c.context });
        }
        let options = DecoderOptions { chunk: fitting_chunk(model, &options)?, ..options };
        let ranks = model.processes().map_or(model.ranks(), |(_, _, ranks)| ranks);
        if options.persistent && ranks > 1 {
            return Err(DecodeError::OneDevice {
                what: "layers in one launch (`DecoderOptions::persistent`)",
                devices: ranks,
            });
        }
        let group = Group::of(model, &options)?;
        let options = group.agree(model.stream(), options)?;
        let columns = predicted.max(options.chunk);
        check_memory(model, &options, columns, positions)?;
        let device = model.device();
        // What follows on an exchange between processes may follow no launch, unless that is one.
        let launched = group.member().is_none_or(|member| warpsmith_collectives::Peers::of(member).is_some());
        let mut programmatic = options.programmatic && launched;
        let mut lanes = Vec::with_capacity(model.ranks());
        for device in model.devices() {
            // One kernel for all: they are built together.
            programmatic = programmatic && device.has_programmatic(RmsNorm::META)?;
            let stream = device.stream()?;
            lanes.push(Lane {
                tables: RopeTables::new(&stream, model, positions)?,
                buffers: Workspace::new(&stream, model.share(), extent(model, &options, columns), options.activations)?,
                stages: Stages::new(device, columns, predicted)?,
                runs: c.delta.as_ref().map(|_| RunStages::new(device, columns)).transpose()?,
                stream,
            });
        }
        let mut lanes = lanes.into_iter();
        let Some(lead) = lanes.next() else { return Err(DecodeError::Devices { ordinals: Vec::new() }) };
        let plan = match options.persistent {
            true => Plan::new(model, &lead.stream, choice(model, &options))?,
            false => Plan::default(),
        };
        let mut decoder = Decoder {
            programmatic,
            lead,
            others: lanes.collect(),
            group,
            under_way: false,
            samplers: Samplers::new(device, predicted)?,
            plan,
            next: device.pinned(predicted)?,
            tokens: Vec::with_capacity(predicted),
            graphs: Graphs::default(),
            logits: 0..0,
            before: 0,
            found: None,
            stats: Stats::default(),
            model: model.clone(),
            options,
        };
        for (rank, kv) in (0..model.ranks()).flat_map(|rank| KvType::ALL.map(|kv| (rank, kv))) {
            decoder.kernels_of(rank, Shape::decode(1, kv))?;
            decoder.kernels_of(rank, Shape::decode(options.batch, kv))?;
            for shape in [Shape::prompt(options.chunk, kv, true, false), Shape::mixed(columns, kv, predicted)] {
                // What a step has in tiles is in others not.
                let tiles = decoder.tiles_of(kv, std::iter::once(shape.columns));
                let chunks = shape.columns >= decoder.least_in_chunks();
                for tiles in [0, tiles] {
                    decoder.kernels_of(rank, shape.tiled(tiles, true).in_chunks(chunks))?;
                }
            }
        }
        Ok(decoder)
    }

    /// Device memory that a decoder takes beside weights and caches, of several devices on each, at most: it takes less where its
    /// [chunk](DecoderOptions::chunk) has fewer tokens than it may have. `None` if no address can hold it.
    pub fn device_bytes(model: &Model, options: &DecoderOptions) -> Option<u64> {
        let c = model.config();
        let positions = options.positions.unwrap_or(4096.min(c.context));
        let columns = options.batch.checked_add(options.drafts)?.max(options.chunk);
        let [tables, buffers] = parts(model, options, columns, positions)?;
        tables.checked_add(buffers)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What it was made with; the mode and the tokens of a chunk as they are now.
    pub fn options(&self) -> &DecoderOptions {
        &self.options
    }

    /// Tokens of a prompt that are fed at once: [`DecoderOptions::chunk`], or fewer where memory is short.
    pub fn chunk(&self) -> usize {
        self.options.chunk
    }

    /// Most tokens of a [mixed step](Decoder::step_mixed): those of a chunk, or of a batch with drafts.
    pub fn most_tokens(&self) -> usize {
        self.lead.stages.columns()
    }

    /// Most tokens that a step predicts from: the batch and its drafts.
    pub fn most_logits(&self) -> usize {
        self.options.batch + self.options.drafts
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Whether launches of its steps are programmatic: [`DecoderOptions::programmatic`], where
    /// [the device and the kernels' code have such launches](warpsmith_runtime::Device::has_programmatic).
    pub fn programmatic(&self) -> bool {
        self.programmatic
    }

    /// How steps are run.
    pub fn mode(&self) -> Mode {
        self.options.mode
    }

    /// Changes how steps are run, at any time: eager steps and graph steps may alternate.
    pub fn set_mode(&mut self, mode: Mode) {
        self.options.mode = mode;
    }

    /// Launches of a decoding step of that many sequences.
    pub fn launches_per_step(&mut self, batch: usize, kv: KvType) -> Result<usize, DecodeError> {
        self.check_batch(batch)?;
        Ok(self.kernels_of(0, Shape::decode(batch, kv))?.len())
    }

    /// The launches of the step that would feed a token to `sequence` at `position`, in order, without launching any. What they are
    /// told in device memory (the token, its position, and where the caches are) is written there, until the next step.
    pub fn list_step(&mut self, sequence: &mut Sequence, position: usize) -> Result<Vec<ListedLaunch>, DecodeError> {
        self.list_mixed(&mut [Part { sequence, tokens: &[0], predict: Predict::Next }], position)
    }

    /// Layers that a step of one sequence with a cache of f16 does in [few launches](Self::persistent_launches).
    pub fn persistent_layers(&self) -> usize {
        self.plan.layers()
    }

    /// The launches that do them: one, where all layers are alike.
    pub fn persistent_launches(&self) -> usize {
        self.plan.launches()
    }

    /// The first layer that takes several launches although [`DecoderOptions::persistent`] asks for fewer, and why.
    pub fn not_persistent(&self) -> Option<(usize, NotPersistent)> {
        self.plan.left()
    }

    /// Says that the logits of the last step are not those of the present state of their sequences.
    pub(super) fn forget_logits(&mut self) {
        self.logits = 0..0;
    }

    /// Runs `f` with each launch measured by events, as [`Stream::profile`] does.
    pub fn profile<R>(
        &mut self,
        f: impl FnOnce(&mut Decoder) -> Result<R, DecodeError>,
    ) -> Result<(R, Profile), DecodeError> {
        let stream = self.lead.stream.clone();
        profiled(&stream, || f(self))
    }

    /// Its stream.
    pub(super) fn stream(&self) -> &Stream {
        &self.lead.stream
    }

    fn check_batch(&self, given: usize) -> Result<(), DecodeError> {
        if given == 0 || given > self.options.batch {
            return Err(DecodeError::Batch { what: "sequences in a step", given, most: self.options.batch });
        }
        Ok(())
    }

    fn check_sequence(&self, sequence: &Sequence, kv: KvType) -> Result<(), DecodeError> {
        if sequence.model().id() != self.model.id() {
            return Err(DecodeError::OtherModel);
        }
        if sequence.kv_type() != kv {
            return Err(DecodeError::MixedCaches { first: kv, other: sequence.kv_type() });
        }
        Ok(())
    }

    /// Makes sure that there are cosines and sines for `length` positions.
    fn prepare_positions(&mut self, length: usize) -> Result<(), DecodeError> {
        if length <= self.lead.tables.context as usize {
            return Ok(());
        }
        let context = self.model.config().context;
        let positions = length.next_power_of_two().min(context);
        let model = self.model.clone();
        for lane in self.lanes_mut() {
            lane.tables = RopeTables::new(&lane.stream, &model, positions)?;
        }
        tracing::debug!(positions, "more positions prepared");
        Ok(())
    }

    /// Waits for the step and delivers its tokens at `places`; `of` tells the position of what a column fed, and its place in the step.
    fn finish(&mut self, places: Range<usize>, of: impl Fn(usize) -> (usize, usize)) -> Result<(), DecodeError> {
        self.lead.stream.read_pinned(&self.lead.buffers.next, &self.next)?;
        self.wait_for_ranks()?;
        self.tokens.clear();
        let read = self.next.with_mut(|next| next.get(places).map(|tokens| self.tokens.extend_from_slice(tokens)))?;
        read.ok_or(DecodeError::NoLogits)?;
        match self.tokens.iter().position(|&t| t == NONE) {
            Some(column) => {
                let (position, place) = of(column);
                Err(DecodeError::NotANumber { position, place })
            }
            None => Ok(()),
        }
    }

    /// After a failure, what was queued must have ended before the caller may touch the sequences again.
    fn settle<T>(&mut self, result: &Result<T, DecodeError>) {
        if result.is_err() {
            self.recover();
        }
    }

    /// Waits for what was queued, and forgets what it did.
    fn recover(&mut self) {
        self.forget_logits();
        self.samplers.forget();
        if let Err(error) = self.restore_lanes() {
            // The caller gets the first error; this one is most likely its echo.
            tracing::debug!(%error, "waiting after a failed step failed too");
        }
    }

    /// Whether a step has to do without launches of several layers, as one of its sequences is in pages.
    fn pages<'s>(&self, sequences: impl IntoIterator<Item = &'s Sequence>) -> bool {
        self.options.persistent && sequences.into_iter().any(|sequence| sequence.pool().is_some())
    }
}

/// Runs `f` while launches on `stream` are measured.
pub(super) fn profiled<R>(
    stream: &Stream,
    f: impl FnOnce() -> Result<R, DecodeError>,
) -> Result<(R, Profile), DecodeError> {
    let mut result = None;
    let ((), profile) = stream.profile(|_| {
        result = Some(f());
        Ok(())
    })?;
    match result {
        Some(Ok(value)) => Ok((value, profile)),
        Some(Err(e)) => Err(e),
        None => Err(DecodeError::NoLogits),
    }
}
