//! A sequence of tokens on the device.

use super::kv::{KvCache, KvType, Shape, Snapshot};
use super::step::{Buffers, Counted, Dry, Head, RopeTables, Step, sequence_bytes};
use super::{DecodeError, Model};
use crate::{Error, Graph, GraphKey, Pinned, Profile, Stream};
use gpu_kernels::argmax;
use gpu_kernels::state::Column;
use std::ops::ControlFlow;

/// How steps are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Every launch by itself.
    Eager,
    /// One graph launch a step. The same launches, recorded once.
    #[default]
    Graph,
}

/// What a sequence is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceOptions {
    /// Positions that the cache has room for; `None`: the model's context.
    pub capacity: Option<usize>,
    /// How keys and values are stored.
    pub kv: KvType,
    /// How steps are run.
    pub mode: Mode,
    /// Steps that are run eagerly before one is captured.
    pub capture_after: u64,
}

impl Default for SequenceOptions {
    fn default() -> Self {
        SequenceOptions { capacity: None, kv: KvType::F16, mode: Mode::Graph, capture_after: 0 }
    }
}

/// What a sequence has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Steps run launch by launch.
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
    /// The token of the greatest logit.
    pub next: u32,
}

struct Captured {
    graph: Graph,
    launches: usize,
}

/// Staging cells for the column, so that several steps may be queued.
const STAGES: usize = 8;

/// Tokens, their cached keys and values, and the means to add one more.
///
/// It owns a stream, its cache and its buffers, allocated once: a step allocates nothing. All that
/// changes from step to step is the [`Column`], which goes through staging memory into a cell on
/// the device; so a graph of the step serves every position. A graph is used only if it was captured
/// with the present weights, cache and buffers; else the step is captured anew.
///
/// A call that fails leaves the length and the cached positions as they were. There is no silent
/// fallback: if a step cannot be captured, the call says so, and the caller may go on with
/// [`Sequence::set_mode`].
pub struct Sequence {
    model: Model,
    stream: Stream,
    cache: KvCache,
    tables: RopeTables,
    buffers: Buffers,
    stages: Vec<Pinned<Column>>,
    stage: usize,
    next: Pinned<u32>,
    graphs: [Option<Captured>; 2],
    /// What a graph must have been captured with to be launched.
    key: GraphKey,
    step_launches: [usize; 2],
    length: usize,
    logits_ready: bool,
    mode: Mode,
    capture_after: u64,
    stats: Stats,
}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequence")
            .field("length", &self.length)
            .field("capacity", &self.capacity())
            .field("kv", &self.kv_type())
            .field("mode", &self.mode)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Sequence {
    /// An empty sequence. If it does not fit into free memory, nothing is allocated; if any launch of its
    /// step would break a contract (a head too wide for the kernels, say), that is the error.
    pub fn new(model: &Model, options: SequenceOptions) -> Result<Sequence, DecodeError> {
        let c = model.config();
        let capacity = options.capacity.unwrap_or(c.context);
        check_capacity(capacity, c.context)?;
        check_memory(model, capacity, options.kv)?;
        let device = model.device();
        let stream = device.stream()?;
        let mut sequence = Sequence {
            cache: KvCache::new(device, Shape::new(c, capacity), options.kv)?,
            tables: RopeTables::new(&stream, c, model.file().rope_freqs(), capacity as u32)?,
            buffers: Buffers::new(device, c)?,
            stages: (0..STAGES).map(|_| device.pinned(1)).collect::<Result<_, Error>>()?,
            stage: 0,
            next: device.pinned(1)?,
            graphs: [None, None],
            key: GraphKey::new(),
            step_launches: [0; 2],
            length: 0,
            logits_ready: false,
            mode: options.mode,
            capture_after: options.capture_after,
            stats: Stats::default(),
            model: model.clone(),
            stream,
        };
        sequence.key = sequence.present_key();
        for head in Head::ALL {
            let mut dry = Dry::default();
            sequence.step().0.run(&mut dry, head)?;
            sequence.step_launches[head.index()] = dry.launches;
        }
        Ok(sequence)
    }

    /// Device memory that a sequence of `capacity` positions takes beside the weights.
    pub fn device_bytes(model: &Model, capacity: usize, kv: KvType) -> Option<u64> {
        sequence_bytes(model.config(), capacity, kv).and_then(sum)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens fed so far.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Positions that the cache has room for.
    pub fn capacity(&self) -> usize {
        self.cache.shape.capacity
    }

    /// How keys and values are stored.
    pub fn kv_type(&self) -> KvType {
        self.cache.kind()
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Launches of a step that gives logits.
    pub fn launches_per_step(&self) -> usize {
        self.step_launches[Head::Logits.index()]
    }

    /// The captured step that gives logits, if there is one.
    pub fn graph(&self) -> Option<GraphInfo> {
        let c = self.graphs[Head::Logits.index()].as_ref()?;
        Some(GraphInfo { nodes: c.graph.nodes(), eager_launches: c.launches, replays: c.graph.replays() })
    }

    /// How steps are run.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Changes how steps are run, at any time: eager steps and graph steps may alternate.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Appends a token and returns the most likely next one (the lowest id among equals).
    pub fn feed(&mut self, token: u32) -> Result<u32, DecodeError> {
        self.prefill(&[token])
    }

    /// Appends tokens, one step each, and returns the most likely next one. Only the last step computes
    /// logits.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<u32, DecodeError> {
        self.check(tokens)?;
        let start = self.length;
        let result = self.steps(tokens);
        if result.is_err() {
            self.length = start;
        }
        result
    }

    /// Greedy decoding: feeds the prompt, then up to `count` times the most likely token. `each` sees
    /// every generated token before it is fed and may stop. Returns the generated tokens.
    ///
    /// The last token is not fed: it needs no position. So `prompt.len() + count - 1` positions suffice.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        count: usize,
        mut each: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Vec<u32>, DecodeError> {
        let mut tokens = Vec::new();
        if count == 0 {
            return Ok(tokens);
        }
        let mut token = self.prefill(prompt)?;
        loop {
            tokens.push(token);
            if each(token).is_break() || tokens.len() >= count {
                return Ok(tokens);
            }
            token = self.feed(token)?;
        }
    }

    /// The logits of the last step.
    pub fn logits(&self) -> Result<Vec<f32>, DecodeError> {
        if !self.logits_ready {
            return Err(DecodeError::NoLogits);
        }
        Ok(self.stream.read(&self.buffers.logits)?)
    }

    /// Appends a token eagerly, whatever the mode, and reads the residual stream on the way. For debugging
    /// and tests: it waits after every layer.
    pub fn feed_with_hidden(&mut self, token: u32) -> Result<Hidden, DecodeError> {
        self.check(&[token])?;
        self.write_column(token)?;
        let mut states = Vec::with_capacity(self.model.config().layers + 2);
        self.logits_ready = false;
        let (mut step, stream) = self.step();
        let mut on = stream;
        let mut counted = Counted::new(&mut on);
        step.embed(&mut counted)?;
        states.push(stream.read(&step.buffers.x)?);
        for layer in 0..step.config.layers {
            step.layer(&mut counted, layer)?;
            states.push(stream.read(&step.buffers.x)?);
        }
        step.head(&mut counted)?;
        states.push(stream.read(step.output_input())?);
        let launches = counted.launches as u64;
        self.stats.eager_launches += launches;
        self.stats.eager_steps += 1;
        let next = self.finish(self.length)?;
        self.length += 1;
        Ok(Hidden { states, next })
    }

    /// Runs `f` with each launch measured by events, as [`Stream::profile`] does.
    pub fn profile<R>(
        &mut self,
        f: impl FnOnce(&mut Sequence) -> Result<R, DecodeError>,
    ) -> Result<(R, Profile), DecodeError> {
        let stream = Stream { inner: self.stream.inner.clone() };
        let mut result = None;
        let ((), profile) = stream.profile(|_| {
            result = Some(f(self));
            Ok(())
        })?;
        match result {
            Some(Ok(value)) => Ok((value, profile)),
            Some(Err(e)) => Err(e),
            None => Err(DecodeError::NoLogits),
        }
    }

    /// Forgets all tokens; memory and graphs stay.
    pub fn reset(&mut self) {
        self.length = 0;
        self.logits_ready = false;
    }

    /// Forgets all but the first `length` tokens. What is fed next overwrites what was cached after them.
    pub fn rollback(&mut self, length: usize) -> Result<(), DecodeError> {
        if length > self.length {
            return Err(DecodeError::Rollback { to: length, length: self.length });
        }
        if length < self.length {
            self.logits_ready = false;
        }
        self.length = length;
        Ok(())
    }

    /// Changes how many positions the cache has room for and keeps what is cached. The graphs of the old
    /// cache are not used again.
    pub fn set_capacity(&mut self, capacity: usize) -> Result<(), DecodeError> {
        let c = self.model.config();
        check_capacity(capacity, c.context)?;
        if capacity < self.length {
            return Err(DecodeError::CapacityInUse { capacity, length: self.length });
        }
        if capacity == self.capacity() {
            return Ok(());
        }
        check_memory(&self.model, capacity, self.kv_type())?;
        let tables = RopeTables::new(&self.stream, c, self.model.file().rope_freqs(), capacity as u32)?;
        let mut cache = KvCache::new(self.model.device(), Shape::new(c, capacity), self.kv_type())?;
        cache.copy_from(&self.cache, self.length, &self.stream)?;
        self.stream.synchronize()?;
        self.cache = cache;
        self.tables = tables;
        self.key = self.present_key();
        Ok(())
    }

    /// Copies the cached positions to the host.
    pub fn snapshot(&self) -> Result<Snapshot, DecodeError> {
        let (k, v) = self.cache.read(self.length, &self.stream)?;
        Ok(Snapshot { model: self.model.id(), kind: self.kv_type(), length: self.length, k, v })
    }

    /// Continues from a snapshot that was taken of a sequence of the same loaded model.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), DecodeError> {
        snapshot.check(self.model.id(), self.cache.shape, self.kv_type())?;
        // Until all of it is written, nothing of the old cache can be relied on.
        self.reset();
        self.cache.write(snapshot.length, &snapshot.k, &snapshot.v, &self.stream)?;
        self.length = snapshot.length;
        Ok(())
    }

    /// The whole cache as it is in memory, with what was never written, as bytes: keys, then values.
    /// For tests of what a step writes.
    pub fn raw_cache(&self) -> Result<Vec<u8>, DecodeError> {
        let (mut k, v) = self.cache.read(self.capacity(), &self.stream)?;
        k.extend_from_slice(&v);
        Ok(k)
    }

    fn check(&self, tokens: &[u32]) -> Result<(), DecodeError> {
        let c = self.model.config();
        if tokens.is_empty() {
            return Err(DecodeError::EmptyPrompt);
        }
        if let Some((index, &token)) = tokens.iter().enumerate().find(|(_, t)| **t as usize >= c.vocab) {
            return Err(DecodeError::Token { token, index, vocab: c.vocab });
        }
        if tokens.len() > self.capacity() - self.length {
            return Err(DecodeError::ContextFull {
                tokens: tokens.len(),
                length: self.length,
                capacity: self.capacity(),
                most: c.context,
            });
        }
        Ok(())
    }

    fn steps(&mut self, tokens: &[u32]) -> Result<u32, DecodeError> {
        for (i, &token) in tokens.iter().enumerate() {
            let head = if i + 1 == tokens.len() { Head::Logits } else { Head::Skip };
            self.write_column(token)?;
            match self.mode {
                Mode::Graph if self.stats.eager_steps >= self.capture_after => self.replay(head)?,
                _ => self.eager(head)?,
            }
            self.length += 1;
        }
        self.finish(self.length - 1)
    }

    /// Queues the column for the cell on the device.
    fn write_column(&mut self, token: u32) -> Result<(), Error> {
        let stage = &self.stages[self.stage];
        self.stage = (self.stage + 1) % self.stages.len();
        // The capacity was checked to fit u32. Waits if the copy of STAGES steps ago is not done.
        stage.set(&[self.cache.column(token, self.length as u32)])?;
        self.stream.write_pinned(stage, &mut self.buffers.columns)
    }

    fn eager(&mut self, head: Head) -> Result<(), DecodeError> {
        self.logits_ready = false;
        let (mut step, mut stream) = self.step();
        let mut counted = Counted::new(&mut stream);
        let result = step.run(&mut counted, head);
        let launches = counted.launches as u64;
        self.stats.eager_launches += launches;
        result?;
        self.stats.eager_steps += 1;
        Ok(())
    }

    fn replay(&mut self, head: Head) -> Result<(), DecodeError> {
        let slot = head.index();
        if self.graphs[slot].as_ref().is_none_or(|c| c.graph.key() != &self.key) {
            // The old graph goes only when there is a new one.
            self.graphs[slot] = Some(self.capture(head)?);
            self.stats.captures += 1;
        }
        if let Some(captured) = &self.graphs[slot] {
            self.logits_ready = false;
            captured.graph.launch_checked(&self.stream, &self.key)?;
            self.stats.replays += 1;
        }
        Ok(())
    }

    fn capture(&mut self, head: Head) -> Result<Captured, DecodeError> {
        let (mut step, stream) = self.step();
        let mut launches = 0;
        let recorded = stream.capture(|scope| {
            let mut counted = Counted::new(scope);
            step.run(&mut counted, head)?;
            launches = counted.launches;
            Ok(())
        });
        let graph = recorded.map_err(|source| DecodeError::Capture { source })?.with_key(self.key.clone());
        let (nodes, expected) = (graph.nodes(), self.step_launches[head.index()]);
        if nodes != expected || launches != expected {
            return Err(DecodeError::GraphNodes { nodes, launches: expected });
        }
        Ok(Captured { graph, launches })
    }

    /// Waits for the step and delivers its token.
    fn finish(&mut self, position: usize) -> Result<u32, DecodeError> {
        self.stream.read_pinned(&self.buffers.next, &self.next)?;
        match self.next.get_at(0)? {
            argmax::NONE => Err(DecodeError::NotANumber { position }),
            token => {
                self.logits_ready = true;
                Ok(token)
            }
        }
    }

    /// Identities, never addresses or sizes alone, of everything that a captured step refers to.
    fn present_key(&self) -> GraphKey {
        GraphKey::new()
            .with("weights", self.model.id())
            .with("cache", self.cache.id())
            .with("tables", self.tables.id())
            .with("buffers", self.buffers.id())
            .with("capacity", self.capacity() as u64)
    }

    fn step(&mut self) -> (Step<'_>, &Stream) {
        let step = Step {
            config: self.model.config(),
            weights: self.model.weights(),
            tables: &self.tables,
            cache: &mut self.cache,
            buffers: &mut self.buffers,
        };
        (step, &self.stream)
    }
}

fn check_capacity(capacity: usize, most: usize) -> Result<(), DecodeError> {
    if capacity == 0 || capacity > most {
        return Err(DecodeError::Capacity { capacity, most });
    }
    Ok(())
}

fn sum(parts: [u64; 3]) -> Option<u64> {
    parts.iter().try_fold(0u64, |n, &p| n.checked_add(p))
}

fn check_memory(model: &Model, capacity: usize, kv: KvType) -> Result<(), DecodeError> {
    let memory = model.device().memory_info()?;
    let parts = sequence_bytes(model.config(), capacity, kv);
    let needed = parts.and_then(sum).unwrap_or(u64::MAX);
    if needed <= memory.free {
        return Ok(());
    }
    let parts = match parts {
        Some([cache, tables, buffers]) => {
            format!("{cache} for {capacity} positions in {kv}, {tables} for RoPE tables, {buffers} for buffers")
        }
        None => format!("{capacity} positions in {kv}"),
    };
    Err(DecodeError::Memory {
        what: "the sequence",
        needed,
        parts,
        free: memory.free,
        total: memory.total,
        hint: "ask for a smaller context",
    })
}
