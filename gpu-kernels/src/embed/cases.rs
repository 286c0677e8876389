//! The cases of embeddings.

use super::{Embed, parts, reference};
use crate::cases::{Bench, Failure, Listed, NamedSizes, Operation, Outcome, Rng, Shape, Tensor, refused, same, why};
use crate::format::{Format, Layout};
use crate::gemv::{QuantFormat, Quantize};
use crate::state::{CHOSEN, Column};
use warpsmith_device::{Kernel, U32x4};

/// The row of a token, by the format of the table.
pub struct Embeddings;

macro_rules! kernels {
    (() $($F:ident { $name:ident $Name:ident $shared:ident } $formats:tt)*) => {
        vec![$(Listed::unmeasured::<super::$Name<'_>>(why::SMALL)),*]
    };
}

macro_rules! by_layout {
    (($layout:expr) $($F:ident { $name:ident $Name:ident $shared:ident } $formats:tt)*) => {
        match $layout { $(Layout::$F => super::$Name::META.name,)* }
    };
}

impl Operation for Embeddings {
    type Variant = Format;

    fn kernels() -> Vec<Listed> {
        crate::formats! { embed kernels () }
    }

    fn variants() -> Vec<Format> {
        Format::ALL.to_vec()
    }

    fn launches(format: Format) -> Vec<&'static str> {
        vec![crate::formats! { embed by_layout (format.layout()) }]
    }

    fn sizes(_: Format) -> NamedSizes {
        &[("vocab", 64), ("cols", 1024), ("token", 7), ("next", 0), ("quantized", 0)]
    }

    fn shapes(format: Format) -> Vec<Vec<usize>> {
        let block = format.block_elems();
        let cols = if format.is_dense() { vec![1, 37, 512] } else { [1, 3, 17].map(|b| b * block).to_vec() };
        // Tokens: the first, the last, one past the table, and one that wraps when it is multiplied.
        let tokens = [(0, 0), (4, 1), (5, 1), (u32::MAX as usize, 0)];
        let mut all: Vec<_> =
            cols.iter().flat_map(|c| tokens.map(|(token, next)| vec![5, *c, token, next, 0])).collect();
        // More than a block of threads, as every kind of quantized activations; a block's last warps have nothing to quantize.
        all.extend((0..=QuantFormat::ALL.len()).map(|quantized| vec![2, 1280, 1, 1, quantized]));
        // What a token past the table gives is quantized too.
        all.push(vec![2, 256, 2, 1, 6]);
        all
    }

    fn run<B: Bench>(format: Format, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        let [vocab, cols, token, next, quantized] = shape.sizes(["vocab", "cols", "token", "next", "quantized"])?;
        let quant_format = QuantFormat::numbered(quantized as u32);
        let t = Tensor::random(rng, format, vocab, cols);
        let table = format.decode(&t.bytes, vocab, cols).map_err(refused)?;
        let records = bench.upload(&format.repack(&t.bytes, vocab, cols).map_err(refused)?)?;
        // The token of the case between two others.
        let tokens = [vocab as u32 / 2, token as u32, 0];
        // The second is named by its place among what was chosen.
        let chosen = bench.upload(&[u32::MAX, token as u32])?;
        let columns = bench.upload(&[tokens[0], CHOSEN | 1, tokens[2]].map(|t| Column::at(t, 77)))?;
        let stride = cols.next_multiple_of(4);
        let mut y = bench.upload(&vec![f32::NAN; 3 * stride])?;
        let weight = rng.floats(cols);
        let mut scaled = bench.upload(&vec![f32::NAN; 3 * stride])?;
        let parts = parts(cols as u32) as usize;
        let mut sums = bench.upload(&vec![f32::NAN; 3 * parts])?;
        let next = next != 0;
        let next_weight = bench.upload(&weight)?;
        let next_of = next.then_some((&*next_weight, &mut *scaled, &mut *sums));
        let (vocab, cols32) = (vocab as u32, cols as u32);
        let vectors = quant_format.map_or(0, |f| f.len(cols as u32) as usize);
        let mut quantized = bench.output(3 * vectors)?;
        let embed = Embed {
            format,
            table: &records,
            columns: &columns,
            chosen: &chosen,
            y: &mut y,
            next: next_of,
            quantized: quant_format.map(|f| (f, &mut *quantized)),
            vocab,
            cols: cols32,
            stride: stride as u32,
        };
        embed.launch(bench)?;
        if let Some(format) = quant_format {
            // What a launch that does nothing else makes of it.
            let mut wanted = bench.output(3 * vectors)?;
            Quantize::new(format, &scaled, &mut wanted, cols as u32).columns(3, stride as u32).launch(bench)?;
            let words = |v: Vec<U32x4>| v.into_iter().flat_map(|v| v.0).collect::<Vec<_>>();
            let (got, want) = (words(bench.read(&quantized)?), words(bench.read(&wanted)?));
            same(&got, &want).map_err(|e| Failure::Wrong(format!("{format:?}: {e}")))?;
        }
        let (y, scaled, sums) = (bench.read(&y)?, bench.read(&scaled)?, bench.read(&sums)?);
        let mut wanted = vec![f32::NAN; 3 * stride];
        let mut wanted_scaled = wanted.clone();
        for (n, token) in tokens.into_iter().enumerate() {
            let row = reference(&table, token as usize, cols);
            wanted[n * stride..][..cols].copy_from_slice(&row);
            if next {
                let products = row.iter().zip(&weight).map(|(r, w)| r * w);
                wanted_scaled[n * stride..][..cols].iter_mut().zip(products).for_each(|(to, v)| *to = v);
                let got: f64 = sums[n * parts..][..parts].iter().map(|s| f64::from(*s)).sum();
                let want: f64 = row.iter().map(|v| f64::from(*v).powi(2)).sum();
                if (got - want).abs() > 1e-5 * want + 1e-40 || got.is_nan() != want.is_nan() {
                    return Err(Failure::Wrong(format!(
                        "column {n}: squares sum to {got} where the table gives {want}"
                    )));
                }
            }
        }
        for (what, got, want) in [("y", &y, &wanted), ("scaled", &scaled, &wanted_scaled)] {
            for (c, (g, w)) in got.iter().zip(want).enumerate() {
                // Bit for bit, but for the sign of zero; all NaN past the vocabulary and between columns.
                if !(g == w || (g.is_nan() && w.is_nan())) {
                    return Err(Failure::Wrong(format!("{what} {c}: {g} where the table has {w}")));
                }
            }
        }
        Ok(())
    }
}
