//! The cases of products.

mod experts;
mod multiply;
mod product;
mod quantized;
mod shapes;

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
use shapes::product_shapes;

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
    ("gemm_bf16_f16", 24),
    ("gemm_f16_f16", 28),
    ("gemm_iq1_f16", 28),
    ("gemm_iq3_f16", 16),
    ("gemm_iq4_xs_f16", 32),
    ("gemm_q4_k_i16", 20),
    ("gemm_q5_0_i16", 20),
    ("gemm_q5_1_i16", 24),
    ("gemm_q5_k_i16", 24),
    ("gemm_q6_k_i16", 28),
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
            Listed::unmeasured::<QuantizeF16x2<'_>>(rounds),
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

/// A number and how far off it may be.
#[derive(Clone, Copy)]
struct About(f64, f64);

/// What weights of `stacked` rows are multiplied with, and what is done with `rows` results.
fn inputs(
    rng: &mut Rng,
    [rows, cols, columns, stacked]: [usize; 4],
    flags: u32,
    quant_format: Option<usize>,
) -> Inputs {
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
    if let Some(quant_format) = quant_format {
        inputs.quant_format = quant_format;
    }
    inputs
}

fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng, format: Format, product: Product) -> Outcome {
    let [rows, cols, columns, flags] = shape.sizes(["rows", "cols", "columns", "flags"])?;
    let flags = flags as u32;
    let stacked = if product.swiglu() { 2 * rows } else { rows };
    let t = Tensor::random(rng, format, stacked, cols);
    let weights = format.decode(&t.bytes, stacked, cols).map_err(refused)?;
    let quant_format = if product.is_quantized() { Some(shape.size("quant_format")?) } else { None };
    let inputs = inputs(rng, [rows, cols, columns, stacked], flags, quant_format);
    let (x_stride, y_stride) = (inputs.x_stride, inputs.y_stride);
    let got = multiply(bench, &t, product, &inputs)?;
    if product.is_many() {
        alone(bench, &t, product, &inputs, &got)?;
    }

    let parts = got.sums.len() / columns;
    // How far off the weights may make products of f16, too.
    let records = t.format.repack(&t.bytes, stacked, cols).map_err(refused)?;
    let in_f16 = product.quant_format(format).is_some_and(QuantFormat::is_half);
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
    // Of many columns some, in tiles and in places of tiles that change with their number, and the last.
    let step = match all.columns {
        ..=4 => 1,
        5..=16 => 3,
        17..=64 => 5,
        _ => 23,
    };
    let last = all.columns - 1;
    for n in (0..last).step_by(step).chain([last]) {
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
