//! What can go wrong in a build of kernels, with the remedy in the text.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a build of kernels failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The kernels crate cannot be used as it is.
    #[error("kernels crate {}: {reason}", path.display())]
    KernelCrate {
        /// The directory that was given.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An architecture that is unknown or cannot be built for.
    #[error("architecture `{text}`: {reason}")]
    Arch {
        /// The architecture as it was given.
        text: String,
        /// Why it is refused.
        reason: String,
    },
    /// A setting (method or environment variable) that cannot be followed.
    #[error("{setting}: {reason}")]
    Setting {
        /// The method or variable.
        setting: String,
        /// Why it cannot be followed.
        reason: String,
    },
    /// The compiler is older than the flags that correct device code needs.
    #[error(
        "rustc {found} is too old for kernels: at least {needed} is needed, because older releases lack \
         `-Cpanic=immediate-abort`, with which the kernels are compiled. Run `rustup update`, or put \
         `channel = \"{needed}.0\"` into rust-toolchain.toml"
    )]
    RustcTooOld {
        /// The release that was found.
        found: String,
        /// The oldest that works.
        needed: String,
    },
    /// The source of `core` is in none of the usual places and could not be fetched.
    #[error(
        "the Rust source (component rust-src) of rustc {version} is missing; kernels need it to compile `core` for the GPU.\n\
         Looked in:\n{}\n{tried}\
         Fix, with rustup:   rustup component add rust-src --toolchain {toolchain}\n\
         Fix, with Debian:   apt install rust-src",
        searched.iter().map(|p| format!("  {}", p.display())).collect::<Vec<_>>().join("\n")
    )]
    RustSrcMissing {
        /// Release of the compiler.
        version: String,
        /// Toolchain name for rustup.
        toolchain: String,
        /// The directories that were looked in.
        searched: Vec<PathBuf>,
        /// What the attempt to fetch it said; empty or a line with its end.
        tried: String,
    },
    /// A program could not be started.
    #[error("cannot run `{program}`: {source}. It must be installed and on PATH")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program failed.
    #[error("{what} failed ({status}):\n{stderr}")]
    Command {
        /// What was being done.
        what: String,
        /// Exit status.
        status: String,
        /// What it said.
        stderr: String,
    },
    /// A program answered something that could not be read.
    #[error("{what}: {reason}")]
    Answer {
        /// Whose answer.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The kernels do not compile. Displays as the compiler printed it.
    #[error("{rendered}")]
    Compile {
        /// Package with the error.
        package: String,
        /// Architecture that was compiled for.
        arch: String,
        /// The compiler's text, unchanged.
        rendered: String,
    },
    /// The PTX breaks a rule. All findings of one architecture together.
    #[error("the PTX of `{library}` for {arch} is refused:\n{}", problems.iter().map(|p| format!("  - {p}")).collect::<Vec<_>>().join("\n"))]
    Ptx {
        /// The kernels crate.
        library: String,
        /// Architecture that was compiled for.
        arch: String,
        /// One sentence for each finding.
        problems: Vec<String>,
    },
    /// The kernels use what the chosen generator miscompiles. All places together.
    #[error("`{library}` is refused, because rust-cuda would compile it wrong:\n{}", problems.iter().map(|p| format!("  - {p}")).collect::<Vec<_>>().join("\n"))]
    Miscompiled {
        /// The kernels crate.
        library: String,
        /// One sentence for each place.
        problems: Vec<String>,
    },
    /// Reading or writing failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A part of the build cache is not what was written, and stays so after it was made anew.
    #[error(
        "{} in the build cache is damaged, also after it was made anew: is the disk full or failing? Remove the folder, or \
         name another one in WARPSMITH_CACHE_DIR", path.display()
    )]
    Damaged {
        /// The file or the folder.
        path: PathBuf,
    },
    /// The `cuda_builder` backend lacks pieces. Names every one.
    #[error("the cuda_builder backend cannot run here. Missing:\n{}\nThe stock backend needs none of these: unset WARPSMITH_BACKEND", missing.iter().map(|m| m.to_string()).collect::<Vec<_>>().join("\n"))]
    CudaBuilderUnavailable {
        /// Each missing piece with its fix.
        missing: Vec<MissingPiece>,
    },
}

/// The text of `Display`: what a `main` that returns the error, or an `unwrap`, prints.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A piece of a toolchain that is missing, with the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPiece {
    /// What is missing and how that was found out.
    pub what: String,
    /// The command or step that fixes it.
    pub fix: String,
}

impl fmt::Display for MissingPiece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  - {}\n    fix: {}", self.what, self.fix)
    }
}

impl BuildError {
    /// Prints the error for a build script and ends the process with code 1.
    ///
    /// A compile error is printed as the compiler rendered it, everything else behind `error: `.
    pub fn exit(self) -> ! {
        match &self {
            BuildError::Compile { package, arch, rendered } => {
                eprintln!("{}\nerror: kernels of `{package}` do not compile for {arch}", rendered.trim_end());
            }
            other => eprintln!("error: {other}"),
        }
        std::process::exit(1)
    }

    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> BuildError {
        let path = path.into();
        move |source| BuildError::Io { action, path, source }
    }
}
