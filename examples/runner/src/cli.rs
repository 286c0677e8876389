//! Options.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::{Args, Parser};
use warpsmith_host::collectives::{Error, Transport, World};
use warpsmith_host::decode::{Activations, KvType, Split, UnknownName};
use warpsmith_host::gpu_kernels::gemv::MAX_COLUMNS;

/// Serves a GGUF model, or a folder of Hugging Face: requests are decoded together, one graph launch for a token of each.
///
///   warpsmith-runner --model M.gguf                       serves on http://127.0.0.1:8080
///   warpsmith-runner --model M.gguf "One" "Another"       continues these prompts and ends
///
/// docs/serving.md lists endpoints, fields, limits and metrics.
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment)]
pub struct Cli {
    /// GGUF model, or folder of Hugging Face: config.json, tokenizer.json and safetensors files.
    #[arg(long, value_name = "MODEL")]
    pub model: PathBuf,
    /// Prompts to continue, instead of a server.
    #[arg(value_name = "PROMPT")]
    pub prompts: Vec<String>,
    /// Requests that are decoded together, 1 to 1024.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = at_most(1, MAX_COLUMNS.into()))]
    pub batch: usize,
    /// Positions that a request may use [default: the model's context]
    #[arg(long, value_name = "N", value_parser = at_most(1, 1 << 30))]
    pub context: Option<usize>,
    /// Tokens of prompts in a step, beside those of the requests that are decoded.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = at_most(1, 1 << 30))]
    pub prefill: usize,
    /// Let prompts attend with queries and weights rounded to f16, where the device has tensor cores and the cache allows that. Delta nets
    /// take prompts in chunks.
    #[arg(long)]
    pub fast_prefill: bool,
    /// Guesses of the next tokens of each request that a step verifies, where its text repeats itself: the same tokens in fewer steps.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = at_most(0, 32))]
    pub draft: usize,
    /// Positions that all requests have together, in pages that are kept for prompts that begin alike [default: what memory allows, and
    /// at most twice what the requests can use]
    #[arg(long, value_name = "N", value_parser = at_most(1, 1 << 40))]
    pub pool: Option<usize>,
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
    /// Device ordinal.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: u32,
    /// Device ordinals, e.g. 0,1, that run the model together, each with its share of it.
    #[arg(long, value_name = "N,N", value_delimiter = ',', num_args = 1, conflicts_with = "device")]
    pub devices: Vec<u32>,
    #[command(flatten)]
    pub processes: Processes,
    /// Tokens to generate at most, where a request does not say.
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 256, value_parser = at_most(1, 1 << 30))]
    pub count: usize,
    /// Logits are divided by it, where a request does not say; 0 takes the most likely token.
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub temperature: f32,
    #[command(flatten)]
    pub server: Server,
}

/// Several processes that have the model together.
#[derive(Args, Debug)]
#[command(next_help_heading = "Processes")]
pub struct Processes {
    /// Run as one of several processes, started alike by torchrun, mpirun or srun, whose variables say which one this is; or as the one that is
    /// named, e.g. 0/2@127.0.0.1:29501. The first serves. Each has the device of its number on the machine.
    #[arg(long, value_name = "RANK/RANKS@HOST:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with_all = ["device", "devices"])]
    pub processes: Option<String>,
    /// What each process has: its share of every layer, or layers of its own.
    #[arg(long, default_value_t, requires = "processes", value_parser = one_of(&Split::ALL, Split::name, Split::alias, Split::about))]
    pub split: Split,
    /// What processes exchange data by.
    #[arg(long, default_value_t, requires = "processes", value_parser = one_of(&Transport::ALL, Transport::name, Transport::alias, Transport::about))]
    pub transport: Transport,
}

impl Processes {
    /// This process among the others; nothing, where there are none.
    pub fn world(&self) -> Result<Option<World>, Error> {
        match self.processes.as_deref() {
            None => Ok(None),
            Some("") => World::from_environment().map(Some),
            Some(place) => place.parse().map(Some),
        }
    }
}

/// What is for the server alone.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server")]
pub struct Server {
    /// Address to serve on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: String,
    /// Name of the model in requests and answers [default: the one in the file, or the file's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Chat template, instead of the model's.
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    /// Requests that may wait for the engine; others are answered 429.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_most(1, 1 << 20))]
    pub queue: usize,
    /// Connections that are served at once; others wait.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = at_most(1, 1 << 20))]
    pub max_connections: usize,
    /// Bytes of a request's header; longer ones are answered 431.
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10, value_parser = at_most(8 << 10, 1 << 20))]
    pub max_header: usize,
    /// Bytes of a request's body; longer ones are answered 413.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = at_most(1, 1 << 30))]
    pub max_body: usize,
    /// Time for a header to arrive; ends idle connections, too.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub header_timeout: Duration,
    /// Time for a body to arrive.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub body_timeout: Duration,
    /// Time for a client to take what is sent to it, before it is left.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub write_timeout: Duration,
    /// Time for running requests to end after SIGTERM or SIGINT; a second signal ends them at once.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub shutdown_timeout: Duration,
    /// Threads that turn texts into tokens.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = at_most(1, 64))]
    pub threads: usize,
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

fn at_most(least: u64, most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..=most)
}

/// Seconds, up to a day.
fn seconds(text: &str) -> Result<Duration, String> {
    let expected = || "expected seconds, 0 to 86400, such as 30 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| expected())?;
    if !(0.0..=86400.0).contains(&seconds) {
        return Err(expected());
    }
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}
