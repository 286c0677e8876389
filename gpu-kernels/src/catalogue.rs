//! The list of all kernels.

use crate::{attention, elementwise, embed, gemv, kv, norm, rope, sampling};
use warpsmith_device::{Kernel, KernelMeta};

macro_rules! metas {
    ($($kernel:path),* $(,)?) => { vec![$(<$kernel as Kernel>::META),*] };
}

/// Every kernel of this crate, family by family in the order of a decode step.
#[must_use]
pub fn catalogue() -> Vec<&'static KernelMeta> {
    use gemv::{blocks, dense};
    metas![
        embed::EmbedF32<'_>,
        embed::EmbedF16<'_>,
        embed::EmbedQ80<'_>,
        embed::EmbedQ40<'_>,
        embed::EmbedQ10<'_>,
        norm::RmsNormV1<'_>,
        norm::RmsNorm<'_>,
        norm::AddRmsNorm<'_>,
        dense::GemvF32V1<'_>,
        dense::GemvF32ResidualV1<'_>,
        dense::GemvF32<'_>,
        dense::GemvF32Residual<'_>,
        dense::GemvF16V1<'_>,
        dense::GemvF16ResidualV1<'_>,
        dense::GemvF16<'_>,
        dense::GemvF16Residual<'_>,
        blocks::GemvQ80V1<'_>,
        blocks::GemvQ80ResidualV1<'_>,
        blocks::GemvQ80<'_>,
        blocks::GemvQ80Residual<'_>,
        blocks::GemvQ40V1<'_>,
        blocks::GemvQ40ResidualV1<'_>,
        blocks::GemvQ40<'_>,
        blocks::GemvQ40Residual<'_>,
        blocks::GemvQ10V1<'_>,
        blocks::GemvQ10ResidualV1<'_>,
        blocks::GemvQ10<'_>,
        blocks::GemvQ10Residual<'_>,
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
