//! `cvt.f32.f16`, which products ask for with every scale: CPUs have an instruction for it.

use super::OpFn;
use super::float::canon;
use super::half::{H, Half};
use super::lanes::map1;

#[cfg(target_arch = "x86_64")]
mod fast {
    use std::arch::x86_64::*;

    use crate::exec::lanes::{Spare, keep, target};
    use crate::exec::{Cx, Flow, LANES, Op};

    /// NaN as the ISA has it, all bits but the sign; the CPU keeps those that it was given.
    const NAN: i32 = i32::MAX;

    macro_rules! handler {
        ($name:ident, $features:literal, $vector:ty, |$words:ident| $widened:expr) => {
            #[target_feature(enable = $features)]
            pub unsafe fn $name(cx: &mut Cx, op: &Op) -> Flow {
                // SAFETY: the contract of handlers: the operand is a row of the frame.
                unsafe {
                    let a = cx.src(op.a).cast::<$vector>();
                    let mut spare = Spare::<f32>::uninit();
                    let d = target::<f32, LANES>(cx, op, &mut spare).cast::<$vector>();
                    for k in 0..LANES * 4 / size_of::<$vector>() {
                        let $words = a.add(k).read_unaligned();
                        d.add(k).write_unaligned($widened);
                    }
                    keep::<f32>(cx, op, &spare);
                }
                Flow::Next
            }
        };
    }

    handler!(eight, "avx2,f16c", __m256i, |words| {
        let halves = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
        let halves = _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
        let value = _mm256_cvtph_ps(halves);
        let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(value, value);
        _mm256_castps_si256(_mm256_blendv_ps(value, _mm256_castsi256_ps(_mm256_set1_epi32(NAN)), nan))
    });

    handler!(sixteen, "avx512f", __m512i, |words| {
        let value = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
        _mm512_mask_mov_epi32(_mm512_castps_si512(value), nan, _mm512_set1_epi32(NAN))
    });
}

/// The handler: row `d` gets the numbers of the lower halves of row `a`.
pub(super) fn f32_of_f16() -> OpFn {
    #[cfg(target_arch = "x86_64")]
    {
        if super::lanes::wide() {
            return fast::sixteen;
        }
        if super::lanes::simd() {
            return fast::eight;
        }
    }
    map1(|a: H| canon(a.to_f32()))
}
