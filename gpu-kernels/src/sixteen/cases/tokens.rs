//! Cases of embeddings and of the largest logit.

use super::{Number, by_type, listed, name, near, numbers};
use crate::cases::{Bench, Listed, NamedSizes, Operation, Outcome, Rng, Shape, same};
use crate::sampling::argmax::reference;
use crate::sixteen::{ArgmaxBf16, ArgmaxF16, EmbeddingBf16, EmbeddingF16, Sixteen};
use warpsmith_device::DeviceSlice;

/// Rows of a table.
pub struct Embeddings16;

impl Operation for Embeddings16 {
    type Variant = Sixteen;

    fn kernels() -> Vec<Listed> {
        listed::<EmbeddingF16<'_>, EmbeddingBf16<'_>>().to_vec()
    }

    fn variants() -> Vec<Sixteen> {
        Sixteen::ALL.to_vec()
    }

    fn launches(of: Sixteen) -> Vec<&'static str> {
        name::<EmbeddingF16<'_>, EmbeddingBf16<'_>>(of)
    }

    fn sizes(_: Sixteen) -> NamedSizes {
        &[("vocab", 100), ("cols", 1024), ("columns", 4)]
    }

    fn shapes(_: Sixteen) -> Vec<Vec<usize>> {
        [1, 7, 8, 9, 255, 256, 257, 1025].map(|cols| vec![2 + cols % 5, cols, 5]).to_vec()
    }

    fn run<B: Bench>(of: Sixteen, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        by_type! { of => look_up(shape, bench, rng), |on, table, ids, y, (vocab, cols)| EmbeddingF16 | EmbeddingBf16 { table, ids, y, vocab, cols } }
    }
}

/// The last token, one past it, the largest number there is, and others.
fn look_up<B: Bench, T: Number>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    launch: impl FnOnce(&mut B, &DeviceSlice<T>, &DeviceSlice<u32>, &mut DeviceSlice<T>, (u32, u32)) -> Result<(), String>,
) -> Outcome {
    let [vocab, cols, columns] = shape.sizes(["vocab", "cols", "columns"])?;
    let table: Vec<T> = numbers(rng, vocab * cols, 0.0, 3.0);
    let id = |c: usize| match c {
        0 => vocab as u32 - 1,
        1 => vocab as u32,
        2 => u32::MAX,
        _ => rng.within(0, vocab - 1) as u32,
    };
    let ids: Vec<u32> = (0..columns).map(id).collect();
    let (d_table, d_ids) = (bench.upload(&table)?, bench.upload(&ids)?);
    let mut y = bench.output::<T>(columns * cols)?;
    launch(bench, &d_table, &d_ids, &mut y, (vocab as u32, cols as u32))?;
    let row = |id: &u32| match table.chunks_exact(cols).nth(*id as usize) {
        Some(row) => super::values(row),
        None => vec![f64::NAN; cols],
    };
    let want: Vec<f64> = ids.iter().flat_map(row).collect();
    near(&bench.read(&y)?, &want, |_| 0.0)
}

/// The index of the largest.
pub struct Argmaxes16;

impl Operation for Argmaxes16 {
    type Variant = Sixteen;

    fn kernels() -> Vec<Listed> {
        listed::<ArgmaxF16<'_>, ArgmaxBf16<'_>>().to_vec()
    }

    fn variants() -> Vec<Sixteen> {
        Sixteen::ALL.to_vec()
    }

    fn launches(of: Sixteen) -> Vec<&'static str> {
        name::<ArgmaxF16<'_>, ArgmaxBf16<'_>>(of)
    }

    fn sizes(_: Sixteen) -> NamedSizes {
        &[("n", 32000), ("columns", 1)]
    }

    fn shapes(_: Sixteen) -> Vec<Vec<usize>> {
        [[1, 1], [255, 3], [256, 2], [257, 4], [1023, 1], [1025, 2], [3000, 1]].map(|s| s.to_vec()).to_vec()
    }

    fn run<B: Bench>(of: Sixteen, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        by_type! { of => largest(shape, bench, rng), |on, x, y, (n, stride)| ArgmaxF16 | ArgmaxBf16 { x, y, n, stride } }
    }
}

/// Many equal numbers, some that are none, and columns that have nothing else.
fn largest<B: Bench, T: Number>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    launch: impl FnOnce(&mut B, &DeviceSlice<T>, &mut DeviceSlice<u32>, (u32, u32)) -> Result<(), String>,
) -> Outcome {
    let [n, columns] = shape.sizes(["n", "columns"])?;
    let stride = n + 3;
    let one = |at: usize| match (at / stride % 4, rng.within(0, 9)) {
        (3, _) | (_, 0) => f64::NAN,
        (_, k) => k as f64 - 12.0,
    };
    let x: Vec<T> = (0..columns * stride).map(one).map(T::nearest).collect();
    let (dx, mut y) = (bench.upload(&x)?, bench.output::<u32>(columns)?);
    launch(bench, &dx, &mut y, (n as u32, stride as u32))?;
    let of = |row: &[T]| reference(&row[..n].iter().map(|v| v.value() as f32).collect::<Vec<_>>());
    let want: Vec<u32> = x.chunks_exact(stride).map(of).collect();
    same(&bench.read(&y)?, &want)
}
