//! Steps 9 and 10: RMS norm of rows.

use crate::bench::{Bench, Failure, Outcome, dimension, numbers, poison, worst};
use ladder_kernels::rms_norm::{RmsNorm, RowSquares, ScaleRows, reference};

/// Below the root.
const EPS: f32 = 1e-6;

/// Norms the rows of a matrix.
pub fn run(bench: &Bench, step: u32, (height, width): (usize, usize)) -> Result<Outcome, Failure> {
    let stream = &bench.stream;
    let cols = dimension(width)?;
    let len = height * width;
    let (x_host, w_host) = (numbers(len, 5), numbers(width, 6));
    let (x, w) = (stream.upload(&x_host)?, stream.upload(&w_host)?);
    let mut sums = stream.upload(&poison(height))?;
    let mut y = stream.upload(&poison(len))?;

    let counted = bench.count(|| match step {
        9 => {
            stream.launch(RowSquares { x: &x, sums: &mut sums, cols })?;
            stream.launch(ScaleRows { x: &x, sums: &sums, w: &w, y: &mut y, cols, eps: EPS })
        }
        _ => stream.launch(RmsNorm { x: &x, w: &w, y: &mut y, cols, eps: EPS }),
    })?;

    let expected: Vec<_> = reference(&x_host, &w_host, EPS).into_iter().map(|y| (y, 1e-6 * y.abs())).collect();
    Outcome::new(worst(&stream.read(&y)?, &expected), len, 8 * len + 4 * width, counted)
}
