//! What the experts of a column give, added up: `y[c, r] = add[c, r] + sum_j weights[c, j] * x[c * used + j, r]`, from the first
//! expert of the column on; with `shared` 1 also what an expert of all columns gives, `weights[columns * used + c] * x[columns * used + c, r]`,
//! as the last.
//!
//! | | |
//! |---|---|
//! | `x` | f32, the output of expert `j` of column `c` from `(c * used + j) * x_stride` on: `[rows]` |
//! | `weights` | f32 `[columns, used]`, and with `shared` `[columns]` behind them; so have the columns of `x` |
//! | `add` | f32, column `c` from `c * y_stride` on: the residual stream |
//! | `y` | f32 `[columns, rows]`, column `c` from `c * y_stride` on |
//! | `next_weight`, `scaled`, `next_sums` | what the norm before the next product needs, as [`NEXT`](crate::gemv::NEXT) has it, in [`parts`] parts a column |
//! | `quant_format`, `quantized`, `group_counters` | how `scaled` is [quantized](crate::gemv::quant_format), if it is |
//!
//! Sums are f32 with fused multiply-adds; the error stays within `1e-6 * (|add| + sum |weights * x|)` of the exact sum for up to eight
//! experts. A column's bits depend on nothing but its own inputs.

#[cfg(not(target_arch = "nvptx64"))]
use crate::gemv::OutputQuantization;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::gemv::{ADD, NEXT, epilogue::Epilogue, quantizer::OutputQuantizer};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::load::{lane, warp_index};
use warpsmith_device::prelude::*;

/// Threads of a block, an output each.
pub const THREADS: u32 = 128;
/// Outputs of a warp, and of a part of a sum of squares.
const ROWS: u32 = 32;

/// Parts of a column's sum of squares.
#[must_use]
#[inline(always)]
pub const fn parts(rows: u32) -> u32 {
    rows.div_ceil(ROWS)
}

/// The definition in f64, of a column: `x` is `[used, rows]`.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: &[f32], weights: &[f32], add: &[f32]) -> Vec<f64> {
    let mut y: Vec<f64> = add.iter().map(|v| f64::from(*v)).collect();
    for (x, weight) in x.chunks_exact(add.len().max(1)).zip(weights) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y += f64::from(*weight) * f64::from(*x));
    }
    y
}

/// The outputs of a column's experts added to the residual stream, an output a thread.
#[kernel(block = THREADS, min_blocks = 8, family = "experts")]
#[allow(clippy::too_many_arguments)]
pub unsafe fn combine_experts(
    x: Awaited<f32>,
    weights: Awaited<f32>,
    add: Awaited<f32>,
    next_weight: In<f32>,
    y: InOut<f32>,
    scaled: InOut<f32>,
    next_sums: Out<f32>,
    quantized: Out<U32x4>,
    group_counters: InOut<u32>,
    rows: u32,
    columns: u32,
    used: u32,
    shared: u32,
    x_stride: u32,
    y_stride: u32,
    quant_format: u32,
) {
    grid::wait_dependencies();
    grid::launch_dependents();
    let (part, column) = (block::idx_x() * (THREADS / ROWS) + warp_index() as u32, block::idx_y() as usize);
    let (first, parts) = (part * ROWS, parts(rows));
    if part >= parts {
        return;
    }
    let epilogue = Epilogue {
        add: add.buffer().into(),
        bias: None,
        next_weight,
        y: y.into(),
        scaled: scaled.into(),
        next_sums,
        y_stride: y_stride as usize,
        add_stride: y_stride as usize,
        flags: ADD | NEXT,
    };
    let (row, used) = (first as usize + lane(), used as usize);
    let mut written = [0.0; 2];
    if row < rows as usize {
        let (x, weights) = (x.buffer().from(row), weights.buffer());
        let first = column * used;
        let mut sum = weights.at(first) * x.at(first * x_stride as usize);
        let mut j = first + 1;
        while j < first + used {
            sum = math::fma(weights.at(j), x.at(j * x_stride as usize), sum);
            j += 1;
        }
        if shared != 0 {
            let behind = columns as usize * used + column;
            sum = math::fma(weights.at(behind), x.at(behind * x_stride as usize), sum);
        }
        written = epilogue.write(column, row, sum);
    }
    let sum = warp::sum_f32(written[1]);
    if lane() == 0 {
        epilogue.write_sum(column, (part, parts), sum);
    }
    if let Some(quantizer) = OutputQuantizer::asked(quant_format, quantized, group_counters) {
        if quantizer.in_bytes() {
            // A unit, and a lane has each of its elements.
            quantizer.unit(column, rows, part as usize, written[0]);
        } else {
            let values = epilogue.scaled.from(column * y_stride as usize).into();
            quantizer.bring(values, column, rows, first, ROWS.min(rows - first));
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for CombineExperts<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::grid(self.rows.div_ceil(THREADS), self.columns, 1u32)
    }
    fn check(&self) -> Result<(), ContractError> {
        use crate::gemv::QuantizedOutputs;
        let (m, columns, rows) = (Self::META, self.columns, (self.rows, "rows"));
        contract::within(m, "rows", self.rows, 1u32, i32::MAX)?;
        contract::within(m, "columns", columns, 1u32, crate::gemv::MAX_COLUMNS)?;
        contract::within(m, "used", self.used, 1u32, super::route::MOST)?;
        contract::within(m, "shared", self.shared, 0u32, 1u32)?;
        let outputs = columns * (self.used + self.shared);
        contract::require(
            m,
            self.x_stride >= self.rows,
            "x_stride",
            format_args!("at least {} (rows)", self.rows),
            self.x_stride,
        )?;
        let needed = u64::from(outputs - 1) * u64::from(self.x_stride) + u64::from(self.rows);
        contract::at_least(m, "x", self.x.len(), (needed, "whole columns"))?;
        contract::at_least(m, "weights", self.weights.len(), (outputs, "columns * (used + shared)"))?;
        contract::at_least(m, "next_weight", self.next_weight.len(), rows)?;
        for (name, len) in [("add", self.add.len()), ("y", self.y.len()), ("scaled", self.scaled.len())] {
            let apart = self.y_stride >= self.rows || columns == 1;
            contract::require(m, apart, "y_stride", format_args!("at least {} (rows)", self.rows), self.y_stride)?;
            let needed = u64::from(columns - 1) * u64::from(self.y_stride) + u64::from(self.rows);
            contract::at_least(m, name, len, (needed, "whole columns"))?;
        }
        let needed = u64::from(columns) * u64::from(parts(self.rows));
        contract::at_least(m, "next_sums", self.next_sums.len(), (needed, "columns * parts"))?;
        let outputs = QuantizedOutputs {
            quant_format: self.quant_format,
            quantized: self.quantized,
            group_counters: self.group_counters,
        };
        outputs.check(m, columns, rows)
    }
}

/// The launch that adds up what experts give.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Debug)]
pub struct Combine<'a> {
    /// `[columns * used]` columns, `x_stride` elements apart, and behind them one of each column, if there is a shared expert.
    pub x: &'a DeviceSlice<f32>,
    /// What each counts for.
    pub weights: &'a DeviceSlice<f32>,
    /// The residual stream, laid out as `y`.
    pub add: &'a DeviceSlice<f32>,
    /// `[columns, rows]`, columns `y_stride` elements apart.
    pub y: &'a mut DeviceSlice<f32>,
    /// The weight of the next norm, and where `y` times it and the [`parts`] of its sum of squares go.
    pub next: (&'a DeviceSlice<f32>, &'a mut DeviceSlice<f32>, &'a mut DeviceSlice<f32>),
    /// How what goes to the next product is quantized.
    pub quantized_output: Option<OutputQuantization<'a>>,
    /// Outputs of a column.
    pub rows: u32,
    /// How many columns there are.
    pub columns: u32,
    /// Experts of a column.
    pub used: u32,
    /// All columns have one expert more.
    pub shared: bool,
    /// Elements from an expert's outputs to the next.
    pub x_stride: u32,
    /// Elements from a column to the next.
    pub y_stride: u32,
}

#[cfg(not(target_arch = "nvptx64"))]
impl Combine<'_> {
    /// Launches it; as a [`Programmatic`] launch, if `programmatic` is true.
    ///
    /// # Safety
    /// With `true`, as for [`Programmatic::new`]: the weight of the norm was written before the launch before it began.
    ///
    /// # Errors
    /// What the launcher reports, a broken contract first of all.
    pub unsafe fn launch<L: Launcher>(self, on: &mut L, programmatic: bool) -> Result<(), L::Error> {
        let (next_weight, scaled, next_sums) = self.next;
        let (quant_format, quantized, group_counters) = OutputQuantization::arguments(self.quantized_output);
        let kernel = CombineExperts {
            x: self.x,
            weights: self.weights,
            add: self.add,
            next_weight,
            y: self.y,
            scaled,
            next_sums,
            quantized,
            group_counters,
            rows: self.rows,
            columns: self.columns,
            used: self.used,
            shared: self.shared.into(),
            x_stride: self.x_stride,
            y_stride: self.y_stride,
            quant_format,
        };
        // SAFETY: the caller's promise; it follows no address.
        unsafe { on.launch_programmatic(kernel, programmatic) }
    }
}

/// The cases of this kernel.
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases {
    use super::{Combine, CombineExperts, parts, reference};
    use crate::cases::{Bench, Failure, Listed, NamedSizes, Outcome, Plain, Rng, Shape, close, why};
    use crate::gemv::cases::{QuantizedOutput, in_turn};

    /// What experts give, added up.
    pub struct Combinations;

    impl Plain for Combinations {
        const SIZES: NamedSizes = &[("rows", 1024), ("columns", 1), ("used", 8), ("quant_format", 0), ("shared", 0)];

        fn kernels() -> Vec<Listed> {
            vec![Listed::unmeasured::<CombineExperts<'_>>(why::SMALL)]
        }

        fn shapes() -> Vec<Vec<usize>> {
            let rows = [1, 31, 32, 33, 127, 128, 129, 160, 256, 384, 640, 1024, 1000, 128, 256, 384];
            let size = |(i, rows): (usize, usize)| {
                vec![rows, [1, 3, 2][i % 3], [1, 2, 8, 5][i % 4], in_turn(i, rows), i / 2 % 2]
            };
            rows.into_iter().enumerate().map(size).collect()
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            let [rows, columns, used, quant_format, shared] =
                shape.sizes(["rows", "columns", "used", "quant_format", "shared"])?;
            let all = columns * (used + shared);
            // Gaps between columns, which nobody reads or writes.
            let (x_stride, y_stride) = (rows + 5, rows + 3);
            let mut x = vec![f32::NAN; all * x_stride];
            x.chunks_exact_mut(x_stride).for_each(|c| c[..rows].copy_from_slice(&rng.floats(rows)));
            let (weights, next_weight) = (rng.floats(all), rng.floats(rows));
            let mut add = vec![f32::NAN; columns * y_stride];
            add.chunks_exact_mut(y_stride).for_each(|c| c[..rows].copy_from_slice(&rng.floats(rows)));
            let (dx, dw, da, dn) =
                (bench.upload(&x)?, bench.upload(&weights)?, bench.upload(&add)?, bench.upload(&next_weight)?);
            let nothing = vec![f32::NAN; columns * y_stride];
            let (mut y, mut scaled) = (bench.upload(&nothing)?, bench.upload(&nothing)?);
            let parts = parts(rows as u32) as usize;
            let mut sums = bench.output::<f32>(columns * parts)?;
            let mut output = QuantizedOutput::new(bench, quant_format, columns, rows)?;
            let launch = Combine {
                x: &dx,
                weights: &dw,
                add: &da,
                y: &mut y,
                next: (&dn, &mut scaled, &mut sums),
                quantized_output: output.as_mut().map(QuantizedOutput::written),
                rows: rows as u32,
                columns: columns as u32,
                used: used as u32,
                shared: shared != 0,
                x_stride: x_stride as u32,
                y_stride: y_stride as u32,
            };
            // SAFETY: the launch is not programmatic.
            unsafe { launch.launch(bench, false) }?;
            let (y, scaled, sums) = (bench.read(&y)?, bench.read(&scaled)?, bench.read(&sums)?);
            if let Some(output) = output {
                output.check(bench, &scaled, y_stride)?;
            }
            for n in 0..columns {
                // The column's experts, and the shared one.
                let of: Vec<usize> =
                    (n * used..(n + 1) * used).chain((0..shared).map(|_| columns * used + n)).collect();
                let x: Vec<f32> = of.iter().flat_map(|i| x[i * x_stride..][..rows].to_vec()).collect();
                let weights: Vec<f32> = of.iter().map(|i| weights[*i]).collect();
                let (weights, add) = (&weights[..], &add[n * y_stride..][..rows]);
                let want = reference(&x, weights, add);
                let absolute = |v: &[f32]| v.iter().map(|v| v.abs()).collect::<Vec<f32>>();
                let sizes = reference(&absolute(&x), &absolute(weights), &absolute(add));
                let (y, scaled) = (&y[n * y_stride..][..y_stride], &scaled[n * y_stride..][..y_stride]);
                close(&y[..rows], &want, |r| 1e-6 * sizes[r])?;
                let products: Vec<f64> =
                    y[..rows].iter().zip(&next_weight).map(|(y, w)| f64::from(*y) * f64::from(*w)).collect();
                close(&scaled[..rows], &products, |r| 1e-7 * products[r].abs() + 1e-44)?;
                let squares: f64 = y[..rows].iter().map(|y| f64::from(*y).powi(2)).sum();
                let sum: f64 = sums[n * parts..][..parts].iter().map(|s| f64::from(*s)).sum();
                close(&[sum as f32], &[squares], |_| 1e-5 * squares + 1e-40)?;
                if y[rows..].iter().chain(&scaled[rows..]).any(|v| !v.is_nan()) {
                    return Err(Failure::Wrong(format!("column {n}: something was written behind its rows")));
                }
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_the_definition() {
        assert_eq!(reference(&[1.0, 2.0, 3.0, 4.0], &[0.5, 2.0], &[10.0, 20.0]), [16.5, 29.0]);
    }

    #[test]
    fn contract_names_the_argument() {
        let launch = |x, weights, add, y, sums, rows, used, strides: [u32; 2], shared| {
            // SAFETY: nothing is launched, so nothing reads or writes the memory.
            unsafe {
                CombineExperts {
                    x: DeviceSlice::from_raw(0x1000, x),
                    weights: DeviceSlice::from_raw(0x2000, weights),
                    add: DeviceSlice::from_raw(0x3000, add),
                    next_weight: DeviceSlice::from_raw(0x4000, 40),
                    y: DeviceSlice::from_raw_mut(0x5000, y),
                    scaled: DeviceSlice::from_raw_mut(0x6000, 80),
                    next_sums: DeviceSlice::from_raw_mut(0x7000, sums),
                    quantized: DeviceSlice::empty_mut(),
                    group_counters: DeviceSlice::empty_mut(),
                    rows,
                    columns: 2,
                    used,
                    shared,
                    x_stride: strides[0],
                    y_stride: strides[1],
                    quant_format: 0,
                }
                .check()
            }
        };
        // Two columns of 40 rows of three experts.
        assert!(launch(240, 6, 80, 80, 4, 40, 3, [40, 40], 0).is_ok());
        assert!(launch(320, 8, 80, 80, 4, 40, 3, [40, 40], 1).is_ok());
        let wrong = [
            (launch(319, 8, 80, 80, 4, 40, 3, [40, 40], 1), "x"),
            (launch(320, 7, 80, 80, 4, 40, 3, [40, 40], 1), "weights"),
            (launch(320, 8, 80, 80, 4, 40, 3, [40, 40], 2), "shared"),
            (launch(239, 6, 80, 80, 4, 40, 3, [40, 40], 0), "x"),
            (launch(240, 5, 80, 80, 4, 40, 3, [40, 40], 0), "weights"),
            (launch(240, 6, 79, 80, 4, 40, 3, [40, 40], 0), "add"),
            (launch(240, 6, 80, 79, 4, 40, 3, [40, 40], 0), "y"),
            (launch(240, 6, 80, 80, 3, 40, 3, [40, 40], 0), "next_sums"),
            (launch(240, 6, 80, 80, 4, 41, 3, [41, 41], 0), "x"),
            (launch(240, 6, 80, 80, 4, 40, 3, [39, 40], 0), "x_stride"),
            (launch(240, 6, 80, 80, 4, 40, 3, [40, 39], 0), "y_stride"),
            (launch(240, 6, 80, 80, 4, 40, 0, [40, 40], 0), "used"),
            (launch(240, 6, 80, 80, 4, 40, 33, [40, 40], 0), "used"),
            (launch(240, 6, 80, 80, 4, 0, 3, [40, 40], 0), "rows"),
        ];
        for (got, argument) in wrong {
            assert_eq!(got.unwrap_err().argument, argument);
        }
    }
}
