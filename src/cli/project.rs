//! Options of the commands for a project of one's own: `new`, `add`, `watch`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

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
