//! Options of the commands about kernels: what they are, cost, and get wrong.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::DriverChoice;

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
    /// An architecture that --assemble leaves out, as something else assembles for it; more of them by more of these.
    #[arg(long, value_name = "SM", requires = "assemble")]
    pub except: Vec<String>,
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
    /// Counters of that text's launches: what a program wrote to WARPSMITH_REPORT with WARPSMITH_PROFILE=1.
    #[arg(long, value_name = "FILE", requires = "ptx_file")]
    pub counters: Option<PathBuf>,
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
    /// Rates of that GPU, as `warpsmith-rates --json` measured them, in place of those that are assumed.
    #[arg(long, value_name = "FILE", requires = "gpu", conflicts_with_all = ["write", "check"])]
    pub rates: Option<PathBuf>,
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
