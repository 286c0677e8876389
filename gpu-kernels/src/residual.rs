//! The residual stream where a layer's outputs are normed before they are added to it, where it begins with scaled embeddings
//! (Gemma), and where outputs are added that several processes have summed up. In place, for each column:
//!
//! - with [`NORMED`]: `x = residual + x / sqrt(mean x^2 + eps) * weight`;
//! - with [`ADDED`]: `x = residual + x * scale`;
//! - else: `x = x * scale`.
//!
//! Both then prepare the norm of the product that follows, as the flag [`NEXT`](crate::gemv::NEXT) of a product does: `scaled = x * next_weight`, and
//! in `sums` the sum of squares of `x`, in one part.
//!
//! | | |
//! |---|---|
//! | `x` | f32 `[columns, cols]`, column `n` from `n * stride` on, in place |
//! | `residual` | f32, laid out as `x`; read with [`NORMED`] and [`ADDED`] |
//! | `weight` | f32 `[cols]`, taken as stored (nothing is added to it); read with [`NORMED`] |
//! | `next_weight` | f32 `[cols]` |
//! | `scaled` | f32, laid out as `x` |
//! | `sums` | f32 `[columns]` |
//! | `stride` | elements from a column to the next: a multiple of 4, at least `cols` |
//!
//! A block takes a column, of any length from 1 on. Sums are f32, in an order that depends on the length alone, so a column has the same
//! bits beside any others. Source of the norms on both sides: Gemma 2, arXiv 2408.00118, section 2.

use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// Flag: what is in `x` is normed and added to the residual stream.
pub const NORMED: u32 = 1;
/// Flag: what is in `x` is added to the residual stream as it is.
pub const ADDED: u32 = 2;

/// A column in f64: `x` and the sum of its squares. `normed` is the residual stream, the weight of the norm, and eps.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: &[f32], normed: Option<(&[f32], &[f32], f32)>, scale: f32) -> (Vec<f64>, f64) {
    let y: Vec<f64> = match normed {
        Some((residual, weight, eps)) => {
            let normed = crate::norm::reference(x, weight, eps);
            normed.iter().zip(residual).map(|(y, r)| y + f64::from(*r)).collect()
        }
        None => x.iter().map(|x| f64::from(*x) * f64::from(scale)).collect(),
    };
    let squares = y.iter().map(|y| y * y).sum();
    (y, squares)
}

/// The same with [`ADDED`].
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn added_reference(x: &[f32], residual: &[f32], scale: f32) -> (Vec<f64>, f64) {
    let scaled = |(x, r): (&f32, &f32)| f64::from(*r) + f64::from(*x) * f64::from(scale);
    let y: Vec<f64> = x.iter().zip(residual).map(scaled).collect();
    let squares = y.iter().map(|y| y * y).sum();
    (y, squares)
}

/// What a layer adds, normed, onto the residual stream, or scaled embeddings; a block a column, 16 bytes at a time.
#[kernel(block = THREADS, min_blocks = 4)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn to_residual(
    x: InOut<f32>,
    residual: Awaited<f32>,
    weight: In<f32>,
    next_weight: In<f32>,
    scaled: Out<f32>,
    sums: Out<f32>,
    cols: u32,
    stride: u32,
    flags: u32,
    scale: f32,
    eps: f32,
) {
    let scratch = shared_array!(TO_RESIDUAL: [f32; 32]);
    grid::wait_dependencies();
    grid::launch_dependents();
    let (cols, thread) = (cols as usize, thread::idx_x() as usize);
    let column = block::idx_x() as usize;
    let at = column * stride as usize;
    let (x, residual, scaled) = (x.from(at), residual.buffer(), scaled.from(at));
    let (normed, added) = (flags & NORMED != 0, flags & (NORMED | ADDED) != 0);
    // Elements that are taken four at a time; of the rest a thread has one at most.
    let vectors = cols / 4;
    let single = 4 * vectors + thread;

    let mut squares = 0.0;
    let mut v = thread;
    while normed && v < vectors {
        let [a, b, c, d] = x.load4(4 * v).0;
        squares = math::fma(a, a, math::fma(b, b, math::fma(c, c, math::fma(d, d, squares))));
        v += THREADS as usize;
    }
    if normed && single < cols {
        let a = x.get(single);
        squares = math::fma(a, a, squares);
    }
    let squares = block_reduce::sum_f32(squares, scratch);
    let factor = if normed { 1.0 / math::sqrt(squares / cols as f32 + eps) } else { scale };

    let mut next = 0.0;
    let mut v = thread;
    while v < vectors {
        // A thread reads again what no other has written.
        let mut y = x.load4(4 * v).0;
        let (mut w, mut r) = ([1.0; 4], [0.0; 4]);
        if normed {
            w = weight.load4(4 * v).0;
        }
        if added {
            r = residual.load4(at + 4 * v).0;
        }
        let n = next_weight.load4(4 * v).0;
        let mut out = [0.0; 4];
        for i in 0..4 {
            y[i] = math::fma(y[i] * factor, w[i], r[i]);
            out[i] = y[i] * n[i];
            next = math::fma(y[i], y[i], next);
        }
        x.store4(4 * v, F32x4(y));
        scaled.store4(4 * v, F32x4(out));
        v += THREADS as usize;
    }
    if single < cols {
        let w = if normed { weight.at(single) } else { 1.0 };
        let r = if added { residual.at(at + single) } else { 0.0 };
        let y = math::fma(x.get(single) * factor, w, r);
        x.set(single, y);
        scaled.set(single, y * next_weight.at(single));
        next = math::fma(y, y, next);
    }
    let next = block_reduce::sum_f32(next, scratch);
    if thread == 0 {
        sums.set(column, next);
    }
}

/// Columns, by the parts of the sum of squares that they have: one each.
#[cfg(not(target_arch = "nvptx64"))]
impl Contract for ToResidual<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.sums.len())
    }
    fn check(&self) -> Result<(), ContractError> {
        let (m, cols) = (Self::META, (self.cols, "cols"));
        contract::within(m, "cols", self.cols, 1u32, i32::MAX)?;
        contract::within(m, "sums", self.sums.len(), 1u32, i32::MAX)?;
        contract::multiple_of(m, "stride", self.stride, 4u32)?;
        contract::within(m, "stride", self.stride, cols, i32::MAX)?;
        contract::require(m, [0, NORMED, ADDED].contains(&self.flags), "flags", "one flag, or none", self.flags)?;
        contract::require(m, self.scale.is_finite(), "scale", "a finite number", self.scale)?;
        let (eps, normed) = (self.eps, self.flags & NORMED != 0);
        contract::require(m, eps >= 0.0 && eps.is_finite(), "eps", "a finite number, not negative", eps)?;
        let all = (self.sums.len() as u64 - 1) * u64::from(self.stride) + u64::from(self.cols);
        let whole = (all, "whole columns");
        contract::at_least(m, "x", self.x.len(), whole)?;
        contract::at_least(m, "scaled", self.scaled.len(), whole)?;
        contract::exactly(m, "next_weight", self.next_weight.len(), cols)?;
        let mut vectors = vec![("x", &*self.x), ("next_weight", self.next_weight), ("scaled", &*self.scaled)];
        if self.flags != 0 {
            contract::at_least(m, "residual", self.residual.len(), whole)?;
            vectors.push(("residual", self.residual));
        }
        if normed {
            contract::exactly(m, "weight", self.weight.len(), cols)?;
            vectors.push(("weight", self.weight));
        }
        for (name, slice) in vectors {
            contract::multiple_of(m, name, (slice.address(), "its address"), 16u32)?;
        }
        Ok(())
    }
}

/// The cases of this kernel.
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases {
    use super::{ADDED, NORMED, ToResidual, added_reference, reference};
    use crate::cases::{Bench, Failure, Listed, NamedSizes, Outcome, Plain, Rng, Shape, close, why};

    /// Normed or scaled, onto the residual stream.
    pub struct ToResiduals;

    impl Plain for ToResiduals {
        const SIZES: NamedSizes = &[("columns", 1), ("cols", 2560), ("mode", 1)];

        fn kernels() -> Vec<Listed> {
            vec![Listed::unmeasured::<ToResidual<'_>>(why::SMALL)]
        }

        fn shapes() -> Vec<Vec<usize>> {
            let cols = [1, 3, 4, 5, 31, 257, 1024, 1027, 2560, 5376];
            let modes = |(i, cols)| [0, 1, 2].map(|mode| vec![1 + (i + mode) % 3, cols, mode]);
            cols.into_iter().enumerate().flat_map(modes).collect()
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            let [columns, cols, mode] = shape.sizes(["columns", "cols", "mode"])?;
            let flags = [0, NORMED, ADDED][mode % 3];
            let (stride, eps, scale) = (cols.next_multiple_of(4) + 4, 1e-6, (cols as f32).sqrt());
            // Gaps between columns, which nobody reads or writes.
            let strided = |rng: &mut Rng, size: f32| {
                let mut all = vec![f32::NAN; columns * stride];
                for column in all.chunks_exact_mut(stride) {
                    column[..cols].copy_from_slice(&rng.floats(cols).iter().map(|v| v * size).collect::<Vec<_>>());
                }
                all
            };
            let (x, residual) = (strided(rng, 3.0), strided(rng, 20.0));
            let (weight, next_weight) = (rng.floats(cols), rng.floats(cols));
            let (mut dx, dr) = (bench.upload(&x)?, bench.upload(&residual)?);
            let (dw, dn) = (bench.upload(&weight)?, bench.upload(&next_weight)?);
            let (mut scaled, mut sums) =
                (bench.upload(&vec![f32::NAN; columns * stride])?, bench.output::<f32>(columns)?);
            bench.launch(ToResidual {
                x: &mut dx,
                residual: &dr,
                weight: &dw,
                next_weight: &dn,
                scaled: &mut scaled,
                sums: &mut sums,
                cols: cols as u32,
                stride: stride as u32,
                flags,
                scale,
                eps,
            })?;
            let (y, scaled, sums) = (bench.read(&dx)?, bench.read(&scaled)?, bench.read(&sums)?);
            for n in 0..columns {
                let at = n * stride..n * stride + cols;
                let of = (&residual[at.clone()], &weight[..], eps);
                let (want, squares) = match flags {
                    ADDED => added_reference(&x[at.clone()], of.0, scale),
                    _ => reference(&x[at.clone()], (flags == NORMED).then_some(of), scale),
                };
                // The norm is at most some hundreds; the sum is rounded once more.
                let bound = |i: usize| 2e-6 * (want[i] - f64::from(of.0[i])).abs() + 1.2e-7 * want[i].abs() + 1e-30;
                close(&y[at.clone()], &want, bound)?;
                let next: Vec<f64> = want.iter().zip(&next_weight).map(|(y, w)| y * f64::from(*w)).collect();
                close(&scaled[at.clone()], &next, |i| {
                    f64::from(next_weight[i].abs()) * bound(i) + 1.2e-7 * next[i].abs()
                })?;
                close(&sums[n..=n], &[squares], |_| 1e-5 * squares)?;
                let gap = at.end..(n + 1) * stride;
                if [&y, &scaled].iter().any(|v| v[gap.clone()].iter().any(|v| !v.is_nan())) {
                    return Err(Failure::Wrong(format!("column {n}: something was written behind its elements")));
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
        // mean(9, 16) = 12.5
        let (y, squares) = reference(&[3.0, 4.0], Some((&[10.0, 20.0], &[1.0, 2.0], 0.0)), 7.0);
        let want = [10.0 + 3.0 / 12.5f64.sqrt(), 20.0 + 8.0 / 12.5f64.sqrt()];
        assert!((y[0] - want[0]).abs() < 1e-14 && (y[1] - want[1]).abs() < 1e-14);
        assert!((squares - want[0].powi(2) - want[1].powi(2)).abs() < 1e-12);
        assert_eq!(reference(&[3.0, 4.0], None, 2.0), (vec![6.0, 8.0], 100.0));
    }

    #[test]
    fn contract_names_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |x, residual, weight, columns, stride, flags| unsafe {
            ToResidual {
                x: DeviceSlice::from_raw_mut(0x1000, x),
                residual: DeviceSlice::from_raw(0x2000, residual),
                weight: DeviceSlice::from_raw(0x3000, weight),
                next_weight: DeviceSlice::from_raw(0x4000, 6),
                scaled: DeviceSlice::from_raw_mut(0x5000, 14),
                sums: DeviceSlice::from_raw_mut(0x6000, columns),
                cols: 6,
                stride,
                flags,
                scale: 1.0,
                eps: 0.0,
            }
            .check()
        };
        assert!(launch(14, 14, 6, 2, 8, NORMED).is_ok());
        assert!(launch(14, 14, 0, 2, 8, ADDED).is_ok());
        assert!(launch(14, 0, 0, 2, 8, 0).is_ok());
        for (launch, argument) in [
            (launch(13, 14, 6, 2, 8, NORMED), "x"),
            (launch(14, 13, 6, 2, 8, NORMED), "residual"),
            (launch(14, 14, 5, 2, 8, NORMED), "weight"),
            (launch(14, 14, 6, 3, 8, NORMED), "x"),
            (launch(14, 14, 6, 0, 8, NORMED), "sums"),
            (launch(14, 14, 6, 2, 4, NORMED), "stride"),
            (launch(14, 14, 6, 2, 7, NORMED), "stride"),
            (launch(14, 13, 0, 2, 8, ADDED), "residual"),
            (launch(14, 14, 6, 2, 8, NORMED | ADDED), "flags"),
            (launch(14, 14, 6, 2, 8, 4), "flags"),
        ] {
            assert_eq!(launch.unwrap_err().argument, argument);
        }
    }
}
