//! Cases of sums, and of gates.

use super::{Number, by_type, listed, name, near, numbers};
use crate::cases::{Bench, Failure, Listed, NamedSizes, Operation, Outcome, Rng, Shape};
use crate::elementwise::{Glu, clamped_reference, gelu_reference};
use crate::sixteen::{AddShadowBf16, AddShadowF16, GluBf16, GluF16, ScaledAddBf16, ScaledAddF16, Sixteen};
use warpsmith_device::DeviceSlice;

/// Sums and factors, `true`: onto a residual stream of f32.
pub struct Sums;

impl Operation for Sums {
    type Variant = (bool, Sixteen);

    fn kernels() -> Vec<Listed> {
        [listed::<ScaledAddF16<'_>, ScaledAddBf16<'_>>(), listed::<AddShadowF16<'_>, AddShadowBf16<'_>>()].concat()
    }

    fn variants() -> Vec<(bool, Sixteen)> {
        [false, true].into_iter().flat_map(|shadow| Sixteen::ALL.map(|of| (shadow, of))).collect()
    }

    fn launches((shadow, of): (bool, Sixteen)) -> Vec<&'static str> {
        if shadow {
            name::<AddShadowF16<'_>, AddShadowBf16<'_>>(of)
        } else {
            name::<ScaledAddF16<'_>, ScaledAddBf16<'_>>(of)
        }
    }

    fn sizes(_: (bool, Sixteen)) -> NamedSizes {
        // The stride of what is added is 0, or so many more than the columns less 1; elements before the first; by how much inputs are
        // larger than 1; and a factor, of which 0 is 1.
        &[("rows", 1), ("cols", 4096), ("addend", 1), ("offset", 0), ("size", 1), ("factor", 0)]
    }

    fn shapes((shadow, _): (bool, Sixteen)) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        for (i, cols) in [1, 7, 8, 9, 255, 256, 257, 1023, 1024, 1025, 2056].into_iter().enumerate() {
            let rows = if shadow { 1 } else { 1 + i % 3 };
            all.push(vec![rows, cols, [1, 0, 4, 9][i % 4], usize::from(i % 5 == 4), 1, i % 3]);
        }
        // Sums that overflow.
        all.push(vec![1, 264, 1, 0, 65000, 0]);
        all.push(vec![1, 263, 1, 1, 65000, 0]);
        if !shadow {
            // A factor alone.
            all.push(vec![2, 264, 2, 0, 1, 2]);
        }
        all
    }

    fn run<B: Bench>((shadow, of): (bool, Sixteen), shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        if shadow {
            return by_type! { of => onto(shape, bench, rng), |on, (x, residual), n, scale| AddShadowF16 | AddShadowBf16 { x, residual, n, scale } };
        }
        by_type! { of => sum(shape, bench, rng), |on, (x, addend, y), (rows, cols, addend_stride, added), scale| ScaledAddF16 | ScaledAddBf16 { x, addend, y, rows, cols, addend_stride, added, scale } }
    }
}

/// A factor that f32 holds and products of which it does not.
fn factor(shape: &Shape<'_>) -> Result<f32, Failure> {
    Ok([1.0, 0.1, -3.3][shape.size("factor")? % 3])
}

/// What rounding in f32 before that to the type moves; nothing where the sum is of two of the type.
fn before_rounding(scale: f32) -> f64 {
    if scale == 1.0 { 0.0 } else { 6e-8 }
}

fn sum<B: Bench, T: Number>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    launch: impl FnOnce(
        &mut B,
        (&DeviceSlice<T>, &DeviceSlice<T>, &mut DeviceSlice<T>),
        (u32, u32, u32, u32),
        f32,
    ) -> Result<(), String>,
) -> Outcome {
    let [rows, cols, addend, offset, size] = shape.sizes(["rows", "cols", "addend", "offset", "size"])?;
    let scale = factor(shape)?;
    // 2: nothing is added.
    let (added, stride) = (addend != 2, if addend == 0 { 0 } else { cols + addend - 1 });
    let n = rows * cols;
    let mut x: Vec<T> = numbers(rng, offset + n, 0.0, size as f64);
    x[offset + n / 2] = T::nearest(f64::NAN);
    let a: Vec<T> = numbers(rng, offset + (rows - 1) * stride + cols, 0.0, size as f64);
    let (dx, da, mut y) = (bench.upload(&x)?, bench.upload(&a)?, unwritten::<B, T>(bench, offset + n)?);
    let addend: &DeviceSlice<T> = if added { &da[offset..] } else { DeviceSlice::empty() };
    let sizes = (rows as u32, cols as u32, stride as u32, added.into());
    launch(bench, (&dx[offset..], addend, &mut y[offset..]), sizes, scale)?;
    let of = |i: usize| {
        let plus = if added { a[offset + i / cols * stride + i % cols].value() } else { 0.0 };
        x[offset + i].value() * f64::from(scale) + plus
    };
    let want: Vec<f64> = (0..n).map(of).collect();
    near(&behind(&bench.read(&y)?, offset)?, &want, |i| before_rounding(scale) * want[i].abs())
}

/// Elements that are no numbers.
pub(super) fn unwritten<B: Bench, T: Number>(bench: &mut B, n: usize) -> Result<B::Buffer<T>, Failure> {
    Ok(bench.upload(&vec![T::nearest(f64::NAN); n])?)
}

/// The elements from one on, before which none may be written.
pub(super) fn behind<T: Number>(y: &[T], offset: usize) -> Result<Vec<T>, Failure> {
    let (before, rest) = y.split_at(offset);
    if before.iter().any(|v| !v.value().is_nan()) {
        return Err(Failure::Wrong("written before the first element".to_owned()));
    }
    Ok(rest.to_vec())
}

fn onto<B: Bench, T: Number>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    launch: impl FnOnce(&mut B, (&DeviceSlice<T>, &mut DeviceSlice<f32>), u32, f32) -> Result<(), String>,
) -> Outcome {
    let [n, offset, size] = shape.sizes(["cols", "offset", "size"])?;
    let scale = factor(shape)?;
    let x: Vec<T> = numbers(rng, offset + n, 0.0, size as f64);
    let r: Vec<f32> = numbers(rng, n, 0.0, 2.0 * size as f64);
    let (dx, mut residual) = (bench.upload(&x)?, bench.upload(&r)?);
    launch(bench, (&dx[offset..], &mut residual), n as u32, scale)?;
    let want: Vec<f64> =
        x[offset..].iter().zip(&r).map(|(x, r)| x.value() * f64::from(scale) + f64::from(*r)).collect();
    near(&bench.read(&residual)?, &want, |_| 0.0)
}

/// Gates.
pub struct Glus;

impl Operation for Glus {
    type Variant = (Glu, Sixteen);

    fn kernels() -> Vec<Listed> {
        listed::<GluF16<'_>, GluBf16<'_>>().to_vec()
    }

    fn variants() -> Vec<(Glu, Sixteen)> {
        [Glu::Silu, Glu::Gelu, Glu::Clamped].into_iter().flat_map(|glu| Sixteen::ALL.map(|of| (glu, of))).collect()
    }

    fn launches((_, of): (Glu, Sixteen)) -> Vec<&'static str> {
        name::<GluF16<'_>, GluBf16<'_>>(of)
    }

    fn sizes(_: (Glu, Sixteen)) -> NamedSizes {
        // Ups lie in a buffer of their own, beside the gates of their row (1), or are missing (2).
        &[("rows", 1), ("cols", 4096), ("ups", 0), ("size", 10)]
    }

    fn shapes((glu, _): (Glu, Sixteen)) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        for (i, cols) in [1, 7, 8, 9, 255, 256, 257, 1025].into_iter().enumerate() {
            all.push(vec![1 + i % 3, cols, i % 2, 10]);
        }
        // Products that overflow, and gates of which nothing is left.
        all.extend([vec![2, 264, 1, 65000], vec![1, 263, 0, 65000]]);
        if glu != Glu::Clamped {
            all.extend([vec![2, 264, 2, 10], vec![1, 9, 2, 10]]);
        }
        all
    }

    fn run<B: Bench>((glu, of): (Glu, Sixteen), shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        let function = glu as u32;
        by_type! { of => gates(shape, bench, rng, glu), |on, (gate, up, y), (rows, cols, stride, y_stride), gated| GluF16 | GluBf16 { gate, up, y, rows, cols, stride, y_stride, function, gated } }
    }
}

/// The definition, and by what share of it the kernel may be off before it rounds: as its f32 cases.
fn reference(glu: Glu, gate: f64, up: f64) -> (f64, f64) {
    match glu {
        Glu::Silu => (gate / (1.0 + (-gate).exp()) * up, 2e-6),
        Glu::Gelu => (gelu_reference(gate) * up, 1.5e-5),
        Glu::Clamped if gate.is_nan() || up.is_nan() => (f64::NAN, 0.0),
        Glu::Clamped => (clamped_reference(gate, up), 1.2e-5),
    }
}

fn gates<B: Bench, T: Number>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    glu: Glu,
    launch: impl FnOnce(
        &mut B,
        (&DeviceSlice<T>, &DeviceSlice<T>, &mut DeviceSlice<T>),
        (u32, u32, u32, u32),
        u32,
    ) -> Result<(), String>,
) -> Outcome {
    let [rows, cols, ups, size] = shape.sizes(["rows", "cols", "ups", "size"])?;
    let (stride, y_stride) = (if ups == 1 { 2 * cols } else { cols }, cols + ups);
    let mut gate: Vec<T> = numbers(rng, rows * stride, 0.0, size as f64);
    gate[cols / 2] = T::nearest(f64::NAN);
    let up: Vec<T> = numbers(rng, rows * stride, 0.5, size as f64);
    let dx = bench.upload(&gate)?;
    let (beside, mut y) = (bench.upload(&up)?, unwritten::<B, T>(bench, (rows - 1) * y_stride + cols)?);
    let (gates, of_rows): (&DeviceSlice<T>, &DeviceSlice<T>) = match ups {
        1 => (&dx, &dx[cols..]),
        0 => (&dx, &beside),
        _ => (&dx, DeviceSlice::empty()),
    };
    let sizes = (rows as u32, cols as u32, stride as u32, y_stride as u32);
    launch(bench, (gates, of_rows, &mut y), sizes, u32::from(ups != 2))?;
    let got = bench.read(&y)?;
    for (row, got) in got.chunks(y_stride).enumerate() {
        let (got, gap) = got.split_at(cols);
        behind(gap, gap.len())?;
        let of = |c: usize| {
            let at = row * stride + c;
            let up = [&up, &gate][ups % 2].get(at + if ups == 1 { cols } else { 0 }).map_or(1.0, |v| v.value());
            reference(glu, gate[at].value(), if ups == 2 { 1.0 } else { up })
        };
        let want: Vec<(f64, f64)> = (0..cols).map(of).collect();
        let numbers: Vec<f64> = want.iter().map(|w| w.0).collect();
        near(got, &numbers, |c| want[c].1 * numbers[c].abs() + 2e-43)?;
    }
    Ok(())
}
