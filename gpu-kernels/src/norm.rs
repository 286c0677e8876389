//! Root-mean-square normalisation: `y[r, c] = x[r, c] / sqrt(mean_c x[r, c]^2 + eps) * w[c]`.
//!
//! | | |
//! |---|---|
//! | `x`, `y` | f32 `[rows, cols]`, rows without gaps |
//! | `w` | f32 `[cols]`, taken as stored (nothing is added to it) |
//! | `eps` | inside the root; not negative |
//!
//! [`AddRmsNorm`] first adds `x` to `residual`, in place, and norms that: `residual += x`, `y = norm(residual)`. The norm of
//! each head of queries or keys alone is [`RmsNorm`] with `cols = head_dim`.
//!
//! A block takes a row, of any length from 1 on. Sums are f32, in an order that depends on the row's
//! length alone. Source: Zhang and Sennrich, arXiv 1910.07467, as in Llama and Qwen.

use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// The definition in f64.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: &[f32], w: &[f32], eps: f32) -> Vec<f64> {
    let mut y = Vec::with_capacity(x.len());
    for row in x.chunks_exact(w.len()) {
        let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        y.extend(row.iter().zip(w).map(|(v, w)| f64::from(*v) * scale * f64::from(*w)));
    }
    y
}

/// The factor of a row whose squares sum to `squares`. Correctly rounded: it runs once a row.
#[inline(always)]
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
fn factor(squares: f32, cols: usize, eps: f32) -> f32 {
    1.0 / math::sqrt(squares / cols as f32 + eps)
}

/// Norms a row that is gone through twice, by the same threads at the same places: `first` and `again` give its elements,
/// four from a place on or a single one. 16 bytes at a time where rows are aligned for it.
///
/// # Safety
/// All threads of the block make this call; row, weight and output have `cols` elements, and begin at a multiple of 16 bytes.
#[device]
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
unsafe fn norm(
    first: (impl Fn(usize) -> [f32; 4], impl Fn(usize) -> f32),
    again: (impl Fn(usize) -> [f32; 4], impl Fn(usize) -> f32),
    w: In<f32>,
    y: Out<f32>,
    (cols, eps): (usize, f32),
    scratch: Shared<f32>,
) {
    let thread = thread::idx_x() as usize;
    // The row's length alone decides whether all rows are aligned, for all threads alike.
    let vectors = if cols % 4 == 0 { cols / 4 } else { 0 };
    let rest = vectors * 4;

    let mut squares = 0.0;
    let mut v = thread;
    while v < vectors {
        let [a, b, c, d] = first.0(4 * v);
        squares = math::fma(a, a, math::fma(b, b, math::fma(c, c, math::fma(d, d, squares))));
        v += THREADS as usize;
    }
    let mut c = rest + thread;
    while c < cols {
        let v = first.1(c);
        squares = math::fma(v, v, squares);
        c += THREADS as usize;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let scale = factor(block_reduce::sum_f32(squares, scratch), cols, eps);
        let mut v = thread;
        while v < vectors {
            let (a, b) = (again.0(4 * v), x4(w, 4 * v));
            let out = [a[0] * scale * b[0], a[1] * scale * b[1], a[2] * scale * b[2], a[3] * scale * b[3]];
            set4(y, 4 * v, out);
            v += THREADS as usize;
        }
        let mut c = rest + thread;
        while c < cols {
            y.set(c, again.1(c) * scale * w.at(c));
            c += THREADS as usize;
        }
    }
}

/// A block a row, with 16-byte loads and stores where every row is aligned for them.
#[kernel(block = THREADS, min_blocks = 4)]
pub unsafe fn rms_norm(x: In<f32>, w: In<f32>, y: Out<f32>, cols: u32, eps: f32) {
    let scratch = shared_array!(RMS_NORM: [f32; 32]);
    let cols = cols as usize;
    let row = block::idx_x() as usize * cols;
    let (x, y) = (x.from(row), y.from(row));
    let elements = (|i| x4(x, i), |i| x.at(i));
    norm(elements, elements, w, y, (cols, eps), scratch);
}

/// Residual addition and norm in one: `residual += x`, `y = norm(residual) * w`, a block a row, 16 bytes at a time where
/// rows are aligned for it.
#[kernel(block = THREADS, min_blocks = 4)]
pub unsafe fn add_rms_norm(x: In<f32>, residual: InOut<f32>, w: In<f32>, y: Out<f32>, cols: u32, eps: f32) {
    let scratch = shared_array!(ADD_RMS_NORM: [f32; 32]);
    let cols = cols as usize;
    let row = block::idx_x() as usize * cols;
    let (x, residual, y) = (x.from(row), residual.from(row), y.from(row));
    let add4 = |i| {
        let (a, b) = (x4(x, i), residual.load4(i).0);
        let sum = [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]];
        residual.store4(i, F32x4(sum));
        sum
    };
    let add = |i| {
        let sum = x.at(i) + residual.get(i);
        residual.set(i, sum);
        sum
    };
    // A thread reads again what it wrote itself.
    let again = (|i| residual.load4(i).0, |i| residual.get(i));
    norm((add4, add), again, w, y, (cols, eps), scratch);
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::load::{set4, x4};

#[cfg(not(target_arch = "nvptx64"))]
fn contract_of(
    meta: &'static KernelMeta,
    x: &DeviceSlice<f32>,
    w: &DeviceSlice<f32>,
    y: &DeviceSlice<f32>,
    cols: u32,
    eps: f32,
) -> Result<(), ContractError> {
    contract::require(meta, cols > 0, "cols", "at least 1", 0)?;
    contract::require(meta, eps >= 0.0 && eps.is_finite(), "eps", "a finite number, not negative", eps)?;
    contract::require(meta, !x.is_empty(), "x", "at least one row", 0)?;
    contract::multiple_of(meta, "x", x.len(), (cols, "cols"))?;
    contract::exactly(meta, "w", w.len(), (cols, "cols"))?;
    contract::exactly(meta, "y", y.len(), (x.len(), "as `x`"))
}

#[cfg(not(target_arch = "nvptx64"))]
fn geometry_of(x: &DeviceSlice<f32>, cols: u32) -> Geometry {
    Geometry::blocks(x.len().checked_div(cols as usize).unwrap_or(0))
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for RmsNorm<'_> {
    fn geometry(&self) -> Geometry {
        geometry_of(self.x, self.cols)
    }
    fn check(&self) -> Result<(), ContractError> {
        contract_of(Self::META, self.x, self.w, self.y, self.cols, self.eps)?;
        for (name, slice) in [("x", self.x), ("w", self.w), ("y", &*self.y)] {
            contract::multiple_of(Self::META, name, (slice.address(), "its address"), 16u32)?;
        }
        Ok(())
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for AddRmsNorm<'_> {
    fn geometry(&self) -> Geometry {
        geometry_of(self.x, self.cols)
    }
    fn check(&self) -> Result<(), ContractError> {
        contract_of(Self::META, self.x, self.w, self.y, self.cols, self.eps)?;
        contract::exactly(Self::META, "residual", self.residual.len(), (self.x.len(), "as `x`"))?;
        for (name, slice) in [("x", self.x), ("residual", &*self.residual), ("w", self.w), ("y", &*self.y)] {
            contract::multiple_of(Self::META, name, (slice.address(), "its address"), 16u32)?;
        }
        Ok(())
    }
}

/// The cases of these kernels.
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases {
    use super::{AddRmsNorm, RmsNorm, reference};
    use crate::cases::{Bench, Listed, Measured, NamedSizes, Outcome, Plain, Rng, Shape, close, same, why};

    const SIZES: NamedSizes = &[("rows", 1), ("cols", 1024)];
    const EPS: f32 = 1e-6;

    fn shapes() -> Vec<Vec<usize>> {
        [1, 2, 3, 4, 5, 31, 32, 33, 64, 255, 256, 257, 1000, 1023, 1024, 1025, 2560, 5120, 16384]
            .map(|cols| vec![1 + cols % 3, cols])
            .to_vec()
    }

    fn norms(got: &[f32], want: &[f64]) -> Outcome {
        close(got, want, |i| 2e-6 * want[i].abs() + 1e-30)
    }

    /// RMS norm.
    pub struct RmsNorms;

    impl Plain for RmsNorms {
        const SIZES: NamedSizes = SIZES;

        fn kernels() -> Vec<Listed> {
            vec![Listed::new::<RmsNorm<'_>>(Measured::By("norm"), Measured::Not(why::SMALL))]
        }

        fn shapes() -> Vec<Vec<usize>> {
            shapes()
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            let ([rows, cols], eps) = (shape.sizes(["rows", "cols"])?, EPS);
            let (x, w) = (rng.floats(rows * cols), rng.floats(cols));
            let want = reference(&x, &w, eps);
            let (x, w, mut y) = (bench.upload(&x)?, bench.upload(&w)?, bench.output::<f32>(rows * cols)?);
            bench.launch(RmsNorm { x: &x, w: &w, y: &mut y, cols: cols as u32, eps })?;
            norms(&bench.read(&y)?, &want)
        }
    }

    /// Residual addition and norm.
    pub struct AddRmsNorms;

    impl Plain for AddRmsNorms {
        const SIZES: NamedSizes = SIZES;

        fn kernels() -> Vec<Listed> {
            vec![Listed::unmeasured::<AddRmsNorm<'_>>(why::SMALL)]
        }

        fn shapes() -> Vec<Vec<usize>> {
            shapes()
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            let ([rows, cols], eps) = (shape.sizes(["rows", "cols"])?, EPS);
            let (x, r, w) = (rng.floats(rows * cols), rng.floats(rows * cols), rng.floats(cols));
            let sum: Vec<f32> = x.iter().zip(&r).map(|(x, r)| x + r).collect();
            let (dx, mut residual, w_) = (bench.upload(&x)?, bench.upload(&r)?, bench.upload(&w)?);
            let mut y = bench.output::<f32>(rows * cols)?;
            bench.launch(AddRmsNorm { x: &dx, residual: &mut residual, w: &w_, y: &mut y, cols: cols as u32, eps })?;
            // One addition, correctly rounded, whose result is what is normed.
            same(&bench.read(&residual)?, &sum)?;
            norms(&bench.read(&y)?, &reference(&sum, &w, eps))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(len: usize) -> &'static DeviceSlice<f32> {
        // SAFETY: nothing is launched, so nothing reads the memory.
        unsafe { DeviceSlice::from_raw(0x1000, len) }
    }
    fn out(len: usize) -> &'static mut DeviceSlice<f32> {
        // SAFETY: nothing is launched, so nothing writes the memory.
        unsafe { DeviceSlice::from_raw_mut(0x8000, len) }
    }

    #[test]
    fn reference_is_the_definition() {
        // mean(9, 16) = 12.5
        let y = reference(&[3.0, 4.0], &[1.0, 2.0], 0.0);
        assert!((y[0] - 3.0 / 12.5f64.sqrt()).abs() < 1e-15 && (y[1] - 8.0 / 12.5f64.sqrt()).abs() < 1e-15);
        assert_eq!(reference(&[0.0, 0.0], &[1.0, 1.0], 1e-6), [0.0, 0.0]);
    }

    #[test]
    fn contract_names_the_argument() {
        let launch = |x, w, y, cols, eps| RmsNorm { x: slice(x), w: slice(w), y: out(y), cols, eps }.check();
        assert!(launch(512, 256, 512, 256, 1e-6).is_ok());
        assert_eq!(launch(512, 128, 512, 256, 1e-6).unwrap_err().argument, "w");
        assert_eq!(launch(500, 256, 500, 256, 1e-6).unwrap_err().argument, "x");
        assert_eq!(launch(0, 256, 0, 256, 1e-6).unwrap_err().argument, "x");
        assert_eq!(launch(512, 256, 511, 256, 1e-6).unwrap_err().argument, "y");
        assert_eq!(launch(512, 256, 512, 0, 1e-6).unwrap_err().argument, "cols");
        assert_eq!(launch(512, 256, 512, 256, f32::NAN).unwrap_err().argument, "eps");
        let (x, w) = (slice(8), slice(8));
        let short = AddRmsNorm { x, residual: out(7), w, y: out(8), cols: 8, eps: 0.0 };
        assert_eq!(short.check().unwrap_err().argument, "residual");
        let odd = RmsNorm { x: &slice(9)[1..], w: slice(8), y: out(8), cols: 8, eps: 0.0 };
        assert_eq!(odd.check().unwrap_err().argument, "x");
    }
}
