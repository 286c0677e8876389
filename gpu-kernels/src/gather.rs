//! Columns in another order, `y[n, i] = x[n, order[i]]`, for products with matrices whose columns are in that order: as f32, or quantized.
//!
//! | | |
//! |---|---|
//! | `x` | f32, column `n` from `n * x_stride` on: `[cols]` |
//! | `order` | u32 `[cols]`: which element of `x` each is; one that `x` does not have gives NaN |
//! | `y` | f32, column `n` from `n * y_stride` on: `[cols]`; without `quant_format` alone |
//! | `quant_format`, `quantized` | how they are [quantized](crate::gemv::quant_format) in place of that, if they are: not to bit planes |
//!
//! A thread takes an element, a warp those that share a scale. Source: the order in which GPTQ quantises columns ("act-order"), Frantar et al.,
//! arXiv 2210.17323, and <https://github.com/IST-DASLab/gptq>.

#[cfg(not(target_arch = "nvptx64"))]
use crate::gemv::QuantFormat;
use crate::gemv::quant_format::NONE;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::{gemv::quantizer::unit, load::lane};
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// The definition.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: &[f32], order: &[u32]) -> Vec<f32> {
    order.iter().map(|&i| x.get(i as usize).copied().unwrap_or(f32::NAN)).collect()
}

/// Columns in another order, as f32 or quantized.
#[kernel(block = THREADS, min_blocks = 4)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn gather(
    x: Awaited<f32>,
    order: In<u32>,
    y: Out<f32>,
    quantized: Out<U32x4>,
    cols: u32,
    columns: u32,
    x_stride: u32,
    y_stride: u32,
    quant_format: u32,
) {
    // The grid has them.
    let _ = columns;
    let (cols, column) = (cols as usize, block::idx_y() as usize);
    let i = (block::idx_x() * THREADS + thread::idx_x()) as usize;
    let from = if i < cols { order.at(i) as usize } else { cols };
    grid::wait_dependencies();
    grid::launch_dependents();
    let v = if from < cols { x.buffer().at(column * x_stride as usize + from) } else { f32::NAN };
    if quant_format == NONE {
        if i < cols {
            y.set(column * y_stride as usize + i, v);
        }
        return;
    }
    // A warp has all of a unit, or none.
    let first = i - lane();
    if first < cols {
        unit(quant_format, quantized, column, cols as u32, first / 32, if i < cols { v } else { 0.0 });
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for Gather<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::grid(self.cols.div_ceil(THREADS), self.columns, 1u32)
    }
    fn check(&self) -> Result<(), ContractError> {
        let (m, columns, cols) = (Self::META, self.columns as usize, (u64::from(self.cols), "cols"));
        contract::within(m, "cols", self.cols, 1u32, i32::MAX)?;
        contract::within(m, "columns", self.columns, 1u32, (Geometry::MAX_GRID[1], "rows of a grid"))?;
        contract::exactly(m, "order", self.order.len(), (self.cols, "cols"))?;
        crate::state::check_strided(m, "x", self.x.len(), (columns, self.x_stride), cols)?;
        if self.quant_format == NONE {
            return crate::state::check_strided(m, "y", self.y.len(), (columns, self.y_stride), cols);
        }
        let format = QuantFormat::numbered(self.quant_format).filter(|format| !format.is_planes());
        let expected = "0 or the number of a `QuantFormat` in bytes or f16";
        contract::require(m, format.is_some(), "quant_format", expected, self.quant_format)?;
        let Some(format) = format else { return Ok(()) };
        contract::multiple_of(m, "cols", self.cols, (format.block(), "a block of the quantized"))?;
        let needed = u64::from(self.columns) * format.len(self.cols);
        contract::at_least(m, "quantized", self.quantized.len(), (needed, "all blocks of all columns"))
    }
}

/// The cases of this kernel.
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases {
    use super::{Gather, reference};
    use crate::cases::{Bench, Failure, Listed, NamedSizes, Outcome, Plain, Rng, Shape, same, why};
    use crate::gemv::cases::QuantizedOutput;
    use crate::gemv::{OutputQuantization, QuantFormat};

    /// Columns in a random order.
    pub struct Gathers;

    impl Plain for Gathers {
        const SIZES: NamedSizes = &[("columns", 1), ("cols", 4096), ("quant_format", QuantFormat::I16 as usize)];

        fn kernels() -> Vec<Listed> {
            vec![Listed::unmeasured::<Gather<'_>>(why::SMALL)]
        }

        fn shapes() -> Vec<Vec<usize>> {
            let of = |cols: usize| {
                let formats = [0, QuantFormat::I8 as usize, QuantFormat::I16 as usize, QuantFormat::F16 as usize];
                let free = [0, QuantFormat::F16 as usize];
                let fit = formats.into_iter().filter(move |f| free.contains(f) || cols.is_multiple_of(32));
                fit.enumerate().map(move |(i, format)| vec![1 + (cols / 32 + i) % 4, cols, format])
            };
            [1, 31, 32, 257, 288, 1024, 2592].into_iter().flat_map(of).collect()
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            let [columns, cols, quant_format] = shape.sizes(["columns", "cols", "quant_format"])?;
            let (x_stride, y_stride) = (cols + 5, cols.next_multiple_of(4) + 4);
            let x = rng.floats(columns * x_stride);
            let mut order: Vec<u32> = (0..cols as u32).collect();
            for i in (1..cols).rev() {
                order.swap(i, rng.within(0, i));
            }
            let (dx, of) = (bench.upload(&x)?, bench.upload(&order)?);
            let mut y = bench.upload(&vec![f32::NAN; columns * y_stride])?;
            let mut output = QuantizedOutput::new(bench, quant_format, columns, cols)?;
            let (quant_format, quantized, _) =
                OutputQuantization::arguments(output.as_mut().map(QuantizedOutput::written));
            bench.launch(Gather {
                x: &dx,
                order: &of,
                y: &mut y,
                quantized,
                cols: cols as u32,
                columns: columns as u32,
                x_stride: x_stride as u32,
                y_stride: y_stride as u32,
                quant_format,
            })?;
            let y = bench.read(&y)?;
            let mut want = vec![f32::NAN; columns * y_stride];
            for (to, x) in want.chunks_exact_mut(y_stride).zip(x.chunks_exact(x_stride)) {
                to[..cols].copy_from_slice(&reference(&x[..cols], &order));
            }
            if let Some(output) = output {
                if y.iter().any(|y| !y.is_nan()) {
                    return Err(Failure::Wrong("columns are written as f32 as well".into()));
                }
                return output.check(bench, &want, y_stride);
            }
            let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
            same(&bits(&y), &bits(&want))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_column_does_not_have_is_no_number() {
        let y = reference(&[1.0, 2.0, 3.0], &[2, 0, 3]);
        assert!(y[..2] == [3.0, 1.0] && y[2].is_nan(), "{y:?}");
    }

    #[test]
    fn contracts_name_the_argument() {
        // SAFETY: nothing is launched, so nothing reads the memory.
        let (x, order) =
            unsafe { (DeviceSlice::<f32>::from_raw(0x1000, 64), DeviceSlice::<u32>::from_raw(0x2000, 32)) };
        let refused = |change: &dyn Fn(&mut Gather<'_>)| {
            // SAFETY: as above.
            let (y, quantized) = unsafe {
                (DeviceSlice::<f32>::from_raw_mut(0x8000, 64), DeviceSlice::<U32x4>::from_raw_mut(0x9000, 20))
            };
            let (cols, columns, x_stride, y_stride) = (32, 2, 32, 32);
            let mut launch = Gather { x, order, y, quantized, cols, columns, x_stride, y_stride, quant_format: NONE };
            change(&mut launch);
            launch.check().err().map(|e| e.argument)
        };
        assert_eq!(refused(&|_| ()), None);
        assert_eq!(refused(&|g| g.quant_format = QuantFormat::I16 as u32), None);
        assert_eq!(refused(&|g| g.columns = 3), Some("x"));
        assert_eq!(refused(&|g| g.cols = 31), Some("order"));
        assert_eq!(refused(&|g| g.y = DeviceSlice::empty_mut()), Some("y"));
        assert_eq!(refused(&|g| g.quant_format = QuantFormat::PlanesI8 as u32), Some("quant_format"));
        assert_eq!(refused(&|g| (g.quant_format, g.quantized) = (7, DeviceSlice::empty_mut())), Some("quantized"));
    }
}
