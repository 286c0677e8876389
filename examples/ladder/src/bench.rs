//! Where a step runs, and what it gives.

use crate::count::{self, Counted};
use warpsmith_host::{Device, Error, KernelImage, Stream, include_kernels};

static KERNELS: KernelImage = include_kernels!("ladder_kernels");

/// Why a step failed, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A device with the ladder's kernels, and a stream on it.
pub struct Bench {
    /// The device.
    pub device: Device,
    /// Where steps launch.
    pub stream: Stream,
}

impl Bench {
    /// The first GPU, or the software driver where there is none.
    pub fn open() -> Result<Bench, Error> {
        let device = Device::open(0)?;
        device.load(&KERNELS)?;
        let stream = device.stream()?;
        Ok(Bench { device, stream })
    }

    /// Runs launches, and counts what they do if the engine can: the software driver does.
    pub fn count(&self, launches: impl FnOnce() -> Result<(), Error>) -> Result<Option<Counted>, Error> {
        self.stream.synchronize()?;
        count::count(self.device.is_software(), || {
            launches()?;
            self.stream.synchronize()
        })
    }
}

/// What a step gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The largest error, as a share of what is allowed.
    pub error: f64,
    /// Elements by which instructions are divided: outputs, or weights of a matrix.
    pub elements: usize,
    /// Bytes that any kernel for the problem has to move.
    pub floor: usize,
    /// Counters; none on a GPU.
    pub counted: Option<Counted>,
    /// What else the step has to say.
    pub notes: Vec<String>,
}

impl Outcome {
    /// A step that passed its comparison, of which nothing is counted yet.
    pub fn new(error: f64, elements: usize, floor: usize, counted: Option<Counted>) -> Result<Outcome, Failure> {
        if error <= 1.0 {
            return Ok(Outcome { error, elements, floor, counted, notes: Vec::new() });
        }
        Err(format!("the result is off by {error:.3} of what is allowed").into())
    }
}

/// The largest error of `got` as a share of what is allowed. `expected` has values in f64, each with its allowance.
pub fn worst(got: &[f32], expected: &[(f64, f64)]) -> f64 {
    if got.len() != expected.len() {
        return f64::INFINITY;
    }
    let share = |(got, (want, allowed)): (&f32, &(f64, f64))| {
        let error = (f64::from(*got) - want).abs();
        // A value that was never written is NaN, which is no error of zero.
        if error == 0.0 {
            0.0
        } else if error.is_nan() {
            f64::INFINITY
        } else {
            error / allowed
        }
    };
    got.iter().zip(expected).map(share).fold(0.0, f64::max)
}

/// What no kernel has written yet.
pub fn poison(len: usize) -> Vec<f32> {
    vec![f32::NAN; len]
}

/// `len` numbers between -1 and 1, the same for the same seed (a linear congruential generator, Knuth's MMIX constants).
pub fn numbers(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u64 << 23) as f32) - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// A dimension as kernels take it.
pub fn dimension(n: usize) -> Result<u32, Failure> {
    u32::try_from(n).map_err(|_| format!("{n} elements are too many for one dimension").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_written_is_wrong() {
        assert_eq!(worst(&poison(1), &[(0.0, 1.0)]), f64::INFINITY);
        assert_eq!(worst(&[1.0], &[]), f64::INFINITY);
        assert_eq!(worst(&[1.0, 2.5], &[(1.0, 0.0), (2.0, 1.0)]), 0.5);
        assert_eq!(worst(&[1.0], &[(2.0, 0.0)]), f64::INFINITY);
        assert!(Outcome::new(1.5, 1, 1, None).is_err());
    }

    #[test]
    fn numbers_are_spread() {
        let numbers = numbers(1000, 1);
        assert!(numbers.iter().all(|x| (-1.0..1.0).contains(x)));
        assert!(numbers.iter().sum::<f32>().abs() < 100.0 && numbers.iter().any(|x| *x > 0.9));
    }
}
