//! The cases of products.

mod experts;
mod multiply;
mod product;
mod quantized;

use super::{
    ACTIVATED, ADD, Activations, BIAS, CLAMPED, ERF, GELU, NEXT, NORM, QuantFormat, budget, four_rows::GemvF16V3,
    half::*, int8::*, magnitudes, naive::*, planes::*, reference, tensor::*, tensor_planes::*,
};
use crate::activation::Activation;
use crate::cases::{
    Bench, Failure, Listed, Measured, NamedSizes, Operation, Outcome, Rng, Shape, Tensor, close, refused, same, why,
};
use crate::elementwise::{Glu, clamped_reference, gelu_reference};
use crate::format::{Format, Layout};
pub use experts::ExpertProducts;
pub use multiply::{Inputs, Outputs, multiply};
pub use product::{Product, gemm, gemv};
pub use quantized::{QuantizedOutput, in_turn};

/// Matrix times vectors, by the format of the weights and the entry point.
pub struct Products;

const BENCHMARK: Measured = Measured::By("gemv");

macro_rules! products {
    (($all:ident) $($F:ident {
        $blocks:literal: $gemv:ident $Gemv:ident $s1:ident, $gemm:ident $Gemm:ident $s2:ident
    } $formats:tt)*) => { $(
        let budget = budget::of(Layout::$F, Activations::F32);
        $all.push(Listed::new::<super::$Gemv<'_>>(BENCHMARK, budget));
        let many = Measured::Not("products of several columns, for which no bound is set yet");
        $all.push(Listed::new::<super::$Gemm<'_>>(BENCHMARK, many));
    )* };
}

macro_rules! quantized_products {
    (($all:ident) $($F:ident { $($quant_format:ident: $blocks:literal, $gemv:ident $Gemv:ident $shared:ident;)* } $formats:tt)*) => { $($(
        let budget = budget::of(Layout::$F, QuantFormat::$quant_format.activations());
        $all.push(Listed::new::<$Gemv<'_>>(BENCHMARK, budget));
    )*)* };
}

/// Bytes that products of many columns keep in local memory on sm_90, where one block is resident.
const SPILLED_BY_MANY: &[(&str, u32)] = &[
    ("gemm_q4_0_i16", 8),
    ("gemm_q4_1_i16", 8),
    ("gemm_q5_0_i16", 8),
    ("gemm_q5_1_i16", 16),
    ("gemm_q8_0_i16", 8),
    ("gemm_q4_k_i16", 8),
    ("gemm_q5_k_i16", 16),
    ("gemm_q6_k_i8", 8),
    ("gemm_q6_k_i16", 24),
    ("gemm_iq4_nl_i16", 8),
    ("gemm_iq4_xs_i16", 24),
    ("gemm_mxfp4_i16", 8),
    ("gemm_f16_f16", 32),
    ("gemm_bf16_f16", 32),
    ("gemm_q4_k_f16", 16),
    ("gemm_q6_k_f16", 32),
];
const SPILLED_BY_MANY_WHY: &str = "a few registers over 255, of which 128 hold sums";

macro_rules! tensor_products {
    (($all:ident) $($F:ident { $($quant_format:ident: $gemm:ident $Gemm:ident $shared:ident;)* } $formats:tt)*) => { $($(
        let many = Listed::new::<$Gemm<'_>>(BENCHMARK, Measured::By(budget::MANY));
        $all.push(many.spilling(SPILLED_BY_MANY, SPILLED_BY_MANY_WHY));
    )*)* };
}

impl Operation for Products {
    type Variant = (Format, Product);

    fn kernels() -> Vec<Listed> {
        let variant = Measured::Not(why::VARIANT);
        let mut all = vec![
            Listed::new::<GemvF32V1<'_>>(BENCHMARK, variant),
            Listed::new::<GemvQ80V1<'_>>(BENCHMARK, variant),
            Listed::new::<GemvF16V3<'_>>(BENCHMARK, variant),
        ];
        crate::formats! { product products (all) }
        let rounds = "quantizes one vector, which products do themselves";
        all.extend([
            Listed::unmeasured::<PlanesI8<'_>>(rounds),
            Listed::unmeasured::<PlanesI16<'_>>(rounds),
            Listed::unmeasured::<PlanesQ2I8<'_>>(rounds),
            Listed::unmeasured::<PlanesQ2I16<'_>>(rounds),
            Listed::unmeasured::<QuantizeI8<'_>>(rounds),
            Listed::unmeasured::<QuantizeI16<'_>>(rounds),
            Listed::unmeasured::<QuantizeF16<'_>>(rounds),
        ]);
        crate::formats! { quantized quantized_products (all) }
        crate::formats! { tensor tensor_products (all) }
        all
    }

    fn variants() -> Vec<(Format, Product)> {
        let of = |format| Product::of(format).into_iter().map(move |product| (format, product));
        Format::ALL.into_iter().flat_map(of).collect()
    }

    fn launches((format, product): (Format, Product)) -> Vec<&'static str> {
        product.quant_format(format).map(QuantFormat::kernel).into_iter().chain([product.meta(format).name]).collect()
    }

    fn sizes((_, product): (Format, Product)) -> NamedSizes {
        match product {
            Product::Gemm | Product::GemmSwiglu => &[("rows", 1024), ("cols", 1024), ("columns", 8), ("flags", 0)],
            product if product.is_many() => {
                &[("rows", 1024), ("cols", 1024), ("columns", 64), ("flags", 0), ("quant_format", 0)]
            }
            product if product.is_quantized() => {
                &[("rows", 1024), ("cols", 1024), ("columns", 1), ("flags", 0), ("quant_format", 0)]
            }
            _ => &[("rows", 1024), ("cols", 1024), ("columns", 1), ("flags", 0)],
        }
    }

    fn shapes((format, product): (Format, Product)) -> Vec<Vec<usize>> {
        product_shapes(format, product)
    }

    fn run<B: Bench>((format, product): (Format, Product), shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        run(shape, bench, rng, format, product)
    }
}

/// Shapes of a product: `[rows, cols, columns, flags]`, and of a quantized one also the number of the format that it quantizes to.
fn product_shapes(format: Format, product: Product) -> Vec<Vec<usize>> {
    let block = format.block_elems();
    let cols = |n: usize| n.div_ceil(block) * block;
    // One element or block; fewer units than lanes; no power of two; full runs of lanes, and rests; more than is staged
    // at a time, which is 4096 columns of one and 1024 of eight.
    let in_planes = |format: Option<QuantFormat>| format.is_some_and(QuantFormat::is_planes);
    let quant_format = product.quant_format(format);
    let widths: &[usize] = match product {
        Product::Naive | Product::FourRows => &[1, 37, 320, 1056],
        Product::Gemv => &[1, 37, 96, 320, 1056, 2144, 4352],
        // A block; several; a run of blocks, and rests; two runs.
        Product::Int8 | Product::Int16 if in_planes(quant_format) => &[1, 320, 1056, 4096, 4352, 8320],
        // A block; several; runs of two and four units a lane, and rests.
        Product::Int8 | Product::Int16 => &[1, 320, 1056, 4352],
        // One group, of which one unit has a part; several; a run of one in each warp, and of two.
        Product::Half => &[1, 37, 320, 1056, 2144],
        Product::HalfSwiglu | Product::GemmHalfSwiglu => &[96, 1056],
        Product::GemmHalf => &[1, 320, 1056, 2144],
        Product::GemvSwiglu | Product::Int8Swiglu | Product::Int16Swiglu => &[96, 1056],
        // In planes: one class; all of them; a run, and rests; runs of several groups a class.
        Product::GemmInt8 | Product::GemmInt16 if in_planes(quant_format) => &[1, 320, 1056, 4352, 8320],
        // Fewer units than classes of them; all classes, and one of two; two units each, and three.
        Product::GemmInt8 | Product::GemmInt16 => &[1, 320, 1056, 2144],
        Product::GemmInt8Swiglu | Product::GemmInt16Swiglu => &[96, 1056],
        Product::Gemm => &[37, 320, 1056],
        Product::GemmSwiglu => &[96],
    };
    // Flags and columns change from shape to shape.
    let flags = |i: usize| match product {
        Product::Naive | Product::FourRows => 0,
        _ if product.swiglu() => [NORM | NEXT | BIAS, GELU, ADD | NORM | CLAMPED, NEXT | GELU, CLAMPED | BIAS][i % 5],
        _ => [
            ACTIVATED | ERF,
            ADD | NORM | NEXT | BIAS,
            ADD | ACTIVATED,
            NORM | BIAS | ACTIVATED | GELU,
            NEXT,
            ADD | NEXT,
        ][i % 6],
    } as usize;
    let columns = |i: usize| match product {
        Product::Gemm | Product::GemmSwiglu => [3, 9, 2, 8][i % 4],
        Product::Int8 | Product::Int16 => [1, 3, 2][i % 3],
        Product::Int8Swiglu | Product::Int16Swiglu => [2, 1][i % 2],
        // Of a tile, of several, of several blocks.
        Product::Half => [1, 9, 2, 33, 20][i % 5],
        Product::HalfSwiglu => [2, 1, 17][i % 3],
        Product::GemmHalf | Product::GemmHalfSwiglu => [130, 193, 129][i % 3],
        // Parts of tiles, and of several blocks; all of a block.
        Product::GemmInt8 | Product::GemmInt16 if in_planes(quant_format) => [12, 17, 64, 16, 33, 13][i % 6],
        Product::GemmInt8 | Product::GemmInt16 => [12, 4, 33, 16, 8, 5][i % 6],
        Product::GemmInt8Swiglu | Product::GemmInt16Swiglu => [13, 12, 40][i % 3],
        _ => 1,
    };
    let mut all: Vec<Vec<usize>> = Vec::new();
    for (i, width) in widths.iter().enumerate() {
        // Few rows, and rows that do not fill a block.
        all.push(vec![[3, 1, 5][i % 3], cols(*width), columns(i), flags(i)]);
    }
    if product == Product::FourRows {
        // Several blocks of threads, also of short rows; more columns than are staged at a time.
        all.extend([vec![37, 1024, 1, 0], vec![1030, 32, 1, 0], vec![6, 4353, 1, 0]]);
    } else if product.is_many() {
        // Several blocks of threads, the last of which has few rows.
        all.push(vec![131, cols(256), columns(1), flags(1)]);
        all.push(vec![if product.swiglu() { 70 } else { 256 }, cols(64), columns(2), flags(2)]);
    } else if quant_format.is_some() && product.swiglu() {
        // Several blocks of threads.
        all.push(vec![37, cols(256), 1, flags(2)]);
    } else if quant_format.is_some_and(|c| !c.is_planes()) {
        all.push(vec![37, cols(512), 1, flags(5)]);
    } else if quant_format.is_some() {
        all.extend([vec![32, 512, 1, 0], vec![33, 256, 1, flags(5)], vec![70, 4096, 1, flags(1)]]);
    }
    // Of rows that are too long for wide blocks several blocks have a part of what shares a scale.
    let long = quant_format.is_some_and(QuantFormat::is_planes) && !product.swiglu() && !product.is_many();
    if quant_format.is_some() {
        // Outputs of whole blocks, of one group and of several, the last of which may be of fewer.
        let rows = [32, 128, 160, 288, 384];
        let n = quant_format.map_or(0, |c| c as usize) + usize::from(product.swiglu());
        let some = |i: usize| if product.is_many() { columns(i) } else { 1 + i % 2 };
        all.extend((0..4).map(|i| vec![rows[(n + i) % 5], cols(96), some(n + i), flags(n + i)]));
        for (i, shape) in all.iter_mut().enumerate() {
            shape.push(in_turn(n + i, shape[0]));
        }
        if long {
            all.extend(
                [QuantFormat::PlanesI16, QuantFormat::PlanesQ2I8]
                    .map(|to| vec![256, cols(8320), 2, flags(4), to as usize]),
            );
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

/// A number and how far off it may be.
#[derive(Clone, Copy)]
struct About(f64, f64);

fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng, format: Format, product: Product) -> Outcome {
    let [rows, cols, columns, flags] = shape.sizes(["rows", "cols", "columns", "flags"])?;
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
    (inputs.glu, inputs.activation) = functions(flags);
    if flags & BIAS != 0 {
        inputs.bias = Some(rng.floats(stacked));
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
    if product.is_quantized() {
        inputs.quant_format = shape.size("quant_format")?;
    }
    let got = multiply(bench, &t, product, &inputs)?;
    if product.is_many() {
        alone(bench, &t, product, &inputs, &got)?;
    }

    let parts = got.sums.len() / columns;
    // How far off the weights may make products of f16, too.
    let records = t.format.repack(&t.bytes, stacked, cols).map_err(refused)?;
    let in_f16 = product.quant_format(format) == Some(QuantFormat::F16);
    let of_weights = |x: &[f32]| if in_f16 { rounding(format, &records, cols, x) } else { Vec::new() };
    for n in 0..columns {
        let x = &inputs.x[n * x_stride..][..cols];
        let factor = inputs.norm.as_ref().map_or(1.0, |(sums, eps)| {
            let sum: f64 = sums[n * 35..][..35].iter().map(|v| f64::from(*v)).sum();
            1.0 / (sum / cols as f64 + f64::from(*eps)).sqrt()
        });
        let dots = reference(&weights, x, None).into_iter().zip(magnitudes(&weights, x));
        let mut dots: Vec<About> = dots.map(|(y, yabs)| About(y * factor, 1e-5 * yabs * factor)).collect();
        if let Some(format) = product.quant_format(format) {
            let rounding = format.rounding(&weights, x);
            dots.iter_mut().zip(rounding).for_each(|(dot, error)| dot.1 += factor * error);
            dots.iter_mut().zip(of_weights(x)).for_each(|(dot, error)| dot.1 += factor * error);
        }
        for (dot, bias) in dots.iter_mut().zip(inputs.bias.iter().flatten()) {
            let bias = f64::from(*bias);
            *dot = About(dot.0 + bias, dot.1 + 1e-7 * (bias.abs() + dot.0.abs()));
        }
        let want: Vec<About> = (0..rows)
            .map(|r| {
                let About(y, error) = match inputs.activation {
                    _ if product.swiglu() => gated(dots[r], dots[rows + r], inputs.glu),
                    Some(activation) => activated(dots[r], activation),
                    None => dots[r],
                };
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

/// A column gives the same bits when it is multiplied alone, by the entry point of one column.
fn alone<B: Bench>(bench: &mut B, t: &Tensor, product: Product, all: &Inputs, got: &Outputs) -> Outcome {
    let rows = if product.swiglu() { t.rows / 2 } else { t.rows };
    let parts = got.sums.len() / all.columns;
    let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
    // Of many columns some of each tile.
    let step = if all.columns > 64 { 11 } else { 1 };
    for n in (0..all.columns).step_by(step) {
        let want = multiply(bench, t, product, &Inputs { quant_format: 0, ..all.part(n, 1, rows) })?;
        let of_column = |v: &[f32]| bits(&v[n * all.y_stride..][..rows]);
        same(&of_column(&got.y), &bits(&want.y[..rows]))?;
        if all.next.is_some() {
            same(&of_column(&got.scaled), &bits(&want.scaled[..rows]))?;
            same(&bits(&got.sums[n * parts..][..parts]), &bits(&want.sums))?;
        }
    }
    Ok(())
}

/// What flags say of gates and ups, and of outputs without gates.
fn functions(flags: u32) -> (Option<Glu>, Option<Activation>) {
    let glu = match flags & (GELU | CLAMPED) {
        0 => Glu::Silu,
        GELU => Glu::Gelu,
        _ => Glu::Clamped,
    };
    let activation = match flags & (GELU | ERF) {
        0 => Activation::SquaredRelu,
        GELU => Activation::Gelu,
        _ => Activation::GeluErf,
    };
    (Some(glu), (flags & ACTIVATED != 0).then_some(activation))
}

/// What comes of an output without gates; the slope of GELU is at most 1.13, and that of a square grows.
fn activated(About(x, error): About, activation: Activation) -> About {
    let want = activation.reference(x);
    let (slope, relative) = match activation {
        Activation::SquaredRelu => (2.0 * x.max(0.0) + error, 1e-6),
        Activation::Gelu => (1.13, 1.5e-5),
        Activation::GeluErf => (1.13, 3e-5),
    };
    About(want, slope * error + relative * want.abs() + 1e-42)
}

/// `silu(gate) * up`, or with GELU, or of clamped numbers; the derivatives are at most 1.1, 1.13 and 1.1.
fn gated(About(gate, gate_error): About, About(up, up_error): About, glu: Option<Glu>) -> About {
    let (activated, up, relative, slope) = match glu {
        Some(Glu::Gelu) => (gelu_reference(gate), up, 1.5e-5, 1.13),
        // Ups are within 7, so that `up + 1` is of 0 where they are -1.
        Some(Glu::Clamped) => (clamped_reference(gate, 0.0), up.clamp(-7.0, 7.0) + 1.0, 1.2e-5, 1.1),
        _ => (gate / (1.0 + (-gate).exp()), up, 2e-6, 1.1),
    };
    let want = activated * up;
    About(want, slope * gate_error * (up.abs() + up_error) + activated.abs() * up_error + relative * want.abs() + 1e-42)
}
