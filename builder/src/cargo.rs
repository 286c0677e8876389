//! Nested cargo: what the kernels crate consists of, and one compilation of it per architecture.
//!
//! The nested cargo has a target directory of its own under the cache, so it never waits for the
//! outer one. Because `--target` is given, procedural macros and build scripts are compiled for the
//! host as usual and no flag of ours reaches them. Unstable features are allowed for the crates
//! that run on the GPU and for no other.

mod messages;
mod package;
mod texts;
mod units;

pub(crate) use package::{Package, package, package_name};

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use messages::Messages;
use texts::{JoinedText, Texts};
pub(crate) use units::Unit;

use crate::BuildError;
use crate::dependency::Patch;
use crate::process::{clean_command, run};
use crate::sysroot::{self, TARGET};
use crate::toolchain::Toolchain;

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

/// What cargo ran, and what it gave.
pub(crate) struct Ran {
    pub(crate) compiled: Compiled,
    /// What the text was joined from, if that was now.
    pub(crate) units: Vec<Unit>,
    /// What cargo told about it.
    pub(crate) said: String,
    pub(crate) began: std::time::SystemTime,
    pub(crate) archive: PathBuf,
}

/// What rustc makes of the crate's modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Units {
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

impl Compilation<'_> {
    /// The crates that may use unstable features.
    pub(crate) fn unstable(&self) -> String {
        // Cargo probes the flags with a crate called `___`.
        let all = std::iter::once("___").chain(self.package.device_crates.iter().map(String::as_str));
        all.collect::<Vec<_>>().join(",")
    }

    /// Cargo's command for the device's crates.
    pub(crate) fn command(&self, units: Units) -> Result<Command, BuildError> {
        let dir = self.package.manifest.parent().unwrap_or(Path::new("."));
        let mut command = cargo_command(self.toolchain, dir);
        let flags: &[&str] = if units == Units::Modules { &MODULE_FLAGS } else { &[] };
        let sysroot = sysroot::ensure(self.toolchain, self.cache, flags)?;
        let mut rustflags = vec![format!("--sysroot={}", sysroot.display())];
        rustflags.extend(self.rustflags.iter().cloned().chain(flags.iter().map(|flag| (*flag).to_owned())));
        command
            .env("RUSTC_BOOTSTRAP", self.unstable())
            .env("CARGO_ENCODED_RUSTFLAGS", rustflags.join("\x1f"))
            .env("CARGO_INCREMENTAL", "0")
            // Empty, not unset: this also overrides a wrapper in the user's configuration.
            .env("RUSTC_WRAPPER", "")
            .env("RUSTC_WORKSPACE_WRAPPER", "")
            .env("CARGO_BUILD_BUILD_DIR", self.target_dir)
            // A static library runs link-time optimisation and needs no linker, and its file name
            // carries a hash, so that the architectures do not replace each other.
            // Twice verbose, it says how it starts the compiler.
            .args(["rustc", "-vv", "--lib", "--crate-type=staticlib", "--message-format=json"])
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

    /// Asks cargo, which answers what is there already. The caller holds the lock of `target_dir`.
    pub(crate) fn run(&self, units: Units) -> Result<Ran, BuildError> {
        let had_incremental = units == Units::Modules && self.incremental().exists();
        let mut command = self.command(units)?;
        let began = std::time::SystemTime::now();
        let output = run(&mut command)?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let messages = Messages::read(&stdout, &self.package.manifest);
        if !output.status.success() {
            let rendered = match messages.errors.is_empty() {
                false => messages.errors.concat(),
                true => without_progress(&stderr),
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
            target_dir: self.target_dir,
        };
        let JoinedText { ptx, units: joined } = texts.of(&archive, messages.fresh)?;
        let dep_info = std::fs::read_to_string(archive.with_extension("d")).unwrap_or_default();
        let inputs = listed_files(&dep_info).into_iter().map(|name| self.package.workspace_root.join(name)).collect();
        let compiled = Compiled { ptx, fresh: messages.fresh, warnings: messages.warnings, inputs };
        Ok(Ran { compiled, units: joined, said: stderr.into_owned(), began, archive })
    }

    pub(crate) fn compile_error(&self, rendered: String) -> BuildError {
        BuildError::Compile { package: self.package.name.clone(), arch: self.arch.clone(), rendered }
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
        self.compile_error(rendered)
    }
}

/// What cargo says, but for what it does say only where it is asked to be verbose.
fn without_progress(said: &str) -> String {
    let is_progress =
        |line: &&str| ["Running `", "Fresh ", "Dirty "].iter().any(|word| line.trim_start().starts_with(word));
    said.lines().filter(|line| !is_progress(line)).flat_map(|line| [line, "\n"]).collect()
}

/// File names of a Makefile-style list: separated by spaces, with `\ ` for a space in a name.
pub(crate) fn listed_files(text: &str) -> Vec<String> {
    let Some((_, list)) = text.lines().next().and_then(|line| line.split_once(": ")) else {
        return Vec::new();
    };
    let mut files = vec![String::new()];
    let mut chars = list.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, files.last_mut()) {
            ('\\', Some(name)) if chars.peek() == Some(&' ') => {
                chars.next();
                name.push(' ');
            }
            (' ', _) => files.push(String::new()),
            (c, Some(name)) => name.push(c),
            (_, None) => {}
        }
    }
    files.retain(|name| !name.is_empty());
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dep_info_with_spaces() {
        let files = listed_files("/t/my\\ dir/libk.a: /w/a\\ b/src/lib.rs src/x.rs\n\n");
        assert_eq!(files, ["/w/a b/src/lib.rs", "src/x.rs"]);
        assert!(listed_files("").is_empty());
    }
}
