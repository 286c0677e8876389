//! Caches of every type on the host and on the device, and attention over them in f64.

use crate::cases::{Bench, Failure, Rng, close};
use crate::kv::{int8_code, int8_scale};
use crate::state::Column;
use half::f16;
use warpsmith_device::{DeviceAddress, Element};

/// A cache's element on the host.
pub trait Stored: Element {
    /// Whether each row has a scale.
    const SCALED: bool;
    /// The element for a number, in a row of that scale.
    fn encode(v: f32, scale: f32) -> Self;
    /// The number that an element means, in a row of that scale.
    fn decode(self, scale: f32) -> f32;
}

impl Stored for f16 {
    const SCALED: bool = false;
    fn encode(v: f32, _: f32) -> f16 {
        f16::from_f32(v)
    }
    fn decode(self, _: f32) -> f32 {
        self.to_f32()
    }
}

impl Stored for f32 {
    const SCALED: bool = false;
    fn encode(v: f32, _: f32) -> f32 {
        v
    }
    fn decode(self, _: f32) -> f32 {
        self
    }
}

impl Stored for i8 {
    const SCALED: bool = true;
    fn encode(v: f32, scale: f32) -> i8 {
        int8_code(v, scale) as i8
    }
    fn decode(self, scale: f32) -> f32 {
        f32::from(self) * scale
    }
}

/// A cache on the device, and what it held before the launch.
pub struct Cache<B: Bench, T: Stored> {
    data: B::Buffer<T>,
    scales: B::Buffer<f32>,
    before: Vec<T>,
    scales_before: Vec<f32>,
}

impl<B: Bench, T: Stored> Cache<B, T> {
    /// A cache of `rows` random rows.
    pub fn new(bench: &mut B, rng: &mut Rng, rows: usize, dim: usize) -> Result<Self, Failure> {
        let (mut before, mut scales_before) = (Vec::new(), Vec::new());
        for _ in 0..rows {
            let row: Vec<f32> = rng.floats(dim).iter().map(|v| v * 2.0).collect();
            let scale = int8_scale(&row);
            before.extend(row.iter().map(|v| T::encode(*v, scale)));
            if T::SCALED {
                scales_before.push(scale);
            }
        }
        if !T::SCALED {
            scales_before.push(0.0);
        }
        let (data, scales) = (bench.upload(&before)?, bench.upload(&scales_before)?);
        Ok(Cache { data, scales, before, scales_before })
    }

    /// Values after the launch. Rows that are not in `written` must be as before; those are within rounding of theirs.
    pub fn after(&self, bench: &mut B, dim: usize, written: &[(usize, Vec<f64>)]) -> Result<Vec<f32>, Failure> {
        let (data, scales) = (bench.read(&self.data)?, bench.read(&self.scales)?);
        let scale = |row: usize| if T::SCALED { scales[row] } else { 1.0 };
        for (row, codes) in data.chunks_exact(dim).enumerate() {
            let values: Vec<f32> = codes.iter().map(|c| c.decode(scale(row))).collect();
            if let Some((_, want)) = written.iter().find(|w| w.0 == row) {
                let largest = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
                // Half a step of the type; and what norm and rotation in f32 may be off, which can move a tie.
                let step = |v: f64| match (T::SCALED, size_of::<T>()) {
                    (true, _) => largest / 127.0 * 0.5001,
                    (false, 2) => v.abs() / 2048.0 + 3e-8,
                    _ => 0.0,
                };
                close(&values, want, |i| step(want[i]) + 4e-6 * (1.0 + largest))?;
            } else if bytemuck::cast_slice::<T, u8>(codes)
                != bytemuck::cast_slice::<T, u8>(&self.before[row * dim..][..dim])
                || (T::SCALED && scales[row].to_bits() != self.scales_before[row].to_bits())
            {
                return Err(Failure::Wrong(format!(
                    "row {row} of the cache was written, which is none of this step's"
                )));
            }
        }
        Ok(data.chunks_exact(dim).enumerate().flat_map(|(r, c)| c.iter().map(move |c| c.decode(scale(r)))).collect())
    }
}

/// A column of a sequence with these caches of `capacity` positions.
pub fn column<B: Bench, T: Stored>(
    (token, position, capacity): (u32, usize, usize),
    k: &Cache<B, T>,
    v: &Cache<B, T>,
) -> Column {
    let scales = |cache: &Cache<B, T>| if T::SCALED { cache.scales.address() } else { DeviceAddress::NULL };
    Column::at(token, position as u32)
        .with_caches(capacity as u32, k.data.address(), v.data.address())
        .with_scales(scales(k), scales(v))
}

/// Sinks of so many heads, or none: small ones, one far above all scores and one far below.
pub fn sinks(rng: &mut Rng, heads: usize, any: bool) -> Vec<f32> {
    if !any {
        return Vec::new();
    }
    let mut all: Vec<f32> = rng.floats(heads).iter().map(|v| v * 3.0).collect();
    for (place, sink) in [(1, 400.0), (2, -400.0)] {
        if let Some(of_head) = all.get_mut(place) {
            *of_head = sink;
        }
    }
    all
}

/// Softmax over the positions of one head in f64, and the weighted sum of values; a sink is one score more, without a value.
#[must_use]
pub fn attend(q: &[f64], keys: &[f32], values: &[f32], range: std::ops::Range<usize>, sink: Option<f32>) -> Vec<f64> {
    let dim = q.len();
    let row = |cache: &[f32], t: usize, d: usize| f64::from(cache[t * dim + d]);
    let score = |t: usize| (0..dim).map(|d| q[d] * row(keys, t, d)).sum::<f64>() / (dim as f64).sqrt();
    let scores: Vec<f64> = range.clone().map(score).collect();
    let sink = sink.map_or(f64::NEG_INFINITY, f64::from);
    let largest = scores.iter().copied().fold(sink, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
    let sum = weights.iter().sum::<f64>() + (sink - largest).exp();
    (0..dim).map(|d| range.clone().zip(&weights).map(|(t, w)| w * row(values, t, d)).sum::<f64>() / sum).collect()
}
