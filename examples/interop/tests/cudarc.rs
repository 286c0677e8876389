//! The example, on the software driver as a library that cudarc loads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

#[path = "../../../driver/tests/common/built.rs"]
mod built;

use std::path::Path;
use std::process::Command;

fn run(argument: &[&str]) -> String {
    let library = built::software_cuda();
    // What all tests of the workspace are built with: after a bare `cargo test` this has nothing to do, where the library on its own
    // would be compiled a second time, with fewer features of the crates that it shares with others.
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--no-run", "--quiet", "--workspace", "--test", "shared_library", "--target-dir"]);
    cargo.arg(library.ancestors().nth(2).unwrap());
    let profile = library.parent().unwrap().file_name().unwrap();
    if profile != "debug" {
        cargo.arg("--profile").arg(profile);
    }
    let status = cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).status().unwrap();
    assert!(status.success());
    let output = Command::new(env!("CARGO_BIN_EXE_warpsmith-interop"))
        .args(argument)
        .env("LD_LIBRARY_PATH", library)
        .env("WARPSMITH_DRIVER", "software")
        .env("WARPSMITH_SM", "90")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn kernels_run_on_what_cudarc_has_made() {
    let text = run(&[]);
    let want = "engine: software (sm_90, 1 device(s))\n\
                a launch on cudarc's buffers: 2\n\
                a norm of cudarc's bf16: 1.5\n\
                after ten replays: 12\n\
                with a call of cudarc's in the graph: [2.0, 0.0]\n\
                read by cudarc: 0\n";
    assert_eq!(text, want);
}

#[test]
fn two_drivers_are_told() {
    assert_eq!(run(&["late"]), include_str!("late.txt"));
}
