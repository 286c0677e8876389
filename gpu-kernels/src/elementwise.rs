//! Element by element: residual addition and SwiGLU.
//!
//! - `residual_add`: `y[i] = x[i] + residual[i]`
//! - `swiglu`: `y[i] = silu(gate[i]) * up[i]`, `silu(g) = g / (1 + e^-g)`
//!
//! All buffers are f32 of the same length, `n >= 1`. A thread takes an element.
//! Source: Shazeer, arXiv 2002.05202.

use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// [`ResidualAdd`] in f64.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn residual_add_reference(x: &[f32], residual: &[f32]) -> Vec<f64> {
    x.iter().zip(residual).map(|(a, b)| f64::from(*a) + f64::from(*b)).collect()
}

/// [`Swiglu`] in f64.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn swiglu_reference(gate: &[f32], up: &[f32]) -> Vec<f64> {
    gate.iter().zip(up).map(|(g, u)| f64::from(*g) / (1.0 + (-f64::from(*g)).exp()) * f64::from(*u)).collect()
}

/// `y = x + residual`, an element a thread.
#[kernel(block = THREADS, min_blocks = 4)]
pub unsafe fn residual_add(x: In<f32>, residual: In<f32>, y: Out<f32>, n: u32) {
    let i = index();
    if i < n as usize {
        y.set(i, x.at(i) + residual.at(i));
    }
}

/// `y = silu(gate) * up`, an element a thread.
#[kernel(block = THREADS, min_blocks = 4)]
pub unsafe fn swiglu(gate: Awaited<f32>, up: Awaited<f32>, y: Out<f32>, n: u32) {
    grid::launch_dependents();
    grid::wait_dependencies();
    let ((gate, up), i) = ((gate.buffer(), up.buffer()), index());
    if i < n as usize {
        y.set(i, silu(gate.at(i)) * up.at(i));
    }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
fn index() -> usize {
    block::idx_x() as usize * THREADS as usize + thread::idx_x() as usize
}

/// `g / (1 + e^-g)` to a few units in the last place, for every finite `g`: `e^-|g|` cannot
/// overflow, and where it vanishes the limits `g` and `0` come out.
#[inline(always)]
pub fn silu(g: f32) -> f32 {
    let e = math::exp(-g.abs());
    let upper = g / (1.0 + e);
    if g < 0.0 { upper * e } else { upper }
}

#[cfg(not(target_arch = "nvptx64"))]
fn same_lengths(meta: &'static KernelMeta, n: u32, buffers: [(&'static str, usize); 3]) -> Result<(), ContractError> {
    contract::within(meta, "n", n, 1u32, i32::MAX)?;
    for (name, len) in buffers {
        contract::at_least(meta, name, len, (n, "n"))?;
    }
    Ok(())
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for ResidualAdd<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.n.div_ceil(THREADS))
    }
    fn check(&self) -> Result<(), ContractError> {
        let buffers = [("x", self.x.len()), ("residual", self.residual.len()), ("y", self.y.len())];
        same_lengths(Self::META, self.n, buffers)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for Swiglu<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.n.div_ceil(THREADS))
    }
    fn check(&self) -> Result<(), ContractError> {
        let buffers = [("gate", self.gate.len()), ("up", self.up.len()), ("y", self.y.len())];
        same_lengths(Self::META, self.n, buffers)
    }
}

/// The cases of these kernels.
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases {
    use super::{ResidualAdd, Swiglu, residual_add_reference, swiglu_reference};
    use crate::cases::{Bench, Listed, Measured, NamedSizes, Outcome, Plain, Rng, Shape, close, why};
    use warpsmith_device::Kernel;

    const SIZES: NamedSizes = &[("n", 4096)];

    fn listed<K: Kernel>() -> Vec<Listed> {
        vec![Listed::new::<K>(Measured::By("elementwise"), Measured::Not(why::SMALL))]
    }

    fn shapes() -> Vec<Vec<usize>> {
        [1, 255, 256, 257, 1000, 4096].map(|n| vec![n]).to_vec()
    }

    /// Residual addition.
    pub struct ResidualAdds;

    impl Plain for ResidualAdds {
        const SIZES: NamedSizes = SIZES;

        fn kernels() -> Vec<Listed> {
            listed::<ResidualAdd<'_>>()
        }

        fn shapes() -> Vec<Vec<usize>> {
            shapes()
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            let n = shape.size("n")?;
            let (a, b) = (rng.floats(n), rng.floats(n));
            let (x, residual, mut y) = (bench.upload(&a)?, bench.upload(&b)?, bench.output::<f32>(n)?);
            bench.launch(ResidualAdd { x: &x, residual: &residual, y: &mut y, n: n as u32 })?;
            let want = residual_add_reference(&a, &b);
            close(&bench.read(&y)?, &want, |i| 6e-8 * want[i].abs())
        }
    }

    /// SwiGLU.
    pub struct Swiglus;

    impl Plain for Swiglus {
        const SIZES: NamedSizes = SIZES;

        fn kernels() -> Vec<Listed> {
            listed::<Swiglu<'_>>()
        }

        fn shapes() -> Vec<Vec<usize>> {
            shapes()
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            let n = shape.size("n")?;
            let mut gate: Vec<f32> = rng.floats(n).iter().map(|v| v * 120.0).collect();
            if let Some(first) = gate.first_mut() {
                *first = -88.0;
            }
            let up = rng.floats(n);
            let (g, u, mut y) = (bench.upload(&gate)?, bench.upload(&up)?, bench.output::<f32>(n)?);
            bench.launch(Swiglu { gate: &g, up: &u, y: &mut y, n: n as u32 })?;
            let want = swiglu_reference(&gate, &up);
            close(&bench.read(&y)?, &want, |i| 2e-6 * want[i].abs() + 2e-43)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silu_is_accurate_at_every_size() {
        for i in -4000..=4000 {
            let g = i as f32 * 0.05 + 0.0137;
            let (got, want) = (f64::from(silu(g)), swiglu_reference(&[g], &[1.0])[0]);
            assert!((got - want).abs() <= 1e-6 * want.abs() + 2e-43, "silu({g}) = {got:e} for {want:e}");
        }
        for g in [1e4, 1e30, f32::MAX] {
            assert_eq!(silu(g), g);
            assert_eq!(silu(-g), 0.0);
        }
        assert_eq!(silu(0.0), 0.0);
        assert_eq!(silu(f32::INFINITY), f32::INFINITY);
        assert!(silu(f32::NAN).is_nan());
    }

    #[test]
    fn contracts_name_the_argument() {
        // SAFETY: nothing is launched, so nothing reads the memory.
        let a = |len| unsafe { DeviceSlice::<f32>::from_raw(0x1000, len) };
        // SAFETY: as above.
        let y = |len| unsafe { DeviceSlice::<f32>::from_raw_mut(0x8000, len) };
        assert!(Swiglu { gate: a(9), up: a(9), y: y(9), n: 9 }.check().is_ok());
        assert_eq!(Swiglu { gate: a(9), up: a(8), y: y(9), n: 9 }.check().unwrap_err().argument, "up");
        assert_eq!(Swiglu { gate: a(9), up: a(9), y: y(9), n: 0 }.check().unwrap_err().argument, "n");
        assert_eq!(ResidualAdd { x: a(9), residual: a(9), y: y(8), n: 9 }.check().unwrap_err().argument, "y");
        assert_eq!(ResidualAdd { x: a(9), residual: a(9), y: y(9), n: 9 }.geometry().grid, [1, 1, 1]);
    }
}
