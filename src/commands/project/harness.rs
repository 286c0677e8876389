//! One run of the tests on the software driver: results, findings, counters.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use warpsmith_check::record::Record;
use warpsmith_check::{Groups, Report, Severity};
use warpsmith_driver_api::software::DEFAULT_LIMIT;

use super::build::Built;
use crate::child;
use crate::commands::check::program;
use crate::failure::{Failure, Kind};

/// What says how many instructions a block may execute.
const LIMIT: &str = "WARPSMITH_INSTRUCTION_LIMIT";

/// One test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// Its path.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// What it printed, if it failed.
    pub output: String,
}

impl Ran {
    /// How many of the findings are errors.
    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|report| report.finding.severity == Severity::Error).count()
    }

    /// An error if a test has failed, with what it printed.
    pub fn passed(&self) -> Result<(), Failure> {
        let failed: Vec<&Test> = self.tests.iter().filter(|t| !t.passed).collect();
        if failed.is_empty() {
            return Ok(());
        }
        let words: Vec<String> = failed.iter().map(|t| format!("test {} fails:\n{}", t.name, t.output)).collect();
        Err(Failure::new(Kind::Verification, words.join("\n")))
    }
}

impl Test {
    pub fn to_json(&self) -> Value {
        json!({ "name": self.name, "passed": self.passed, "output": self.output })
    }
}

/// What the tests did.
#[derive(Debug, Default)]
pub struct Ran {
    /// In the order in which they ended.
    pub tests: Vec<Test>,
    /// Findings of the checks, each once with its count.
    pub findings: Vec<Report>,
    /// Profiles of launches, one for each kernel and shape and program.
    pub profiles: Vec<Value>,
    /// Everything else that the driver wrote down.
    pub lines: Vec<Record>,
}

/// Variables under which tests are run.
pub type Variables<'a> = &'a [(&'a str, String)];

/// Runs those tests whose names contain one of the filters, or all if there is none. `None`: `interrupted` said yes, and the
/// program was ended.
pub fn run(
    built: &Built,
    filters: &[String],
    variables: Variables<'_>,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Option<Ran>, Failure> {
    let (mut ran, mut groups) = (Ran::default(), Groups::default());
    for (path, folder) in &built.programs {
        let operation = |what: String| Failure::new(Kind::Operation, what);
        let report = tempfile::NamedTempFile::new().map_err(|e| operation(format!("no temporary file: {e}")))?;
        let mut command = Command::new(path);
        command.args(filters).current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
        command.env("WARPSMITH_DRIVER", "software").envs(variables.iter().map(|(name, value)| (name, value)));
        command.env("WARPSMITH_REPORT", report.path());
        // A kernel that does not end fails its test, unless somebody wants it otherwise.
        if std::env::var_os(LIMIT).is_none_or(|v| v.is_empty()) {
            command.env(LIMIT, DEFAULT_LIMIT.to_string());
        }
        let output = finish(command, interrupted).map_err(|e| operation(format!("{}: {e}", path.display())))?;
        let Some(output) = output else { return Ok(None) };
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let mut tests = results(&stdout);
        if !output.status.success() && tests.iter().all(|t| t.passed) {
            let name = program_name(path);
            tests.push(Test { name, passed: false, output: format!("{}\n{stdout}{stderr}", output.status) });
        }
        ran.tests.extend(tests);
        let mut lines = Vec::new();
        for line in program::read_report(report.path())? {
            match line {
                Record::Profile(profile) => ran.profiles.push(profile),
                line => lines.push(line),
            }
        }
        program::merge(&mut groups, lines.iter().cloned());
        ran.lines.extend(lines);
    }
    ran.findings = groups.into_all();
    Ok(Some(ran))
}

/// Waits for the end of a program, unless it is interrupted: then the program is killed.
pub fn finish(mut command: Command, interrupted: &mut dyn FnMut() -> bool) -> std::io::Result<Option<Output>> {
    let mut guarded = child::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let stdout = child::listen(guarded.child().stdout.take());
    let stderr = child::listen_and_tell(guarded.child().stderr.take());
    while guarded.try_wait()?.is_none() {
        if interrupted() {
            guarded.kill()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    guarded.output(stdout, stderr).map(Some)
}

/// `saxpy` of `…/deps/saxpy-0123456789abcdef`.
fn program_name(path: &Path) -> String {
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    stem.rsplit_once('-').map_or(stem.clone(), |(name, _)| name.to_owned())
}

/// What Rust's test harness prints: a line a test, and a section for the output of each that failed.
fn results(text: &str) -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    let mut inside: Option<usize> = None;
    for line in text.lines() {
        let state = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "));
        if let Some((name, state)) = state {
            let name = name.trim_end_matches(" - should panic").to_owned();
            match state {
                "ok" => tests.push(Test { name, passed: true, output: String::new() }),
                "FAILED" => tests.push(Test { name, passed: false, output: String::new() }),
                _ => {}
            }
        } else if let Some(name) = line.strip_prefix("---- ").and_then(|l| l.strip_suffix(" stdout ----")) {
            inside = tests.iter().position(|t| t.name == name);
        } else if line == "failures:" {
            inside = None;
        } else if let Some(test) = inside.and_then(|i| tests.get_mut(i)) {
            test.output.push_str(line);
            test.output.push('\n');
        }
    }
    for test in &mut tests {
        test.output = test.output.trim().to_owned();
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by a test program of rustc 1.95 (times and one panic shortened).
    const TEXT: &str = "\nrunning 3 tests\ntest a::good ... ok\ntest left ... ignored\ntest a::bad ... FAILED\n\nfailures:\n\n\
        ---- a::bad stdout ----\nError: Wrong\n\nthread 'a::bad' panicked\n\n\nfailures:\n    a::bad\n\ntest result: FAILED. \
        1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";

    #[test]
    fn the_harness_is_read() {
        let tests = results(TEXT);
        let bad = "Error: Wrong\n\nthread 'a::bad' panicked".to_owned();
        assert_eq!(
            tests,
            [
                Test { name: "a::good".into(), passed: true, output: String::new() },
                Test { name: "a::bad".into(), passed: false, output: bad }
            ]
        );
        assert_eq!(program_name(Path::new("/t/deps/my-saxpy-0123456789abcdef")), "my-saxpy");
    }
}
