//! The fixture crate as rust-cuda's code generator gets it: the forms of the feature `nvvm`, compiled by rustc's own generator,
//! which is always there. So what stands under that feature is compiled and run in every test; what LLVM 7 and libNVVM make of it
//! is left to machines that have them.
#![allow(dead_code)]

use super::fixture;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::SystemTime,
};

/// PTX for sm_75, which is what rust-cuda's generator says to `cfg`: no feature of an architecture is ever set there.
pub fn nvvm() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(build)
}

fn build() -> String {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/all-device");
    let args = ["rustc", "--release", "--features", "nvvm", "--crate-type", "cdylib", "--", "--emit=asm,link"];
    let target = cargo(&fixture, &args);
    let text = fs::read_to_string(target.join("nvptx64-nvidia-cuda/release/deps/all_device.s")).unwrap();
    // Entries are functions of the C ABI with an attribute that only the other generator knows. `.noreturn` is what a function
    // may say, and an entry not.
    text.replace(".visible .func ", ".visible .entry ").replace("\n.noreturn\n", "\n")
}

/// Runs cargo in a folder, for the GPU; gives the target directory.
pub fn cargo(folder: &Path, args: &[&str]) -> PathBuf {
    // Makes `core` for the GPU, if it is not there.
    fixture();
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = scratch.join("nvvm");
    let made = |path: &PathBuf| fs::metadata(path).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut sysroots: Vec<PathBuf> = fs::read_dir(scratch.join("../warpsmith"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("lib/rustlib/nvptx64-nvidia-cuda/lib/libcore.rlib").is_file())
        .collect();
    // Older ones may be of other compilers, or of other flags.
    sysroots.sort_by_key(made);
    let mut said = String::from("no `core` for the GPU was found");
    for sysroot in sysroots.iter().rev() {
        match run(folder, args, sysroot, &target) {
            Ok(()) => return target,
            Err(stderr) => said = stderr,
        }
    }
    panic!("{said}");
}

/// With the builder's flags, and the attribute's tool registered.
fn run(folder: &Path, args: &[&str], sysroot: &Path, target: &Path) -> Result<(), String> {
    let sysroot = format!("--sysroot={}", sysroot.display());
    let flags = [
        &*sysroot,
        "-Zunstable-options",
        "-Zcrate-attr=feature(register_tool)",
        "-Zcrate-attr=register_tool(nvvm_internal)",
        "-Zmir-enable-passes=-JumpThreading",
        "-Cpanic=immediate-abort",
        "-Copt-level=3",
        "-Ccodegen-units=1",
        "-Cembed-bitcode=yes",
        "-Clto=fat",
        "-Ctarget-cpu=sm_75",
        "-Ctarget-feature=+ptx74",
        "-Cllvm-args=-unroll-threshold=2000",
        "-Cdebuginfo=line-directives-only",
        "-Clinker=/bin/true",
    ];
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.contains("RUSTFLAGS") || text.starts_with("RUSTC") || text.starts_with("CARGO_BUILD") {
            cargo.env_remove(&name);
        }
    }
    let (command, rest) = args.split_first().unwrap();
    let output = cargo
        .args([*command, "--target", "nvptx64-nvidia-cuda"])
        .args(rest)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("RUSTC_BOOTSTRAP", "1")
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
