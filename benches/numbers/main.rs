//! The project's numbers, printed: what a program carries, tokens per second of the shipped model on this engine, and the times
//! from an edit of one kernel to new PTX and from a save to the verdict of `warpsmith watch`.
//!
//! `cargo bench --bench numbers`. Wall-clock figures: compare them on one machine only. They are printed, not asserted.
//! `-- --quick` decodes once instead of three times, and edits the empty kernel alone: the first build of a copy of all others
//! takes minutes, and so does that of a new project.

mod watch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use warpsmith_builder::KernelCrate;
use warpsmith_driver_api::software;
use warpsmith_host::decode::{
    Activations, DecoderOptions, KvType, Mode, Model, SequenceOptions, Session, SessionOptions,
};
use warpsmith_host::model::ModelFile;
use warpsmith_host::{Device, builtin_image};

type Outcome = Result<(), Box<dyn std::error::Error>>;
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The crate that is copied and edited.
const KERNELS: &str = "gpu-kernels";

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Bytes that a token cannot do without: every weight of the layers and of the output projection as stored, and the keys
/// and values of `positions` positions.
fn floor(file: &ModelFile, positions: u64, kv: KvType) -> u64 {
    let c = file.config();
    let layers = file.layers().iter().flat_map(|l| l.matrices());
    let weights: usize = layers.chain([file.output()]).map(|m| file.data(m).len()).sum();
    let row = (c.head_dim * kv.bytes() + kv.scale_bytes()) as u64;
    weights as u64 + 2 * positions * ((c.layers - c.recurrent_layers()) * c.kv_heads) as u64 * row
}

/// Decodes tokens greedily, so many times, and prints the median rate; on the software driver also what a token costs.
fn decode(path: &Path, mode: Mode, activations: Activations, rounds: usize) -> Outcome {
    const TOKENS: u64 = 50;
    let device = Device::open(0)?;
    let file = ModelFile::open(path)?;
    let model = Model::load(&device, &file)?;
    let capacity = Some(file.config().context.min(128));
    let mut session = Session::new(
        &model,
        SessionOptions {
            sequence: SequenceOptions { capacity, ..Default::default() },
            decoder: DecoderOptions { mode, activations, ..Default::default() },
        },
    )?;
    let mut times = Vec::new();
    for round in 0..=rounds {
        session.reset();
        let mut token = 72;
        // The first round captures the graph and warms caches; the last one's launches are counted.
        software::reset_profile();
        let start = Instant::now();
        for _ in 0..TOKENS {
            token = session.feed(token)?;
        }
        if round > 0 {
            times.push(start.elapsed());
        }
    }
    let seconds = median(times).as_secs_f64();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    println!(
        "decode, {name}, {mode:?}, {activations} activations: {:.1} tokens/s on {} (median of {rounds} runs of {TOKENS})",
        TOKENS as f64 / seconds,
        device.engine()
    );
    if device.is_software() && mode == Mode::Graph {
        let kernels = software::profile();
        let per_token =
            |f: fn(&software::KernelProfile) -> u64| kernels.iter().map(f).sum::<u64>() as f64 / TOKENS as f64;
        let floor = floor(&file, TOKENS / 2, session.kv_type()) as f64;
        let bytes = per_token(|k| k.counters.global_load_bytes + k.counters.global_store_bytes);
        println!(
            "  a token: {} launches, {:.2} M lane instructions, {:.3} MB of global memory accessed; floor {:.3} MB (weights, keys and values, once)",
            session.launches_per_step(),
            per_token(|k| k.counters.lane_instructions) / 1e6,
            bytes / 1e6,
            floor / 1e6,
        );
    }
    Ok(())
}

/// The models that ship with the project.
fn shipped() -> io::Result<Vec<PathBuf>> {
    let folder = fs::read_dir(Path::new(ROOT).join("models"))?;
    let mut all: Vec<PathBuf> = folder.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    all.retain(|p| p.extension().is_some_and(|e| e == "gguf"));
    all.sort();
    Ok(all)
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

/// The folders of the workspace that the kernels need to be a workspace of their own, themselves among them, in order.
///
/// Dev-dependencies are followed too: they are never built here, but cargo reads their manifests.
fn members() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let said = std::process::Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(ROOT)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    if !said.status.success() {
        return Err(format!("cargo metadata failed: {}", said.status).into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&said.stdout)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let mut found = BTreeSet::new();
    let mut left = vec![Path::new(ROOT).join(KERNELS)];
    while let Some(folder) = left.pop() {
        let name = folder.strip_prefix(ROOT)?.to_str().ok_or("a folder's name is not UTF-8")?.to_owned();
        if !found.insert(name) {
            continue;
        }
        let manifest = folder.join("Cargo.toml");
        let package = packages
            .iter()
            .find(|p| p["manifest_path"].as_str().is_some_and(|path| Path::new(path) == manifest))
            .ok_or_else(|| format!("{} is no member of the workspace", folder.display()))?;
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        left.extend(dependencies.filter_map(|d| d["path"].as_str()).map(PathBuf::from));
    }
    Ok(found.into_iter().collect())
}

/// A copy of the kernels and what they depend on, as a workspace of its own, so that the benchmark may edit it.
fn copy_kernels(to: &Path) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let root = Path::new(ROOT);
    let members = members()?;
    for part in &members {
        copy_tree(&root.join(part), &to.join(part))?;
    }
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    // Everything up to the root package is the workspace; only the members differ.
    let workspace = manifest.split("\n[package]").next().unwrap_or_default();
    let lines = workspace.lines().map(|line| match line.split(" = ").next() {
        Some("members") => format!("members = {members:?}"),
        Some("default-members") => String::new(),
        _ => line.to_owned(),
    });
    fs::write(to.join("Cargo.toml"), lines.collect::<Vec<_>>().join("\n"))?;
    fs::copy(root.join("Cargo.lock"), to.join("Cargo.lock"))?;
    Ok(to.join(KERNELS))
}

/// A crate of one kernel that does nothing: what cargo, rustc and the builder take at least.
const EMPTY: &str = r#"#![no_std]
#![feature(abi_ptx, asm_experimental_arch)]
core::arch::global_asm!("// @kernel {{\"name\":\"empty\",\"block\":[32,1,1],\"args\":[]}}");
#[unsafe(no_mangle)]
pub extern "ptx-kernel" fn empty() {}
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
"#;

/// The same with other threads in a block: an edit that changes no code compiles nothing.
fn another_block(round: u32) -> String {
    EMPTY.replace("[32,1,1]", &format!("[{},1,1]", 32 + round))
}

fn empty_crate(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir.join("src"))?;
    let manifest = "[package]\nname = \"empty\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    fs::write(dir.join("Cargo.toml"), manifest)?;
    fs::write(dir.join("src/lib.rs"), EMPTY)
}

/// The time from an edit to new PTX, warm, the median of five. Each edit changes the text.
fn edited(
    kernels: &Path,
    file: &Path,
    edit: impl Fn(u32) -> String,
    archs: &[&str],
) -> Result<f64, Box<dyn std::error::Error>> {
    // Kept between runs: a developer's cache is warm.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("numbers-cache");
    let out = tempfile::tempdir()?;
    let build =
        || KernelCrate::new(kernels).archs(archs.to_vec()).out_dir(out.path()).cache_dir(&cache).quiet().build();
    build()?;
    let mut times = Vec::new();
    for round in 1..=5 {
        fs::write(file, edit(round))?;
        let start = Instant::now();
        let output = build()?;
        times.push(start.elapsed());
        assert!(output.images.len() == archs.len() && output.images.iter().all(|image| !image.fresh));
    }
    Ok(median(times).as_secs_f64())
}

/// Edits one kernel of all, and a crate of one that does nothing, which says how fast this machine is now.
fn edit_to_ptx(quick: bool) -> Outcome {
    let dir = tempfile::tempdir()?;
    let empty = dir.path().join("empty");
    empty_crate(&empty)?;
    let least = edited(&empty, &empty.join("src/lib.rs"), another_block, &["sm_90"])?;
    println!("edit of an empty kernel alone to new PTX, sm_90, warm: {least:.2} s (median of 5)");
    if quick {
        return Ok(());
    }
    let kernels = copy_kernels(&dir.path().join("all"))?;
    // Changes of arithmetic, so that the PTX really differs: in a kernel, and in what kernels of several files use.
    for (what, file, from) in [
        ("one of the kernels", "src/gather.rs", "else { f32::NAN }"),
        ("a function of kernels in several files", "src/norm.rs", "squares / cols as f32 + eps"),
    ] {
        let file = kernels.join(file);
        let source = fs::read_to_string(&file)?;
        let edit = |round| {
            let to =
                from.replace("f32::NAN", &format!("f32::NAN + {round}.0")).replace("eps", &format!("{round}.0 * eps"));
            source.replacen(from, &to, 1)
        };
        for archs in [&["sm_90"][..], &["sm_75", "sm_80", "sm_90"]] {
            let time = edited(&kernels, &file, edit, archs)?;
            println!(
                "edit of {what} to new PTX, {}, warm: {time:.2} s, {:.1} times an empty one (median of 5)",
                archs.join(" "),
                time / least
            );
            fs::write(&file, &source)?;
        }
    }
    Ok(())
}

/// Bytes of the code that is embedded, of what it is unpacked, and of the tool as it is built here.
fn sizes() -> Outcome {
    let image = builtin_image();
    let text: usize = image.code()?.iter().map(|(_, text)| text.len()).sum();
    println!("embedded code: {} bytes for {text} of PTX with its lines", image.embedded_bytes());
    let tool = env!("CARGO_BIN_EXE_warpsmith");
    println!("{tool}: {} bytes", fs::metadata(tool)?.len());
    Ok(())
}

/// Whether a file's name has one of these formats in it.
fn name_has(path: &Path, formats: &[&str]) -> bool {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    formats.iter().any(|f| name.contains(f))
}

fn main() -> Outcome {
    // `cargo bench -- FILTER` runs what has the filter in its name.
    if std::env::args().skip(1).any(|a| !a.starts_with('-') && !"numbers".contains(&a)) {
        return Ok(());
    }
    let quick = std::env::args().any(|a| a == "--quick");
    let rounds = if quick { 1 } else { 3 };
    sizes()?;
    for path in shipped()? {
        decode(&path, Mode::Graph, Activations::F32, rounds)?;
        decode(&path, Mode::Eager, Activations::F32, rounds)?;
        if name_has(&path, &["q1_0", "tq2_0"]) {
            decode(&path, Mode::Graph, Activations::Int16, rounds)?;
        }
        if !name_has(&path, &["f16"]) {
            decode(&path, Mode::Graph, Activations::Int8, rounds)?;
        }
    }
    edit_to_ptx(quick)?;
    if quick {
        return Ok(());
    }
    watch::save_to_verdict()
}
