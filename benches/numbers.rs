//! The project's numbers, printed: tokens per second of the shipped model on this engine, and the time from an edit of one
//! kernel to new PTX.
//!
//! `cargo bench --bench numbers`. Wall-clock figures: compare them on one machine only. They are printed, not asserted.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use warpsmith_builder::KernelCrate;
use warpsmith_host::Device;
use warpsmith_host::decode::{Mode, Model, Sequence, SequenceOptions};
use warpsmith_host::model::ModelFile;

type Outcome = Result<(), Box<dyn std::error::Error>>;
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// What the kernels need to be a workspace of their own.
const MEMBERS: [&str; 5] = ["gpu-kernels", "device", "macros", "builder", "simt"];

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Decodes `tokens` greedily, five times, and prints the median rate.
fn decode(mode: Mode) -> Outcome {
    let device = Device::open(0)?;
    let model = Model::load(&device, &ModelFile::open(Path::new(ROOT).join("models/tiny-qwen3-q4_0.gguf"))?)?;
    let tokens = 100;
    let options = SequenceOptions { capacity: Some(128), mode, ..Default::default() };
    let mut sequence = Sequence::new(&model, options)?;
    let mut times = Vec::new();
    for round in 0..6 {
        sequence.reset();
        let mut token = 72;
        let start = Instant::now();
        for _ in 0..tokens {
            token = sequence.feed(token)?;
        }
        // The first round captures the graph and warms caches.
        if round > 0 {
            times.push(start.elapsed());
        }
    }
    let seconds = median(times).as_secs_f64();
    println!(
        "decode, tiny-qwen3 Q4_0, {mode:?}: {:.1} tokens/s on {} (median of 5 runs of {tokens})",
        f64::from(tokens) / seconds,
        device.engine()
    );
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "tests" && entry.file_name() != "target" {
                copy_tree(&source, &target)?;
            }
        } else {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

/// A copy of the kernels and what they depend on, as a workspace of its own, so that the benchmark may edit it.
fn copy_kernels(to: &Path) -> io::Result<PathBuf> {
    let root = Path::new(ROOT);
    // The last two are dev-dependencies: never built here, but cargo reads their manifests.
    for part in MEMBERS {
        copy_tree(&root.join(part), &to.join(part))?;
    }
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    // Everything up to the root package is the workspace; only the members differ.
    let workspace = manifest.split("\n[package]").next().unwrap_or_default();
    let lines = workspace.lines().map(|line| match line.split(" = ").next() {
        Some("members") => format!("members = {MEMBERS:?}"),
        Some("default-members") => String::new(),
        _ => line.to_owned(),
    });
    fs::write(to.join("Cargo.toml"), lines.collect::<Vec<_>>().join("\n"))?;
    fs::copy(root.join("Cargo.lock"), to.join("Cargo.lock"))?;
    Ok(to.join("gpu-kernels"))
}

/// Edits one kernel and builds PTX for three architectures, warm, five times.
fn edit_to_ptx() -> Outcome {
    let dir = tempfile::tempdir()?;
    let kernels = copy_kernels(dir.path())?;
    // Kept between runs: a developer's cache is warm.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("numbers-cache");
    let build = || {
        KernelCrate::new(&kernels)
            .archs(["sm_75", "sm_80", "sm_90"])
            .out_dir(dir.path().join("out"))
            .cache_dir(&cache)
            .quiet()
            .build()
    };
    build()?;
    let file = kernels.join("src/norm.rs");
    let source = fs::read_to_string(&file)?;
    let mut times = Vec::new();
    for round in 1..=5 {
        // A change of arithmetic, so that the PTX really differs.
        fs::write(
            &file,
            source.replacen("squares / cols as f32 + eps", &format!("squares / cols as f32 + {round}.0 * eps"), 1),
        )?;
        let start = Instant::now();
        let output = build()?;
        times.push(start.elapsed());
        assert_eq!(output.images.len(), 3);
    }
    println!(
        "edit of one kernel to new PTX, three architectures, warm: {:.2} s (median of 5)",
        median(times).as_secs_f64()
    );
    Ok(())
}

fn main() -> Outcome {
    // `cargo test --benches` and `cargo bench -- --test` only ask whether it runs.
    decode(Mode::Graph)?;
    decode(Mode::Eager)?;
    edit_to_ptx()
}
