//! What products are held to on sm_90, by family of formats: issue slots a weight. `warpsmith budget` measures it.

use super::cases::Product;
use super::{Activations, choose};
use crate::cases::{Measured, why};
use crate::format::decode::Decode;
use crate::format::{Format, Layout};
use std::sync::LazyLock;

/// A family of formats with a budget: those of one layout.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// As reports have it.
    pub name: &'static str,
    /// The format that is run.
    pub format: Format,
    /// Bits of a weight that are its code, without scales.
    pub code_bits: usize,
    /// Issue slots a weight, by activations; products with others are held to nothing. `None`: with all that decoders launch.
    pub limits: &'static [(Option<Activations>, f64)],
}

/// The activations that a limit is for.
macro_rules! path {
    (None) => {
        None
    };
    (Some($A:ident)) => {
        Some(Activations::$A)
    };
}

macro_rules! families {
    (() $($F:ident {
        $(family $name:literal $V:ident, $bits:literal: $($Some:ident $(($A:ident))? = $limit:literal),+;)? $(none $why:literal)?
    } $formats:tt)*) => {
        /// The families, by bits of a code: half of the issue slots that an H200 has while it loads a weight, or less.
        pub static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
            let mut all = vec![$($(Family {
                name: $name,
                format: Format::$V,
                code_bits: $bits,
                limits: &[$((path!($Some $(($A))?), $limit)),+],
            },)?)*];
            all.sort_by_key(|f| f.code_bits);
            all
        });

        /// Why the formats of a layout have no family.
        fn without_family(layout: Layout) -> &'static str {
            match layout {
                $(Layout::$F => concat!($($why)?),)*
            }
        }
    };
}
crate::formats! { budget families () }

/// Whether the product of one column with weights of a layout is held to a budget: where decoders launch it, which they choose.
#[must_use]
pub fn of(layout: Layout, activations: Activations) -> Measured {
    let family = FAMILIES.iter().find(|f| f.format.layout() == layout);
    match family {
        Some(family) if family.launched().iter().any(|(a, _)| *a == activations) => Measured::By(family.name),
        Some(_) => Measured::Not(why::VARIANT),
        None => Measured::Not(without_family(layout)),
    }
}

/// The family of products with [many columns](super::tensor), by its name.
pub const MANY: &str = "gemm";

/// What products of a block of columns are held to.
#[derive(Clone, Copy, Debug)]
pub struct OfMany {
    /// Issue slots a multiply-add: those that llama.cpp's kernel for many columns takes in its loop, with activations of eight bits, for
    /// Q8_0, or for Q4_K where weights have addends.
    pub slots: f64,
    /// Share of the rate of `mma.sync`.
    pub rate: f64,
}

macro_rules! many {
    (() $($F:ident {
        $(family $name:literal $V:ident, $bits:literal: $($Some:ident $(($A:ident))? = $limit:literal),+;)? $(none $why:literal)?
    } $formats:tt)*) => {
        /// Of weights of a layout; more where the layout has a family.
        #[must_use]
        pub fn of_many(layout: Layout) -> OfMany {
            let (shifted, family) = match layout {
                $(Layout::$F => (<crate::format::$F as Decode>::SHIFTED, <[&str]>::len(&[$($name)?]) == 1),)*
            };
            OfMany { slots: if shifted { 0.183 } else { 0.132 }, rate: if family { 0.60 } else { 0.45 } }
        }
    };
}
crate::formats! { budget many () }

/// The product of one column that decoders launch for these activations.
#[must_use]
pub fn product(activations: Activations) -> Product {
    match activations {
        Activations::F32 => Product::Gemv,
        Activations::Int16 => Product::Int16,
        Activations::F16x2 => Product::Split,
        Activations::F16 => Product::Half,
        Activations::Int8 => Product::Int8,
    }
}

impl Family {
    /// What decoders launch for it, by all that a user may allow: the choice is theirs.
    #[must_use]
    pub fn launched(&self) -> Vec<(Activations, Product)> {
        let mut all: Vec<_> = Activations::ALL.map(|allowed| choose(self.format, allowed)).to_vec();
        // Two f16 are two columns of the entry points of one.
        all.retain(|a| *a != Activations::F16x2);
        all.dedup();
        all.into_iter().map(|a| (a, product(a))).collect()
    }

    /// Whether a filter means the family as a whole.
    #[must_use]
    pub fn is_named(&self, filter: &str) -> bool {
        self.name.to_lowercase().contains(&filter.to_lowercase())
    }

    /// What a kernel of these activations may take, and no more.
    #[must_use]
    pub fn limit(&self, activations: Activations) -> Option<f64> {
        self.limits.iter().find(|l| l.0.is_none_or(|a| a == activations)).map(|l| l.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_held_by_what_decoders_launch() {
        let kernels = |f: &Family| f.launched().iter().map(|(_, p)| p.kernel(f.format)).collect::<Vec<_>>();
        let of = |name: &str| kernels(FAMILIES.iter().find(|f| f.name == name).unwrap());
        assert_eq!(of("Q1_0"), ["gemv_q1_0", "gemv_q1_0_i16", "gemv_q1_0_f16", "gemv_q1_0_i8"]);
        assert_eq!(of("Q8_0"), ["gemv_q8_0", "gemv_q8_0_i16", "gemv_q8_0_f16", "gemv_q8_0_i8"]);
        // Not `gemv_f16_v3`, which no decoder launches.
        assert_eq!(of("F16"), ["gemv_f16", "gemv_f16_f16"]);
        let limits = |f: &Family| Activations::ALL.map(|a| f.limit(a));
        assert_eq!(limits(&FAMILIES[0]), [None, None, Some(1.05), None, Some(0.55)]);
        assert_eq!(limits(&FAMILIES[1]), [None, None, Some(1.0), None, None]);
    }
}
