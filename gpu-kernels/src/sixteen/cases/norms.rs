//! Cases of norms.

use super::{Number, by_type, listed, name, near, numbers, values};
use crate::cases::{Bench, Listed, NamedSizes, Operation, Outcome, Rng, Shape, same};
use crate::sixteen::{
    AddRmsNormBf16, AddRmsNormF16, AddRmsNormShadowBf16, AddRmsNormShadowF16, LayerNormBf16, LayerNormF16,
    RmsNormAddShadowBf16, RmsNormAddShadowF16, RmsNormBf16, RmsNormF16, Sixteen,
};
use warpsmith_device::DeviceSlice;

/// Which norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Norm {
    /// RMS norm.
    Rms,
    /// Residual addition and RMS norm.
    AddRms,
    /// The same with a residual stream of f32.
    AddRmsShadow,
    /// RMS norm added to a residual stream of f32.
    RmsAddShadow,
    /// Layer norm.
    Layer,
}

impl Norm {
    const ALL: [Norm; 5] = [Norm::Rms, Norm::AddRms, Norm::AddRmsShadow, Norm::RmsAddShadow, Norm::Layer];
}

/// Norms.
pub struct Norms;

const EPS: f32 = 1e-6;

/// What inputs are: about 1; too large for two of them to be added in f16; with one that is no number; far from zero.
const ORDINARY: usize = 0;
const LARGE: usize = 1;
const NAN: usize = 2;
const FAR: usize = 3;

impl Operation for Norms {
    type Variant = (Norm, Sixteen);

    fn kernels() -> Vec<Listed> {
        [
            listed::<RmsNormF16<'_>, RmsNormBf16<'_>>(),
            listed::<AddRmsNormF16<'_>, AddRmsNormBf16<'_>>(),
            listed::<AddRmsNormShadowF16<'_>, AddRmsNormShadowBf16<'_>>(),
            listed::<RmsNormAddShadowF16<'_>, RmsNormAddShadowBf16<'_>>(),
            listed::<LayerNormF16<'_>, LayerNormBf16<'_>>(),
        ]
        .concat()
    }

    fn variants() -> Vec<(Norm, Sixteen)> {
        Norm::ALL.into_iter().flat_map(|norm| Sixteen::ALL.map(|of| (norm, of))).collect()
    }

    fn launches((norm, of): (Norm, Sixteen)) -> Vec<&'static str> {
        match norm {
            Norm::Rms => name::<RmsNormF16<'_>, RmsNormBf16<'_>>(of),
            Norm::AddRms => name::<AddRmsNormF16<'_>, AddRmsNormBf16<'_>>(of),
            Norm::AddRmsShadow => name::<AddRmsNormShadowF16<'_>, AddRmsNormShadowBf16<'_>>(of),
            Norm::RmsAddShadow => name::<RmsNormAddShadowF16<'_>, RmsNormAddShadowBf16<'_>>(of),
            Norm::Layer => name::<LayerNormF16<'_>, LayerNormBf16<'_>>(of),
        }
    }

    fn sizes(_: (Norm, Sixteen)) -> NamedSizes {
        // What inputs are, and whether there is what may be left out: an addition to the stream, a bias.
        &[("rows", 1), ("cols", 1024), ("inputs", ORDINARY), ("option", 1)]
    }

    fn shapes((norm, _): (Norm, Sixteen)) -> Vec<Vec<usize>> {
        let lengths = [1, 2, 7, 8, 9, 255, 256, 257, 1000, 2048, 2056, 4104];
        let mut all: Vec<Vec<usize>> =
            lengths.iter().enumerate().map(|(i, cols)| vec![1 + cols % 3, *cols, ORDINARY, i % 2]).collect();
        for cols in [255, 256] {
            all.push(vec![3, cols, LARGE, 1]);
            all.push(vec![2, cols, NAN, 1]);
            if norm == Norm::Layer {
                all.push(vec![2, cols, FAR, 1]);
            }
        }
        all
    }

    fn run<B: Bench>((norm, of): (Norm, Sixteen), shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        match norm {
            Norm::Rms => {
                by_type! { of => rms(shape, bench, rng), |on, (x, w, y), (cols, eps)| RmsNormF16 | RmsNormBf16 { x, w, y, cols, eps } }
            }
            Norm::AddRms => {
                by_type! { of => add_rms(shape, bench, rng), |on, (x, residual, w, y), (cols, eps)| AddRmsNormF16 | AddRmsNormBf16 { x, residual, w, y, cols, eps } }
            }
            Norm::AddRmsShadow => {
                by_type! { of => shadow(shape, bench, rng), |on, (x, residual, w, y), (cols, eps, added)| AddRmsNormShadowF16 | AddRmsNormShadowBf16 { x, residual, w, y, cols, eps, added } }
            }
            Norm::RmsAddShadow => {
                by_type! { of => onto(shape, bench, rng), |on, (x, w, residual), (cols, eps)| RmsNormAddShadowF16 | RmsNormAddShadowBf16 { x, w, residual, cols, eps } }
            }
            Norm::Layer => {
                by_type! { of => layer(shape, bench, rng), |on, (x, w, bias, y), (cols, eps, biased)| LayerNormF16 | LayerNormBf16 { x, w, bias, y, cols, eps, biased } }
            }
        }
    }
}

/// Rows of the type and of f32, a weight and a bias, and what may be left out.
struct NormInputs<T> {
    n: usize,
    cols: usize,
    option: bool,
    x: Vec<T>,
    residual: Vec<T>,
    shadow: Vec<f32>,
    w: Vec<T>,
    bias: Vec<T>,
}

impl<T: Number> NormInputs<T> {
    fn new(shape: &Shape<'_>, rng: &mut Rng) -> Result<NormInputs<T>, crate::cases::Failure> {
        let [rows, cols, inputs, option] = shape.sizes(["rows", "cols", "inputs", "option"])?;
        let (n, (middle, size)) = (
            rows * cols,
            match inputs {
                LARGE => (0.0, 65000.0),
                FAR => (1000.0, 1.0),
                _ => (0.0, 1.0),
            },
        );
        let mut x: Vec<T> = numbers(rng, n, middle, size);
        let residual: Vec<T> = numbers(rng, n, middle, size);
        if inputs == NAN {
            x[n - 1] = T::nearest(f64::NAN);
        }
        // Finer than the type is.
        let shadow = residual.iter().map(|v| v.value() as f32 * 1.000_123).collect();
        let (w, bias) = (numbers(rng, cols, 0.0, 1.0), numbers(rng, cols, 0.0, 1.0));
        Ok(NormInputs { n, cols, option: option != 0, x, residual, shadow, w, bias })
    }
}

/// RMS norms of rows, or layer norms.
fn normed(rows: &[f64], w: &[f64], bias: Option<&[f64]>, centered: bool) -> Vec<f64> {
    let mut y = Vec::new();
    for row in rows.chunks_exact(w.len()) {
        let n = row.len() as f64;
        let mean = if centered { row.iter().sum::<f64>() / n } else { 0.0 };
        let square = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        let scale = 1.0 / (square + f64::from(EPS)).sqrt();
        y.extend(row.iter().enumerate().map(|(c, v)| (v - mean) * scale * w[c] + bias.map_or(0.0, |b| b[c])));
    }
    y
}

fn slack(want: &[f64]) -> impl Fn(usize) -> f64 + '_ {
    |i| 2e-6 * want[i].abs() + 1e-30
}

fn rms<B: Bench, T: Number>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    launch: impl FnOnce(&mut B, (&DeviceSlice<T>, &DeviceSlice<T>, &mut DeviceSlice<T>), (u32, f32)) -> Result<(), String>,
) -> Outcome {
    let i = NormInputs::<T>::new(shape, rng)?;
    let (x, w, mut y) = (bench.upload(&i.x)?, bench.upload(&i.w)?, bench.output::<T>(i.n)?);
    launch(bench, (&x, &w, &mut y), (i.cols as u32, EPS))?;
    let want = normed(&values(&i.x), &values(&i.w), None, false);
    near(&bench.read(&y)?, &want, slack(&want))
}

fn add_rms<B: Bench, T: Number>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    launch: impl FnOnce(
        &mut B,
        (&DeviceSlice<T>, &mut DeviceSlice<T>, &DeviceSlice<T>, &mut DeviceSlice<T>),
        (u32, f32),
    ) -> Result<(), String>,
) -> Outcome {
    let i = NormInputs::<T>::new(shape, rng)?;
    let (x, w, mut y) = (bench.upload(&i.x)?, bench.upload(&i.w)?, bench.output::<T>(i.n)?);
    let mut residual = bench.upload(&i.residual)?;
    launch(bench, (&x, &mut residual, &w, &mut y), (i.cols as u32, EPS))?;
    let sum: Vec<f64> = i.x.iter().zip(&i.residual).map(|(x, r)| x.value() + r.value()).collect();
    near(&bench.read(&residual)?, &sum, |_| 0.0)?;
    // What is normed is what is stored, infinities among it.
    let stored: Vec<f64> = sum.iter().map(|v| T::nearest(*v).value()).collect();
    let want = normed(&stored, &values(&i.w), None, false);
    near(&bench.read(&y)?, &want, slack(&want))
}

fn shadow<B: Bench, T: Number>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    launch: impl FnOnce(
        &mut B,
        (&DeviceSlice<T>, &mut DeviceSlice<f32>, &DeviceSlice<T>, &mut DeviceSlice<T>),
        (u32, f32, u32),
    ) -> Result<(), String>,
) -> Outcome {
    let i = NormInputs::<T>::new(shape, rng)?;
    let (x, w, mut y) = (bench.upload(&i.x)?, bench.upload(&i.w)?, bench.output::<T>(i.n)?);
    let mut residual = bench.upload(&i.shadow)?;
    let x: &DeviceSlice<T> = if i.option { &x } else { DeviceSlice::empty() };
    launch(bench, (x, &mut residual, &w, &mut y), (i.cols as u32, EPS, i.option.into()))?;
    let added = |(x, r): (&T, &f32)| if i.option { x.value() + r.value() } else { r.value() };
    let sum: Vec<f64> = i.x.iter().zip(&i.shadow).map(added).collect();
    near(&bench.read(&residual)?, &sum, |_| 0.0)?;
    let stored: Vec<f64> = sum.iter().map(|v| f32::nearest(*v).value()).collect();
    let want = normed(&stored, &values(&i.w), None, false);
    near(&bench.read(&y)?, &want, slack(&want))
}

fn onto<B: Bench, T: Number>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    launch: impl FnOnce(&mut B, (&DeviceSlice<T>, &DeviceSlice<T>, &mut DeviceSlice<f32>), (u32, f32)) -> Result<(), String>,
) -> Outcome {
    let i = NormInputs::<T>::new(shape, rng)?;
    let (x, w, mut residual) = (bench.upload(&i.x)?, bench.upload(&i.w)?, bench.upload(&i.shadow)?);
    launch(bench, (&x, &w, &mut residual), (i.cols as u32, EPS))?;
    let norm = normed(&values(&i.x), &values(&i.w), None, false);
    let want: Vec<f64> = norm.iter().zip(&i.shadow).map(|(v, r)| v + r.value()).collect();
    near(&bench.read(&residual)?, &want, slack(&norm))?;
    same(
        &bench.read(&x)?.iter().map(|v| v.value().to_bits()).collect::<Vec<_>>(),
        &i.x.iter().map(|v| v.value().to_bits()).collect::<Vec<_>>(),
    )
}

fn layer<B: Bench, T: Number>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    launch: impl FnOnce(
        &mut B,
        (&DeviceSlice<T>, &DeviceSlice<T>, &DeviceSlice<T>, &mut DeviceSlice<T>),
        (u32, f32, u32),
    ) -> Result<(), String>,
) -> Outcome {
    let i = NormInputs::<T>::new(shape, rng)?;
    let (x, w, mut y) = (bench.upload(&i.x)?, bench.upload(&i.w)?, bench.output::<T>(i.n)?);
    let bias = bench.upload(&i.bias)?;
    let of: &DeviceSlice<T> = if i.option { &bias } else { DeviceSlice::empty() };
    launch(bench, (&x, &w, of, &mut y), (i.cols as u32, EPS, i.option.into()))?;
    let (rows, w, bias) = (values(&i.x), values(&i.w), values(&i.bias));
    let want = normed(&rows, &w, i.option.then_some(&bias), true);
    // The mean's rounding, in deviations; a row of one element is its bias.
    let largest = rows.iter().fold(0.0f64, |m, v| if v.is_nan() { m } else { m.max(v.abs()) });
    let bare = normed(&rows, &w, None, true);
    let spread: Vec<f64> = rows.chunks_exact(i.cols).map(deviation).collect();
    near(&bench.read(&y)?, &want, |at| {
        4e-6 * bare[at].abs() + 3e-7 * largest / spread[at / i.cols] * w[at % i.cols].abs() + 1e-7 * want[at].abs()
    })
}

/// The root of a row's mean square distance to its mean, and of epsilon.
fn deviation(row: &[f64]) -> f64 {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    (row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / row.len() as f64 + f64::from(EPS)).sqrt()
}
