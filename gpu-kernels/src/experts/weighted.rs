//! SwiGLU of experts that read their column times its weight: `y[c, i] = silu(w[c] * gate[c, i]) * up[c, i]`. What is missing, the weight of
//! `up`, is what [`combine`](super::combine) multiplies the expert's outputs with.
//!
//! | | |
//! |---|---|
//! | `gate`, `up` | f32 `[columns, cols]`: products of the column as it is |
//! | `weights` | f32 `[columns]`, as [`route`](super::route) has them |
//! | `y` | f32 `[columns, cols]` |
//!
//! A thread takes an element. Source: the model card of Llama 4 and its reference implementation, in which a token is multiplied with the sigmoid
//! of its product with the router before an expert reads it.

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::elementwise::silu;
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// The definition in f64.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(gate: &[f32], up: &[f32], weights: &[f32]) -> Vec<f64> {
    let cols = gate.len() / weights.len().max(1);
    let of = |(i, (g, u)): (usize, (&f32, &f32))| {
        let g = f64::from(*g) * f64::from(weights[i / cols]);
        g / (1.0 + (-g).exp()) * f64::from(*u)
    };
    gate.iter().zip(up).enumerate().map(of).collect()
}

/// `y = silu(weight * gate) * up`, an element a thread.
#[kernel(block = THREADS, min_blocks = 4, family = "experts")]
pub unsafe fn swiglu_weighted(
    gate: Awaited<f32>,
    up: Awaited<f32>,
    weights: Awaited<f32>,
    y: Out<f32>,
    cols: u32,
    columns: u32,
) {
    grid::wait_dependencies();
    grid::launch_dependents();
    // The grid has them.
    let _ = columns;
    let i = block::idx_x() as usize * THREADS as usize + thread::idx_x() as usize;
    let column = block::idx_y() as usize;
    if i < cols as usize {
        let at = column * cols as usize + i;
        y.set(at, silu(weights.buffer().at(column) * gate.buffer().at(at)) * up.buffer().at(at));
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for SwigluWeighted<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::grid(self.cols.div_ceil(THREADS), self.columns, 1u32)
    }
    fn check(&self) -> Result<(), ContractError> {
        let m = Self::META;
        contract::within(m, "cols", self.cols, 1u32, i32::MAX)?;
        contract::within(m, "columns", self.columns, 1u32, (Geometry::MAX_GRID[1], "rows of a grid"))?;
        contract::at_least(m, "weights", self.weights.len(), (self.columns, "columns"))?;
        let all = (u64::from(self.columns) * u64::from(self.cols), "columns * cols");
        contract::at_least(m, "gate", self.gate.len(), all)?;
        contract::at_least(m, "up", self.up.len(), all)?;
        contract::at_least(m, "y", self.y.len(), all)
    }
}

/// The cases of this kernel.
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases {
    use super::{SwigluWeighted, reference};
    use crate::cases::{Bench, Listed, NamedSizes, Outcome, Plain, Rng, Shape, close, why};

    /// SwiGLU of weighted columns.
    pub struct Weighted;

    impl Plain for Weighted {
        const SIZES: NamedSizes = &[("cols", 8192), ("columns", 1)];

        fn kernels() -> Vec<Listed> {
            vec![Listed::unmeasured::<SwigluWeighted<'_>>(why::SMALL)]
        }

        fn shapes() -> Vec<Vec<usize>> {
            [[1, 1], [255, 3], [256, 2], [257, 5], [1000, 1]].map(|s| s.to_vec()).to_vec()
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            let [cols, columns] = shape.sizes(["cols", "columns"])?;
            let n = cols * columns;
            let mut gate: Vec<f32> = rng.floats(n).iter().map(|v| v * 120.0).collect();
            if let Some(first) = gate.first_mut() {
                *first = -88.0;
            }
            let (up, weights) = (rng.floats(n), rng.floats(columns));
            let (g, u, w) = (bench.upload(&gate)?, bench.upload(&up)?, bench.upload(&weights)?);
            let mut y = bench.output::<f32>(n)?;
            let (cols, columns) = (cols as u32, columns as u32);
            bench.launch(SwigluWeighted { gate: &g, up: &u, weights: &w, y: &mut y, cols, columns })?;
            let want = reference(&gate, &up, &weights);
            // The weighted gate is rounded, of which what is small is an exponential.
            close(&bench.read(&y)?, &want, |i| 1.2e-5 * want[i].abs() + 2e-43)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contracts_name_the_argument() {
        // SAFETY: nothing is launched, so nothing reads the memory.
        let a = |len| unsafe { DeviceSlice::<f32>::from_raw(0x1000, len) };
        // SAFETY: as above.
        let y = |len| unsafe { DeviceSlice::<f32>::from_raw_mut(0x8000, len) };
        let of = |lens: [usize; 4]| {
            let [gate, up, weights] = [lens[0], lens[1], lens[2]].map(a);
            let launch = SwigluWeighted { gate, up, weights, y: y(lens[3]), cols: 300, columns: 2 };
            launch.check().map(|()| launch.geometry().grid).map_err(|e| e.argument)
        };
        assert_eq!(of([600, 600, 2, 600]), Ok([2, 2, 1]));
        for (lens, argument) in [
            ([599, 600, 2, 600], "gate"),
            ([600, 599, 2, 600], "up"),
            ([600, 600, 1, 600], "weights"),
            ([600, 600, 2, 599], "y"),
        ] {
            assert_eq!(of(lens), Err(argument));
        }
    }
}
