//! Steps 1 to 3: `z = x + y`.

use crate::bench::{Bench, Failure, Outcome, dimension, numbers, poison, worst};
use ladder_kernels::add::{Add, AddRuns, AddVectors, reference};

/// Adds two vectors of `n` elements.
pub fn run(bench: &Bench, step: u32, (rows, cols): (usize, usize)) -> Result<Outcome, Failure> {
    let stream = &bench.stream;
    let len = rows * cols;
    let n = dimension(len)?;
    let (x_host, y_host) = (numbers(len, 1), numbers(len, 2));
    let (x, y) = (stream.upload(&x_host)?, stream.upload(&y_host)?);
    let mut z = stream.upload(&poison(len))?;

    let counted = bench.count(|| match step {
        1 => stream.launch(AddRuns { x: &x, y: &y, z: &mut z, n }),
        2 => stream.launch(Add { x: &x, y: &y, z: &mut z, n }),
        _ => stream.launch(AddVectors { x: &x, y: &y, z: &mut z, n }),
    })?;

    // Rounded to f32, which is what one addition gives: nothing is allowed beyond that.
    let expected: Vec<_> = reference(&x_host, &y_host).iter().map(|z| (f64::from(*z as f32), 0.0)).collect();
    Outcome::new(worst(&stream.read(&z)?, &expected), len, 12 * len, counted)
}
