//! `prmt`: four bytes of two registers, by selectors.

use std::array::from_fn;

use super::int::pair;
use super::lanes::{Chunk, map3, put};
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
/// found out once a warp.
pub(crate) fn prmt_constant(mode: &str, c: u32) -> Option<(OpFn, u64)> {
    let digits = selectors(mode)?(c);
    let imm = (0..4).fold(0, |word, i| word | u64::from(digits[i]) << (4 * i));
    Some((constant_handler(), imm))
}

fn constant_handler() -> OpFn {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        unsafe fn fast(cx: &mut Cx, op: &Op) -> Flow {
            // SAFETY: the contract of handlers.
            unsafe { constant_body(cx, op) }
        }
        if super::lanes::simd() {
            return fast;
        }
    }
    unsafe fn portable(cx: &mut Cx, op: &Op) -> Flow {
        // SAFETY: the contract of handlers.
        unsafe { constant_body(cx, op) }
    }
    portable
}

#[inline(always)]
unsafe fn constant_body(cx: &mut Cx, op: &Op) -> Flow {
    let digits: [u32; 4] = from_fn(|i| (op.imm >> (4 * i)) as u32 & 15);
    // SAFETY: the contract of handlers: operands are rows of the frame.
    unsafe {
        let a = cx.src(op.a).cast::<Chunk<u32>>();
        let b = cx.src(op.b).cast::<Chunk<u32>>();
        let d = cx.dst(op.d).cast::<Chunk<u32>>();
        for k in 0..4 {
            let (low, high) = (a.add(k).read(), b.add(k).read());
            let mut out = [0u32; 8];
            for (i, digit) in digits.into_iter().enumerate() {
                let source = if digit & 4 != 0 { &high } else { &low };
                // The byte goes to the top, where shifting down keeps or replicates it.
                let up = 24 - 8 * (digit & 3);
                if digit & 8 != 0 {
                    out = from_fn(|l| out[l] | ((source[l] << up) as i32 >> 31) as u32 >> 24 << (8 * i));
                } else {
                    out = from_fn(|l| out[l] | (source[l] << up) >> 24 << (8 * i));
                }
            }
            if cx.active == !0 {
                put::<u32, true>(d.add(k), 0, |l| out[l]);
            } else {
                put::<u32, false>(d.add(k), cx.active >> (8 * k), |l| out[l]);
            }
        }
    }
    Flow::Next
}
