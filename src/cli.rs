//! The command line: what `clap` parses.

mod decode;
mod kernels;
mod project;

pub use decode::*;
pub use kernels::*;
pub use project::*;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

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
    /// Time a model: tokens a second of a prompt (pp512) and of generation (tg128), as llama-bench does.
    BenchModel(BenchModelArgs),
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
    /// Project a decode step of a model onto a GPU that is not here: which of memory, issue, latency and edges binds each launch,
    /// the sum, and what it assumes. Not a measurement.
    Project(ProjectionArgs),
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

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
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

/// What a command's options are if none is given.
pub fn defaults<A: clap::Args>() -> A {
    #[derive(clap::Parser)]
    struct Bare<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }
    <Bare<A> as clap::Parser>::parse_from([""]).args
}
