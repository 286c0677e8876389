//! The host's side of each problem: data, launches, and the comparison with the definition in f64.

pub mod add;
pub mod gemv;
pub mod graph;
pub mod q8_0;
pub mod race;
pub mod rms_norm;
pub mod sum;
pub mod transpose;
