//! Nested cargo: what the kernels crate consists of, and one compilation of it per architecture.
//!
//! The nested cargo has a target directory of its own under the cache, so it never waits for the
//! outer one. Because `--target` is given, procedural macros and build scripts are compiled for the
//! host as usual and no flag of ours reaches them. Unstable features are allowed for the crates
//! that run on the GPU and for no other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::BuildError;
use crate::cache::Sum;
use crate::dependency::Patch;
use crate::hints::with_hint;
use crate::process::{clean_command, run, stdout_of};
use crate::ptx;
use crate::sysroot::{self, TARGET};
use crate::toolchain::Toolchain;

/// The kernels crate and what it is made of.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    /// As in Cargo.toml.
    pub(crate) name: String,
    /// Crate name of the library target.
    pub(crate) crate_name: String,
    pub(crate) manifest: PathBuf,
    pub(crate) features: BTreeSet<String>,
    pub(crate) workspace_root: PathBuf,
    pub(crate) target_directory: PathBuf,
    /// Crate names of everything that is compiled for the GPU.
    pub(crate) device_crates: Vec<String>,
    /// Those of them that lie on this machine as source, as in their Cargo.toml.
    pub(crate) device_packages: Vec<String>,
    /// Files and directories of every package that lies on this machine as source.
    pub(crate) inputs: BTreeSet<PathBuf>,
    /// What is taken in place of the registry's.
    pub(crate) patches: Vec<Patch>,
}

impl Package {
    /// The name with `_` for `-`, as files are called.
    pub(crate) fn file_stem(&self) -> String {
        self.name.replace('-', "_")
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetaPackage>,
    resolve: Option<Resolve>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}
#[derive(Deserialize)]
struct MetaPackage {
    id: String,
    name: String,
    source: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<MetaTarget>,
    features: BTreeMap<String, Vec<String>>,
}
#[derive(Deserialize)]
struct MetaTarget {
    kind: Vec<String>,
    name: String,
    src_path: PathBuf,
}
#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}
#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDep>,
}
#[derive(Deserialize)]
struct NodeDep {
    pkg: String,
    dep_kinds: Vec<DepKind>,
}
#[derive(Deserialize)]
struct DepKind {
    kind: Option<String>,
}

impl MetaPackage {
    fn library(&self) -> Option<&MetaTarget> {
        self.targets.iter().find(|t| {
            t.kind
                .iter()
                .any(|k| matches!(k.as_str(), "lib" | "rlib" | "cdylib" | "dylib" | "staticlib" | "proc-macro"))
        })
    }

    fn is_proc_macro(&self) -> bool {
        self.targets.iter().any(|t| t.kind.iter().any(|k| k == "proc-macro"))
    }

    /// What to watch: the manifest and the folder of each source root that is built here.
    fn add_inputs(&self, inputs: &mut BTreeSet<PathBuf>) {
        inputs.insert(self.manifest_path.clone());
        let root = self.manifest_path.parent();
        for target in &self.targets {
            let is_lib = target.kind.iter().any(|k| k.contains("lib") || k == "proc-macro");
            let is_script = target.kind.iter().any(|k| k == "custom-build");
            match target.src_path.parent() {
                // A source root beside Cargo.toml: its folder also holds `target`, so only the file.
                Some(folder) if is_lib && Some(folder) != root => inputs.insert(folder.to_path_buf()),
                _ if is_lib || is_script => inputs.insert(target.src_path.clone()),
                _ => false,
            };
        }
    }
}

/// The name of the package in `dir`, without looking at its dependencies.
pub(crate) fn package_name(toolchain: &Toolchain, dir: &Path) -> Result<String, BuildError> {
    #[derive(Deserialize)]
    struct Answer {
        name: String,
    }
    let manifest = dir.join("Cargo.toml");
    let text = stdout_of(
        cargo_command(toolchain, dir).args(["read-manifest", "--offline", "--manifest-path"]).arg(&manifest),
        &format!("reading {} (cargo read-manifest)", manifest.display()),
    )?;
    let answer: Answer = serde_json::from_str(&text)
        .map_err(|e| BuildError::Answer { what: "cargo read-manifest".to_owned(), reason: e.to_string() })?;
    Ok(answer.name)
}

/// Asks cargo what the package in `dir` consists of when it is built for the GPU.
pub(crate) fn package(toolchain: &Toolchain, dir: &Path, patches: Vec<Patch>) -> Result<Package, BuildError> {
    let manifest = dir.join("Cargo.toml");
    let text = stdout_of(
        cargo_command(toolchain, dir)
            .args(["metadata", "--format-version=1", "--filter-platform", TARGET, "--manifest-path"])
            .arg(&manifest)
            .args(configured(&patches)),
        &format!("reading {} (cargo metadata)", manifest.display()),
    )?;
    let unreadable = |reason: String| BuildError::Answer { what: "cargo metadata".to_owned(), reason };
    let metadata: Metadata = serde_json::from_str(&text).map_err(|e| unreadable(e.to_string()))?;
    read_metadata(metadata, dir, &manifest, patches)
}

fn read_metadata(metadata: Metadata, dir: &Path, manifest: &Path, patches: Vec<Patch>) -> Result<Package, BuildError> {
    let refuse = |reason: &str| BuildError::KernelCrate { path: dir.to_path_buf(), reason: reason.to_owned() };
    let same = |a: &Path, b: &Path| a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    let root = metadata.packages.iter().find(|p| same(&p.manifest_path, manifest)).ok_or_else(|| {
        refuse("its Cargo.toml has no [package]; give the folder of the package, not of the workspace")
    })?;
    let library = root.library().ok_or_else(|| refuse("it has no library (src/lib.rs), and kernels live in one"))?;
    if root.is_proc_macro() {
        return Err(refuse("it is a procedural macro crate; kernels live in a library crate"));
    }

    let packages: BTreeMap<&str, &MetaPackage> = metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
    let edges: BTreeMap<&str, &[NodeDep]> =
        metadata.resolve.iter().flat_map(|r| &r.nodes).map(|n| (n.id.as_str(), n.deps.as_slice())).collect();
    // What is reached only through build dependencies or procedural macros runs on the host.
    let mut device = BTreeSet::new();
    let mut all = BTreeSet::new();
    let mut open = vec![(root.id.as_str(), true)];
    while let Some((id, on_device)) = open.pop() {
        let Some(package) = packages.get(id) else {
            continue;
        };
        let on_device = on_device && !package.is_proc_macro();
        let newly_all = all.insert(id);
        let newly_device = on_device && device.insert(id);
        if !newly_all && !newly_device {
            continue;
        }
        for edge in edges.get(id).copied().unwrap_or_default() {
            let kinds = || edge.dep_kinds.iter().map(|k| k.kind.as_deref());
            if kinds().any(|k| k.is_none()) {
                open.push((&edge.pkg, on_device));
            } else if kinds().any(|k| k == Some("build")) {
                open.push((&edge.pkg, false));
            }
        }
    }

    let mut inputs = BTreeSet::new();
    for package in all.iter().filter_map(|id| packages.get(id)).filter(|p| p.source.is_none()) {
        package.add_inputs(&mut inputs);
    }
    for name in ["Cargo.toml", "Cargo.lock", ".cargo/config.toml"] {
        let path = metadata.workspace_root.join(name);
        if path.is_file() {
            inputs.insert(path);
        }
    }
    Ok(Package {
        name: root.name.clone(),
        crate_name: library.name.replace('-', "_"),
        manifest: root.manifest_path.clone(),
        features: root.features.keys().cloned().collect(),
        workspace_root: metadata.workspace_root.clone(),
        target_directory: metadata.target_directory.clone(),
        device_crates: device
            .iter()
            .filter_map(|id| packages.get(id)?.library())
            .map(|t| t.name.replace('-', "_"))
            .collect(),
        device_packages: device
            .iter()
            .filter_map(|id| packages.get(id))
            .filter(|p| p.source.is_none())
            .map(|p| p.name.clone())
            .collect(),
        inputs,
        patches,
    })
}

/// Cargo with a clean environment, in the folder whose configuration applies.
fn cargo_command(toolchain: &Toolchain, dir: &Path) -> std::process::Command {
    let mut command = clean_command(&toolchain.cargo);
    command.current_dir(dir).env("CARGO_TERM_COLOR", "never");
    if toolchain.rustc.is_absolute() {
        command.env("RUSTC", &toolchain.rustc);
    }
    command
}

/// Options behind the subcommand: cargo forgets those in front of it as soon as one stands behind it.
fn configured(patches: &[Patch]) -> Vec<String> {
    let option = |Patch { name, path }: &Patch| format!("patch.crates-io.{name}.path={:?}", path.display().to_string());
    patches.iter().flat_map(|patch| ["--config".to_owned(), option(patch)]).collect()
}

/// One compilation.
pub(crate) struct Compilation<'a> {
    pub(crate) package: &'a Package,
    pub(crate) toolchain: &'a Toolchain,
    pub(crate) target_dir: &'a Path,
    /// Where sysroots are.
    pub(crate) cache: &'a Path,
    /// Flags for every crate that runs on the GPU.
    pub(crate) rustflags: &'a [String],
    pub(crate) features: &'a [String],
    pub(crate) default_features: bool,
    /// Kernels that may use local memory although their metadata does not say so.
    pub(crate) allow_local: &'a [String],
    /// For messages.
    pub(crate) arch: String,
}

/// What a compilation gave.
pub(crate) struct Compiled {
    pub(crate) ptx: String,
    /// Nothing had to be compiled.
    pub(crate) fresh: bool,
    /// Rendered warnings of the kernels' crates.
    pub(crate) warnings: Vec<String>,
    /// Files that the compilation read, as the compiler lists them.
    pub(crate) inputs: Vec<PathBuf>,
}

/// What rustc makes of the crate's modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Units {
    /// A text each, of which an edit changes those that it reaches. The functions of dependencies are part of them.
    Modules,
    /// One text of the crate and its dependencies.
    Whole,
}

/// Flags of all crates, `core` among them, for [`Units::Modules`]. Functions are compiled with every crate that uses them, so that a
/// module of the kernels is whole by itself. Without the second, incremental compilations
/// inline nothing before LLVM. rustc inlines more with them, and LLVM then leaves some loops over arrays as they are: what that
/// puts into local memory is compiled as a whole, without them.
const MODULE_FLAGS: [&str; 2] = ["-Zcross-crate-inline-threshold=always", "-Zinline-mir=yes"];

/// LLVM's passes of a module alone are those before linking; this runs those after it too. A text of the whole gets both from
/// the compiler, and a module in it no other code than alone.
const BOTH_ROUNDS: &str = "-Cpasses=lto<O3>";

/// The cargo profile, and so the folder of what runs on the host.
pub(crate) const PROFILE: &str = "warpsmith";

#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    message: Option<Diagnostic>,
    filenames: Option<Vec<PathBuf>>,
    fresh: Option<bool>,
    target: Option<MessageTarget>,
}
#[derive(Deserialize)]
struct MessageTarget {
    kind: Vec<String>,
}
#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    message: String,
    rendered: Option<String>,
}

impl Compilation<'_> {
    /// Compiles, or answers what is there already. The caller holds the lock of `target_dir`.
    pub(crate) fn run(&self) -> Result<Compiled, BuildError> {
        let compiled = self.run_as(Units::Modules)?;
        // A static of a dependency, for example; or an array that stays in registers only where the whole is seen.
        let why = match ptx::unresolved(&compiled.ptx).first() {
            Some(name) => format!("a module refers to `{name}` of a dependency"),
            None if ptx::keeps_local_memory(&compiled.ptx, self.allow_local) => {
                "a kernel keeps an array in local memory if modules are compiled apart".to_owned()
            }
            None => return Ok(compiled),
        };
        eprintln!("warpsmith: {} is compiled as a whole for {}: {why}", self.package.name, self.arch);
        self.run_as(Units::Whole)
    }

    /// Cargo's command for the device's crates.
    fn command(&self, units: Units) -> Result<Command, BuildError> {
        let dir = self.package.manifest.parent().unwrap_or(Path::new("."));
        let mut command = cargo_command(self.toolchain, dir);
        let flags: &[&str] = if units == Units::Modules { &MODULE_FLAGS } else { &[] };
        let sysroot = sysroot::ensure(self.toolchain, self.cache, flags)?;
        let mut rustflags = vec![format!("--sysroot={}", sysroot.display())];
        rustflags.extend(self.rustflags.iter().cloned().chain(flags.iter().map(|flag| (*flag).to_owned())));
        // Cargo probes the flags with a crate called `___`.
        let unstable: Vec<&str> =
            std::iter::once("___").chain(self.package.device_crates.iter().map(String::as_str)).collect();
        command
            .env("RUSTC_BOOTSTRAP", unstable.join(","))
            .env("CARGO_ENCODED_RUSTFLAGS", rustflags.join("\x1f"))
            .env("CARGO_INCREMENTAL", "0")
            // Empty, not unset: this also overrides a wrapper in the user's configuration.
            .env("RUSTC_WRAPPER", "")
            .env("RUSTC_WORKSPACE_WRAPPER", "")
            .env("CARGO_BUILD_BUILD_DIR", self.target_dir)
            // A static library runs link-time optimisation and needs no linker, and its file name
            // carries a hash, so that the architectures do not replace each other.
            .args(["rustc", "--lib", "--crate-type=staticlib", "--message-format=json"])
            .args(["--package", &self.package.name, "--target", TARGET, "--profile", PROFILE])
            .arg("--manifest-path")
            .arg(&self.package.manifest)
            .arg("--target-dir")
            .arg(self.target_dir)
            .args(configured(&self.package.patches));
        for setting in [
            "inherits=\"release\"",
            "opt-level=3",
            "lto=false",
            "codegen-units=1",
            "debug=false",
            "strip=false",
            "panic=\"abort\"",
            "incremental=false",
            "overflow-checks=false",
            "debug-assertions=false",
        ] {
            command.arg("--config").arg(format!("profile.{PROFILE}.{setting}"));
        }
        if !self.default_features {
            command.arg("--no-default-features");
        }
        if !self.features.is_empty() {
            command.arg("--features").arg(self.features.join(","));
        }
        command.args(["--", "--emit=asm,link"]);
        match units {
            Units::Modules => {
                let mut option = std::ffi::OsString::from("-Cincremental=");
                option.push(self.incremental());
                command.args(["-Clto=off", "-Ccodegen-units=256", BOTH_ROUNDS]).arg(option);
            }
            Units::Whole => {
                command.arg("-Clto=fat");
            }
        }
        Ok(command)
    }

    /// What the compiler keeps of a compilation in modules.
    fn incremental(&self) -> PathBuf {
        self.target_dir.join("incremental")
    }

    fn run_as(&self, units: Units) -> Result<Compiled, BuildError> {
        let had_incremental = units == Units::Modules && self.incremental().exists();
        let output = run(&mut self.command(units)?)?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let messages = Messages::read(&stdout, &self.package.manifest);
        if !output.status.success() {
            let rendered = match messages.errors.is_empty() {
                false => messages.errors.concat(),
                true => stderr.into_owned(),
            };
            return Err(self.failure(rendered, had_incremental));
        }
        let archive = messages.archive.ok_or_else(|| BuildError::Answer {
            what: "cargo rustc".to_owned(),
            reason: format!("it names no library of `{}`; it said:\n{stderr}", self.package.name),
        })?;
        let texts = Texts {
            units,
            crate_name: &self.package.crate_name,
            deps: self.target_dir.join(TARGET).join(PROFILE).join("deps"),
        };
        let ptx = texts.of(&archive, messages.fresh)?;
        let inputs = std::fs::read_to_string(archive.with_extension("d"))
            .map(|text| dep_info_files(&text, &self.package.workspace_root))
            .unwrap_or_default();
        Ok(Compiled { ptx, fresh: messages.fresh, warnings: messages.warnings, inputs })
    }

    /// A mistake in the kernels, or files of an earlier build that are damaged.
    fn failure(&self, rendered: String, had_incremental: bool) -> BuildError {
        // Of a library that was cut, and of its bitcode.
        let unreadable = ["error[E0786]", "failed to load bitcode", "failed to mmap rmeta", "invalid metadata files"];
        // The compiler trusts what it kept of the last compilation.
        let stumbled = had_incremental && rendered.contains("internal compiler error");
        if stumbled || unreadable.iter().any(|words| rendered.contains(words)) {
            return BuildError::Damaged { path: self.target_dir.to_path_buf() };
        }
        BuildError::Compile { package: self.package.name.clone(), arch: self.arch.clone(), rendered }
    }
}

#[derive(Default)]
struct Messages {
    errors: Vec<String>,
    warnings: Vec<String>,
    archive: Option<PathBuf>,
    fresh: bool,
}

impl Messages {
    fn read(stdout: &str, manifest: &Path) -> Messages {
        let mut result = Messages::default();
        for line in stdout.lines() {
            let Ok(message) = serde_json::from_str::<Message>(line) else {
                continue;
            };
            match message.reason.as_str() {
                "compiler-message" => result.diagnostic(message.message),
                "compiler-artifact" if message.manifest_path.as_deref() == Some(manifest) => {
                    let is_lib = message.target.is_some_and(|t| t.kind.iter().any(|k| k == "staticlib"));
                    if let (true, Some(files)) = (is_lib, message.filenames) {
                        result.archive = files.into_iter().find(|f| f.extension().is_some_and(|e| e == "a"));
                        result.fresh = message.fresh.unwrap_or(false);
                    }
                }
                _ => {}
            }
        }
        result
    }

    fn diagnostic(&mut self, diagnostic: Option<Diagnostic>) {
        let Some(Diagnostic { level, message, rendered }) = diagnostic else {
            return;
        };
        let Some(rendered) = rendered else { return };
        // A failure note is the hint at `rustc --explain`.
        if level.starts_with("error") || level == "failure-note" {
            self.errors.push(with_hint(&message, rendered));
        } else if level == "warning" {
            // Ours, and meant: the PTX version is a target feature that rustc calls unstable.
            let about_flags = message.contains("specified for `-Ctarget-feature`");
            let is_count = message.ends_with("emitted");
            if !about_flags && !is_count && !self.warnings.contains(&rendered) {
                self.warnings.push(rendered);
            }
        }
    }
}

/// The assembly files of an archive.
struct Texts<'a> {
    units: Units,
    crate_name: &'a str,
    deps: PathBuf,
}

impl Texts<'_> {
    /// The text that was compiled with this archive. It is kept beside the archive with a sum of both, because cargo looks at
    /// times alone, so that what it calls fresh may have been cut, and because a build may have ended before it wrote the text.
    fn of(&self, archive: &Path, is_fresh: bool) -> Result<String, BuildError> {
        let bytes = std::fs::read(archive).map_err(BuildError::io("read", archive))?;
        let (stem, members) = self.members(&bytes).ok_or_else(|| BuildError::Answer {
            what: archive.display().to_string(),
            reason: "no member is named after the crate".to_owned(),
        })?;
        let path = self.deps.join(format!("{stem}.ptx"));
        let head = format!("// {}\n", Sum::of(&bytes));
        if is_fresh {
            let kept =
                std::fs::read_to_string(&path).ok().filter(|kept| Sum::noted(&path) == Some(Sum::of(kept.as_bytes())));
            return match kept.as_deref().and_then(|kept| kept.strip_prefix(&head)) {
                Some(text) => Ok(text.to_owned()),
                None => Err(BuildError::Damaged { path }),
            };
        }
        let text = self.read(&stem, &members)?;
        let kept = head.clone() + &text;
        std::fs::write(&path, &kept).map_err(BuildError::io("write", &path))?;
        Sum::of(kept.as_bytes()).write_beside(&path)?;
        self.remove_parts(&stem);
        Ok(text)
    }

    /// Name and hash of the crate, and its units. Cargo copies the archive to a name without hash, but the names of its members
    /// keep it: `my_kernels-0123456789abcdef.2s3kbepjjd92l98kwmgrtxgdd.0fz4msh.rcgu.o`.
    fn members(&self, archive: &[u8]) -> Option<(String, BTreeSet<String>)> {
        let needle = format!("{}-", self.crate_name);
        let find = |needle: &str, from: usize| {
            let at = archive.get(from..)?.windows(needle.len()).position(|window| window == needle.as_bytes())?;
            Some(from + at)
        };
        let word = |from: usize, is_of: fn(&u8) -> bool| -> String {
            archive.get(from..).unwrap_or_default().iter().take_while(|b| is_of(b)).map(|b| char::from(*b)).collect()
        };
        let start = find(&needle, 0)?;
        let stem = needle.clone() + &word(start + needle.len(), u8::is_ascii_hexdigit);
        let mut members = BTreeSet::new();
        let mut at = start;
        while let Some(found) = find(&stem, at) {
            let name = word(found, |b| b.is_ascii_alphanumeric() || b"._-".contains(b));
            at = found + name.len().max(1);
            members.extend(name.strip_suffix(".o").filter(|name| name.ends_with(".rcgu")).map(str::to_owned));
        }
        Some((stem, members))
    }

    fn read(&self, stem: &str, members: &BTreeSet<String>) -> Result<String, BuildError> {
        let whole = self.deps.join(format!("{stem}.s"));
        let units: Vec<PathBuf> = members.iter().map(|name| self.deps.join(format!("{name}.s"))).collect();
        let damaged = || BuildError::Damaged { path: whole.clone() };
        let read =
            |path: &PathBuf| std::fs::read_to_string(path).map_err(|_| BuildError::Damaged { path: path.clone() });
        match (self.units, units.as_slice()) {
            (Units::Whole, _) => read(&whole),
            // The compiler renames a text that is the only one.
            (Units::Modules, [unit]) if !unit.exists() => read(&whole),
            (Units::Modules, units) => {
                let texts = units.iter().map(|path| read(path).map(|text| ptx::compact(&text)));
                ptx::join(&texts.collect::<Result<Vec<_>, _>>()?).map_err(|_| damaged())
            }
        }
    }

    /// Removes the units' texts, also those of earlier compilations, whose names are others. The compiler has its own copies.
    fn remove_parts(&self, stem: &str) {
        let prefix = format!("{stem}.");
        for entry in std::fs::read_dir(&self.deps).into_iter().flatten().flatten() {
            let is_part = entry.file_name().to_str().is_some_and(|n| n.starts_with(&prefix) && n.ends_with(".rcgu.s"));
            if is_part {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// File names of a Makefile-style list: separated by spaces, with `\ ` for a space in a name.
fn dep_info_files(text: &str, base: &Path) -> Vec<PathBuf> {
    let Some((_, list)) = text.lines().next().and_then(|line| line.split_once(": ")) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    let mut name = String::new();
    let mut chars = list.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&' ') => {
                chars.next();
                name.push(' ');
            }
            ' ' => files.extend(take_path(&mut name, base)),
            c => name.push(c),
        }
    }
    files.extend(take_path(&mut name, base));
    files
}

fn take_path(name: &mut String, base: &Path) -> Option<PathBuf> {
    let name = std::mem::take(name);
    (!name.is_empty()).then(|| base.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dep_info_with_spaces() {
        let files = dep_info_files("/t/my\\ dir/libk.a: /w/a\\ b/src/lib.rs src/x.rs\n\n", Path::new("/w"));
        assert_eq!(files, [PathBuf::from("/w/a b/src/lib.rs"), PathBuf::from("/w/src/x.rs")]);
        assert!(dep_info_files("", Path::new("/w")).is_empty());
    }

    #[test]
    fn diagnostics_keep_their_text_and_drop_our_flags() {
        let line = |level: &str, message: &str, rendered: &str| {
            serde_json::json!({"reason": "compiler-message", "manifest_path": "/k/Cargo.toml",
                "message": {"level": level, "message": message, "rendered": rendered}})
            .to_string()
        };
        let stdout = [
            line("error", "mismatched types", "error[E0308]: mismatched types\n  --> src/lib.rs:3:5\n"),
            line("warning", "unstable feature specified for `-Ctarget-feature`: `ptx74`", "warning: unstable…"),
            line("warning", "unused variable: `x`", "warning: unused variable: `x`\n"),
            line("warning", "unused variable: `x`", "warning: unused variable: `x`\n"),
            line("warning", "1 warning emitted", "warning: 1 warning emitted\n"),
            "not json".to_owned(),
        ]
        .join("\n");
        let messages = Messages::read(&stdout, Path::new("/k/Cargo.toml"));
        assert_eq!(messages.errors, ["error[E0308]: mismatched types\n  --> src/lib.rs:3:5\n"]);
        assert_eq!(messages.warnings, ["warning: unused variable: `x`\n"]);
        assert!(messages.archive.is_none());
    }
}
