//! Steps, launch by launch or as the replay of a graph.

use super::group::Group;
use super::lane::Lane;
use super::{Decoder, Mode, choice};
use crate::decode::input::Choice;
use crate::decode::listing::{ListedLaunch, Listing, Warming};
use crate::decode::persistent::Plan;
use crate::decode::sampling::Samplers;
use crate::decode::shape::Shape;
use crate::decode::step::{Counted, DecodeStep, run_together};
use crate::decode::together::of_group;
use crate::decode::{DecodeError, KvType, Model};
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
    lead: Graph,
    /// Those of the other devices.
    others: Vec<Graph>,
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
            nodes: c.lead.nodes(),
            eager_launches: c.launches,
            replays: c.lead.replays(),
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

    /// The shape of a step that chooses tokens as was staged last.
    pub(super) fn drawing(&self, shape: Shape) -> Shape {
        Shape { draws: shape.tokens > 0 && self.samplers.draw(), ..shape }
    }

    /// Runs a step in the shape and the way that were [planned](Self::planned).
    ///
    /// # Safety
    /// That of [`DecodeStep`], for the columns that were staged last.
    pub(super) unsafe fn launch(&mut self, (shape, graph): (Shape, bool)) -> Result<(), DecodeError> {
        self.under_way = true;
        let shape = self.drawing(shape);
        // SAFETY: the caller's promise.
        unsafe { if graph { self.replay(shape) } else { self.eager(shape) } }
    }

    /// # Safety
    /// That of [`DecodeStep`], for the columns that were staged last.
    unsafe fn eager(&mut self, shape: Shape) -> Result<(), DecodeError> {
        self.forget_logits();
        let mut steps: Vec<_> = self.steps(shape).map(|(step, stream)| (step, Counted::new(stream))).collect();
        // SAFETY: the caller's promise.
        let result = unsafe { run_together(&mut steps) };
        let launches = steps.first().map_or(0, |(_, counted)| counted.launches as u64);
        drop(steps);
        self.stats.eager_launches += launches;
        result.map_err(|(rank, source)| self.of_rank(rank, source))?;
        self.stats.eager_steps += 1;
        Ok(())
    }

    /// # Safety
    /// That of [`DecodeStep`], for the columns that were staged last.
    unsafe fn replay(&mut self, shape: Shape) -> Result<(), DecodeError> {
        let keys: Vec<GraphKey> = (0..self.model.ranks()).map(|rank| self.key(rank, shape)).collect();
        let fits = |c: &Captured| c.all().map(Graph::key).eq(&keys);
        if !self.graphs.captured.get(&shape).is_some_and(fits) {
            // The old graphs go only when there are new ones.
            let mut graphs = Vec::with_capacity(keys.len());
            let mut launches = 0;
            for (rank, key) in keys.iter().enumerate() {
                let (graph, count) = self.capture(rank, shape, key)?;
                launches = if rank == 0 { count } else { launches };
                graphs.push(graph);
            }
            let mut graphs = graphs.into_iter();
            let Some(lead) = graphs.next() else { return Err(DecodeError::GraphNodes { nodes: 0, launches }) };
            self.graphs.make_room();
            let captured = Captured { lead, others: graphs.collect(), launches, used: 0 };
            self.graphs.captured.insert(shape, captured);
            self.stats.captures += 1;
        }
        self.forget_logits();
        let Some(captured) = self.graphs.captured.get_mut(&shape) else { return Ok(()) };
        let streams = std::iter::once(&self.lead).chain(&self.others).map(|lane| &lane.stream);
        let mut result = Ok(());
        for (rank, ((graph, stream), key)) in captured.all_mut().zip(streams).zip(&keys).enumerate() {
            result = graph.launch_checked(stream, key).map_err(|source| (rank, source));
            if result.is_err() {
                break;
            }
        }
        if result.is_ok() {
            self.stats.replays += 1;
            captured.used = self.stats.replays;
        }
        result.map_err(|(rank, source)| self.of_rank(rank, source))
    }

    fn capture(&mut self, rank: usize, shape: Shape, key: &GraphKey) -> Result<(Graph, usize), DecodeError> {
        let kernels = self.kernels_of(rank, shape)?;
        let expected = kernels.len();
        // No compiler runs within the capture.
        let specialises = self.specialises(shape);
        let device = self.model.rank(rank).device.clone();
        match specialises {
            // SAFETY: nothing is launched.
            true => unsafe { self.step_of(rank, shape).0.run(&mut Warming(&device)) }?,
            false => device.warm(kernels)?,
        }
        let (mut step, stream) = self.step_of(rank, shape);
        let mut launches = 0;
        let recorded = stream.capture(|scope| {
            if specialises {
                scope.specialise();
            }
            let mut counted = Counted::new(scope);
            // SAFETY: the graph is launched by `replay` alone, whose caller promises it each time.
            unsafe { step.run(&mut counted) }?;
            launches = counted.launches;
            Ok(())
        });
        let failed = |source| of_group(source).unwrap_or_else(|source| DecodeError::Capture { source });
        let graph = recorded.map_err(failed)?.with_key(key.clone());
        // What ranks do together is copies and nodes of others.
        let nodes = graph.nodes() - graph.foreign_nodes() - graph.copies();
        if nodes != expected || launches != expected {
            return Err(DecodeError::GraphNodes { nodes, launches: expected });
        }
        tracing::debug!(rank, nodes, batch = shape.columns, logits = shape.logits, kv = %shape.kv, "step captured");
        Ok((graph, launches))
    }

    /// The kernels that a step launches on one of the devices, found without a device.
    pub(super) fn kernels_of(&mut self, rank: usize, shape: Shape) -> Result<Vec<&'static KernelMeta>, DecodeError> {
        Ok(self.list(rank, shape)?.iter().map(|launch| launch.kernel).collect())
    }

    /// The launches of a step on one of the devices.
    pub(super) fn list(&mut self, rank: usize, shape: Shape) -> Result<Vec<ListedLaunch>, DecodeError> {
        let mut listing = Listing { specialises: self.specialises(shape), ..Listing::default() };
        // SAFETY: nothing is launched.
        unsafe { self.step_of(rank, shape).0.run(&mut listing) }?;
        Ok(listing.launches)
    }

    /// Whether the launches of such a step get code of their own: those of one token, which a decoder repeats for as long as it
    /// lives. Compiling them for every number of columns would take longer than it saves.
    fn specialises(&self, shape: Shape) -> bool {
        let wanted = self.options.specialise.unwrap_or_else(|| !self.model.device().is_software());
        wanted && self.options.mode == Mode::Graph && !shape.shared && shape.columns == 1
    }

    /// Identities, never addresses or sizes alone, of everything that a captured step refers to, and its shape. Caches
    /// are not among them: a step is told where they are.
    fn key(&self, rank: usize, shape: Shape) -> GraphKey {
        let lane = rank.checked_sub(1).and_then(|other| self.others.get(other)).unwrap_or(&self.lead);
        GraphKey::new()
            .with("weights", self.model.rank(rank).id())
            .with("tables", lane.tables.id())
            .with("buffers", lane.buffers.id())
            .with("columns", shape.columns as u64)
            .with("cache type", shape.kv.bytes() as u64)
            .with("logits", shape.logits as u64)
            .with("tokens", shape.tokens as u64)
            .with("tiles", shape.tiles as u64)
            .with("single steps", shape.steps as u64)
            .with("runs", shape.runs as u64)
            .with("draws", shape.draws.into())
    }

    /// The step of one of the devices; of the first, where there are not so many.
    fn step_of(&mut self, rank: usize, shape: Shape) -> (DecodeStep<'_>, &Stream) {
        let choice = self.choice();
        let lane = match rank.checked_sub(1).and_then(|other| self.others.get_mut(other)) {
            Some(other) => other,
            None => &mut self.lead,
        };
        let rest = Shared { model: &self.model, samplers: &self.samplers, plan: &self.plan, group: &self.group };
        rest.step(rank, lane, shape, choice)
    }

    /// The steps of all devices.
    pub(super) fn steps(&mut self, shape: Shape) -> impl Iterator<Item = (DecodeStep<'_>, &Stream)> {
        let choice = self.choice();
        let rest = Shared { model: &self.model, samplers: &self.samplers, plan: &self.plan, group: &self.group };
        let lanes = std::iter::once(&mut self.lead).chain(&mut self.others);
        lanes.enumerate().map(move |(rank, lane)| rest.step(rank, lane, shape, choice))
    }

    fn choice(&self) -> Choice {
        Choice { programmatic: self.programmatic(), ..choice(&self.model, &self.options) }
    }
}

/// What the steps of all devices have in common.
#[derive(Clone, Copy)]
struct Shared<'a> {
    model: &'a Model,
    samplers: &'a Samplers,
    plan: &'a Plan,
    group: &'a Group,
}

impl<'a> Shared<'a> {
    fn step(self, rank: usize, lane: &'a mut Lane, shape: Shape, choice: Choice) -> (DecodeStep<'a>, &'a Stream) {
        let Lane { stream, tables, buffers, .. } = lane;
        let step = DecodeStep {
            config: self.model.share(),
            weights: &self.model.rank(rank).weights,
            tables,
            buffers,
            samplers: self.samplers.device(),
            shape,
            choice,
            plan: self.plan,
            shares: self.group.shares(rank),
            stage: self.group.stage(),
            parts: 0,
        };
        (step, stream)
    }
}

impl Captured {
    fn all(&self) -> impl Iterator<Item = &Graph> {
        std::iter::once(&self.lead).chain(&self.others)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Graph> {
        std::iter::once(&mut self.lead).chain(&mut self.others)
    }
}
