//! The build script under every outer cargo command that is in use.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::Fixture;

struct Consumer {
    fixture: Fixture,
}

impl Consumer {
    fn new() -> Consumer {
        let fixture = Fixture::basic();
        let root = fixture.dir.path().join("a consumer");
        common::copy(&common::fixtures().join("consumer"), &root);
        let manifest = root.join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        std::fs::write(&manifest, text.replace("@BUILDER@", env!("CARGO_MANIFEST_DIR"))).unwrap();
        // The versions that this workspace has fetched.
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
        std::fs::copy(lock, root.join("Cargo.lock")).unwrap();
        Consumer { fixture }
    }

    fn cargo(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO"));
        command
            .args(args)
            .arg("--offline")
            .current_dir(self.fixture.dir.path().join("a consumer"))
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("RUSTFLAGS")
            .env_remove("WARPSMITH_ARCHS")
            .env("WARPSMITH_CACHE_DIR", common::cache())
            .envs(env.iter().copied());
        let mut child =
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
        // A deadlock with the outer cargo would otherwise hang the whole suite.
        let stdout = child.stdout.take().unwrap();
        let stderr = child.stderr.take().unwrap();
        let read = |mut pipe: Box<dyn std::io::Read + Send>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).unwrap();
                bytes
            })
        };
        let (stdout, stderr) = (read(Box::new(stdout)), read(Box::new(stderr)));
        let start = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if start.elapsed() > Duration::from_secs(300) => {
                    child.kill().unwrap();
                    panic!("cargo {args:?} does not end");
                }
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }

    fn passes(&self, args: &[&str], env: &[(&str, &str)]) -> String {
        let output = self.cargo(args, env);
        assert!(output.status.success(), "cargo {args:?} {env:?}:\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// docs.rs has no source of `core`, and no network.
    fn documentation_needs_no_source_of_core(&self) {
        let cache = self.fixture.dir.path().join("no cache");
        let env = [
            ("DOCS_RS", "1"),
            ("WARPSMITH_RUST_SRC", "/nowhere/library"),
            ("WARPSMITH_CACHE_DIR", cache.to_str().unwrap()),
        ];
        self.passes(&["doc"], &env);
        assert_eq!(self.passes(&["run", "-q"], &env), "basic-kernels false\n");
        assert!(!cache.exists(), "nothing was compiled");
    }

    fn missing_rust_source_is_one_error_with_the_fix(&self) {
        let cache = self.fixture.dir.path().join("empty cache");
        let env = [("WARPSMITH_RUST_SRC", "/nowhere/library"), ("WARPSMITH_CACHE_DIR", cache.to_str().unwrap())];
        let output = self.cargo(&["build"], &env);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        for part in [
            "component rust-src",
            "/nowhere/library",
            "rustup component add rust-src --toolchain",
            "apt install rust-src",
        ] {
            assert!(stderr.contains(part), "no {part:?} in:\n{stderr}");
        }
    }
}

/// Asked for by the environment, machine code is made for the program; without an assembler that is one error.
fn machine_code_needs_an_assembler(consumer: &Consumer) {
    let env = [("WARPSMITH_CUBINS", "sm_80"), ("WARPSMITH_PTXAS", "/nowhere/ptxas")];
    let output = consumer.cargo(&["build"], &env);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for part in ["error: WARPSMITH_CUBINS: ", "/nowhere/ptxas, which does not run", "nvidia-cuda-nvcc", "=off"] {
        assert!(stderr.contains(part), "no {part:?} in:\n{stderr}");
    }
    assert_eq!(consumer.passes(&["run", "-q"], &[("WARPSMITH_CUBINS", "off")]), EXPECTED);
}

const EXPECTED: &str = "basic-kernels true\n80 true 1\n90 true 1\n";

#[test]
fn every_outer_command_builds_the_same_kernels() {
    let consumer = Consumer::new();
    assert_eq!(consumer.passes(&["run", "-q"], &[]), EXPECTED);
    consumer.passes(&["clippy"], &[]);
    consumer.passes(&["doc"], &[]);
    let native = [("RUSTFLAGS", "-Ctarget-cpu=native")];
    let host = host_triple();
    assert_eq!(consumer.passes(&["run", "-q", "--target", &host], &native), EXPECTED);

    // The text does not depend on the outer command.
    let target = consumer.fixture.dir.path().join("a consumer/target");
    let one = find(&target.join("debug/build"), "sm_80.ptx");
    let other = find(&target.join(&host).join("debug/build"), "sm_80.ptx");
    assert!(!one.is_empty() && !other.is_empty());
    for text in other.iter().chain(&one) {
        assert_eq!(text, &one[0]);
    }

    // An edit of a kernel is noticed, and a broken one is shown as rustc shows it.
    consumer.fixture.edit("let t = _thread_idx_x() as usize;", "let t: usize = \"no number\";");
    let output = consumer.cargo(&["build"], &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(101));
    assert!(
        stderr.contains("error[E0308]: mismatched types\n") && stderr.contains("expected `usize`, found `&str`"),
        "{stderr}"
    );
    assert!(stderr.contains("error: kernels of `basic-kernels` do not compile for sm_80"), "{stderr}");
    consumer.fixture.edit("let t: usize = \"no number\";", "let t = _thread_idx_x() as usize;");
    assert_eq!(consumer.passes(&["run", "-q"], &[]), EXPECTED);

    // Nothing changed: the build script does not run.
    let output = consumer.cargo(&["build", "-v"], &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("build-script-build`"), "{stderr}");

    machine_code_needs_an_assembler(&consumer);

    // WARPSMITH_ARCHS is watched and overrides.
    assert_eq!(consumer.passes(&["run", "-q"], &[("WARPSMITH_ARCHS", "sm_86")]), "basic-kernels true\n86 true 1\n");

    // In the same target directory, because what the build script needs is compiled there.
    consumer.documentation_needs_no_source_of_core();
    // rust-cuda's toolchain has the source of its own nightly.
    if std::env::var_os("WARPSMITH_BACKEND").is_none_or(|name| name != "cuda_builder") {
        consumer.missing_rust_source_is_one_error_with_the_fix();
    }
}

#[test]
fn a_release_build_with_an_exported_target_directory_does_not_deadlock() {
    let consumer = Consumer::new();
    let target = consumer.fixture.dir.path().join("exported target");
    let env = [
        ("CARGO_TARGET_DIR", target.to_str().unwrap()),
        ("CARGO_BUILD_BUILD_DIR", target.to_str().unwrap()),
        ("CARGO_INCREMENTAL", "1"),
    ];
    assert_eq!(consumer.passes(&["run", "-q", "--release"], &env), EXPECTED);
}

fn host_triple() -> String {
    let output = Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

fn find(dir: &Path, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(find(&entry.path(), name));
        } else if entry.file_name() == name {
            found.push(std::fs::read_to_string(entry.path()).unwrap());
        }
    }
    found
}
