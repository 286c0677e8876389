//! The budgets, by family of weights.

use warpsmith_host::gpu_kernels::cases::Product;
use warpsmith_host::gpu_kernels::format::Format;
use warpsmith_host::gpu_kernels::gemv::{Activations, choose};

/// The budget that activations are held to: codes of 16 bits are as good as f32, and cost no more.
pub fn path(activations: Activations) -> Activations {
    if activations == Activations::Int8 { Activations::Int8 } else { Activations::F32 }
}

/// Bytes of `cols` activations; codes have a pair of f32 for each 32 of them.
pub fn bytes(activations: Activations, cols: usize) -> usize {
    match activations {
        Activations::F32 => 4 * cols,
        Activations::Int16 => 2 * cols + cols / 4,
        Activations::Int8 => cols + cols / 4,
    }
}

/// The product of one column that decoders launch for these activations.
pub fn product(activations: Activations) -> Product {
    match activations {
        Activations::F32 => Product::Gemv,
        Activations::Int16 => Product::Int16,
        Activations::Int8 => Product::Int8,
    }
}

/// A family of formats with a budget.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// As reports have it.
    pub name: &'static str,
    /// The format that is run.
    pub format: Format,
    /// Bits of a weight that are its code, without scales.
    pub code_bits: usize,
    /// Issue slots a weight; any of these paths does if it is the only one, all of them if there are two.
    pub limits: &'static [(Option<Activations>, f64)],
}

macro_rules! family {
    ($name:literal, $format:ident, $bits:literal, $limits:expr) => {
        Family { name: $name, format: Format::$format, code_bits: $bits, limits: &$limits }
    };
}

/// Budgets on sm_90: half of the issue slots that an H200 has while it loads a weight, or less.
pub static ALL: [Family; 8] = [
    family!("Q1_0", Q1_0, 1, [(Some(Activations::Int8), 0.55), (Some(Activations::F32), 1.05)]),
    family!("TQ2/Q2", TQ2_0_G128, 2, [(None, 1.0)]),
    family!("Q4_0", Q4_0, 4, [(None, 2.1)]),
    family!("Q4_K", Q4_K, 4, [(None, 2.1)]),
    family!("Q5_K", Q5_K, 5, [(None, 2.6)]),
    family!("Q6_K", Q6_K, 6, [(None, 3.1)]),
    family!("Q8_0", Q8_0, 8, [(None, 3.0)]),
    family!("F16", F16, 16, [(None, 4.0)]),
];

/// Bytes of memory traffic by those that are needed.
pub const TRAFFIC: f64 = 1.02;
/// Bytes that a multiprocessor of an H200 has to have on the way: 4.48 TB/s for 0.65 us, by 132 (Little's law).
pub const IN_FLIGHT: f64 = 22.0 * 1024.0;

impl Family {
    /// What decoders launch for it, by all that a user may allow: the choice is theirs.
    pub fn launched(&self) -> Vec<(Activations, Product)> {
        let mut all: Vec<_> = Activations::ALL.map(|allowed| choose(self.format, allowed)).to_vec();
        all.dedup();
        all.into_iter().map(|a| (a, product(a))).collect()
    }

    /// Whether a filter means the family as a whole.
    pub fn is_named(&self, filter: &str) -> bool {
        self.name.to_lowercase().contains(&filter.to_lowercase())
    }

    /// What a kernel of these activations may take, and no more.
    pub fn limit(&self, activations: Activations) -> Option<f64> {
        self.limits.iter().find(|l| l.0.is_none_or(|a| a == path(activations))).map(|l| l.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_held_by_what_decoders_launch() {
        let kernels = |f: &Family| f.launched().iter().map(|(_, p)| p.kernel(f.format)).collect::<Vec<_>>();
        let of = |name: &str| kernels(ALL.iter().find(|f| f.name == name).unwrap());
        assert_eq!(of("Q1_0"), ["gemv_q1_0", "gemv_q1_0_i16", "gemv_q1_0_i8"]);
        assert_eq!(of("Q8_0"), ["gemv_q8_0", "gemv_q8_0_i8"]);
        // Not `gemv_f16_v3`, which no decoder launches.
        assert_eq!(of("F16"), ["gemv_f16"]);
        assert_eq!((ALL[0].limit(Activations::Int8), ALL[0].limit(Activations::F32)), (Some(0.55), Some(1.05)));
        assert_eq!(ALL[1].limit(Activations::Int8), Some(1.0));
        assert_eq!(ALL[0].limit(Activations::Int16), Some(1.05));
    }
}
