//! What a build is asked for, and what it leaves: the data that the entry point and both code generators share.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use warpsmith_image::Manifest;

use crate::BuildError;
use crate::arch::Arch;
use crate::cargo::Package;
use crate::cubin::Cubins;
use crate::toolchain::Toolchain;

/// Which code generator compiles the kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// rustc's own NVPTX backend. Needs `rust-src` and nothing else.
    #[default]
    Stock,
    /// rust-cuda's `cuda_builder`. Needs its own nightly, LLVM 7 and a CUDA toolkit.
    CudaBuilder,
}

impl Backend {
    /// As `WARPSMITH_BACKEND` and the manifest name it.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Stock => warpsmith_image::STOCK,
            Backend::CudaBuilder => warpsmith_image::CUDA_BUILDER,
        }
    }
}

impl FromStr for Backend {
    type Err = BuildError;

    fn from_str(text: &str) -> Result<Backend, BuildError> {
        match text {
            warpsmith_image::STOCK => Ok(Backend::Stock),
            warpsmith_image::CUDA_BUILDER => Ok(Backend::CudaBuilder),
            other => Err(BuildError::Setting {
                setting: format!("backend `{other}`"),
                reason: "known are `stock` and `cuda_builder`".to_owned(),
            }),
        }
    }
}

/// One PTX text that a build left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Architecture: 80 for `sm_80`.
    pub sm: u32,
    /// PTX ISA version.
    pub isa: (u32, u32),
    /// The file.
    pub path: PathBuf,
    /// Nothing had to be compiled for it.
    pub fresh: bool,
}

/// What a build left.
#[derive(Clone, Debug)]
pub struct Output {
    /// The PTX texts, by rising architecture.
    pub images: Vec<Image>,
    /// What was found out about the kernels.
    pub manifest: Manifest,
    /// The manifest as a file.
    pub manifest_path: PathBuf,
    /// `<library>.rs`: one expression that holds manifest and texts.
    pub rust_path: PathBuf,
    /// Warnings of the compiler and of the lints on the PTX.
    pub warnings: Vec<String>,
}

/// Major and minor number of a PTX version.
pub(crate) type Isa = (u32, u32);

/// The settings after the environment had its say.
pub(crate) struct Plan {
    pub(crate) toolchain: Toolchain,
    pub(crate) package: Package,
    pub(crate) archs: Vec<(Arch, Isa)>,
    pub(crate) line_info: bool,
    pub(crate) features: Vec<String>,
    pub(crate) default_features: bool,
    pub(crate) allow_local: Vec<String>,
    pub(crate) cubins: Option<Cubins>,
    pub(crate) out_dir: PathBuf,
    pub(crate) cache: PathBuf,
    pub(crate) speaker: Speaker,
}

/// Tells cargo what to watch and what to warn of, if it listens.
pub(crate) struct Speaker {
    pub(crate) in_build_script: bool,
}

impl Speaker {
    pub(crate) fn watch<'a>(&self, paths: impl IntoIterator<Item = &'a Path>) {
        if self.in_build_script {
            for path in paths {
                println!("cargo:rerun-if-changed={}", path.display());
            }
        }
    }

    pub(crate) fn watch_env(&self, names: &[&str]) {
        if self.in_build_script {
            for name in names {
                println!("cargo:rerun-if-env-changed={name}");
            }
        }
    }

    /// Tells `include_kernels!` where the image of this library is. A name that no build script told is an error that the
    /// macro words.
    pub(crate) fn name_image(&self, output: &Output) {
        if let (true, Some(stem)) = (self.in_build_script, output.rust_path.file_stem()) {
            println!("cargo:rustc-env=WARPSMITH_KERNELS_{}={}", stem.display(), output.rust_path.display());
        }
    }

    pub(crate) fn warn(&self, text: &str) {
        if self.in_build_script {
            for line in text.trim_end().lines() {
                println!("cargo:warning={line}");
            }
        }
    }
}
