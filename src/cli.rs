//! The command line: what `clap` parses.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Run LLM decode kernels written in Rust, on an NVIDIA GPU or on the software CUDA driver.
///
/// Without a command, `run` decodes with the model that ships with the project.
///
/// Exit codes: 0 success; 1 a driver call, launch or file operation failed; 2 wrong usage; 3 the model or the prompt cannot
/// be used; 4 the engine that was asked for is absent; 5 the result differs from the CPU reference; 6 doctor found
/// something that stops the build, or ptxas refused a kernel.
#[derive(Debug, Parser)]
#[command(name = "warpsmith", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Decode: print the engine, stream the text, and close with a table per kernel and a verdict against an f64 reference.
    Run(RunArgs),
    /// Say what is found (toolchain, components, ptxas, driver, device), what is missing, and the fix.
    Doctor(DoctorArgs),
    /// List every kernel: family, variants, arguments, block, shared memory; registers and spills if ptxas is found.
    Kernels(KernelsArgs),
}

/// Which CUDA driver to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DriverChoice {
    /// The real driver if it loads and has a device, else the software one.
    #[default]
    Auto,
    /// The real driver, or an error.
    Cuda,
    /// The software driver.
    Software,
}

impl From<DriverChoice> for warpsmith_driver_api::Choice {
    fn from(choice: DriverChoice) -> Self {
        match choice {
            DriverChoice::Auto => Self::Auto,
            DriverChoice::Cuda => Self::Cuda,
            DriverChoice::Software => Self::Software,
        }
    }
}

/// Type of the KV cache's elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KvChoice {
    /// Half precision: half the bytes; keys and values are rounded.
    #[default]
    F16,
    /// Single precision.
    F32,
}

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
#[derive(Debug, Default, Args)]
pub struct RunArgs {
    /// GGUF model (architectures qwen3, llama) [default: the tiny Q4_0 model that ships with the project]
    #[arg(long, value_name = "M.gguf")]
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
    /// CUDA driver to use; overrides WARPSMITH_DRIVER.
    #[arg(long, value_enum)]
    pub driver: Option<DriverChoice>,
    /// Device ordinal.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: u32,
    /// Launch every kernel of every step instead of replaying a captured graph.
    #[arg(long)]
    pub eager: bool,
    /// Type of the KV cache.
    #[arg(long, value_enum, default_value_t)]
    pub kv: KvChoice,
    /// Context length: positions that the KV cache holds [default: what the run needs, at most the model's]
    #[arg(long, value_name = "N")]
    pub context: Option<usize>,
    /// Go on after the model's end-of-text token.
    #[arg(long)]
    pub ignore_eos: bool,
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

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `kernels`.
#[derive(Debug, Args)]
pub struct KernelsArgs {
    /// Only kernels whose name or family contains this.
    #[arg(value_name = "FILTER")]
    pub filter: Option<String>,
    /// Architecture for registers and spills.
    #[arg(long, value_name = "SM", default_value = "sm_90")]
    pub arch: String,
    /// Assemble every kernel for every architecture that the project claims; needs ptxas.
    #[arg(long)]
    pub assemble: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}
