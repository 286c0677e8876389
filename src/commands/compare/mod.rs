//! `warpsmith compare`: every kernel in all its shapes on the device that a program would get, and on the simulated one,
//! output by output and bit by bit.

pub mod sides;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use warpsmith_check::Checks;
use warpsmith_host::gpu_kernels::cases::{Case, Subject};
use warpsmith_host::{Device, Stream};

use super::approximate::Approximate;
use super::check::bench::{Gpu, Kernels};
use super::check::{plural, subjects};
use super::project::{self, Project};
use crate::cli::CompareArgs;
use crate::failure::{Failure, Kind};
use crate::table::{Align, Table};
use sides::{Distance, Driver, Recorder};

/// What the cases of one subject gave.
pub struct Row {
    kernels: String,
    cases: usize,
    pub distance: Distance,
    /// Approximate instructions, by kernel.
    pub approximate: Vec<Value>,
    /// What failed on the device: a launch, or the comparison with the f64 reference.
    pub wrong: Vec<String>,
}

impl Row {
    pub fn new(kernels: String, cases: usize) -> Row {
        Row { kernels, cases, distance: Distance::default(), approximate: Vec::new(), wrong: Vec::new() }
    }

    /// Only the rounding of an approximate instruction may differ, and only the bits of floats.
    fn is_explained(&self) -> bool {
        self.wrong.is_empty() && !self.distance.unlike && (self.distance.differ == 0 || !self.approximate.is_empty())
    }

    fn verdict(&self) -> String {
        match &self.distance {
            _ if !self.wrong.is_empty() => {
                plural(self.wrong.len(), "case fails on the device", "cases fail on the device")
            }
            d if d.unlike => "unlike".to_owned(),
            d if d.differ == 0 => "identical".to_owned(),
            _ if self.approximate.is_empty() => "differs, and no instruction is approximate".to_owned(),
            _ => "within its approximate instructions".to_owned(),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "kernels": self.kernels,
            "cases": self.cases,
            "elements": self.distance.elements,
            "differ": self.distance.differ,
            "max_ulp": self.distance.ulp,
            "identical": self.distance.differ == 0 && !self.distance.unlike,
            "explained": self.is_explained(),
            "verdict": self.verdict(),
            "approximate": self.approximate,
            "wrong": self.wrong,
        })
    }
}

/// Runs the command.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    if let Some(project) = Project::here(&args.place)? {
        return project::compare(args, &project);
    }
    if let Some(choice) = args.driver {
        warpsmith_driver_api::select(choice.into()).map_err(|e| Failure::new(Kind::NoEngine, e.to_string()))?;
    }
    let device = Device::open(args.device)?;
    let sm = args.sm.unwrap_or(device.sm());
    let subjects = subjects(&args.kernels)?;
    let code = Kernels::new(sm);
    let bar = ProgressBar::new(subjects.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    let mut rows = Vec::new();
    for subject in subjects {
        bar.set_message(subject.kernels().join(", "));
        let simulated = || Gpu::new(&code, Checks::default());
        rows.push(compare(subject, args.shape.as_deref(), &device.stream()?, simulated)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    verdict(args, &rows, (device.name(), &device.engine().to_string(), sm))
}

/// Prints what was compared, and says whether all of it is explained.
pub fn verdict(args: &CompareArgs, rows: &[Row], (device, engine, sm): (&str, &str, u32)) -> Result<(), Failure> {
    let unexplained = rows.iter().filter(|r| !r.is_explained()).count();
    if args.json {
        let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
        println!("{:#}", json!({ "device": device, "engine": engine, "simulated_sm": sm, "kernels": rows }));
    } else {
        println!("device     {device} ({engine})\nsimulated  sm_{sm}\n");
        print(rows);
    }
    match unexplained {
        0 => Ok(()),
        n => Err(Failure::new(
            Kind::Verification,
            format!("{} not what the simulated device gives", plural(n, "kernel is", "kernels are")),
        )),
    }
}

fn compare(
    subject: Subject,
    shape: Option<&str>,
    stream: &Stream,
    simulated: impl Fn() -> Gpu,
) -> Result<Row, Failure> {
    let cases: Vec<Case> = match shape {
        Some(text) => vec![subject.parse(text).map_err(|e| Failure::usage(format!("--shape {text}: {e}")))?],
        None => subject.cases(),
    };
    let mut row = Row::new(subject.kernels().join(", "), cases.len());
    let mut approximate = Approximate::default();
    for case in &cases {
        let mut ours = Recorder::new(simulated());
        let mut theirs = Recorder::new(Driver { stream });
        let (reference, outcome) = (case.run(&mut ours), case.run(&mut theirs));
        approximate.extend(std::mem::take(&mut ours.inner.approximate));
        match (reference, outcome) {
            (Ok(()), Ok(())) => row.distance = row.distance.and(Distance::between(&ours.reads, &theirs.reads)),
            (Err(e), _) => row.wrong.push(format!("{case}, simulated: {e}")),
            (_, Err(e)) => row.wrong.push(format!("{case}: {e}")),
        }
    }
    row.approximate = approximate.to_json();
    Ok(row)
}

fn print(rows: &[Row]) {
    let mut table = Table::new([
        ("kernel", Align::Left),
        ("cases", Align::Right),
        ("elements", Align::Right),
        ("differ", Align::Right),
        ("largest, ulp", Align::Right),
        ("", Align::Left),
    ]);
    for row in rows {
        table.row(vec![
            row.kernels.clone(),
            row.cases.to_string(),
            row.distance.elements.to_string(),
            row.distance.differ.to_string(),
            row.distance.ulp.to_string(),
            row.verdict(),
        ]);
    }
    println!("{table}");
    let count = |of: fn(&&Row) -> bool| rows.iter().filter(of).count();
    let cases: usize = rows.iter().map(|r| r.cases).sum();
    println!(
        "{cases} cases; of {} products and kernels {} identical in every bit, {} within their approximate instructions, {} not",
        rows.len(),
        count(|r| r.verdict() == "identical"),
        count(|r| r.is_explained() && r.distance.differ > 0),
        count(|r| !r.is_explained()),
    );
    for text in rows.iter().flat_map(|r| r.wrong.iter().map(move |w| format!("{}: {w}", r.kernels))) {
        println!("{text}");
    }
}
