//! Steps 4 and 5: the sum of a vector, in two launches.

use crate::bench::{Bench, Failure, Outcome, dimension, numbers, poison, worst};
use ladder_kernels::sum::{SumShuffle, SumTree, reference};

/// Blocks of the first launch.
const BLOCKS: usize = 16;

/// Sums up `n` elements.
pub fn run(bench: &Bench, step: u32, (rows, cols): (usize, usize)) -> Result<Outcome, Failure> {
    let stream = &bench.stream;
    let len = rows * cols;
    let n = dimension(len)?;
    let x_host = numbers(len, 3);
    let x = stream.upload(&x_host)?;
    let mut parts = stream.upload(&poison(BLOCKS))?;
    let mut sum = stream.upload(&poison(1))?;

    let counted = bench.count(|| match step {
        4 => {
            stream.launch(SumTree { x: &x, y: &mut parts, n })?;
            stream.launch(SumTree { x: &parts, y: &mut sum, n: BLOCKS as u32 })
        }
        _ => {
            stream.launch(SumShuffle { x: &x, y: &mut parts, n })?;
            stream.launch(SumShuffle { x: &parts, y: &mut sum, n: BLOCKS as u32 })
        }
    })?;

    let size: f64 = x_host.iter().map(|x| f64::from(x.abs())).sum();
    let error = worst(&stream.read(&sum)?, &[(reference(&x_host), 1e-6 * size)]);
    Outcome::new(error, len, 4 * len + 4, counted)
}
