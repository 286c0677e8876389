//! Steps 11 to 14: a matrix of f32 times a vector.

use crate::bench::{Bench, Failure, Outcome, dimension, numbers, poison, worst};
use ladder_kernels::gemv::{GemvShared, GemvThread, GemvVectors, GemvWarp, reference};

/// An error is judged by the sum of the products' magnitudes.
pub(super) const TOLERANCE: f64 = 1e-5;

/// Multiplies a matrix with a vector.
pub fn run(bench: &Bench, step: u32, (height, width): (usize, usize)) -> Result<Outcome, Failure> {
    let stream = &bench.stream;
    let (rows, cols) = (dimension(height)?, dimension(width)?);
    let len = height * width;
    let (w_host, x_host) = (numbers(len, 7), numbers(width, 8));
    let (w, x) = (stream.upload(&w_host)?, stream.upload(&x_host)?);
    let mut y = stream.upload(&poison(height))?;

    let counted = bench.count(|| match step {
        11 => stream.launch(GemvThread { w: &w, x: &x, y: &mut y, rows, cols }),
        12 => stream.launch(GemvWarp { w: &w, x: &x, y: &mut y, rows, cols }),
        13 => stream.launch(GemvVectors { w: &w, x: &x, y: &mut y, rows, cols }),
        _ => stream.launch(GemvShared { w: &w, x: &x, y: &mut y, rows, cols }),
    })?;

    let expected: Vec<_> = reference(&w_host, &x_host).into_iter().map(|(y, size)| (y, TOLERANCE * size)).collect();
    Outcome::new(worst(&stream.read(&y)?, &expected), len, 4 * (len + width + height), counted)
}
