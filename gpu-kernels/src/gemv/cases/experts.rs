//! Products with one of several matrices for each column: each has the bits of the product with its matrix alone, which other cases
//! compare with the f64 reference.

use super::{Inputs, Outputs, Product, in_turn, multiply};
use crate::cases::{Bench, Failure, Listed, NamedSizes, Operation, Outcome, Rng, Shape, Tensor, same};
use crate::elementwise::Glu;
use crate::experts::GroupExperts;
use crate::format::Format;
use crate::gemv::{ADD, BIAS, CLAMPED, NEXT, NORM, QuantFormat};
use warpsmith_device::Kernel;

/// Matrices by a table, by the format of the weights and the entry point.
pub struct ExpertProducts;

impl Operation for ExpertProducts {
    type Variant = (Format, Product);

    /// They are those of all products.
    fn kernels() -> Vec<Listed> {
        Vec::new()
    }

    fn variants() -> Vec<(Format, Product)> {
        let takes = |p: &Product| !matches!(p, Product::Naive | Product::FourRows);
        let of = |format| Product::of(format).into_iter().filter(takes).map(move |product| (format, product));
        Format::ALL.into_iter().flat_map(of).collect()
    }

    fn launches((format, product): (Format, Product)) -> Vec<&'static str> {
        let group = product.takes_group().then_some(GroupExperts::META.name);
        let quantizer = product.quant_format(format).map(QuantFormat::kernel);
        quantizer.into_iter().chain(group).chain([product.meta(format).name]).collect()
    }

    fn sizes(_: (Format, Product)) -> NamedSizes {
        &[("rows", 256), ("cols", 512), ("matrices", 8), ("columns", 2), ("sharing", 2), ("flags", 0), ("output", 0)]
    }

    fn shapes((format, product): (Format, Product)) -> Vec<Vec<usize>> {
        let block = format.block_elems();
        let n = format as usize + product as usize;
        let clamped = if product.swiglu() { CLAMPED } else { 0 };
        let flags = [BIAS, NORM | NEXT, ADD | BIAS, NEXT | clamped][n % 4] as usize;
        let norm = (NORM | BIAS | clamped) as usize;
        // A row that fills no lanes and one of several runs of blocks; columns that share an input, and that do not; a matrix alone.
        // Several columns a block: tiles of one, full ones and rests, and matrices without any; in the matrix alone outputs that become
        // planes too where it reads these, and rows that are longer than what is staged at a time.
        let planes = product.quant_format(format).is_some_and(QuantFormat::is_planes);
        let alone = if planes { 128 } else { 32 };
        let many = [[131, 96, 3, 102, 3, flags], [37, 1056, 40, 14, 1, norm], [alone, 1056, 1, 34, 2, 0]];
        let few = [[5, 96, 3, 6, 3, flags], [37, 1056, 4, 3, 1, norm], [64, 320, 1, 4, 2, 0]];
        let shapes = if product.takes_group() { many } else { few };
        let shape = |(i, [rows, cols, rest @ ..]): (usize, [usize; 6])| {
            let output = if product.is_quantized() { in_turn(n + i, rows) } else { 0 };
            [&[rows, usize::div_ceil(cols, block) * block], &rest[..], &[output]].concat()
        };
        // All layouts find their matrices alike: where columns are many, which takes long, they have the shapes in turn.
        let in_turn = |(i, _): &(usize, _)| !product.takes_group() || (n + i).is_multiple_of(3);
        shapes.into_iter().enumerate().filter(in_turn).map(shape).collect()
    }

    fn run<B: Bench>((format, product): (Format, Product), shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        let [rows, cols, matrices, columns] = shape.sizes(["rows", "cols", "matrices", "columns"])?;
        let [sharing, flags, quant_format] = shape.sizes(["sharing", "flags", "output"])?;
        let (inputs, flags) = (columns / sharing, flags as u32);
        let stacked = if product.swiglu() { 2 * rows } else { rows };
        let stack = Tensor::random(rng, format, matrices * stacked, cols);
        // Any of them, the same twice, and a number that none has: the last is taken.
        let mut chosen: Vec<u32> = (0..columns).map(|_| rng.within(0, matrices - 1) as u32).collect();
        if let [first, .., last] = &mut chosen[..] {
            (*first, *last) = (*last, u32::MAX);
        }
        let (x_stride, y_stride) = (cols.next_multiple_of(4) + 4, rows + 3);
        let mut all = Inputs { x: vec![f32::NAN; inputs * x_stride], columns, x_stride, y_stride, ..Inputs::default() };
        all.x.chunks_exact_mut(x_stride).for_each(|x| x[..cols].copy_from_slice(&rng.floats(cols)));
        if flags & ADD != 0 {
            all.add = Some((rng.floats(columns * rows), rows));
        }
        if flags & BIAS != 0 {
            all.bias = Some(rng.floats(matrices * stacked));
        }
        if flags & CLAMPED != 0 {
            all.glu = Some(Glu::Clamped);
        }
        if flags & NORM != 0 {
            all.norm = Some((rng.floats(inputs * 7).iter().map(|v| v.abs() * cols as f32).collect(), 1e-6));
        }
        if flags & NEXT != 0 {
            all.next = Some(rng.floats(rows));
        }
        let given = Inputs { experts: Some((chosen.clone(), matrices, sharing)), quant_format, ..all.clone() };
        let got = multiply(bench, &stack, product, &given)?;
        let (bits, parts) = (|v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<u32>>(), got.sums.len() / columns);
        // Of many columns a fifth, in every place among those that share an input, and the last.
        let step = if columns > 20 { 5 } else { 1 };
        let looked_at = |n: &usize| n.is_multiple_of(step) || n + 1 == columns;
        for (n, matrix) in chosen.into_iter().enumerate().filter(|(n, _)| looked_at(n)) {
            let (matrix, bytes) = ((matrix as usize).min(matrices - 1), stack.bytes.len() / matrices);
            let alone = Tensor { format, bytes: stack.bytes[matrix * bytes..][..bytes].to_vec(), rows: stacked, cols };
            let norm = all.norm.as_ref().map(|(sums, eps)| (sums[n / sharing * 7..][..7].to_vec(), *eps));
            let input = Inputs {
                x: all.x[n / sharing * x_stride..][..x_stride].to_vec(),
                columns: 1,
                add: all.add.as_ref().map(|(v, _)| (v[n * rows..][..rows].to_vec(), rows)),
                bias: all.bias.as_ref().map(|v| v[matrix * stacked..][..stacked].to_vec()),
                norm,
                ..all.clone()
            };
            let Outputs { y, scaled, sums } = multiply(bench, &alone, product, &input)?;
            same(&bits(&got.y[n * y_stride..][..y_stride]), &bits(&y))?;
            same(&bits(&got.scaled[n * y_stride..][..y_stride]), &bits(&scaled))?;
            same(&bits(&got.sums[n * parts..][..parts]), &bits(&sums))?;
        }
        if matrices == 1 && product.takes_group() {
            // One input is no number, in the middle of a tile.
            let (nan, mut x) = (inputs / 3, given.x.clone());
            x[nan * x_stride..][..cols].fill(f32::NAN);
            let beside = multiply(bench, &stack, product, &Inputs { x, quant_format: 0, ..given })?;
            for n in 0..columns {
                let of = |of: &Outputs| of.y[n * y_stride..][..rows].to_vec();
                let (was, is) = (of(&got), of(&beside));
                if n / sharing != nan {
                    same(&bits(&is), &bits(&was))?;
                } else if !is.iter().all(|v| v.is_nan()) {
                    return Err(Failure::Wrong(format!("column {n} is of NaN, and gives {is:?}")));
                }
            }
        }
        Ok(())
    }
}
