//! Units of weights on their way to tensor cores, and the order in which groups of them are added up.

use super::{
    super::tensor::staging::{Keeping, Kept, Words},
    CLASSES,
};
use crate::format::{
    halves::{Eight, Halves},
    record::{InMemory, Record, UNIT},
};
use warpsmith_device::mma::mma_f16;

/// Units of a group: one for each of four lanes.
pub const TOGETHER: u32 = crate::gemv::quant_format::half::TOGETHER;
/// Vectors of eight weights in a unit.
pub const VECTORS: usize = UNIT / 8;

/// How a row's groups are cut.
#[derive(Clone, Copy)]
pub struct Runs {
    pub groups: u32,
    /// Groups of a run; the last may have fewer.
    pub length: u32,
}

impl Runs {
    #[inline(always)]
    pub fn of(record: &Record) -> Runs {
        let groups = (record.units as u32).div_ceil(TOGETHER);
        Runs { groups, length: groups.div_ceil(CLASSES) }
    }
}

/// What is loaded of a unit of weights, as it is.
#[derive(Clone)]
pub struct LoadedWeights<F: Halves> {
    u: usize,
    codes: F::Unit<InMemory>,
    numbers: Words,
}

impl<F: Halves> LoadedWeights<F> {
    /// Unit `t` of a group of a row; behind the last one that, which activations of 0 are multiplied with.
    #[inline(always)]
    pub unsafe fn load(row: InMemory, record: &Record, group: u32, t: usize) -> LoadedWeights<F> {
        // In 32 bits, so that an address is one instruction.
        let u = (TOGETHER * group + t as u32).min(record.units as u32 - 1);
        let (u, numbers) = (u as usize, Words::default());
        // SAFETY: the caller's promise: the row is one of the weights.
        unsafe {
            let codes = F::unit(row, record, u);
            if F::SCALED {
                F::scales_of(Keeping(row, &numbers), record, u, &codes);
            }
            LoadedWeights { u, codes, numbers }
        }
    }

    /// What its codes are scaled by.
    #[inline(always)]
    pub unsafe fn scale(&self, record: &Record) -> F::Scale {
        self.numbers.again();
        // SAFETY: as when it was loaded.
        F::scale(unsafe { F::scales_of(Kept(&self.numbers), record, self.u, &self.codes) })
    }

    /// Weights `8 * v` to `8 * v + 7`.
    #[inline(always)]
    pub fn eight(&self, v: usize, scale: &F::Scale) -> Eight {
        F::eight::<InMemory>(&self.codes, v, scale)
    }
}

/// Of eight weights of two rows, eight apart, what a lane multiplies in each of two steps of 16.
#[inline(always)]
pub fn steps([a, b]: [Eight; 2]) -> [[u32; 4]; 2] {
    [[a[0], b[0], a[1], b[1]], [a[2], b[2], a[3], b[3]]]
}

/// Adds the products of a tile of rows and one of columns in two steps.
#[inline(always)]
pub unsafe fn add_steps(to: &mut [f32; 4], steps: [[u32; 4]; 2], x: Eight) {
    // SAFETY: the caller's promise: all lanes are here.
    unsafe {
        mma_f16(to, steps[0], [x[0], x[1]]);
        mma_f16(to, steps[1], [x[2], x[3]]);
    }
}
