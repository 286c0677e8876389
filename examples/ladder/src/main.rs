//! Runs the ladder: all of it, or one step beside the one before.

use std::process::ExitCode;
use warpsmith_host::Error;
use warpsmith_ladder::defects::{DEFECTS, Defect};
use warpsmith_ladder::{Bench, Failure, Outcome, STEPS, Step, report};

const USAGE: &str = "usage: warpsmith-ladder [STEP | defect NAME | mended NAME | --write README]

  STEP             a number from 1 to 20: this step beside the one before
  defect NAME      a mistake, for the checks: WARPSMITH_CHECK=all
  mended NAME      the same without the mistake
  --write README   all steps; puts the table into the README, between its marks
  without          all steps, and the table";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => all(None),
        ["--write", readme] => all(Some(readme)),
        ["-h" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        [how @ ("defect" | "mended"), name] => match DEFECTS.iter().find(|d| d.name == name) {
            Some(planted) => match defect(planted, how == "mended") {
                Ok(()) if how == "defect" => {
                    println!("no call failed; WARPSMITH_CHECK=all, on the software driver, shows what is wrong");
                    return ExitCode::SUCCESS;
                }
                done => done,
            },
            None => return usage(&format!("no defect {name}: there are {}", DEFECTS.map(|d| d.name).join(", "))),
        },
        [number] => match STEPS.iter().find(|s| s.number.to_string() == number) {
            Some(step) => one(step),
            None => return usage(&format!("no step {number}: they go from 1 to {}", STEPS.len())),
        },
        _ => return usage("too many arguments"),
    };
    match done {
        Ok(()) => {
            println!("PASS");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("error: {problem}\n\n{USAGE}");
    ExitCode::from(2)
}

fn open() -> Result<Bench, Failure> {
    let bench = Bench::open()?;
    println!("engine: {}", bench.device.engine());
    if !bench.device.is_software() {
        println!("counters need the software driver: WARPSMITH_DRIVER=software");
    }
    Ok(bench)
}

fn run(bench: &Bench, step: &Step) -> Result<Outcome, Failure> {
    let outcome = (step.run)(bench, step.number, step.shape);
    outcome.map_err(|error| format!("step {} ({}): {error}", step.number, step.kernels).into())
}

fn one(step: &Step) -> Result<(), Failure> {
    let bench = open()?;
    let before = STEPS.iter().find(|s| s.number + 1 == step.number).filter(|s| s.problem == step.problem);
    let old = before.map(|s| run(&bench, s)).transpose()?;
    let outcome = run(&bench, step)?;
    print!("{}", report::beside(step, &outcome, before.zip(old.as_ref())));
    Ok(())
}

fn defect(planted: &Defect, mended: bool) -> Result<(), Failure> {
    let bench = open()?;
    match (planted.run)(&bench, mended) {
        // The driver has printed the report.
        Err(Error::Findings { count, .. }) => Err(format!("findings of the checks: {count}").into()),
        done => Ok(done?),
    }
}

fn all(readme: Option<&str>) -> Result<(), Failure> {
    let bench = open()?;
    let mut outcomes: Vec<(Step, Outcome)> = Vec::new();
    for step in STEPS {
        let outcome = run(&bench, &step)?;
        let before = outcomes.last().filter(|(s, _)| s.problem == step.problem);
        println!("{}", report::beside(&step, &outcome, before.map(|(s, o)| (s, o))));
        outcomes.push((step, outcome));
    }
    let table = report::table(&outcomes);
    let Some(path) = readme else {
        println!("{table}");
        return Ok(());
    };
    if table.is_empty() {
        return Err("nothing was counted: WARPSMITH_DRIVER=software".into());
    }
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let text = report::replaced(&text, &table)
        .ok_or_else(|| format!("{path}: the marks of the ladder's table are missing"))?;
    std::fs::write(path, text).map_err(|e| format!("{path}: {e}").into())
}
