//! Argmax: the index of the largest of `n` values.
//!
//! | | |
//! |---|---|
//! | `x` | f32 `[n]`, `n >= 1` |
//! | `y` | u32 `[1]` |
//!
//! Of equal values the lowest index wins, and `-0` equals `0`. NaN never wins; if all are NaN the
//! result is [`NONE`]. The result does not depend on how threads are scheduled.

#[cfg(target_arch = "nvptx64")]
use warpsmith_device::argmax::Best;
use warpsmith_device::prelude::*;

/// Threads of the block.
pub const THREADS: u32 = 1024;

/// What [`Argmax`] gives where every value is NaN.
pub const NONE: u32 = u32::MAX;

/// The definition.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: &[f32]) -> u32 {
    let mut best: Option<usize> = None;
    for (i, v) in x.iter().enumerate() {
        if !v.is_nan() && best.is_none_or(|b| *v > x[b]) {
            best = Some(i);
        }
    }
    best.map_or(NONE, |i| i as u32)
}

/// Index of the largest value, by one block: a candidate a thread, then a warp, then the block.
#[kernel(block = THREADS, min_blocks = 1)]
pub unsafe fn argmax(x: In<f32>, y: Out<u32>, n: u32) {
    let scratch = shared_array!(ARGMAX: [Best; 32]);
    let n = n as usize;
    let mut best = Best::NONE;
    let mut i = thread::idx_x() as usize;
    while i < n {
        best = best.merge(Best { value: x.at(i), index: i as u32 });
        i += THREADS as usize;
    }
    let best = block_reduce::argmax(best, scratch);
    if thread::idx_x() == 0 {
        y.set(0, if best.value.is_nan() { NONE } else { best.index });
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for Argmax<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(1u32)
    }
    fn check(&self) -> Result<(), ContractError> {
        // NONE itself is no index.
        contract::within(Self::META, "n", self.n, 1u32, NONE - 1)?;
        contract::at_least(Self::META, "x", self.x.len(), (self.n, "n"))?;
        contract::at_least(Self::META, "y", self.y.len(), 1u32)
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
    }

    #[test]
    fn contract_names_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |n, x, y| unsafe {
            Argmax { x: DeviceSlice::from_raw(0x1000, x), y: DeviceSlice::from_raw_mut(0x2000, y), n }.check()
        };
        assert!(launch(5, 5, 1).is_ok());
        assert_eq!(launch(0, 5, 1).unwrap_err().argument, "n");
        assert_eq!(launch(6, 5, 1).unwrap_err().argument, "x");
        assert_eq!(launch(5, 5, 0).unwrap_err().argument, "y");
    }
}
