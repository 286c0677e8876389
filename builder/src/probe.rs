//! What a build would find: for `warpsmith doctor`. Looks only; builds and fetches nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cuda_builder::{CUDA_BUILDER_REPOSITORY, CUDA_BUILDER_REVISION, CUDA_BUILDER_TOOLCHAIN};
use crate::made::{self, Made};
use crate::process::{clean_command, find_on_path, probe_stdout};
use crate::toolchain::{SourceSearch, TESTED_RUSTC, Toolchain};
use crate::{Arch, Backend, MissingPiece, cuda_builder, nvdisasm, ptxas};

const PATIENCE: Duration = Duration::from_secs(10);

/// Who needs a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every build.
    Required,
    /// Nobody; more is shown where it is there.
    Optional,
    /// The `cuda_builder` backend.
    CudaBuilder,
}

/// How a piece was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeState {
    /// It is there.
    Ok,
    /// It is not.
    Missing,
    /// It is there, but may not do.
    Warning,
}

/// One piece of the toolchain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What was looked for.
    pub name: String,
    /// Who needs it.
    pub scope: Scope,
    /// Whether it is there.
    pub state: ProbeState,
    /// Where or which it is, or what is wrong.
    pub detail: String,
    /// The step that fixes it; empty if nothing is to be fixed.
    pub fix: String,
}

impl Probe {
    fn new(name: &str, scope: Scope, found: Result<String, String>, fix: &str) -> Probe {
        let (state, detail, fix) = match found {
            Ok(detail) => (ProbeState::Ok, detail, String::new()),
            Err(detail) => (ProbeState::Missing, detail, fix.to_owned()),
        };
        Probe { name: name.to_owned(), scope, state, detail, fix }
    }
}

/// Looks for everything that a build of kernels can use. Takes up to some seconds.
pub fn probe() -> Vec<Probe> {
    let mut probes = required();
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let chosen = settings(variable);
    let with_cuda_builder =
        chosen.iter().any(|p| p.name == "WARPSMITH_BACKEND" && p.detail == Backend::CudaBuilder.name());
    probes.extend(chosen);
    let found = ptxas::find();
    let disassembler = nvdisasm::find(found.as_ref());
    // A tool that a variable names is looked for nowhere else.
    let absent = |name: &str| match variable(name) {
        Some(path) => format!("{name} names {}, which does not run", path.to_string_lossy()),
        None => "not found".to_owned(),
    };
    probes.push(Probe::new(
        "ptxas",
        Scope::Optional,
        found.map(|p| format!("release {} at {}", p.release(), p.path().display())).ok_or_else(|| absent("WARPSMITH_PTXAS")),
        "pip install nvidia-cuda-nvcc in an active virtual environment, or install a CUDA toolkit; or set WARPSMITH_PTXAS",
    ));
    probes.push(Probe::new(
        "nvdisasm",
        Scope::Optional,
        disassembler
            .map(|p| format!("release {} at {}", p.release(), p.path().display()))
            .ok_or_else(|| absent("WARPSMITH_NVDISASM")),
        "pip install nvidia-cuda-nvdisasm in an active virtual environment, or install a CUDA toolkit; or set WARPSMITH_NVDISASM",
    ));
    probes.extend(cuda_builder().into_iter().map(|probe| match with_cuda_builder {
        true => Probe { scope: Scope::Required, ..probe },
        false => probe,
    }));
    probes
}

/// The variables that a build reads, as far as they are set: a value that makes no sense stops it.
fn settings(variable: impl Fn(&str) -> Option<OsString>) -> Vec<Probe> {
    let mut probes = Vec::new();
    let mut add = |name: &str, read: &dyn Fn(&str) -> Result<String, String>, fix: &str| {
        if let Some(value) = variable(name) {
            let found = value.to_str().ok_or_else(|| "it is not UTF-8".to_owned()).and_then(read);
            probes.push(Probe::new(name, Scope::Required, found, fix));
        }
    };
    let backend = |text: &str| text.parse().map(|b: Backend| b.name().to_owned()).map_err(|e| e.to_string());
    add("WARPSMITH_BACKEND", &backend, "unset it, or set it to stock or cuda_builder");
    let archs = |text: &str| {
        let named = text.split(',').map(|a| a.trim().parse::<Arch>().map_err(|e| e.to_string()));
        named.collect::<Result<Vec<_>, _>>().map(|_| text.to_owned())
    };
    add("WARPSMITH_ARCHS", &archs, "unset it, or list architectures, as in sm_75,sm_90");
    let cubins = |text: &str| crate::cubin::listed(text).map(|_| text.to_owned()).map_err(|e| e.to_string());
    add(crate::cubin::VARIABLE, &cubins, "unset it, set it to off, or list targets, as in sm_80,sm_90a");
    let cache = |text: &str| {
        // The folder that is there already, in which the build makes the rest.
        let there = Path::new(text).ancestors().find(|dir| dir.exists());
        let dir = there.filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match tempfile_in(dir) {
            Ok(()) => Ok(text.to_owned()),
            Err(error) => Err(format!("{text}: nothing can be written in {}: {error}", dir.display())),
        }
    };
    add("WARPSMITH_CACHE_DIR", &cache, "unset it, or name a folder that can be written");
    probes
}

/// Whether a file can be made there; it is gone at once.
fn tempfile_in(dir: &Path) -> std::io::Result<()> {
    let file = dir.join(format!(".warpsmith-probe-{}", std::process::id()));
    std::fs::File::create_new(&file)?;
    std::fs::remove_file(&file)
}

fn required() -> Vec<Probe> {
    let mut probes = Vec::new();
    let here = std::env::current_dir().unwrap_or_default();
    let (major, minor) = *TESTED_RUSTC.start();
    let update = format!("rustup toolchain install {major}.{minor}.0 --component rust-src");
    match Toolchain::discover(&here) {
        Err(error) => probes.push(Probe::new("rustc", Scope::Required, Err(error.to_string()), &update)),
        Ok(toolchain) => {
            let name = format!("rustc {}", toolchain.release);
            let mut rustc = match toolchain.check_release() {
                Ok(_) => Probe::new("rustc", Scope::Required, Ok(name), ""),
                Err(error) => Probe::new("rustc", Scope::Required, Err(error.to_string()), &update),
            };
            if let Ok(Some(warning)) = toolchain.check_release() {
                rustc = Probe { state: ProbeState::Warning, detail: warning, fix: update.clone(), ..rustc };
            }
            probes.push(rustc);
            let release = toolchain.release.clone();
            let search = SourceSearch {
                explicit: std::env::var_os("WARPSMITH_RUST_SRC").map(PathBuf::from),
                sysroot: toolchain.sysroot,
                debian: PathBuf::from("/usr/src"),
                toolchain: std::env::var("RUSTUP_TOOLCHAIN").unwrap_or_else(|_| release.clone()),
                release,
                rustup: None,
            };
            let (absent, fix) = match &search.explicit {
                Some(path) => (
                    format!("WARPSMITH_RUST_SRC names {}, which holds no core/src/lib.rs", path.display()),
                    "unset WARPSMITH_RUST_SRC, or name the folder `library` of rustc's source".to_owned(),
                ),
                None => (
                    "the source of `core` was not found".to_owned(),
                    format!("rustup component add rust-src --toolchain {}", search.toolchain),
                ),
            };
            let found = search.find().map(|dir| dir.display().to_string()).ok_or(absent);
            probes.push(Probe::new("rust-src", Scope::Required, found, &fix));
        }
    }
    probes.push(match cfg!(windows) {
        true => {
            let detail = "not looked for: rustc finds Visual Studio's by itself";
            Probe::new("C linker", Scope::Required, Ok(detail.to_owned()), "")
        }
        false => linker(find_on_path),
    });
    probes
}

/// rustc calls `cc`, unless cargo is told of another one.
fn linker(find: impl Fn(&str) -> Option<PathBuf>) -> Probe {
    let found = find("cc").map(|path| path.display().to_string()).ok_or_else(|| "no `cc` on PATH".to_owned());
    let fix = "apt install build-essential, or the compiler package of your system";
    let probe = Probe::new("C linker", Scope::Required, found, fix);
    match ["clang", "gcc"].iter().find_map(|name| find(name)) {
        Some(other) if probe.state == ProbeState::Missing => Probe {
            state: ProbeState::Warning,
            detail: format!("no `cc` on PATH, which rustc calls; {} is there", other.display()),
            fix: "name it in .cargo/config.toml: linker = \"clang\" under [target.x86_64-unknown-linux-gnu], or install `cc`"
                .to_owned(),
            ..probe
        },
        _ => probe,
    }
}

/// The pieces of the `cuda_builder` backend that are missing.
pub(crate) fn missing_for_cuda_builder() -> Vec<MissingPiece> {
    cuda_builder()
        .into_iter()
        .filter(|p| p.state == ProbeState::Missing)
        .map(|p| MissingPiece { what: format!("{}: {}", p.name, p.detail), fix: p.fix })
        .collect()
}

fn cuda_builder() -> Vec<Probe> {
    let mut probes = pieces();
    // One command makes all of it; a warning is about a piece that somebody chose.
    let setup = cuda_builder::runner_dir().join("setup");
    for probe in probes.iter_mut().filter(|p| p.state == ProbeState::Missing && setup.is_file()) {
        probe.fix = format!("{} makes all of it; or {}", setup.display(), probe.fix);
    }
    let name = "toolchain by builder/cuda-builder/setup";
    probes.extend(Made::find().map(|made| {
        let there = made.target().join("release").join(cuda_builder::RUNNER);
        let found = match there.is_file() {
            true => Ok(made.dir.display().to_string()),
            false => Err(format!("{} is not complete: {} is missing", made.dir.display(), there.display())),
        };
        Probe::new(name, Scope::CudaBuilder, found, &format!("run {} again", setup.display()))
    }));
    probes
}

fn pieces() -> Vec<Probe> {
    let mut probes = Vec::new();
    let mut add = |name: &str, found: Result<String, String>, fix: &str| {
        probes.push(Probe::new(name, Scope::CudaBuilder, found, fix));
    };
    let rustup = find_on_path("rustup").is_some();
    let ask_rustup =
        |args: &[&str]| rustup.then(|| probe_stdout(clean_command("rustup").args(args), PATIENCE)).flatten();

    let toolchains = ask_rustup(&["toolchain", "list"]).unwrap_or_default();
    let toolchain = toolchains
        .lines()
        .find(|line| line.starts_with(CUDA_BUILDER_TOOLCHAIN))
        .map(|line| line.split_whitespace().next().unwrap_or(line).to_owned());
    let install = format!(
        "rustup toolchain install {CUDA_BUILDER_TOOLCHAIN} --component rust-src --component rustc-dev --component llvm-tools"
    );
    let absent = if rustup { "rustup has no such toolchain" } else { "there is no rustup" };
    add(CUDA_BUILDER_TOOLCHAIN, toolchain.clone().ok_or_else(|| absent.to_owned()), &install);

    let components = match &toolchain {
        Some(_) => ask_rustup(&["component", "list", "--installed", "--toolchain", CUDA_BUILDER_TOOLCHAIN]),
        None => None,
    }
    .unwrap_or_default();
    for component in ["rust-src", "rustc-dev", "llvm-tools"] {
        let found = components.lines().find(|line| line.starts_with(component)).map(str::to_owned);
        add(
            &format!("{component} of {CUDA_BUILDER_TOOLCHAIN}"),
            found.ok_or_else(|| "not installed".to_owned()),
            &format!("rustup component add {component} --toolchain {CUDA_BUILDER_TOOLCHAIN}"),
        );
    }

    add(
        "llvm-config of LLVM 7",
        llvm_config().map(|p| p.display().to_string()),
        "install LLVM 7.1 and set LLVM_CONFIG to its llvm-config",
    );
    add(
        "libclang",
        libclang()
            .map(|p| p.display().to_string())
            .ok_or_else(|| "bindings are generated with it; not found".to_owned()),
        "apt install libclang-dev, or set LIBCLANG_PATH",
    );
    match cuda_root() {
        Some((root, release)) => {
            let detail = format!("CUDA {} at {}", release.as_deref().unwrap_or("(unknown release)"), root.display());
            add("CUDA toolkit 12.9 with libnvvm.so.4", Ok(detail), "");
            if release.is_none_or(|r| !r.starts_with("12.9"))
                && let Some(last) = probes.last_mut()
            {
                last.state = ProbeState::Warning;
                last.fix = "rust-cuda was tried with CUDA 12.9; set CUDA_PATH to it if the build fails".to_owned();
            }
        }
        None => add(
            "CUDA toolkit 12.9 with libnvvm.so.4",
            Err("no directory with include/cuda.h, nvvm/libdevice/libdevice.10.bc and nvvm/lib64/libnvvm.so.4"
                .to_owned()),
            "install CUDA 12.9 and set CUDA_PATH to it",
        ),
    }
    probes.push(git_access());
    probes
}

/// `LLVM_CONFIG` or `llvm-config`, if it is of LLVM 7.
pub(crate) fn llvm_config() -> Result<PathBuf, String> {
    let explicit = made::variable("LLVM_CONFIG").map(PathBuf::from);
    let candidates: Vec<PathBuf> = match explicit {
        Some(path) => vec![path],
        None => ["llvm-config-7", "llvm-config"].iter().filter_map(|name| find_on_path(name)).collect(),
    };
    let mut others = Vec::new();
    for path in candidates {
        match probe_stdout(Command::new(&path).arg("--version"), PATIENCE) {
            Some(version) if version.trim().starts_with("7.") => return Ok(path),
            Some(version) => others.push(format!("{} is {}", path.display(), version.trim())),
            None => others.push(format!("{} does not run", path.display())),
        }
    }
    Err(if others.is_empty() { "not on PATH, and LLVM_CONFIG is not set".to_owned() } else { others.join("; ") })
}

fn libclang() -> Option<PathBuf> {
    let is_libclang = |path: &Path| {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        // libclang.so, libclang.so.1, libclang-14.so.1, libclang.dylib; not libclang-cpp.so.14.
        name.starts_with("libclang.")
            || name.strip_prefix("libclang-").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let within = |dir: &Path| -> Option<PathBuf> {
        std::fs::read_dir(dir)
            .ok()?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| is_libclang(path) && path.extension().is_none_or(|e| e != "a"))
    };
    let mut dirs: Vec<PathBuf> = made::variable("LIBCLANG_PATH").map(PathBuf::from).into_iter().collect();
    dirs.extend(["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"].map(PathBuf::from));
    dirs.extend(std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().filter_map(|entry| {
        entry.file_name().to_string_lossy().starts_with("llvm-").then(|| entry.path().join("lib"))
    }));
    dirs.iter().find_map(|dir| within(dir))
}

/// The CUDA toolkit that rust-cuda's build scripts would take, with its release if it says one.
pub(crate) fn cuda_root() -> Option<(PathBuf, Option<String>)> {
    let by_variable =
        ["CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"].iter().filter_map(|n| made::variable(n)).map(PathBuf::from);
    let usual = ["/usr/lib/cuda", "/usr/local/cuda", "/opt/cuda", "/usr/local/cuda-12.9"].map(PathBuf::from);
    let root = by_variable.chain(usual).find(|root| {
        ["include/cuda.h", "nvvm/libdevice/libdevice.10.bc", "nvvm/lib64/libnvvm.so.4"]
            .iter()
            .all(|file| root.join(file).exists())
    })?;
    let release = std::fs::read_to_string(root.join("version.json"))
        .ok()
        .and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok())
        .and_then(|json| Some(json.get("cuda")?.get("version")?.as_str()?.to_owned()));
    Some((root, release))
}

fn git_access() -> Probe {
    let short = CUDA_BUILDER_REVISION.get(..7).unwrap_or(CUDA_BUILDER_REVISION);
    let name = format!("rust-cuda at {short}");
    let fetched = cargo_home().and_then(|home| {
        let repositories = std::fs::read_dir(home.join("git/checkouts")).ok()?;
        repositories
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("rust-cuda-"))
            .map(|entry| entry.path().join(short))
            .find(|path| path.is_dir())
    });
    let found = match fetched {
        Some(path) => Ok(format!("fetched, {}", path.display())),
        None => {
            let mut command = clean_command("git");
            command.env("GIT_TERMINAL_PROMPT", "0").args(["ls-remote", "--exit-code", CUDA_BUILDER_REPOSITORY, "HEAD"]);
            match probe_stdout(&mut command, PATIENCE) {
                Some(_) => Ok(format!("{CUDA_BUILDER_REPOSITORY} answers")),
                None => Err(format!("not fetched yet, and {CUDA_BUILDER_REPOSITORY} does not answer to git")),
            }
        }
    };
    Probe::new(
        &name,
        Scope::CudaBuilder,
        found,
        "give this machine access to github.com, or run `cargo fetch` in builder/cuda-builder where there is access and copy $CARGO_HOME/git",
    )
}

fn cargo_home() -> Option<PathBuf> {
    let explicit = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    explicit.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_stops_a_build_is_named_and_so_is_a_linker_that_rustc_does_not_call() {
        let dir = tempfile::tempdir().unwrap();
        let (good, file) = (dir.path().join("a/b"), dir.path().join("file"));
        std::fs::write(&file, "").unwrap();
        let found = |name: &str, value: &std::ffi::OsStr| {
            let mut probes = settings(|asked| (asked == name).then(|| value.to_owned()));
            assert_eq!(probes.len(), 1, "{name}");
            probes.remove(0)
        };
        for (name, value) in [
            ("WARPSMITH_BACKEND", "stock".as_ref()),
            ("WARPSMITH_BACKEND", "cuda_builder".as_ref()),
            ("WARPSMITH_ARCHS", "sm_75, sm_90".as_ref()),
            ("WARPSMITH_CUBINS", "sm_75, sm_90a".as_ref()),
            ("WARPSMITH_CUBINS", "off".as_ref()),
            ("WARPSMITH_CACHE_DIR", good.as_os_str()),
        ] {
            let probe = found(name, value);
            assert_eq!((probe.state, probe.fix.as_str()), (ProbeState::Ok, ""), "{probe:?}");
        }
        for (name, value, part) in [
            ("WARPSMITH_BACKEND", "nvcc".as_ref(), "nvcc"),
            ("WARPSMITH_ARCHS", "sm_75,sm_61".as_ref(), "sm_61"),
            ("WARPSMITH_CUBINS", "sm_80a".as_ref(), "sm_80a"),
            ("WARPSMITH_CACHE_DIR", file.join("x").as_os_str(), "file"),
        ] {
            let probe = found(name, value);
            assert_eq!((probe.state, probe.scope), (ProbeState::Missing, Scope::Required), "{probe:?}");
            assert!(probe.detail.contains(part) && !probe.fix.is_empty(), "{probe:?}");
        }
        assert!(settings(|_| None).is_empty());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "a probe leaves nothing");

        let only = |there: &'static [&str]| linker(|name| there.contains(&name).then(|| PathBuf::from(name)));
        assert_eq!(only(&["cc", "gcc"]).state, ProbeState::Ok);
        assert_eq!(only(&[]).state, ProbeState::Missing);
        let clang = only(&["clang"]);
        assert!(clang.state == ProbeState::Warning && clang.fix.contains("linker"), "{clang:?}");
    }

    #[test]
    fn every_piece_is_named_and_every_gap_has_a_fix() {
        let probes = probe();
        for name in [
            "rustc",
            "rust-src",
            "C linker",
            "ptxas",
            "nvdisasm",
            "nightly-2026-04-02",
            "rust-src of nightly-2026-04-02",
            "rustc-dev of nightly-2026-04-02",
            "llvm-tools of nightly-2026-04-02",
            "llvm-config of LLVM 7",
            "libclang",
            "CUDA toolkit 12.9 with libnvvm.so.4",
            "rust-cuda at 946c91f",
        ] {
            let found = probes.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no probe {name}"));
            assert!(!found.detail.is_empty(), "{name}");
            assert_eq!(found.state == ProbeState::Ok, found.fix.is_empty(), "{found:?}");
        }
        // These tests are compiled by rustc, so one is there.
        assert_ne!(probes[0].state, ProbeState::Missing, "{:?}", probes[0]);
    }
}
