//! A run of benchmarks: which are meant, whether they are right, what they cost, and the table of all.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use serde_json::json;
use warpsmith_host::{Device, Engine, Error, KernelImage, Stream};

use crate::baseline::Figures;
use crate::counts::{Counts, FEW_ROWS};
use crate::group::{Group, Variants};
use crate::meter::Meter;
use crate::options::Options;
use crate::output::Output;
use crate::report::{Figure, Report, Row, Spread};
use crate::run::{Failed, How, On, Run, Work, Wrong};
use crate::{against, gpu};

/// Names a file for the outputs of every benchmark, which are then compared and not measured. `warpsmith compare` sets it.
pub const OUTPUTS: &str = "WARPSMITH_BENCH_OUTPUTS";

/// What a benchmark's `main` runs.
///
/// On a GPU the figure is device time: graphs of launches over rotated buffers, variants in turns. On the software driver it is
/// counted work. Both come after the outputs, which are compared with their references: what is wrong is not measured.
pub struct Harness<'a> {
    name: String,
    kernels: &'a KernelImage,
    baseline: PathBuf,
    arguments: Option<Vec<String>>,
}

impl<'a> Harness<'a> {
    /// Benchmarks of these kernels, reported under a name. Counters are compared with `benches/NAME.baseline.json`.
    #[must_use]
    pub fn new(name: impl Into<String>, kernels: &'a KernelImage) -> Harness<'a> {
        let name = name.into();
        let baseline = PathBuf::from(format!("benches/{name}.baseline.json"));
        Harness { name, kernels, baseline, arguments: None }
    }

    /// Another file with the counters that are compared with, in the package's folder.
    #[must_use]
    pub fn baseline(self, file: impl Into<PathBuf>) -> Harness<'a> {
        Harness { baseline: file.into(), ..self }
    }

    /// What stands for the command line of the process, in which cargo writes `--bench` first.
    #[must_use]
    pub fn arguments(self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Harness<'a> {
        Harness { arguments: Some(arguments.into_iter().map(Into::into).collect()), ..self }
    }

    /// Runs what the command line selects. The answer is that of a process: nothing is wrong, and nothing worse than before.
    pub fn run(self, groups: impl FnOnce(&Bench) -> Result<(), Failed>) -> ExitCode {
        match self.good(groups) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn good(self, groups: impl FnOnce(&Bench) -> Result<(), Failed>) -> Result<bool, Failed> {
        let options = Options::read(self.arguments.unwrap_or_else(|| std::env::args().skip(1).collect()))?;
        let listing = options.list;
        let mut bench = Bench::open(self.kernels, options)?;
        if let Some(file) = std::env::var_os(OUTPUTS).filter(|f| !f.is_empty()) {
            let mut file = std::fs::File::create(PathBuf::from(file))?;
            let (device, engine, sm) = (bench.device.name(), bench.device.engine().to_string(), bench.device.sm());
            writeln!(file, "{}", json!({ "device": device, "engine": engine, "sm": sm }))?;
            bench.outputs = Some(RefCell::new(file));
        }
        if let Some(image) = against::image()? {
            bench = bench.against(&image)?;
        }
        let report = Report { name: self.name, baseline: crate::report::package().join(self.baseline) };
        bench.before = report.last();
        groups(&bench)?;
        if listing || bench.outputs.is_some() {
            return Ok(bench.wrong.borrow().is_empty());
        }
        bench.finish(&report)
    }
}

/// A device, a stream, and the table that the run closes with.
pub struct Bench {
    /// The device under test.
    pub device: Device,
    /// The stream that everything runs on.
    pub stream: Stream,
    options: Options,
    kernels: KernelImage,
    criterion: RefCell<Option<Criterion<Meter>>>,
    rows: RefCell<Vec<Row>>,
    counted: RefCell<HashMap<String, (Counts, Counts)>>,
    figures: RefCell<Figures>,
    /// Figures of the run before.
    before: Figures,
    wrong: RefCell<Vec<String>>,
    /// The kernels that were counted, by the first word of their groups' names.
    launched: RefCell<BTreeMap<String, BTreeSet<String>>>,
    read_rate: Cell<Option<f64>>,
    outputs: Option<RefCell<std::fs::File>>,
    /// The same device with another build of the kernels; see [`against`].
    other: Option<Box<Bench>>,
}

/// Criterion for a GPU. The samples are there before it asks for them, so its own work is kept short.
fn criterion() -> Criterion<Meter> {
    let short = Duration::from_millis(1);
    let criterion = Criterion::default().without_plots().with_measurement(Meter).sample_size(50);
    criterion.warm_up_time(short).measurement_time(short).configure_from_args()
}

impl Bench {
    /// Opens device 0 with these kernels and says which engine it is.
    pub(crate) fn open(kernels: &KernelImage, options: Options) -> Result<Bench, Error> {
        let device = Device::open(0)?;
        eprintln!("engine: {} ({})", device.engine(), device.name());
        let mut bench = Bench::on(device, kernels)?;
        bench.options = options;
        if bench.times() {
            bench.criterion = RefCell::new(Some(criterion()));
        }
        Ok(bench)
    }

    /// On device 0, with everything selected and nothing said: for tests of benchmarks.
    pub fn quiet(kernels: &KernelImage) -> Result<Bench, Error> {
        Bench::on(Device::open(0)?, kernels)
    }

    fn on(device: Device, kernels: &KernelImage) -> Result<Bench, Error> {
        device.load(kernels)?;
        let stream = device.stream()?;
        Ok(Bench {
            device,
            stream,
            kernels: *kernels,
            options: Options::default(),
            criterion: RefCell::default(),
            rows: RefCell::default(),
            counted: RefCell::default(),
            figures: RefCell::default(),
            before: Figures::default(),
            wrong: RefCell::default(),
            launched: RefCell::default(),
            read_rate: Cell::default(),
            outputs: None,
            other: None,
        })
    }

    /// The same variants also with another build of the kernels, in turns with those of this one.
    pub fn against(self, image: &KernelImage) -> Result<Bench, Error> {
        // A device of its own, whose modules are its own.
        let device = Device::open(self.device.ordinal())?;
        Ok(Bench { other: Some(Box::new(Bench::on(device, image)?)), ..self })
    }

    /// This and the other build.
    pub fn builds(&self) -> impl Iterator<Item = &Bench> {
        std::iter::once(self).chain(self.other.as_deref())
    }

    /// Whether figures are counts of the software driver.
    pub fn counts(&self) -> bool {
        matches!(self.device.engine(), Engine::Software { .. })
    }

    /// Whether this run measures times: those of a GPU, if outputs are not all that is asked for.
    pub fn times(&self) -> bool {
        !self.counts() && !self.options.test && !self.options.list && self.outputs.is_none()
    }

    /// On a GPU: bytes a nanosecond of a read-only sweep of its memory, which others are compared with.
    pub fn set_read_rate(&self, rate: f64) {
        self.read_rate.set(Some(rate));
    }

    /// The kernels that were launched, by the first word of their groups' names; none unless everything was run and counted.
    pub fn launched(&self) -> Option<BTreeMap<String, BTreeSet<String>>> {
        let whole = self.counts() && self.options.all() && !self.options.list && self.outputs.is_none();
        (whole && self.wrong.borrow().is_empty()).then(|| self.launched.borrow().clone())
    }

    /// A group of variants, to which they are added one by one.
    pub fn group(&self, id: impl Into<String>, work: Work) -> Variants<'_> {
        Variants { bench: self, id: id.into(), work, all: Vec::new() }
    }

    /// Names of a group's variants of both builds, with their builds and numbers.
    fn variants<'g>(&self, group: &'g Group<'_>) -> Vec<(&Bench, usize, String, &'g Work)> {
        let builds = self.builds().zip(["", against::SUFFIX]);
        let of = |(build, suffix)| {
            let named =
                move |(v, (name, work)): (usize, &'g (String, Work))| (build, v, format!("{name}{suffix}"), work);
            group.variants.iter().enumerate().map(named)
        };
        builds.flat_map(of).collect()
    }

    /// Compares and measures those variants of a group that the command line selects. What is wrong is kept for the end.
    pub fn measure(&self, group: &Group<'_>) {
        let all = self.variants(group);
        let id = |name: &str| format!("{}/{name}", group.id);
        let selected: Vec<_> = all.iter().filter(|(_, _, name, _)| self.options.selects(&id(name))).collect();
        if selected.is_empty() {
            return;
        }
        if self.options.list {
            selected.iter().for_each(|(_, _, name, _)| println!("{}: benchmark", id(name)));
            return;
        }
        let mut right = Vec::new();
        for (build, v, name, work) in selected {
            match self.one(group, build, *v, &id(name)) {
                Ok(figure) => right.push((name, *work, figure)),
                Err(error) => self.refuse(&id(name), error.as_ref()),
            }
        }
        if !self.times() {
            for (name, work, figure) in right {
                if let Some(figure) = figure {
                    self.rows.borrow_mut().push(Row { group: group.id.clone(), id: id(name), work: *work, figure });
                }
            }
            return;
        }
        let names: Vec<&str> = right.iter().map(|(name, ..)| name.as_str()).collect();
        if let Err(error) = self.time(group, &all, &names) {
            self.refuse(&group.id, error.as_ref());
        }
    }

    fn refuse(&self, id: &str, error: &(dyn std::error::Error + 'static)) {
        if let Some(file) = &self.outputs {
            // What cannot be written is missing there.
            let _ = writeln!(file.borrow_mut(), "{}", json!({ "id": id, "wrong": error.to_string() }));
        }
        let wrong = if error.is::<Wrong>() { "wrong, and not measured" } else { "failed" };
        println!("{id}: {wrong}: {error}");
        self.wrong.borrow_mut().push(id.to_owned());
    }

    /// Compares the outputs of a variant, and counts it where work is counted.
    fn one(&self, group: &Group<'_>, build: &Bench, v: usize, id: &str) -> Result<Option<Figure>, Failed> {
        if let Some(file) = &self.outputs {
            let mut run = build.setup(group, v, group.rows.map_or(0, |r| r.min(2 * FEW_ROWS)))?;
            if !matches!(run.how, How::Timed(_)) {
                let outputs: Vec<_> = run.first(&build.stream)?.iter().map(Output::to_json).collect();
                writeln!(file.borrow_mut(), "{}", json!({ "id": id, "outputs": outputs }))?;
            }
            return Ok(None);
        }
        if !self.counts() {
            build.setup(group, v, group.rows.unwrap_or(0))?.first(&build.stream)?;
            if self.options.test {
                println!("Testing {id}: its outputs are right");
            }
            return Ok(None);
        }
        let (counts, rows) = build.count(group, v)?;
        let word = group.id.split('/').next().unwrap_or_default().to_owned();
        let names = counts.kernels.iter().map(|k| k.name.clone());
        self.launched.borrow_mut().entry(word).or_default().extend(names);
        if self.options.test {
            println!("Testing {id}: its outputs are right");
        } else {
            let lanes = counts.lane_instructions;
            let change = crate::report::change(lanes, self.before.get(id).copied());
            println!("{id}: {lanes} lane instructions{change}");
        }
        Ok(Some(Figure::Counted { counts: Box::new(counts), rows }))
    }

    fn setup(&self, group: &Group<'_>, v: usize, rows: usize) -> Result<Run, Failed> {
        (group.setup)(self, rows, &[v])?.pop().ok_or_else(|| "a variant without a run".into())
    }

    /// Measures variants on a GPU, in turns, and hands the samples to criterion.
    fn time(&self, group: &Group<'_>, all: &[(&Bench, usize, String, &Work)], names: &[&str]) -> Result<(), Failed> {
        let wanted: Vec<_> = all.iter().filter(|(_, _, name, _)| names.contains(&name.as_str())).collect();
        let mut runs = Vec::new();
        for build in self.builds() {
            let meant = wanted.iter().filter(|(b, ..)| std::ptr::eq(*b, build)).map(|(_, v, ..)| *v);
            let of_build = (group.setup)(build, group.rows.unwrap_or(0), &meant.collect::<Vec<_>>())?;
            runs.extend(of_build.into_iter().map(|run| (&build.stream, run)));
        }
        let samples = gpu::interleaved(runs)?;
        let mut criterion = self.criterion.borrow_mut();
        let criterion = criterion.as_mut().ok_or("times are measured by `cargo bench`")?;
        let mut handle = criterion.benchmark_group(&group.id);
        for ((_, _, name, work), samples) in wanted.into_iter().zip(samples) {
            let mut endless = samples.iter().copied().cycle();
            handle.throughput(Throughput::Bytes(work.floor_bytes));
            handle.bench_function(name, |b| {
                b.iter_custom(|iterations| endless.next().unwrap_or(f64::NAN) * iterations as f64);
            });
            let (id, figure) = (format!("{}/{name}", group.id), Figure::Timed(Spread::of(&samples)));
            self.rows.borrow_mut().push(Row { group: group.id.clone(), id, work: **work, figure });
        }
        handle.finish();
        Ok(())
    }

    /// Counts a variant whose outputs are right, or answers what was counted of it; and how many rows were run if not all.
    pub fn count(&self, group: &Group<'_>, v: usize) -> Result<(Counts, Option<usize>), Failed> {
        let name = &group.variants.get(v).ok_or("a variant of no name")?.0;
        let key = format!("{}/{name}", group.key);
        let partly = group.rows.filter(|r| *r > 2 * FEW_ROWS && r % FEW_ROWS == 0);
        let known = self.counted.borrow().get(&key).cloned();
        let (few, twice) = match known {
            Some(known) => known,
            None => {
                let few = self.counts_of(group, v, partly.map_or(group.rows.unwrap_or(0), |_| FEW_ROWS))?;
                let twice = if partly.is_some() { self.counts_of(group, v, 2 * FEW_ROWS)? } else { few.clone() };
                let named = twice.figures().map(|(figure, n)| (format!("{key} {figure}"), n));
                self.figures.borrow_mut().extend(named);
                self.counted.borrow_mut().insert(key, (few.clone(), twice.clone()));
                (few, twice)
            }
        };
        Ok(match partly {
            Some(rows) => (few.extrapolated(&twice, (rows / FEW_ROWS) as u64), Some(2 * FEW_ROWS)),
            None => (few, None),
        })
    }

    fn counts_of(&self, group: &Group<'_>, v: usize, rows: usize) -> Result<Counts, Failed> {
        let mut run = self.setup(group, v, rows)?;
        let counts = match &mut run.how {
            How::Launches(launch) => Counts::of(&self.stream, || launch(&mut On::Stream(&self.stream), 0))?,
            How::Whole(work) => {
                // The first one captures graphs and fills caches.
                work()?;
                let mut failed = None;
                let counts = Counts::of(&self.stream, || {
                    failed = work().err();
                    Ok(())
                })?;
                failed.map_or(Ok(counts), Err)?
            }
            How::Timed(_) => return Err("a time is measured on a GPU alone".into()),
        };
        run.read(&self.stream)?;
        Ok(counts)
    }

    /// Prints the table, writes the reports, compares with the baseline; whether nothing is wrong and nothing worse.
    fn finish(&self, report: &Report) -> Result<bool, Failed> {
        let (rows, wrong) = (self.rows.borrow(), self.wrong.borrow());
        report.write(&rows, &self.device, &self.kernels, self.read_rate.get(), self.options.test)?;
        if let Some(criterion) = self.criterion.borrow().as_ref() {
            criterion.final_summary();
        }
        let mut good = wrong.is_empty();
        if self.counts() {
            report.keep(&rows, &self.before)?;
            // What is wrong has no figures, which is said already.
            good &= report.against_baseline(&self.figures.borrow(), self.options.all() && wrong.is_empty())?;
        }
        for id in wrong.iter() {
            println!("not measured: {id}");
        }
        Ok(good)
    }
}
