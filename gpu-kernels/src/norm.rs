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

/// Norms a row that is gone through twice, by the same threads at the same places: `first` and `again` give its elements, `N`
/// from a place on or a single one, and `put` takes what comes of them. 16 bytes at a time where rows are aligned for it. With
/// `CENTERED` the mean is taken off first, the row is gone through once more, and a bias is added if there is one.
///
/// # Safety
/// All threads of the block make this call; row, weight, bias and output have `cols` elements, and begin at a multiple of 16 bytes
/// where `cols` is a multiple of `N`.
#[device]
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) unsafe fn norm<W: Wide<N>, const N: usize, const CENTERED: bool>(
    first: (impl Fn(usize) -> [f32; N], impl Fn(usize) -> f32),
    again: (impl Fn(usize) -> [f32; N], impl Fn(usize) -> f32),
    (w, bias): (In<W>, Option<In<W>>),
    put: (impl Fn(usize, [f32; N]), impl Fn(usize, f32)),
    (cols, eps): (usize, f32),
    scratch: Shared<f32>,
) {
    let thread = thread::idx_x() as usize;
    // The row's length alone decides whether all rows are aligned, for all threads alike.
    let vectors = if cols % N == 0 { cols / N } else { 0 };
    let rest = vectors * N;

    let mut mean = 0.0;
    if CENTERED {
        let mut sum = 0.0;
        let mut v = thread;
        while v < vectors {
            let row = first.0(N * v);
            static_for!(i in 0..N => {
                sum += row[i];
            });
            v += THREADS as usize;
        }
        let mut c = rest + thread;
        while c < cols {
            sum += first.1(c);
            c += THREADS as usize;
        }
        // SAFETY: the caller's promise.
        mean = unsafe { block_reduce::sum_f32(sum, scratch) } / cols as f32;
    }
    let mut squares = 0.0;
    let mut v = thread;
    while v < vectors {
        let row = if CENTERED { again.0(N * v) } else { first.0(N * v) };
        static_for!(i in 0..N => {
            let v = if CENTERED { row[N - 1 - i] - mean } else { row[N - 1 - i] };
            squares = math::fma(v, v, squares);
        });
        v += THREADS as usize;
    }
    let mut c = rest + thread;
    while c < cols {
        let v = if CENTERED { again.1(c) - mean } else { first.1(c) };
        squares = math::fma(v, v, squares);
        c += THREADS as usize;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let scale = factor(block_reduce::sum_f32(squares, scratch), cols, eps);
        let scaled = |v: f32| if CENTERED { (v - mean) * scale } else { v * scale };
        let weighted = |v: f32, w: f32, bias: f32| if CENTERED { math::fma(v, w, bias) } else { v * w };
        let mut v = thread;
        while v < vectors {
            let (mut row, w) = (again.0(N * v), W::load(w.ptr().add(N * v)));
            let mut b = [0.0; N];
            if let (true, Some(bias)) = (CENTERED, bias) {
                b = W::load(bias.ptr().add(N * v));
            }
            static_for!(i in 0..N => {
                row[i] = weighted(scaled(row[i]), w[i], b[i]);
            });
            put.0(N * v, row);
            v += THREADS as usize;
        }
        let mut c = rest + thread;
        while c < cols {
            let b = if let (true, Some(bias)) = (CENTERED, bias) { bias.at(c).widen() } else { 0.0 };
            let v = scaled(again.1(c));
            put.1(c, weighted(v, w.at(c).widen(), b));
            c += THREADS as usize;
        }
    }
}

/// [`RmsNorm`] of a row.
///
/// # Safety
/// As [`norm`].
#[device]
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) unsafe fn rms_norm_row<T: Wide<N>, const N: usize>(
    (x, w, y): (In<T>, In<T>, Out<T>),
    sizes: (usize, f32),
    scratch: Shared<f32>,
) {
    let elements = (|i| T::load(x.ptr().add(i)), |i| x.at(i).widen());
    let put = (|i, v| T::store(y.ptr().add(i), v), |i, v| y.set(i, T::narrow(v)));
    norm::<T, N, false>(elements, elements, (w, None), put, sizes, scratch);
}

/// [`AddRmsNorm`] of a row: with a residual stream of type `R`, of which what is stored is normed. Without `x` nothing is added.
///
/// # Safety
/// As [`norm`], with the residual stream as the row.
#[device]
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(crate) unsafe fn add_rms_norm_row<T: Wide<N>, R: Wide<N>, const N: usize>(
    (x, residual, w, y): (Option<In<T>>, InOut<R>, In<T>, Out<T>),
    sizes: (usize, f32),
    scratch: Shared<f32>,
) {
    let add_all = |i| {
        let (a, mut sum) = (x.map(|x| T::load(x.ptr().add(i))), R::load(residual.ptr().add(i)));
        if let Some(a) = a {
            static_for!(k in 0..N => {
                sum[k] = R::narrow(a[k] + sum[k]).widen();
            });
            R::store(residual.ptr().add(i), sum);
        }
        sum
    };
    let add = |i| {
        let (a, mut sum) = (x.map(|x| x.at(i).widen()), residual.get(i));
        if let Some(a) = a {
            sum = R::narrow(a + sum.widen());
            residual.set(i, sum);
        }
        sum.widen()
    };
    // A thread reads again what it wrote itself.
    let again = (|i| R::load(residual.ptr().add(i)), |i| residual.get(i).widen());
    let put = (|i, v| T::store(y.ptr().add(i), v), |i, v| y.set(i, T::narrow(v)));
    norm::<T, N, false>((add_all, add), again, (w, None), put, sizes, scratch);
}

/// A block a row, with 16-byte loads and stores where every row is aligned for them.
#[kernel(block = THREADS, min_blocks = 4)]
pub unsafe fn rms_norm(x: In<f32>, w: In<f32>, y: Out<f32>, cols: u32, eps: f32) {
    let scratch = shared_array!(RMS_NORM: [f32; 32]);
    let cols = cols as usize;
    let row = block::idx_x() as usize * cols;
    rms_norm_row::<f32, 4>((x.from(row), w, y.from(row)), (cols, eps), scratch);
}

/// Residual addition and norm in one: `residual += x`, `y = norm(residual) * w`, a block a row, 16 bytes at a time where
/// rows are aligned for it.
#[kernel(block = THREADS, min_blocks = 4)]
pub unsafe fn add_rms_norm(x: In<f32>, residual: InOut<f32>, w: In<f32>, y: Out<f32>, cols: u32, eps: f32) {
    let scratch = shared_array!(ADD_RMS_NORM: [f32; 32]);
    let cols = cols as usize;
    let row = block::idx_x() as usize * cols;
    let (x, residual, y) = (x.from(row), residual.from(row), y.from(row));
    add_rms_norm_row::<f32, f32, 4>((Some(x), residual, w, y), (cols, eps), scratch);
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::real::Wide;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use warpsmith_device::static_for;

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
