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

/// By the instruction for it, which multiplies bytes without signs by bytes with signs.
#[cfg(target_arch = "x86_64")]
mod vnni {
    use std::arch::x86_64::*;

    use crate::exec::lanes::{Spare, keep, target};
    use crate::exec::{Cx, Flow, LANES, Op};

    /// Sixteen lanes. A byte of the wrong kind is one of the right kind and 128 off, which is taken back by 128 times the other four.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn dots<const A: bool, const B: bool>(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        let other_kind = |bytes| _mm512_xor_si512(bytes, _mm512_set1_epi8(i8::MIN));
        match (A, B) {
            (false, true) => _mm512_dpbusd_epi32(c, a, b),
            (true, false) => _mm512_dpbusd_epi32(c, b, a),
            (true, true) => {
                let off = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(i8::MIN), b);
                _mm512_sub_epi32(_mm512_dpbusd_epi32(c, other_kind(a), b), off)
            }
            (false, false) => {
                let off = _mm512_slli_epi32::<7>(_mm512_dpbusd_epi32(_mm512_setzero_si512(), a, _mm512_set1_epi8(1)));
                _mm512_add_epi32(_mm512_dpbusd_epi32(c, a, other_kind(b)), off)
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub unsafe fn handler<const A: bool, const B: bool>(cx: &mut Cx, op: &Op) -> Flow {
        // SAFETY: the contract of handlers: operands are rows of the frame.
        unsafe {
            let [a, b, c] = [op.a, op.b, op.c].map(|row| cx.src(row).cast::<__m512i>());
            let mut spare = Spare::<u32>::uninit();
            let d = target::<u32, LANES>(cx, op, &mut spare).cast::<__m512i>();
            for k in 0..LANES * 4 / size_of::<__m512i>() {
                let [a, b, c] = [a, b, c].map(|row| _mm512_loadu_si512(row.add(k).cast()));
                _mm512_storeu_si512(d.add(k).cast(), dots::<A, B>(a, b, c));
            }
            keep::<u32>(cx, op, &spare);
        }
        Flow::Next
    }
}

fn of<const A: bool, const B: bool>() -> OpFn {
    #[cfg(target_arch = "x86_64")]
    {
        if super::lanes::dots() {
            return vnni::handler::<A, B>;
        }
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
