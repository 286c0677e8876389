//! What the benchmarks measure with: criterion over device time on a GPU, over counted work on the software driver.
//!
//! On the software driver the same launch always counts the same, so it runs once, and criterion gets that count for every
//! iteration: results repeat to the digit. Products of many rows are counted over few, twice as many, and extended.
//!
//! On a GPU a variant is a captured graph of several launches over rotated buffers, between two events; the variants of a
//! group take turns, and a sample is the time of one launch. Figures of the two engines are never mixed.

// `tests/bench.rs` uses a part of this.
#![allow(dead_code)]

pub mod against;
pub mod baseline;
pub mod gpu;
pub mod report;

pub use warpsmith_bench::{counts, meter};

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use warpsmith_device::{Contract, Launcher};
use warpsmith_host::{Capture, Device, Engine, Error, KernelImage, Stream};

use counts::Counts;
use meter::Meter;
use report::{Figure, Row, Spread};

/// Any error.
pub type Failed = Box<dyn std::error::Error>;

/// What one benchmark has to move and do at least.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Weights, cache entries or elements: the denominator of instructions.
    pub elements: u64,
    /// Bytes that any implementation has to move between memory and chip.
    pub floor_bytes: u64,
}

/// What takes the launches of a benchmark.
pub enum On<'a, 'b> {
    /// A stream, which runs them.
    Stream(&'a Stream),
    /// A capture, which records them.
    Capture(&'a mut Capture<'b>),
}

impl Launcher for On<'_, '_> {
    type Error = Error;
    fn launch<K: Contract>(&mut self, kernel: K) -> Result<(), Error> {
        match self {
            On::Stream(stream) => stream.launch(kernel),
            On::Capture(capture) => capture.launch(kernel),
        }
    }
}

/// Launches on what it is given; the number says which of the rotated buffers it takes.
pub type Launches = Box<dyn FnMut(&mut On<'_, '_>, usize) -> Result<(), Error>>;

/// A closure as [`Launches`].
pub fn launches(f: impl FnMut(&mut On<'_, '_>, usize) -> Result<(), Error> + 'static) -> Launches {
    Box::new(f)
}

/// How a variant runs.
pub enum Run {
    /// Launches, which can be captured.
    Launches(Launches),
    /// Work that waits for its own end: on a GPU it is timed by the clock of the host.
    Whole(Box<dyn FnMut() -> Result<(), Failed>>),
    /// On a GPU alone: nanoseconds of one of what is measured.
    Timed(Box<dyn FnMut() -> Result<f64, Error>>),
}

/// Benchmarks of one group, which do the same work.
pub struct Group<'a> {
    /// Such as `gemv/q4_0/8b-qkv`.
    pub id: String,
    /// By name, with what each does at least.
    pub variants: Vec<(String, Work)>,
    /// Rows, of which a part may be counted; none: all is run.
    pub rows: Option<usize>,
    /// What says which counts are the same: groups that differ in rows alone have one key.
    pub key: String,
    /// Makes the variants, in their order, for that many rows.
    #[allow(clippy::type_complexity)] // it is used once
    pub setup: Box<dyn Fn(&Bench, usize) -> Result<Vec<Run>, Failed> + 'a>,
}

/// Rows of a product that are counted, and twice as many; counters of more follow.
pub const FEW_ROWS: usize = 64;

/// A device, a stream, and the table that the run closes with.
pub struct Bench {
    /// The device under test.
    pub device: Device,
    /// The stream that everything runs on.
    pub stream: Stream,
    rows: RefCell<Vec<Row>>,
    counted: RefCell<HashMap<String, (Counts, Counts)>>,
    figures: RefCell<baseline::Figures>,
    read_rate: Cell<Option<f64>>,
    /// The same device with another build of the kernels; see [`against`].
    other: Option<Box<Bench>>,
}

impl Bench {
    /// Opens device 0 and says which engine it is.
    pub fn open() -> Result<Bench, Error> {
        let device = Device::open(0)?;
        eprintln!("engine: {} ({})", device.engine(), device.name());
        Bench::on(device)
    }

    fn on(device: Device) -> Result<Bench, Error> {
        let stream = device.stream()?;
        let (rows, counted, figures, read_rate) = Default::default();
        Ok(Bench { device, stream, rows, counted, figures, read_rate, other: None })
    }

    /// The same variants also with another build of the kernels, in turns with those of this one.
    pub fn against(self, image: &KernelImage) -> Result<Bench, Error> {
        // A device of its own, whose modules are its own.
        let device = Device::open(self.device.ordinal())?;
        device.load(image)?;
        Ok(Bench { other: Some(Box::new(Bench::on(device)?)), ..self })
    }

    /// This and the other build.
    pub fn builds(&self) -> impl Iterator<Item = &Bench> {
        std::iter::once(self).chain(self.other.as_deref())
    }

    /// Whether figures are counts of the software driver.
    pub fn counts(&self) -> bool {
        matches!(self.device.engine(), Engine::Software { .. })
    }

    /// On a GPU: bytes a nanosecond of a read-only sweep of its memory, which others are compared with.
    pub fn set_read_rate(&self, rate: f64) {
        self.read_rate.set(Some(rate));
    }

    /// Criterion for this engine.
    pub fn criterion(&self) -> Criterion<Meter> {
        let criterion = warpsmith_bench::criterion_for(&self.device);
        let short = Duration::from_millis(1);
        // On a GPU the samples are there before criterion asks for them.
        if self.counts() {
            criterion
        } else {
            criterion.warm_up_time(short).measurement_time(short).configure_from_args()
        }
    }

    /// Runs those variants of a group that the command line selects.
    pub fn group(&self, criterion: &mut Criterion<Meter>, group: &Group<'_>) {
        let mut handle = criterion.benchmark_group(&group.id);
        let mut samples: Option<Vec<Vec<f64>>> = None;
        let builds = self.builds().zip(["", against::SUFFIX]);
        let all =
            builds.flat_map(|(_, suffix)| group.variants.iter().map(move |(n, work)| (format!("{n}{suffix}"), work)));
        for (v, (name, work)) in all.enumerate() {
            handle.throughput(if self.counts() {
                Throughput::Elements(work.elements)
            } else {
                Throughput::Bytes(work.floor_bytes)
            });
            let mut figure = None;
            handle.bench_function(&name, |b| {
                let mut next = 0;
                b.iter_custom(|iterations| match self.value(group, v, &mut samples, &mut figure, &mut next) {
                    Ok(value) => value * iterations as f64,
                    Err(error) => {
                        eprintln!("{}/{name}: {error}", group.id);
                        std::process::exit(1);
                    }
                });
            });
            if let Some(figure) = figure {
                let id = format!("{}/{name}", group.id);
                self.rows.borrow_mut().push(Row { group: group.id.clone(), id, work: *work, figure });
            }
        }
        handle.finish();
    }

    fn value(
        &self,
        group: &Group<'_>,
        v: usize,
        samples: &mut Option<Vec<Vec<f64>>>,
        figure: &mut Option<Figure>,
        next: &mut usize,
    ) -> Result<f64, Failed> {
        if self.counts() {
            if let Some(Figure::Counted { counts, .. }) = figure {
                return Ok(counts.lane_instructions as f64);
            }
            let variants = group.variants.len();
            let build = self.builds().nth(v / variants).ok_or("a variant of no build")?;
            let (counts, rows) = build.count(group, v % variants)?;
            let value = counts.lane_instructions as f64;
            *figure = Some(Figure::Counted { counts: Box::new(counts), rows });
            return Ok(value);
        }
        if samples.is_none() {
            let mut runs = Vec::new();
            for build in self.builds() {
                let of_build = (group.setup)(build, group.rows.unwrap_or(0))?;
                runs.extend(of_build.into_iter().map(|run| (&build.stream, run)));
            }
            *samples = Some(gpu::interleaved(runs)?);
        }
        let all = samples.as_ref().and_then(|s| s.get(v)).filter(|s| !s.is_empty()).ok_or("no samples")?;
        *figure = Some(Figure::Timed(Spread::of(all)));
        let value = all[*next % all.len()];
        *next += 1;
        Ok(value)
    }

    /// Counts a variant, or answers what was counted of it; and how many rows were run if not all.
    pub fn count(&self, group: &Group<'_>, v: usize) -> Result<(Counts, Option<usize>), Failed> {
        let name = &group.variants[v].0;
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
        let run = (group.setup)(self, rows)?.into_iter().nth(v).ok_or("a variant without a run")?;
        match run {
            Run::Launches(mut launch) => Ok(Counts::of(&self.stream, || launch(&mut On::Stream(&self.stream), 0))?),
            Run::Whole(mut work) => {
                // The first one captures graphs and fills caches.
                work()?;
                let mut failed = None;
                let counts = Counts::of(&self.stream, || {
                    failed = work().err();
                    Ok(())
                })?;
                failed.map_or(Ok(counts), Err)
            }
            Run::Timed(_) => Err("a time is measured on a GPU alone".into()),
        }
    }

    /// Prints the table, writes the reports, compares with the baseline; whether nothing is worse.
    pub fn finish(&self, all: bool, testing: bool) -> Result<bool, Failed> {
        report::write(&self.rows.borrow(), &self.device, self.read_rate.get(), testing)?;
        if !self.counts() {
            return Ok(true);
        }
        report::against_baseline(&self.figures.borrow(), all)
    }
}

/// A seeded generator of plain noise; the figures must not depend on a random source.
pub struct Noise(pub u64);

impl Noise {
    /// The next 64 bits (SplitMix64).
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Numbers in [-1, 1).
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() >> 40) as f32 / 8_388_608.0 - 1.0).collect()
    }
}
