//! Integer and bit instructions against arithmetic in wider types and the ISA's own definitions.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::double_comparisons,
    clippy::precedence,
    clippy::cast_abs_to_unsigned
)]

mod common;

use common::*;

const N: usize = 200;

fn check32(body: &str, want: impl Fn(u32, u32, u32) -> u32) {
    let mut r = Rng(body.len() as u64);
    let (a, b, c) = (r.u32s(N), r.u32s(N), r.u32s(N));
    let got = op32(body, &a, &b, &c);
    for i in 0..N {
        assert_eq!(got[i], want(a[i], b[i], c[i]), "{body} with {:#x} {:#x} {:#x}", a[i], b[i], c[i]);
    }
}

fn check64(body: &str, want: impl Fn(u64, u64, u64) -> u64) {
    let mut r = Rng(body.len() as u64);
    let (a, b, c) = (r.u64s(N), r.u64s(N), r.u64s(N));
    let got = op64(body, &a, &b, &c);
    for i in 0..N {
        assert_eq!(got[i], want(a[i], b[i], c[i]), "{body} with {:#x} {:#x} {:#x}", a[i], b[i], c[i]);
    }
}

fn s(x: u32) -> i64 {
    i64::from(x as i32)
}

fn l(x: u64) -> i128 {
    i128::from(x as i64)
}

#[test]
fn arithmetic_wraps() {
    check32("add.u32 %d, %a, %b;", |a, b, _| (u64::from(a) + u64::from(b)) as u32);
    check32("sub.s32 %d, %a, %b;", |a, b, _| (s(a) - s(b)) as u32);
    check32("mul.lo.s32 %d, %a, %b;", |a, b, _| (s(a) * s(b)) as u32);
    check32("mul.hi.s32 %d, %a, %b;", |a, b, _| ((s(a) * s(b)) >> 32) as u32);
    check32("mul.hi.u32 %d, %a, %b;", |a, b, _| ((u64::from(a) * u64::from(b)) >> 32) as u32);
    check32("mad.lo.s32 %d, %a, %b, %c;", |a, b, c| (s(a) * s(b) + s(c)) as u32);
    check32("mad.hi.u32 %d, %a, %b, %c;", |a, b, c| (((u64::from(a) * u64::from(b)) >> 32) + u64::from(c)) as u32);
    check32("mad.hi.sat.s32 %d, %a, %b, %c;", |a, b, c| {
        (((s(a) * s(b)) >> 32) + s(c)).clamp(i32::MIN.into(), i32::MAX.into()) as u32
    });
    check32("add.sat.s32 %d, %a, %b;", |a, b, _| (s(a) + s(b)).clamp(i32::MIN.into(), i32::MAX.into()) as u32);
    check32("sub.sat.s32 %d, %a, %b;", |a, b, _| (s(a) - s(b)).clamp(i32::MIN.into(), i32::MAX.into()) as u32);
    check32("sad.s32 %d, %a, %b, %c;", |a, b, c| ((s(a) - s(b)).abs() + s(c)) as u32);
    check32("sad.u32 %d, %a, %b, %c;", |a, b, c| ((i64::from(a) - i64::from(b)).abs() + i64::from(c)) as u32);
    check32("neg.s32 %d, %a;", |a, _, _| (-s(a)) as u32);
    check32("abs.s32 %d, %a;", |a, _, _| s(a).abs() as u32);
    check32("min.s32 %d, %a, %b;", |a, b, _| s(a).min(s(b)) as u32);
    check32("max.u32 %d, %a, %b;", |a, b, _| a.max(b));
    check32("max.relu.s32 %d, %a, %b;", |a, b, _| s(a).max(s(b)).max(0) as u32);
    check64("add.s64 %d, %a, %b;", |a, b, _| (l(a) + l(b)) as u64);
    check64("mul.lo.u64 %d, %a, %b;", |a, b, _| (u128::from(a) * u128::from(b)) as u64);
    check64("mul.hi.u64 %d, %a, %b;", |a, b, _| ((u128::from(a) * u128::from(b)) >> 64) as u64);
    check64("mul.hi.s64 %d, %a, %b;", |a, b, _| ((l(a) * l(b)) >> 64) as u64);
    check64("mad.lo.u64 %d, %a, %b, %c;", |a, b, c| (l(a) * l(b)).wrapping_add(l(c)) as u64);
    check64("abs.s64 %d, %a;", |a, _, _| l(a).unsigned_abs() as u64);
    check64("min.u64 %d, %a, %b;", |a, b, _| a.min(b));
}

#[test]
fn widening_and_24_bit_products() {
    let mut r = Rng(9);
    let (a, b) = (r.u32s(N), r.u32s(N));
    let wide = |x: &[u32]| x.iter().map(|&v| v.into()).collect::<Vec<u64>>();
    let got = map3(".b32", ".b64", "mul.wide.s32 %d, %a, %b;", &wide(&a), &wide(&b), &wide(&b));
    let want: Vec<u64> = (0..N).map(|i| (s(a[i]) * s(b[i])) as u64).collect();
    assert_eq!(got, want);
    let got =
        map3(".b32", ".b64", "cvt.u64.u32 %u1, %c; mad.wide.u32 %d, %a, %b, %u1;", &wide(&a), &wide(&b), &wide(&b));
    let want: Vec<u64> = (0..N).map(|i| (u64::from(a[i]) * u64::from(b[i])).wrapping_add(b[i].into())).collect();
    assert_eq!(got, want);
    let s24 = |x: u32| i64::from((x << 8) as i32 >> 8);
    let u24 = |x: u32| u64::from(x & 0xff_ffff);
    check32("mul24.lo.s32 %d, %a, %b;", |a, b, _| (s24(a) * s24(b)) as u32);
    check32("mul24.hi.u32 %d, %a, %b;", |a, b, _| ((u24(a) * u24(b)) >> 16) as u32);
    check32("mad24.lo.u32 %d, %a, %b, %c;", |a, b, c| (u24(a) * u24(b)).wrapping_add(c.into()) as u32);
    check32("cvt.u16.u32 %h1, %a; cvt.u16.u32 %h2, %b; mul.wide.s16 %d, %h1, %h2;", |a, b, _| {
        (i32::from(a as i16) * i32::from(b as i16)) as u32
    });
}

#[test]
fn sixteen_bit_operations() {
    let go = |op: &str| format!("cvt.u16.u32 %h1, %a; cvt.u16.u32 %h2, %b; {op} %h3, %h1, %h2; cvt.u32.u16 %d, %h3;");
    let w = |x: i32| u32::from(x as u16);
    check32(&go("add.s16"), |a, b, _| w(i32::from(a as i16) + i32::from(b as i16)));
    check32(&go("mul.hi.s16"), |a, b, _| w((i32::from(a as i16) * i32::from(b as i16)) >> 16));
    check32(&go("min.s16"), |a, b, _| w(i32::from((a as i16).min(b as i16))));
    check32(&go("max.u16"), |a, b, _| w(i32::from((a as u16).max(b as u16))));
    check32("add.u16x2 %d, %a, %b;", |a, b, _| {
        (a & 0xffff).wrapping_add(b & 0xffff) & 0xffff | (a >> 16).wrapping_add(b >> 16) << 16
    });
    check32("min.s16x2 %d, %a, %b;", |a, b, _| {
        let one = |s: u32| u32::from(((a >> s) as i16).min((b >> s) as i16) as u16) << s;
        one(0) | one(16)
    });
}

#[test]
fn division() {
    // By zero, sm_90 gives all ones for all of them.
    check32("div.u32 %d, %a, %b;", |a, b, _| a.checked_div(b).unwrap_or(!0));
    check32("rem.u32 %d, %a, %b;", |a, b, _| a.checked_rem(b).unwrap_or(!0));
    check32("div.s32 %d, %a, %b;", |a, b, _| if b == 0 { !0 } else { (s(a) / s(b)) as u32 });
    check32("rem.s32 %d, %a, %b;", |a, b, _| if b == 0 { !0 } else { (s(a) % s(b)) as u32 });
    check64("div.s64 %d, %a, %b;", |a, b, _| if b == 0 { !0 } else { (l(a) / l(b)) as u64 });
    check64("rem.u64 %d, %a, %b;", |a, b, _| a.checked_rem(b).unwrap_or(!0));
}

#[test]
fn shifts_clamp() {
    check32("shl.b32 %d, %a, %b;", |a, b, _| if b > 31 { 0 } else { a << b });
    check32("shr.u32 %d, %a, %b;", |a, b, _| if b > 31 { 0 } else { a >> b });
    check32("shr.s32 %d, %a, %b;", |a, b, _| (s(a) >> b.min(63)) as u32);
    check32("shr.b32 %d, %a, %b;", |a, b, _| if b > 31 { 0 } else { a >> b });
    check64("cvt.u32.u64 %t1, %b; shr.s64 %d, %a, %t1;", |a, b, _| (l(a) >> (b as u32).min(127)) as u64);
    check64("cvt.u32.u64 %t1, %b; shl.b64 %d, %a, %t1;", |a, b, _| if b as u32 > 63 { 0 } else { a << (b as u32) });
    let funnel = |a: u32, b: u32| u64::from(b) << 32 | u64::from(a);
    check32("shf.l.wrap.b32 %d, %a, %b, %c;", |a, b, c| (funnel(a, b) << (c & 31) >> 32) as u32);
    check32("shf.r.wrap.b32 %d, %a, %b, %c;", |a, b, c| (funnel(a, b) >> (c & 31)) as u32);
    check32("shf.l.clamp.b32 %d, %a, %b, %c;", |a, b, c| if c > 31 { a } else { (funnel(a, b) << c >> 32) as u32 });
    check32("shf.r.clamp.b32 %d, %a, %b, %c;", |a, b, c| if c > 31 { b } else { (funnel(a, b) >> c) as u32 });
}

/// The ISA's pseudo-code for `bfe`.
fn bfe(a: u64, b: u32, c: u32, bits: u32, signed: bool) -> u64 {
    let (pos, len) = (b & 0xff, c & 0xff);
    let msb = bits - 1;
    let sbit = if signed && len != 0 { a >> (pos + len - 1).min(msb) & 1 } else { 0 };
    (0..bits).map(|i| (if i < len && pos + i <= msb { a >> (pos + i) & 1 } else { sbit }) << i).sum()
}

#[test]
fn bit_fields() {
    check32("bfe.u32 %d, %a, %b, %c;", |a, b, c| bfe(a.into(), b, c, 32, false) as u32);
    check32("bfe.s32 %d, %a, %b, %c;", |a, b, c| bfe(a.into(), b, c, 32, true) as u32);
    for pos in [0, 5, 31, 32, 40, 255] {
        for len in [0, 1, 8, 31, 32, 33, 255] {
            let body = format!("bfe.s32 %d, %a, {pos}, {len};");
            check32(&body, |a, _, _| bfe(a.into(), pos, len, 32, true) as u32);
            let body = format!("bfe.s64 %d, %a, {pos}, {len};");
            check64(&body, |a, _, _| bfe(a, pos, len, 64, true));
            let body = format!("bfi.b32 %d, %a, %b, {pos}, {len};");
            check32(&body, |a, b, _| {
                (0..32).fold(b, |f, i| {
                    if i < len && pos + i < 32 { f & !(1 << (pos + i)) | (a >> i & 1) << (pos + i) } else { f }
                })
            });
        }
    }
    check32("bmsk.clamp.b32 %d, %a, %b;", |a, b, _| {
        (0..32).filter(|&i| i >= a && u64::from(i) < u64::from(a) + u64::from(b)).map(|i| 1 << i).sum()
    });
    check32("bmsk.wrap.b32 %d, %a, %b;", |a, b, _| {
        (0..32).filter(|&i| i >= a & 31 && i < (a & 31) + (b & 31)).map(|i| 1 << i).sum()
    });
    check32("szext.clamp.s32 %d, %a, %b;", |a, b, _| bfe(a.into(), 0, b.min(32), 32, true) as u32);
    check32("szext.wrap.u32 %d, %a, %b;", |a, b, _| bfe(a.into(), 0, b & 31, 32, false) as u32);
}

#[test]
fn counting() {
    check32("popc.b32 %d, %a;", |a, _, _| (0..32).map(|i| a >> i & 1).sum());
    check32("clz.b32 %d, %a;", |a, _, _| (0..32).take_while(|i| a >> (31 - i) & 1 == 0).count() as u32);
    check32("brev.b32 %d, %a;", |a, _, _| (0..32).map(|i| (a >> i & 1) << (31 - i)).sum());
    check32("bfind.u32 %d, %a;", |a, _, _| (0..32).rev().find(|i| a >> i & 1 != 0).unwrap_or(!0));
    check32("bfind.s32 %d, %a;", |a, _, _| {
        let x = if s(a) < 0 { !a } else { a };
        (0..32).rev().find(|i| x >> i & 1 != 0).unwrap_or(!0)
    });
    check32("bfind.shiftamt.u32 %d, %a;", |a, _, _| (0..32).rev().find(|i| a >> i & 1 != 0).map_or(!0, |i| 31 - i));
    let mut r = Rng(4);
    let a = r.u64s(N);
    let got = map3(".b64", ".b32", "popc.b64 %d, %a;", &a, &a, &a);
    assert_eq!(got, a.iter().map(|x| (0..64).map(|i| x >> i & 1).sum()).collect::<Vec<u64>>());
    let got = map3(".b64", ".b32", "clz.b64 %d, %a;", &a, &a, &a);
    assert_eq!(
        got,
        a.iter().map(|x| (0..64).take_while(|i| x >> (63 - i) & 1 == 0).count() as u64).collect::<Vec<_>>()
    );
    // The n-th set bit from a base, upwards and downwards.
    assert_eq!(
        op32("fns.b32 %d, %a, %b, %c;", &[0xf0; 5], &[0, 0, 7, 5, 5], &[1, 3, -2i32 as u32, 0, 9]),
        [4, 6, 6, 5, !0]
    );
}

#[test]
fn logic() {
    for table in 0..=255 {
        check32(&format!("lop3.b32 %d, %a, %b, %c, {table};"), |a, b, c| {
            (0..32)
                .map(|i| {
                    let index = (a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1;
                    (table >> index & 1) << i
                })
                .sum()
        });
    }
    check32("not.b32 %d, %a;", |a, _, _| a ^ !0);
    check32("cnot.b32 %d, %a;", |a, _, _| u32::from(a == 0));
    check32("and.b32 %t1, %a, %b; xor.b32 %t2, %t1, %c; or.b32 %d, %t2, 3;", |a, b, c| (a & b ^ c) | 3);
    check32(
        "setp.eq.s32 %p2, %a, %a; lop3.or.b32 %t1|%p1, %a, %b, %c, 0x80, !%p2; selp.b32 %d, 1, 0, %p1;",
        |a, b, c| u32::from(a & b & c != 0),
    );
}

#[test]
fn byte_permutation() {
    let byte = |a: u32, b: u32, i: u32| ((u64::from(b) << 32 | u64::from(a)) >> (8 * i)) as u32 & 0xff;
    let chosen = |a: u32, b: u32, c: u32| {
        (0..4)
            .map(|i| {
                let n = c >> (4 * i) & 15;
                let v = byte(a, b, n & 7);
                (if n & 8 != 0 { if v & 0x80 != 0 { 0xff } else { 0 } } else { v }) << (8 * i)
            })
            .sum()
    };
    check32("prmt.b32 %d, %a, %b, %c;", chosen);
    // Constant selectors: each digit in each place, and bits beyond the four digits.
    for digit in 0..16u32 {
        let c = 0x00a5_0000 | digit | (digit ^ 5) << 4 | (digit ^ 10) << 8 | (digit ^ 15) << 12;
        check32(&format!("prmt.b32 %d, %a, %b, {c};"), |a, b, _| chosen(a, b, c));
    }
    // A lane that does not take part keeps its value.
    check32("mov.b32 %d, %c; setp.lt.s32 %p1, %a, %b; @%p1 prmt.b32 %d, %a, %b, 0x8c31;", |a, b, c| {
        if (a as i32) < b as i32 { chosen(a, b, 0x8c31) } else { c }
    });
    // The table of modes in the ISA: byte of the result ← byte of (b, a), highest first.
    let modes: [(&str, [[u32; 4]; 4]); 6] = [
        ("f4e", [[3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2], [6, 5, 4, 3]]),
        ("b4e", [[5, 6, 7, 0], [6, 7, 0, 1], [7, 0, 1, 2], [0, 1, 2, 3]]),
        ("rc8", [[0; 4], [1; 4], [2; 4], [3; 4]]),
        ("ecl", [[3, 2, 1, 0], [3, 2, 1, 1], [3, 2, 2, 2], [3, 3, 3, 3]]),
        ("ecr", [[0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 1, 0], [3, 2, 1, 0]]),
        ("rc16", [[1, 0, 1, 0], [3, 2, 3, 2], [1, 0, 1, 0], [3, 2, 3, 2]]),
    ];
    for (mode, rows) in modes {
        check32(&format!("prmt.b32.{mode} %d, %a, %b, %c;"), |a, b, c| {
            let row = rows[(c & 3) as usize];
            (0..4).map(|i| byte(a, b, row[3 - i as usize]) << (8 * i)).sum()
        });
        for c in [0, 1, 2, 3, 0xffff_fffe_u32] {
            check32(&format!("prmt.b32.{mode} %d, %a, %b, {c};"), |a, b, _| {
                let row = rows[(c & 3) as usize];
                (0..4).map(|i| byte(a, b, row[3 - i as usize]) << (8 * i)).sum()
            });
        }
    }
}

#[test]
fn dot_products() {
    let u = |x: u32, i: u32| i64::from(x >> (8 * i) & 0xff);
    let sg = |x: u32, i: u32| i64::from((x >> (8 * i)) as i8);
    check32("dp4a.s32.s32 %d, %a, %b, %c;", |a, b, c| ((0..4).map(|i| sg(a, i) * sg(b, i)).sum::<i64>() + s(c)) as u32);
    check32("dp4a.u32.s32 %d, %a, %b, %c;", |a, b, c| ((0..4).map(|i| u(a, i) * sg(b, i)).sum::<i64>() + s(c)) as u32);
    check32("dp4a.u32.u32 %d, %a, %b, %c;", |a, b, c| ((0..4).map(|i| u(a, i) * u(b, i)).sum::<i64>() + s(c)) as u32);
    let h = |x: u32, i: u32| i64::from((x >> (16 * i)) as i16);
    check32("dp2a.hi.s32.u32 %d, %a, %b, %c;", |a, b, c| {
        ((0..2).map(|i| h(a, i) * u(b, i + 2)).sum::<i64>() + s(c)) as u32
    });
    check32("dp2a.lo.s32.s32 %d, %a, %b, %c;", |a, b, c| {
        ((0..2).map(|i| h(a, i) * sg(b, i)).sum::<i64>() + s(c)) as u32
    });
}

#[test]
fn carry_chains() {
    // 128-bit sums and differences out of 64-bit words, 96-bit ones out of 32-bit words.
    let mut r = Rng(11);
    let (a, b, c) = (r.u64s(N), r.u64s(N), r.u64s(N));
    let high = op64("add.cc.u64 %u1, %a, %b; addc.u64 %d, %a, %c;", &a, &b, &c);
    let low_borrow = op64("sub.cc.u64 %u1, %a, %b; subc.u64 %d, %b, %c;", &a, &b, &c);
    let product = op64("mad.lo.cc.u64 %u1, %a, %b, %c; madc.hi.u64 %d, %a, %b, 0;", &a, &b, &c);
    for i in 0..N {
        let x = u128::from(a[i]) << 64 | u128::from(a[i]);
        let y = u128::from(c[i]) << 64 | u128::from(b[i]);
        assert_eq!(high[i], (x.wrapping_add(y) >> 64) as u64);
        let x = u128::from(b[i]) << 64 | u128::from(a[i]);
        assert_eq!(low_borrow[i], (x.wrapping_sub(y) >> 64) as u64);
        assert_eq!(product[i], ((u128::from(a[i]) * u128::from(b[i]) + u128::from(c[i])) >> 64) as u64);
    }
    let third = op32(
        "add.cc.u32 %t1, %a, %b; addc.cc.u32 %t2, %b, %c; addc.u32 %d, %c, 0;",
        &[!0, !0, 5],
        &[1, 0, 7],
        &[!0, !0, 9],
    );
    // Lowest word: -1 + 1 carries; middle 1 + -1 + 1 carries again. Then without carries.
    assert_eq!(third, [0, !0, 9]);
}

#[test]
fn comparisons_and_selections() {
    type Test = fn(u32, u32) -> bool;
    let table: [(&str, Test); 12] = [
        ("eq.s32", |a, b| a == b),
        ("ne.u32", |a, b| a != b),
        ("lt.s32", |a, b| s(a) < s(b)),
        ("le.s32", |a, b| s(a) <= s(b)),
        ("gt.u32", |a, b| a > b),
        ("ge.s32", |a, b| s(a) >= s(b)),
        ("lo.u32", |a, b| a < b),
        ("ls.u32", |a, b| a <= b),
        ("hi.u32", |a, b| a > b),
        ("hs.u32", |a, b| a >= b),
        ("lt.u16", |a, b| (a as u16) < b as u16),
        ("ge.s16", |a, b| a as i16 >= b as i16),
    ];
    for (op, test) in table {
        let narrow = op.ends_with("16");
        let operands = if narrow { "%h1, %h2" } else { "%a, %b" };
        let head = if narrow { "cvt.u16.u32 %h1, %a; cvt.u16.u32 %h2, %b;" } else { "" };
        check32(&format!("{head} setp.{op} %p1, {operands}; selp.u32 %d, %a, %c, %p1;"), |a, b, c| {
            if test(a, b) { a } else { c }
        });
        let (cmp, ty) = op.split_once('.').unwrap();
        check32(
            &format!(
                "{head} setp.gt.s32 %p3, %c, 0; setp.{cmp}.and.{ty} %p1|%p2, {operands}, !%p3;
                 selp.u32 %t1, 1, 0, %p1; selp.u32 %t2, 2, 0, %p2; add.u32 %d, %t1, %t2;"
            ),
            |a, b, c| {
                let q = s(c) <= 0;
                u32::from(test(a, b) && q) + 2 * u32::from(!test(a, b) && q)
            },
        );
    }
    check32("set.lt.u32.s32 %d, %a, %b;", |a, b, _| if s(a) < s(b) { !0 } else { 0 });
    check32("set.ge.f32.u32 %d, %a, %b;", |a, b, _| if a >= b { 0x3f80_0000 } else { 0 });
    check32("slct.u32.s32 %d, %a, %b, %c;", |a, b, c| if s(c) >= 0 { a } else { b });
    check32(
        "setp.ne.s32 %p1, %a, 0; setp.ne.s32 %p2, %b, 0; and.pred %p3, %p1, %p2; xor.pred %p4, %p1, %p2;
         not.pred %p5, %p4; or.pred %p6, %p3, !%p5; mov.pred %p7, %p6; selp.u32 %d, 1, 0, %p7;",
        |a, b, _| u32::from(a != 0 && b != 0 || (a != 0) != (b != 0)),
    );
}

#[test]
fn special_registers() {
    let text = module_text(
        ".param .u64 p",
        ".reg .b32 %r<40>; .reg .b64 %rd<9>;
         ld.param.u64 %rd1, [p];
         mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x; mov.u32 %r4, %ntid.y;
         mov.u32 %r5, %ctaid.x; mov.u32 %r6, %nctaid.x; mov.u32 %r7, %laneid; mov.u32 %r8, %warpid;
         mov.u32 %r9, %lanemask_lt; mov.u32 %r10, %lanemask_ge; mov.u32 %r11, %nwarpid; mov.u32 %r12, %lanemask_gt;
         mad.lo.u32 %r20, %r2, %r3, %r1; mul.lo.u32 %r21, %r3, %r4; mad.lo.u32 %r20, %r5, %r21, %r20;
         mul.wide.u32 %rd2, %r20, 48; add.s64 %rd1, %rd1, %rd2;
         st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};
         st.global.v4.u32 [%rd1+16], {%r5, %r6, %r7, %r8};
         st.global.v4.u32 [%rd1+32], {%r9, %r10, %r11, %r12};
         ret;",
    );
    let rig = Rig::new(&text);
    let p = rig.alloc(48 * 2 * 40);
    let launch = warpsmith_simt::Launch::new([2, 1, 1], [20, 2, 1]);
    rig.machine.launch(&rig.instance, "k", &launch, &p.to_le_bytes()).unwrap();
    let out: Vec<u32> = rig.download(p, 12 * 80);
    for thread in 0..80u32 {
        let t = thread % 40;
        let lane = t % 32;
        let lt = (1u64 << lane) as u32 - 1;
        let want = [t % 20, t / 20, 20, 2, thread / 40, 2, lane, t / 32, lt, !lt, 2, !lt & !(1 << lane)];
        assert_eq!(out[thread as usize * 12..][..12], want, "thread {thread}");
    }
}

/// `ptx/video.py` has computed the values by the pseudocode of the PTX ISA.
#[test]
fn video_instructions_give_what_the_isa_says() {
    let hex = |text: &str| u32::from_str_radix(text, 16).unwrap();
    let (mut rows, mut wrong) = (0, String::new());
    for line in include_str!("ptx/video.tsv").lines() {
        let mut cells = line.split('\t');
        let form = cells.next().unwrap();
        let values: Vec<[u32; 4]> =
            cells.map(|c| c.split(' ').map(hex).collect::<Vec<_>>().try_into().unwrap()).collect();
        let column = |i: usize| values.iter().map(|v| v[i]).collect::<Vec<u32>>();
        let (got, want) = (op32(form, &column(0), &column(1), &column(2)), column(3));
        rows += 1;
        if got != want {
            wrong += &format!("{form}\n  got  {got:x?}\n  want {want:x?}\n");
        }
    }
    assert!(rows > 120);
    assert!(wrong.is_empty(), "{wrong}");
}
