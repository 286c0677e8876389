//! What weights are multiplied with.

use crate::names::named;

/// What weights are multiplied with, from the most exact to the cheapest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activations {
    /// f32, as computed.
    F32,
    /// Two f16 for each number, times f16 weights on tensor cores: as accurate as f32 where weights are f16 as they are.
    F16x2,
    /// Integers of 16 bits with a scale for each 32 or 128: nearly as accurate as f32, and the default of decoders.
    #[default]
    Int16,
    /// f16, times f16 weights on tensor cores, with f32 sums: an outlier costs nobody's precision.
    F16,
    /// Integers of eight bits with a scale for each 32 or 128: an outlier costs its block the others' precision.
    Int8,
}

named! {
    Activations, "kind of activations", 5:
    F32 = "f32" or "exact", "single precision";
    F16x2 = "f16x2" or "split", "two of half precision for each number, on tensor cores where a format has kernels for it: nearly as accurate";
    Int16 = "int16", "integers of 16 bits where a format has kernels for them, else as f16x2: nearly as accurate";
    F16 = "f16" or "half", "half precision on tensor cores where a format has kernels for it: weights are rounded too, outliers do no harm";
    Int8 = "int8" or "fastest", "integers of eight bits where a format has kernels for them: coarser, above all where single activations are large";
}
