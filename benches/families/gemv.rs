//! Products of every format in the shapes of real models.

use std::rc::Rc;

use criterion::Criterion;
use gpu_kernels::cases::Tensor;
use gpu_kernels::format::Format;
use gpu_kernels::gemv::{Activations, Coded, Gemv, Quantize, Written, coding, first, four};
use warpsmith_device::{Launcher, U32x4};
use warpsmith_host::Buffer;

use crate::harness::meter::Meter;
use crate::harness::report::Spread;
use crate::harness::{Bench, Failed, Group, Noise, Run, Work, gpu};

/// Hidden size, width of queries, of queries, keys and values, and of the feed-forward layer: Qwen3's.
const MODELS: [(&str, usize, usize, usize, usize); 4] = [
    ("0.6b", 1024, 2048, 4096, 3072),
    ("1.7b", 2048, 2048, 4096, 6144),
    ("4b", 2560, 4096, 6144, 9728),
    ("8b", 4096, 4096, 6144, 12288),
];
const VOCABULARY: usize = 151_936;

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
    First,
    Default,
    /// Four rows a group of lanes.
    Four,
    /// With activations as codes of 8 bits, which it makes first.
    Int8,
    /// The same of 16 bits.
    Int16,
    Columns8,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Variant::First => "v1",
            Variant::Default => "v2",
            Variant::Four => "v3",
            Variant::Int8 => "i8",
            Variant::Int16 => "i16",
            Variant::Columns8 => "8 columns",
        }
    }

    fn activations(self) -> Activations {
        match self {
            Variant::Int8 => Activations::Int8,
            Variant::Int16 => Activations::Int16,
            _ => Activations::F32,
        }
    }

    fn columns(self) -> usize {
        if self == Variant::Columns8 { 8 } else { 1 }
    }
}

/// Whether activations as codes are run: of the formats that are the two-bit one to kernels, for one.
fn coded(format: Format) -> bool {
    format.block_units() == 0 || format == Format::TQ2_0_G128
}

fn variants(format: Format, layer: &str) -> Vec<Variant> {
    let mut all = vec![Variant::Default];
    if matches!(format, Format::F32 | Format::Q8_0) && layer != "gate-up" {
        all.insert(0, Variant::First);
    }
    if format == Format::F16 && layer != "gate-up" {
        all.push(Variant::Four);
    }
    if coded(format) {
        let takes = |v: &Variant| v.activations().take(format);
        all.extend([Variant::Int8, Variant::Int16].into_iter().filter(takes));
    }
    if layer == "qkv" {
        all.push(Variant::Columns8);
    }
    all
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
        let x = bench.stream.upload(&Noise(7).floats(columns * cols))?;
        let mut y = bench.stream.zeros::<f32>(columns * rows)?;
        let weights = Rc::clone(&weights);
        let of = Coded::of(format, variant.activations());
        // Codes come from the launch before, and those of what is computed are part of the product.
        let mut codes = bench.stream.zeros::<U32x4>(of.map_or(1, |c| c.codes().len(m) as usize))?;
        if let Some(of) = of {
            Quantize::new(of.codes(), &x, &mut codes, m).launch(&mut &bench.stream)?;
        }
        let next = of.map(Coded::codes).filter(|c| n.is_multiple_of(c.block()));
        let mut coded = bench.stream.zeros::<U32x4>(next.map_or(1, |c| c.len(n) as usize))?;
        let mut counted = bench.stream.zeros::<u32>(coding::groups(n) as usize)?;
        runs.push(Run::Launches(Box::new(move |mut on, i| {
            let weights = &*weights[i % weights.len()];
            let (x, y) = (&x, &mut y);
            match (variant, format) {
                (Variant::First, Format::F32) => {
                    return on.launch(first::GemvF32V1 { weights, x, y, rows: n, cols: m });
                }
                (Variant::Four, _) => {
                    return on.launch(four::GemvF16V3 { weights, x, y, rows: n, cols: m });
                }
                (Variant::First, _) => return on.launch(first::GemvQ80V1 { weights, x, y, rows: n, cols: m }),
                _ => {}
            }
            let gemv = match of {
                None => Gemv::new(format, weights, n, m, x, y).columns(columns as u32, m, n),
                Some(of) => Gemv::coded(of, weights, n, m, &codes, y),
            };
            let gemv = gemv.code(next.map(|codes| Written { codes, coded: &mut coded, counted: &mut counted }));
            if swiglu { gemv.swiglu().launch(&mut on) } else { gemv.launch(&mut on) }
        })));
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
pub fn family(bench: &Bench, c: &mut Criterion<Meter>) -> Result<(), Failed> {
    if !bench.counts() {
        bench.set_read_rate(read_rate(bench)?);
    }
    for format in Format::ALL {
        for (model, hidden, queries, qkv, wide) in MODELS {
            let layers = [
                ("qkv", qkv, hidden),
                ("o", hidden, queries),
                ("gate-up", wide, hidden),
                ("down", hidden, wide),
                ("head", VOCABULARY, hidden),
            ];
            for (layer, rows, cols) in layers {
                let swiglu = layer == "gate-up";
                let weights = if swiglu { 2 * rows } else { rows };
                let Ok(bytes) = format.tensor_bytes(weights, cols) else { continue };
                let all = variants(format, layer);
                let name = format.name().to_lowercase();
                let group = Group {
                    id: format!("gemv/{name}/{model}-{layer}"),
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
                    setup: Box::new(move |bench, rows| runs(bench, format, rows, cols, swiglu, &all)),
                };
                bench.group(c, &group);
            }
        }
    }
    Ok(())
}
