//! Steps, launch by launch or as the replay of a graph.

use super::{Decoder, Mode, choice};
use crate::decode::listing::{ListedLaunch, Listing};
use crate::decode::shape::Shape;
use crate::decode::step::{Counted, Step};
use crate::decode::{DecodeError, KvType};
use std::collections::{HashMap, HashSet};
use warpsmith_device::KernelMeta;
use warpsmith_runtime::{Graph, GraphKey, Stream};

/// Graphs that a decoder keeps. There are fewer, unless sizes of batches, drafts and prompts are all in use at once.
const MOST: usize = 64;

/// A captured step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphInfo {
    /// Columns of the step: a sequence each where it decodes, tokens of any sequences where it is mixed.
    pub batch: usize,
    /// Columns that get logits.
    pub logits: usize,
    /// Several of its columns may be of one sequence: a part of a prompt, or a step of [any mix](Decoder::step_mixed).
    pub mixed: bool,
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
    /// The number of the replay that was its last.
    used: u64,
}

/// The graphs of a decoder, by the shapes of their steps.
#[derive(Default)]
pub(super) struct Graphs {
    captured: HashMap<Shape, Captured>,
    /// Shapes of mixed steps that came once.
    met: HashSet<Shape>,
}

impl Graphs {
    /// Makes room for another graph.
    fn make_room(&mut self) {
        while self.captured.len() >= MOST {
            let Some(oldest) = self.captured.iter().min_by_key(|(_, c)| c.used).map(|(shape, _)| *shape) else {
                return;
            };
            self.captured.remove(&oldest);
        }
    }

    fn infos(&self) -> Vec<GraphInfo> {
        let info = |(s, c): (&Shape, &Captured)| GraphInfo {
            batch: s.columns,
            logits: s.logits,
            mixed: s.shared,
            kv: s.kv,
            nodes: c.graph.nodes(),
            eager_launches: c.launches,
            replays: c.graph.replays(),
        };
        let mut all: Vec<GraphInfo> = self.captured.iter().map(info).collect();
        all.sort_by_key(|g| (g.mixed, g.batch, g.logits, g.kv.bytes()));
        all
    }
}

impl Decoder {
    /// The captured steps: first those that decode, by number of sequences.
    pub fn graphs(&self) -> Vec<GraphInfo> {
        self.graphs.infos()
    }

    /// The shape in which a step is run, and whether by a graph: then it has as many columns as the class of its size. A mixed step
    /// is captured when the class comes for the second time, as a prompt of its size may never come again.
    pub(super) fn planned(&mut self, shape: Shape) -> (Shape, bool) {
        let captures = self.options.mode == Mode::Graph && self.stats.eager_steps >= self.options.capture_after;
        if !captures {
            return (shape, false);
        }
        if !shape.shared {
            return (shape, true);
        }
        let most_logits = if shape.tokens == shape.logits { self.most_logits() } else { self.most_tokens() };
        let padded = shape.padded(self.most_tokens(), most_logits);
        match self.graphs.captured.contains_key(&padded) || !self.graphs.met.insert(padded) {
            true => (padded, true),
            false => (shape, false),
        }
    }

    /// Runs a step in the shape and the way that were [planned](Self::planned).
    ///
    /// # Safety
    /// That of [`Step`], for the columns that were staged last.
    pub(super) unsafe fn launch(&mut self, (shape, graph): (Shape, bool)) -> Result<(), DecodeError> {
        // SAFETY: the caller's promise.
        unsafe { if graph { self.replay(shape) } else { self.eager(shape) } }
    }

    /// # Safety
    /// That of [`Step`], for the columns that were staged last.
    unsafe fn eager(&mut self, shape: Shape) -> Result<(), DecodeError> {
        self.forget_logits();
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
        if self.graphs.captured.get(&shape).is_none_or(|c| c.graph.key() != &key) {
            // The old graph goes only when there is a new one.
            let captured = self.capture(shape, &key)?;
            self.graphs.make_room();
            self.graphs.captured.insert(shape, captured);
            self.stats.captures += 1;
        }
        self.forget_logits();
        if let Some(captured) = self.graphs.captured.get_mut(&shape) {
            captured.graph.launch_checked(&self.stream, &key)?;
            self.stats.replays += 1;
            captured.used = self.stats.replays;
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
        tracing::debug!(nodes, batch = shape.columns, logits = shape.logits, kv = %shape.kv, "step captured");
        Ok(Captured { graph, launches, used: 0 })
    }

    /// The kernels that a step launches, found without a device.
    pub(super) fn kernels_of(&mut self, shape: Shape) -> Result<Vec<&'static KernelMeta>, DecodeError> {
        Ok(self.list(shape)?.iter().map(|launch| launch.kernel).collect())
    }

    /// The launches of a step.
    pub(super) fn list(&mut self, shape: Shape) -> Result<Vec<ListedLaunch>, DecodeError> {
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
            .with("logits", shape.logits as u64)
            .with("tokens", shape.tokens as u64)
            .with("tiles", shape.tiles as u64)
            .with("single steps", shape.steps as u64)
            .with("runs", shape.runs as u64)
    }

    pub(super) fn work(&mut self, shape: Shape) -> (Step<'_>, &Stream) {
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
