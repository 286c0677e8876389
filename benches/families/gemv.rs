//! Products of every format in the shapes of real models.

use std::rc::Rc;

use gpu_kernels::cases::{Rng, Tensor};
use gpu_kernels::format::{Format, Layout};
use gpu_kernels::gemv::{
    self, Activations, Gemv, OutputQuantization, Quantize, QuantizedProduct, four_rows, naive, quant_format,
};
use warpsmith_bench::report::Spread;
use warpsmith_bench::{Bench, Failed, Group, Noise, Output, Run, Work, gpu};
use warpsmith_device::{Launcher, U32x4};
use warpsmith_host::model::{ModelShape, ProductShape};
use warpsmith_host::{Buffer, Stream};

/// On a GPU, enough copies of the weights that a round of them does not fit the L2 cache (at most 60 MB on an H200).
const COLD_BYTES: usize = 240 << 20;

/// Weights, as often as they are rotated.
fn records(bench: &Bench, format: Format, rows: usize, cols: usize) -> Result<Rc<Vec<Buffer<U32x4>>>, Failed> {
    let all = Tensor::many_records(format, rows, cols)?;
    let copies = if bench.counts() { 1 } else { COLD_BYTES.div_ceil(16 * all.len()).clamp(1, 64) };
    Ok(Rc::new((0..copies).map(|_| bench.stream.upload(&all)).collect::<Result<_, _>>()?))
}

/// A variant: its name, its columns, and how it is launched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Naive,
    Default,
    /// Four rows a group of lanes.
    FourRows,
    /// With activations as codes of 8 bits, which it makes first.
    Int8,
    /// The same of 16 bits.
    Int16,
    /// With activations in f16, which it makes first.
    Half,
    Columns8,
    /// A block of columns of codes of 8 bits.
    Columns64Int8,
    /// The same of 16 bits.
    Columns64Int16,
    /// More columns of f16 than small blocks take.
    Columns192Half,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Variant::Naive => "v1",
            Variant::Default => "v2",
            Variant::FourRows => "v3",
            Variant::Int8 => "i8",
            Variant::Int16 => "i16",
            Variant::Half => "f16",
            Variant::Columns8 => "8 columns",
            Variant::Columns64Int8 => "64 columns i8",
            Variant::Columns64Int16 => "64 columns i16",
            Variant::Columns192Half => "192 columns f16",
        }
    }

    fn activations(self) -> Activations {
        match self {
            Variant::Int8 | Variant::Columns64Int8 => Activations::Int8,
            Variant::Int16 | Variant::Columns64Int16 => Activations::Int16,
            Variant::Half | Variant::Columns192Half => Activations::F16,
            _ => Activations::F32,
        }
    }

    fn columns(self) -> usize {
        match self {
            Variant::Columns8 => 8,
            Variant::Columns64Int8 | Variant::Columns64Int16 => 64,
            Variant::Columns192Half => 192,
            _ => 1,
        }
    }
}

/// Whether quantized activations are run: of the formats that are the two-bit one to kernels, for one.
fn runs_quantized(format: Format) -> bool {
    format.layout() != Layout::Q2_0 || format == Format::TQ2_0_G128
}

fn variants(format: Format, layer: &str) -> Vec<Variant> {
    let mut all = vec![Variant::Default];
    if matches!(format, Format::F32 | Format::Q8_0) && layer != "gate-up" {
        all.insert(0, Variant::Naive);
    }
    if format == Format::F16 && layer != "gate-up" {
        all.push(Variant::FourRows);
    }
    if runs_quantized(format) {
        let takes = |v: &Variant| v.activations().take(format);
        all.extend([Variant::Int8, Variant::Int16, Variant::Half].into_iter().filter(takes));
    }
    if layer == "qkv" {
        all.push(Variant::Columns8);
        let of = |v: &Variant| QuantizedProduct::of(format, v.activations()).and_then(QuantizedProduct::kernel_of_many);
        let many = [Variant::Columns64Int8, Variant::Columns64Int16, Variant::Columns192Half];
        all.extend(many.into_iter().filter(|v| of(v).is_some()));
    }
    all
}

/// Rows of weights that differ: those after them are the same again.
const DIFFERENT: usize = 64;

/// Columns of activations that differ: those after them are the same again. Odd, so that columns in each other's place are seen.
const APART: usize = 11;

/// Weights as [`Tensor::many_records`] makes them, decoded, and what a product with them has to give.
struct Reference {
    format: Format,
    records: Vec<U32x4>,
    weights: Vec<f32>,
    rows: usize,
    cols: usize,
    swiglu: bool,
    quantized: Option<gemv::QuantFormat>,
}

impl Reference {
    fn new(
        format: Format,
        rows: usize,
        cols: usize,
        swiglu: bool,
        quantized: Option<gemv::QuantFormat>,
    ) -> Result<Self, Failed> {
        let all = if swiglu { 2 * rows } else { rows };
        let some = all.min(DIFFERENT);
        let tensor = Tensor::random(&mut Rng(all as u64 * 31 + cols as u64), format, some, cols);
        let records = format.repack(&tensor.bytes, some, cols)?;
        let weights = format.decode(&tensor.bytes, some, cols)?;
        Ok(Reference { format, records, weights, rows, cols, swiglu, quantized })
    }

    /// A column's numbers and how far off each may be.
    fn column(&self, x: &[f32]) -> (Vec<f64>, Vec<f64>) {
        let dots = gemv::reference(&self.weights, x, None);
        let mut errors: Vec<f64> = gemv::magnitudes(&self.weights, x).iter().map(|m| 1e-5 * m).collect();
        if let Some(quantized) = self.quantized {
            let rounding = quantized.rounding(&self.weights, x);
            errors.iter_mut().zip(rounding).for_each(|(error, more)| *error += more);
            if quantized.is_half() {
                let of_weights = gemv::half::rounding(self.format, &self.records, self.cols, x);
                errors.iter_mut().zip(of_weights).for_each(|(error, more)| *error += more);
            }
        }
        let one = |r: usize| {
            let at = |row: usize| (dots[row % dots.len()], errors[row % dots.len()]);
            let ((gate, gate_error), (up, up_error)) = (at(r), at(self.rows + r));
            if !self.swiglu {
                return (gate, gate_error);
            }
            // The derivative of SiLU is at most 1.1.
            let silu = gate / (1.0 + (-gate).exp());
            let want = silu * up;
            let error = 1.1 * gate_error * (up.abs() + up_error) + silu.abs() * up_error + 2e-6 * want.abs() + 1e-42;
            (want, error)
        };
        (0..self.rows).map(one).unzip()
    }

    /// All columns, side by side, of those that differ.
    fn outputs(&self, stream: &Stream, x: &[f32], y: &Buffer<f32>) -> Result<Vec<Output>, Failed> {
        let columns = x.chunks_exact(self.cols).map(|x| self.column(x));
        let (want, bounds): (Vec<Vec<f64>>, Vec<Vec<f64>>) = columns.unzip();
        let (want, bounds) = (want.concat(), bounds.concat());
        let got = stream.read(y)?;
        let want: Vec<f64> = want.into_iter().cycle().take(got.len()).collect();
        Ok(vec![Output::near("y", &got, &want, |i| bounds[i % bounds.len()])])
    }
}

fn runs(
    bench: &Bench,
    format: Format,
    rows: usize,
    cols: usize,
    swiglu: bool,
    all: &[Variant],
) -> Result<Vec<Run>, Failed> {
    let weights = records(bench, format, if swiglu { 2 * rows } else { rows }, cols)?;
    let (n, m) = (rows as u32, cols as u32);
    let mut runs = Vec::new();
    for variant in all.iter().copied() {
        let columns = variant.columns();
        let host_x = Noise(7).floats(columns.min(APART) * cols);
        let all_x: Vec<f32> = host_x.iter().copied().cycle().take(columns * cols).collect();
        let x = bench.stream.upload(&all_x)?;
        let y = bench.stream.zeros::<f32>(columns * rows)?;
        let weights = Rc::clone(&weights);
        let of = QuantizedProduct::of(format, variant.activations());
        // Activations are quantized by the launch before, and what is computed by the product.
        let vectors = of.map_or(1, |c| columns * c.quant_format().len(m) as usize);
        let mut activations = bench.stream.zeros::<U32x4>(vectors)?;
        if let Some(of) = of {
            let quantize = Quantize::new(of.quant_format(), &x, &mut activations, m);
            quantize.columns(columns as u32, m).launch(&mut &bench.stream)?;
        }
        let next = of.map(QuantizedProduct::quant_format).filter(|c| n.is_multiple_of(c.block()));
        let quantized = bench.stream.zeros::<U32x4>(next.map_or(1, |c| columns * c.len(n) as usize))?;
        let group_counters = bench.stream.zeros::<u32>(columns * quant_format::groups(n) as usize)?;
        let read = of.map(QuantizedProduct::quant_format);
        runs.push(Run::launches(
            (x, y, activations, quantized, group_counters),
            move |(x, y, activations, quantized, group_counters), mut on, i| {
                let weights = &*weights[i % weights.len()];
                match (variant, format) {
                    (Variant::Naive, Format::F32) => {
                        return on.launch(naive::GemvF32V1 { weights, x, y, rows: n, cols: m });
                    }
                    (Variant::FourRows, _) => {
                        return on.launch(four_rows::GemvF16V3 { weights, x, y, rows: n, cols: m });
                    }
                    (Variant::Naive, _) => return on.launch(naive::GemvQ80V1 { weights, x, y, rows: n, cols: m }),
                    _ => {}
                }
                let gemv = match of {
                    None => Gemv::new(format, weights, n, m, x, y),
                    Some(of) => Gemv::quantized(of, weights, n, m, activations, y),
                };
                let gemv = gemv.columns(columns as u32, m, n).quantize_output(next.map(|format| OutputQuantization {
                    format,
                    quantized,
                    group_counters,
                }));
                if swiglu { gemv.swiglu().launch(&mut on) } else { gemv.launch(&mut on) }
            },
            move |(_, y, ..), stream| Reference::new(format, rows, cols, swiglu, read)?.outputs(stream, &host_x, y),
        ));
    }
    Ok(runs)
}

/// On a GPU: the rate of a read-only sweep of 4 GiB by 16-byte loads, a product with f32.
fn read_rate(bench: &Bench) -> Result<f64, Failed> {
    let (rows, cols) = (131_072, 8192);
    let sweep = runs(bench, Format::F32, rows, cols, false, &[Variant::Default])?;
    let samples = gpu::interleaved(sweep.into_iter().map(|run| (&bench.stream, run)))?;
    let median = Spread::of(samples.first().ok_or("no samples")?).median;
    Ok((4 * rows * cols) as f64 / median)
}

/// Every format.
pub fn family(bench: &Bench) -> Result<(), Failed> {
    if bench.times() {
        bench.set_read_rate(read_rate(bench)?);
    }
    for format in Format::ALL {
        for shape in &ModelShape::QWEN3 {
            for product in shape.products() {
                let ProductShape { part: layer, rows, cols, swiglu } = product;
                let weights = product.weight_rows();
                let Ok(bytes) = format.tensor_bytes(weights, cols) else { continue };
                let all = variants(format, layer);
                let name = format.name().to_lowercase();
                let group = Group {
                    id: format!("gemv/{name}/{}-{layer}", shape.name),
                    variants: all
                        .iter()
                        .map(|v| {
                            let n = v.columns();
                            let floor_bytes = (bytes + 4 * n * (rows + cols)) as u64;
                            (v.name().to_owned(), Work { elements: (n * weights * cols) as u64, floor_bytes })
                        })
                        .collect(),
                    rows: Some(rows),
                    key: format!("gemv/{name}/{cols}{}", if swiglu { "-swiglu" } else { "" }),
                    setup: Box::new(move |bench, rows, wanted| {
                        let some: Vec<Variant> = wanted.iter().filter_map(|v| all.get(*v)).copied().collect();
                        runs(bench, format, rows, cols, swiglu, &some)
                    }),
                };
                bench.measure(&group);
            }
        }
    }
    Ok(())
}
