//! `prmt`: four bytes of two registers, by selectors.

use std::array::from_fn;

use super::int::pair;
use super::lanes::{Chunk, Spare, keep, map3, put, target};
use super::{Cx, Flow, Op, OpFn};

/// The four selectors of a mode, for a third operand `c`: three bits name a byte of (b, a), the fourth asks for its sign.
type Selectors = fn(c: u32) -> [u32; 4];

macro_rules! modes {
    ($($name:literal: $selectors:expr,)*) => {
        /// `prmt` in the mode named by its modifier.
        pub(crate) fn prmt(mode: &str) -> Option<OpFn> {
            Some(match mode {
                $($name => map3(|a: u32, b: u32, c: u32| choose(a, b, $selectors(c))),)*
                _ => return None,
            })
        }

        fn selectors(mode: &str) -> Option<Selectors> {
            Some(match mode {
                $($name => $selectors,)*
                _ => return None,
            })
        }
    };
}

modes! {
    "": |c: u32| [c & 15, c >> 4 & 15, c >> 8 & 15, c >> 12 & 15],
    "f4e": |c: u32| [0, 1, 2, 3].map(|i| (i + (c & 3)) & 7),
    "b4e": |c: u32| [0, 7, 6, 5].map(|i| (i + (c & 3)) & 7),
    "rc8": |c: u32| [c & 3; 4],
    "ecl": |c: u32| [0, 1, 2, 3].map(|i: u32| i.max(c & 3)),
    "ecr": |c: u32| [0, 1, 2, 3].map(|i: u32| i.min(c & 3)),
    "rc16": |c: u32| [0, 1, 0, 1].map(|i| i + 2 * (c & 1)),
}

/// Byte `selector & 7` of (b, a); bit 3 replicates its sign.
#[inline(always)]
fn byte(ab: u64, selector: u32) -> u32 {
    let byte = (ab >> (8 * (selector & 7))) as u32 & 0xff;
    if selector & 8 != 0 { (byte >> 7).wrapping_neg() & 0xff } else { byte }
}

#[inline(always)]
fn choose(a: u32, b: u32, selectors: [u32; 4]) -> u32 {
    let ab = pair(a, b);
    let byte = |i: usize| byte(ab, selectors[i]) << (8 * i);
    byte(0) | byte(1) | byte(2) | byte(3)
}

/// `prmt` of a mode whose third operand is the constant `c`, and its `Op::imm`: what every lane would find out again is
/// found out once.
pub(crate) fn prmt_constant(mode: &str, c: u32) -> Option<(OpFn, u64)> {
    let bytes = selectors(mode)?(c).map(|digit| {
        let at = digit as u8 & 3 | if digit & 8 != 0 { SIGN } else { 0 };
        if digit & 4 != 0 { (NONE, at) } else { (at, NONE) }
    });
    let [low, high] = [bytes.map(|b| b.0), bytes.map(|b| b.1)].map(|b| u64::from(u32::from_le_bytes(b)));
    Some((constant_handler(), low | high << 32))
}

/// In `Op::imm`, a byte of the result for each operand: which byte of it, or none, and whether its sign is meant. So the
/// instruction `pshufb` has it, which looks at neither bit of the middle.
const NONE: u8 = 0x80;
const SIGN: u8 = 0x40;

fn constant_handler() -> OpFn {
    #[cfg(target_arch = "x86_64")]
    if super::lanes::simd() {
        return shuffled;
    }
    portable
}

/// The bytes of all lanes at once.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn shuffled(cx: &mut Cx, op: &Op) -> Flow {
    use std::arch::x86_64::*;
    let lanes = _mm256_set1_epi64x(0x0404_0404_0000_0000);
    let lanes = _mm256_add_epi8(lanes, _mm256_setr_epi64x(0, 0x0808_0808_0808_0808, 0, 0x0808_0808_0808_0808));
    let of_lanes = |bytes: u64| _mm256_or_si256(_mm256_set1_epi32(bytes as u32 as i32), lanes);
    let (low, high) = (of_lanes(op.imm), of_lanes(op.imm >> 32));
    let signs = (op.imm | op.imm >> 32) as u32 & (0x0101_0101 * u32::from(SIGN));
    // SAFETY: the contract of handlers: operands are rows of the frame.
    unsafe {
        let (a, b) = (cx.src(op.a).cast::<__m256i>(), cx.src(op.b).cast::<__m256i>());
        let mut spare = Spare::<u32>::uninit();
        let d = target::<u32, 8>(cx, op, &mut spare);
        for k in 0..4 {
            let of_a = _mm256_shuffle_epi8(_mm256_loadu_si256(a.add(k)), low);
            let of_b = _mm256_shuffle_epi8(_mm256_loadu_si256(b.add(k)), high);
            let mut out = _mm256_or_si256(of_a, of_b);
            if signs != 0 {
                let negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), out);
                // A byte is taken from the second where its highest bit is set.
                out = _mm256_blendv_epi8(out, negative, _mm256_set1_epi32((signs << 1) as i32));
            }
            _mm256_storeu_si256(d.cast::<__m256i>().add(k), out);
        }
        keep::<u32>(cx, op, &spare);
    }
    Flow::Next
}

/// The same, lane by lane.
unsafe fn portable(cx: &mut Cx, op: &Op) -> Flow {
    let bytes = op.imm.to_le_bytes();
    let selectors: [u32; 4] = from_fn(|i| {
        let (byte, second) = if bytes[i] == NONE { (bytes[4 + i], 4) } else { (bytes[i], 0) };
        u32::from(byte & 3) | second | if byte & SIGN != 0 { 8 } else { 0 }
    });
    // SAFETY: the contract of handlers: operands are rows of the frame.
    unsafe {
        let (a, b) = (cx.src(op.a).cast::<Chunk<u32>>(), cx.src(op.b).cast::<Chunk<u32>>());
        let mut spare = Spare::<u32>::uninit();
        let d = target::<u32, 8>(cx, op, &mut spare);
        for k in 0..4 {
            let (a, b) = (a.add(k).read(), b.add(k).read());
            put!(u32, 8, d.add(k), l => choose(a[l], b[l], selectors));
        }
        keep::<u32>(cx, op, &spare);
    }
    Flow::Next
}
