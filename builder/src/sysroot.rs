//! `core` for the GPU: compiled once per compiler, into a sysroot of our own.
//!
//! One build serves every architecture, because code inlined from `core` takes the target of the
//! kernels crate. The sysroot's name is a hash of the compiler, the flags and the source path, so a
//! new compiler never meets an old `core`. It appears under that name only when it is complete.

use std::path::{Path, PathBuf};

use crate::BuildError;
use crate::cache::{DirLock, Sum, hash};
use crate::process::{clean_command, run};
use crate::toolchain::Toolchain;

pub(crate) const TARGET: &str = "nvptx64-nvidia-cuda";

/// Flags for `core` and for every crate of a kernels build.
///
/// JumpThreading clones barriers and shuffles into divergent branches, which hangs a GPU.
pub(crate) const COMMON_FLAGS: &[&str] = &[
    "-Zunstable-options",
    "-Cpanic=immediate-abort",
    "-Zmir-enable-passes=-JumpThreading",
    "-Copt-level=3",
    "-Cembed-bitcode=yes",
    "-Coverflow-checks=off",
    "-Cdebug-assertions=off",
];

const CORE_FLAGS: &[&str] =
    &["--edition=2024", "--crate-type=rlib", "-Ccodegen-units=1", "--cap-lints=allow", "-Zforce-unstable-if-unmarked"];

/// `core` needs a crate of this name; on this target nothing in it is ever called.
const EMPTY_COMPILER_BUILTINS: &str =
    "#![no_std]\n#![feature(compiler_builtins)]\n#![compiler_builtins]\n#![allow(internal_features)]\n";

/// The sysroot in `cache` whose `core` was compiled with these flags too, built first if need be (about 12 s).
pub(crate) fn ensure(toolchain: &Toolchain, cache: &Path, flags: &[&str]) -> Result<PathBuf, BuildError> {
    let key = hash(&[
        &toolchain.verbose_version,
        &toolchain.sysroot.to_string_lossy(),
        &std::env::var("WARPSMITH_RUST_SRC").unwrap_or_default(),
        &COMMON_FLAGS.join(" "),
        &flags.join(" "),
        &CORE_FLAGS.join(" "),
        EMPTY_COMPILER_BUILTINS,
        env!("CARGO_PKG_VERSION"),
    ]);
    let sysroot = cache.join(format!("sysroot-{key}"));
    if is_whole(&sysroot) {
        return Ok(sysroot);
    }
    let _lock = DirLock::acquire(cache, "sysroot.lock", "`core` for the GPU")?;
    if is_whole(&sysroot) {
        return Ok(sysroot);
    }
    if sysroot.exists() {
        eprintln!("warpsmith: {} is damaged and is made anew", sysroot.display());
    }
    let library = toolchain.rust_src()?;
    eprintln!("warpsmith: compiling `core` for the GPU with rustc {}; once, about 15 s", toolchain.release);

    let work = cache.join(format!("sysroot-{key}.partial"));
    let _ = std::fs::remove_dir_all(&work);
    let lib = lib_dir(&work);
    std::fs::create_dir_all(&lib).map_err(BuildError::io("create", &lib))?;
    let core = lib.join("libcore.rlib");
    compile(toolchain, "core", &library.join("core/src/lib.rs"), &core, (None, flags))?;
    let source = work.join("compiler_builtins.rs");
    std::fs::write(&source, EMPTY_COMPILER_BUILTINS).map_err(BuildError::io("write", &source))?;
    let builtins = lib.join("libcompiler_builtins.rlib");
    compile(toolchain, "compiler_builtins", &source, &builtins, (Some(&core), flags))?;
    for library in [&core, &builtins] {
        Sum::of_file(library)?.write_beside(library)?;
    }

    let _ = std::fs::remove_dir_all(&sysroot);
    std::fs::rename(&work, &sysroot).map_err(BuildError::io("rename into place", &sysroot))?;
    Ok(sysroot)
}

fn lib_dir(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib").join(TARGET).join("lib")
}

/// Whether everything is there as it was written: disks fill up, and files are cut.
fn is_whole(sysroot: &Path) -> bool {
    let lib = lib_dir(sysroot);
    ["libcore.rlib", "libcompiler_builtins.rlib"].iter().all(|name| Sum::stands_beside(&lib.join(name)))
}

fn compile(
    toolchain: &Toolchain,
    name: &str,
    source: &Path,
    output: &Path,
    (core, flags): (Option<&Path>, &[&str]),
) -> Result<(), BuildError> {
    let mut command = clean_command(&toolchain.rustc);
    command
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["--crate-name", name])
        .arg(source)
        .args(["--target", TARGET])
        .args(COMMON_FLAGS)
        .args(flags)
        .args(CORE_FLAGS)
        .arg("-o")
        .arg(output);
    if let Some(core) = core {
        let mut with_path = std::ffi::OsString::from("noprelude:core=");
        with_path.push(core);
        command.arg("--extern").arg(with_path);
    }
    let result = run(&mut command)?;
    if result.status.success() {
        return Ok(());
    }
    Err(BuildError::Command {
        what: format!("compiling `{name}` for the GPU from {}", source.display()),
        status: result.status.to_string(),
        stderr: String::from_utf8_lossy(&result.stderr).into_owned(),
    })
}
