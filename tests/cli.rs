//! The command line as a user meets it: exit codes, output, bad input.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

#[path = "cli/chat.rs"]
mod chat;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/kernels.rs"]
mod kernels;
#[path = "cli/processes.rs"]
mod processes;
#[path = "cli/projection.rs"]
mod projection;
#[path = "cli/run.rs"]
mod run;

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

/// Sizes that multiply beyond the file, and a head that no kernel has: told with the key, before any memory is asked for.
#[test]
fn a_header_that_lies_is_bad_input() {
    let dir = tempfile::tempdir().unwrap();
    let source = std::fs::read(Path::new(ROOT).join("host/tests/data/qwen2-small.gguf")).unwrap();
    let with = |numbers: &[(&str, u32)]| {
        let mut bytes = source.clone();
        for (key, n) in numbers {
            let key = format!("qwen2.attention.{key}");
            let at = bytes.windows(key.len()).position(|w| w == key.as_bytes()).unwrap() + key.len() + 4;
            bytes[at..at + 4].copy_from_slice(&n.to_le_bytes());
        }
        let path = dir.path().join("model.gguf");
        std::fs::write(&path, bytes).unwrap();
        path
    };
    for (heads, kv, width) in [(32768, 32768, 32768), (1 << 31, 1 << 31, 2), (u32::MAX, 1, 64), (1, 1, 1 << 31)] {
        let lying =
            with(&[("head_count", heads), ("head_count_kv", kv), ("key_length", width), ("value_length", width)]);
        refused(&["run", "--model", lying.to_str().unwrap(), "--tokens", "1"], 3, &["model.gguf"]);
    }
    // As it is, its heads have 16 elements, for which there is no kernel.
    let plain = with(&[]);
    let names = ["qwen2.attention.key_length", "16", "32, 64, 80, 96, 128, 192, 256"];
    refused(&["run", "--model", plain.to_str().unwrap(), "--tokens", "1"], 3, &names);
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
        let text = stderr(&output);
        assert!(text.contains("libcuda"), "{text}");
        assert_eq!(text.matches("the CUDA driver was asked for").count(), 1, "said once: {text}");
    }
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
        "chat",
        "doctor",
        "kernels",
        "check",
        "compare",
        "profile",
        "budget",
        "project",
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
fn bench_model_times_prompts_and_generation_and_counts_their_work() {
    let of =
        |more: &[&str]| json(&[&["bench-model", "--json", "--driver", "software", "--model", MODEL], more].concat());
    let report = of(&["-p", "4,16", "-n", "3", "-r", "2", "-b", "2,3"]);
    let tests = report["tests"].as_array().unwrap();
    assert_eq!(
        tests.iter().map(|t| t["test"].as_str().unwrap()).collect::<Vec<_>>(),
        ["pp4", "pp16", "tg3", "tg3 x 2", "tg3 x 3"]
    );
    for test in tests {
        let rates: Vec<f64> = test["rates"].as_array().unwrap().iter().map(|r| r.as_f64().unwrap()).collect();
        assert!(rates.len() == 2 && rates.iter().all(|r| *r > 0.0), "{test}");
        let mean = test["mean"].as_f64().unwrap();
        assert!((mean - (rates[0] + rates[1]) / 2.0).abs() < 1e-6 * mean, "{test}");
    }
    // A prompt's launches are shared by its tokens; a token has a step's of its own: as many as layers and ends have.
    let launches = |i: usize| tests[i]["per_token"]["launches"].as_f64().unwrap();
    assert!(launches(1) < launches(0) && launches(2) == (2 * 5 + 1 + 1 + 1) as f64, "{report}");
    // Sequences of a step share its launches.
    assert!((launches(4) * 3.0 - launches(2)).abs() < 1e-9 && launches(3) * 2.0 == launches(2), "{report}");
    refused(&["bench-model", "-b", "0"], 2, &["from 1 on"]);
    assert_eq!(of(&["-p", "0", "-n", "1", "-r", "1"])["tests"].as_array().unwrap().len(), 1);
    refused(&["bench-model", "--model", MODEL, "-p", "0", "-n", "0"], 2, &["-p and -n"]);
    refused(&["bench-model", "--model", MODEL, "-p", "100000"], 3, &["100000 tokens", "the model's context is"]);
    refused(&["bench-model", "-r", "0"], 2, &["from 1 on"]);
}

#[test]
fn bench_model_times_behind_a_filled_cache_and_shapes_without_files() {
    let of = |more: &[&str]| json(&[&["bench-model", "--json", "--driver", "software", "-r", "1"], more].concat());
    let bytes = |report: &Value, i: usize| report["tests"][i]["per_token"]["global_bytes"].as_f64().unwrap();
    let file = |depth| of(&["--model", MODEL, "-p", "4", "-n", "2", "-b", "2", "-d", depth]);
    let (empty, filled) = (file("0"), file("200"));
    assert_eq!((&empty["depth"], &filled["depth"]), (&Value::from(0), &Value::from(200)));
    // Keys and values of more tokens than are loaded at once, in two layers, are read by each of the three tests.
    for i in 0..3 {
        assert!(bytes(&filled, i) > bytes(&empty, i), "{empty} {filled}");
    }
    let shape = |format, layers| {
        of(&["--model", "0.6b", "--format", format, "--layers", layers, "-p", "0", "-n", "1", "-d", "1"])
    };
    let (one, two) = (shape("q1_0", "1"), shape("q1_0", "2"));
    assert_eq!((&one["model"]["layers"], &one["model"]["hidden"]), (&Value::from(1), &Value::from(1024)));
    // A layer of Qwen3 0.6B has 15.7 million weights of 1.125 bits; each block asks for activations too.
    let layer = bytes(&two, 0) - bytes(&one, 0);
    assert!((2.2e6..6.6e6).contains(&layer), "{layer}");
    refused(&["bench-model", "--model", "0.6b"], 2, &["--format", "Q4_K"]);
    refused(&["bench-model", "--format", "q4_k"], 2, &["--model"]);
    refused(&["bench-model", "--layers", "2"], 2, &["--model"]);
    refused(&["bench-model", "--model", MODEL, "--layers", "1"], 2, &["--layers is for shapes"]);
    refused(&["bench-model", "--model", MODEL, "--format", "q4_k"], 2, &["--format is for shapes"]);
    refused(&["bench-model", "--model", "70b", "--format", "q4_k"], 2, &["no shape", "llama3-8b"]);
    refused(&["bench-model", "--model", MODEL, "-d", "100000"], 3, &["the model's context is", "-d"]);
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
    assert!(names.len() >= 17, "{help}");
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
