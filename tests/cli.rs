//! The command line as a user meets it: exit codes, output, bad input.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny-qwen3-q4_0.gguf");
const HI_GPU: &str = "72,105,44,32,71,80,85,33";
/// `greedy_next_8` of tests/data/manifest.json for both tiny models: llama.cpp and the f64 oracle agree on them.
const GREEDY: [u64; 8] = [196, 201, 145, 231, 30, 187, 191, 250];

fn warpsmith(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpsmith")).args(args).current_dir(ROOT).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(args: &[&str]) -> Value {
    let output = warpsmith(args);
    assert!(output.status.success(), "{}\n{}", stdout(&output), stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Fails with this exit code and names these things on stderr, without a panic.
fn refused(args: &[&str], code: i32, names: &[&str]) {
    let output = warpsmith(args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
    for name in names {
        assert!(text.contains(name), "{args:?} should name {name:?}: {text}");
    }
}

#[test]
fn run_json_has_engine_model_tokens_graph_kernels_and_the_difference_to_the_reference() {
    let run = json(&["run", "--model", MODEL, "--tokens", HI_GPU, "-n", "8", "--json"]);
    println!("engine: {}", run["engine"]);
    assert!(run["engine"]["kind"] == "software" || run["engine"]["kind"] == "cuda");
    assert_eq!(run["model"]["architecture"], "qwen3");
    assert_eq!(run["model"]["layers"], 2);
    assert_eq!(run["tokens_fed"].as_array().unwrap().len(), 15, "8 of the prompt, 7 of the 8 generated");
    let generated: Vec<u64> = run["tokens_generated"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap()).collect();
    assert_eq!(generated, GREEDY);
    assert_eq!(run["graph"]["nodes"], run["graph"]["eager_launches"]);
    assert!(run["graph"]["replays"].as_u64().unwrap() >= 13, "{}", run["graph"]);
    assert!(run["seconds"].as_f64().unwrap() > 0.0);
    assert!(run["kernels"].as_array().unwrap().iter().any(|k| k["name"].as_str().unwrap().starts_with("gemv_q4_0")));
    assert_eq!(run["reference"]["verdict"], "pass");
    assert!(run["reference"]["max_difference"].as_f64().unwrap().is_finite());
}

#[test]
fn dumped_logits_are_one_row_per_fed_position_and_match_the_golden_ones() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("logits.f32");
    let run = warpsmith(&[
        "run",
        "--model",
        MODEL,
        "--tokens",
        HI_GPU,
        "-n",
        "3",
        "--kv",
        "f32",
        "--dump-logits",
        file.to_str().unwrap(),
    ]);
    assert!(run.status.success(), "{}", stderr(&run));
    let logits: Vec<f32> = std::fs::read(&file).unwrap().as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    assert_eq!(logits.len(), 10 * 256, "8 positions of the prompt and 2 generated ones were fed");
    let golden = std::fs::read(Path::new(ROOT).join("tests/data/tiny-qwen3-q4_0.logits.f64")).unwrap();
    let golden: Vec<f64> = golden.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect();
    // logits_std of the model in manifest.json.
    let std = 2.998918247857855;
    let worst = golden.iter().zip(&logits).map(|(&g, &l)| (g - f64::from(l)).abs() / std).fold(0.0, f64::max);
    println!("largest difference {worst:.2e} of the logits' standard deviation");
    assert!(worst <= 1e-4, "{worst:.3e}");
}

#[test]
fn integer_activations_are_run_where_they_are_asked_for_and_pass() {
    let run = warpsmith(&["run", "-n", "4", "--activations", "int8", "--json"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let report: serde_json::Value = serde_json::from_str(&stdout(&run)).unwrap();
    assert_eq!((&report["activations"], &report["reference"]["verdict"]), (&"int8".into(), &"pass".into()));
    let kernels: Vec<&str> = report["kernels"].as_array().unwrap().iter().filter_map(|k| k["name"].as_str()).collect();
    assert!(kernels.contains(&"quantize_i8") && kernels.contains(&"gemv_q8_0_i8"), "{kernels:?}");
    assert!(!kernels.contains(&"gemv_q8_0"), "{kernels:?}");
}

#[test]
fn eager_and_graph_runs_print_the_same_logits_to_the_bit() {
    let dir = tempfile::tempdir().unwrap();
    let files = [dir.path().join("graph"), dir.path().join("eager")];
    for (file, mode) in files.iter().zip([&[][..], &["--eager"][..]]) {
        let mut args =
            vec!["run", "--prompt", "Hello", "-n", "12", "--verify", "off", "--dump-logits", file.to_str().unwrap()];
        args.extend(mode);
        let run = warpsmith(&args);
        assert!(run.status.success(), "{}", stderr(&run));
    }
    assert!(std::fs::read(&files[0]).unwrap() == std::fs::read(&files[1]).unwrap());
}

#[test]
fn text_output_names_the_engine_and_closes_with_table_and_verdict() {
    let run = warpsmith(&["run", "--driver", "software", "-n", "4"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let text = stdout(&run);
    for part in [
        "software",
        "warpsmith-2m-q8_0",
        "The woman said to him,",
        "tokens/s",
        "launches",
        "instructions",
        "gemv_q8_0",
        "reference",
        "pass",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

/// The README's first command is `cargo run --release`, without a subcommand.
#[test]
fn without_a_subcommand_the_shipped_model_is_run_with_the_options_defaults() {
    let (bare, run) = (warpsmith(&[]), warpsmith(&["run"]));
    assert!(bare.status.success(), "{}\n{}", stdout(&bare), stderr(&bare));
    // Times differ from run to run; the text and the verdict do not.
    let lines = |output: &Output| -> Vec<String> {
        stdout(output).lines().filter(|l| !l.contains("tokens/s") && !l.contains('%')).map(str::to_owned).collect()
    };
    assert_eq!(lines(&bare), lines(&run));
    assert!(stdout(&bare).contains("reference: pass"), "{}", stdout(&bare));
}

#[test]
fn bad_input_has_its_exit_code_and_names_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let junk = dir.path().join("junk.gguf");
    std::fs::write(&junk, b"GGUX not a model").unwrap();
    let cut = dir.path().join("cut.gguf");
    std::fs::write(&cut, &std::fs::read(MODEL).unwrap()[..5000]).unwrap();

    refused(&["run", "--model", "no/such.gguf"], 3, &["no/such.gguf"]);
    refused(&["run", "--model", junk.to_str().unwrap()], 3, &["junk.gguf", "GGUF"]);
    refused(&["run", "--model", cut.to_str().unwrap()], 3, &["cut.gguf"]);
    refused(&["run", "--tokens", "72,1024"], 3, &["1024", "vocabulary"]);
    refused(&["run", "--tokens", "72", "-n", "600"], 3, &["512", "context"]);
    refused(&["run", "--prompt", ""], 3, &["empty"]);
    refused(&["run", "--tokens", "x"], 2, &["x"]);
    refused(&["run", "--tokens", "1", "--prompt", "a"], 2, &["--prompt"]);
    refused(&["run", "--device", "7"], 1, &["7"]);
    refused(&["run", "--dump-logits", "/no/such/folder/f", "-n", "1"], 1, &["/no/such/folder/f"]);
    refused(&["frobnicate"], 2, &["frobnicate"]);
}

#[test]
fn a_forced_engine_that_is_absent_is_an_error_and_never_a_fallback() {
    // Only where there is no real driver: elsewhere the run succeeds, and says so.
    let output = warpsmith(&["run", "--driver", "cuda", "-n", "1", "--json"]);
    if output.status.success() {
        let run: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(run["engine"]["kind"], "cuda");
    } else {
        assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
        assert!(stderr(&output).contains("libcuda"), "{}", stderr(&output));
    }
}

#[test]
fn doctor_reports_every_probe_and_the_fix_for_what_is_missing() {
    let report = json(&["doctor", "--json"]);
    let probes = report["probes"].as_array().unwrap();
    for name in ["rustc", "rust-src", "ptxas", "driver"] {
        assert!(probes.iter().any(|p| p["name"].as_str().unwrap().contains(name)), "{name} is not probed: {report}");
    }
    for probe in probes.iter().filter(|p| p["state"] != "ok") {
        assert!(!probe["fix"].as_str().unwrap_or_default().is_empty(), "no fix: {probe}");
    }
}

#[test]
fn doctor_names_a_setting_that_stops_builds_or_runs() {
    let doctor = |name: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
        let output = command.args(["doctor", "--json"]).env(name, value).current_dir(ROOT).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report)
    };
    let probe = |report: &Value, name: &str| {
        report["probes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|p| p["name"] == name)
            .unwrap_or_else(|| panic!("{name}"))
            .clone()
    };
    for (variable, value, name, part) in [
        ("WARPSMITH_DRIVER", "gpu", "engine", "expected auto, cuda or software"),
        ("WARPSMITH_MEMORY", "lots", "engine", "WARPSMITH_MEMORY"),
        ("WARPSMITH_ARCHS", "sm_61", "WARPSMITH_ARCHS", "sm_70"),
    ] {
        let (code, report) = doctor(variable, value);
        let found = probe(&report, name);
        assert_eq!((code, &report["ok"], &found["state"]), (Some(6), &false.into(), &"missing".into()), "{found}");
        assert!(found["detail"].as_str().unwrap().contains(part) && found["fix"].is_string(), "{found}");
    }
    // What only rust-cuda needs is needed by the build that asks for it.
    let needs = |report: &Value| probe(report, "llvm-config of LLVM 7")["needed_for"].clone();
    assert_eq!(needs(&doctor("WARPSMITH_BACKEND", "").1), "cuda_builder");
    assert_eq!(needs(&doctor("WARPSMITH_BACKEND", "cuda_builder").1), "build");
}

#[test]
fn compare_finds_the_bits_of_the_simulated_device_on_the_driver() {
    let found = json(&["compare", "swiglu", "residual_add", "argmax", "--driver", "software", "--json"]);
    let rows = found["kernels"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "{found}");
    for row in rows {
        assert_eq!((&row["identical"], &row["explained"]), (&Value::Bool(true), &Value::Bool(true)), "{row}");
        assert!(row["cases"].as_u64().unwrap() > 3 && row["elements"].as_u64().unwrap() > 20, "{row}");
    }
    assert!(rows.iter().any(|r| r["kernels"] == "swiglu" && r["approximate"][0]["kernel"] == "swiglu"), "{found}");
    refused(&["compare", "swigl"], 2, &["did you mean swiglu"]);
    refused(&["compare", "swiglu", "--shape", "m=1"], 2, &["no size `m`"]);
}

#[test]
fn shells_and_man_know_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man/man1");
    let listed = json(&["man", pages.to_str().unwrap(), "--json"]);
    let bash = warpsmith(&["completions", "bash"]);
    assert!(bash.status.success());
    for command in [
        "run",
        "doctor",
        "kernels",
        "check",
        "compare",
        "profile",
        "budget",
        "new",
        "watch",
        "inspect",
        "completions",
        "man",
    ] {
        let page = std::fs::read_to_string(pages.join(format!("warpsmith-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
        assert!(stdout(&bash).contains(&format!("warpsmith__subcmd__{command})")), "{command}: {}", stdout(&bash));
    }
    assert!(
        listed["files"].as_array().unwrap().iter().any(|f| f.as_str().unwrap().ends_with("/warpsmith.1")),
        "{listed}"
    );
    refused(&["completions", "cmd"], 2, &["bash", "zsh"]);
    refused(&["man", "/dev/null/man1"], 1, &["/dev/null/man1"]);
}

#[test]
fn every_command_has_json() {
    let help = stdout(&warpsmith(&["--help"]));
    let listed = help.split("Commands:").nth(1).and_then(|rest| rest.split("Options:").next()).unwrap();
    // A name stands two columns in, what it does below or behind it further.
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.len() >= 13, "{help}");
    for name in names {
        assert!(stdout(&warpsmith(&[name, "--help"])).contains("--json"), "{name}");
    }
    let completions = json(&["completions", "fish", "--json"]);
    assert_eq!(completions["shell"], "fish");
    assert_eq!(completions["script"].as_str().unwrap(), stdout(&warpsmith(&["completions", "fish"])));
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_ends_it_quietly() {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    command.args(["kernels", "--json"]).env_remove("WARPSMITH_PTXAS");
    let output = command.stdout(Stdio::from(writer)).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(stderr(&output), "");
    assert_eq!(output.status.signal(), Some(13), "SIGPIPE: {}", output.status);
}

#[test]
fn tuning_by_time_needs_a_gpu() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    let output = command.args(["tune", "--by", "time"]).env("WARPSMITH_DRIVER", "software").output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains("--by model"), "{}", stderr(&output));
    refused(&["tune", "--by", "time", "--gpu", "h200"], 2, &["--gpu", "the one that is here"]);
    refused(&["tune", "--gpu", "voodoo2"], 2, &["voodoo2", "h200"]);
}

#[test]
fn a_budget_without_its_tools_says_how_to_get_them() {
    let without = |variable: &str, tool: &str, package: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
        command.args(["budget", "Q4_0", "--rows", "32", "--cols", "256"]).env(variable, "/nonexistent/tool");
        let output = command.current_dir(ROOT).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(6), "{text}");
        assert!(text.contains(tool) && text.contains(package) && text.contains(variable), "{text}");
    };
    without("WARPSMITH_PTXAS", "ptxas", "nvidia-cuda-nvcc==");
    refused(&["budget", "nothing"], 2, &["nothing", "Q1_0"]);
}

#[test]
fn inspect_shows_the_code_of_a_kernel_that_ships_and_says_what_it_lacks() {
    let shown = json(&["inspect", "rms_norm", "--shape", "rows=3,cols=256", "--json"]);
    assert_eq!((&shown["kernel"], &shown["grid"][0], &shown["threads"]), (&"rms_norm".into(), &3.into(), &256.into()));
    let sum = |list: &str, counter: &str| -> u64 {
        shown[list].as_array().unwrap().iter().filter_map(|l| l["counters"][counter].as_u64()).sum()
    };
    // Every instruction that ran stands in both lists, and all of a warp's sectors: x is loaded twice, y stored, w loaded.
    assert_eq!(sum("ptx", "warp_instructions"), shown["metrics"]["smsp__inst_executed.sum"].as_u64().unwrap());
    assert_eq!(sum("ptx", "sectors"), 4 * 3 * 256 * 4 / 32);
    assert_eq!(sum("rust", "sectors"), sum("ptx", "sectors"));
    let line = |l: &&Value| l["text"].as_str().is_some_and(|t| t.contains("block_reduce::sum_f32"));
    let sum = shown["rust"].as_array().unwrap().iter().find(line).unwrap();
    assert!(sum["file"].as_str().unwrap().ends_with("gpu-kernels/src/norm.rs"), "{sum}");

    // A text of another compiler, without lines of a source and without a profile.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("k.ptx");
    let ptx = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n    ret;\n}\n";
    std::fs::write(&file, ptx).unwrap();
    let file = file.to_str().unwrap();
    let text = stdout(&warpsmith(&["inspect", "k", "--ptx-file", file]));
    assert!(text.contains("ret;") && text.contains("no counters"), "{text}");
    refused(&["inspect", "other", "--ptx-file", file], 2, &["other", "it has k"]);
    refused(&["inspect", "nothing"], 2, &["nothing", "warpsmith kernels", "--ptx-file"]);
    let mut without = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    without.args(["inspect", "rms_norm", "--sass"]).env("WARPSMITH_PTXAS", "/nonexistent/tool").current_dir(ROOT);
    let output = without.output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(6), "{text}");
    assert!(text.contains("inspect --sass") && text.contains("nvidia-cuda-nvcc"), "{text}");
}

#[test]
fn kernels_are_exported_as_the_builder_wrote_them() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("image");
    let listed = json(&["kernels", "--export", folder.to_str().unwrap(), "--json"]);
    let image = warpsmith_host::builtin_image();
    assert_eq!(listed["files"].as_array().unwrap().len(), 1 + image.code().len());
    assert_eq!(std::fs::read_to_string(folder.join("manifest.json")).unwrap(), image.manifest_text());
    for (sm, ptx) in image.code() {
        assert_eq!(std::fs::read_to_string(folder.join(format!("sm_{sm}.ptx"))).unwrap(), *ptx);
    }
    let file = folder.join("manifest.json");
    let refused = warpsmith(&["kernels", "--export", file.to_str().unwrap()]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("--export"), "{refused:?}");
}

#[test]
fn kernels_lists_every_kernel_with_its_arguments() {
    let list = json(&["kernels", "--json"]);
    let kernels = list["kernels"].as_array().unwrap();
    let named = |name: &str| kernels.iter().find(|k| k["name"] == name);
    let norm = named("rms_norm").unwrap_or_else(|| panic!("no rms_norm in {list}"));
    assert!(norm["args"].as_array().unwrap().iter().any(|a| a["name"] == "eps" && a["type"] == "f32"));
    assert!(norm["block"][0].as_u64().unwrap() > 0);
    let families: std::collections::BTreeSet<&str> = kernels.iter().filter_map(|k| k["family"].as_str()).collect();
    for family in ["gemv", "norm", "rope", "kv", "attention", "elementwise", "embed", "sampling"] {
        assert!(families.contains(family), "{family} is not among {families:?}");
    }
    let text = stdout(&warpsmith(&["kernels", "norm"]));
    assert!(text.contains("rms_norm") && !text.contains("argmax"), "{text}");
}
