//! The entry point: which crate, for which architectures, by which generator.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::cache::target_dir_of;
use crate::cargo::{self, Package};
use crate::cubin::{self, Cubins};
use crate::output::{Writer, absolute};
use crate::plan::{Backend, Isa, Output, Plan, Speaker};
use crate::toolchain::Toolchain;
use crate::{BuildError, cuda_builder, dependency, ptxas, stock};

/// A crate of kernels and how to build it.
///
/// In a build script the output goes to `OUT_DIR` and cargo is told what to watch. Elsewhere give
/// [`out_dir`](KernelCrate::out_dir).
#[derive(Clone, Debug)]
pub struct KernelCrate {
    place: Place,
    archs: Vec<String>,
    isa: Vec<(String, (u32, u32))>,
    backend: Backend,
    line_info: bool,
    features: Vec<String>,
    default_features: bool,
    allow_local: Vec<String>,
    cubins: Vec<String>,
    out_dir: Option<PathBuf>,
    cache_dir: Option<PathBuf>,
    quiet: bool,
}

/// How the kernels crate is found.
#[derive(Clone, Debug)]
enum Place {
    /// Relative to the folder of the calling package.
    Path(PathBuf),
    /// The `links` name of a direct dependency.
    Dependency(String),
}

impl KernelCrate {
    /// The package in the folder `path`, relative to the folder of the calling package.
    pub fn new(path: impl Into<PathBuf>) -> KernelCrate {
        KernelCrate::at(Place::Path(path.into()))
    }

    /// A package that the calling package depends on, wherever cargo keeps its source: for kernels that are published as
    /// a crate of their own. That crate declares `links = "NAME"` in its Cargo.toml, and its build script is
    /// `println!("cargo:root={}", env!("CARGO_MANIFEST_DIR"))`.
    pub fn dependency(links: impl Into<String>) -> KernelCrate {
        KernelCrate::at(Place::Dependency(links.into()))
    }

    fn at(place: Place) -> KernelCrate {
        KernelCrate {
            place,
            archs: Vec::new(),
            isa: Vec::new(),
            backend: Backend::default(),
            line_info: true,
            features: Vec::new(),
            default_features: true,
            allow_local: Vec::new(),
            cubins: Vec::new(),
            out_dir: None,
            cache_dir: None,
            quiet: false,
        }
    }

    /// Architectures such as `sm_80`. A GPU runs the text of the newest one that is not newer than
    /// itself. Default: `sm_75`, `sm_80`, `sm_90`.
    pub fn archs<S: Into<String>>(mut self, archs: impl IntoIterator<Item = S>) -> KernelCrate {
        self.archs = archs.into_iter().map(Into::into).collect();
        self
    }

    /// PTX ISA version for one architecture, if its lowest (7.4 or what the architecture needs) does
    /// not have an instruction that a kernel uses. Newer versions need newer drivers. Stock backend.
    pub fn isa(mut self, arch: impl Into<String>, version: (u32, u32)) -> KernelCrate {
        self.isa.push((arch.into(), version));
        self
    }

    /// Which code generator to use. Default: [`Backend::Stock`].
    pub fn backend(mut self, backend: Backend) -> KernelCrate {
        self.backend = backend;
        self
    }

    /// Whether the PTX says which source line an instruction comes from (`.loc`). Costs no register
    /// and no instruction. Default: yes. Stock backend; `cuda_builder` never writes lines.
    pub fn line_info(mut self, yes: bool) -> KernelCrate {
        self.line_info = yes;
        self
    }

    /// Features of the kernels crate to enable.
    pub fn features<S: Into<String>>(mut self, features: impl IntoIterator<Item = S>) -> KernelCrate {
        self.features = features.into_iter().map(Into::into).collect();
        self
    }

    /// Whether the kernels crate's default features are on. Default: yes.
    pub fn default_features(mut self, yes: bool) -> KernelCrate {
        self.default_features = yes;
        self
    }

    /// Kernels that may use local memory. In all others an array that did not stay in registers is
    /// an error; a warning with `cuda_builder`, whose LLVM 7 unrolls fewer loops. The same as `"allow_local": true` in a kernel's metadata.
    pub fn allow_local<S: Into<String>>(mut self, kernels: impl IntoIterator<Item = S>) -> KernelCrate {
        self.allow_local = kernels.into_iter().map(Into::into).collect();
        self
    }

    /// Targets that the program is to carry machine code for, beside the PTX: `sm_80`, which runs on devices 8.x from 8.0 on, or
    /// `sm_90a`, which runs on 9.0 alone. A device gets machine code that runs on it, without compiling anything, and PTX if there
    /// is none or its driver refuses it. The code is made of the text of the newest [architecture](KernelCrate::archs) that is
    /// not newer, by `ptxas`, which has to be found then. Default: none.
    pub fn cubins<S: Into<String>>(mut self, targets: impl IntoIterator<Item = S>) -> KernelCrate {
        self.cubins = targets.into_iter().map(Into::into).collect();
        self
    }

    /// Where the output goes. Default: `OUT_DIR`.
    pub fn out_dir(mut self, dir: impl Into<PathBuf>) -> KernelCrate {
        self.out_dir = Some(dir.into());
        self
    }

    /// Where compiled `core` and the kernels' intermediate files live. Default: `warpsmith` in the
    /// target directory.
    pub fn cache_dir(mut self, dir: impl Into<PathBuf>) -> KernelCrate {
        self.cache_dir = Some(dir.into());
        self
    }

    /// Prints no `cargo:` lines even in a build script.
    pub fn quiet(mut self) -> KernelCrate {
        self.quiet = true;
        self
    }

    /// Builds. The calling build script ends with [`BuildError::exit`] if this fails.
    pub fn build(&self) -> Result<Output, BuildError> {
        let out_dir_var = std::env::var_os("OUT_DIR").map(PathBuf::from);
        let speaker = Speaker { in_build_script: !self.quiet && self.out_dir.is_none() && out_dir_var.is_some() };
        speaker.watch_env(&[
            "WARPSMITH_BACKEND",
            "WARPSMITH_RUST_CUDA",
            "WARPSMITH_ARCHS",
            cubin::VARIABLE,
            "WARPSMITH_CACHE_DIR",
            "WARPSMITH_RUST_SRC",
            "RUSTUP_TOOLCHAIN",
            "DOCS_RS",
        ]);
        let dir = self.resolve_path()?;
        // Before anything can fail, so that a repaired Cargo.toml is noticed.
        speaker.watch([dir.join("Cargo.toml").as_path(), dir.join("src").as_path()]);

        let backend = match std::env::var("WARPSMITH_BACKEND") {
            Ok(name) if !name.is_empty() => name.parse()?,
            _ => self.backend,
        };
        let archs = self.resolve_archs()?;
        let out_dir = match (&self.out_dir, &out_dir_var) {
            (Some(dir), _) | (None, Some(dir)) => absolute(dir)?,
            (None, None) => {
                return Err(BuildError::Setting {
                    setting: "KernelCrate::out_dir".to_owned(),
                    reason: "OUT_DIR is not set, so this is no build script; say where the output goes".to_owned(),
                });
            }
        };
        let toolchain = Toolchain::discover(&dir)?;
        if speaker.in_build_script && std::env::var_os("DOCS_RS").is_some_and(|value| !value.is_empty()) {
            return self.without_kernels(&toolchain, &dir, &out_dir, backend, &speaker);
        }
        let cubins = self.resolve_cubins(&archs, &speaker)?;
        let unpacked_in = self.unpacked_in(out_dir_var.as_deref(), &out_dir)?;
        let (dir, patches) = dependency::source(dir, &unpacked_in)?;
        let package = cargo::package(&toolchain, &dir, patches)?;
        speaker.watch(package.inputs.iter().map(PathBuf::as_path));
        if let Some(unknown) = self.features.iter().find(|f| !package.features.contains(*f) && !f.contains('/')) {
            return Err(BuildError::KernelCrate { path: dir, reason: format!("it has no feature `{unknown}`") });
        }
        let cache = self.resolve_cache(out_dir_var.as_deref(), &package)?;
        let plan = Plan {
            toolchain,
            package,
            archs,
            line_info: self.line_info,
            features: self.features.clone(),
            default_features: self.default_features,
            allow_local: self.allow_local.clone(),
            cubins,
            out_dir,
            cache,
            speaker,
        };
        let output = match backend {
            Backend::Stock => stock::build(&plan)?,
            Backend::CudaBuilder => cuda_builder::build(&plan)?,
        };
        for warning in &output.warnings {
            plan.speaker.warn(warning);
        }
        plan.speaker.name_image(&output);
        Ok(output)
    }

    /// What a host crate needs to be documented: an image of no kernel for no architecture. Loading it names this cause.
    fn without_kernels(
        &self,
        toolchain: &Toolchain,
        dir: &Path,
        out_dir: &Path,
        backend: Backend,
        speaker: &Speaker,
    ) -> Result<Output, BuildError> {
        let library = cargo::package_name(toolchain, dir)?;
        speaker.warn(&format!("DOCS_RS is set: the kernels of `{library}` are not compiled, only documented"));
        let output = Writer {
            library: &library,
            backend: backend.name(),
            generator: "none, because DOCS_RS was set".to_owned(),
            out_dir,
            allow_local: &[],
            refuse_local: true,
            cubins: None,
        }
        .write(Vec::new())?;
        speaker.name_image(&output);
        Ok(output)
    }

    fn resolve_path(&self) -> Result<PathBuf, BuildError> {
        let joined = match &self.place {
            Place::Dependency(links) => dependency::root(links)?,
            Place::Path(path) => {
                let base = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
                absolute(&base.join(path))?
            }
        };
        let dir = joined.canonicalize().map_err(|error| BuildError::KernelCrate {
            path: joined.clone(),
            reason: format!("{error}; the path is relative to the folder of the calling package"),
        })?;
        if !dir.join("Cargo.toml").is_file() {
            return Err(BuildError::KernelCrate { path: dir, reason: "there is no Cargo.toml".to_owned() });
        }
        Ok(dir)
    }

    fn resolve_archs(&self) -> Result<Vec<(Arch, Isa)>, BuildError> {
        let names: Vec<String> = match std::env::var("WARPSMITH_ARCHS") {
            Ok(list) if !list.trim().is_empty() => list.split(',').map(|a| a.trim().to_owned()).collect(),
            _ if self.archs.is_empty() => ["sm_75", "sm_80", "sm_90"].map(str::to_owned).to_vec(),
            _ => self.archs.clone(),
        };
        let archs: BTreeSet<Arch> = names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
        let mut overrides = Vec::new();
        for (name, version) in &self.isa {
            let arch: Arch = name.parse()?;
            if *version < arch.lowest_isa() {
                let (major, minor) = arch.lowest_isa();
                return Err(BuildError::Setting {
                    setting: format!("KernelCrate::isa({name:?}, {version:?})"),
                    reason: format!("{arch} is compiled for PTX ISA {major}.{minor} or newer"),
                });
            }
            overrides.push((arch, *version));
        }
        Ok(archs
            .into_iter()
            .map(|arch| {
                let chosen = overrides.iter().rev().find(|(a, _)| *a == arch);
                (arch, chosen.map_or(arch.lowest_isa(), |(_, version)| *version))
            })
            .collect())
    }

    fn resolve_cubins(&self, archs: &[(Arch, Isa)], speaker: &Speaker) -> Result<Option<Cubins>, BuildError> {
        let variable = std::env::var(cubin::VARIABLE).ok();
        let cubins = Cubins::of(variable.as_deref(), &self.cubins, archs, || {
            speaker.watch_env(&["WARPSMITH_PTXAS"]);
            ptxas::find()
        })?;
        speaker.watch(cubins.iter().map(Cubins::assembler));
        Ok(cubins)
    }

    fn resolve_cache(&self, out_dir: Option<&Path>, package: &Package) -> Result<PathBuf, BuildError> {
        match self.known_cache(out_dir)? {
            Some(cache) => Ok(cache),
            None => Ok(package.target_directory.join("warpsmith")),
        }
    }

    /// Where a package from a registry is copied to, which has no target directory of its own to speak of.
    fn unpacked_in(&self, out_dir_var: Option<&Path>, out_dir: &Path) -> Result<PathBuf, BuildError> {
        Ok(self.known_cache(out_dir_var)?.unwrap_or_else(|| out_dir.to_path_buf()))
    }

    /// The cache, as far as settings and the outer build tell it.
    fn known_cache(&self, out_dir: Option<&Path>) -> Result<Option<PathBuf>, BuildError> {
        if let Some(dir) = std::env::var_os("WARPSMITH_CACHE_DIR").filter(|d| !d.is_empty()) {
            return absolute(Path::new(&dir)).map(Some);
        }
        if let Some(dir) = &self.cache_dir {
            return absolute(dir).map(Some);
        }
        let target = std::env::var("TARGET").ok();
        let of_outer_build = out_dir.and_then(|dir| target_dir_of(dir, target.as_deref()));
        Ok(of_outer_build.map(|dir| dir.join("warpsmith")))
    }
}
