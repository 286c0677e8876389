//! The list of all kernels.

use crate::{attention, elementwise, embed, gemv, kv, norm, persistent, rope, sampling};
use warpsmith_device::{Kernel, KernelMeta};

macro_rules! metas {
    ($($kernel:path),* $(,)?) => { vec![$(<$kernel as Kernel>::META),*] };
}

macro_rules! embeddings {
    (() $($F:ident { $embed:ident $Embed:ident $shared:ident } $formats:tt)*) => { metas![$(embed::$Embed<'_>,)*] };
}

macro_rules! products {
    (() $($F:ident {
        $blocks:literal: $gemv:ident $Gemv:ident $s1:ident, $gemm:ident $Gemm:ident $s2:ident
    } $formats:tt)*) => {
        metas![$(gemv::$Gemv<'_>, gemv::$Gemm<'_>,)*]
    };
}

macro_rules! coded_products {
    (() $($F:ident { $($codes:ident: $blocks:literal, $gemv:ident $Gemv:ident $shared:ident;)* } $formats:tt)*) => {
        metas![$($(coded::$Gemv<'_>,)*)*]
    };
}

/// Every kernel of this crate, family by family in the order of a decode step.
#[must_use]
pub fn catalogue() -> Vec<&'static KernelMeta> {
    [
        crate::formats!(embed embeddings ()),
        metas![norm::RmsNormV1<'_>, norm::RmsNorm<'_>, norm::AddRmsNorm<'_>],
        metas![gemv::first::GemvF32V1<'_>, gemv::first::GemvQ80V1<'_>, gemv::four::GemvF16V3<'_>],
        crate::formats!(product products ()),
        metas![
            coded::PlanesI8<'_>,
            coded::PlanesI16<'_>,
            coded::PlanesQ2I8<'_>,
            coded::PlanesQ2I16<'_>,
            coded::QuantizeI8<'_>,
        ],
        crate::formats!(coded coded_products ()),
        metas![
            rope::Rope<'_>,
            rope::QkNormRope<'_>,
            kv::KvStore<'_>,
            kv::KvStoreF32<'_>,
            attention::AttnScores<'_>,
            attention::AttnSoftmax<'_>,
            attention::AttnWeightedSum<'_>,
            attention::AttnDecode<'_>,
            attention::AttnDecodeF32<'_>,
            kv::QkvStoreF16<'_>,
            kv::QkvStoreF32<'_>,
            kv::QkvStoreQ8<'_>,
            attention::AttnPrefillF16<'_>,
            attention::AttnPrefillF32<'_>,
            attention::AttnPrefillQ8<'_>,
            attention::AttnStepF16<'_>,
            attention::AttnStepF32<'_>,
            attention::AttnStepQ8<'_>,
            persistent::LayerF16<'_>,
            elementwise::ResidualAdd<'_>,
            elementwise::Swiglu<'_>,
            sampling::argmax::Argmax<'_>,
            sampling::argmax::ArgmaxMasked<'_>,
            sampling::penalty::RepetitionPenalty<'_>,
            sampling::sample::Sample<'_>,
        ],
    ]
    .concat()
}

/// The kernels of products with quantized activations, of both kinds.
mod coded {
    pub use crate::gemv::{int8::*, planes::*};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_says_what_a_reader_needs() {
        let all = catalogue();
        let mut names: Vec<_> = all.iter().map(|m| m.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len(), "two kernels of one name");
        for m in all {
            assert!(!m.summary.is_empty(), "{} has no summary", m.name);
            assert!(m.min_blocks > 0, "{}: launch bounds come with a minimum of blocks", m.name);
            assert_eq!(m.library, "gpu-kernels", "{}", m.name);
        }
    }
}
