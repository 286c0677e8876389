//! A crate outside this workspace builds, links and runs with what the README tells its author to do, and nothing else.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Copies a folder, putting the project's path in place of `@WARPSMITH@`.
fn copy_fixture(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_fixture(&entry.path(), &target)?;
        } else {
            fs::write(target, fs::read_to_string(entry.path())?.replace("@WARPSMITH@", ROOT))?;
        }
    }
    Ok(())
}

/// cargo, without what this workspace or this test run put into the environment.
fn cargo(dir: &Path, target: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let name_text = name.to_string_lossy();
        let ours = name_text.starts_with("CARGO") && name_text != "CARGO_HOME" || name_text.starts_with("CUDA");
        if ours
            || name_text.starts_with("RUSTC")
            || name_text.starts_with("WARPSMITH")
            || name_text == "LD_LIBRARY_PATH"
        {
            cargo.env_remove(&name);
        }
    }
    cargo.current_dir(dir).env("CARGO_TARGET_DIR", target);
    cargo
}

/// Built once for the tests below; kept between runs so that only the first one pays.
fn target_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("external-target")
}

#[test]
fn a_crate_outside_the_workspace_builds_links_and_runs_with_no_toolkit_and_no_driver() {
    let dir = tempfile::tempdir().unwrap();
    // A space in the path: build scripts, linkers and PTX files have to cope with it.
    let project = dir.path().join("my first kernel");
    copy_fixture(&Path::new(ROOT).join("tests/fixtures/first-kernel"), &project).unwrap();
    fs::copy(Path::new(ROOT).join("Cargo.lock"), project.join("Cargo.lock")).unwrap();

    let run =
        cargo(&project, &target_dir()).args(["run", "--quiet"]).env("WARPSMITH_DRIVER", "software").output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("engine: software"), "{stdout}");
    assert!(stdout.contains("y[999] = 1999"), "{stdout}");

    // A compile error in a kernel shows as rustc shows it: code, file, line, caret.
    let kernel = project.join("kernels/src/lib.rs");
    let broken = fs::read_to_string(&kernel).unwrap().replace("x.at(i)", "x.att(i)");
    fs::write(&kernel, broken).unwrap();
    let build = cargo(&project, &target_dir()).args(["build", "--color=never"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&build.stderr);
    assert!(!build.status.success());
    assert!(stderr.contains("error[E0599]") && stderr.contains("src/lib.rs:12") && stderr.contains("^^^"), "{stderr}");
}
