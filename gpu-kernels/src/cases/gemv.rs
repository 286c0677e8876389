//! Embeddings and products.

use super::codes::{Asked, in_turn};
use super::run::{Outcome, close};
use super::{Bench, Case, Failure, Rng, Tensor};
use crate::embed::{self, Embed};
use crate::format::Format;
use crate::gemv::{
    self, ADD, Activations, Coded, Codes, Gemv, NEXT, NORM, Quantize, first::*, four::GemvF16V3, planes,
};
use crate::state::Column;
use warpsmith_device::U32x4;

/// An entry point of a product, and whether it takes gates and ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Product {
    /// The first variant, one column.
    First,
    /// The variant with four rows a group of lanes, one column.
    Four,
    /// One column.
    Gemv,
    /// One column, with gates and ups.
    GemvSwiglu,
    /// With activations of 8 bits.
    Int8,
    /// Activations of 8 bits, with gates and ups.
    Int8Swiglu,
    /// With activations of 16 bits.
    Int16,
    /// Activations of 16 bits, with gates and ups.
    Int16Swiglu,
    /// Several columns.
    Gemm,
    /// Several columns, with gates and ups.
    GemmSwiglu,
}

impl Product {
    /// The products that a format has.
    pub fn of(format: Format) -> Vec<Product> {
        let mut all = vec![Product::Gemv, Product::GemvSwiglu, Product::Gemm, Product::GemmSwiglu];
        if matches!(format, Format::F32 | Format::Q8_0) {
            all.insert(0, Product::First);
        }
        if format == Format::F16 {
            all.push(Product::Four);
        }
        let coded = [Product::Int8, Product::Int16, Product::Int8Swiglu, Product::Int16Swiglu];
        all.extend(coded.into_iter().filter(|p| p.codes(format).is_some()));
        all
    }

    /// What weights are multiplied with.
    fn activations(self) -> Activations {
        match self {
            Product::Int8 | Product::Int8Swiglu => Activations::Int8,
            Product::Int16 | Product::Int16Swiglu => Activations::Int16,
            _ => Activations::F32,
        }
    }

    /// Whether that is codes.
    pub(super) fn is_coded(self) -> bool {
        self.activations() != Activations::F32
    }

    fn coded(self, format: Format) -> Option<Coded> {
        Coded::of(format, self.activations())
    }

    /// The codes that it reads.
    pub fn codes(self, format: Format) -> Option<Codes> {
        self.coded(format).map(Coded::codes)
    }

    fn swiglu(self) -> bool {
        matches!(self, Product::GemvSwiglu | Product::GemmSwiglu | Product::Int8Swiglu | Product::Int16Swiglu)
    }

    /// The entry point's name.
    pub fn kernel(self, format: Format) -> String {
        let decoder = decoder(format);
        match self {
            Product::First => format!("gemv_{decoder}_v1"),
            Product::Four => format!("gemv_{decoder}_v3"),
            Product::Int8 | Product::Int8Swiglu => format!("gemv_{decoder}_i8"),
            Product::Int16 | Product::Int16Swiglu => format!("gemv_{decoder}_i16"),
            Product::Gemv | Product::GemvSwiglu => format!("gemv_{decoder}"),
            Product::Gemm | Product::GemmSwiglu => format!("gemm_{decoder}"),
        }
    }
}

/// The decoder that reads a format, as names of entry points have it.
pub fn decoder(format: Format) -> String {
    format.layout().name().to_lowercase()
}

/// Shapes of an embedding: `[vocab, cols, token, next]`.
pub fn embedding_shapes(format: Format) -> Vec<Vec<usize>> {
    let block = format.block_elems();
    let cols = if format.is_dense() { vec![1, 37, 512] } else { [1, 3, 17].map(|b| b * block).to_vec() };
    // Tokens: the first, the last, one past the table, and one that wraps when it is multiplied.
    let tokens = [(0, 0), (4, 1), (5, 1), (u32::MAX as usize, 0)];
    let mut all: Vec<_> = cols.iter().flat_map(|c| tokens.map(|(token, next)| vec![5, *c, token, next])).collect();
    // More than a block of threads.
    all.push(vec![2, 4352, 1, 1]);
    all
}

/// Shapes of a product: `[rows, cols, columns, flags]`, and of one with codes also the number of those that it writes.
pub fn product_shapes(format: Format, product: Product) -> Vec<Vec<usize>> {
    let block = format.block_elems();
    let cols = |n: usize| n.div_ceil(block) * block;
    // One element or block; fewer units than lanes; no power of two; full runs of lanes, and rests; more than is staged
    // at a time, which is 4096 columns of one and 1024 of eight.
    let in_planes = |codes: Option<Codes>| codes.is_some_and(|c| c != Codes::I8);
    let codes = product.codes(format);
    let widths: &[usize] = match product {
        Product::First | Product::Four => &[1, 37, 320, 1056],
        Product::Gemv => &[1, 37, 96, 320, 1056, 2144, 4352],
        // A block; several; a run of blocks, and rests; two runs.
        Product::Int8 | Product::Int16 if in_planes(codes) => &[1, 320, 1056, 4096, 4352, 8320],
        // A block; several; runs of two and four units a lane, and rests.
        Product::Int8 | Product::Int16 => &[1, 320, 1056, 4352],
        Product::GemvSwiglu | Product::Int8Swiglu | Product::Int16Swiglu => &[96, 1056],
        Product::Gemm => &[37, 320, 1056],
        Product::GemmSwiglu => &[96],
    };
    // Flags and columns change from shape to shape.
    let flags = |i: usize| match product {
        Product::First | Product::Four => 0,
        _ if product.swiglu() => [NORM | NEXT, 0, ADD | NORM, NEXT][i % 4],
        _ => [0, ADD | NORM | NEXT, ADD, NORM, NEXT, ADD | NEXT][i % 6],
    } as usize;
    let columns = |i: usize| match product {
        Product::Gemm | Product::GemmSwiglu => [3, 9, 2, 8][i % 4],
        Product::Int8 | Product::Int16 => [1, 3, 2][i % 3],
        Product::Int8Swiglu | Product::Int16Swiglu => [2, 1][i % 2],
        _ => 1,
    };
    let mut all: Vec<Vec<usize>> = Vec::new();
    for (i, width) in widths.iter().enumerate() {
        // Few rows, and rows that do not fill a block.
        all.push(vec![[3, 1, 5][i % 3], cols(*width), columns(i), flags(i)]);
    }
    if product == Product::Four {
        // Several blocks of threads, also of short rows; more columns than are staged at a time.
        all.extend([vec![37, 1024, 1, 0], vec![1030, 32, 1, 0], vec![6, 4353, 1, 0]]);
    } else if codes.is_some() && product.swiglu() {
        // Several blocks of threads.
        all.push(vec![37, cols(256), 1, flags(2)]);
    } else if codes == Some(Codes::I8) {
        all.push(vec![37, cols(512), 1, flags(5)]);
    } else if codes.is_some() {
        all.extend([vec![32, 512, 1, 0], vec![33, 256, 1, flags(5)], vec![70, 4096, 1, flags(1)]]);
    }
    if codes.is_some() {
        // Outputs of whole blocks, of one group and of several, the last of which may be of fewer.
        let rows = [32, 128, 160, 288, 384];
        let n = codes.map_or(0, |c| c as usize) + usize::from(product.swiglu());
        all.extend((0..4).map(|i| vec![rows[(n + i) % 5], cols(96), 1 + (n + i) % 2, flags(n + i)]));
        for (i, shape) in all.iter_mut().enumerate() {
            shape.push(in_turn(n + i, shape[0]));
        }
    }
    if product == Product::Gemv {
        // More than a block of long rows, of short rows.
        all.push(vec![37, cols(1024), 1, flags(1)]);
        all.push(vec![if block > 32 { 70 } else { 515 }, cols(32), 1, flags(5)]);
        let mut rng = Rng(4 + format as u64);
        all.extend((0..2).map(|i| vec![rng.within(1, 20), cols(rng.within(1, 3000)), 1, flags(i + 3)]));
    }
    if product == Product::Gemm && format == Format::Q4_0 {
        all.push(vec![2, 64, 64, flags(1)]);
    }
    all
}

pub fn embedding<B: Bench>(case: &Case, bench: &mut B, rng: &mut Rng, format: Format) -> Outcome {
    let (vocab, cols, token) = (case.size("vocab"), case.size("cols"), case.size("token"));
    let t = Tensor::random(rng, format, vocab, cols);
    let table = format.decode(&t.bytes, vocab, cols).map_err(refused)?;
    let records = bench.upload(&format.repack(&t.bytes, vocab, cols).map_err(refused)?)?;
    // The token of the case between two others.
    let tokens = [vocab as u32 / 2, token as u32, 0];
    let columns = bench.upload(&tokens.map(|t| Column::at(t, 77)))?;
    let stride = cols.next_multiple_of(4);
    let mut y = bench.upload(&vec![f32::NAN; 3 * stride])?;
    let weight = rng.floats(cols);
    let mut scaled = bench.upload(&vec![f32::NAN; 3 * stride])?;
    let parts = embed::parts(cols as u32) as usize;
    let mut sums = bench.upload(&vec![f32::NAN; 3 * parts])?;
    let next = case.size("next") != 0;
    let next_weight = bench.upload(&weight)?;
    let next_of = next.then_some((&*next_weight, &mut *scaled, &mut *sums));
    let (vocab, cols32) = (vocab as u32, cols as u32);
    let embed = Embed {
        format,
        table: &records,
        columns: &columns,
        y: &mut y,
        next: next_of,
        vocab,
        cols: cols32,
        stride: stride as u32,
    };
    embed.launch(bench)?;
    let (y, scaled, sums) = (bench.read(&y)?, bench.read(&scaled)?, bench.read(&sums)?);
    let mut wanted = vec![f32::NAN; 3 * stride];
    let mut wanted_scaled = wanted.clone();
    for (n, token) in tokens.into_iter().enumerate() {
        let row = embed::reference(&table, token as usize, cols);
        wanted[n * stride..][..cols].copy_from_slice(&row);
        if next {
            let products = row.iter().zip(&weight).map(|(r, w)| r * w);
            wanted_scaled[n * stride..][..cols].iter_mut().zip(products).for_each(|(to, v)| *to = v);
            let got: f64 = sums[n * parts..][..parts].iter().map(|s| f64::from(*s)).sum();
            let want: f64 = row.iter().map(|v| f64::from(*v).powi(2)).sum();
            if (got - want).abs() > 1e-5 * want + 1e-40 || got.is_nan() != want.is_nan() {
                return Err(Failure::Wrong(format!("column {n}: squares sum to {got} where the table gives {want}")));
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

/// What a product gave.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// `[columns, y_stride]`
    pub y: Vec<f32>,
    /// The outputs times the next norm's weight, laid out as `y`.
    pub scaled: Vec<f32>,
    /// `[columns, parts]`
    pub sums: Vec<f32>,
}

/// The inputs of a product.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// `[columns, x_stride]`
    pub x: Vec<f32>,
    /// How many columns there are.
    pub columns: usize,
    /// Elements from a column of `x` to the next.
    pub x_stride: usize,
    /// Elements from a column of `y` to the next.
    pub y_stride: usize,
    /// What is added, and its stride.
    pub add: Option<(Vec<f32>, usize)>,
    /// Parts of the sums of squares of the inputs, and eps.
    pub norm: Option<(Vec<f32>, f32)>,
    /// The weight of the next norm.
    pub next: Option<Vec<f32>>,
    /// Number of the codes that outputs are written as too, and compared with what a launch of its own gives; 0: none.
    pub codes: usize,
}

impl Inputs {
    /// One column and nothing else.
    pub fn one(x: &[f32], rows: usize) -> Inputs {
        Inputs { x: x.to_vec(), columns: 1, x_stride: x.len(), y_stride: rows, ..Inputs::default() }
    }
}

/// Launches a product with a tensor; what is not written shows as NaN.
pub fn multiply<B: Bench>(bench: &mut B, t: &Tensor, product: Product, i: &Inputs) -> Result<Outputs, Failure> {
    let records = bench.upload(&t.format.repack(&t.bytes, t.rows, t.cols).map_err(refused)?)?;
    let rows = if product.swiglu() { t.rows / 2 } else { t.rows };
    let (rows32, cols) = (rows as u32, t.cols as u32);
    let x = bench.upload(&i.x)?;
    let add = i.add.as_ref().map(|(v, stride)| Ok::<_, String>((bench.upload(v)?, *stride as u32))).transpose()?;
    let norm = i.norm.as_ref().map(|(v, eps)| Ok::<_, String>((bench.upload(v)?, *eps))).transpose()?;
    let weight = i.next.as_ref().map(|v| bench.upload(v)).transpose()?;
    let nothing = |n: usize| vec![f32::NAN; n];
    let mut y = bench.upload(&nothing(i.columns * i.y_stride))?;
    let mut scaled = bench.upload(&nothing(i.columns * i.y_stride))?;
    let (columns, codes) = (i.columns as u32, product.codes(t.format));
    let parts = gemv::parts_with(codes, rows32, cols, product.swiglu()) as usize;
    let mut sums = bench.upload(&nothing(i.columns * parts))?;
    // Codes that are not written give sums that nobody expects.
    let vectors = codes.map_or(1, |c| i.columns * c.len(cols) as usize);
    let mut codes = bench.upload(&vec![U32x4([u32::MAX; 4]); vectors])?;
    let mut asked = Asked::new(bench, i.codes, i.columns, rows)?;
    match (product, t.format) {
        (Product::First, Format::F32) => {
            bench.launch(GemvF32V1 { weights: &records, x: &x, y: &mut y, rows: rows32, cols })?;
        }
        (Product::Four, _) => {
            bench.launch(GemvF16V3 { weights: &records, x: &x, y: &mut y, rows: rows32, cols })?;
        }
        (Product::First, _) => {
            bench.launch(GemvQ80V1 { weights: &records, x: &x, y: &mut y, rows: rows32, cols })?;
        }
        _ => {
            let mut launch = match product.coded(t.format) {
                None => Gemv::new(t.format, &records, rows32, cols, &x, &mut y),
                Some(coded) => {
                    let quantize = Quantize::new(coded.codes(), &x, &mut codes, cols);
                    quantize.columns(columns, i.x_stride as u32).launch(bench)?;
                    Gemv::coded(coded, &records, rows32, cols, &codes, &mut y)
                }
            };
            launch = launch.columns(columns, i.x_stride as u32, i.y_stride as u32);
            if product.swiglu() {
                launch = launch.swiglu();
            }
            if let Some((add, stride)) = &add {
                launch = launch.add(add, *stride);
            }
            if let Some((sums, eps)) = &norm {
                launch = launch.norm(sums, (sums.len() / i.columns) as u32, *eps);
            }
            if let Some(weight) = &weight {
                launch = launch.next(weight, &mut scaled, &mut sums);
            }
            launch.code(asked.as_mut().map(Asked::written)).launch(bench)?;
        }
    }
    if let Some(asked) = asked {
        let values = bench.read(if i.next.is_some() { &scaled } else { &y })?;
        asked.check(bench, &values, i.y_stride)?;
    }
    Ok(Outputs { y: bench.read(&y)?, scaled: bench.read(&scaled)?, sums: bench.read(&sums)? })
}

/// A number and how far off it may be.
#[derive(Clone, Copy)]
struct About(f64, f64);

pub fn product<B: Bench>(case: &Case, bench: &mut B, rng: &mut Rng, format: Format, product: Product) -> Outcome {
    let [rows, cols, columns, flags] = ["rows", "cols", "columns", "flags"].map(|n| case.size(n));
    let flags = flags as u32;
    let stacked = if product.swiglu() { 2 * rows } else { rows };
    let t = Tensor::random(rng, format, stacked, cols);
    let weights = format.decode(&t.bytes, stacked, cols).map_err(refused)?;
    // Gaps between columns, which nobody reads or writes.
    let (x_stride, y_stride) = if columns == 1 { (cols, rows) } else { (cols.next_multiple_of(4) + 4, rows + 3) };
    let mut inputs = Inputs { x: vec![f32::NAN; columns * x_stride], columns, x_stride, y_stride, ..Inputs::default() };
    for n in 0..columns {
        let x = &mut inputs.x[n * x_stride..][..cols];
        x.copy_from_slice(&rng.floats(cols));
        // An outlier channel: 26 times the root mean square, which is 0.58.
        x[rng.within(0, cols - 1)] = 15.0;
    }
    if flags & ADD != 0 {
        // A residual, or a bias that all columns share.
        let stride = if columns % 2 == 1 { rows } else { 0 };
        inputs.add = Some((rng.floats(columns * rows), stride));
    }
    if flags & NORM != 0 {
        inputs.norm = Some((rng.floats(columns * 35).iter().map(|v| v.abs() * cols as f32).collect(), 1e-6));
    }
    if flags & NEXT != 0 {
        inputs.next = Some(rng.floats(rows));
    }
    inputs.codes = case.size("codes");
    let got = multiply(bench, &t, product, &inputs)?;

    let parts = got.sums.len() / columns;
    for n in 0..columns {
        let x = &inputs.x[n * x_stride..][..cols];
        let factor = inputs.norm.as_ref().map_or(1.0, |(sums, eps)| {
            let sum: f64 = sums[n * 35..][..35].iter().map(|v| f64::from(*v)).sum();
            1.0 / (sum / cols as f64 + f64::from(*eps)).sqrt()
        });
        let dots = gemv::reference(&weights, x, None).into_iter().zip(gemv::magnitudes(&weights, x));
        let mut dots: Vec<About> = dots.map(|(y, yabs)| About(y * factor, 1e-5 * yabs * factor)).collect();
        if let Some(codes) = product.codes(format) {
            let rounding = planes::rounding(&weights, x, codes.bytes(), codes.block());
            dots.iter_mut().zip(rounding).for_each(|(dot, error)| dot.1 += factor * error);
        }
        let want: Vec<About> = (0..rows)
            .map(|r| {
                let About(y, error) = if product.swiglu() { swiglu(dots[r], dots[rows + r]) } else { dots[r] };
                let Some((add, stride)) = &inputs.add else { return About(y, error) };
                let add = f64::from(add[n * stride + r]);
                About(y + add, error + 1e-7 * (add.abs() + (y + add).abs()))
            })
            .collect();
        let (numbers, bounds): (Vec<f64>, Vec<f64>) = want.iter().map(|a| (a.0, a.1)).unzip();
        let y = &got.y[n * y_stride..];
        close(&y[..rows], &numbers, |r| bounds[r])?;
        if y[rows..].iter().take(y_stride - rows).any(|v| !v.is_nan()) {
            return Err(Failure::Wrong(format!("column {n}: something was written behind its rows")));
        }
        let Some(weight) = &inputs.next else { continue };
        let scaled: Vec<f64> = numbers.iter().zip(weight).map(|(y, w)| y * f64::from(*w)).collect();
        let bound = |r: usize| f64::from(weight[r].abs()) * (bounds[r] + 1e-7 * numbers[r].abs()) + 1e-44;
        close(&got.scaled[n * y_stride..][..rows], &scaled, bound)?;
        // The sums are those of the outputs as they were written, so nothing but their own rounding is left.
        let squares: f64 = y[..rows].iter().map(|y| f64::from(*y).powi(2)).sum();
        let sum: f64 = got.sums[n * parts..][..parts].iter().map(|s| f64::from(*s)).sum();
        close(&[sum as f32], &[squares], |_| 1e-5 * squares + 1e-40)?;
    }
    Ok(())
}

/// `silu(gate) * up`; the derivative of SiLU is at most 1.1.
fn swiglu(About(gate, gate_error): About, About(up, up_error): About) -> About {
    let silu = gate / (1.0 + (-gate).exp());
    let want = silu * up;
    About(want, 1.1 * gate_error * (up.abs() + up_error) + silu.abs() * up_error + 2e-6 * want.abs() + 1e-42)
}

fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::Launch(error.to_string())
}
