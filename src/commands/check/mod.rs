//! `warpsmith check`: our kernels against their references, or any CUDA program, under the checks.

pub mod bench;
mod library;
mod outputs;
pub mod program;
mod render;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use warpsmith_check::defect::Difference;
use warpsmith_check::{Checks, Defect, Finding, Report, Rule, Severity};
use warpsmith_driver_api::software::{Allow, parse_checks};
use warpsmith_host::gpu_kernels::cases::{Case, Failure as CaseFailure, Subject};

use super::approximate::Approximate;
use super::project::{self, Project};
use crate::cli::CheckArgs;
use crate::failure::{Failure, Kind};
use crate::table::{Align, Table, count};
use bench::{Gpu, Kernels};
use render::Accepting;

/// Runs the command.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let mut checks =
        parse_checks(&args.checks).map_err(|e| Failure::usage(format!("--checks {}: {e}", args.checks)))?;
    checks.seed = args.seed;
    if checks == (Checks { seed: args.seed, ..Checks::default() }) {
        return Err(Failure::usage("--checks names nothing to check"));
    }
    let allow = allowed(args)?;
    if !args.program.is_empty() {
        return program::run(args, &allow);
    }
    match Project::here(&args.place)? {
        Some(project) => project::check(args, &project, &allow),
        None => kernels(args, checks, &allow),
    }
}

/// The findings that the user accepts.
fn allowed(args: &CheckArgs) -> Result<Vec<Allow>, Failure> {
    let mut all = Vec::new();
    for text in &args.allow {
        all.extend(Allow::parse(text).map_err(|e| Failure::usage(format!("--allow {text}: {e}")))?);
    }
    if let Some(path) = &args.allow_file {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::usage(format!("--allow-file {}: {e}", path.display())))?;
        all.extend(Allow::parse(&text).map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?);
    }
    Ok(all)
}

/// The subjects that launch one of these kernels, or all.
pub fn subjects(names: &[String]) -> Result<Vec<Subject>, Failure> {
    let all = Subject::all();
    for name in names {
        if !all.iter().any(|s| s.kernels().contains(name)) {
            let mut near: Vec<String> =
                all.iter().flat_map(|s| s.kernels()).filter(|k| k.contains(name.as_str())).collect();
            near.sort_unstable();
            near.dedup();
            let hint = if near.is_empty() {
                "`warpsmith kernels` lists them".to_owned()
            } else {
                format!("did you mean {}?", near.join(", "))
            };
            return Err(Failure::usage(format!("no kernel `{name}`: {hint}")));
        }
    }
    Ok(all.into_iter().filter(|s| names.is_empty() || s.kernels().iter().any(|k| names.contains(k))).collect())
}

/// The cases of a shape: of the subjects that have its sizes, since a kernel is also launched as a part of others, which have
/// sizes of their own.
pub fn cases(subjects: Vec<Subject>, shape: &str) -> Result<Vec<Case>, Failure> {
    let (cases, mut refused): (Vec<_>, Vec<_>) = subjects.into_iter().map(|s| s.parse(shape)).partition(Result::is_ok);
    let cases: Vec<Case> = cases.into_iter().flatten().collect();
    if !cases.is_empty() {
        return Ok(cases);
    }
    refused.dedup();
    let why: Vec<String> = refused.into_iter().filter_map(Result::err).collect();
    Err(Failure::usage(format!("--shape {shape}: {}", why.join("; or "))))
}

/// What the cases of one subject gave.
#[derive(Default)]
struct Tally {
    kernels: String,
    cases: usize,
    runs: usize,
    lane_instructions: u64,
    errors: usize,
    warnings: usize,
    wrong: Vec<Value>,
    seconds: f64,
}

fn kernels(args: &CheckArgs, checks: Checks, allow: &[Allow]) -> Result<(), Failure> {
    let subjects = subjects(&args.kernels)?;
    let code = Kernels::new(args.sm);
    // What does not load is told before anything runs.
    for kernel in subjects.iter().flat_map(|s| s.kernels()) {
        code.of(&kernel).map_err(|e| Failure::new(Kind::Operation, e))?;
    }
    let mut groups = Accepting::new(allow);
    let mut rows = Vec::new();
    let mut approximate = Approximate::default();
    let runs: Vec<(Subject, Vec<Case>)> = match &args.shape {
        Some(text) => cases(subjects, text)?.into_iter().map(|case| (case.subject(), vec![case])).collect(),
        None => subjects.into_iter().map(|s| (s, s.cases())).collect(),
    };
    for (subject, cases) in runs {
        let started = Instant::now();
        let mut row = Tally { kernels: subject.kernels().join(", "), cases: cases.len(), ..Tally::default() };
        let seen = groups.len();
        for case in &cases {
            approximate.extend(check_case(args, checks, &code, case, &mut groups, &mut row)?);
        }
        for group in &groups.all()[seen..] {
            match group.finding.severity {
                Severity::Error => row.errors += 1,
                Severity::Warning => row.warnings += 1,
                Severity::Info => {}
            }
        }
        row.seconds = started.elapsed().as_secs_f64();
        if !args.json {
            groups.print_from(seen);
        }
        rows.push(row);
    }
    summary(args, &groups, &rows, &approximate);
    let wrong: usize = rows.iter().map(|r| r.wrong.len()).sum();
    let errors = groups.errors();
    if errors > 0 {
        return Err(Failure::new(Kind::Findings, plural(errors, "error was found", "errors were found")));
    }
    match wrong {
        0 => Ok(()),
        n => Err(Failure::new(
            Kind::Verification,
            plural(n, "case differs from its reference", "cases differ from their references"),
        )),
    }
}

pub fn plural(n: usize, one: &str, more: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {more}") }
}

/// Runs a case under every seed; gives the approximate instructions of its kernels.
fn check_case(
    args: &CheckArgs,
    checks: Checks,
    code: &Arc<Kernels>,
    case: &Case,
    groups: &mut Accepting<'_>,
    row: &mut Tally,
) -> Result<Approximate, Failure> {
    let mut approximate = Approximate::default();
    let kernel = case.subject().kernels().swap_remove(0);
    let mut first: Option<(u64, u64)> = None;
    for seed in args.seed..args.seed.saturating_add(args.seeds.max(1)) {
        let replay = |seed: u64, seeds: u64| {
            let mut text = format!("warpsmith check {kernel} --shape {case} --sm {} --seed {seed}", args.sm);
            if seeds > 1 {
                text.push_str(&format!(" --seeds {seeds}"));
            }
            text
        };
        let mut gpu = Gpu::new(code, Checks { seed, ..checks });
        let outcome = case.run(&mut gpu);
        approximate.extend(std::mem::take(&mut gpu.approximate));
        row.runs += 1;
        row.lane_instructions += gpu.counters.lane_instructions;
        // A launch that a finding explains needs no second report.
        let explained = gpu.reports.iter().any(|r| r.finding.severity == Severity::Error);
        for report in std::mem::take(&mut gpu.reports) {
            groups.add(Report { replay: replay(seed, 1), shape: Some(case.to_string()), ..report });
        }
        match outcome {
            Ok(()) => {}
            Err(CaseFailure::Launch(_)) if explained => {}
            Err(failure) => {
                let text = failure.to_string();
                if !args.json {
                    println!("wrong: {kernel} {case}, seed {seed}: {text}\n  replay: {}\n", replay(seed, 1));
                }
                row.wrong.push(json!({ "kernel": kernel, "shape": case.to_string(), "seed": seed, "text": text }));
            }
        }
        match first {
            None => first = Some((seed, gpu.digest())),
            Some((before, digest)) if digest != gpu.digest() => {
                let report = Report::new(nondeterminism(&kernel, before, seed));
                let replay = replay(before, seed - before + 1);
                groups.add(Report { replay, shape: Some(case.to_string()), ..report });
                break;
            }
            Some(_) => {}
        }
    }
    Ok(approximate)
}

/// The finding that the outputs of a kernel under two seeds differ.
fn nondeterminism(kernel: &str, before: u64, seed: u64) -> Finding {
    let defect = Defect::Schedule { seeds: (before, seed), difference: Difference::Outputs };
    Finding { kernel: kernel.to_owned(), ..Finding::new(Rule::Nondeterminism, Severity::Error, defect) }
}

fn summary(args: &CheckArgs, groups: &Accepting<'_>, rows: &[Tally], approximate: &Approximate) {
    if args.github {
        groups.annotate(Path::new("."));
    }
    if args.json {
        let kernels: Vec<Value> = rows
            .iter()
            .map(|r| {
                json!({
                    "kernels": r.kernels,
                    "cases": r.cases,
                    "runs": r.runs,
                    "lane_instructions": r.lane_instructions,
                    "errors": r.errors,
                    "warnings": r.warnings,
                    "wrong": r.wrong,
                })
            })
            .collect();
        println!(
            "{:#}",
            json!({
                "sm": args.sm,
                "checks": args.checks,
                "kernels": kernels,
                "approximate": approximate.to_json(),
                "findings": groups.ranked(0),
            })
        );
        return;
    }
    let mut table = Table::new([
        ("kernel", Align::Left),
        ("cases", Align::Right),
        ("runs", Align::Right),
        ("lane instructions", Align::Right),
        ("seconds", Align::Right),
        ("reference", Align::Left),
        ("errors", Align::Right),
        ("warnings", Align::Right),
    ]);
    for r in rows {
        table.row(vec![
            r.kernels.clone(),
            r.cases.to_string(),
            r.runs.to_string(),
            count(r.lane_instructions),
            format!("{:.2}", r.seconds),
            if r.wrong.is_empty() { "pass".to_owned() } else { format!("{} wrong", r.wrong.len()) },
            r.errors.to_string(),
            r.warnings.to_string(),
        ]);
    }
    println!("{table}");
    approximate.print();
    let cases: usize = rows.iter().map(|r| r.cases).sum();
    println!("{cases} cases on sm_{}, checks {}: {}", args.sm, args.checks, groups.verdict());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_of_the_subjects_that_have_its_sizes() {
        // Layers in one launch are compared with these products, and have no rows.
        let of = |shape: &str| cases(subjects(&["gemv_q8_0".to_owned()]).ok().unwrap(), shape);
        let printed = of("rows=64,cols=256").ok().unwrap();
        assert!(printed.len() > 1 && printed.iter().all(|c| c.to_string().starts_with("rows=64,cols=256,")));
        for case in printed {
            assert!(of(&case.to_string()).ok().unwrap().contains(&case), "{case}");
        }
        let layers = of("hidden=256").ok().unwrap();
        assert!(!layers.is_empty() && layers.iter().all(|case| matches!(case.subject(), Subject::Layers { .. })));
        let text = of("rws=64").err().unwrap().to_string();
        assert!(text.contains("has no size `rws`: its sizes are rows, cols"), "{text}");
    }
}
