//! `warpsmith check` in a project: its tests on the software driver, under the checks and under several schedules.

use serde_json::{Value, json};
use warpsmith_driver_api::software::{Allow, quote};

use super::{Project, Ran, Test};
use crate::cli::CheckArgs;
use crate::commands::check::plural;
use crate::commands::check::program::{CheckedProgram, Run, under_checks};
use crate::failure::{Failure, Kind};

/// Checks the project's kernels as its tests launch them.
pub fn check(args: &CheckArgs, project: &Project, allow: &[Allow]) -> Result<(), Failure> {
    if args.shape.is_some() {
        return Err(Failure::usage(
            "--shape is for kernels that ship; a project's are checked as its tests launch them",
        ));
    }
    let ready = project.build(!args.json)?;
    ready.know(&args.kernels)?;
    let replay: Vec<_> = args.kernels.iter().map(|k| quote(k)).collect();
    let name = if args.kernels.is_empty() { "the project's tests".to_owned() } else { args.kernels.join(", ") };
    let subject = CheckedProgram { name, replay: replay.join(" ") };
    let mut tests: Vec<Test> = Vec::new();
    let verdict = under_checks(args, allow, &subject, |variables| {
        let mut variables = variables.to_vec();
        variables.push(("WARPSMITH_SM", args.sm.to_string()));
        let ran: Ran = ready.tests(&args.kernels, &variables)?;
        let code = u8::from(ran.tests.iter().any(|t| !t.passed));
        // Of several seeds, a test that fails under one has failed.
        for test in ran.tests {
            match tests.iter_mut().find(|t| t.name == test.name) {
                Some(known) if known.passed => *known = test,
                Some(_) => {}
                None => tests.push(test),
            }
        }
        Ok(Run { code, lines: ran.lines })
    })?;
    let failed: Vec<&Test> = tests.iter().filter(|t| !t.passed).collect();
    let found = verdict.errors();
    if !args.json {
        verdict.texts().for_each(|text| println!("{}\n", text.trim_end()));
        for test in &failed {
            // A finding says more than the test that it fails.
            let output = if found.is_err() { "" } else { &test.output };
            println!("test {} fails\n{output}", test.name);
        }
        println!("{} of {} pass", tests.len() - failed.len(), plural(tests.len(), "test", "tests"));
    }
    let list: Vec<Value> = tests.iter().map(Test::to_json).collect();
    verdict.report(args, &subject, &json!({ "tests": list }));
    found?;
    match failed.len() {
        0 => Ok(()),
        n => Err(Failure::new(Kind::Verification, plural(n, "test fails", "tests fail"))),
    }
}
