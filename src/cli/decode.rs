//! Options of the commands that decode: `run`, `chat` and `bench-model`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use warpsmith_host::collectives::Transport;
use warpsmith_host::decode::{Activations, KvType, Split, UnknownName};
use warpsmith_host::gpu_kernels::format::Format;
use warpsmith_host::model::{Architecture, ModelShape};

use super::DriverChoice;

/// How much of the run is compared with the CPU reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Verify {
    /// As many positions, from the first, as a few seconds allow; says how many.
    #[default]
    Auto,
    /// Every position, however long it takes.
    Full,
    /// None.
    Off,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[arg(long, value_name = "M.gguf", help = model_help(" [default: models/warpsmith-2m-q8_0.gguf, which ships with the project]"))]
    pub model: Option<PathBuf>,
    /// Text to continue.
    #[arg(long, value_name = "TEXT", conflicts_with = "tokens")]
    pub prompt: Option<String>,
    /// Token ids to continue, e.g. 72,105,44.
    #[arg(long, value_name = "IDS", value_delimiter = ',', num_args = 1)]
    pub tokens: Option<Vec<u32>>,
    /// Tokens to generate.
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 32)]
    pub count: usize,
    /// How the model is run.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// How tokens are chosen, and when they end.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Write the logits of every position that is fed, f32 little-endian [positions, vocab].
    #[arg(long, value_name = "FILE")]
    pub dump_logits: Option<PathBuf>,
    /// How much to compare with the f64 reference on the CPU.
    #[arg(long, value_enum, default_value_t)]
    pub verify: Verify,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench-model`.
#[derive(Debug, Args)]
pub struct BenchModelArgs {
    #[arg(long, value_name = "SHAPE|M.gguf", help = format!("{}, of which weights are random [default: models/warpsmith-2m-q8_0.gguf, which ships with the project]", projected_help()))]
    pub model: Option<String>,
    /// Format of all weights of a shape, e.g. Q1_0, Q4_K or Q8_0.
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Take only so many layers of a shape, to see sooner what one of them takes.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub layers: Option<usize>,
    /// Lengths of prompts, e.g. 128,512; 0: none.
    #[arg(short, long, value_name = "N", value_delimiter = ',', num_args = 1, default_value = "512")]
    pub prompt: Vec<usize>,
    /// Numbers of tokens to generate, e.g. 32,128; 0: none.
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', num_args = 1, default_value = "128")]
    pub generate: Vec<usize>,
    /// Sequences that generate together, e.g. 4,16: each number of tokens for each of them, from a pool of pages.
    #[arg(short, long, value_name = "N", value_delimiter = ',', num_args = 1, value_parser = positive)]
    pub batch: Vec<usize>,
    /// Tokens that are in the cache before each test, as a prompt that is not timed.
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub depth: usize,
    /// How often each is timed, behind two runs that are not.
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = positive)]
    pub repetitions: usize,
    /// How the model is run.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `chat`.
#[derive(Debug, Args)]
pub struct ChatArgs {
    #[arg(long, value_name = "M.gguf", help = model_help(", with a chat template or with --template"))]
    pub model: PathBuf,
    /// What the model is told before the first message.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Take the chat template from a file (Jinja, as in tokenizer_config.json) instead of the model's.
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,
    /// A variable of the template, e.g. enable_thinking=false; the value is JSON, or text.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub variables: Vec<(String, warpsmith_host::chat::Value)>,
    /// Most tokens of a reply.
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 1024)]
    pub count: usize,
    /// How the model is run.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// How tokens are chosen, and when they end.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Print one JSON object a turn, each in a line, instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `project`.
#[derive(Debug, Args)]
pub struct ProjectionArgs {
    #[arg(long, value_name = "SHAPE|M.gguf", help = projected_help())]
    pub model: String,
    /// Format of all weights of a shape, e.g. Q1_0, Q4_K or Q8_0.
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// GPU that is projected onto.
    #[arg(long, value_name = "NAME", default_value = "h200")]
    pub gpu: String,
    /// Rates of that GPU, as `warpsmith-rates --json` measured them, in place of those that are assumed.
    #[arg(long, value_name = "FILE")]
    pub rates: Option<PathBuf>,
    /// Positions that the last token attends to, its own among them.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = positive)]
    pub context: usize,
    /// Sequences that decode together: a token of each in the step.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive, conflicts_with = "prompt")]
    pub sequences: usize,
    /// Tokens of a prompt that the step takes, the last of them at that position.
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "persistent")]
    pub prompt: Option<usize>,
    /// Attend to the prompt by the kernel that rounds queries and weights to f16, and have delta nets take it in chunks.
    #[arg(long, requires = "prompt")]
    pub fast_prefill: bool,
    /// How a step is done.
    #[command(flatten)]
    pub step: StepArgs,
    /// List the instructions at which the warps of each launch wait longest, with their lines of source; so many of each, 8 unless told.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "8", value_parser = positive, conflicts_with = "json")]
    pub waits: Option<usize>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// How a step is done: options of `run`, `chat` and `project`.
#[derive(Clone, Debug, Args)]
pub struct StepArgs {
    /// Type of the KV cache.
    #[arg(long, default_value_t, value_parser = one_of(&KvType::ALL, KvType::name, KvType::alias, KvType::about))]
    pub kv: KvType,
    /// Cheapest activations that weights may be multiplied with (`exact`: f32, `fastest`: int8); formats without kernels for them
    /// take more exact ones.
    #[arg(long, default_value_t, value_parser = one_of(&Activations::ALL, Activations::name, Activations::alias, Activations::about))]
    pub activations: Activations,
    /// Take those activations only in matrices for which the table of `warpsmith tune` has them as faster.
    #[arg(long)]
    pub tuned: bool,
    /// Begin each launch of a step only when the one before has ended. Without this its blocks begin, and ask for weights, while
    /// that one ends, from sm_90 on.
    #[arg(long)]
    pub no_programmatic: bool,
    /// Use the same code for all launches. Without this, on a GPU, the graph of steps of one token has kernels in which shapes and flags
    /// are constants, which are compiled when it is captured.
    #[arg(long)]
    pub no_specialise: bool,
    /// Do all layers of a step in one launch, whose blocks wait for one another, or in few, where weights, activations and the cache
    /// allow that; the report says for how many layers they did, and why not for others.
    #[arg(long)]
    pub persistent: bool,
}

/// Several processes that have a model together: options of `run`, `chat` and `bench-model`.
#[derive(Clone, Debug, Args)]
pub struct ProcessArgs {
    /// Run as one of several processes that have the model together, started alike by torchrun, mpirun or srun, whose variables say which one
    /// this is; or as the one that is named, e.g. 0/2@127.0.0.1:29501. The first reads and prints. Each has the device of its number on the
    /// machine, or the one that --device names.
    #[arg(long, value_name = "RANK/RANKS@HOST:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "devices")]
    pub processes: Option<String>,
    /// What each process has.
    #[arg(long, default_value_t, requires = "processes", value_parser = one_of(&Split::ALL, Split::name, Split::alias, Split::about))]
    pub split: Split,
    /// What processes exchange data by.
    #[arg(long, default_value_t, requires = "processes", value_parser = one_of(&Transport::ALL, Transport::name, Transport::alias, Transport::about))]
    pub transport: Transport,
}

/// How a model is run: options of `run`, `chat` and `bench-model`.
#[derive(Clone, Debug, Args)]
pub struct EngineArgs {
    /// CUDA driver to use; overrides WARPSMITH_DRIVER.
    #[arg(long, value_enum)]
    pub driver: Option<DriverChoice>,
    /// Device ordinal [default: 0].
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Device ordinals, e.g. 0,1: each holds its share of the model, and all of them compute every token together; they have to reach each
    /// other's memory. The software driver has as many as WARPSMITH_DEVICES says.
    #[arg(long, value_name = "N,N", value_delimiter = ',', num_args = 1, conflicts_with = "device")]
    pub devices: Vec<u32>,
    /// Launch every kernel of every step instead of replaying a captured graph.
    #[arg(long)]
    pub eager: bool,
    /// With which other processes.
    #[command(flatten)]
    pub processes: ProcessArgs,
    /// How a step is done.
    #[command(flatten)]
    pub step: StepArgs,
    /// Let prompts attend with queries and weights rounded to f16, where the device has tensor cores and the cache allows that:
    /// faster, and no longer the bits that feeding token by token gives. Delta nets take prompts in chunks.
    #[arg(long)]
    pub fast_prefill: bool,
    /// Context length: positions that the KV cache holds [default: what `run` needs, 4096 for `chat`, at most the model's]
    #[arg(long, value_name = "N")]
    pub context: Option<usize>,
}

/// How tokens are chosen: options of `run` and `chat`.
#[derive(Clone, Debug, Args)]
pub struct SamplingArgs {
    /// Divide logits by this and draw the token; 0 takes the most likely one.
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub temperature: f32,
    /// Draw among so many of the most likely tokens; 0: all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub top_k: u32,
    /// Draw among the most likely tokens that have this share of the probability.
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub top_p: f32,
    /// Divide positive logits of tokens that the text has by this, and multiply negative ones.
    #[arg(long, value_name = "R", default_value_t = 1.0)]
    pub penalty: f32,
    /// Seed of the draws.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// End before this text; may be given several times.
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Go on after the model's tokens for the end of a text or a turn.
    #[arg(long)]
    pub ignore_eos: bool,
}

/// A choice of the library by its name.
fn one_of<T>(
    all: &[T],
    name: fn(T) -> &'static str,
    alias: fn(T) -> Option<&'static str>,
    about: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> + use<T>
where
    T: FromStr<Err = UnknownName> + Copy + Send + Sync + 'static,
{
    let values =
        all.iter().map(|choice| PossibleValue::new(name(*choice)).aliases(alias(*choice)).help(about(*choice)));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<T>())
}

/// What a model may be, and what else is to be said of it.
fn model_help(more: &str) -> String {
    let names = Architecture::ALL.map(Architecture::name);
    format!("GGUF model, or folder of Hugging Face with safetensors (architectures {}){more}", names.join(", "))
}

/// What may be projected.
fn projected_help() -> String {
    let names: Vec<&str> = ModelShape::all().map(|shape| shape.name).collect();
    format!("Shape of a published model ({}), or a GGUF model or folder of Hugging Face", names.join(", "))
}

/// A number from 1 on.
fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("`{text}` is no number from 1 on"))
}

/// `enable_thinking=false`.
fn parse_variable(text: &str) -> Result<(String, warpsmith_host::chat::Value), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not NAME=VALUE"))?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((name.to_owned(), value))
}
