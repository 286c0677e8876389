//! `lop3`: every function of three bits.

use std::array::from_fn;

use super::lanes::{Chunk, Spare, compiled_twice, keep, map3, put, target};
use super::{Cx, Flow, Op, OpFn};

/// `lop3` with this truth table, whose bit `4 a + 2 b + c` is the value for those bits; and its `Op::imm`.
///
/// Tables that are in many kernels have handlers of their own, of fewer operations.
pub(crate) fn lop3(table: u8) -> (OpFn, u64) {
    let handler = match table {
        0x6a => map3(|a: u32, b: u32, c: u32| (a & b) ^ c),
        0x80 => map3(|a: u32, b: u32, c: u32| a & b & c),
        0x96 => map3(|a: u32, b: u32, c: u32| a ^ b ^ c),
        0xca => map3(|a: u32, b: u32, c: u32| ((b ^ c) & a) ^ c),
        0xe8 => map3(|a: u32, b: u32, c: u32| (a & b) | (c & (a | b))),
        0xea => map3(|a: u32, b: u32, c: u32| (a & b) | c),
        0xf8 => map3(|a: u32, b: u32, c: u32| a | (b & c)),
        0xfe => map3(|a: u32, b: u32, c: u32| a | b | c),
        _ => polynomial(),
    };
    (handler, coefficients(table).into())
}

/// The function as a sum modulo 2 of products: bit `4 a + 2 b + c` says whether the product of the operands whose bit is set
/// there is one of them. (Its algebraic normal form, by the butterflies of the Möbius transform.)
fn coefficients(table: u8) -> u8 {
    let by_c = table ^ (table << 1 & 0xaa);
    let by_b = by_c ^ (by_c << 2 & 0xcc);
    by_b ^ (by_b << 4 & 0xf0)
}

compiled_twice!(
    /// Any function: [`coefficients`] in `Op::imm`.
    polynomial,
    polynomial_body
);

#[inline(always)]
unsafe fn polynomial_body<const FAST: bool>(cx: &mut Cx, op: &Op) -> Flow {
    let on: [u32; 8] = from_fn(|i| (op.imm >> i & 1) as u32).map(u32::wrapping_neg);
    // SAFETY: the contract of handlers: operands are rows of the frame.
    unsafe {
        let a = cx.src(op.a).cast::<Chunk<u32>>();
        let b = cx.src(op.b).cast::<Chunk<u32>>();
        let c = cx.src(op.c).cast::<Chunk<u32>>();
        let mut spare = Spare::<u32>::uninit();
        let d = target::<u32, 8>(cx, op, &mut spare);
        for k in 0..4 {
            let (a, b, c) = (a.add(k).read(), b.add(k).read(), c.add(k).read());
            put!(u32, 8, d.add(k), l => {
                let of_c = |i: usize| on[i] ^ (c[l] & on[i + 1]);
                let of_b = |i: usize| of_c(i) ^ (b[l] & of_c(i + 2));
                of_b(0) ^ (a[l] & of_b(4))
            });
        }
        keep::<u32>(cx, op, &spare);
    }
    Flow::Next
}
