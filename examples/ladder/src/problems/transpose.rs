//! Steps 6 to 8: the transposition of a matrix.

use crate::bench::{Bench, Failure, Outcome, dimension, numbers, poison, worst};
use ladder_kernels::transpose::{Transpose, TransposeSwizzled, TransposeTile, reference};

/// Transposes a matrix.
pub fn run(bench: &Bench, step: u32, (height, width): (usize, usize)) -> Result<Outcome, Failure> {
    let stream = &bench.stream;
    let (rows, cols) = (dimension(height)?, dimension(width)?);
    let len = height * width;
    let x_host = numbers(len, 4);
    let x = stream.upload(&x_host)?;
    let mut y = stream.upload(&poison(len))?;

    let counted = bench.count(|| match step {
        6 => stream.launch(Transpose { x: &x, y: &mut y, rows, cols }),
        7 => stream.launch(TransposeTile { x: &x, y: &mut y, rows, cols }),
        _ => stream.launch(TransposeSwizzled { x: &x, y: &mut y, rows, cols }),
    })?;

    let expected: Vec<_> = reference(&x_host, height, width).into_iter().map(|y| (y, 0.0)).collect();
    Outcome::new(worst(&stream.read(&y)?, &expected), len, 8 * len, counted)
}
