//! The Rust toolchain that compiles the kernels: version, sysroot, source of `core`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::BuildError;
use crate::process::{clean_command, find_on_path, join, run, stdout_of};

/// The releases that the flags and the lints were tried with: the oldest that will do, and the newest.
pub(crate) const TESTED_RUSTC: std::ops::RangeInclusive<(u32, u32)> = (1, 95)..=(1, 99);

/// From this release on, crates with another `-Ctarget-cpu` than their dependencies are refused.
const COMPARES_TARGET_CPU: (u32, u32) = (1, 99);

/// A compiler and its cargo.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    pub(crate) cargo: PathBuf,
    pub(crate) rustc: PathBuf,
    /// `rustc -vV`.
    pub(crate) verbose_version: String,
    pub(crate) release: String,
    pub(crate) sysroot: PathBuf,
}

impl Toolchain {
    /// The toolchain of the outer build, or the one that rustup chooses for `dir`.
    pub(crate) fn discover(dir: &Path) -> Result<Toolchain, BuildError> {
        let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
        let rustc = match std::env::var_os("RUSTC") {
            Some(rustc) => PathBuf::from(rustc),
            // `cargo run` gives CARGO but no RUSTC; the two must be of one toolchain.
            None => {
                let sibling = cargo.with_file_name(format!("rustc{}", std::env::consts::EXE_SUFFIX));
                if cargo.is_absolute() && sibling.is_file() { sibling } else { PathBuf::from("rustc") }
            }
        };
        let ask = |args: &[&str], what| stdout_of(clean_command(&rustc).args(args).current_dir(dir), what);
        let (verbose_version, sysroot) = std::thread::scope(|scope| {
            let sysroot = scope.spawn(|| ask(&["--print", "sysroot"], "rustc --print sysroot"));
            (ask(&["-vV"], "rustc -vV"), join(sysroot))
        });
        let (verbose_version, sysroot) = (verbose_version?, sysroot?);
        let release = verbose_version
            .lines()
            .find_map(|line| line.strip_prefix("release: "))
            .unwrap_or_default()
            .trim()
            .to_owned();
        Ok(Toolchain { cargo, rustc, verbose_version, release, sysroot: PathBuf::from(sysroot.trim()) })
    }

    /// Refuses a compiler that is too old; answers a warning for one that is untried.
    pub(crate) fn check_release(&self) -> Result<Option<String>, BuildError> {
        check_release(&self.release)
    }

    /// Whether it refuses to link crates that were compiled for different processors, such as `core` and a kernels crate.
    pub(crate) fn compares_target_cpu(&self) -> bool {
        numbers(&self.release) >= COMPARES_TARGET_CPU
    }

    /// The source of `core`: looks in the usual places, then asks rustup to fetch it, once.
    pub(crate) fn rust_src(&self) -> Result<PathBuf, BuildError> {
        let search = SourceSearch {
            explicit: std::env::var_os("WARPSMITH_RUST_SRC").map(PathBuf::from),
            sysroot: self.sysroot.clone(),
            debian: PathBuf::from("/usr/src"),
            release: self.release.clone(),
            toolchain: std::env::var("RUSTUP_TOOLCHAIN").unwrap_or_else(|_| self.release.clone()),
            rustup: find_on_path("rustup"),
        };
        search.find_or_fetch()
    }
}

/// Major and minor number; zeros where there are none.
fn numbers(release: &str) -> (u32, u32) {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn check_release(release: &str) -> Result<Option<String>, BuildError> {
    let (oldest, newest) = TESTED_RUSTC.into_inner();
    let found = numbers(release);
    if found < oldest {
        return Err(BuildError::RustcTooOld {
            found: if release.is_empty() { "(unknown release)".to_owned() } else { release.to_owned() },
            needed: format!("{}.{}", oldest.0, oldest.1),
        });
    }
    Ok((found > newest).then(|| {
        format!(
            "kernels were tried with rustc {}.{} to {}.{}; this is {release}. If a kernel hangs, compare the \
             `collectives` of the manifest between the two",
            oldest.0, oldest.1, newest.0, newest.1
        )
    }))
}

/// Where the source of `core` may be.
pub(crate) struct SourceSearch {
    /// `WARPSMITH_RUST_SRC`: if set, nothing else is tried.
    pub(crate) explicit: Option<PathBuf>,
    pub(crate) sysroot: PathBuf,
    /// `/usr/src`, where Debian puts `rustc-<release>/library`.
    pub(crate) debian: PathBuf,
    pub(crate) release: String,
    pub(crate) toolchain: String,
    pub(crate) rustup: Option<PathBuf>,
}

impl SourceSearch {
    fn candidates(&self) -> Vec<PathBuf> {
        match &self.explicit {
            Some(path) => vec![path.clone()],
            None => vec![
                self.sysroot.join("lib/rustlib/src/rust/library"),
                self.debian.join(format!("rustc-{}", self.release)).join("library"),
            ],
        }
    }

    /// The `library` directory, without any attempt to fetch it.
    pub(crate) fn find(&self) -> Option<PathBuf> {
        self.candidates().into_iter().find(|dir| dir.join("core/src/lib.rs").is_file())
    }

    pub(crate) fn find_or_fetch(&self) -> Result<PathBuf, BuildError> {
        if let Some(dir) = self.find() {
            return Ok(dir);
        }
        let mut tried = String::new();
        if self.explicit.is_some() {
            tried = "WARPSMITH_RUST_SRC is set, so nothing else was tried.\n".to_owned();
        } else if let Some(rustup) = &self.rustup {
            eprintln!(
                "warpsmith: fetching the Rust source: rustup component add rust-src --toolchain {}",
                self.toolchain
            );
            let mut command: Command = clean_command(rustup);
            command.args(["component", "add", "rust-src", "--toolchain", &self.toolchain]);
            tried = match run(&mut command) {
                Ok(output) if output.status.success() => match self.find() {
                    Some(dir) => return Ok(dir),
                    None => "rustup reported success, but the source is still not there.\n".to_owned(),
                },
                Ok(output) => {
                    format!("rustup could not fetch it: {}\n", String::from_utf8_lossy(&output.stderr).trim())
                }
                Err(error) => format!("{error}\n"),
            };
        }
        Err(BuildError::RustSrcMissing {
            version: self.release.clone(),
            toolchain: self.toolchain.clone(),
            searched: self.candidates(),
            tried,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(root: &Path, rustup: Option<PathBuf>) -> SourceSearch {
        SourceSearch {
            explicit: None,
            sysroot: root.join("sysroot"),
            debian: root.join("usr src"),
            release: "1.95.0".to_owned(),
            toolchain: "1.95.0-x86_64-unknown-linux-gnu".to_owned(),
            rustup,
        }
    }

    fn put_core(library: &Path) {
        std::fs::create_dir_all(library.join("core/src")).unwrap();
        std::fs::write(library.join("core/src/lib.rs"), "").unwrap();
    }

    #[test]
    fn prefers_the_component_then_debian() {
        let dir = tempfile::tempdir().unwrap();
        let search = search(dir.path(), None);
        assert_eq!(search.find(), None);
        let debian = dir.path().join("usr src/rustc-1.95.0/library");
        put_core(&debian);
        assert_eq!(search.find(), Some(debian));
        let component = dir.path().join("sysroot/lib/rustlib/src/rust/library");
        put_core(&component);
        assert_eq!(search.find_or_fetch().unwrap(), component);
    }

    #[test]
    fn missing_source_names_places_and_both_fixes() {
        let dir = tempfile::tempdir().unwrap();
        let text = search(dir.path(), None).find_or_fetch().unwrap_err().to_string();
        let text = text.replace(&*dir.path().to_string_lossy(), "");
        assert_eq!(text, include_str!("../tests/messages/no_rust_src.txt").trim_end());
    }

    #[cfg(unix)]
    #[test]
    fn rustup_is_asked_once_and_its_failure_is_told() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, body: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\necho \"$@\" >> '{}/log'\n{body}\n", dir.path().display()))
                .unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let failing = script("rustup-off", "echo 'could not download file' >&2; exit 1");
        let text = search(dir.path(), Some(failing)).find_or_fetch().unwrap_err().to_string();
        assert!(text.contains("could not download file"), "{text}");

        let library = dir.path().join("sysroot/lib/rustlib/src/rust/library");
        let working =
            script("rustup-on", &format!("mkdir -p '{0}/core/src' && touch '{0}/core/src/lib.rs'", library.display()));
        assert_eq!(search(dir.path(), Some(working)).find_or_fetch().unwrap(), library);
        let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert_eq!(log.lines().count(), 2);
        assert!(
            log.lines().all(|l| l == "component add rust-src --toolchain 1.95.0-x86_64-unknown-linux-gnu"),
            "{log}"
        );
    }

    #[test]
    fn old_untried_and_tested_releases() {
        assert!(check_release("1.95.0").unwrap().is_none());
        assert!(check_release("1.97.1").unwrap().is_none());
        assert!(check_release("1.99.1").unwrap().is_none());
        let text = check_release("1.100.0").unwrap().unwrap();
        assert!(text.contains("tried with rustc 1.95 to 1.99; this is 1.100.0"), "{text}");
        assert!(check_release("1.101.0-nightly").unwrap().is_some());
        let text = check_release("1.94.1").unwrap_err().to_string();
        assert_eq!(text, include_str!("../tests/messages/old_rustc.txt").trim_end());
        assert!(check_release("").is_err());
    }
}
