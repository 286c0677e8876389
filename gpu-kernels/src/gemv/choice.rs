//! Which activations a product is run with.

use super::int8;
use crate::format::Format;
use std::fmt;

/// What weights are multiplied with, from the most exact to the cheapest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activations {
    /// f32, as computed.
    #[default]
    F32,
    /// Codes of 16 bits with a scale for each 128: about as accurate as f32.
    Int16,
    /// Codes of eight bits with a scale for each 32 or 128: an outlier costs its block the others' precision.
    Int8,
}

impl Activations {
    /// All of them.
    pub const ALL: [Activations; 3] = [Activations::F32, Activations::Int16, Activations::Int8];

    /// Whether a format has entry points for them.
    #[must_use]
    pub fn take(self, format: Format) -> bool {
        match self {
            Activations::F32 => true,
            Activations::Int16 => in_planes(format),
            Activations::Int8 => in_planes(format) || int8::GemvI8::takes(format),
        }
    }
}

impl fmt::Display for Activations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Activations::F32 => "f32",
            Activations::Int16 => "int16",
            Activations::Int8 => "int8",
        })
    }
}

/// Whether integer activations for the format are bit planes: those of one bit, and of two where at least 128 weights share
/// a scale.
#[must_use]
pub fn in_planes(format: Format) -> bool {
    format == Format::Q1_0 || format.block_units() >= 2
}

/// The activations for a matrix of `rows` by `cols` on a device of compute capability `sm` (90 is 9.0): those that are
/// allowed, or where the format has no entry point for them the next more exact ones that it has one for.
#[must_use]
pub fn choose(format: Format, rows: u32, cols: u32, allowed: Activations, sm: u32) -> Activations {
    let _ = (rows, cols, sm);
    Activations::ALL.into_iter().rev().find(|a| *a <= allowed && a.take(format)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_that_are_allowed_and_exist() {
        let choices = |format| Activations::ALL.map(|allowed| choose(format, 64, 512, allowed, 90).to_string());
        assert_eq!(choices(Format::Q1_0), ["f32", "int16", "int8"]);
        assert_eq!(choices(Format::TQ2_0), ["f32", "int16", "int8"]);
        assert_eq!(choices(Format::Q4_K), ["f32", "f32", "int8"]);
        // 64 weights share a scale.
        assert_eq!(choices(Format::Q2_0), ["f32", "f32", "f32"]);
        assert_eq!(choices(Format::F16), ["f32", "f32", "f32"]);
    }
}
