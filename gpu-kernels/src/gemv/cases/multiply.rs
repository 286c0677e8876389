//! The launch of a product with a tensor.

use super::product::Product;
use super::quantized::QuantizedOutput;
use crate::activation::Activation;
use crate::cases::{Bench, Failure, Tensor, refused};
use crate::elementwise::Glu;
use crate::experts::{GroupExperts, group::tiles};
use crate::format::Format;
use crate::gemv::four_rows::GemvF16V3;
use crate::gemv::naive::{GemvF32V1, GemvQ80V1};
use crate::gemv::{Gemv, Quantize, parts_with};
use warpsmith_device::U32x4;

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
    /// Number of the format that outputs are quantized to as well, and compared with what a launch of its own gives; 0: none.
    pub quant_format: usize,
    /// What comes of gates and ups; of none SwiGLU.
    pub glu: Option<Glu>,
    /// What comes of outputs without gates.
    pub activation: Option<Activation>,
    /// A bias of each row of weights.
    pub bias: Option<Vec<f32>>,
    /// Where the tensor is a stack of matrices: which each column is multiplied with, how many there are, and how many columns
    /// have one of `x`.
    pub experts: Option<(Vec<u32>, usize, usize)>,
}

impl Inputs {
    /// One column and nothing else.
    pub fn one(x: &[f32], rows: usize) -> Inputs {
        Inputs { x: x.to_vec(), columns: 1, x_stride: x.len(), y_stride: rows, ..Inputs::default() }
    }

    /// `columns` of the columns, from `from` on, for a product of `rows` outputs.
    #[must_use]
    pub fn part(&self, from: usize, columns: usize, rows: usize) -> Inputs {
        let of = |v: &[f32], stride: usize| v[from * stride..][..columns * stride].to_vec();
        // What all columns share has stride 0.
        let add = |(v, stride): &(Vec<f32>, usize)| match stride {
            0 => (v[..rows].to_vec(), 0),
            stride => (of(v, *stride), *stride),
        };
        Inputs {
            x: of(&self.x, self.x_stride),
            columns,
            add: self.add.as_ref().map(add),
            norm: self.norm.as_ref().map(|(v, eps)| (of(v, v.len() / self.columns), *eps)),
            ..self.clone()
        }
    }
}

/// Launches a product with a tensor; what is not written shows as NaN.
pub fn multiply<B: Bench>(bench: &mut B, t: &Tensor, product: Product, i: &Inputs) -> Result<Outputs, Failure> {
    let records = bench.upload(&t.format.repack(&t.bytes, t.rows, t.cols).map_err(refused)?)?;
    let (matrices, sharing) = i.experts.as_ref().map_or((1, 1), |(_, matrices, sharing)| (*matrices, *sharing));
    let rows = t.rows / matrices / if product.swiglu() { 2 } else { 1 };
    let inputs = i.columns / sharing;
    let chosen = i.experts.as_ref().map(|(chosen, ..)| bench.upload(chosen)).transpose()?;
    let tiles = tiles(i.columns as u32, matrices as u32);
    let mut group = bench.output::<u32>(3 * tiles as usize + i.columns)?;
    let (rows32, cols) = (rows as u32, t.cols as u32);
    let x = bench.upload(&i.x)?;
    let add = i.add.as_ref().map(|(v, stride)| Ok::<_, String>((bench.upload(v)?, *stride as u32))).transpose()?;
    let bias = i.bias.as_ref().map(|v| bench.upload(v)).transpose()?;
    let norm = i.norm.as_ref().map(|(v, eps)| Ok::<_, String>((bench.upload(v)?, *eps))).transpose()?;
    let weight = i.next.as_ref().map(|v| bench.upload(v)).transpose()?;
    let nothing = |n: usize| vec![f32::NAN; n];
    let mut y = bench.upload(&nothing(i.columns * i.y_stride))?;
    let mut scaled = bench.upload(&nothing(i.columns * i.y_stride))?;
    let format = product.quant_format(t.format);
    let parts = parts_with(format, rows32, cols, product.swiglu()) as usize;
    let mut sums = bench.upload(&nothing(i.columns * parts))?;
    // Activations that are not written give sums that nobody expects.
    let vectors = format.map_or(1, |c| inputs * c.len(cols) as usize);
    let mut activations = bench.upload(&vec![U32x4([u32::MAX; 4]); vectors])?;
    let mut output = QuantizedOutput::new(bench, i.quant_format, i.columns, rows)?;
    match (product, t.format) {
        (Product::Naive, Format::F32) => {
            bench.launch(GemvF32V1 { weights: &records, x: &x, y: &mut y, rows: rows32, cols })?;
        }
        (Product::FourRows, _) => {
            bench.launch(GemvF16V3 { weights: &records, x: &x, y: &mut y, rows: rows32, cols })?;
        }
        (Product::Naive, _) => {
            bench.launch(GemvQ80V1 { weights: &records, x: &x, y: &mut y, rows: rows32, cols })?;
        }
        _ => {
            let mut launch = match product.quantized(t.format) {
                None => Gemv::new(t.format, &records, rows32, cols, &x, &mut y),
                Some(product) => {
                    let quantize = Quantize::new(product.quant_format(), &x, &mut activations, cols);
                    quantize.columns(inputs as u32, i.x_stride as u32).launch(bench)?;
                    Gemv::quantized(product, &records, rows32, cols, &activations, &mut y)
                }
            };
            launch = launch.columns(inputs as u32, i.x_stride as u32, i.y_stride as u32);
            if product.swiglu() {
                launch = launch.glu(i.glu.unwrap_or(Glu::Silu));
            }
            if let Some(chosen) = &chosen {
                launch = launch.experts(chosen, matrices as u32, sharing as u32);
                if product.takes_group() {
                    let (columns, matrices) = (i.columns as u32, matrices as u32);
                    bench.launch(GroupExperts { chosen, table: &mut group, columns, matrices, tiles })?;
                    launch = launch.group(Some(&group));
                }
            }
            launch = launch.bias(bias.as_deref()).activation(i.activation);
            if let Some((add, stride)) = &add {
                launch = launch.add(add, *stride);
            }
            if let Some((sums, eps)) = &norm {
                launch = launch.norm(sums, (sums.len() / inputs) as u32, *eps);
            }
            if let Some(weight) = &weight {
                launch = launch.next(weight, &mut scaled, &mut sums);
            }
            launch.quantize_output(output.as_mut().map(QuantizedOutput::written)).launch(bench)?;
        }
    }
    if let Some(output) = output {
        let values = bench.read(if i.next.is_some() { &scaled } else { &y })?;
        output.check(bench, &values, i.y_stride)?;
    }
    Ok(Outputs { y: bench.read(&y)?, scaled: bench.read(&scaled)?, sums: bench.read(&sums)? })
}
