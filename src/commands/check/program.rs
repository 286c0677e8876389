//! Programs: started with the software driver in front of any other, and with the checks in their environment.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use warpsmith_check::record::{End, Record};
use warpsmith_check::{Groups, Report, Severity};
use warpsmith_driver_api::software::{Allow, quote};

use super::library::library_for;
use super::outputs::{Differs, Outcome};
use super::render::{self, annotation, verdict};
use super::{Failure, Kind, plural};
use crate::child;
use crate::cli::CheckArgs;
use crate::commands::approximate::Approximate;

/// A program under the software driver, and what its driver wrote down.
pub struct Run {
    /// Its exit code; 128 and the signal's number if one ended it.
    pub code: u8,
    /// Lines of the report file.
    pub lines: Vec<Record>,
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
pub fn read_report(path: &Path) -> Result<Vec<Record>, Failure> {
    let operation = |what: String| Failure::new(Kind::Operation, what);
    let text = std::fs::read_to_string(path).map_err(|e| operation(format!("the report is lost: {e}")))?;
    text.lines().map(|line| Record::parse(line).map_err(|e| operation(e.to_string()))).collect()
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
    let subject = CheckedProgram { name: name.to_string(), replay: format!("-- {}", words.join(" ")) };
    let verdict = under_checks(args, accepted, &subject, |variables| start(&args.program, args.sm, variables))?;
    verdict.report(args, &subject, &json!({}));
    if verdict.code != 0 {
        return Err(Failure::program(verdict.code, &name));
    }
    verdict.errors()
}

/// What is run under the checks.
pub struct CheckedProgram {
    /// As the closing line has it.
    pub name: String,
    /// Behind `warpsmith check` and its options, what runs it again.
    pub replay: String,
}

/// What runs under the checks gave.
pub struct CheckVerdict<'a> {
    /// The first exit code that is not 0.
    pub code: u8,
    findings: Vec<Report>,
    approximate: Approximate,
    compared: Compared<'a>,
}

/// Runs it under every seed, with the variables that say so.
pub fn under_checks<'a>(
    args: &'a CheckArgs,
    accepted: &[Allow],
    subject: &'a CheckedProgram,
    mut run: impl FnMut(&[(&str, String)]) -> Result<Run, Failure>,
) -> Result<CheckVerdict<'a>, Failure> {
    let mut allow = args.allow.join(",");
    if let Some(path) = &args.allow_file {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?;
        allow = format!("{allow}\n{text}");
    }
    let accepted = accepted.iter().any(|a| a.covers(&super::nondeterminism("", 0, 0)));
    let compared = Compared::new(args, &subject.replay);
    let mut all = CheckVerdict { code: 0, findings: Vec::new(), approximate: Approximate::default(), compared };
    let mut groups = Groups::default();
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
                eprintln!("{finding}\n");
                groups.add(finding);
            }
        }
        all.approximate.extend(approximate_of(&ran.lines));
        merge(&mut groups, ran.lines);
    }
    all.findings = groups.into_all();
    all.findings.sort_by_key(|report| std::cmp::Reverse(report.finding.severity));
    Ok(all)
}

impl CheckVerdict<'_> {
    /// Prints everything; an object of JSON also has what `more` has.
    pub fn report(&self, args: &CheckArgs, subject: &CheckedProgram, more: &Value) {
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
        for report in &self.findings {
            let finding = &report.finding;
            let place = report.shown_at().map(|(file, line, _)| format!("{file}:{line}"));
            let place = place.unwrap_or_else(|| finding.kernel.clone());
            let at = if place.is_empty() { place } else { format!(" {place}") };
            let (severity, rule) = (finding.severity.name(), finding.rule.name());
            println!("{:>6} x {severity}[{rule}]{at}: {}", finding.count, finding.message());
        }
        self.approximate.print();
        self.compared.print();
        println!("{}: {}", subject.name, verdict(&self.findings));
    }

    /// Whether errors were found.
    pub fn errors(&self) -> Result<(), Failure> {
        match render::of(&self.findings, Severity::Error) {
            0 => Ok(()),
            n => Err(Failure::new(Kind::Findings, plural(n, "error was found", "errors were found"))),
        }
    }

    /// The texts of all findings, for what did not print them as they came.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        self.findings.iter().map(Report::to_string)
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
    fn add(&mut self, seed: u64, outcome: Outcome) -> Option<Differs> {
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
    fn conclude(&mut self, seed: u64, difference: &Differs, again: &Outcome) -> Option<Report> {
        if self.first.as_ref().is_some_and(|first| first.difference(again).is_some()) {
            self.verdict = UNSTABLE;
            return None;
        }
        self.verdict = DEPENDS;
        let (first, sm) = (self.args.seed, self.args.sm);
        let count = seed - first + 1;
        let replay = format!("warpsmith check --sm {sm} --seed {first} --seeds {count} {}", self.replay);
        Some(difference.report((first, seed), replay))
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
fn approximate_of(lines: &[Record]) -> Approximate {
    let mut all = Approximate::default();
    for line in lines {
        if let Record::Approximate(of) = line {
            all.add(&of.kernel, of.instructions.clone());
        }
    }
    all
}

/// Adds the findings of a report file, with the counts that the end of each process gives.
pub fn merge(all: &mut Groups, lines: impl IntoIterator<Item = Record>) {
    let mut of_process: HashMap<Option<u32>, Vec<usize>> = HashMap::new();
    let mut new: Vec<Report> = Vec::new();
    for line in lines {
        match line {
            Record::Finding(report) => {
                of_process.entry(report.process).or_default().push(new.len());
                new.push(*report);
            }
            Record::End(End { process, counts }) => {
                for (at, count) in of_process.remove(&Some(process)).unwrap_or_default().into_iter().zip(counts) {
                    new[at].finding.count = count;
                }
            }
            _ => {}
        }
    }
    for report in new {
        all.add(report);
    }
}

#[cfg(test)]
mod tests {
    use warpsmith_check::{Defect, Finding, Rule};

    use super::*;

    #[test]
    fn the_end_of_a_process_gives_the_counts() {
        let finding = |process: u32, rule: Rule| {
            let finding = Finding::new(rule, Severity::Warning, Defect::DivisionByZero);
            let report = Report { process: Some(process), ..Report::new(finding) };
            // As the driver writes it, and as it is read.
            Record::parse(&Record::Finding(Box::new(report)).to_line()).unwrap()
        };
        let lines = vec![
            finding(1, Rule::DivisionByZero),
            finding(2, Rule::DivisionByZero),
            finding(1, Rule::ApiMisuse),
            Record::End(End { process: 1, counts: vec![5, 7] }),
        ];
        let mut all = Groups::default();
        merge(&mut all, lines);
        let counts: Vec<u64> = all.all().iter().map(|r| r.finding.count).collect();
        assert_eq!(counts, [6, 7], "process 2 did not live to say how often");
    }
}
