//! Element by element: residual addition, SwiGLU, GEGLU and SwiGLU of clamped numbers, and a cap.
//!
//! - `residual_add`: `y[i] = x[i] + residual[i]`
//! - `swiglu`: `y[i] = silu(gate[i]) * up[i]`, `silu(g) = g / (1 + e^-g)`
//! - `geglu`: `y[i] = gelu(gate[i]) * up[i]`, `gelu(g) = g / 2 * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g^3)))`
//! - `swiglu_clamped`: `y[i] = g / (1 + e^-(1.702 g)) * (u + 1)`, where `g` is `gate[i]`, 7 at most, and `u` is `up[i]`, within -7 and 7
//!
//! - `softcap`: `x[n, i] = cap * tanh(x[n, i] / cap)` of columns `stride` elements apart, in place
//!
//! All buffers of the others are f32 of the same length, `n >= 1`. A thread takes an element.
//! Sources: Shazeer, arXiv 2002.05202; Hendrycks and Gimpel, arXiv 1606.08415; for clamped numbers the model card of gpt-oss, arXiv
//! 2508.10925, section 2.2, and its reference implementation for the two constants.

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

/// [`Geglu`] in f64.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn geglu_reference(gate: &[f32], up: &[f32]) -> Vec<f64> {
    gate.iter().zip(up).map(|(g, u)| gelu_reference((*g).into()) * f64::from(*u)).collect()
}

/// [`SwigluClamped`] in f64.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn swiglu_clamped_reference(gate: &[f32], up: &[f32]) -> Vec<f64> {
    gate.iter().zip(up).map(|(g, u)| clamped_reference((*g).into(), (*u).into())).collect()
}

/// What comes of a gate and an up that are clamped, in f64.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn clamped_reference(gate: f64, up: f64) -> f64 {
    let (g, u) = (gate.min(7.0), up.clamp(-7.0, 7.0));
    g / (1.0 + (-1.702 * g).exp()) * (u + 1.0)
}

/// [`gelu`] in f64, without the cancellation of its definition: `1 + tanh(t)` is `2 / (1 + e^-2t)`.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn gelu_reference(g: f64) -> f64 {
    let t = (2.0 / core::f64::consts::PI).sqrt() * (g + 0.044715 * g.powi(3));
    g / (1.0 + (-2.0 * t).exp())
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
    grid::wait_dependencies();
    grid::launch_dependents();
    let ((gate, up), i) = ((gate.buffer(), up.buffer()), index());
    if i < n as usize {
        y.set(i, silu(gate.at(i)) * up.at(i));
    }
}

/// `y = gelu(gate) * up`, an element a thread.
#[kernel(block = THREADS, min_blocks = 4)]
pub unsafe fn geglu(gate: Awaited<f32>, up: Awaited<f32>, y: Out<f32>, n: u32) {
    grid::wait_dependencies();
    grid::launch_dependents();
    let ((gate, up), i) = ((gate.buffer(), up.buffer()), index());
    if i < n as usize {
        y.set(i, gelu(gate.at(i)) * up.at(i));
    }
}

/// `y = gate / (1 + e^-(1.702 gate)) * (up + 1)` of clamped numbers, an element a thread.
#[kernel(block = THREADS, min_blocks = 4)]
pub unsafe fn swiglu_clamped(gate: Awaited<f32>, up: Awaited<f32>, y: Out<f32>, n: u32) {
    grid::wait_dependencies();
    grid::launch_dependents();
    let ((gate, up), i) = ((gate.buffer(), up.buffer()), index());
    if i < n as usize {
        y.set(i, glu([gate.at(i), up.at(i)], false, true));
    }
}

/// [`Softcap`] in f64.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn softcap_reference(x: f64, cap: f64) -> f64 {
    cap * (x / cap).tanh()
}

/// `x = cap * tanh(x / cap)`, an element a thread; off by `2^-22 cap` at most.
#[kernel(block = THREADS, min_blocks = 4)]
pub unsafe fn softcap(x: InOut<f32>, cols: u32, columns: u32, stride: u32, cap: f32) {
    // The grid has them.
    let _ = columns;
    let (x, i) = (x.from(block::idx_y() as usize * stride as usize), index());
    if i < cols as usize {
        x.set(i, cap * (1.0 - 2.0 / (1.0 + math::exp(2.0 * x.get(i) / cap))));
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
    gated(g, g)
}

/// `g / 2 * (1 + tanh(t))` with `t = sqrt(2 / pi) * (g + 0.044715 g^3)`, for every finite `g`: `g / (1 + e^-2t)`. It is off by a
/// share of itself of 1e-6 and of 3e-7 times `t`, which is 44 where it has fallen to the smallest normal numbers.
#[inline(always)]
pub fn gelu(g: f32) -> f32 {
    gated(g, gelu_exponent(g))
}

/// `2 t` of [`gelu`], which has the sign of `g`.
#[inline(always)]
fn gelu_exponent(g: f32) -> f32 {
    // sqrt(8 / pi), and 0.044715 times that.
    g * math::fma(g * g, 0.071_354_814, 1.595_769_2)
}

/// By how much steeper the sigmoid of clamped gates is.
const STEEPER: f32 = 1.702;
/// What clamped gates are at most, and clamped ups are within.
const LIMIT: f32 = 7.0;

/// What comes of a gate and its up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Glu {
    /// [`silu`] of the gate, times the up: [`Swiglu`].
    Silu,
    /// [`gelu`] of the gate, times the up: [`Geglu`].
    Gelu,
    /// [`SwigluClamped`].
    Clamped,
}

/// What comes of a gate and its up: with [`silu`] where neither is asked for. NaN is handed on.
#[inline(always)]
pub fn glu([gate, up]: [f32; 2], with_gelu: bool, clamped: bool) -> f32 {
    let (mut g, mut u) = (gate, up);
    if clamped {
        // Not by instructions, which would drop a NaN.
        g = if g > LIMIT { LIMIT } else { g };
        u = if u > LIMIT { LIMIT } else { u };
        u = if u < -LIMIT { -LIMIT } else { u } + 1.0;
    }
    let t = if with_gelu {
        gelu_exponent(g)
    } else if clamped {
        STEEPER * g
    } else {
        g
    };
    gated(g, t) * u
}

/// `g / (1 + e^-t)`, where `t` has the sign of `g`.
#[inline(always)]
fn gated(g: f32, t: f32) -> f32 {
    let e = math::exp(-t.abs());
    let upper = math::div_from_one_to_two(g, 1.0 + e);
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

macro_rules! gated {
    ($($Kernel:ident)*) => { $(
        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Kernel<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::blocks(self.n.div_ceil(THREADS))
            }
            fn check(&self) -> Result<(), ContractError> {
                let buffers = [("gate", self.gate.len()), ("up", self.up.len()), ("y", self.y.len())];
                same_lengths(Self::META, self.n, buffers)
            }
        }
    )* };
}

gated! { Swiglu Geglu SwigluClamped }

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for Softcap<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::grid(self.cols.div_ceil(THREADS), self.columns, 1u32)
    }
    fn check(&self) -> Result<(), ContractError> {
        let m = Self::META;
        contract::within(m, "cols", self.cols, 1u32, i32::MAX)?;
        contract::within(m, "columns", self.columns, 1u32, (Geometry::MAX_GRID[1], "rows of a grid"))?;
        contract::within(m, "stride", self.stride, (self.cols, "cols"), u32::MAX)?;
        contract::require(m, self.cap.is_finite() && self.cap > 0.0, "cap", "a finite number above 0", self.cap)?;
        let all = u64::from(self.columns - 1) * u64::from(self.stride) + u64::from(self.cols);
        contract::at_least(m, "x", self.x.len(), (all, "whole columns"))
    }
}

/// The cases of these kernels.
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases {
    use super::{
        Geglu, ResidualAdd, Softcap, Swiglu, SwigluClamped, geglu_reference, residual_add_reference, softcap_reference,
        swiglu_clamped_reference, swiglu_reference,
    };
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

    macro_rules! gated {
        ($($(#[$doc:meta])* $Cases:ident: $Kernel:ident, $listed:expr, $reference:ident, gates to $most:literal, ups to $up:literal, off by $error:literal;)*) => { $(
            $(#[$doc])*
            pub struct $Cases;

            impl Plain for $Cases {
                const SIZES: NamedSizes = SIZES;

                fn kernels() -> Vec<Listed> {
                    $listed
                }

                fn shapes() -> Vec<Vec<usize>> {
                    shapes()
                }

                fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
                    let n = shape.size("n")?;
                    let mut gate: Vec<f32> = rng.floats(n).iter().map(|v| v * $most).collect();
                    if let Some(first) = gate.first_mut() {
                        *first = -88.0;
                    }
                    let up: Vec<f32> = rng.floats(n).iter().map(|v| v * $up).collect();
                    let (g, u, mut y) = (bench.upload(&gate)?, bench.upload(&up)?, bench.output::<f32>(n)?);
                    bench.launch($Kernel { gate: &g, up: &u, y: &mut y, n: n as u32 })?;
                    let want = $reference(&gate, &up);
                    close(&bench.read(&y)?, &want, |i| $error * want[i].abs() + 2e-43)
                }
            }
        )* };
    }

    gated! {
        /// SwiGLU.
        Swiglus: Swiglu, listed::<Swiglu<'_>>(), swiglu_reference, gates to 120.0, ups to 1.0, off by 2e-6;
        /// GEGLU.
        Geglus: Geglu, vec![Listed::unmeasured::<Geglu<'_>>(why::SMALL)], geglu_reference, gates to 12.0, ups to 1.0, off by 1.5e-5;
        /// SwiGLU of clamped numbers.
        ClampedSwiglus: SwigluClamped, vec![Listed::unmeasured::<SwigluClamped<'_>>(why::SMALL)], swiglu_clamped_reference, gates to 50.0, ups to 9.0, off by 1.2e-5;
    }

    /// A cap of logits.
    pub struct Softcaps;

    impl Plain for Softcaps {
        const SIZES: NamedSizes = &[("cols", 4096), ("columns", 1)];

        fn kernels() -> Vec<Listed> {
            vec![Listed::unmeasured::<Softcap<'_>>(why::ONCE)]
        }

        fn shapes() -> Vec<Vec<usize>> {
            [[1, 1], [255, 3], [256, 2], [257, 1], [1000, 2]].map(|s| s.to_vec()).to_vec()
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            let ([cols, columns], cap) = (shape.sizes(["cols", "columns"])?, 30.0);
            let stride = cols + 3;
            let x: Vec<f32> = rng.floats(columns * stride).iter().map(|v| v * v * v * 400.0).collect();
            let mut d = bench.upload(&x)?;
            let (cols32, columns32) = (cols as u32, columns as u32);
            bench.launch(Softcap { x: &mut d, cols: cols32, columns: columns32, stride: stride as u32, cap })?;
            let capped = |(i, x): (usize, &f32)| {
                let x = f64::from(*x);
                if i % stride < cols { softcap_reference(x, cap.into()) } else { x }
            };
            let want: Vec<f64> = x.iter().enumerate().map(capped).collect();
            close(
                &bench.read(&d)?,
                &want,
                |i| if i % stride < cols { f64::from(cap) / f64::from(1 << 22) } else { 0.0 },
            )
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
    fn gelu_is_accurate_at_every_size() {
        // By the definition where that does not cancel, in f64.
        for g in [0.1f64, 0.5, 1.0, 2.0, 3.0] {
            let want = g / 2.0 * (1.0 + ((2.0 / core::f64::consts::PI).sqrt() * (g + 0.044715 * g * g * g)).tanh());
            assert!((gelu_reference(g) - want).abs() < 1e-15 * want);
        }
        for i in -2000..=2000 {
            let g = i as f32 * 0.005 + 0.00137;
            let (got, want) = (f64::from(gelu(g)), gelu_reference(g.into()));
            let t = f64::from(g.abs()) * 0.8 * (1.0 + 0.045 * f64::from(g * g));
            assert!((got - want).abs() <= (1e-6 + 3e-7 * t) * want.abs() + 2e-43, "gelu({g}) = {got:e} for {want:e}");
        }
        for g in [1e4, 1e30, f32::MAX] {
            assert_eq!((gelu(g), gelu(-g)), (g, 0.0));
        }
        assert_eq!((gelu(0.0), gelu(f32::INFINITY)), (0.0, f32::INFINITY));
        assert!(gelu(f32::NAN).is_nan());
        assert_eq!((glu([1.5, 2.0], true, false), glu([1.5, 2.0], false, false)), (2.0 * gelu(1.5), 2.0 * silu(1.5)));
    }

    #[test]
    fn clamped_numbers_are_within_their_bounds() {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        for (gate, up, g, u) in
            [(9.0, -9.0, 7.0, -7.0), (7.5, 7.5, 7.0, 7.0), (-9.0, 3.0, -9.0, 3.0), (0.5, -1.0, 0.5, -1.0)]
        {
            let want = g * sigmoid(1.702 * g) * (u + 1.0);
            assert!((clamped_reference(gate, up) - want).abs() <= 1e-15 * want.abs());
            let got = f64::from(glu([gate as f32, up as f32], false, true));
            assert!((got - want).abs() <= 2e-6 * want.abs(), "{gate} {up}: {got:e} for {want:e}");
        }
        for both in [[f32::NAN, 1.0], [1.0, f32::NAN]] {
            assert!(glu(both, false, true).is_nan(), "{both:?}");
        }
        assert_eq!(glu([f32::INFINITY, f32::INFINITY], false, true), glu([7.0, 7.0], false, true));
    }

    #[test]
    fn contracts_name_the_argument() {
        // SAFETY: nothing is launched, so nothing reads the memory.
        let a = |len| unsafe { DeviceSlice::<f32>::from_raw(0x1000, len) };
        // SAFETY: as above.
        let y = |len| unsafe { DeviceSlice::<f32>::from_raw_mut(0x8000, len) };
        assert!(Swiglu { gate: a(9), up: a(9), y: y(9), n: 9 }.check().is_ok());
        assert_eq!(Swiglu { gate: a(9), up: a(8), y: y(9), n: 9 }.check().unwrap_err().argument, "up");
        assert_eq!(Geglu { gate: a(8), up: a(9), y: y(9), n: 9 }.check().unwrap_err().argument, "gate");
        assert_eq!(Swiglu { gate: a(9), up: a(9), y: y(9), n: 0 }.check().unwrap_err().argument, "n");
        assert_eq!(ResidualAdd { x: a(9), residual: a(9), y: y(8), n: 9 }.check().unwrap_err().argument, "y");
        assert_eq!(ResidualAdd { x: a(9), residual: a(9), y: y(9), n: 9 }.geometry().grid, [1, 1, 1]);
    }
}
