//! Which activations a product is run with.

use super::Activations;
use super::tuned::TUNED;
use crate::format::Format;

/// The activations that are allowed, or where the format has no entry point for them the next more exact ones that it has
/// one for; [`fastest`] also asks whether they pay.
#[must_use]
pub fn choose(format: Format, allowed: Activations) -> Activations {
    Activations::ALL.into_iter().rev().find(|a| *a <= allowed && a.take(format)).unwrap_or(Activations::F32)
}

/// What `warpsmith tune` found for an architecture, a format and the activations that a user allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// Compute capability, 90 for 9.0.
    pub sm: u32,
    /// The format of the weights.
    pub format: Format,
    /// The cheapest activations that are allowed.
    pub allowed: Activations,
    /// The fastest of those that are allowed.
    pub fastest: Activations,
    /// In matrices of at least so many weights; in smaller ones more exact activations are as fast. `u64::MAX`: never.
    pub from: u64,
}

/// Where the rows of an architecture are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Compute capability.
    pub sm: u32,
    /// `time`: measured on the GPU; `model`: instructions and bytes over a data sheet's rates.
    pub by: &'static str,
    /// The GPU.
    pub gpu: &'static str,
    /// Versions of the tools.
    pub with: &'static str,
}

/// The activations for a matrix of `rows` by `cols` on a device of compute capability `sm` (90 is 9.0): the fastest of
/// those that are allowed and that the format has an entry point for. [`TUNED`] tells; the rows of an
/// architecture also serve those after it that have none.
#[must_use]
pub fn fastest(format: Format, rows: u32, cols: u32, allowed: Activations, sm: u32) -> Activations {
    let weights = u64::from(rows) * u64::from(cols);
    let known = TUNED.iter().filter(|t| t.format == format && t.allowed <= allowed && t.sm <= sm);
    let Some(nearest) = known.clone().map(|t| t.sm).max() else { return Activations::F32 };
    let reached = known.filter(|t| t.sm == nearest && t.from <= weights);
    reached.max_by_key(|t| t.allowed).map_or(Activations::F32, |t| t.fastest)
}

#[cfg(test)]
mod tests {
    use super::super::tuned::PROVENANCE;
    use super::*;

    #[test]
    fn the_cheapest_that_are_allowed_and_exist() {
        let choices = |format| Activations::ALL.map(|allowed| choose(format, allowed).to_string());
        assert_eq!(choices(Format::Q1_0), ["f32", "f16x2", "int16", "f16", "int8"]);
        assert_eq!(choices(Format::TQ2_0), ["f32", "f16x2", "int16", "f16", "int8"]);
        assert_eq!(choices(Format::Q4_K), ["f32", "f16x2", "int16", "f16", "int8"]);
        assert_eq!(choices(Format::Q5_1), ["f32", "f16x2", "int16", "f16", "f16"]);
        // 64 weights share a scale, with which integers do not fit.
        assert_eq!(choices(Format::Q2_0), ["f32", "f16x2", "f16x2", "f16", "f16"]);
        assert_eq!(choices(Format::F32), ["f32"; 5]);
        // No integers, but f16.
        assert_eq!(choices(Format::F16), ["f32", "f16x2", "f16x2", "f16", "f16"]);
    }

    #[test]
    fn the_fastest_that_are_allowed_and_exist() {
        for (format, sm) in Format::ALL.into_iter().flat_map(|f| [60, 75, 87, 90, 100, 130].map(|sm| (f, sm))) {
            for allowed in Activations::ALL {
                for weights in [1, 1 << 12, 1 << 14] {
                    let chosen = fastest(format, weights, weights, allowed, sm);
                    assert!(chosen <= allowed && chosen.take(format), "{format} {allowed} sm_{sm}: {chosen}");
                }
            }
            assert_eq!(fastest(format, 1, 1, Activations::Int8, sm), Activations::F32, "{format} sm_{sm}");
            assert_eq!(
                fastest(format, u32::MAX, u32::MAX, Activations::Int8, 60),
                Activations::F32,
                "no row is that old"
            );
        }
    }

    #[test]
    fn rows_serve_later_architectures() {
        let large = |sm| fastest(Format::Q1_0, 1 << 17, 1 << 12, Activations::Int16, sm);
        assert_eq!((large(90), large(100)), (Activations::Int16, Activations::Int16));
    }

    #[test]
    fn the_table_is_whole() {
        for p in PROVENANCE {
            for format in Format::ALL {
                for a in [Activations::Int16, Activations::Int8].into_iter().filter(|a| a.take(format)) {
                    let rows = TUNED.iter().filter(|t| (t.sm, t.format, t.allowed) == (p.sm, format, a));
                    assert_eq!(rows.count(), 1, "{format} {a} sm_{}", p.sm);
                }
            }
        }
        assert!(TUNED.iter().all(|t| t.fastest <= t.allowed && t.fastest.take(t.format)), "what cannot be run");
        assert!(TUNED.iter().all(|t| PROVENANCE.iter().any(|p| p.sm == t.sm)), "rows of unknown provenance");
    }
}
