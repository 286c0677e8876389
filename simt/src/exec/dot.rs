//! `dp4a`: c plus the products of four bytes.

use super::OpFn;
#[cfg(target_arch = "x86_64")]
use super::lanes::each3 as lanes3;
#[cfg(not(target_arch = "x86_64"))]
use super::lanes::map3 as lanes3;

/// A byte as a number.
#[inline(always)]
fn byte<const SIGNED: bool>(word: u32, i: u32) -> i32 {
    let byte = (word >> (8 * i)) as u8;
    if SIGNED { (byte as i8).into() } else { byte.into() }
}

fn lane_by_lane<const A: bool, const B: bool>() -> OpFn {
    lanes3(|a: u32, b: u32, c: u32| {
        let products = (0..4).map(|i| byte::<A>(a, i) * byte::<B>(b, i));
        c.wrapping_add(products.sum::<i32>() as u32)
    })
}

/// Handlers by vectors: even and odd bytes as numbers of 16 bits, of which an instruction multiplies and adds pairs.
#[cfg(target_arch = "x86_64")]
macro_rules! pairs {
    (
        $name:ident, $features:literal, $vector:ty,
        $and:ident $set:ident $left:ident $right:ident $right_unsigned:ident $madd:ident $add:ident $load:ident $store:ident
    ) => {
        mod $name {
            use std::arch::x86_64::*;

            use crate::exec::lanes::{Spare, keep, target};
            use crate::exec::{Cx, Flow, LANES, Op};

            #[inline]
            #[target_feature(enable = $features)]
            fn even<const SIGNED: bool>(bytes: $vector) -> $vector {
                if SIGNED { $right::<8>($left::<8>(bytes)) } else { $and(bytes, $set(0xff)) }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn odd<const SIGNED: bool>(bytes: $vector) -> $vector {
                if SIGNED { $right::<8>(bytes) } else { $right_unsigned::<8>(bytes) }
            }

            #[target_feature(enable = $features)]
            pub unsafe fn handler<const A: bool, const B: bool>(cx: &mut Cx, op: &Op) -> Flow {
                // SAFETY: the contract of handlers: operands are rows of the frame.
                unsafe {
                    let [a, b, c] = [op.a, op.b, op.c].map(|row| cx.src(row).cast::<$vector>());
                    let mut spare = Spare::<u32>::uninit();
                    let d = target::<u32, LANES>(cx, op, &mut spare).cast::<$vector>();
                    for k in 0..LANES * 4 / size_of::<$vector>() {
                        let [a, b, c] = [a, b, c].map(|row| $load(row.add(k).cast()));
                        let products = $add($madd(even::<A>(a), even::<B>(b)), $madd(odd::<A>(a), odd::<B>(b)));
                        $store(d.add(k).cast(), $add(products, c));
                    }
                    keep::<u32>(cx, op, &spare);
                }
                Flow::Next
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
pairs! {
    pairs, "avx2", __m256i,
    _mm256_and_si256 _mm256_set1_epi16 _mm256_slli_epi16 _mm256_srai_epi16 _mm256_srli_epi16 _mm256_madd_epi16 _mm256_add_epi32
    _mm256_loadu_si256 _mm256_storeu_si256
}
#[cfg(target_arch = "x86_64")]
pairs! {
    widest, "avx512f,avx512bw", __m512i,
    _mm512_and_si512 _mm512_set1_epi16 _mm512_slli_epi16 _mm512_srai_epi16 _mm512_srli_epi16 _mm512_madd_epi16 _mm512_add_epi32
    _mm512_loadu_si512 _mm512_storeu_si512
}

fn of<const A: bool, const B: bool>() -> OpFn {
    #[cfg(target_arch = "x86_64")]
    {
        if super::lanes::wide() {
            return widest::handler::<A, B>;
        }
        if super::lanes::simd() {
            return pairs::handler::<A, B>;
        }
    }
    lane_by_lane::<A, B>()
}

/// The handler for bytes with signs or without.
pub(crate) fn dp4a(a_signed: bool, b_signed: bool) -> OpFn {
    match (a_signed, b_signed) {
        (true, true) => of::<true, true>(),
        (true, false) => of::<true, false>(),
        (false, true) => of::<false, true>(),
        (false, false) => of::<false, false>(),
    }
}
