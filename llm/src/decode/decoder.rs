//! The engine of decoding: a stream, the buffers of a step, and the graphs of its shapes.

use super::input::Choice;
use super::persistent::Plan;
use super::sampling::Samplers;
use super::sequence::Sequence;
use super::shape::{Shape, Take};
use super::step::{Counted, Dry, RopeTables, Step};
use super::workspace::{Extent, Workspace};
use super::{DecodeError, KvType, Model};
use gpu_kernels::gemv::{Activations, MAX_COLUMNS};
use gpu_kernels::sampling::NONE;
use gpu_kernels::state::Column;
use std::collections::HashMap;
use warpsmith_device::KernelMeta;
use warpsmith_runtime::{Error, Graph, GraphKey, Pinned, Profile, Stream};

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
    /// Most sequences in one step: 1 to 64.
    pub batch: usize,
    /// Tokens of a prompt that are fed at once: 1 to 64. What one and what several at once give is the same, bit for bit,
    /// unless [`fast_prefill`](Self::fast_prefill) is on. It is also what steps give if their activations are f32.
    pub chunk: usize,
    /// Positions that steps are prepared for from the start. Where a sequence gets longer, more are prepared, which
    /// allocates; `None`: 4096, or the model's context if that is shorter.
    pub positions: Option<usize>,
    /// How steps are run.
    pub mode: Mode,
    /// Steps that are run eagerly before one is captured.
    pub capture_after: u64,
    /// Prompts attend by [`gpu_kernels::attention::prefill`]: on tensor cores where the cache is f16 or int8 and the device has them,
    /// with queries and weights rounded to f16, and in another order of sums elsewhere.
    pub fast_prefill: bool,
    /// Memory for the logits of every token of a chunk, which [`Decoder::prefill_each`] gives; else a prompt has those of its
    /// last token alone.
    pub prompt_logits: bool,
    /// The cheapest activations that decoding steps may multiply weights with. A matrix whose format has no kernel for them
    /// is multiplied with the next more exact ones; prompts of several tokens are always multiplied with f32.
    pub activations: Activations,
    /// They are used only in matrices for which `warpsmith tune` found them faster on such a device
    /// ([`gpu_kernels::gemv::fastest`]); else in all whose formats have kernels for them.
    pub tuned: bool,
    /// All launches of a step but the first are [programmatic](warpsmith_device::Geometry::programmatic): their blocks begin while
    /// the launch before ends, and ask for weights before they wait for it. Results are the same to the bit. Where a device has
    /// none (before sm_90) launches are ordinary ones; [`Decoder::programmatic`] says which.
    pub programmatic: bool,
    /// Steps of one sequence with a cache of f16 do a layer in one launch, whose blocks wait for one another between its phases
    /// ([`gpu_kernels::persistent`]), wherever that kernel takes the layer's weights: in formats that it decodes, each
    /// projection in one format, multiplied with f32. [`Decoder::persistent_layers`] counts those layers. The results have the
    /// same bits. Nothing about it was measured on a GPU.
    pub persistent: bool,
}

impl Default for DecoderOptions {
    fn default() -> Self {
        DecoderOptions {
            batch: 1,
            chunk: 64,
            positions: None,
            mode: Mode::Graph,
            capture_after: 0,
            fast_prefill: false,
            prompt_logits: false,
            activations: Activations::F32,
            tuned: false,
            programmatic: false,
            persistent: false,
        }
    }
}

/// A sequence and the token to append to it.
#[derive(Debug)]
pub struct Feed<'a> {
    /// The sequence.
    pub sequence: &'a mut Sequence,
    /// The token.
    pub token: u32,
}

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

/// The residual stream of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Hidden {
    /// The embedding, the stream after every layer, and the normed input of the output projection:
    /// `layers + 2` vectors of `hidden`.
    pub states: Vec<Vec<f32>>,
    /// The token that was chosen.
    pub next: u32,
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
        let plan = if options.persistent { Plan::new(model, choice(model, &options))? } else { Plan::default() };
        let stream = device.stream()?;
        let mut decoder = Decoder {
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

    /// Whether launches of its steps are programmatic: [`DecoderOptions::programmatic`], on a device that has such launches.
    pub fn programmatic(&self) -> bool {
        self.options.programmatic && self.model.device().sm() >= 90
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

    /// Layers that a step of one sequence with a cache of f16 does in one launch each.
    pub fn persistent_layers(&self) -> usize {
        self.plan.layers()
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

    /// Appends one token to each of the sequences, in one step, and gives the tokens that follow, in the same order.
    pub fn step(&mut self, feeds: &mut [Feed<'_>]) -> Result<&[u32], DecodeError> {
        self.check_batch(feeds.len())?;
        let Some(first) = feeds.first() else { return Ok(&[]) };
        let kv = first.sequence.kv_type();
        let mut longest = 0;
        for feed in feeds.iter() {
            self.check_sequence(feed.sequence, kv)?;
            feed.sequence.check(&[feed.token])?;
            longest = longest.max(feed.sequence.len() + 1);
        }
        self.prepare_positions(longest)?;
        let batch = feeds.len();
        let result = self.try_step(feeds, kv);
        self.settle(&result);
        result?;
        for (feed, &next) in feeds.iter_mut().zip(&self.tokens) {
            feed.sequence.advance(&[feed.token], next);
        }
        self.logits = batch;
        Ok(&self.tokens)
    }

    fn try_step(&mut self, feeds: &mut [Feed<'_>], kv: KvType) -> Result<(), DecodeError> {
        for (column, feed) in self.columns.iter_mut().zip(feeds.iter()) {
            *column = feed.sequence.column(feed.token, 0);
        }
        for (i, feed) in feeds.iter_mut().enumerate() {
            let parameters = feed.sequence.parameters(&[feed.token], &self.stream)?;
            self.samplers.set(i, parameters);
        }
        self.samplers.write(&self.stream, feeds.len())?;
        self.stage_columns(feeds.len())?;
        let shape = Shape::decode(feeds.len(), kv);
        // SAFETY: each column and sampler leads to what its sequence owns. The feeds borrow the sequences, each once, until
        // the step has ended: `finish` waits for it, and on every error `settle` does.
        unsafe {
            match self.options.mode {
                Mode::Graph if self.stats.eager_steps >= self.options.capture_after => self.replay(shape)?,
                _ => self.eager(shape)?,
            }
        }
        self.finish(|i| feeds.get(i).map_or(0, |f| f.sequence.len()), feeds.len())
    }

    /// Appends the tokens of a prompt, up to [`DecoderOptions::chunk`] at once, and gives the token that follows. A prompt
    /// of one token is a step like any other; longer ones are launched eagerly, whatever the mode.
    pub fn prefill(&mut self, sequence: &mut Sequence, tokens: &[u32]) -> Result<u32, DecodeError> {
        self.prefill_chunks(sequence, tokens, None)
    }

    /// The same, and gives the logits of every token of the prompt, in order, as chunks are done. If it fails, those that were
    /// given are of positions that the sequence does not have.
    pub fn prefill_each(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        mut each: impl FnMut(Vec<f32>),
    ) -> Result<u32, DecodeError> {
        if !self.options.prompt_logits {
            return Err(DecodeError::NoLogits);
        }
        self.prefill_chunks(sequence, tokens, Some(&mut each))
    }

    fn prefill_chunks(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        each: Option<&mut dyn FnMut(Vec<f32>)>,
    ) -> Result<u32, DecodeError> {
        if let [token] = *tokens {
            let next = self.step(&mut [Feed { sequence, token }])?.first().copied().unwrap_or(NONE);
            if let Some(each) = each {
                each(self.logits(0)?);
            }
            return Ok(next);
        }
        self.check_sequence(sequence, sequence.kv_type())?;
        sequence.check(tokens)?;
        self.prepare_positions(sequence.len() + tokens.len())?;
        let every = each.is_some();
        let result = self.try_prefill(sequence, tokens, each);
        self.settle(&result);
        result?;
        let next = self.tokens.first().copied().ok_or(DecodeError::NoLogits)?;
        sequence.advance(tokens, next);
        // Those of every token were given, and lie elsewhere.
        self.logits = usize::from(!every);
        Ok(next)
    }

    /// What the launches of a part of a prompt depend on.
    fn prompt(&self, columns: usize, kv: KvType, last: bool, logits: bool) -> Shape {
        Shape::prompt(columns, kv, last, logits, self.options.fast_prefill)
    }

    fn try_prefill(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        mut each: Option<&mut dyn FnMut(Vec<f32>)>,
    ) -> Result<(), DecodeError> {
        let parameters = sequence.parameters(tokens, &self.stream)?;
        self.samplers.set(0, parameters);
        self.samplers.write(&self.stream, 1)?;
        let chunks = tokens.chunks(self.options.chunk);
        let last = chunks.len().saturating_sub(1);
        for (i, chunk) in chunks.enumerate() {
            let before = i * self.options.chunk;
            for (n, (column, &token)) in self.columns.iter_mut().zip(chunk).enumerate() {
                *column = sequence.column(token, before + n);
            }
            self.stage_columns(chunk.len())?;
            let shape = self.prompt(chunk.len(), sequence.kv_type(), i == last, each.is_some());
            // SAFETY: as in `try_step`; `sequence` is borrowed until the prompt has been computed.
            unsafe { self.eager(shape) }?;
            if let Some(each) = &mut each {
                for place in 0..chunk.len() {
                    each(self.stream.read(self.buffers.logits_of(place))?);
                }
            }
        }
        let position = sequence.len() + tokens.len() - 1;
        self.finish(|_| position, 1)
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

    /// Appends a token eagerly, whatever the mode, and reads the residual stream on the way. For debugging
    /// and tests: it waits after every layer.
    pub fn feed_with_hidden(&mut self, sequence: &mut Sequence, token: u32) -> Result<Hidden, DecodeError> {
        self.check_sequence(sequence, sequence.kv_type())?;
        sequence.check(&[token])?;
        self.prepare_positions(sequence.len() + 1)?;
        let result = self.try_hidden(sequence, token);
        self.settle(&result);
        let states = result?;
        let next = self.tokens.first().copied().ok_or(DecodeError::NoLogits)?;
        sequence.advance(&[token], next);
        self.logits = 1;
        Ok(Hidden { states, next })
    }

    fn try_hidden(&mut self, sequence: &mut Sequence, token: u32) -> Result<Vec<Vec<f32>>, DecodeError> {
        let parameters = sequence.parameters(&[token], &self.stream)?;
        self.samplers.set(0, parameters);
        self.samplers.write(&self.stream, 1)?;
        self.columns[0] = sequence.column(token, 0);
        self.stage_columns(1)?;
        let layers = self.model.config().layers;
        let mut states = Vec::with_capacity(layers + 2);
        let (mut step, stream) = self.work(Shape::decode(1, sequence.kv_type()));
        let mut on = stream;
        let mut counted = Counted::new(&mut on);
        step.embed(&mut counted)?;
        states.push(stream.read(step.residual())?);
        for layer in 0..layers {
            // SAFETY: the column leads to the cache of `sequence`, which is borrowed until the step has ended: `finish`
            // or `settle` waits for it.
            unsafe { step.layer(&mut counted, layer) }?;
            states.push(stream.read(step.residual())?);
        }
        // SAFETY: as for the layers.
        unsafe { step.head(&mut counted) }?;
        let launches = counted.launches as u64;
        // An extra launch, of the norm that the step folds into the projection.
        states.push(stream.read(step.normed(&mut on)?)?);
        self.stats.eager_launches += launches;
        self.stats.eager_steps += 1;
        let position = sequence.len();
        self.finish(|_| position, 1)?;
        Ok(states)
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
        let mut dry = Dry::default();
        // SAFETY: nothing is launched.
        unsafe { self.work(shape).0.run(&mut dry) }?;
        Ok(dry.kernels)
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
        // Prompts are multiplied with f32: their products take several columns at once.
        let mut choice = choice(&self.model, &self.options);
        if shape.prompt {
            choice.allowed = Activations::F32;
        }
        choice.ahead = self.programmatic();
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

/// The activations of decoding steps.
fn choice(model: &Model, options: &DecoderOptions) -> Choice {
    Choice { allowed: options.activations, tuned: options.tuned, sm: model.device().sm(), ahead: false }
}

/// What the steps of a decoder with these options hold at once, of up to `columns` columns.
fn extent(options: &DecoderOptions, columns: usize) -> Extent {
    let logits = if options.prompt_logits { options.batch.max(options.chunk) } else { options.batch };
    Extent { batch: options.batch, columns, logits }
}

fn parts(model: &Model, options: &DecoderOptions, columns: usize, positions: usize) -> Option<[u64; 2]> {
    let (c, batch) = (model.config(), options.batch);
    let buffers = Workspace::bytes(c, extent(options, columns), options.activations)?;
    Some([RopeTables::bytes(c, positions)?, buffers.checked_add(Samplers::bytes(batch))?])
}

fn check_memory(model: &Model, options: &DecoderOptions, columns: usize, positions: usize) -> Result<(), DecodeError> {
    let memory = model.device().memory_info()?;
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
