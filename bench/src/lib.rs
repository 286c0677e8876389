//! What a kernel costs, by [criterion]: device time on a GPU, counted lane instructions on the software driver.
//!
//! ```no_run
//! use warpsmith_host::{Device, gpu_kernels::elementwise::ResidualAdd};
//!
//! // A bench target with `harness = false`.
//! # fn main() -> Result<(), warpsmith_host::Error> {
//! let device = Device::open(0)?;
//! let stream = device.stream()?;
//! let x = stream.upload(&[1.0f32; 1000])?;
//! let mut y = stream.zeros::<f32>(1000)?;
//! let mut criterion = warpsmith_bench::criterion_for(&device);
//! criterion.bench_function("residual_add", |b| {
//!     warpsmith_bench::launches(b, &stream, || {
//!         stream.launch(ResidualAdd { x: &x, residual: &x, y: &mut y, n: 1000 })
//!     });
//! });
//! # Ok(())
//! # }
//! ```
//!
//! The same launch always counts the same, so on the software driver it runs once and criterion gets that count for every
//! iteration; figures repeat to the digit. Counts are not time, and are not shown as if they were.

pub mod counts;
pub mod meter;

use std::time::Duration;

pub use criterion;
use criterion::{Bencher, Criterion};
use warpsmith_host::{Device, Error, Stream};

pub use counts::{Counts, KernelCounts};
pub use meter::Meter;

/// Criterion for the engine of `device`, with the options of the command line. Counts need no statistics, so on the
/// software driver criterion's own work is kept short.
#[must_use]
pub fn criterion_for(device: &Device) -> Criterion<Meter> {
    let criterion = Criterion::default().without_plots();
    let short = Duration::from_millis(1);
    if device.is_software() {
        criterion
            .with_measurement(Meter::LaneInstructions)
            .sample_size(10)
            .nresamples(1000)
            .warm_up_time(short)
            .measurement_time(short)
    } else {
        criterion.with_measurement(Meter::DeviceTime).sample_size(50)
    }
    .configure_from_args()
}

/// One iteration is what `work` launches on `stream`: the lane instructions that it counts, or the nanoseconds of device
/// time that it takes among others of its kind. A launch that fails ends the process with its error, since criterion has
/// no way to be told.
pub fn launches(bencher: &mut Bencher<'_, Meter>, stream: &Stream, mut work: impl FnMut() -> Result<(), Error>) {
    let software = stream.device().is_software();
    let mut counted: Option<f64> = None;
    bencher.iter_custom(|iterations| {
        let value = match counted {
            Some(one) => Ok(one * iterations as f64),
            None if software => Counts::of(stream, &mut work).map(|counts| {
                let one = counts.lane_instructions as f64;
                counted = Some(one);
                one * iterations as f64
            }),
            None => between_events(stream, || (0..iterations).try_for_each(|_| work())),
        };
        value.unwrap_or_else(|error| {
            eprintln!("error: {error}");
            std::process::exit(1)
        })
    });
}

/// Nanoseconds of device time between events around what `work` issues.
pub fn between_events(stream: &Stream, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    Ok(stream.device_time(work)?.as_secs_f64() * 1e9)
}
