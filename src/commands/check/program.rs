//! Programs: started with the software driver in front of any other, and with the checks in their environment.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use warpsmith_driver_api::software::{Allow, quote};

use super::library::library_for;
use super::outputs::{Difference, Outcome};
use super::render::{annotation, place, verdict};
use super::{Failure, Kind, plural};
use crate::child;
use crate::cli::CheckArgs;
use crate::commands::approximate::Approximate;

/// A program under the software driver, and what its driver wrote down.
pub struct Run {
    /// Its exit code; 128 and the signal's number if one ended it.
    pub code: u8,
    /// Lines of the report file.
    pub lines: Vec<Value>,
}

/// Runs a program on the software driver with these variables.
pub fn start(program: &[OsString], sm: u32, variables: &[(&str, String)]) -> Result<Run, Failure> {
    let [name, arguments @ ..] = program else { return Err(Failure::usage("no program is given")) };
    let operation = |what: String| Failure::new(Kind::Operation, what);
    let report = tempfile::NamedTempFile::new().map_err(|e| operation(format!("no temporary file: {e}")))?;
    let mut command = Command::new(name);
    command.args(arguments);
    if let Some(folder) = library_for(name)? {
        let mut path = OsString::from(folder);
        if let Some(before) = std::env::var_os("LD_LIBRARY_PATH").filter(|p| !p.is_empty()) {
            path.push(":");
            path.push(before);
        }
        command.env("LD_LIBRARY_PATH", path);
    }
    command.env("WARPSMITH_DRIVER", "software").env("WARPSMITH_SM", sm.to_string());
    command.env("WARPSMITH_REPORT", report.path());
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let shown = name.to_string_lossy();
    let status = child::status(&mut command).map_err(|e| operation(format!("{shown} cannot be started: {e}")))?;
    let lines = read_report(report.path())?;
    let code = code_of(status);
    if code == 0 && lines.is_empty() {
        return Err(Failure::new(
            Kind::NoEngine,
            format!("{shown} ended without starting the software CUDA driver: nothing was checked"),
        ));
    }
    Ok(Run { code, lines })
}

/// The lines of a report file.
pub fn read_report(path: &Path) -> Result<Vec<Value>, Failure> {
    let operation = |what: String| Failure::new(Kind::Operation, what);
    let text = std::fs::read_to_string(path).map_err(|e| operation(format!("the report is lost: {e}")))?;
    let line = |l: &str| serde_json::from_str(l).map_err(|e| operation(format!("a line of the report: {e}: {l}")));
    text.lines().map(line).collect()
}

#[cfg(unix)]
fn code_of(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s));
    code.and_then(|c| u8::try_from(c).ok()).unwrap_or(1)
}

#[cfg(not(unix))]
fn code_of(status: std::process::ExitStatus) -> u8 {
    status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1)
}

/// Runs `warpsmith check -- PROGRAM`.
pub fn run(args: &CheckArgs, accepted: &[Allow]) -> Result<(), Failure> {
    if !args.kernels.is_empty() || args.shape.is_some() {
        return Err(Failure::usage("either kernels or a program after `--`, not both"));
    }
    let name = args.program[0].to_string_lossy();
    let words: Vec<_> = args.program.iter().map(|word| quote(&word.to_string_lossy())).collect();
    let subject = Subject { name: name.to_string(), replay: format!("-- {}", words.join(" ")) };
    let verdict = under_checks(args, accepted, &subject, |variables| start(&args.program, args.sm, variables))?;
    verdict.report(args, &subject, &json!({}));
    if verdict.code != 0 {
        return Err(Failure::program(verdict.code, &name));
    }
    verdict.errors()
}

/// What is run under the checks.
pub struct Subject {
    /// As the closing line has it.
    pub name: String,
    /// Behind `warpsmith check` and its options, what runs it again.
    pub replay: String,
}

/// What runs under the checks gave.
pub struct Verdict<'a> {
    /// The first exit code that is not 0.
    pub code: u8,
    findings: Vec<Value>,
    approximate: Approximate,
    compared: Compared<'a>,
}

/// Runs it under every seed, with the variables that say so.
pub fn under_checks<'a>(
    args: &'a CheckArgs,
    accepted: &[Allow],
    subject: &'a Subject,
    mut run: impl FnMut(&[(&str, String)]) -> Result<Run, Failure>,
) -> Result<Verdict<'a>, Failure> {
    let mut allow = args.allow.join(",");
    if let Some(path) = &args.allow_file {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?;
        allow = format!("{allow}\n{text}");
    }
    let accepted = accepted.iter().any(|a| a.covers(&super::nondeterminism("", 0, 0)));
    let compared = Compared::new(args, &subject.replay);
    let mut all = Verdict { code: 0, findings: Vec::new(), approximate: Approximate::default(), compared };
    let mut one = |seed: u64| {
        let mut variables = vec![("WARPSMITH_CHECK", args.checks.clone()), ("WARPSMITH_SEED", seed.to_string())];
        if args.seeds > 1 {
            variables.push(("WARPSMITH_OUTPUTS", "1".to_owned()));
        }
        if !allow.trim().is_empty() {
            variables.push(("WARPSMITH_ALLOW", allow.clone()));
        }
        run(&variables)
    };
    for seed in args.seed..args.seed.saturating_add(args.seeds.max(1)) {
        let ran = one(seed)?;
        all.code = if all.code == 0 { ran.code } else { all.code };
        if let Some(difference) = all.compared.add(seed, Outcome::new(ran.code, &ran.lines)) {
            // A program whose results differ from run to run says nothing about schedules.
            let again = one(args.seed)?;
            let finding = all.compared.conclude(seed, &difference, &Outcome::new(again.code, &again.lines));
            if let Some(finding) = finding.filter(|_| !accepted) {
                eprintln!("{}\n", finding["text"].as_str().unwrap_or_default());
                all.findings.push(finding);
            }
        }
        all.approximate.extend(approximate_of(&ran.lines));
        merge(&mut all.findings, ran.lines);
    }
    all.findings.sort_by_key(|f| ["error", "warning", "info"].iter().position(|s| f["severity"] == *s));
    Ok(all)
}

impl Verdict<'_> {
    fn of(&self, severity: &str) -> usize {
        self.findings.iter().filter(|f| f["severity"] == severity).count()
    }

    /// Prints everything; an object of JSON also has what `more` has.
    pub fn report(&self, args: &CheckArgs, subject: &Subject, more: &Value) {
        if args.github {
            self.findings.iter().for_each(|f| println!("{}", annotation(f, Path::new("."))));
        }
        if args.json {
            let mut value = json!({
                "sm": args.sm,
                "checks": args.checks,
                "exit_code": self.code,
                "approximate": self.approximate.to_json(),
                "outputs": self.compared.to_json(),
                "findings": self.findings,
            });
            if let (Some(value), Some(more)) = (value.as_object_mut(), more.as_object()) {
                value.extend(more.clone());
            }
            println!("{value:#}");
            return;
        }
        // The findings themselves were printed as they came.
        for finding in &self.findings {
            let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
            let place = place(finding).map_or_else(|| text("kernel"), |(file, line, _)| format!("{file}:{line}"));
            let at = if place.is_empty() { place } else { format!(" {place}") };
            println!("{:>6} x {}[{}]{at}: {}", finding["count"], text("severity"), text("rule"), text("message"));
        }
        self.approximate.print();
        self.compared.print();
        println!("{}: {}", subject.name, verdict(self.of("error"), self.of("warning"), self.of("info")));
    }

    /// Whether errors were found.
    pub fn errors(&self) -> Result<(), Failure> {
        match self.of("error") {
            0 => Ok(()),
            n => Err(Failure::new(Kind::Findings, plural(n, "error was found", "errors were found"))),
        }
    }

    /// The texts of all findings, for what did not print them as they came.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.findings.iter().filter_map(|f| f["text"].as_str())
    }
}

/// What runs under several seeds did, compared with the first.
struct Compared<'a> {
    args: &'a CheckArgs,
    replay: &'a str,
    first: Option<Outcome>,
    runs: u64,
    verdict: &'static str,
}

const SAME: &str = "the same";
const DEPENDS: &str = "dependent on the schedule";
const UNSTABLE: &str = "different from run to run under one seed, which says nothing about the schedule";

impl<'a> Compared<'a> {
    fn new(args: &'a CheckArgs, replay: &'a str) -> Compared<'a> {
        Compared { args, replay, first: None, runs: 0, verdict: SAME }
    }

    /// Adds a run; the answer is how it differs, for the first that does.
    fn add(&mut self, seed: u64, outcome: Outcome) -> Option<Difference> {
        if self.args.seeds < 2 {
            return None;
        }
        self.runs += 1;
        if seed == self.args.seed {
            self.first = Some(outcome);
            return None;
        }
        let difference = self.first.as_ref().and_then(|first| first.difference(&outcome));
        difference.filter(|_| self.verdict == SAME)
    }

    /// The finding, unless a second run under the first seed shows that seeds have nothing to do with it.
    fn conclude(&mut self, seed: u64, difference: &Difference, again: &Outcome) -> Option<Value> {
        if self.first.as_ref().is_some_and(|first| first.difference(again).is_some()) {
            self.verdict = UNSTABLE;
            return None;
        }
        self.verdict = DEPENDS;
        let (first, sm) = (self.args.seed, self.args.sm);
        let count = seed - first + 1;
        let replay = format!("warpsmith check --sm {sm} --seed {first} --seeds {count} {}", self.replay);
        Some(difference.finding((first, seed), &replay))
    }

    fn to_json(&self) -> Value {
        let Some(first) = &self.first else { return Value::Null };
        let (copies, bytes) = first.size();
        json!({ "runs": self.runs, "copies": copies, "bytes": bytes, "verdict": self.verdict })
    }

    fn print(&self) {
        if let Some(first) = &self.first {
            let (copies, bytes) = first.size();
            println!(
                "exit code and {} to the host ({}) of {} runs: {}",
                plural(copies as usize, "copy", "copies"),
                plural(bytes as usize, "byte", "bytes"),
                self.runs,
                self.verdict
            );
        }
    }
}

/// The approximate instructions that a report file names.
fn approximate_of(lines: &[Value]) -> Approximate {
    let mut all = Approximate::default();
    for line in lines.iter().filter(|l| l["type"] == "approximate") {
        all.add(
            line["kernel"].as_str().unwrap_or_default(),
            line["instructions"].as_array().cloned().unwrap_or_default(),
        );
    }
    all
}

/// Adds the findings of a report file, with the counts that the end of each process gives.
pub fn merge(all: &mut Vec<Value>, lines: Vec<Value>) {
    let mut of_process: std::collections::HashMap<u64, Vec<usize>> = std::collections::HashMap::new();
    let mut new: Vec<Value> = Vec::new();
    for line in lines {
        let process = line["process"].as_u64().unwrap_or(0);
        match line["type"].as_str() {
            Some("finding") => {
                of_process.entry(process).or_default().push(new.len());
                new.push(line);
            }
            Some("end") => {
                let counts = line["counts"].as_array().cloned().unwrap_or_default();
                for (at, count) in of_process.remove(&process).unwrap_or_default().into_iter().zip(counts) {
                    new[at]["count"] = count;
                }
            }
            _ => {}
        }
    }
    for finding in new {
        let same = |f: &&mut Value| ["rule", "kernel", "place", "message"].iter().all(|key| f[*key] == finding[*key]);
        match all.iter_mut().find(same) {
            Some(known) => {
                let sum = known["count"].as_u64().unwrap_or(0) + finding["count"].as_u64().unwrap_or(0);
                known["count"] = json!(sum);
            }
            None => all.push(finding),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_process_gives_the_counts() {
        let finding =
            |process: u64, rule: &str| json!({ "type": "finding", "process": process, "rule": rule, "count": 1 });
        let lines = vec![
            json!({ "type": "start", "process": 1 }),
            finding(1, "a"),
            finding(2, "a"),
            finding(1, "b"),
            json!({ "type": "end", "process": 1, "counts": [5, 7] }),
        ];
        let mut all = Vec::new();
        merge(&mut all, lines);
        let counts: Vec<u64> = all.iter().map(|f| f["count"].as_u64().unwrap()).collect();
        assert_eq!(counts, [6, 7], "process 2 did not live to say how often");
    }
}
