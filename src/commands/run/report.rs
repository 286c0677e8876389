//! What `warpsmith run` closes with, as text and as JSON.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use warpsmith_driver_api::software::KernelProfile;
use warpsmith_host::decode::Session;
use warpsmith_host::model::ModelFile;
use warpsmith_host::{Engine, Profile};

use super::verify::Comparison;
use crate::commands::processes::Party;
use crate::commands::session::{Devices, Rate};
use crate::table::{Align, Table, bytes, count};

/// Which engine ran.
#[derive(Debug, Serialize)]
pub struct EngineReport {
    /// `software` or `cuda`.
    kind: &'static str,
    /// The device's name.
    device: String,
    /// Its compute capability; 90 is sm_90.
    sm: u32,
    /// How many devices run the model together.
    devices: usize,
    /// How many processes do.
    processes: usize,
}

impl EngineReport {
    /// The engine of these devices.
    pub fn new(devices: &Devices) -> Self {
        let device = &devices.first;
        let kind = match device.engine() {
            Engine::Cuda { .. } => "cuda",
            Engine::Software { .. } => "software",
        };
        let processes = devices.party.as_ref().map_or(1, Party::count);
        Self { kind, device: device.name().to_owned(), sm: device.sm(), devices: devices.count(), processes }
    }
}

impl std::fmt::Display for EngineReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            "software" => write!(f, "software driver: PTX for sm_{} on the CPU, no GPU", self.sm),
            _ => write!(f, "{}, sm_{}", self.device, self.sm),
        }?;
        match self.devices {
            1 => Ok(()),
            devices => write!(f, ", {devices} devices"),
        }?;
        match self.processes {
            1 => Ok(()),
            processes => write!(f, ", {processes} processes"),
        }
    }
}

/// Facts about the model.
#[derive(Debug, Serialize)]
pub struct ModelReport {
    path: String,
    name: Option<String>,
    architecture: &'static str,
    layers: usize,
    hidden: usize,
    feed_forward: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocab: usize,
    context: usize,
    weights: u64,
    /// Weights by format.
    formats: BTreeMap<&'static str, u64>,
    tied: bool,
}

impl ModelReport {
    /// The facts of this file.
    pub fn new(path: &Path, file: &ModelFile) -> Self {
        let c = file.config();
        let mut formats = BTreeMap::new();
        for m in file.matrices() {
            *formats.entry(m.format.name()).or_default() += m.rows as u64 * m.cols as u64;
        }
        Self {
            path: path.display().to_string(),
            name: c.name.clone(),
            architecture: c.architecture.name(),
            layers: c.layers,
            hidden: c.hidden,
            feed_forward: c.feed_forward,
            heads: c.heads,
            kv_heads: c.kv_heads,
            head_dim: c.head_dim,
            vocab: c.vocab,
            context: c.context,
            weights: formats.values().sum(),
            formats,
            tied: file.tied(),
        }
    }
}

impl std::fmt::Display for ModelReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let formats: Vec<&str> = self.formats.keys().copied().collect();
        write!(
            f,
            "{}: {}, {} layers, hidden {}, {}/{} heads of {}, vocabulary {}, context {}, {} weights in {}",
            self.path,
            self.architecture,
            self.layers,
            self.hidden,
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.vocab,
            self.context,
            count(self.weights),
            formats.join(" and "),
        )
    }
}

/// How steps were run.
#[derive(Debug, Serialize)]
pub struct GraphReport {
    /// Nodes of the captured step; 0 without a graph.
    nodes: usize,
    /// Launches of the same step run eagerly.
    eager_launches: usize,
    /// Graph launches.
    replays: u64,
    /// Graphs captured.
    captures: u64,
    /// Steps run launch by launch.
    eager_steps: u64,
    /// Whether launches were programmatic.
    programmatic: bool,
    /// Whether that was asked for; a device before sm_90 has none.
    #[serde(skip)]
    wanted: bool,
    /// Layers that a step does in few launches; `None` without `--persistent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    persistent_layers: Option<usize>,
    /// Those launches.
    #[serde(skip_serializing_if = "Option::is_none")]
    persistent_launches: Option<usize>,
    /// Why the first layer that is not among them is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_persistent: Option<String>,
    #[serde(skip)]
    layers: usize,
}

impl GraphReport {
    /// What this sequence did.
    pub fn new(sequence: &Session, wanted: bool) -> Self {
        let persistent = sequence.decoder().options().persistent;
        let stats = sequence.stats();
        Self {
            nodes: sequence.graph().map_or(0, |g| g.nodes),
            eager_launches: sequence.launches_per_step(),
            replays: stats.replays,
            captures: stats.captures,
            eager_steps: stats.eager_steps,
            programmatic: sequence.decoder().programmatic(),
            wanted,
            persistent_layers: persistent.then(|| sequence.persistent_layers()),
            persistent_launches: persistent.then(|| sequence.persistent_launches()),
            not_persistent: sequence.not_persistent().filter(|_| persistent),
            layers: sequence.model().config().layers,
        }
    }
}

/// One kernel's part in the run.
#[derive(Debug, Serialize)]
pub struct KernelRow {
    name: String,
    launches: u64,
    seconds: f64,
    /// Of all kernels' time, 0 to 1.
    share: f64,
    /// Warp instructions times active lanes; the software driver counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    lane_instructions: Option<u64>,
    /// Bytes that loads and stores to device memory asked for; the software driver counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    global_bytes: Option<u64>,
}

impl KernelRow {
    fn finish(mut rows: Vec<KernelRow>) -> Vec<KernelRow> {
        let total: f64 = rows.iter().map(|r| r.seconds).sum();
        rows.iter_mut().for_each(|r| r.share = if total > 0.0 { r.seconds / total } else { 0.0 });
        rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.name.cmp(&b.name)));
        rows
    }

    /// From the software driver's profile.
    pub fn counted(profile: Vec<KernelProfile>) -> Vec<KernelRow> {
        let row = |k: KernelProfile| KernelRow {
            name: k.name,
            launches: k.launches,
            seconds: k.seconds,
            share: 0.0,
            lane_instructions: Some(k.counters.lane_instructions),
            global_bytes: Some(k.counters.global_load_bytes + k.counters.global_store_bytes),
        };
        Self::finish(profile.into_iter().map(row).collect())
    }

    /// From events on a GPU.
    pub fn timed(profile: &Profile) -> Vec<KernelRow> {
        let row = |k: &warpsmith_host::KernelTime| KernelRow {
            name: k.name.to_owned(),
            launches: k.launches,
            seconds: k.time.as_secs_f64(),
            share: 0.0,
            lane_instructions: None,
            global_bytes: None,
        };
        Self::finish(profile.kernels.iter().map(row).collect())
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Which engine ran.
    pub engine: EngineReport,
    /// Facts about the model.
    pub model: ModelReport,
    /// Type of the KV cache.
    pub kv: String,
    /// The cheapest activations that were allowed.
    pub activations: String,
    /// Whether the prompt attended by the faster kernel, which rounds more.
    pub fast_prefill: bool,
    /// Positions that the cache held.
    pub context: usize,
    /// Prompt and generated tokens that were fed, in order.
    pub tokens_fed: Vec<u32>,
    /// Tokens generated; the last of them was not fed.
    pub tokens_generated: Vec<u32>,
    /// Their text, if the file's tokenizer can be read.
    pub text: Option<String>,
    /// `count`, `end of text` or `stop text`.
    pub ended_by: &'static str,
    /// Graph or eager.
    pub graph: GraphReport,
    /// Wall time of decoding, without loading and without the reference.
    pub seconds: f64,
    /// Positions fed per second, of the prompt and of what was generated.
    pub tokens_per_second: f64,
    /// The prompt, which was fed at once.
    pub prompt: Rate,
    /// What was fed token by token.
    pub generation: Rate,
    /// Per kernel. On a GPU these are the launches of one step, timed by events.
    pub kernels: Vec<KernelRow>,
    /// The comparison with the f64 reference.
    pub reference: Option<Comparison>,
}

/// Tokens of a prompt from which on its attention is worth a word.
const LONG_PROMPT: usize = 64;

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Rate { tokens, seconds, tokens_per_second } = self.prompt;
        writeln!(f, "\nprompt of {tokens} tokens in {seconds:.3} s: {tokens_per_second:.1} tokens/s")?;
        if self.fast_prefill {
            writeln!(
                f,
                "it attended by the kernel for prompts (--fast-prefill), which rounds queries and weights to f16"
            )?;
        } else if tokens >= LONG_PROMPT {
            writeln!(
                f,
                "it attended with the bits of single steps; with --fast-prefill queries and weights are rounded to f16, which is faster"
            )?;
        }
        let Rate { seconds, tokens_per_second, .. } = self.generation;
        let generated = self.tokens_generated.len();
        writeln!(f, "{generated} tokens generated in {seconds:.3} s: {tokens_per_second:.1} tokens/s")?;
        let g = &self.graph;
        if g.replays > 0 {
            writeln!(
                f,
                "graph of {} nodes ({} launches when eager), replayed {} times",
                g.nodes, g.eager_launches, g.replays
            )?;
        } else {
            writeln!(f, "eager: {} launches a step, {} steps", g.eager_launches, g.eager_steps)?;
        }
        match (g.wanted, g.programmatic) {
            (_, true) => writeln!(f, "launches programmatic: each begins while the one before ends")?,
            (true, false) => writeln!(f, "launches ordinary: sm_{} has no programmatic ones", self.engine.sm)?,
            (false, false) => {}
        }
        if let Some(n) = g.persistent_layers {
            let launches = match g.persistent_launches.unwrap_or_default() {
                1 => "one launch".to_owned(),
                n => format!("{n} launches"),
            };
            writeln!(f, "{n} of {} layers in {launches}", g.layers)?;
            if let Some(why) = &g.not_persistent {
                writeln!(f, "{why}")?;
            }
        }
        writeln!(f)?;
        let counted = self.kernels.iter().any(|k| k.lane_instructions.is_some());
        let mut table = if counted {
            Table::new([
                ("kernel", Align::Left),
                ("launches", Align::Right),
                ("share of time", Align::Right),
                ("lane instructions", Align::Right),
                ("bytes", Align::Right),
            ])
        } else {
            Table::new([
                ("kernel (one step)", Align::Left),
                ("launches", Align::Right),
                ("share of time", Align::Right),
                ("us", Align::Right),
            ])
        };
        for k in &self.kernels {
            let mut row = vec![k.name.clone(), k.launches.to_string(), format!("{:.1} %", 100.0 * k.share)];
            match (k.lane_instructions, k.global_bytes) {
                (Some(i), Some(b)) => row.extend([count(i), bytes(b)]),
                _ => row.push(format!("{:.1}", k.seconds * 1e6)),
            }
            table.row(row);
        }
        write!(f, "{table}")?;
        match &self.reference {
            Some(reference) => writeln!(f, "\n{reference}"),
            None => writeln!(f, "\nreference: not compared (--verify off)"),
        }
    }
}
