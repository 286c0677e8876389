//! Argmax: the index of the largest of `n` values, for each column.
//!
//! | | |
//! |---|---|
//! | `x` | f32, column `c` from `c * stride` on: `[n]`, `n >= 1` |
//! | `allowed` | u32 bitset of [`words(n)`](super::words), column `c` from `c * mask_stride` on; 0: one for all columns |
//! | `y` | u32 `[columns]` |
//!
//! Of equal values the lowest index wins, and `-0` equals `0`. NaN never wins; if all are NaN, or none is allowed, the
//! result is [`NONE`]. The result does not depend on how threads are scheduled. A block takes a column.

pub use super::NONE;
#[cfg(not(target_arch = "nvptx64"))]
use super::words;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::real::Real;
#[cfg(not(target_arch = "nvptx64"))]
use crate::state;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use warpsmith_device::argmax::Best;
use warpsmith_device::prelude::*;

/// Threads of the block.
pub const THREADS: u32 = 1024;

/// The definition.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: &[f32]) -> u32 {
    masked_reference(x, None)
}

/// The definition with a mask.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn masked_reference(x: &[f32], allowed: Option<&[u32]>) -> u32 {
    let mut best: Option<usize> = None;
    for (i, v) in x.iter().enumerate() {
        let may = allowed.is_none_or(|a| a[i / 32] >> (i % 32) & 1 != 0);
        if may && !v.is_nan() && best.is_none_or(|b| *v > x[b]) {
            best = Some(i);
        }
    }
    best.map_or(NONE, |i| i as u32)
}

/// The best of the values from `x` on that `may` be taken.
#[device]
unsafe fn best_of<T: Real>(x: In<T>, n: usize, may: impl Fn(usize) -> bool) -> Best {
    let scratch = shared_array!(ARGMAX: [Best; 32]);
    let mut best = Best::NONE;
    let mut i = thread::idx_x() as usize;
    while i < n {
        if may(i) {
            best = best.merge(Best { value: x.at(i).widen(), index: i as u32 });
        }
        i += THREADS as usize;
    }
    block_reduce::argmax(best, scratch)
}

/// [`Argmax`] of a block's column.
#[device]
pub(crate) unsafe fn column<T: Real>(x: In<T>, y: Out<u32>, n: u32, stride: u32) {
    let column = block::idx_x() as usize;
    let best = best_of(x.from(column * stride as usize), n as usize, |_| true);
    if thread::idx_x() == 0 {
        y.set(column, if best.value.is_nan() { NONE } else { best.index });
    }
}

/// Index of the largest value, a block a column: a candidate a thread, then a warp, then the block.
#[kernel(block = THREADS, min_blocks = 1, family = "sampling")]
pub unsafe fn argmax(x: In<f32>, y: Out<u32>, n: u32, stride: u32) {
    column(x, y, n, stride);
}

/// Index of the largest value that a mask allows.
#[kernel(block = THREADS, min_blocks = 1, family = "sampling")]
pub unsafe fn argmax_masked(x: In<f32>, allowed: In<u32>, y: Out<u32>, n: u32, stride: u32, mask_stride: u32) {
    let column = block::idx_x() as usize;
    let mask = allowed.from(column * mask_stride as usize);
    // SAFETY: the mask has a bit for each of `n`.
    let may = |i: usize| unsafe { mask.at(i / 32) } >> (i % 32) & 1 != 0;
    let best = best_of(x.from(column * stride as usize), n as usize, may);
    if thread::idx_x() == 0 {
        y.set(column, if best.value.is_nan() { NONE } else { best.index });
    }
}

/// Rows of `n` values for `columns` columns.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn check_rows<T: Element>(
    m: &'static KernelMeta,
    name: &'static str,
    x: &DeviceSlice<T>,
    (columns, n, stride): (usize, u32, u32),
) -> Result<(), ContractError> {
    // NONE itself is no index.
    contract::within(m, "n", n, 1u32, NONE - 1)?;
    state::check_strided(m, name, x.len(), (columns, stride), (n.into(), "n"))
}

/// A bitset for each column, or one for all.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn check_mask(
    m: &'static KernelMeta,
    name: &'static str,
    mask: &DeviceSlice<u32>,
    (columns, n, stride): (usize, u32, u32),
) -> Result<(), ContractError> {
    let (words, one) = (words(n), stride == 0);
    let apart = one || stride >= words;
    contract::require(m, apart, "mask_stride", format_args!("0 (one mask), or at least {words} (words)"), stride)?;
    let before = if one { 0 } else { (columns as u64).saturating_sub(1).saturating_mul(stride.into()) };
    contract::at_least(m, name, mask.len(), (before.saturating_add(words.into()), "whole masks"))
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for Argmax<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.y.len() as u64)
    }
    fn check(&self) -> Result<(), ContractError> {
        contract::at_least(Self::META, "y", self.y.len(), 1u32)?;
        check_rows(Self::META, "x", self.x, (self.y.len(), self.n, self.stride))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for ArgmaxMasked<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.y.len() as u64)
    }
    fn check(&self) -> Result<(), ContractError> {
        contract::at_least(Self::META, "y", self.y.len(), 1u32)?;
        check_rows(Self::META, "x", self.x, (self.y.len(), self.n, self.stride))?;
        check_mask(Self::META, "allowed", self.allowed, (self.y.len(), self.n, self.mask_stride))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;

    #[test]
    fn ties_nan_and_infinities_are_defined() {
        // OX-21
        assert_eq!(reference(&[1.0, 3.0, 3.0, 2.0]), 1);
        assert_eq!(reference(&[NAN, 1.0, NAN, 2.0, NAN]), 3);
        assert_eq!(reference(&[NAN, NAN]), NONE);
        assert_eq!(reference(&[-INF, -INF]), 0);
        assert_eq!(reference(&[NAN, -INF]), 1);
        assert_eq!(reference(&[-0.0, 0.0]), 0);
        assert_eq!(masked_reference(&[5.0, 3.0, 3.0, 2.0], Some(&[0b1110])), 1);
        assert_eq!(masked_reference(&[5.0, 3.0], Some(&[0])), NONE);
    }

    #[test]
    fn contract_names_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |n, x, y, stride| unsafe {
            Argmax { x: DeviceSlice::from_raw(0x1000, x), y: DeviceSlice::from_raw_mut(0x2000, y), n, stride }.check()
        };
        assert!(launch(5, 5, 1, 5).is_ok());
        assert!(launch(5, 13, 2, 8).is_ok());
        assert_eq!(launch(0, 5, 1, 5).unwrap_err().argument, "n");
        assert_eq!(launch(6, 5, 1, 6).unwrap_err().argument, "x");
        assert_eq!(launch(5, 12, 2, 8).unwrap_err().argument, "x");
        assert_eq!(launch(5, 12, 2, 4).unwrap_err().argument, "stride");
        assert_eq!(launch(5, 5, 0, 5).unwrap_err().argument, "y");
        // SAFETY: as above.
        let masked = |words, mask_stride| unsafe {
            ArgmaxMasked {
                x: DeviceSlice::from_raw(0x1000, 120),
                allowed: DeviceSlice::from_raw(0x1000, words),
                y: DeviceSlice::from_raw_mut(0x2000, 3),
                n: 40,
                stride: 40,
                mask_stride,
            }
            .check()
        };
        assert!(masked(2, 0).is_ok() && masked(6, 2).is_ok());
        assert_eq!(masked(5, 2).unwrap_err().argument, "allowed");
        assert_eq!(masked(6, 1).unwrap_err().argument, "mask_stride");
    }
}
