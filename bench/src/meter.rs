//! Criterion's measurement on a GPU: nanoseconds of device time.

use criterion::Throughput;
use criterion::measurement::{Measurement, ValueFormatter};

/// Device time, in nanoseconds.
pub struct Meter;

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
        &Nanoseconds
    }
}

struct Nanoseconds;

impl ValueFormatter for Nanoseconds {
    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        let (factor, unit) = match typical {
            t if t < 1e3 => (1.0, "ns"),
            t if t < 1e6 => (1e-3, "us"),
            _ => (1e-6, "ms"),
        };
        values.iter_mut().for_each(|v| *v *= factor);
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
