//! `warpsmith compare` in a project: the outputs of its benchmarks on the device and on the simulated one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use warpsmith_check::record::Record;

use super::{Project, harness};
use crate::cli::{CompareArgs, DriverChoice};
use crate::commands::approximate::Approximate;
use crate::commands::check::program::read_report;
use crate::commands::compare::sides::{Distance, Read};
use crate::commands::compare::{Row, verdict};
use crate::failure::{Failure, Kind};

/// The variable under which a benchmark of `warpsmith-bench` writes its outputs.
const OUTPUTS: &str = "WARPSMITH_BENCH_OUTPUTS";

/// What the benchmarks of a program gave on one side.
struct Side {
    device: String,
    engine: String,
    sm: u32,
    /// Outputs by benchmark, or what is wrong.
    benchmarks: BTreeMap<String, Result<Vec<Read>, String>>,
    approximate: Approximate,
}

/// Compares the project's kernels as its benchmarks launch them.
pub fn compare(args: &CompareArgs, project: &Project) -> Result<(), Failure> {
    if args.shape.is_some() {
        return Err(Failure::usage(
            "--shape is for kernels that ship; a project's are compared as its benchmarks launch them",
        ));
    }
    if args.device != 0 {
        return Err(Failure::usage("benchmarks run on device 0: CUDA_VISIBLE_DEVICES chooses which that is"));
    }
    if project.benches.is_empty() {
        return Err(Failure::usage(
            "the project has no benchmarks, whose outputs are compared: `warpsmith new` and `warpsmith add` make some",
        ));
    }
    let ready = project.build_benches(!args.json)?;
    ready.know(&args.kernels)?;
    let choice = args.driver.map(|d| match d {
        DriverChoice::Auto => "auto",
        DriverChoice::Cuda => "cuda",
        DriverChoice::Software => "software",
    });
    let mut rows = Vec::new();
    let mut seen: Option<(String, String, u32)> = None;
    for (program, folder) in &ready.built.benches {
        let theirs = run(program, folder, &args.kernels, choice.map(|c| ("WARPSMITH_DRIVER", c.to_owned())))?;
        let Some(theirs) = theirs else { continue };
        let sm = args.sm.unwrap_or(theirs.sm);
        let simulated = [("WARPSMITH_DRIVER", "software".to_owned()), ("WARPSMITH_SM", sm.to_string())];
        let Some(ours) = run(program, folder, &args.kernels, simulated)? else { continue };
        seen.get_or_insert_with(|| (theirs.device.clone(), theirs.engine.clone(), sm));
        rows.extend(between(&ours, &theirs));
    }
    let Some((device, engine, sm)) = seen.filter(|_| !rows.is_empty()) else {
        let named = args.kernels.join(" or ");
        let which = if named.is_empty() { String::new() } else { format!(" with {named} in its name") };
        return Err(Failure::usage(format!("the project has no benchmark{which} that `warpsmith-bench` runs")));
    };
    verdict(args, &rows, (&device, &engine, sm))
}

/// Both sides, benchmark by benchmark.
fn between(ours: &Side, theirs: &Side) -> Vec<Row> {
    let one = |(id, reference): (&String, &Result<Vec<Read>, String>)| {
        let mut row = Row::new(id.clone(), 1);
        row.approximate = ours.approximate.to_json();
        match (reference, theirs.benchmarks.get(id)) {
            (Ok(reference), Some(Ok(got))) => row.distance = Distance::between(reference, got),
            (Err(wrong), _) => row.wrong.push(format!("simulated: {wrong}")),
            (_, Some(Err(wrong))) => row.wrong.push(wrong.clone()),
            (_, None) => row.wrong.push("it was not run on the device".to_owned()),
        }
        row
    };
    ours.benchmarks.iter().map(one).collect()
}

/// The lines that a benchmark's harness wrote.
fn read_lines(path: &Path) -> Result<Vec<Value>, Failure> {
    let operation = |what: String| Failure::new(Kind::Operation, what);
    let text = std::fs::read_to_string(path).map_err(|e| operation(format!("{}: {e}", path.display())))?;
    let line = |l: &str| serde_json::from_str(l).map_err(|e| operation(format!("a line of the outputs: {e}: {l}")));
    text.lines().map(line).collect()
}

/// Runs a program's benchmarks once each; `None` if it has none of that name, or does not know how.
fn run<'a>(
    program: &Path,
    folder: &PathBuf,
    kernels: &[String],
    variables: impl IntoIterator<Item = (&'a str, String)>,
) -> Result<Option<Side>, Failure> {
    let operation = |what: String| Failure::new(Kind::Operation, what);
    let file = || tempfile::NamedTempFile::new().map_err(|e| operation(format!("no temporary file: {e}")));
    let (outputs, report) = (file()?, file()?);
    let mut command = Command::new(program);
    command.args(kernels).current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
    command.env(OUTPUTS, outputs.path()).env("WARPSMITH_REPORT", report.path()).env("WARPSMITH_PROFILE", "1");
    command.envs(variables);
    let ended =
        harness::finish(command, &mut || false).map_err(|e| operation(format!("{}: {e}", program.display())))?;
    let Some(ended) = ended else { return Ok(None) };
    let lines = read_lines(outputs.path())?;
    let Some((head, rest)) = lines.split_first() else {
        if ended.status.success() {
            return Ok(None);
        }
        let said = String::from_utf8_lossy(&ended.stderr).trim_end().to_owned();
        return Err(Failure::new(Kind::Operation, format!("{}: {}\n{said}", program.display(), ended.status)));
    };
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut approximate = Approximate::default();
    for line in read_report(report.path())?.into_iter().filter_map(Record::into_profile) {
        approximate.add(&text(&line["kernel"]), line["approximate"].as_array().cloned().unwrap_or_default());
    }
    let mut benchmarks = BTreeMap::new();
    for line in rest {
        let given = match line["wrong"].as_str() {
            Some(wrong) => Err(wrong.to_owned()),
            None => line["outputs"].as_array().into_iter().flatten().map(Read::parse).collect(),
        };
        benchmarks.insert(text(&line["id"]), given);
    }
    let sm = head["sm"].as_u64().unwrap_or(0) as u32;
    let (device, engine) = (text(&head["device"]), text(&head["engine"]));
    Ok(if benchmarks.is_empty() { None } else { Some(Side { device, engine, sm, benchmarks, approximate }) })
}
