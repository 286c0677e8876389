//! Layer normalisation: `y = (x - mean) / sqrt(mean (x - mean)^2 + eps) * weight + bias`, for each column.
//!
//! | | |
//! |---|---|
//! | `x` | f32 `[columns, cols]`, column `n` from `n * stride` on; written with [`POSITIONS`] alone |
//! | `columns` | [`Column`], one for each; positions are read when the kernel runs |
//! | `positions` | f32 `[context, cols]`; read with [`POSITIONS`] |
//! | `weight` | f32 `[cols]`, taken as stored (nothing is added to it) |
//! | `bias` | f32 `[cols]`; read with [`BIAS`] |
//! | `y` | f32, laid out as `x` |
//! | `quant_format`, `quantized`, `group_counters` | how `y` is [quantized](crate::gemv::quant_format) too, if it is |
//! | `stride` | elements from a column to the next: a multiple of 4, at least `cols` |
//! | `eps` | inside the root; not negative |
//!
//! With [`POSITIONS`] the embedding of a column's position is added to `x` first, in place: learned positions, as GPT-2 has them. A position
//! at or past `context` gives NaN throughout: the host refuses it before.
//!
//! A block takes a column, of any length from 1 on. Sums are f32, first of the elements and then of the squares of their distances to the
//! mean, so that a mean far from zero costs no digits of the deviation; their order depends on the length alone, so a column has the same
//! bits beside any others. Source: Ba et al., arXiv 1607.06450; of learned positions: Radford et al., 2019, section 2.3.

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::gemv::quantizer::OutputQuantizer;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::load::warp_index;
use crate::state::Column;
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// Flag: the embedding of each column's position is added to `x` first.
pub const POSITIONS: u32 = 1;
/// Flag: a bias is added.
pub const BIAS: u32 = 2;

/// A column in f64.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: &[f64], weight: &[f32], bias: Option<&[f32]>, eps: f32) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let factor = 1.0 / (variance + f64::from(eps)).sqrt();
    let normed = x.iter().zip(weight).map(|(x, w)| (x - mean) * factor * f64::from(*w));
    let bias = bias.iter().copied().flatten().map(|b| f64::from(*b)).chain(core::iter::repeat(0.0));
    normed.zip(bias).map(|(y, b)| y + b).collect()
}

/// Adds the embedding of a position to a column of `cols` elements, as threads take them.
///
/// # Safety
/// All threads of a block make this call; the column begins at a multiple of 16 bytes.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
unsafe fn place(x: InOut<f32>, positions: In<f32>, position: u32, context: u32, cols: usize) {
    let thread = thread::idx_x() as usize;
    let known = position < context;
    // SAFETY: a position that is not there takes the first and drops it; the rest is the caller's promise.
    unsafe {
        let row = positions.from(if known { position as usize * cols } else { 0 });
        let placed = |i: usize, x: f32| if known { x + row.at(i) } else { f32::NAN };
        let mut i = 4 * thread;
        while i + 4 <= cols {
            let [a, b, c, d] = x.load4(i).0;
            x.store4(i, F32x4([placed(i, a), placed(i + 1, b), placed(i + 2, c), placed(i + 3, d)]));
            i += 4 * THREADS as usize;
        }
        let single = cols / 4 * 4 + thread;
        if single < cols {
            x.set(single, placed(single, x.get(single)));
        }
    }
}

/// A block a column, 16 bytes at a time.
#[kernel(block = THREADS, min_blocks = 4, addresses = "ignored")]
#[allow(clippy::too_many_arguments)]
pub unsafe fn layer_norm(
    x: InOut<f32>,
    columns: Awaited<Column>,
    positions: In<f32>,
    weight: In<f32>,
    bias: In<f32>,
    y: InOut<f32>,
    quantized: Out<U32x4>,
    group_counters: InOut<u32>,
    cols: u32,
    stride: u32,
    context: u32,
    flags: u32,
    quant_format: u32,
    eps: f32,
) {
    let scratch = shared_array!(LAYER_NORM: [f32; 32]);
    grid::wait_dependencies();
    grid::launch_dependents();
    let (cols, thread) = (cols as usize, thread::idx_x() as usize);
    let column = block::idx_x() as usize;
    let at = column * stride as usize;
    let (x, y) = (x.from(at), y.from(at));
    // Elements that are taken four at a time; of the rest a thread has one at most.
    let vectors = cols / 4;
    let single = 4 * vectors + thread;

    // A thread reads again what it alone writes.
    if flags & POSITIONS != 0 {
        place(x, positions, columns.buffer().at(column).position, context, cols);
    }

    let mut sum = 0.0;
    let mut v = thread;
    while v < vectors {
        let [a, b, c, d] = x.load4(4 * v).0;
        sum += (a + b) + (c + d);
        v += THREADS as usize;
    }
    if single < cols {
        sum += x.get(single);
    }
    let mean = block_reduce::sum_f32(sum, scratch) / cols as f32;

    let mut squares = 0.0;
    let mut v = thread;
    while v < vectors {
        let [a, b, c, d] = x.load4(4 * v).0;
        let [a, b, c, d] = [a - mean, b - mean, c - mean, d - mean];
        squares = math::fma(a, a, math::fma(b, b, math::fma(c, c, math::fma(d, d, squares))));
        v += THREADS as usize;
    }
    if single < cols {
        let distance = x.get(single) - mean;
        squares = math::fma(distance, distance, squares);
    }
    let factor = 1.0 / math::sqrt(block_reduce::sum_f32(squares, scratch) / cols as f32 + eps);

    let biased = flags & BIAS != 0;
    let mut v = thread;
    while v < vectors {
        let (mut out, w) = (x.load4(4 * v).0, weight.load4(4 * v).0);
        let mut b = [0.0; 4];
        if biased {
            b = bias.load4(4 * v).0;
        }
        for i in 0..4 {
            out[i] = math::fma((out[i] - mean) * factor, w[i], b[i]);
        }
        y.store4(4 * v, F32x4(out));
        v += THREADS as usize;
    }
    if single < cols {
        let b = if biased { bias.at(single) } else { 0.0 };
        y.set(single, math::fma((x.get(single) - mean) * factor, weight.at(single), b));
    }
    if let Some(quantizer) = OutputQuantizer::asked(quant_format, quantized, group_counters) {
        sync::block();
        // A warp a group, all of which its block has written.
        let mut first = warp_index() as u32 * quantizer.group();
        while first < cols as u32 {
            let n = (cols as u32 - first).min(quantizer.group());
            quantizer.bring(y.into(), column, cols as u32, first, n);
            first += THREADS / 32 * quantizer.group();
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for LayerNorm<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.columns.len())
    }
    fn check(&self) -> Result<(), ContractError> {
        let (m, cols) = (Self::META, (self.cols, "cols"));
        contract::within(m, "cols", self.cols, 1u32, i32::MAX)?;
        contract::within(m, "columns", self.columns.len(), 1u32, i32::MAX)?;
        contract::multiple_of(m, "stride", self.stride, 4u32)?;
        contract::within(m, "stride", self.stride, cols, i32::MAX)?;
        contract::require(m, self.flags & !(POSITIONS | BIAS) == 0, "flags", "known flags", self.flags)?;
        let eps = self.eps;
        contract::require(m, eps >= 0.0 && eps.is_finite(), "eps", "a finite number, not negative", eps)?;
        let all = (self.columns.len() as u64 - 1) * u64::from(self.stride) + u64::from(self.cols);
        let whole = (all, "whole columns");
        contract::at_least(m, "x", self.x.len(), whole)?;
        contract::at_least(m, "y", self.y.len(), whole)?;
        contract::exactly(m, "weight", self.weight.len(), cols)?;
        let mut vectors = vec![("x", &*self.x), ("weight", self.weight), ("y", &*self.y)];
        if self.flags & BIAS != 0 {
            contract::exactly(m, "bias", self.bias.len(), cols)?;
            vectors.push(("bias", self.bias));
        }
        if self.flags & POSITIONS != 0 {
            contract::require(m, self.context > 0, "context", "at least 1", 0)?;
            let table = u64::from(self.context) * u64::from(self.cols);
            contract::exactly(m, "positions", self.positions.len(), (table, "context * cols"))?;
        }
        for (name, slice) in vectors {
            contract::multiple_of(m, name, (slice.address(), "its address"), 16u32)?;
        }
        let outputs = crate::gemv::QuantizedOutputs {
            quant_format: self.quant_format,
            quantized: self.quantized,
            group_counters: self.group_counters,
        };
        outputs.check(m, self.columns.len() as u32, cols)
    }
}

/// The cases of this kernel.
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases {
    use super::{BIAS, LayerNorm, POSITIONS, reference};
    use crate::cases::{Bench, Failure, Listed, NamedSizes, Outcome, Plain, Rng, Shape, close, same};
    use crate::gemv::OutputQuantization;
    use crate::gemv::cases::{QuantizedOutput, in_turn};
    use crate::state::Column;
    use warpsmith_device::DeviceSlice;

    /// Layer norm, of embeddings with those of their positions too.
    pub struct LayerNorms;

    /// Embeddings of positions.
    const CONTEXT: usize = 5;

    impl Plain for LayerNorms {
        const SIZES: NamedSizes = &[("columns", 1), ("cols", 3072), ("flags", BIAS as usize), ("quant_format", 0)];

        fn kernels() -> Vec<Listed> {
            vec![Listed::by_bytes::<LayerNorm<'_>>()]
        }

        fn shapes() -> Vec<Vec<usize>> {
            // Less than a group of codes, some, and more than a block has warps.
            let cols = [1, 2, 3, 4, 5, 31, 32, 96, 128, 257, 1023, 1024, 1027, 2560, 2592, 6144, 16384];
            let with = |(i, cols)| {
                let of = |flags: usize| vec![1 + (i + flags) % 3, cols, flags % 4, in_turn(i + flags, cols)];
                [0, 1, 2].map(|n| of(i + 2 * n + n / 2))
            };
            cols.into_iter().enumerate().flat_map(with).collect()
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            let [columns, cols, flags, quant_format] = shape.sizes(["columns", "cols", "flags", "quant_format"])?;
            let (stride, eps, flags) = (cols.next_multiple_of(4) + 4, 1e-5, flags as u32);
            // A mean far from zero, and gaps between columns, which nobody reads or writes.
            let mut x = vec![f32::NAN; columns * stride];
            for (n, column) in x.chunks_exact_mut(stride).enumerate() {
                let values = rng.floats(cols);
                column[..cols].iter_mut().zip(values).for_each(|(x, v)| *x = 3.0 * v + 20.0 * n as f32);
            }
            let [table, weight, bias] = [CONTEXT * cols, cols, cols].map(|n| rng.floats(n));
            // The last position, and behind it one that is not there.
            let place = |n: usize| if n == 2 { CONTEXT } else { CONTEXT - 1 - n % CONTEXT };
            let at: Vec<Column> = (0..columns).map(|n| Column::at(0, place(n) as u32)).collect();
            let (mut dx, at) = (bench.upload(&x)?, bench.upload(&at)?);
            let (dt, dw, db) = (bench.upload(&table)?, bench.upload(&weight)?, bench.upload(&bias)?);
            let mut y = bench.upload(&vec![f32::NAN; columns * stride])?;
            let mut output = QuantizedOutput::new(bench, quant_format, columns, cols)?;
            let (quant_format, quantized, group_counters) =
                OutputQuantization::arguments(output.as_mut().map(QuantizedOutput::written));
            let (placed, biased) = (flags & POSITIONS != 0, flags & BIAS != 0);
            bench.launch(LayerNorm {
                x: &mut dx,
                columns: &at,
                positions: if placed { &dt } else { DeviceSlice::empty() },
                weight: &dw,
                bias: if biased { &db } else { DeviceSlice::empty() },
                y: &mut y,
                quantized,
                group_counters,
                cols: cols as u32,
                stride: stride as u32,
                context: CONTEXT as u32,
                flags,
                quant_format,
                eps,
            })?;
            let (after, y) = (bench.read(&dx)?, bench.read(&y)?);
            if let Some(output) = output {
                output.check(bench, &y, stride)?;
            }
            for n in 0..columns {
                let here = n * stride..n * stride + cols;
                let gap = here.end..(n + 1) * stride;
                if [&after, &y].iter().any(|v| v[gap.clone()].iter().any(|v| !v.is_nan())) {
                    return Err(Failure::Wrong(format!("column {n}: something was written behind its elements")));
                }
                if placed && place(n) >= CONTEXT {
                    if [&after, &y].iter().any(|v| v[here.clone()].iter().any(|v| !v.is_nan())) {
                        return Err(Failure::Wrong(format!("column {n}: a position that is not there gave a number")));
                    }
                    continue;
                }
                let mut want = x[here.clone()].to_vec();
                if placed {
                    want.iter_mut().zip(&table[place(n) * cols..]).for_each(|(x, p)| *x += p);
                }
                // One addition, correctly rounded, whose result is what is normed.
                let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
                same(&bits(&after[here.clone()]), &bits(&want))?;
                column(&y[here], &want, &weight, biased.then_some(&bias), eps)?;
            }
            Ok(())
        }
    }

    /// A column's results: the mean is off by three roundings of itself and, where its terms cancel, by two of what is added up; and each
    /// distance to it by as much.
    fn column(got: &[f32], x: &[f32], weight: &[f32], bias: Option<&Vec<f32>>, eps: f32) -> Outcome {
        let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let want = reference(&x, weight, bias.map(Vec::as_slice), eps);
        let (n, eps) = (x.len() as f64, f64::from(eps));
        let mean = x.iter().sum::<f64>() / n;
        let magnitude = x.iter().map(|x| x.abs()).sum::<f64>() / n;
        let factor = 1.0 / (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + eps).sqrt();
        close(got, &want, |i| {
            let (w, distance) = (f64::from(weight[i].abs()) * factor, (x[i] - mean).abs());
            w * (3.6e-7 * mean.abs() + 1.2e-7 * magnitude + 2e-6 * distance) + 1.2e-7 * want[i].abs() + 1e-30
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_the_definition() {
        // Of 1, 3 and 8 the mean is 4 and the variance 26 / 3.
        let root = (26.0f64 / 3.0 + 1.0).sqrt();
        let y = reference(&[1.0, 3.0, 8.0], &[1.0, 2.0, 0.5], Some(&[0.0, 10.0, -1.0]), 1.0);
        for (y, want) in y.iter().zip([-3.0 / root, -2.0 / root + 10.0, 2.0 / root - 1.0]) {
            assert!((y - want).abs() < 1e-14, "{y} {want}");
        }
        assert_eq!(reference(&[5.0, 5.0], &[1.0, 1.0], None, 1e-5), [0.0, 0.0]);
    }

    #[test]
    fn contract_names_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |[x, columns, positions, weight, bias]: [usize; 5], stride, flags, eps| unsafe {
            LayerNorm {
                x: DeviceSlice::from_raw_mut(0x1000, x),
                columns: DeviceSlice::from_raw(0x2000, columns),
                positions: DeviceSlice::from_raw(0x3000, positions),
                weight: DeviceSlice::from_raw(0x4000, weight),
                bias: DeviceSlice::from_raw(0x5000, bias),
                y: DeviceSlice::from_raw_mut(0x6000, 14),
                quantized: DeviceSlice::empty_mut(),
                group_counters: DeviceSlice::empty_mut(),
                cols: 6,
                stride,
                context: 4,
                flags: flags & 7,
                quant_format: flags / 8,
                eps,
            }
            .check()
        };
        assert!(launch([14, 2, 24, 6, 6], 8, POSITIONS | BIAS, 0.0).is_ok());
        assert!(launch([14, 2, 0, 6, 0], 8, 0, 0.0).is_ok());
        for (launch, argument) in [
            (launch([13, 2, 24, 6, 6], 8, 0, 0.0), "x"),
            (launch([22, 3, 24, 6, 6], 8, 0, 0.0), "y"),
            (launch([14, 0, 24, 6, 6], 8, 0, 0.0), "columns"),
            (launch([14, 2, 23, 6, 6], 8, POSITIONS, 0.0), "positions"),
            (launch([14, 2, 24, 5, 6], 8, 0, 0.0), "weight"),
            (launch([14, 2, 24, 6, 7], 8, BIAS, 0.0), "bias"),
            (launch([14, 2, 24, 6, 6], 7, 0, 0.0), "stride"),
            (launch([14, 2, 24, 6, 6], 4, 0, 0.0), "stride"),
            (launch([14, 2, 24, 6, 6], 8, 4, 0.0), "flags"),
            (launch([14, 2, 24, 6, 6], 8, 0, f32::NAN), "eps"),
            // Codes of rows that are no whole blocks.
            (launch([14, 2, 24, 6, 6], 8, 8, 0.0), "cols"),
        ] {
            assert_eq!(launch.unwrap_err().argument, argument);
        }
    }
}
