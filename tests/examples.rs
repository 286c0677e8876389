//! Every example runs and says PASS.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

use std::path::Path;
use std::process::Command;

/// `cargo test` builds the examples beside the binary that these tests are given.
fn run(name: &str) {
    run_with(name, &[]);
}

fn run_with(name: &str, variables: &[(&str, &str)]) {
    let bin = Path::new(env!("CARGO_BIN_EXE_warpsmith"));
    let example = bin.with_file_name("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let output = Command::new(&example)
        .envs(variables.iter().copied())
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}; `cargo build --examples` makes it", example.display()));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with("engine: ") && text.trim_end().ends_with("PASS"), "{text}");
}

#[test]
fn typed_launch() {
    run("01_typed_launch");
}

#[test]
fn graph() {
    run("02_graph");
}

#[test]
fn generate() {
    run("03_generate");
}

#[test]
fn checked() {
    run("04_checked");
}

#[test]
fn schedule() {
    run("05_schedule");
}

#[test]
fn drafts() {
    run("06_drafts");
}

#[test]
fn devices() {
    run_with("07_devices", &[("WARPSMITH_DRIVER", "software"), ("WARPSMITH_DEVICES", "4")]);
}

#[test]
fn shares() {
    run_with("08_shares", &[("WARPSMITH_DRIVER", "software"), ("WARPSMITH_DEVICES", "2")]);
}

#[test]
fn stages() {
    run_with("09_stages", &[("WARPSMITH_DRIVER", "software")]);
}
