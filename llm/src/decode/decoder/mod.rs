//! The engine of decoding: a stream, the buffers of a step, and the graphs of its shapes.

mod feed;
mod options;

pub use feed::{Feed, Hidden};
pub use options::{DecoderOptions, Mode};

use super::listing::{ListedLaunch, Listing};
use super::persistent::{NotPersistent, Plan};
use super::sampling::Samplers;
use super::sequence::Sequence;
use super::shape::{Shape, Take};
use super::step::{Counted, RopeTables, Step};
use super::workspace::Workspace;
use super::{DecodeError, KvType, Model};
use gpu_kernels::gemv::MAX_COLUMNS;
use gpu_kernels::norm::RmsNorm;
use gpu_kernels::sampling::NONE;
use gpu_kernels::state::Column;
use options::{check_memory, choice, extent, parts};
use std::collections::HashMap;
use warpsmith_device::{Kernel, KernelMeta};
use warpsmith_runtime::{Error, Graph, GraphKey, Pinned, Profile, Stream};

/// What a decoder has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Steps run launch by launch: those of a decoder in eager mode, and all of a prompt's.
    pub eager_steps: u64,
    /// Kernels launched by them.
    pub eager_launches: u64,
    /// Steps run by a graph launch.
    pub replays: u64,
    /// Graphs captured.
    pub captures: u64,
}

/// A captured step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphInfo {
    /// Sequences in the step.
    pub batch: usize,
    /// How their keys and values are stored.
    pub kv: KvType,
    /// Its nodes.
    pub nodes: usize,
    /// Launches of the same step run eagerly; always as many.
    pub eager_launches: usize,
    /// How often it was replayed.
    pub replays: u64,
}

struct Captured {
    graph: Graph,
    launches: usize,
}

/// Staging cells for columns, so that several chunks of a prompt may be queued.
const STAGES: usize = 4;

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
    stream: Stream,
    options: DecoderOptions,
    programmatic: bool,
    tables: RopeTables,
    buffers: Workspace,
    samplers: Samplers,
    plan: Plan,
    stages: Vec<Pinned<Column>>,
    stage: usize,
    /// What is staged next; as long as the stages.
    columns: Vec<Column>,
    next: Pinned<u32>,
    /// The tokens of the last step.
    tokens: Vec<u32>,
    graphs: HashMap<Shape, Captured>,
    /// Columns of the last step that have logits.
    logits: usize,
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
        for (what, given) in [("batch", options.batch), ("chunk", options.chunk)] {
            if given == 0 || given > MAX_COLUMNS as usize {
                return Err(DecodeError::Batch { what, given, most: MAX_COLUMNS as usize });
            }
        }
        let positions = options.positions.unwrap_or(4096.min(c.context));
        if positions == 0 || positions > c.context {
            return Err(DecodeError::Capacity { capacity: positions, most: c.context });
        }
        let columns = options.batch.max(options.chunk);
        check_memory(model, &options, columns, positions)?;
        let device = model.device();
        let stream = device.stream()?;
        let plan = match options.persistent {
            true => Plan::new(model, &stream, choice(model, &options))?,
            false => Plan::default(),
        };
        // One for all: they are built together.
        let programmatic = options.programmatic && device.has_programmatic(RmsNorm::META)?;
        let mut decoder = Decoder {
            programmatic,
            tables: RopeTables::new(&stream, model, positions)?,
            buffers: Workspace::new(&stream, c, extent(&options, columns), options.activations)?,
            samplers: Samplers::new(device, options.batch)?,
            plan,
            stages: (0..STAGES).map(|_| device.pinned(columns)).collect::<Result<_, Error>>()?,
            stage: 0,
            columns: vec![Column::default(); columns],
            next: device.pinned(options.batch)?,
            tokens: Vec::with_capacity(options.batch),
            graphs: HashMap::new(),
            logits: 0,
            stats: Stats::default(),
            model: model.clone(),
            stream,
            options,
        };
        for kv in KvType::ALL {
            decoder.kernels_of(Shape::decode(1, kv))?;
            decoder.kernels_of(Shape::decode(options.batch, kv))?;
            decoder.kernels_of(decoder.prompt(options.chunk, kv, true, options.prompt_logits))?;
        }
        Ok(decoder)
    }

    /// Device memory that a decoder takes beside weights and caches; `None` if no address can hold it.
    pub fn device_bytes(model: &Model, options: &DecoderOptions) -> Option<u64> {
        let c = model.config();
        let positions = options.positions.unwrap_or(4096.min(c.context));
        let [tables, buffers] = parts(model, options, options.batch.max(options.chunk), positions)?;
        tables.checked_add(buffers)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What it was made with; the mode as it is now.
    pub fn options(&self) -> &DecoderOptions {
        &self.options
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
        Ok(self.kernels_of(Shape::decode(batch, kv))?.len())
    }

    /// The launches of the step that would feed a token to `sequence` at `position`, in order, without launching any. What they are
    /// told in device memory (the token, its position, and where the caches are) is written there, until the next step.
    pub fn list_step(&mut self, sequence: &mut Sequence, position: usize) -> Result<Vec<ListedLaunch>, DecodeError> {
        let kv = sequence.kv_type();
        self.check_sequence(sequence, kv)?;
        let (length, capacity) = (sequence.len(), sequence.capacity());
        if position < length {
            return Err(DecodeError::Rollback { to: position, length });
        }
        if position >= capacity {
            return Err(DecodeError::ContextFull { tokens: 1, length: position, capacity, most: capacity });
        }
        self.prepare_positions(position + 1)?;
        self.columns[0] = sequence.column(0, position - length);
        let parameters = sequence.parameters(&[0], &self.stream)?;
        self.samplers.set(0, parameters);
        self.samplers.write(&self.stream, 1)?;
        self.stage_columns(1)?;
        self.stream.synchronize()?;
        self.list(Shape::decode(1, kv))
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

    /// The captured steps, by number of sequences.
    pub fn graphs(&self) -> Vec<GraphInfo> {
        let info = |(s, c): (&Shape, &Captured)| GraphInfo {
            batch: s.columns,
            kv: s.kv,
            nodes: c.graph.nodes(),
            eager_launches: c.launches,
            replays: c.graph.replays(),
        };
        let mut all: Vec<GraphInfo> = self.graphs.iter().map(info).collect();
        all.sort_by_key(|g| (g.batch, g.kv.bytes()));
        all
    }

    /// What the launches of a part of a prompt depend on.
    fn prompt(&self, columns: usize, kv: KvType, last: bool, logits: bool) -> Shape {
        Shape::prompt(columns, kv, last, logits, self.options.fast_prefill)
    }

    /// The logits of a sequence of the last step, by its place in it; 0 after a prompt.
    pub fn logits(&self, place: usize) -> Result<Vec<f32>, DecodeError> {
        if place >= self.logits {
            return Err(DecodeError::NoLogits);
        }
        Ok(self.stream.read(self.buffers.logits_of(place))?)
    }

    /// Says that the logits of the last step are not those of the present state of their sequences.
    pub(super) fn forget_logits(&mut self) {
        self.logits = 0;
    }

    /// Runs `f` with each launch measured by events, as [`Stream::profile`] does.
    pub fn profile<R>(
        &mut self,
        f: impl FnOnce(&mut Decoder) -> Result<R, DecodeError>,
    ) -> Result<(R, Profile), DecodeError> {
        let stream = self.stream.clone();
        profiled(&stream, || f(self))
    }

    /// Its stream.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
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
        if length <= self.tables.context as usize {
            return Ok(());
        }
        let context = self.model.config().context;
        let positions = length.next_power_of_two().min(context);
        self.tables = RopeTables::new(&self.stream, &self.model, positions)?;
        tracing::debug!(positions, "more positions prepared");
        Ok(())
    }

    /// Queues the columns for the cells on the device.
    fn stage_columns(&mut self, used: usize) -> Result<(), Error> {
        // No kernel reads the rest; it must not refer to caches that may be gone.
        self.columns[used..].fill(Column::default());
        let stage = &self.stages[self.stage];
        self.stage = (self.stage + 1) % self.stages.len();
        // Waits if the copy of STAGES steps ago is not done.
        stage.set(&self.columns)?;
        self.stream.write_pinned(stage, &mut self.buffers.columns)
    }

    /// # Safety
    /// That of [`Step`], for the columns that were staged last.
    unsafe fn eager(&mut self, shape: Shape) -> Result<(), DecodeError> {
        self.logits = 0;
        let (mut step, mut stream) = self.work(shape);
        let mut counted = Counted::new(&mut stream);
        // SAFETY: the caller's promise.
        let result = unsafe { step.run(&mut counted) };
        let launches = counted.launches as u64;
        self.stats.eager_launches += launches;
        result?;
        self.stats.eager_steps += 1;
        Ok(())
    }

    /// # Safety
    /// That of [`Step`], for the columns that were staged last.
    unsafe fn replay(&mut self, shape: Shape) -> Result<(), DecodeError> {
        let key = self.key(shape);
        if self.graphs.get(&shape).is_none_or(|c| c.graph.key() != &key) {
            // The old graph goes only when there is a new one.
            let captured = self.capture(shape, &key)?;
            self.graphs.insert(shape, captured);
            self.stats.captures += 1;
        }
        if let Some(captured) = self.graphs.get(&shape) {
            self.logits = 0;
            captured.graph.launch_checked(&self.stream, &key)?;
            self.stats.replays += 1;
        }
        Ok(())
    }

    fn capture(&mut self, shape: Shape, key: &GraphKey) -> Result<Captured, DecodeError> {
        let kernels = self.kernels_of(shape)?;
        let expected = kernels.len();
        // No compiler runs within the capture.
        self.model.device().warm(kernels)?;
        let (mut step, stream) = self.work(shape);
        let mut launches = 0;
        let recorded = stream.capture(|scope| {
            let mut counted = Counted::new(scope);
            // SAFETY: the graph is launched by `replay` alone, whose caller promises it each time.
            unsafe { step.run(&mut counted) }?;
            launches = counted.launches;
            Ok(())
        });
        let graph = recorded.map_err(|source| DecodeError::Capture { source })?.with_key(key.clone());
        let nodes = graph.nodes();
        if nodes != expected || launches != expected {
            return Err(DecodeError::GraphNodes { nodes, launches: expected });
        }
        tracing::debug!(nodes, batch = shape.columns, kv = %shape.kv, "step captured");
        Ok(Captured { graph, launches })
    }

    /// Waits for the step and delivers its tokens; `position` tells what a column fed.
    fn finish(&mut self, position: impl Fn(usize) -> usize, columns: usize) -> Result<(), DecodeError> {
        self.stream.read_pinned(&self.buffers.next, &self.next)?;
        self.tokens.resize(self.options.batch, NONE);
        self.next.get_into(&mut self.tokens)?;
        self.tokens.truncate(columns);
        match self.tokens.iter().position(|&t| t == NONE) {
            Some(place) => Err(DecodeError::NotANumber { position: position(place), place }),
            None => Ok(()),
        }
    }

    /// After a failure, what was queued must have ended before the caller may touch the sequences again.
    fn settle<T>(&mut self, result: &Result<T, DecodeError>) {
        if result.is_err() {
            self.logits = 0;
            self.samplers.forget();
            let settled = self.stream.synchronize().and_then(|()| self.buffers.restore(&self.stream));
            if let Err(error) = settled {
                // The caller gets the first error; this one is most likely its echo.
                tracing::debug!(%error, "waiting after a failed step failed too");
            }
        }
    }

    /// The kernels that a step launches, found without a device.
    fn kernels_of(&mut self, shape: Shape) -> Result<Vec<&'static KernelMeta>, DecodeError> {
        Ok(self.list(shape)?.iter().map(|launch| launch.kernel).collect())
    }

    /// The launches of a step.
    fn list(&mut self, shape: Shape) -> Result<Vec<ListedLaunch>, DecodeError> {
        let mut listing = Listing::default();
        // SAFETY: nothing is launched.
        unsafe { self.work(shape).0.run(&mut listing) }?;
        Ok(listing.0)
    }

    /// Identities, never addresses or sizes alone, of everything that a captured step refers to, and its shape. Caches
    /// are not among them: a step is told where they are.
    fn key(&self, shape: Shape) -> GraphKey {
        GraphKey::new()
            .with("weights", self.model.id())
            .with("tables", self.tables.id())
            .with("buffers", self.buffers.id())
            .with("columns", shape.columns as u64)
            .with("cache type", shape.kv.bytes() as u64)
            .with("logits", u64::from(shape.take != Take::None))
    }

    fn work(&mut self, shape: Shape) -> (Step<'_>, &Stream) {
        let mut choice = choice(&self.model, &self.options);
        choice.programmatic = self.programmatic();
        let step = Step {
            config: self.model.config(),
            weights: self.model.weights(),
            tables: &self.tables,
            buffers: &mut self.buffers,
            samplers: self.samplers.device(),
            shape,
            choice,
            plan: &self.plan,
            parts: 0,
        };
        (step, &self.stream)
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
