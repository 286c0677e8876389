//! Criterion's measurement: nanoseconds of device time on a GPU, counted lane instructions on the software driver.

use criterion::Throughput;
use criterion::measurement::{Measurement, ValueFormatter};

/// What criterion measures with.
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

fn scaled(values: &mut [f64], typical: f64, units: [(f64, f64, &'static str); 3]) -> &'static str {
    let [first, second, last] = units;
    let (_, factor, unit) = [first, second].into_iter().find(|u| typical < u.0).unwrap_or(last);
    values.iter_mut().for_each(|v| *v *= factor);
    unit
}

impl ValueFormatter for Nanoseconds {
    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        scaled(values, typical, [(1e3, 1.0, "ns"), (1e6, 1e-3, "us"), (0.0, 1e-6, "ms")])
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
        scaled(values, typical, [(1e4, 1.0, "inst"), (1e7, 1e-3, "Kinst"), (0.0, 1e-6, "Minst")])
    }
    fn scale_throughputs(&self, _: f64, throughput: &Throughput, values: &mut [f64]) -> &'static str {
        let (amount, unit) = match throughput {
            Throughput::Bytes(n) | Throughput::BytesDecimal(n) => (*n as f64, "inst/byte"),
            Throughput::Elements(n) => (*n as f64, "inst/elem"),
            _ => (1.0, "inst"),
        };
        values.iter_mut().for_each(|v| *v /= amount);
        unit
    }
    fn scale_for_machines(&self, _: &mut [f64]) -> &'static str {
        "inst"
    }
}
