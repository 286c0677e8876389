//! What the benchmarks measure with: criterion over device time on a GPU, over counted work on the software driver.
//!
//! On the software driver the same launch always counts the same, so each benchmark is run twice, the two counts are
//! compared, and criterion gets that count for every iteration: results repeat to the digit. Figures of the two engines
//! are never mixed, and counts are never called time.

use std::cell::RefCell;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter};
use criterion::{Criterion, Throughput};
use warpsmith_driver_api::software;
use warpsmith_host::{Device, Engine, Error, Stream};

/// Criterion's measurement: nanoseconds of device time, or lane instructions.
pub enum Meter {
    /// A GPU: time between two events.
    DeviceTime,
    /// The software driver: lane instructions.
    LaneInstructions,
}

impl Measurement for Meter {
    type Intermediate = ();
    type Value = f64;

    fn start(&self) {}
    // Every benchmark here is `iter_custom`, which measures by itself.
    fn end(&self, (): ()) -> f64 {
        0.0
    }
    fn add(&self, a: &f64, b: &f64) -> f64 {
        a + b
    }
    fn zero(&self) -> f64 {
        0.0
    }
    fn to_f64(&self, value: &f64) -> f64 {
        *value
    }
    fn formatter(&self) -> &dyn ValueFormatter {
        match self {
            Meter::DeviceTime => &Nanoseconds,
            Meter::LaneInstructions => &Instructions,
        }
    }
}

struct Nanoseconds;
struct Instructions;

fn scale(values: &mut [f64], factor: f64) {
    values.iter_mut().for_each(|v| *v *= factor);
}

impl ValueFormatter for Nanoseconds {
    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        let (factor, unit) = if typical < 1e3 {
            (1.0, "ns")
        } else if typical < 1e6 {
            (1e-3, "us")
        } else {
            (1e-6, "ms")
        };
        scale(values, factor);
        unit
    }
    fn scale_throughputs(&self, _: f64, throughput: &Throughput, values: &mut [f64]) -> &'static str {
        let (amount, unit) = match throughput {
            Throughput::Bytes(n) | Throughput::BytesDecimal(n) => (*n as f64, "GB/s"),
            Throughput::Elements(n) => (*n as f64, "Gelem/s"),
            _ => (1.0, "G/s"),
        };
        values.iter_mut().for_each(|ns| *ns = amount / *ns);
        unit
    }
    fn scale_for_machines(&self, _: &mut [f64]) -> &'static str {
        "ns"
    }
}

impl ValueFormatter for Instructions {
    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        let (factor, unit) = if typical < 1e4 {
            (1.0, "inst")
        } else if typical < 1e7 {
            (1e-3, "Kinst")
        } else {
            (1e-6, "Minst")
        };
        scale(values, factor);
        unit
    }
    fn scale_throughputs(&self, _: f64, throughput: &Throughput, values: &mut [f64]) -> &'static str {
        let (amount, unit) = match throughput {
            Throughput::Bytes(n) | Throughput::BytesDecimal(n) => (*n as f64, "inst/byte"),
            Throughput::Elements(n) => (*n as f64, "inst/elem"),
            _ => (1.0, "inst"),
        };
        scale(values, 1.0 / amount);
        unit
    }
    fn scale_for_machines(&self, _: &mut [f64]) -> &'static str {
        "inst"
    }
}

/// What one benchmark has to move and do at least.
#[derive(Clone, Copy)]
pub struct Work {
    /// Weights, cache entries or elements: the denominator of instructions.
    pub elements: u64,
    /// Bytes that any implementation has to move between memory and chip.
    pub floor_bytes: u64,
}

/// One line of the closing table.
struct Row {
    id: String,
    work: Work,
    figures: Figures,
}

enum Figures {
    Counted(Box<warpsmith_simt::Counters>),
    Timed { nanoseconds: f64 },
}

/// A device, a stream, and the table that the run closes with.
pub struct Bench {
    /// The device under test.
    pub device: Device,
    /// The stream that everything runs on.
    pub stream: Stream,
    rows: RefCell<Vec<Row>>,
}

impl Bench {
    /// Opens device 0 and says which engine it is.
    pub fn open() -> Result<Bench, Error> {
        let device = Device::open(0)?;
        eprintln!("engine: {} ({})", device.engine(), device.name());
        let stream = device.stream()?;
        Ok(Bench { device, stream, rows: RefCell::new(Vec::new()) })
    }

    /// Whether figures are counts of the software driver.
    pub fn counts(&self) -> bool {
        matches!(self.device.engine(), Engine::Software { .. })
    }

    /// Criterion for this engine. Counts need no statistics, so there criterion's own work is kept short.
    pub fn criterion(&self) -> Criterion<Meter> {
        let criterion = Criterion::default().without_plots();
        if self.counts() {
            let short = Duration::from_millis(1);
            criterion
                .with_measurement(Meter::LaneInstructions)
                .sample_size(10)
                .warm_up_time(short)
                .measurement_time(short)
        } else {
            criterion.with_measurement(Meter::DeviceTime).sample_size(50).measurement_time(Duration::from_secs(1))
        }
        .configure_from_args()
    }

    /// Benchmarks `launch`, which is told how many times it has been called, so that it can rotate buffers.
    pub fn run(
        &self,
        criterion: &mut Criterion<Meter>,
        group: &str,
        name: &str,
        work: Work,
        mut launch: impl FnMut(&Stream, usize) -> Result<(), Error>,
    ) {
        let mut group_handle = criterion.benchmark_group(group);
        group_handle.throughput(if self.counts() {
            Throughput::Elements(work.elements)
        } else {
            Throughput::Bytes(work.floor_bytes)
        });
        let mut figures = None;
        group_handle.bench_function(name, |b| {
            b.iter_custom(|iterations| match self.measure(iterations, &mut figures, &mut launch) {
                Ok(value) => value,
                Err(error) => {
                    eprintln!("{group}/{name}: {error}");
                    std::process::exit(1);
                }
            });
        });
        group_handle.finish();
        if let Some(figures) = figures {
            self.rows.borrow_mut().push(Row { id: format!("{group}/{name}"), work, figures });
        }
    }

    fn measure(
        &self,
        iterations: u64,
        figures: &mut Option<Figures>,
        launch: &mut dyn FnMut(&Stream, usize) -> Result<(), Error>,
    ) -> Result<f64, Error> {
        let stream = &self.stream;
        if self.counts() {
            if figures.is_none() {
                let mut count = || -> Result<_, Error> {
                    software::reset_profile();
                    launch(stream, 0)?;
                    stream.synchronize()?;
                    let kernels = software::profile();
                    Ok(kernels.into_iter().fold(warpsmith_simt::Counters::default(), |sum, k| sum + k.counters))
                };
                let (first, second) = (count()?, count()?);
                assert_eq!(
                    first.lane_instructions, second.lane_instructions,
                    "two runs of one launch counted differently"
                );
                assert_eq!(
                    first.global_load_bytes, second.global_load_bytes,
                    "two runs of one launch counted differently"
                );
                *figures = Some(Figures::Counted(Box::new(second)));
            }
            let Some(Figures::Counted(counters)) = figures else { return Ok(0.0) };
            return Ok(counters.lane_instructions as f64 * iterations as f64);
        }
        let start = stream.record()?;
        for i in 0..iterations {
            launch(stream, i as usize)?;
        }
        let end = stream.record()?;
        stream.synchronize()?;
        let nanoseconds = start.elapsed(&end)?.as_secs_f64() * 1e9;
        let each = nanoseconds / iterations as f64;
        let best = match figures {
            Some(Figures::Timed { nanoseconds }) => nanoseconds.min(each),
            _ => each,
        };
        *figures = Some(Figures::Timed { nanoseconds: best });
        Ok(nanoseconds)
    }

    /// Prints the closing table: what criterion's one figure per benchmark cannot say.
    pub fn table(&self) {
        let rows = self.rows.borrow();
        if rows.is_empty() {
            return;
        }
        let width = rows.iter().map(|r| r.id.len()).max().unwrap_or(0);
        match rows[0].figures {
            Figures::Counted(_) => println!(
                "\n{:width$}  {:>12}  {:>9}  {:>12}  {:>11}  {:>8}  {:>9}",
                "counted on the software driver",
                "lane inst",
                "inst/elem",
                "L1 bytes",
                "floor/L1",
                "sect/req",
                "conflicts"
            ),
            Figures::Timed { .. } => println!("\n{:width$}  {:>10}  {:>8}", "timed on the GPU (best)", "us", "GB/s"),
        }
        if matches!(rows[0].figures, Figures::Counted(_)) {
            println!(
                "(L1 bytes: 32 for each sector that a warp's request touches; repeated reads, which caches serve, count each time)"
            );
        }
        for row in rows.iter() {
            match &row.figures {
                Figures::Counted(c) => {
                    // Sectors are what a request moves, whether all of a sector is used or not.
                    let moved = 32 * (c.global_load_sectors + c.global_store_sectors);
                    println!(
                        "{:width$}  {:>12}  {:>9.3}  {:>12}  {:>10.1}%  {:>8.2}  {:>9}",
                        row.id,
                        c.lane_instructions,
                        c.lane_instructions as f64 / row.work.elements as f64,
                        moved,
                        100.0 * row.work.floor_bytes as f64 / moved.max(1) as f64,
                        (c.global_load_sectors + c.global_store_sectors) as f64 / c.global_requests.max(1) as f64,
                        c.shared_bank_conflicts,
                    );
                }
                Figures::Timed { nanoseconds } => println!(
                    "{:width$}  {:>10.2}  {:>8.1}",
                    row.id,
                    nanoseconds / 1e3,
                    row.work.floor_bytes as f64 / nanoseconds
                ),
            }
        }
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
