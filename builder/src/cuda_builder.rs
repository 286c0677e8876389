//! The second generator: rust-cuda's `cuda_builder`.
//!
//! rust-cuda needs its own nightly, LLVM 7 and a CUDA toolkit, and it is not on crates.io. So it is
//! reached through a package outside the workspace, `builder/cuda-builder`, which this module runs
//! with that nightly. What it compiles is a generated crate that does nothing but link the kernels
//! crate, with the feature `nvvm`; so the kernels crate needs no `cdylib` and
//! no profile of its own. The passes over the text are the same as for the stock generator.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arch::Arch;
use crate::cache::{DirLock, Sum, hash, write_if_changed};
use crate::cargo::Package;
use crate::made::Made;
use crate::output::{Generated, Writer};
use crate::plan::{Backend, Output, Plan};
use crate::process::{clean_command, run};
use crate::{BuildError, MissingPiece, mir, probe, ptx};

/// The nightly that rust-cuda is written for.
pub const CUDA_BUILDER_TOOLCHAIN: &str = "nightly-2026-04-02";
/// The commit of rust-cuda that `builder/cuda-builder` depends on.
pub const CUDA_BUILDER_REVISION: &str = "946c91f080770f30d42d7c706ac8185969274073";
pub(crate) const CUDA_BUILDER_REPOSITORY: &str = "https://github.com/Rust-GPU/rust-cuda";

pub(crate) fn build(plan: &Plan) -> Result<Output, BuildError> {
    let runner = runner_dir();
    let mut missing = probe::missing_for_cuda_builder();
    if !runner.join("Cargo.toml").is_file() {
        missing.push(MissingPiece {
            what: format!("the package {}", runner.display()),
            fix: "depend on warpsmith-builder by path or git; it is not part of the crate on crates.io".to_owned(),
        });
    }
    if !missing.is_empty() {
        return Err(BuildError::CudaBuilderUnavailable { missing });
    }

    if !plan.package.features.contains("nvvm") {
        return Err(BuildError::KernelCrate {
            path: plan.package.manifest.clone(),
            reason: "it has no feature `nvvm`, by which kernels are written for rust-cuda's code generator. Put \
                     `nvvm = [\"warpsmith-device/nvvm\"]` under [features]"
                .to_owned(),
        });
    }

    let cache = plan.cache.join("cuda-builder");
    let _lock = DirLock::acquire(&cache, ".warpsmith.lock", "cuda_builder")?;
    let kernels = write_linking_crate(plan, &cache)?;
    let kept = cache.join("kernels");
    if let Some(problem) = distrusted(&texts_of(&kept)?) {
        // Its cargo would hand a text on that it takes for fresh.
        eprintln!("warpsmith: texts of an earlier build in {} {problem}; everything is compiled anew", kept.display());
        std::fs::remove_dir_all(&kept).map_err(BuildError::io("remove", &kept))?;
    }
    let (mut generated, mut warnings) = (Vec::new(), Vec::new());
    for (arch, _) in &plan.archs {
        let file = kernels.join(format!("{arch}.ptx"));
        let _ = std::fs::remove_file(&file);
        let said = run_one(plan, &runner, &kept, &kernels, *arch, &file);
        for text in texts_of(&kept)? {
            Sum::of_file(&text)?.write_beside(&text)?;
        }
        for warning in said? {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        refuse_counts(plan, &kernels, *arch)?;
        let ptx = std::fs::read_to_string(&file).map_err(BuildError::io("read", &file))?;
        let ptx = ptx::without_moves(&ptx);
        generated.push(Generated { arch: *arch, isa: None, ptx: ptx::compact(&ptx), fresh: false });
    }
    let writer = Writer {
        library: &plan.package.name,
        backend: Backend::CudaBuilder.name(),
        generator: format!("rust-cuda {CUDA_BUILDER_REVISION}, {CUDA_BUILDER_TOOLCHAIN}"),
        out_dir: &plan.out_dir,
        allow_local: &plan.allow_local,
        refuse_local: false,
        cubins: plan.cubins.as_ref(),
    };
    let mut output = writer.write(generated)?;
    warnings.append(&mut output.warnings);
    Ok(Output { warnings, ..output })
}

/// Why kept texts are not handed on; `None`: each is as it was written.
fn distrusted(texts: &[PathBuf]) -> Option<&'static str> {
    let altered: Vec<&PathBuf> = texts.iter().filter(|text| !Sum::stands_beside(text)).collect();
    match altered.iter().any(|text| Sum::noted(text).is_some()) {
        true => Some("are damaged"),
        false if altered.is_empty() => None,
        false => Some("have no checksums: it did not end, or was made by a version that wrote none"),
    }
}

/// The texts that its cargo keeps below a folder; none if it is not there.
fn texts_of(folder: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(BuildError::io("read", folder)(error)),
    };
    let mut texts = Vec::new();
    for entry in entries {
        let path = entry.map_err(BuildError::io("read", folder))?.path();
        if path.is_dir() {
            texts.extend(texts_of(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            texts.push(path);
        }
    }
    Ok(texts)
}

/// The program of `builder/cuda-builder`.
pub(crate) const RUNNER: &str = "warpsmith-cuda-builder";

pub(crate) fn runner_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda-builder")
}

fn run_one(
    plan: &Plan,
    runner: &Path,
    kept: &Path,
    kernels: &Path,
    arch: Arch,
    file: &Path,
) -> Result<Vec<String>, BuildError> {
    eprintln!("warpsmith: rust-cuda compiles `{}` for {arch}", plan.package.name);
    let made = Made::find();
    let mut command = clean_command("rustup");
    command
        // `rustup run` and not `cargo +toolchain`: the CARGO of a build script knows no `+`.
        .args(["run", CUDA_BUILDER_TOOLCHAIN, "cargo", "run", "--release", "--locked", "--manifest-path"])
        .arg(runner.join("Cargo.toml"))
        .arg("--")
        .arg(kernels)
        .arg(format!("compute_{}", arch.sm()))
        .arg(kept)
        .arg(file)
        .args(plan.package.device_packages.iter().flat_map(|name| [name.into(), mir_file(plan, kernels, arch, name)]))
        .current_dir(runner)
        // cuda_builder looks for its code generator in this directory.
        .env("CARGO_TARGET_DIR", made.as_ref().map_or_else(|| kept.with_file_name("runner"), Made::target))
        .env_remove("RUSTUP_TOOLCHAIN")
        // Ours may hold an empty linker script for libcuda.
        .env_remove("CUDA_LIBRARY_PATH");
    environment(&mut command, made.as_ref());
    let output = run(&mut command)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(warnings_in(&said));
    }
    // cuda_builder lets cargo render the compiler's messages on stderr.
    Err(BuildError::Compile { package: plan.package.name.clone(), arch: arch.to_string(), rendered: said.into_owned() })
}

/// The warnings in what cargo printed, each from its headline to the empty line behind it: neither cargo's own nor those of
/// attributes that rust-cuda adds to every crate.
fn warnings_in(said: &str) -> Vec<String> {
    let own = |text: &str| text.contains("\n  --> ") || text.contains("\n --> ") || text.contains("\n   --> ");
    said.split("\n\n")
        .filter_map(|block| {
            Some(&block[block.find("warning: ").filter(|at| *at == 0 || block[..*at].ends_with('\n'))?..])
        })
        .filter(|text| own(text) && !text.contains("<crate attribute>"))
        .map(|text| format!("{text}\n"))
        .collect()
}

/// Where the MIR of a package goes. With other features it is another file, for which cargo compiles anew.
fn mir_file(plan: &Plan, kernels: &Path, arch: Arch, package: &str) -> PathBuf {
    let features = hash(&[&plan.features.join(","), &plan.default_features.to_string()]);
    kernels.join(format!("{package}-{features}-{arch}.mir"))
}

/// Reads in MIR what this generator gets wrong without a word: see [`mir`].
fn refuse_counts(plan: &Plan, kernels: &Path, arch: Arch) -> Result<(), BuildError> {
    let mut problems = Vec::new();
    for package in &plan.package.device_packages {
        let file = mir_file(plan, kernels, arch, package);
        let found = file.with_extension("counts");
        // Written anew only when the package is compiled anew, and large: what was found in it is kept instead.
        if file.exists() {
            let text = std::fs::read_to_string(&file).map_err(BuildError::io("read", &file))?;
            let lines: Vec<String> = mir::counts(&text).iter().map(ToString::to_string).collect();
            write_if_changed(&found, lines.join("\n"))?;
            std::fs::remove_file(&file).map_err(BuildError::io("remove", &file))?;
        }
        let text = std::fs::read_to_string(&found).map_err(BuildError::io("read", &found))?;
        problems.extend(text.lines().map(str::to_owned));
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(BuildError::Miscompiled { library: plan.package.name.clone(), problems }),
    }
}

/// What rust-cuda's build scripts, its compiler and cargo read: the process's own settings before those of the folder.
fn environment(command: &mut Command, made: Option<&Made>) {
    for (name, value) in made.into_iter().flat_map(Made::variables) {
        if std::env::var_os(name).is_none_or(|own| own.is_empty()) {
            command.env(name, value);
        }
    }
    if let Ok(llvm_config) = probe::llvm_config() {
        command.env("LLVM_CONFIG", llvm_config);
    }
    let mut libraries: Vec<PathBuf> = made.into_iter().flat_map(Made::libraries).collect();
    if let Some((root, _)) = probe::cuda_root() {
        libraries.insert(0, root.join("nvvm/lib64"));
        command.env("CUDA_PATH", root);
    }
    libraries.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    if let Ok(joined) = std::env::join_paths(libraries) {
        command.env("LD_LIBRARY_PATH", joined);
    }
}

/// A crate that links the kernels crate into one PTX.
fn write_linking_crate(plan: &Plan, cache: &Path) -> Result<PathBuf, BuildError> {
    let package = &plan.package;
    let dir = cache.join(format!("{}-{}", package.file_stem(), hash(&[&package.manifest.to_string_lossy()])));
    write_if_changed(&dir.join("Cargo.toml"), &linking_manifest(package, &plan.features, plan.default_features)?)?;
    write_if_changed(
        &dir.join("lib.rs"),
        "//! Links the kernels crate; rust-cuda adds `no_std`.\nextern crate kernels as _;\n",
    )?;
    // The versions of the kernels' workspace. Cargo drops what is not needed.
    let lock = package.workspace_root.join("Cargo.lock");
    if let Ok(text) = std::fs::read_to_string(&lock) {
        write_if_changed(&dir.join("Cargo.lock"), &text)?;
    }
    Ok(dir)
}

fn linking_manifest(package: &Package, features: &[String], default_features: bool) -> Result<String, BuildError> {
    let folder = package.manifest.parent().and_then(Path::to_str).ok_or_else(|| BuildError::KernelCrate {
        path: package.manifest.clone(),
        reason: "its path is not UTF-8 and cannot stand in a Cargo.toml".to_owned(),
    })?;
    let mut features = features.to_vec();
    if !features.iter().any(|f| f == "nvvm") {
        features.push("nvvm".to_owned());
    }
    // JSON strings are TOML strings.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let list: Vec<String> = features.iter().map(|f| quoted(f)).collect();
    Ok(format!(
        "[package]\nname = \"warpsmith-linked-kernels\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n\
         [workspace]\n\n\
         [lib]\nname = \"linked_kernels\"\npath = \"lib.rs\"\ncrate-type = [\"cdylib\"]\n\n\
         [dependencies.kernels]\npackage = {}\npath = {}\ndefault-features = {default_features}\nfeatures = [{}]\n\n\
         [profile.release]\nopt-level = 3\ncodegen-units = 1\ndebug = false\noverflow-checks = false\n",
        quoted(&package.name),
        quoted(folder),
        list.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runner_package_pins_what_the_constants_say() {
        let manifest = std::fs::read_to_string(runner_dir().join("Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("rev = \"{CUDA_BUILDER_REVISION}\"")), "{manifest}");
        assert!(manifest.contains(CUDA_BUILDER_REPOSITORY), "{manifest}");
        let toolchain = std::fs::read_to_string(runner_dir().join("rust-toolchain.toml")).unwrap();
        assert!(toolchain.contains(&format!("channel = \"{CUDA_BUILDER_TOOLCHAIN}\"")), "{toolchain}");
    }

    #[test]
    fn texts_of_an_earlier_build_are_told_for_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let text = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, "// a text").unwrap();
            path
        };
        let (whole, bare) = (text("whole.ptx"), text("bare.ptx"));
        Sum::of_file(&whole).unwrap().write_beside(&whole).unwrap();
        let told = |texts: &[&PathBuf]| distrusted(&texts.iter().map(|text| text.to_path_buf()).collect::<Vec<_>>());
        assert_eq!((told(&[]), told(&[&whole])), (None, None));
        assert!(told(&[&whole, &bare]).is_some_and(|problem| problem.contains("no checksums")));
        std::fs::write(&whole, "// a te").unwrap();
        assert_eq!((told(&[&whole]), told(&[&bare, &whole])), (Some("are damaged"), Some("are damaged")));
    }

    #[test]
    fn the_linking_crate_names_package_path_and_features() {
        let package = Package {
            name: "gpu-kernels".to_owned(),
            crate_name: "gpu_kernels".to_owned(),
            manifest: PathBuf::from("/w/my \"x\"/gpu-kernels/Cargo.toml"),
            features: ["nvvm".to_owned(), "extra".to_owned()].into(),
            workspace_root: PathBuf::from("/w"),
            target_directory: PathBuf::from("/w/target"),
            device_crates: Vec::new(),
            device_packages: Vec::new(),
            inputs: Default::default(),
            patches: Vec::new(),
        };
        let text = linking_manifest(&package, &["extra".to_owned()], false).unwrap();
        for line in [
            "package = \"gpu-kernels\"",
            "path = \"/w/my \\\"x\\\"/gpu-kernels\"",
            "default-features = false",
            "features = [\"extra\", \"nvvm\"]",
            "crate-type = [\"cdylib\"]",
            "[workspace]",
        ] {
            assert!(text.lines().any(|l| l == line), "no {line:?} in\n{text}");
        }
    }
}
