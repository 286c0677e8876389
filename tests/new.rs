//! A project of `warpsmith new` lies outside this workspace, and its tests, its program and its benchmark run at once: with
//! what the command wrote, no toolkit, no driver, and a space in its path.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use std::{env, fs};

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The tool, as its own user calls it.
fn warpsmith(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpsmith")).args(args).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program, without what this workspace or this test run put into the environment.
fn clean(program: impl AsRef<OsStr>, dir: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let name_text = name.to_string_lossy();
        let ours = name_text.starts_with("CARGO") && name_text != "CARGO_HOME" || name_text.starts_with("CUDA");
        if ours
            || name_text.starts_with("RUSTC")
            || name_text.starts_with("WARPSMITH")
            || name_text == "LD_LIBRARY_PATH"
        {
            command.env_remove(&name);
        }
    }
    // Built once for all templates, and kept between runs so that only the first one pays.
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    command.current_dir(dir).env("CARGO_TARGET_DIR", scratch.join("external-target"));
    // `core` and the kernels that the host crate brings are compiled already, for this workspace.
    if let Some(target) = scratch.parent() {
        command.env("WARPSMITH_CACHE_DIR", target.join("warpsmith"));
    }
    command.env("WARPSMITH_DRIVER", "software");
    command
}

fn cargo(dir: &Path, args: &[&str]) -> Command {
    let mut cargo = clean(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), dir);
    cargo.args(args);
    cargo
}

/// What cargo prints if it succeeds.
fn passes(dir: &Path, args: &[&str]) -> String {
    let output = cargo(dir, args).output().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "cargo {args:?} in {}:\n{stdout}\n{stderr}", dir.display());
    stdout
}

/// An empty place for projects, with a space in its path: build scripts, linkers and PTX files have to cope with it.
fn place(dir: &tempfile::TempDir) -> PathBuf {
    let place = dir.path().join("my projects");
    fs::create_dir_all(place.join(".cargo")).unwrap();
    // What is run here is short: a driver without optimisation is built sooner than it gains.
    let packages =
        ["warpsmith-simt", "warpsmith-driver-api"].map(|p| format!("[profile.dev.package.{p}]\nopt-level = 0\n"));
    fs::write(place.join(".cargo/config.toml"), packages.concat()).unwrap();
    place
}

#[test]
fn every_template_builds_passes_its_tests_and_runs() {
    let dir = tempfile::tempdir().unwrap();
    let place = place(&dir);
    let project = place.join("first-kernel");
    // In one folder after another, so that what they share is compiled once.
    for (template, kernel, result) in [
        ("reduction", "sum", "sum = "),
        ("gemv", "gemv", "y[99] = "),
        ("matmul", "matmul", "c[39, 49] = "),
        ("elementwise", "saxpy", "y[999] = 1999, and should be 1999"),
    ] {
        if project.exists() {
            fs::remove_dir_all(&project).unwrap();
        }
        let made = warpsmith(&place, &["new", "first-kernel", "--template", template, "--path", ROOT]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        passes(&project, &["fmt", "--package", "first-kernel", "--package", "kernels", "--check"]);
        // The benchmark as well: as a test it runs each figure once.
        let tested = passes(&project, &["test", "--quiet", "--all-targets"]);
        assert!(tested.contains("2 passed") && tested.contains(&format!("Testing {kernel}/")), "{tested}");
        let ran = passes(&project, &["run", "--quiet"]);
        assert!(ran.contains("engine: software") && ran.contains(result), "{ran}");
    }

    watch_and_inspect(&project);
}

/// A program that prints one JSON object a line, until it is dropped.
struct Rounds {
    child: Child,
    lines: Receiver<String>,
}

impl Rounds {
    fn start(mut command: Command) -> Rounds {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let pipe = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || pipe.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Rounds { child, lines }
    }

    fn next(&self) -> Value {
        serde_json::from_str(&self.lines.recv_timeout(Duration::from_secs(300)).unwrap()).unwrap()
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn watch_and_inspect(project: &Path) {
    let mut watch = clean(env!("CARGO_BIN_EXE_warpsmith"), project);
    watch.args(["watch", "saxpy", "--json"]);
    let rounds = Rounds::start(watch);
    let kernel = project.join("kernels/src/saxpy.rs");
    let good = fs::read_to_string(&kernel).unwrap();
    let save = |from: &str, to: &str| {
        assert!(good.contains(from), "{good}");
        fs::write(&kernel, good.replace(from, to)).unwrap();
    };

    let first = rounds.next();
    assert_eq!((&first["round"], &first["verdict"]), (&1.into(), &"pass".into()), "{first}");
    assert_eq!(first["tests"].as_array().unwrap().len(), 2, "{first}");
    let figures = &first["kernels"][0];
    assert_eq!((&figures["kernel"], &figures["launches"]), (&"saxpy".into(), &6.into()));
    assert!(figures["change"].is_null(), "{figures}");
    // x and y in, y out, for 1, 31, 255, 256, 257 and 10,000 elements, in sectors of 32 bytes for each warp.
    let sectors: u64 = [1u64, 31, 255, 256, 257, 10_000].iter().map(|n| 3 * (4 * n).div_ceil(32)).sum();
    assert_eq!(figures["sectors"], sectors, "{figures}");

    // Reading past the end is found, on its Rust line.
    save("if i < n as usize", "if i <= n as usize");
    let round = rounds.next();
    assert_eq!(round["verdict"], "findings", "{round}");
    assert!(round["changed"][0].as_str().unwrap().ends_with("saxpy.rs"), "{round}");
    let finding = &round["findings"][0];
    assert_eq!(
        (&finding["rule"], &finding["place"]["line"]),
        (&"memory::out-of-bounds".into(), &15.into()),
        "{finding}"
    );

    // An error of the compiler, as rustc shows it.
    save("x.at(i)", "x.att(i)");
    let round = rounds.next();
    assert_eq!(round["verdict"], "error", "{round}");
    let error = round["errors"][0].as_str().unwrap();
    assert!(error.contains("error[E0599]") && error.contains("saxpy.rs:15") && error.contains("^^^"), "{error}");

    // A wrong result, by the test's own words.
    save("math::fma(a,", "math::fma(a + 1.0,");
    let round = rounds.next();
    assert_eq!(round["verdict"], "fail", "{round}");
    let failed = round["tests"].as_array().unwrap().iter().find(|t| t["passed"] == false).unwrap();
    assert!(failed["output"].as_str().unwrap().contains("y[1] ="), "{failed}");

    // Right again, and dearer by a barrier for each of the 8 warps of 1, 1, 1, 1, 2 and 40 blocks.
    save("let i = thread::global_x();", "sync::block();\n    let i = thread::global_x();");
    let round = rounds.next();
    println!("seconds from save to verdict: {}", round["seconds"]);
    assert_eq!(round["verdict"], "pass", "{round}");
    let change = &round["kernels"][0]["change"];
    assert_eq!((&change["warp_instructions"], &change["sectors"]), (&(8 * 46).into(), &0.into()), "{round}");

    // The last profile stands beside the code: the line that moved one down loads two vectors and stores one.
    let mut inspect = clean(env!("CARGO_BIN_EXE_warpsmith"), project);
    let output = inspect.args(["inspect", "saxpy", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&shown["grid"][0], &shown["notes"]), (&40.into(), &serde_json::json!([])), "{}", shown["notes"]);
    let line = shown["rust"].as_array().unwrap().iter().find(|l| l["line"] == 16).unwrap();
    assert!(line["file"].as_str().unwrap().ends_with("saxpy.rs"), "{line}");
    assert!(line["text"].as_str().unwrap().contains("y.set(i, math::fma"), "{line}");
    assert_eq!(line["counters"]["sectors"], 3 * 40_000 / 32, "{line}");
    let ptx = shown["ptx"].as_array().unwrap();
    let fma = ptx.iter().find(|l| l["text"].as_str().unwrap().starts_with("fma.rn.f32")).unwrap();
    assert_eq!((&fma["source"]["line"], &fma["counters"]["lane_instructions"]), (&16.into(), &10_000.into()), "{fma}");
}

#[test]
fn a_project_on_published_crates_names_their_version() {
    let dir = tempfile::tempdir().unwrap();
    let made = warpsmith(dir.path(), &["new", "a/b/my-kernels", "--version", "0.1", "--json"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let said: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!((&said["name"], &said["kernel"]), (&"my-kernels".into(), &"saxpy".into()));
    let project = dir.path().join("a/b/my-kernels");
    for file in said["files"].as_array().unwrap() {
        let written = fs::read_to_string(project.join(file.as_str().unwrap())).unwrap();
        assert!(!["@NAME@", "@KERNEL@", "@HOST@", "@DEVICE@"].iter().any(|mark| written.contains(mark)), "{file}");
    }
    let manifest = fs::read_to_string(project.join("Cargo.toml")).unwrap();
    for line in ["name = \"my-kernels\"", "warpsmith-host = \"0.1\"", "warpsmith-builder = \"0.1\""] {
        assert!(manifest.contains(line), "{manifest}");
    }
    let kernels = fs::read_to_string(project.join("kernels/Cargo.toml")).unwrap();
    assert!(kernels.contains("warpsmith-device = \"0.1\""), "{kernels}");
}

#[test]
fn what_cannot_be_made_is_refused_with_the_reason_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("full")).unwrap();
    fs::write(dir.path().join("full/notes"), "mine").unwrap();
    fs::write(dir.path().join("file"), "mine").unwrap();
    let refused = |args: &[&str], names: &[&str]| {
        let made = warpsmith(dir.path(), &[&["new"], args].concat());
        let stderr = text(&made.stderr);
        assert_eq!(made.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        for name in names {
            assert!(stderr.contains(name), "{args:?} should name {name:?}: {stderr}");
        }
    };
    refused(&["full"], &["not empty", "full"]);
    refused(&["file"], &["is a file"]);
    refused(&["2fast"], &["2fast", "letter", "--name"]);
    refused(&["my kernels"], &["my kernels", "--name"]);
    refused(&["x", "--name", "fn"], &["keyword"]);
    refused(&["x", "--name", "kernels"], &["taken"]);
    refused(&["a:b", "--name", "x"], &["colon", "CUDA_LIBRARY_PATH"]);
    refused(&["x", "--path", "full"], &["full", "host/Cargo.toml"]);
    refused(&["x", "--version", "newest"], &["newest", "0.1.0"]);
    refused(&["x", "--template", "conv"], &["conv", "matmul"]);
    refused(&["x", "--path", ".", "--version", "1"], &["--version"]);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
