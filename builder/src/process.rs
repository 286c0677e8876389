//! Child processes: a cleaned environment for nested cargo and rustc, captured output.
//!
//! A build script inherits settings that are meant for the host build. None of them may reach the
//! kernels: flags (`-Ctarget-cpu=native` is wrong for a GPU), wrappers (clippy-driver), profiles,
//! and above all the target directory, whose lock the outer cargo holds while it waits for us.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::BuildError;

/// Files of source whose kernels are written, all others being left out; `macros/src/chosen.rs` reads it.
pub(crate) const CHOSEN: &str = "WARPSMITH_KERNELS_OF";

/// Variables that are removed by name.
const REMOVED: &[&str] = &[
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTC",
    "RUSTC_LINKER",
    "RUSTC_BOOTSTRAP",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
    "CLIPPY_CONF_DIR",
    "CARGO_TARGET_DIR",
    "CARGO_INCREMENTAL",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_MANIFEST_LINKS",
    "CARGO_PRIMARY_PACKAGE",
    "CARGO_CRATE_NAME",
    "CARGO_BIN_NAME",
    "CARGO_TERM_QUIET",
    "CARGO_TERM_VERBOSE",
    "CARGO_TERM_COLOR",
    "CARGO",
    "OUT_DIR",
    "TARGET",
    "HOST",
    "PROFILE",
    "OPT_LEVEL",
    "DEBUG",
    "NUM_JOBS",
    "UNIT_TEST",
    // Only an edit leaves kernels out.
    CHOSEN,
];

/// Variables that are removed by prefix.
const REMOVED_PREFIXES: &[&str] = &[
    "RUSTDOC",
    "CARGO_BUILD_",
    "CARGO_PROFILE_",
    "CARGO_TARGET_NVPTX64",
    "CARGO_UNSTABLE_",
    "CARGO_PKG_",
    "CARGO_CFG_",
    "CARGO_FEATURE_",
    "CARGO_BIN_EXE_",
    "DEP_",
    "__CARGO_",
];

/// Whether a variable of the outer build must not reach a nested build.
pub(crate) fn is_removed(name: &str) -> bool {
    REMOVED.contains(&name) || REMOVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// A command without the outer build's settings. The jobserver and the network settings stay.
pub(crate) fn clean_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_removed) {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs to the end, with both outputs captured and no input.
pub(crate) fn run(command: &mut Command) -> Result<Output, BuildError> {
    command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| BuildError::Spawn { program: command.get_program().to_string_lossy().into_owned(), source })
}

/// Standard output of a command that must succeed.
pub(crate) fn stdout_of(command: &mut Command, what: &str) -> Result<String, BuildError> {
    let output = run(command)?;
    if !output.status.success() {
        return Err(BuildError::Command {
            what: what.to_owned(),
            status: output.status.to_string(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Standard output of a probing command; `None` if it cannot be started, fails, or takes longer
/// than `limit` (then it is killed).
pub(crate) fn probe_stdout(command: &mut Command, limit: Duration) -> Option<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut pipe = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = pipe.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                let text = reader.join().ok()?;
                return status.success().then_some(text);
            }
            Ok(None) if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(10)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// The first file of this name on PATH.
pub(crate) fn find_on_path(name: &str) -> Option<std::path::PathBuf> {
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(&file)).find(|candidate| is_executable(candidate))
}

pub(crate) fn is_executable(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    }
    #[cfg(not(unix))]
    {
        path.is_file()
    }
}

/// The result of a thread; its panic goes on in this one.
pub(crate) fn join<T>(handle: std::thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_host_build_are_removed_and_the_rest_stays() {
        for name in [
            "RUSTFLAGS",
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_BUILD_DIR",
            "CARGO_BUILD_RUSTC_WRAPPER",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_FEATURE_F16",
            "DEP_CUDA_ROOT",
            "CARGO_TARGET_NVPTX64_NVIDIA_CUDA_RUSTFLAGS",
        ] {
            assert!(is_removed(name), "{name}");
        }
        for name in [
            "CARGO_HOME",
            "CARGO_MAKEFLAGS",
            "CARGO_NET_OFFLINE",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
            "RUSTUP_TOOLCHAIN",
            "PATH",
        ] {
            assert!(!is_removed(name), "{name}");
        }
    }
}
