//! The list of all kernels.

use crate::{attention, elementwise, embed, gemv, kv, norm, persistent, rope, sampling};
use warpsmith_device::{Kernel, KernelMeta};

macro_rules! metas {
    ($($kernel:path),* $(,)?) => { vec![$(<$kernel as Kernel>::META),*] };
}

/// Every kernel of this crate, family by family in the order of a decode step.
#[must_use]
pub fn catalogue() -> Vec<&'static KernelMeta> {
    metas![
        embed::EmbedF32<'_>,
        embed::EmbedF16<'_>,
        embed::EmbedBf16<'_>,
        embed::EmbedQ10<'_>,
        embed::EmbedQ20<'_>,
        embed::EmbedQ40<'_>,
        embed::EmbedQ41<'_>,
        embed::EmbedQ50<'_>,
        embed::EmbedQ51<'_>,
        embed::EmbedQ80<'_>,
        embed::EmbedQ2K<'_>,
        embed::EmbedQ3K<'_>,
        embed::EmbedQ4K<'_>,
        embed::EmbedQ5K<'_>,
        embed::EmbedQ6K<'_>,
        embed::EmbedIq4Nl<'_>,
        embed::EmbedIq4Xs<'_>,
        embed::EmbedMxfp4<'_>,
        norm::RmsNormV1<'_>,
        norm::RmsNorm<'_>,
        norm::AddRmsNorm<'_>,
        gemv::first::GemvF32V1<'_>,
        gemv::first::GemvQ80V1<'_>,
        gemv::GemvF32<'_>,
        gemv::GemmF32<'_>,
        gemv::GemvF16<'_>,
        gemv::GemmF16<'_>,
        gemv::four::GemvF16V3<'_>,
        gemv::GemvBf16<'_>,
        gemv::GemmBf16<'_>,
        gemv::GemvQ10<'_>,
        gemv::GemmQ10<'_>,
        gemv::planes::PlanesI8<'_>,
        gemv::planes::PlanesI16<'_>,
        gemv::planes::GemvQ10I8<'_>,
        gemv::planes::GemvQ10I16<'_>,
        gemv::int8::QuantizeI8<'_>,
        gemv::int8::GemvQ40I8<'_>,
        gemv::int8::GemvQ80I8<'_>,
        gemv::int8::GemvQ4KI8<'_>,
        gemv::int8::GemvQ5KI8<'_>,
        gemv::int8::GemvQ6KI8<'_>,
        gemv::planes::PlanesQ2I8<'_>,
        gemv::planes::PlanesQ2I16<'_>,
        gemv::planes::GemvQ20I8<'_>,
        gemv::planes::GemvQ20I16<'_>,
        gemv::GemvQ20<'_>,
        gemv::GemmQ20<'_>,
        gemv::GemvQ40<'_>,
        gemv::GemmQ40<'_>,
        gemv::GemvQ41<'_>,
        gemv::GemmQ41<'_>,
        gemv::GemvQ50<'_>,
        gemv::GemmQ50<'_>,
        gemv::GemvQ51<'_>,
        gemv::GemmQ51<'_>,
        gemv::GemvQ80<'_>,
        gemv::GemmQ80<'_>,
        gemv::GemvQ2K<'_>,
        gemv::GemmQ2K<'_>,
        gemv::GemvQ3K<'_>,
        gemv::GemmQ3K<'_>,
        gemv::GemvQ4K<'_>,
        gemv::GemmQ4K<'_>,
        gemv::GemvQ5K<'_>,
        gemv::GemmQ5K<'_>,
        gemv::GemvQ6K<'_>,
        gemv::GemmQ6K<'_>,
        gemv::GemvIq4Nl<'_>,
        gemv::GemmIq4Nl<'_>,
        gemv::GemvIq4Xs<'_>,
        gemv::GemmIq4Xs<'_>,
        gemv::GemvMxfp4<'_>,
        gemv::GemmMxfp4<'_>,
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
    ]
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
