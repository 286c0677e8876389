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
            || name_text.starts_with("WARPSMITH") && name_text != "WARPSMITH_RUST_CUDA"
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
    // What is run here is short: a driver without optimisation is built sooner than it gains. Nor is any of it looked into.
    let once = "[build]\nincremental = false\n[profile.dev.package.\"*\"]\ndebug = false\n";
    let packages =
        ["warpsmith-simt", "warpsmith-driver-api"].map(|p| format!("[profile.dev.package.{p}]\nopt-level = 0\n"));
    fs::write(place.join(".cargo/config.toml"), once.to_owned() + &packages.concat()).unwrap();
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

    a_wrong_name(&project);
    kernels_of_its_own(&project);
    benchmarks_of_its_own(&project);
    a_second_kernel(&project);
    watch_and_inspect(&project);
}

/// Kernels under a name that no build script made: what the compiler says stands in docs/mistakes.md.
fn a_wrong_name(project: &Path) {
    let path = project.join("src/main.rs");
    let source = fs::read_to_string(&path).unwrap();
    let wrong = source.replace("include_kernels!(\"kernels\")", "include_kernels!(\"kernel\")");
    assert_ne!(wrong, source);
    fs::write(&path, wrong).unwrap();
    let output = cargo(project, &["check", "--quiet", "--bin", "first-kernel"]).output().unwrap();
    fs::write(&path, source).unwrap();
    let said = text(&output.stderr);
    let error = said.lines().find(|line| line.starts_with("error")).unwrap_or_default();
    assert_eq!(error, include_str!("messages/include_kernels.txt").trim_end(), "{said}");
}

/// The tool in a project: what it prints if it ends with this code.
fn tool(project: &Path, args: &[&str], code: i32) -> (String, String) {
    let output = clean(env!("CARGO_BIN_EXE_warpsmith"), project).args(args).output().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "warpsmith {args:?}:\n{stdout}\n{stderr}");
    // Tests of the project may; the tool may not.
    assert!(!stderr.contains("thread 'main'"), "{stderr}");
    (stdout, stderr)
}

fn tool_json(project: &Path, args: &[&str], code: i32) -> Value {
    let (stdout, stderr) = tool(project, args, code);
    serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("warpsmith {args:?}: {e}\n{stdout}\n{stderr}"))
}

/// Commands mean the project's kernels in the project, as they mean those that ship elsewhere.
fn kernels_of_its_own(project: &Path) {
    let listed = tool_json(project, &["kernels", "--json"], 0);
    assert_eq!((&listed["library"], &listed["kernels"][0]["name"]), (&"kernels".into(), &"saxpy".into()), "{listed}");
    assert_eq!(listed["kernels"].as_array().unwrap().len(), 1);
    assert!(tool_json(project, &["kernels", "--json", "--shipped"], 0)["kernels"].as_array().unwrap().len() > 50);

    let (out, _) = tool(project, &["check"], 0);
    assert!(out.contains("2 of 2 tests pass") && out.contains("0 errors, 0 warnings"), "{out}");
    let checked = tool_json(project, &["check", "saxpy", "--seeds", "2", "--json"], 0);
    assert_eq!(
        (&checked["outputs"]["runs"], &checked["outputs"]["verdict"]),
        (&2.into(), &"the same".into()),
        "{checked}"
    );
    let (_, err) = tool(project, &["check", "sxapy"], 2);
    assert!(err.contains("sxapy") && err.contains("it has saxpy") && err.contains("--shipped"), "{err}");

    // The launch of 10,000 elements: x and y in, y out, in sectors of 32 bytes.
    let profiled = tool_json(project, &["profile", "saxpy", "--gpu", "h100", "--json"], 0);
    let launches = profiled["launches"].as_array().unwrap();
    let largest = launches.iter().find(|l| l["grid"][0] == 40).unwrap();
    assert_eq!(launches.len(), 3, "grids of 1, of 2 and of 40 blocks: {profiled}");
    assert_eq!(largest["dram_bytes"]["at_least"], 3 * 40_000, "{largest}");
    // 120,000 bytes at 3350 GB/s.
    let projection = &largest["projection"];
    assert_eq!((&projection["gpu"], &projection["projection"]), (&"NVIDIA H100 SXM".into(), &true.into()));
    assert!((projection["dram_us"]["at_least"].as_f64().unwrap() - 0.035_82).abs() < 1e-4, "{projection}");
    assert!(tool(project, &["profile", "saxpy"], 0).0.contains("projection on NVIDIA H200"), "the default");

    // A program is projected as well.
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("external-target/debug/first-kernel");
    let program = program.to_str().unwrap();
    let output = clean(env!("CARGO_BIN_EXE_warpsmith"), project)
        .args(["profile", "--gpu", "h100", "--json", "--", program])
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    // The program prints too.
    let ran: Value = serde_json::from_str(&out[out.find('{').unwrap()..]).unwrap();
    let launch = &ran["launches"][0];
    assert_eq!(
        (&launch["kernel"], &launch["projection"]["gpu"]),
        (&"saxpy".into(), &"NVIDIA H100 SXM".into()),
        "{launch}"
    );

    // The same bits on the driver's device and on the simulated one: fused multiply-add is exact.
    let compared = tool_json(project, &["compare", "--driver", "software", "--json"], 0);
    let rows = compared["kernels"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "two sizes are benched: {compared}");
    assert!(rows.iter().all(|r| r["identical"] == true && r["elements"].as_u64().unwrap() >= 1024), "{compared}");

    // A budget is held to ptxas, which not every machine has.
    let manifest = project.join("Cargo.toml");
    let before = fs::read_to_string(&manifest).unwrap();
    let budget = "[package.metadata.warpsmith.budget.saxpy]\nregisters = 4\n";
    fs::write(&manifest, format!("{before}\n{budget}")).unwrap();
    match env::var_os("WARPSMITH_PTXAS").filter(|p| !p.is_empty()) {
        None => drop(tool(project, &["budget"], if on_path("ptxas") { 8 } else { 6 })),
        Some(ptxas) => {
            let mut command = clean(env!("CARGO_BIN_EXE_warpsmith"), project);
            let output = command.args(["budget", "--json"]).env("WARPSMITH_PTXAS", ptxas).output().unwrap();
            let said: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(8), "{said}");
            let missed = said["kernels"][0]["missed"][0].as_str().unwrap();
            assert!(missed.starts_with("registers is ") && missed.ends_with("at most 4 are allowed"), "{said}");
        }
    }
    fs::write(&manifest, format!("{before}\n{}", budget.replace("registers", "registres"))).unwrap();
    assert!(tool(project, &["budget"], 2).1.contains("registres"));
    fs::write(&manifest, before).unwrap();
}

fn on_path(program: &str) -> bool {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(program).is_file())
}

/// A benchmark as `cargo bench` runs it, but in the profile in which everything is built already.
fn bench(project: &Path, variables: &[(&str, &str)], code: i32) -> String {
    let mut command = cargo(project, &["test", "--quiet", "--bench", "saxpy", "--", "--bench"]);
    let reports = project.join("target/reports");
    let output = command.env("WARPSMITH_BENCH_DIR", reports).envs(variables.iter().copied()).output().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.success(), code == 0, "{stdout}\n{stderr}");
    stdout
}

/// Table, page, figures of the run before, baseline, and another build beside this one.
fn benchmarks_of_its_own(project: &Path) {
    let first = bench(project, &[], 0);
    for word in ["saxpy/1024/a thread an element: ", " lane instructions", "inst/elem", "Outputs were compared"] {
        assert!(first.contains(word), "{word}: {first}");
    }
    assert!(!first.contains("time:"), "counts are no time: {first}");
    let reports = project.join("target/reports");
    let page = fs::read_to_string(reports.join("saxpy.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("saxpy/1024"), "{page}");
    let figures: Value = serde_json::from_str(&fs::read_to_string(reports.join("saxpy.json")).unwrap()).unwrap();
    // Two vectors of 1024 f32 in, one out.
    assert_eq!(
        (&figures["benchmarks"][0]["dram_bytes"], &figures["benchmarks"][0]["launches"]),
        (&12_288.into(), &1.into())
    );

    let written = bench(project, &[("WARPSMITH_BASELINE", "write")], 0);
    assert!(written.contains("(as before)") && written.contains("saxpy.baseline.json"), "{written}");
    let image = project.join("target/image");
    tool(project, &["kernels", "--export", image.to_str().unwrap()], 0);
    let kernel = project.join("kernels/src/saxpy.rs");
    let good = fs::read_to_string(&kernel).unwrap();

    // A barrier more is worse than the baseline, and stands beside the build from before.
    fs::write(&kernel, good.replace("let i = thread::global_x();", "sync::block();\n    let i = thread::global_x();"))
        .unwrap();
    let worse = bench(project, &[("WARPSMITH_BENCH_AGAINST", image.to_str().unwrap())], 1);
    assert!(worse.contains("worse: saxpy/1024/a thread an element lane_instructions"), "{worse}");
    assert!(worse.contains("saxpy/1024/a thread an element (against)"), "{worse}");

    // What is wrong is not measured, by the benchmark or by the tests.
    fs::write(&kernel, good.replace("math::fma(a,", "math::fma(a + 1.0,")).unwrap();
    let wrong = bench(project, &[], 1);
    assert!(wrong.contains("saxpy/1024/a thread an element: wrong, and not measured: y: element 0 is"), "{wrong}");
    assert!(!wrong.contains("inst/elem"), "{wrong}");
    let (out, _) = tool(project, &["check"], 5);
    assert!(out.contains("test saxpy_is_its_reference fails") && out.contains("1 of 2 tests pass"), "{out}");
    assert!(tool(project, &["profile", "saxpy"], 5).1.contains("saxpy_is_its_reference"));
    let (out, _) = tool(project, &["compare", "--driver", "software"], 5);
    assert!(out.contains("y: element 0 is"), "{out}");

    // Reading past the end is an error of the checks.
    fs::write(&kernel, good.replace("if i < n as usize", "if i <= n as usize")).unwrap();
    let found = tool_json(project, &["check", "saxpy", "--json"], 7);
    let finding = &found["findings"][0];
    assert_eq!(
        (&finding["rule"], &finding["place"]["line"]),
        (&"memory::out-of-bounds".into(), &15.into()),
        "{finding}"
    );
    fs::write(&kernel, good).unwrap();
}

/// `add` writes a kernel with test and benchmark, which pass at once, and overwrites nothing.
fn a_second_kernel(project: &Path) {
    let said = tool_json(project, &["add", "row_total", "--template", "reduction", "--json"], 0);
    let files = ["kernels/src/row_total.rs", "tests/row_total.rs", "benches/row_total.rs"];
    assert_eq!(said["files"], serde_json::json!(files), "{said}");
    passes(project, &["fmt", "--package", "first-kernel", "--package", "kernels", "--check"]);
    let tested = passes(project, &["test", "--quiet", "--test", "row_total", "--bench", "row_total"]);
    assert!(tested.contains("2 passed") && tested.contains("Testing row_total/1024/block_reduce"), "{tested}");
    let listed = tool_json(project, &["kernels", "row_total", "--json"], 0);
    assert_eq!(listed["kernels"][0]["name"], "row_total", "{listed}");

    let before = fs::read_to_string(project.join("Cargo.toml")).unwrap();
    for (kernel, why) in [("row_total", "already"), ("saxpy", "already"), ("2fast", "letter"), ("fn", "keyword")] {
        let (_, err) = tool(project, &["add", kernel], 2);
        assert!(err.contains(why) && err.contains(kernel), "{err}");
    }
    // A file in the way, and nothing else: what was not written before it is not written either.
    fs::write(project.join("tests/third.rs"), "mine").unwrap();
    assert!(tool(project, &["add", "third"], 2).1.contains("tests/third.rs is there already"));
    assert!(!project.join("kernels/src/third.rs").exists());
    assert_eq!(fs::read_to_string(project.join("tests/third.rs")).unwrap(), "mine");
    fs::remove_file(project.join("tests/third.rs")).unwrap();
    assert_eq!(fs::read_to_string(project.join("Cargo.toml")).unwrap(), before);
    assert!(
        tool(&project.join("kernels/src"), &["add", "x", "--project", "/nonexistent"], 6).1.contains("/nonexistent")
    );
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
    for line in [
        "name = \"my-kernels\"",
        "warpsmith-host = { version = \"0.1\", default-features = false }",
        "warpsmith-builder = \"0.1\"",
    ] {
        assert!(manifest.contains(line), "{manifest}");
    }
    let kernels = fs::read_to_string(project.join("kernels/Cargo.toml")).unwrap();
    assert!(kernels.contains("warpsmith-device = \"0.1\""), "{kernels}");
    // Published crates need no variable to build.
    assert!(!project.join(".cargo").exists());
    // Projects on one checkout have the same variable, so that they can share a target folder.
    let configs = ["one", "two"].map(|name| {
        assert!(warpsmith(dir.path(), &["new", name, "--path", ROOT]).status.success());
        fs::read_to_string(dir.path().join(name).join(".cargo/config.toml")).unwrap()
    });
    assert!(configs[0] == configs[1] && configs[0].contains(ROOT) && !configs[0].contains("relative"), "{configs:?}");
}

#[test]
fn a_project_for_the_other_generator_builds_where_its_toolchain_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let place = place(&dir);
    let new =
        |more: &[&str]| warpsmith(&place, &[&["new", "by-rust-cuda", "--backend", "cuda_builder"], more].concat());
    let refused = new(&["--version", "0.1"]);
    assert!(text(&refused.stderr).contains("not on crates.io"), "{}", text(&refused.stderr));
    let made = new(&["--path", ROOT]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let project = place.join("by-rust-cuda");
    passes(&project, &["fmt", "--package", "by-rust-cuda", "--package", "kernels", "--check"]);
    let script = fs::read_to_string(project.join("build.rs")).unwrap();
    assert!(script.contains(".backend(warpsmith_builder::Backend::CudaBuilder);\n"), "{script}");

    let mut doctor = clean(env!("CARGO_BIN_EXE_warpsmith"), &project);
    let doctor = doctor.arg("doctor").env("WARPSMITH_BACKEND", "cuda_builder").output().unwrap();
    if !doctor.status.success() {
        println!("SKIPPED: the project was not built, since rust-cuda's toolchain is not found");
        return;
    }
    let tested = passes(&project, &["test", "--quiet"]);
    assert!(tested.contains("2 passed"), "{tested}");
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
    refused(&["x", "--path", "full"], &["full", "host/Cargo.toml"]);
    refused(&["x", "--version", "newest"], &["newest", "0.1.0"]);
    refused(&["x", "--template", "conv"], &["conv", "matmul"]);
    refused(&["x", "--path", ".", "--version", "1"], &["--version"]);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
