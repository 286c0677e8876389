//! The command line: what `clap` parses.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use warpsmith_host::decode::{Activations, KvType, UnknownName};
use warpsmith_host::model::Architecture;

/// Run LLM decode kernels written in Rust, on an NVIDIA GPU or on the software CUDA driver.
///
/// Without a command, `run` decodes with the model that ships with the project.
///
/// Exit codes: 0 success; 1 a driver call, launch or file operation failed; 2 wrong usage; 3 the model or the prompt cannot
/// be used; 4 the engine that was asked for is absent; 5 the result differs from the CPU reference; 6 doctor found
/// something that stops builds or runs, a tool of NVIDIA's is missing, or ptxas refused a kernel; 7 check or watch found errors; 8 a
/// kernel is over its budget. `check -- PROGRAM` and `profile -- PROGRAM` end with the program's own code if that is not 0.
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
    /// Make a project: a kernel with contract, reference, test, bench and host program, which builds and passes at once.
    New(NewArgs),
    /// Add a kernel to a project: its source, test and bench, and the lines that name them; nothing is overwritten.
    Add(AddArgs),
    /// After every save: build, test under the checks, and show errors, counters and their difference to the last save.
    Watch(WatchArgs),
    /// Decode: print the engine, stream the text, and close with a table per kernel and a verdict against an f64 reference.
    Run(RunArgs),
    /// Talk with a model that was trained for it: a message a line, replies as they come, until the input ends (Ctrl-D).
    Chat(ChatArgs),
    /// Say what is found (toolchain, components, ptxas, driver, device), what is missing, and the fix.
    Doctor(DoctorArgs),
    /// List every kernel, of the project here or those that ship: arguments, block, shared memory; registers and spills if ptxas
    /// is found.
    Kernels(KernelsArgs),
    /// Check kernels on the software driver: the project's as its tests launch them, those that ship in all their shapes
    /// against their references, or any CUDA program.
    Check(CheckArgs),
    /// Count what a kernel does, per launch and per line, by Nsight Compute's names; project it onto a GPU's roofline.
    Profile(ProfileArgs),
    /// Run kernels on the device and on a simulated one, and compare the outputs bit for bit: the project's as its benchmarks
    /// launch them, those that ship in all their shapes.
    Compare(CompareArgs),
    /// Show a kernel's code beside the Rust that it is from: PTX, machine code or Rust, with registers, spills and counters.
    Inspect(InspectArgs),
    /// Hold kernels to their budgets, and name what binds: the project's to those in its Cargo.toml, those that ship to issue
    /// slots a weight by machine code and by count, bytes moved and on the way, at six widths, and to no local memory. What is known
    /// to be missed is a list: worse by more than 2 % fails, and so does what is met and still listed.
    Budget(BudgetArgs),
    /// Find the fastest activations by architecture, format and shape: the table that decoders choose by.
    Tune(TuneArgs),
    /// Print what makes a shell complete this command's options: `warpsmith completions bash > FILE`.
    Completions(CompletionsArgs),
    /// Write the manual pages, one for each command.
    Man(ManArgs),
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

/// A choice of the library by its name.
fn one_of<T>(
    all: &[T],
    name: fn(T) -> &'static str,
    about: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> + use<T>
where
    T: FromStr<Err = UnknownName> + Copy + Send + Sync + 'static,
{
    let values = all.iter().map(|choice| PossibleValue::new(name(*choice)).help(about(*choice)));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<T>())
}

/// How `tune` finds times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TuneBy {
    /// By time where a GPU is there, unless --gpu or --check ask for the model.
    #[default]
    Auto,
    /// Measured on this machine's GPU, for its architecture.
    Time,
    /// Instructions and bytes over the rates of data sheets.
    Model,
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

/// The kernel that a new project begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Template {
    /// y = a x + y: a thread an element.
    #[default]
    Elementwise,
    /// The sum of a vector: shuffles and shared memory.
    Reduction,
    /// A matrix times a vector: a warp a row, 16 bytes a load.
    Gemv,
    /// A matrix times a matrix: tiles in shared memory.
    Matmul,
}

/// Arguments of `new`.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// Folder of the project; it must not exist yet, or be empty.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The kernel to begin with.
    #[arg(long, value_enum, default_value_t)]
    pub template: Template,
    /// What generates the kernels' code: rustc's own generator, or rust-cuda's.
    #[arg(long, value_enum, default_value_t)]
    pub backend: Generator,
    /// Depend on warpsmith's crates in this checkout [default: the checkout that this program was built in, if it still
    /// exists]
    #[arg(long, value_name = "REPO", conflicts_with = "version")]
    pub path: Option<PathBuf>,
    /// Depend on the published crates of this version [default, where there is no checkout: this program's]
    #[arg(long, value_name = "V")]
    pub version: Option<String>,
    /// Name of the package [default: the folder's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// The kernel's name, such as row_scale.
    #[arg(value_name = "KERNEL")]
    pub kernel: String,
    /// What it is made from.
    #[arg(long, value_enum, default_value_t)]
    pub template: Template,
    /// Folder of the project [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// Package that builds the kernels, if several do.
    #[arg(short, long, value_name = "PACKAGE")]
    pub package: Option<String>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// What generates the kernels' code of a new project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Generator {
    /// rustc's own
    #[default]
    Stock,
    /// rust-cuda's, whose toolchain `builder/cuda-builder/setup` makes
    #[value(name = "cuda_builder")]
    CudaBuilder,
}

/// Arguments of `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Run only the tests that have this in their names, which those of a kernel should have.
    #[arg(value_name = "KERNEL")]
    pub kernel: Option<String>,
    /// Folder of the project [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// Package whose tests are run [default: workspace.metadata.warpsmith.watch.package, or what cargo takes]
    #[arg(short, long, value_name = "PACKAGE")]
    pub package: Option<String>,
    /// Its integration test that is run [default: workspace.metadata.warpsmith.watch.test, or all, and unit tests]
    #[arg(long, value_name = "NAME")]
    pub test: Option<String>,
    /// Do one round and end with its verdict.
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object a round, each in a line, instead of text.
    #[arg(long)]
    pub json: bool,
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

/// How a model is run: options of `run` and `chat`.
#[derive(Clone, Debug, Args)]
pub struct EngineArgs {
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
    #[arg(long, default_value_t, value_parser = one_of(&KvType::ALL, KvType::name, KvType::about))]
    pub kv: KvType,
    /// Cheapest activations that weights may be multiplied with; formats without kernels for them take more exact ones.
    #[arg(long, default_value_t, value_parser = one_of(&Activations::ALL, Activations::name, Activations::about))]
    pub activations: Activations,
    /// Take those activations only in matrices for which the table of `warpsmith tune` has them as faster.
    #[arg(long)]
    pub tuned: bool,
    /// Let the blocks of each launch of a step begin, and ask for weights, while the launch before ends; ordinary launches before
    /// sm_90.
    #[arg(long)]
    pub programmatic: bool,
    /// Do a layer in one launch, whose blocks wait for one another, where its weights and the cache allow that; the report says
    /// for how many layers they did.
    #[arg(long)]
    pub persistent: bool,
    /// Let prompts attend on tensor cores, with queries and weights rounded to f16, where the device and the cache allow that:
    /// faster, and no longer the bits that feeding token by token gives.
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

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Whose kernels a command means.
#[derive(Debug, Default, Args)]
pub struct Place {
    /// Folder of the project whose kernels are meant [default: the current one, if a project with kernels is there]
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// Take the kernels that ship with warpsmith, in a project with kernels of its own too.
    #[arg(long, conflicts_with = "project")]
    pub shipped: bool,
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
    /// Assemble every kernel for every architecture that is claimed and that this build has code for; needs ptxas.
    #[arg(long)]
    pub assemble: bool,
    /// Write the kernels of this build there: manifest.json and a PTX file an architecture. `cargo bench` compares another
    /// build with them (WARPSMITH_BENCH_AGAINST).
    #[arg(long, value_name = "DIR", conflicts_with_all = ["assemble", "filter"])]
    pub export: Option<PathBuf>,
    /// Whose kernels are meant.
    #[command(flatten)]
    pub place: Place,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Kernels to check [default: all]; of a project, the tests that have one of these in their names, or all if none has.
    #[arg(value_name = "KERNEL")]
    pub kernels: Vec<String>,
    /// What to check for: all, or some of init,races,sync. Bounds, alignment and deadlock are always checked.
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub checks: String,
    /// Run under N schedules, seeds --seed and up, and compare the outputs bit for bit.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seeds: u64,
    /// Order of blocks, warps and lanes; 0 is the reference order.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// One shape instead of all, e.g. rows=3,cols=256.
    #[arg(long, value_name = "SIZES")]
    pub shape: Option<String>,
    /// Architecture of the simulated device.
    #[arg(long, value_name = "SM", default_value = "90", value_parser = parse_sm)]
    pub sm: u32,
    /// Accept findings: RULE, or RULE:KERNEL.
    #[arg(long, value_name = "RULE[:KERNEL]")]
    pub allow: Vec<String>,
    /// A file of such entries, one a line.
    #[arg(long, value_name = "FILE")]
    pub allow_file: Option<PathBuf>,
    /// Whose kernels are meant.
    #[command(flatten)]
    pub place: Place,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
    /// Print annotations for GitHub Actions as well.
    #[arg(long, conflicts_with = "json")]
    pub github: bool,
    /// A program and its arguments, to be run on the software driver under the checks.
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Kernels to compare [default: all]
    #[arg(value_name = "KERNEL")]
    pub kernels: Vec<String>,
    /// One shape instead of all, e.g. rows=3,cols=256.
    #[arg(long, value_name = "SIZES")]
    pub shape: Option<String>,
    /// CUDA driver of the device; overrides WARPSMITH_DRIVER.
    #[arg(long, value_enum)]
    pub driver: Option<DriverChoice>,
    /// Device ordinal.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: u32,
    /// Architecture of the simulated device [default: the device's]
    #[arg(long, value_name = "SM", value_parser = parse_sm)]
    pub sm: Option<u32>,
    /// Whose kernels are meant.
    #[command(flatten)]
    pub place: Place,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// Kernel to profile; of a project, all if none is named.
    #[arg(value_name = "KERNEL")]
    pub kernel: Option<String>,
    /// Its sizes, e.g. rows=1024,cols=4096 [default: those of a layer of a small model]
    #[arg(long, value_name = "SIZES")]
    pub shape: Option<String>,
    /// GPU of the projection: t4, a100, a10, rtx3090, l4, l40s, rtx4090, h100, h200, b200, rtx5090.
    #[arg(long, value_name = "GPU", default_value = "h200")]
    pub gpu: String,
    /// Architecture of the simulated device [default: the GPU's]
    #[arg(long, value_name = "SM", value_parser = parse_sm)]
    pub sm: Option<u32>,
    /// Lines to list.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub lines: usize,
    /// Whose kernels are meant.
    #[command(flatten)]
    pub place: Place,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
    /// A program and its arguments, to be run on the software driver and profiled.
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Which code `inspect` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// As the compiler of the kernels wrote it.
    Ptx,
    /// As ptxas made it.
    Sass,
    /// As its author wrote it.
    Rust,
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A kernel that ships, or one of the project in the current folder, as the last round of `watch` left it.
    #[arg(value_name = "KERNEL")]
    pub kernel: String,
    /// List PTX, with the Rust that it is from beside it [the default]
    #[arg(long)]
    pub ptx: bool,
    /// List machine code, with the Rust that it is from beside it; needs ptxas and nvdisasm.
    #[arg(long, conflicts_with = "ptx")]
    pub sass: bool,
    /// List the Rust lines, with the counters of all that they became.
    #[arg(long, conflicts_with_all = ["ptx", "sass"])]
    pub rust: bool,
    /// Take the kernel from a PTX file, of whatever compiler.
    #[arg(long, value_name = "FILE")]
    pub ptx_file: Option<PathBuf>,
    /// Sizes of the launch that is profiled, e.g. rows=1024,cols=4096; for kernels that ship.
    #[arg(long, value_name = "SIZES", conflicts_with = "ptx_file")]
    pub shape: Option<String>,
    /// Folder of the project [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// Architecture of the machine code, and of the simulated device.
    #[arg(long, value_name = "SM", default_value = "90", value_parser = parse_sm)]
    pub sm: u32,
    /// Print one JSON object instead of text: PTX and Rust lines, and machine code with --sass.
    #[arg(long)]
    pub json: bool,
}

impl InspectArgs {
    /// What is listed.
    pub fn view(&self) -> View {
        match (self.sass, self.rust) {
            (true, _) => View::Sass,
            (_, true) => View::Rust,
            _ => View::Ptx,
        }
    }
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Which shell [default: the one that SHELL names]
    #[arg(value_enum)]
    pub shell: Option<clap_complete::Shell>,
    /// Print one JSON object, with shell and script, instead of the script.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where the pages go, such as ~/.local/share/man/man1; it is made if it is not there.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print one JSON object, with the files, instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `budget`.
#[derive(Debug, Args)]
pub struct BudgetArgs {
    /// Only families or kernels whose name contains this, e.g. Q1_0, gemv_q4_k, attention or prefill.
    #[arg(value_name = "FILTER")]
    pub filter: Option<String>,
    /// Rows of weights that are run, 128 unless told; the figures are a weight's. With other rows the list of known misses does
    /// not count. Attention has shapes of its own.
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
    /// Columns; else 1024, 2048, 2560, 3072, 4096 and 12288, each of which has to hold.
    #[arg(long, value_name = "N")]
    pub cols: Option<usize>,
    /// Write what is missed, with its figures, into the list of known misses, src/commands/budget/known.json.
    #[arg(long, conflicts_with_all = ["rows", "json", "sass"])]
    pub write: bool,
    /// Print the hot loop of each kernel, instruction by instruction.
    #[arg(long, conflicts_with = "json")]
    pub sass: bool,
    /// Whose kernels are meant.
    #[command(flatten)]
    pub place: Place,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `tune`.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// How times are found.
    #[arg(long, value_enum, default_value_t)]
    pub by: TuneBy,
    /// By model, and only for this GPU, e.g. h200; else one GPU for each architecture that is claimed.
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,
    /// Device that is measured.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "gpu")]
    pub device: u32,
    /// Write the rows into the table in the source, gpu-kernels/src/gemv/tuned.rs.
    #[arg(long)]
    pub write: bool,
    /// Fail if the table that is built in says otherwise; by model, of the architectures whose rows are.
    #[arg(long, conflicts_with = "write")]
    pub check: bool,
    /// Print one JSON object, with the times of all shapes, instead of text.
    #[arg(long)]
    pub json: bool,
}

/// What a model may be, and what else is to be said of it.
fn model_help(more: &str) -> String {
    let names = Architecture::ALL.map(Architecture::name);
    format!("GGUF model (architectures {}){more}", names.join(", "))
}

/// `enable_thinking=false`.
fn parse_variable(text: &str) -> Result<(String, warpsmith_host::chat::Value), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not NAME=VALUE"))?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((name.to_owned(), value))
}

/// `90`, `sm_90`, `sm_90a`, of an architecture that the software driver has figures of.
fn parse_sm(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("sm_").unwrap_or(text).trim_end_matches(['a', 'f']);
    let known = |sm: &u32| warpsmith_arch::Gpu::of(*sm).is_some();
    digits
        .parse()
        .ok()
        .filter(known)
        .ok_or_else(|| format!("`{text}` is no architecture that the software driver knows"))
}

/// What a command's options are if none is given.
pub fn defaults<A: clap::Args>() -> A {
    #[derive(clap::Parser)]
    struct Bare<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }
    <Bare<A> as clap::Parser>::parse_from([""]).args
}
