//! Steps 15 to 18: a matrix in Q8_0 times a vector.

use super::gemv::TOLERANCE;
use crate::bench::{Bench, Failure, Outcome, dimension, numbers, poison, worst};
use ladder_kernels::gemv::reference;
use ladder_kernels::q8_0::{Q80Blocks, Q80Rows, Q80Swizzled, Q80Vectors, Split, dequantise, quantise};

/// Multiplies a matrix with a vector.
pub fn run(bench: &Bench, step: u32, (height, width): (usize, usize)) -> Result<Outcome, Failure> {
    let stream = &bench.stream;
    let (rows, cols) = (dimension(height)?, dimension(width)?);
    let len = height * width;
    let (blocks_host, x_host) = (quantise(&numbers(len, 7)), numbers(width, 8));
    let x = stream.upload(&x_host)?;
    let mut y = stream.upload(&poison(height))?;

    let counted = if step == 15 {
        let blocks = stream.upload(&blocks_host)?;
        bench.count(|| stream.launch(Q80Blocks { blocks: &blocks, x: &x, y: &mut y, rows, cols }))?
    } else {
        let split = Split::of(&blocks_host);
        let (codes, scales) = (stream.upload(&split.codes)?, stream.upload(&split.scales)?);
        let (codes, scales) = (&codes, &scales);
        bench.count(|| match step {
            16 => stream.launch(Q80Vectors { codes, scales, x: &x, y: &mut y, rows, cols }),
            17 => stream.launch(Q80Swizzled { codes, scales, x: &x, y: &mut y, rows, cols }),
            _ => stream.launch(Q80Rows { codes, scales, x: &x, y: &mut y, rows, cols }),
        })?
    };

    // What the codes stand for is the matrix: rounding to eight bits is no error of the kernel.
    let expected: Vec<_> =
        reference(&dequantise(&blocks_host), &x_host).into_iter().map(|(y, size)| (y, TOLERANCE * size)).collect();
    Outcome::new(worst(&stream.read(&y)?, &expected), len, 2 * blocks_host.len() + 4 * (width + height), counted)
}
