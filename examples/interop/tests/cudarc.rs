//! The example, on the software driver as a library that cudarc loads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;

fn run(argument: &[&str]) -> String {
    // <target>/<profile>/deps/<this test>
    let profile = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let (target, name) = (profile.parent().unwrap(), profile.file_name().unwrap().to_str().unwrap());
    let status = Command::new(env!("CARGO"))
        .args(["build", "--lib", "--quiet", "-p", "warpsmith-driver", "--target-dir"])
        .arg(target)
        // The folder of the profile `dev` is `debug`; the others' are called as they are.
        .args(["--profile", if name == "debug" { "dev" } else { name }])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .status()
        .unwrap();
    assert!(status.success());
    let output = Command::new(env!("CARGO_BIN_EXE_warpsmith-interop"))
        .args(argument)
        .env("LD_LIBRARY_PATH", profile.join("software-cuda"))
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
                after ten replays: 12\n\
                with a call of cudarc's in the graph: [2.0, 0.0]\n\
                read by cudarc: 0\n";
    assert_eq!(text, want);
}

#[test]
fn two_drivers_are_told() {
    assert_eq!(run(&["late"]), include_str!("late.txt"));
}
