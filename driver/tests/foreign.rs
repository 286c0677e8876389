//! A program of its own package, on cudarc with dynamic loading, against the built `libcuda.so.1`. It shares nothing
//! with this workspace but the library that the loader gives it.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

#[path = "common/built.rs"]
mod built;

use std::path::PathBuf;
use std::process::Command;

#[test]
fn cudarc_runs_on_the_built_library() {
    let library = built::software_cuda();
    let package: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "tests", "foreign", "cudarc"].iter().collect();
    let own_target = library.ancestors().nth(2).unwrap().join("foreign-cudarc");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--quiet", "--manifest-path"])
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&own_target)
        .status()
        .unwrap();
    assert!(status.success(), "tests/foreign/cudarc builds");

    let output = Command::new(own_target.join("debug").join("foreign-cudarc"))
        .env("LD_LIBRARY_PATH", library)
        .env("WARPSMITH_DRIVER", "software")
        .env("WARPSMITH_DEVICES", "2")
        .env("WARPSMITH_SM", "80")
        .env_remove("WARPSMITH_MEMORY")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    let held: Vec<&str> = out.lines().filter_map(|l| l.strip_prefix("ok: ")).collect();
    let parts = [
        "devices",
        "memory",
        "launches",
        "events",
        "graphs",
        "pools",
        "occupancy",
        "two devices",
        "refusals",
        "sticky errors",
    ];
    assert_eq!(held, parts, "{err}");
    // The stray kernel is reported with its address.
    assert!(err.contains("stray") && err.contains("0x40"), "{err}");
}
