//! `warpsmith watch`: after every save, the verdict of the tests under the checks, and what the kernels count.
//!
//! A round is one build of the project's tests by cargo and one run of those that are meant, on the software driver. Nothing
//! is taken from earlier rounds but figures to compare with: what was built and run is what stands on disk.

mod counters;
mod events;

use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};
use warpsmith_builder::ptxas;

use super::check::plural;
use super::project::{self, Built, Project, Ran, Selection, Test};
use crate::cli::WatchArgs;
use crate::failure::{Failure, Kind};
use counters::{History, Round};
use events::Saves;

/// Architecture of the software driver's device, unless `WARPSMITH_SM` says otherwise.
const SM: u32 = 90;

/// Where the profiles of the last round are kept, below cargo's target directory.
pub const LAST_PROFILE: &str = "warpsmith/last-profile.json";

/// What one round says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    /// It does not compile.
    Error,
    /// The checks found errors.
    Findings,
    /// A test failed, and no finding says why.
    Fail,
    /// No test was run.
    Nothing,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Error => "error",
            Verdict::Findings => "findings",
            Verdict::Fail => "fail",
            Verdict::Nothing => "nothing",
        }
    }
}

/// One round.
struct RoundOutcome {
    number: usize,
    changed: Vec<PathBuf>,
    built: Built,
    ran: Ran,
    counters: Round,
    notes: Vec<String>,
    seconds: (f64, f64),
    verdict: Verdict,
}

/// Runs the command.
pub fn run(args: &WatchArgs) -> Result<(), Failure> {
    let selection =
        Selection { dir: args.project.as_deref(), package: args.package.as_deref(), test: args.test.as_deref() };
    let mut project = Project::read(selection)?;
    let ptxas = ptxas::find();
    let mut history = History::new();
    let mut changed = Vec::new();
    let mut saves = if args.once { None } else { Some(Saves::of(&project)?) };
    for number in 1.. {
        let outcome = round(args, number, std::mem::take(&mut changed), &project, ptxas.as_ref(), &mut saves)?;
        // Interrupted by the next save.
        if let Some(outcome) = outcome {
            outcome.print(args, &history);
            crate::output::check()?;
            if args.once {
                return outcome.end(args);
            }
            counters::remember(&mut history, outcome.counters);
        }
        let Some(waiting) = &mut saves else { return Ok(()) };
        changed = waiting.wait()?;
        if changed.iter().any(|path| path.ends_with("Cargo.toml")) {
            match Project::read(selection) {
                Ok(new) => {
                    project = new;
                    saves = Some(Saves::of(&project)?);
                }
                // The build will say it.
                Err(_) => continue,
            }
        }
    }
    Ok(())
}

fn round(
    args: &WatchArgs,
    number: usize,
    changed: Vec<PathBuf>,
    project: &Project,
    ptxas: Option<&ptxas::Ptxas>,
    saves: &mut Option<Saves>,
) -> Result<Option<RoundOutcome>, Failure> {
    let start = Instant::now();
    let built = project::build(project, project::Targets::Tests, number == 1 && !args.json)?;
    let build_seconds = start.elapsed().as_secs_f64();
    let mut outcome = RoundOutcome {
        number,
        changed,
        built,
        ran: Ran::default(),
        counters: Round::new(),
        notes: Vec::new(),
        seconds: (build_seconds, 0.0),
        verdict: Verdict::Error,
    };
    if !outcome.built.errors.is_empty() {
        return Ok(Some(outcome));
    }
    let mut interrupted = || saves.as_mut().is_some_and(Saves::any);
    let filter: Vec<String> = args.kernel.iter().cloned().collect();
    let variables = [("WARPSMITH_CHECK", "all".to_owned()), ("WARPSMITH_PROFILE", "1".to_owned())];
    let ran = project::run(&outcome.built, &filter, &variables, &mut interrupted)?;
    let Some(ran) = ran else { return Ok(None) };
    outcome.ran = ran;
    outcome.counters = counters::of(&outcome.ran.profiles);
    // A name of one kernel means that one, if its tests also launch others.
    if let Some(kernel) = args.kernel.as_ref().filter(|k| outcome.counters.contains_key(*k)) {
        outcome.counters.retain(|name, _| name == kernel);
    }
    let sm = outcome.ran.profiles.iter().find_map(|p| p["sm"].as_u64()).map_or(SM, |sm| sm as u32);
    if let Some(ptxas) = ptxas
        && let Err(note) = counters::assemble(&mut outcome.counters, &outcome.built.manifests, ptxas, sm)
    {
        outcome.notes.push(note);
    }
    if let Err(error) = keep(project, &outcome) {
        outcome.notes.push(format!("the profile is not kept: {error}"));
    }
    outcome.seconds.1 = start.elapsed().as_secs_f64() - build_seconds;
    outcome.verdict = match &outcome.ran {
        ran if ran.errors() > 0 => Verdict::Findings,
        ran if ran.tests.iter().any(|t| !t.passed) => Verdict::Fail,
        ran if ran.tests.is_empty() => Verdict::Nothing,
        _ => Verdict::Pass,
    };
    Ok(Some(outcome))
}

/// Keeps profiles for `inspect`.
fn keep(project: &Project, outcome: &RoundOutcome) -> std::io::Result<()> {
    if outcome.ran.profiles.is_empty() {
        return Ok(());
    }
    let path = project.target.join(LAST_PROFILE);
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::write(path, json!({ "manifests": outcome.built.manifests, "launches": outcome.ran.profiles }).to_string())
}

impl RoundOutcome {
    fn print(&self, args: &WatchArgs, history: &History) {
        if args.json {
            println!("{}", self.to_json(history));
        } else {
            print!("{}", self.text(args, history));
        }
    }

    fn text(&self, args: &WatchArgs, history: &History) -> String {
        let mut out = String::new();
        let mut say = |text: &str| {
            out.push_str(text);
            out.push('\n');
        };
        let files: Vec<String> = self.changed.iter().map(|p| super::shown(p)).collect();
        if self.number > 1 {
            say(&format!("--- {}", files.join(", ")));
        }
        for text in self.built.errors.iter().chain(&self.built.warnings) {
            say(&format!("{text}\n"));
        }
        for finding in &self.ran.findings {
            say(&format!("{finding}\n"));
        }
        for test in self.ran.tests.iter().filter(|t| !t.passed) {
            // A finding says more than the test that it fails.
            if self.verdict == Verdict::Findings {
                say(&format!("test {} fails", test.name));
            } else {
                say(&format!("test {} fails:\n{}\n", test.name, test.output));
            }
        }
        if !self.counters.is_empty() {
            out.push_str(&counters::table(&self.counters, history));
        }
        for note in &self.notes {
            out.push_str(&format!("note: {note}\n"));
        }
        out.push_str(&format!("{}\n\n", self.line(args)));
        out
    }

    /// The verdict in a line.
    fn line(&self, args: &WatchArgs) -> String {
        let (build, test) = self.seconds;
        let passed = self.ran.tests.iter().filter(|t| t.passed).count();
        let what = match self.verdict {
            Verdict::Pass => format!("pass: {}", plural(passed, "test", "tests")),
            Verdict::Error => plural(self.built.errors.len(), "error", "errors"),
            Verdict::Findings => plural(self.ran.errors(), "finding", "findings"),
            Verdict::Fail => format!("fail: {} of {} pass", passed, plural(self.ran.tests.len(), "test", "tests")),
            Verdict::Nothing => match &args.kernel {
                Some(kernel) => format!("no test has `{kernel}` in its name: nothing was run"),
                None => "the tests' programs have no tests: nothing was run".to_owned(),
            },
        };
        format!("{what}; {:.2} s: {build:.2} to build, {test:.2} to run", build + test)
    }

    fn to_json(&self, history: &History) -> Value {
        let tests: Vec<Value> = self.ran.tests.iter().map(Test::to_json).collect();
        json!({
            "round": self.number,
            "changed": self.changed,
            "verdict": self.verdict.name(),
            "seconds": { "build": self.seconds.0, "run": self.seconds.1, "total": self.seconds.0 + self.seconds.1 },
            "errors": self.built.errors,
            "warnings": self.built.warnings,
            "tests": tests,
            "findings": self.ran.findings,
            "kernels": counters::to_json(&self.counters, history),
            "notes": self.notes,
        })
    }

    /// How `--once` ends.
    fn end(&self, args: &WatchArgs) -> Result<(), Failure> {
        let kind = match self.verdict {
            Verdict::Pass => return Ok(()),
            Verdict::Error => Kind::Operation,
            Verdict::Findings => Kind::Findings,
            Verdict::Fail => Kind::Verification,
            Verdict::Nothing => Kind::Usage,
        };
        Err(Failure::new(kind, self.line(args)))
    }
}
