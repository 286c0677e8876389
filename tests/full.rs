//! Standard output that cannot be written to, as on a full disk: a message and exit code 1, never a panic and never success.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny-qwen3-q4_0.gguf");

/// What each command is run with. Those without arguments take minutes, or build a project, before they print: of them
/// only the help is asked for, which is written by the same writer.
const COMMANDS: [(&str, Option<&[&str]>); 17] = [
    ("new", None),
    ("add", None),
    ("watch", None),
    ("run", Some(&["--model", MODEL, "--tokens", "72,105", "-n", "2"])),
    ("chat", Some(&["--model", MODEL, "--template", "{dir}/template", "-n", "2"])),
    ("bench-model", Some(&["--model", MODEL, "-p", "8", "-n", "2", "-r", "1"])),
    ("doctor", Some(&[])),
    ("kernels", Some(&["rms_norm"])),
    ("check", Some(&["swiglu"])),
    ("profile", Some(&["rms_norm", "--shape", "rows=1,cols=256"])),
    ("compare", Some(&["swiglu", "--driver", "software"])),
    ("inspect", Some(&["rms_norm", "--shape", "rows=1,cols=256"])),
    ("budget", None),
    ("tune", None),
    ("project", Some(&["--model", MODEL, "--context", "8"])),
    ("completions", Some(&["bash"])),
    ("man", Some(&["{dir}"])),
];

fn warpsmith(args: &[String], stdout: Stdio, stderr: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    command.args(args).current_dir(ROOT).stdin(Stdio::from(File::open(Path::new(ROOT).join("LICENSE-MIT")).unwrap()));
    command.stdout(stdout).stderr(stderr).output().unwrap()
}

fn full() -> Stdio {
    Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap())
}

fn refused(args: &[String]) {
    let output = warpsmith(args, full(), Stdio::piped());
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
    assert!(text.contains("cannot write to standard output: No space left on device"), "{args:?}: {text}");
    assert!(!text.contains("panicked"), "{args:?}: {text}");
    // Nobody can be told, and still the exit code is right.
    assert_eq!(warpsmith(args, full(), full()).status.code(), Some(1), "{args:?}, errors to a full disk");
}

#[test]
fn every_command_says_that_its_output_went_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("template"), "{{ messages[-1].content[:4] }}").unwrap();
    let help = warpsmith(&["--help".into()], Stdio::piped(), Stdio::piped()).stdout;
    let help = String::from_utf8(help).unwrap();
    let listed = help.split("Commands:").nth(1).and_then(|rest| rest.split("Options:").next()).unwrap();
    let names = listed.lines().filter_map(|l| l.strip_prefix("  ")).filter(|l| !l.starts_with(' '));
    let names: Vec<&str> = names.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help").collect();
    // A command that comes later comes here, too.
    assert!(names.len() >= 13, "{help}");
    for name in &names {
        assert!(COMMANDS.iter().any(|c| c.0 == *name), "{name} is not tried with a full disk");
    }
    refused(&["--version".into()]);
    for (name, arguments) in COMMANDS {
        refused(&[name.into(), "--help".into()]);
        if let Some(arguments) = arguments {
            let dir = dir.path().to_str().unwrap();
            let all: Vec<String> =
                std::iter::once(name.to_owned()).chain(arguments.iter().map(|a| a.replace("{dir}", dir))).collect();
            refused(&all);
        }
    }
}

/// All of the program prints by the macros of one file, which shadow the standard ones. What goes around them would panic.
#[test]
fn nothing_prints_around_the_writer() {
    fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if entry.is_dir() { sources(&entry, found) } else { found.push(entry) }
        }
    }
    let src = Path::new(ROOT).join("src");
    let mut found = Vec::new();
    sources(&src, &mut found);
    assert!(found.len() > 40, "{found:?}");
    // The library is for other programs and prints nothing; its example does.
    for path in found.iter().filter(|p| **p != src.join("output.rs") && **p != src.join("lib.rs")) {
        let text = std::fs::read_to_string(path).unwrap();
        for around in ["stdout().lock", "stdout().write", "io::stdout", "std::print", "std::eprint", "stdout().flush"] {
            assert!(!text.contains(around), "{}: `{around}` goes around src/output.rs", path.display());
        }
    }
}
