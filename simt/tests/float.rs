//! Floating-point instructions and conversions against the host's arithmetic and the `half` crate.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::double_comparisons,
    clippy::precedence,
    clippy::cast_abs_to_unsigned
)]

mod common;

use common::*;
use half::{bf16, f16};

const N: usize = 400;

fn f(x: u32) -> f32 {
    f32::from_bits(x)
}

/// A result's bits, NaN made canonical. By its bits: optimised, `sqrt(x).is_nan()` was false for a negative `x`.
fn bits(x: f32) -> u32 {
    let bits = x.to_bits();
    if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { bits }
}

fn check(body: &str, want: impl Fn(f32, f32, f32) -> f32) {
    let mut r = Rng(body.len() as u64);
    let (a, b, c) = (r.f32s(N), r.f32s(N), r.f32s(N));
    let got = op32(body, &a, &b, &c);
    for i in 0..N {
        let want = bits(want(f(a[i]), f(b[i]), f(c[i])));
        assert_eq!(got[i], want, "{body} with {:e} {:e} {:e}: {:e}", f(a[i]), f(b[i]), f(c[i]), f(got[i]));
    }
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

#[test]
fn arithmetic_rounds_to_nearest() {
    check("add.f32 %d, %a, %b;", |a, b, _| a + b);
    check("add.rn.f32 %d, %a, %b;", |a, b, _| a + b);
    check("sub.rn.f32 %d, %a, %b;", |a, b, _| a - b);
    check("mul.rn.f32 %d, %a, %b;", |a, b, _| a * b);
    check("div.rn.f32 %d, %a, %b;", |a, b, _| a / b);
    check("sqrt.rn.f32 %d, %a;", |a, _, _| a.sqrt());
    check("rcp.rn.f32 %d, %a;", |a, _, _| 1.0 / a);
    check("fma.rn.f32 %d, %a, %b, %c;", |a, b, c| a.mul_add(b, c));
    check("mad.rn.f32 %d, %a, %b, %c;", |a, b, c| a.mul_add(b, c));
    check("fma.rn.ftz.f32 %d, %a, %b, %c;", |a, b, c| flush(flush(a).mul_add(flush(b), flush(c))));
    check("add.ftz.f32 %d, %a, %b;", |a, b, _| flush(flush(a) + flush(b)));
    check("mul.rn.sat.f32 %d, %a, %b;", |a, b, _| {
        let x = a * b;
        if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) + 0.0 }
    });
    check("add.f32 %d, %a, 0f3F800000;", |a, _, _| a + 1.0);
    check("mul.f32 %d, %a, 0d4000000000000000;", |a, _, _| a * 2.0);
}

#[test]
fn directed_rounding_brackets() {
    // Sums and products of f32 are exact, or nearly, in f64: compare with the neighbours of the rounded value.
    let down = |x: f64| {
        let r = x as f32;
        if f64::from(r) > x { r.next_down() } else { r }
    };
    let up = |x: f64| -down_neg(-x);
    fn down_neg(x: f64) -> f32 {
        let r = x as f32;
        if f64::from(r) > x { r.next_down() } else { r }
    }
    let product = |a: f32, b: f32| f64::from(a) * f64::from(b);
    check("mul.rm.f32 %d, %a, %b;", |a, b, _| down(product(a, b)));
    check("mul.rp.f32 %d, %a, %b;", |a, b, _| up(product(a, b)));
    check("mul.rz.f32 %d, %a, %b;", |a, b, _| {
        let x = product(a, b);
        if x.is_sign_negative() { up(x) } else { down(x) }
    });
    let got = op32("add.rp.f32 %d, %a, %b;", &[0x3f80_0000; 2], &[0x0000_0001, 0xbf80_0000], &[0; 2]);
    assert_eq!(got, [0x3f80_0001, 0]);
    let got = op32("add.rm.f32 %d, %a, %b;", &[0x3f80_0000; 2], &[0x8000_0001, 0xbf80_0000], &[0; 2]);
    assert_eq!(got, [0x3f7f_ffff, 0x8000_0000]);
    // 1/3, and the square root of 2.
    let got = op32("rcp.rz.f32 %t1, %a; rcp.rp.f32 %t2, %a; sub.u32 %d, %t2, %t1;", &[0x4040_0000], &[0], &[0]);
    assert_eq!(got, [1]);
    let got = op32("sqrt.rm.f32 %t1, %a; sqrt.rp.f32 %t2, %a; sub.u32 %d, %t2, %t1;", &[0x4000_0000], &[0], &[0]);
    assert_eq!(got, [1]);
    let third = 1.0f64 / 3.0;
    let three = [3f64.to_bits()];
    let lower = op64("mov.b64 %u1, 0d3FF0000000000000; div.rm.f64 %d, %u1, %a;", &three, &three, &three)[0];
    let upper = op64("mov.b64 %u1, 0d3FF0000000000000; div.rp.f64 %d, %u1, %a;", &three, &three, &three)[0];
    assert_eq!(upper - lower, 1);
    assert!((lower..=upper).contains(&third.to_bits()));
}

#[test]
fn double_precision() {
    let mut r = Rng(3);
    let (a, b, c) = (r.u64s(N), r.u64s(N), r.u64s(N));
    type Binary = fn(f64, f64, f64) -> f64;
    let table: [(&str, Binary); 6] = [
        ("add.f64 %d, %a, %b;", |a, b, _| a + b),
        ("mul.rn.f64 %d, %a, %b;", |a, b, _| a * b),
        ("div.rn.f64 %d, %a, %b;", |a, b, _| a / b),
        ("fma.rn.f64 %d, %a, %b, %c;", |a, b, c| a.mul_add(b, c)),
        ("sqrt.rn.f64 %d, %a;", |a, _, _| a.sqrt()),
        ("cvt.rmi.f64.f64 %d, %a;", |a, _, _| a.floor()),
    ];
    for (body, want) in table {
        let got = op64(body, &a, &b, &c);
        for i in 0..N {
            let [x, y, z] = [a[i], b[i], c[i]].map(f64::from_bits);
            let want = want(x, y, z);
            let want = if want.is_nan() { 0x7ff8_0000_0000_0000 } else { want.to_bits() };
            assert_eq!(got[i], want, "{body} {x:e} {y:e} {z:e}");
        }
    }
}

#[test]
fn extremes_drop_or_propagate_nan() {
    let less = |a: f32, b: f32| a < b || (a == b && a.is_sign_negative());
    let min = move |a: f32, b: f32| {
        if a.is_nan() {
            b
        } else if b.is_nan() || less(a, b) {
            a
        } else {
            b
        }
    };
    check("min.f32 %d, %a, %b;", move |a, b, _| min(a, b));
    check("max.f32 %d, %a, %b;", move |a, b, _| -min(-a, -b));
    check("min.NaN.f32 %d, %a, %b;", move |a, b, _| if a.is_nan() || b.is_nan() { f32::NAN } else { min(a, b) });
    let z = [0x8000_0000u32, 0, 0x7fc0_0000];
    let y = [0u32, 0x8000_0000, 0xffc0_0000];
    assert_eq!(op32("max.f32 %d, %a, %b;", &z, &y, &y), [0, 0, 0x7fff_ffff]);
    assert_eq!(op32("min.f32 %d, %a, %b;", &z, &y, &y), [0x8000_0000, 0x8000_0000, 0x7fff_ffff]);
    let got =
        op32("max.xorsign.abs.f32 %d, %a, %b;", &[0xc000_0000, 0x3f80_0000], &[0x3f80_0000, 0x4040_0000], &[0, 0]);
    assert_eq!(got, [0xc000_0000, 0x4040_0000]);
}

#[test]
fn signs_and_properties() {
    check("abs.f32 %d, %a;", |a, _, _| a.abs());
    check("neg.f32 %d, %a;", |a, _, _| -a);
    let mut r = Rng(8);
    let (a, b) = (r.f32s(N), r.f32s(N));
    let got = op32("copysign.f32 %d, %a, %b;", &a, &b, &b);
    // The first operand gives the sign, the second the magnitude.
    assert!((0..N).all(|i| got[i] == a[i] & 0x8000_0000 | b[i] & 0x7fff_ffff));
    type Test = fn(f32) -> bool;
    let tests: [(&str, Test); 6] = [
        ("finite", f32::is_finite),
        ("infinite", f32::is_infinite),
        ("number", |x| !x.is_nan()),
        ("notanumber", f32::is_nan),
        ("normal", |x| x.is_normal() || x == 0.0),
        ("subnormal", f32::is_subnormal),
    ];
    for (name, test) in tests {
        let got = op32(&format!("testp.{name}.f32 %p1, %a; selp.u32 %d, 1, 0, %p1;"), &a, &b, &b);
        assert!((0..N).all(|i| (got[i] == 1) == test(f(a[i]))), "{name}");
    }
}

#[test]
fn comparisons_with_nan() {
    let mut r = Rng(5);
    let (mut a, b) = (r.f32s(N), r.f32s(N));
    a[..20].copy_from_slice(&b[..20]);
    type Test = fn(f32, f32) -> bool;
    let nan = |a: f32, b: f32| a.is_nan() || b.is_nan();
    let table: [(&str, Test); 6] = [
        ("eq", |a, b| a == b),
        ("ne", |a, b| a < b || a > b),
        ("lt", |a, b| a < b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("ge", |a, b| a >= b),
    ];
    for (op, test) in table {
        let ordered = op32(&format!("setp.{op}.f32 %p1, %a, %b; selp.u32 %d, 1, 0, %p1;"), &a, &b, &b);
        let unordered = op32(&format!("setp.{op}u.f32 %p1, %a, %b; selp.u32 %d, 1, 0, %p1;"), &a, &b, &b);
        for i in 0..N {
            let (x, y) = (f(a[i]), f(b[i]));
            assert_eq!(ordered[i] == 1, test(x, y), "{op} {x:e} {y:e}");
            assert_eq!(unordered[i] == 1, test(x, y) || nan(x, y), "{op}u {x:e} {y:e}");
        }
    }
    let got = op32("setp.num.f32 %p1|%p2, %a, %b; selp.u32 %d, 1, 0, %p1; @%p2 mov.u32 %d, 2;", &a, &b, &b);
    assert!((0..N).all(|i| got[i] == if nan(f(a[i]), f(b[i])) { 2 } else { 1 }));
}

#[test]
fn approximations_are_close() {
    type Function = fn(f64) -> f64;
    let table: [(&str, Function); 8] = [
        ("rcp.approx.f32", |x| 1.0 / x),
        ("sqrt.approx.f32", f64::sqrt),
        ("rsqrt.approx.f32", |x| 1.0 / x.sqrt()),
        ("sin.approx.f32", f64::sin),
        ("cos.approx.f32", f64::cos),
        ("lg2.approx.f32", f64::log2),
        ("ex2.approx.f32", f64::exp2),
        ("tanh.approx.f32", f64::tanh),
    ];
    let a: Vec<u32> = (1..N as u32).map(|i| (i as f32 * 0.037).to_bits()).collect();
    for (op, want) in table {
        let got = op32(&format!("{op} %d, %a;"), &a, &a, &a);
        for (x, y) in a.iter().zip(got) {
            let want = want(f(*x).into());
            assert!((f64::from(f(y)) - want).abs() <= want.abs() * 1e-7, "{op} {:e}", f(*x));
        }
    }
    check("div.full.f32 %d, %a, %b;", |a, b, _| a / b);
    // Beyond 2^126 the approximate quotient is zero, as the ISA says.
    let got = op32("div.approx.f32 %d, %a, %b;", &[0x3f80_0000; 2], &[0x7f00_0000, 0x4000_0000], &[0; 2]);
    assert_eq!(got, [0, 0x3f00_0000]);
    let got = op32("ex2.approx.ftz.f32 %d, %a;", &[(-127f32).to_bits()], &[0], &[0]);
    assert_eq!(got, [0]);
}

fn h(x: f32) -> u16 {
    if x.is_nan() { 0x7fff } else { f16::from_f32(x).to_bits() }
}

fn b(x: f32) -> u16 {
    if x.is_nan() { 0x7fff } else { bf16::from_f32(x).to_bits() }
}

fn hf(x: u16) -> f32 {
    f16::from_bits(x).to_f32()
}

fn bf(x: u16) -> f32 {
    bf16::from_bits(x).to_f32()
}

#[test]
fn half_precision_arithmetic() {
    let mut r = Rng(6);
    let (x, y, z) = (r.u32s(N), r.u32s(N), r.u32s(N));
    let halves = |v: u32, f: &dyn Fn(u16) -> u16| u32::from(f(v as u16)) | u32::from(f((v >> 16) as u16)) << 16;
    // Products and sums of f16 are exact in f64 after one rounding to f32 has been avoided.
    type Binary = fn(f64, f64) -> f64;
    let table: [(&str, Binary); 3] = [("add", |a, b| a + b), ("sub", |a, b| a - b), ("mul", |a, b| a * b)];
    for (op, want) in table {
        let got = op32(&format!("{op}.rn.f16x2 %d, %a, %b;"), &x, &y, &z);
        let got_b = op32(&format!("{op}.rn.bf16x2 %d, %a, %b;"), &x, &y, &z);
        for i in 0..N {
            for s in [0, 16] {
                let (p, q) = ((x[i] >> s) as u16, (y[i] >> s) as u16);
                let exact = want(hf(p).into(), hf(q).into());
                let w = if exact.is_nan() { 0x7fff } else { f16::from_f64(exact).to_bits() };
                assert_eq!((got[i] >> s) as u16, w, "{op}.f16x2 {p:#x} {q:#x}");
                let exact = want(bf(p).into(), bf(q).into());
                let w = if exact.is_nan() { 0x7fff } else { bf16::from_f64(exact).to_bits() };
                assert_eq!((got_b[i] >> s) as u16, w, "{op}.bf16x2 {p:#x} {q:#x}");
            }
        }
    }
    let got = op32(
        "cvt.u16.u32 %h1, %a; cvt.u16.u32 %h2, %b; cvt.u16.u32 %h3, %c; fma.rn.f16 %h4, %h1, %h2, %h3; cvt.u32.u16 %d, %h4;",
        &x,
        &y,
        &z,
    );
    for i in 0..N {
        let [p, q, s] = [x[i], y[i], z[i]].map(|v| f64::from(hf(v as u16)));
        let exact = p * q + s;
        let w = if exact.is_nan() { 0x7fff } else { f16::from_f64(exact).to_bits() };
        assert_eq!(got[i] as u16, w);
    }
    let got = op32(
        "max.f16x2 %t1, %a, %b; fma.rn.relu.f16x2 %t2, %a, %b, %c; neg.f16x2 %t3, %a; abs.bf16x2 %d, %a;",
        &x,
        &y,
        &z,
    );
    for i in 0..N {
        let abs = |v: u16| if bf(v).is_nan() { 0x7fff } else { v & 0x7fff };
        assert_eq!(got[i], halves(x[i], &abs));
    }
    let got = op32(
        "setp.lt.f16x2 %p1|%p2, %a, %b; selp.u32 %t1, 1, 0, %p1; selp.u32 %t2, 2, 0, %p2; or.b32 %d, %t1, %t2;",
        &x,
        &y,
        &z,
    );
    for i in 0..N {
        let lt = |s: u32| hf((x[i] >> s) as u16) < hf((y[i] >> s) as u16);
        assert_eq!(got[i], u32::from(lt(0)) | 2 * u32::from(lt(16)));
    }
}

#[test]
fn conversions_between_floats() {
    let mut r = Rng(7);
    let (x, y) = (r.f32s(N), r.f32s(N));
    let low = |body: &str| op32(&format!("{body} cvt.u32.u16 %d, %h1;"), &x, &y, &y);
    assert_eq!(low("cvt.rn.f16.f32 %h1, %a;"), x.iter().map(|&v| h(f(v)).into()).collect::<Vec<u32>>());
    assert_eq!(low("cvt.rn.bf16.f32 %h1, %a;"), x.iter().map(|&v| b(f(v)).into()).collect::<Vec<u32>>());
    // The first source goes to the high half.
    let got = op32("cvt.rn.f16x2.f32 %d, %a, %b;", &x, &y, &y);
    assert!((0..N).all(|i| got[i] == u32::from(h(f(x[i]))) << 16 | u32::from(h(f(y[i])))));
    let got = op32("cvt.rn.bf16x2.f32 %d, %a, %b;", &x, &y, &y);
    assert!((0..N).all(|i| got[i] == u32::from(b(f(x[i]))) << 16 | u32::from(b(f(y[i])))));
    let all: Vec<u32> = (0..=0xffff).collect();
    let got = op32("cvt.u16.u32 %h1, %a; cvt.f32.f16 %d, %h1;", &all, &all, &all);
    assert!(all.iter().all(|&i| got[i as usize] == bits(hf(i as u16))));
    let got = op32("cvt.u16.u32 %h1, %a; cvt.f32.bf16 %d, %h1;", &all, &all, &all);
    assert!(all.iter().all(|&i| got[i as usize] == bits(bf(i as u16))));
    // Truncation keeps a prefix of the bits.
    let got = low("cvt.rz.bf16.f32 %h1, %a;");
    assert!((0..N).all(|i| f(x[i]).is_nan() || got[i] == x[i] >> 16));
    let got = op32("cvt.rna.tf32.f32 %d, %a;", &[0x3f80_1000, 0x3f80_0fff], &[0; 2], &[0; 2]);
    assert_eq!(got, [0x3f80_2000, 0x3f80_0000]);
    check("cvt.rni.f32.f32 %d, %a;", |a, _, _| a.round_ties_even());
    check("cvt.rzi.f32.f32 %d, %a;", |a, _, _| a.trunc());
    check("cvt.rmi.f32.f32 %d, %a;", |a, _, _| a.floor());
    check("cvt.rpi.f32.f32 %d, %a;", |a, _, _| a.ceil());
    check("cvt.sat.f32.f32 %d, %a;", |a, _, _| if a > 0.0 { a.min(1.0) } else { 0.0 });
    check("cvt.f64.f32 %u1, %a; cvt.rn.f32.f64 %d, %u1;", |a, _, _| a);
    check("cvt.rn.f16.f32 %h1, %a; cvt.f32.f16 %d, %h1;", |a, _, _| hf(h(a)));
}

#[test]
fn conversions_to_integers() {
    let mut r = Rng(12);
    let x = r.f32s(N);
    type To = fn(f64) -> i64;
    // Values are clamped; NaN is zero for 32 bits.
    let table: [(&str, To); 6] = [
        ("cvt.rzi.s32.f32 %d, %a;", |v| i64::from(v as i32)),
        ("cvt.rni.s32.f32 %d, %a;", |v| i64::from(v.round_ties_even() as i32)),
        ("cvt.rmi.s32.f32 %d, %a;", |v| i64::from(v.floor() as i32)),
        ("cvt.rpi.u32.f32 %d, %a;", |v| i64::from(v.ceil() as u32)),
        ("cvt.rzi.u32.f32 %d, %a;", |v| i64::from(v as u32)),
        ("cvt.rzi.s8.f32 %d, %a;", |v| i64::from(v as i8)),
    ];
    for (body, want) in table {
        let got = op32(body, &x, &x, &x);
        for i in 0..N {
            assert_eq!(got[i], want(f(x[i]).into()) as u32, "{body} {:e}", f(x[i]));
        }
    }
    let wide: Vec<u64> = x.iter().map(|&v| v.into()).collect();
    let got = map3(".b32", ".b64", "cvt.rzi.s64.f32 %d, %a;", &wide, &wide, &wide);
    for i in 0..N {
        let v = f(x[i]);
        assert_eq!(got[i], if v.is_nan() { 1 << 63 } else { v as i64 as u64 }, "{v:e}");
    }
    let got = op32("cvt.f64.f32 %u1, %a; cvt.rzi.s32.f64 %d, %u1;", &x, &x, &x);
    assert!((0..N).all(|i| got[i] == if f(x[i]).is_nan() { 1 << 31 } else { f(x[i]) as i32 as u32 }));
}

#[test]
fn conversions_from_integers() {
    let mut r = Rng(13);
    let (x, w) = (r.u32s(N), r.u64s(N));
    let got = op32("cvt.rn.f32.s32 %d, %a;", &x, &x, &x);
    assert!((0..N).all(|i| f(got[i]) == x[i] as i32 as f32));
    let got = op32("cvt.rn.f32.u32 %d, %a;", &x, &x, &x);
    assert!((0..N).all(|i| f(got[i]) == x[i] as f32));
    let got = op32("cvt.rn.f32.u8 %d, %a;", &x, &x, &x);
    assert!((0..N).all(|i| f(got[i]) == f32::from(x[i] as u8)));
    let got = op32("cvt.rz.f32.u32 %d, %a;", &x, &x, &x);
    assert!(
        (0..N).all(|i| f64::from(f(got[i])) <= f64::from(x[i]) && f64::from(f(got[i]).next_up()) > f64::from(x[i]))
    );
    let got = op32("cvt.rn.f16.s32 %h1, %a; cvt.u32.u16 %d, %h1;", &x, &x, &x);
    assert!((0..N).all(|i| got[i] as u16 == f16::from_f64(f64::from(x[i] as i32)).to_bits()));
    let got = op64("cvt.rn.f64.u64 %d, %a;", &w, &w, &w);
    assert!((0..N).all(|i| f64::from_bits(got[i]) == w[i] as f64));
    let got = map3(".b64", ".b32", "cvt.rn.f32.s64 %d, %a;", &w, &w, &w);
    assert!((0..N).all(|i| f(got[i] as u32) == w[i] as i64 as f32));
}

#[test]
fn conversions_between_integers() {
    let mut r = Rng(14);
    let (x, w) = (r.u32s(N), r.u64s(N));
    let each = |body: &str, want: &dyn Fn(u32) -> u32| {
        let got = op32(body, &x, &x, &x);
        for i in 0..N {
            assert_eq!(got[i], want(x[i]), "{body} {:#x}", x[i]);
        }
    };
    each("cvt.s32.s8 %d, %a;", &|v| v as i8 as i32 as u32);
    each("cvt.u32.u8 %d, %a;", &|v| v & 0xff);
    each("cvt.s16.s8 %h1, %a; cvt.s32.s16 %d, %h1;", &|v| v as i8 as i32 as u32);
    each("cvt.u16.u32 %h1, %a; cvt.u32.u16 %d, %h1;", &|v| v & 0xffff);
    each("cvt.s8.s32 %d, %a;", &|v| v as i8 as i32 as u32);
    each("cvt.sat.s8.s32 %d, %a;", &|v| (v as i32).clamp(-128, 127) as u32);
    each("cvt.sat.u8.s32 %d, %a;", &|v| (v as i32).clamp(0, 255) as u32);
    each("cvt.sat.u16.u32 %d, %a;", &|v| v.min(0xffff));
    each("cvt.pack.sat.s16.s32 %d, %a, %b;", &|v| {
        let s = (v as i32).clamp(-32768, 32767) as u32 & 0xffff;
        s << 16 | s
    });
    each("cvt.pack.sat.u8.s32.b32 %d, %a, %a, %a;", &|v| {
        let s = (v as i32).clamp(0, 255) as u32;
        v << 16 | s << 8 | s
    });
    let got = op64("cvt.u32.u64 %t1, %a; cvt.s64.s32 %d, %t1;", &w, &w, &w);
    assert!((0..N).all(|i| got[i] == w[i] as i32 as i64 as u64));
    let got = op64("cvt.s64.s8 %d, %a;", &w, &w, &w);
    assert!((0..N).all(|i| got[i] == w[i] as i8 as i64 as u64));
    let got = op64("cvt.u64.u16 %d, %a;", &w, &w, &w);
    assert!((0..N).all(|i| got[i] == w[i] & 0xffff));
}

#[test]
fn vector_moves() {
    let mut r = Rng(15);
    let (x, w) = (r.u32s(N), r.u64s(N));
    let got = op64("mov.b64 {%t1, %t2}, %a; mov.b64 %d, {%t2, %t1};", &w, &w, &w);
    assert!((0..N).all(|i| got[i] == w[i].rotate_left(32)));
    let got = op32("mov.b32 {%h1, %h2}, %a; mov.b32 %d, {%h2, %h1};", &x, &x, &x);
    assert!((0..N).all(|i| got[i] == x[i].rotate_left(16)));
    let got = op64("mov.b64 {%h1, %h2, %h3, %h4}, %a; mov.b64 %d, {%h4, %h3, %h2, %h1};", &w, &w, &w);
    assert!((0..N).all(|i| got[i] == (0..4).map(|k| (w[i] >> (16 * k) & 0xffff) << (48 - 16 * k)).sum::<u64>()));
    let got = op32("mov.b32 {_, %h2}, %a; cvt.u32.u16 %d, %h2;", &x, &x, &x);
    assert!((0..N).all(|i| got[i] == x[i] >> 16));
}

#[test]
fn pairs_of_floats_in_64_bits() {
    let mut r = Rng(21);
    let pair = |r: &mut Rng| {
        let (low, high) = (r.f32s(N), r.f32s(N));
        (0..N).map(|i| u64::from(high[i]) << 32 | u64::from(low[i])).collect::<Vec<u64>>()
    };
    let (a, b, c) = (pair(&mut r), pair(&mut r), pair(&mut r));
    let text = common::module_text(
        ".param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d",
        ".reg .b64 %rd<12>; .reg .b32 %r<3>; ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u64 %rd4, [d];
         mov.u32 %r1, %tid.x; mul.wide.u32 %rd5, %r1, 8; add.s64 %rd1, %rd1, %rd5; add.s64 %rd2, %rd2, %rd5; add.s64 %rd3, %rd3, %rd5; add.s64 %rd4, %rd4, %rd5;
         ld.global.b64 %rd6, [%rd1]; ld.global.b64 %rd7, [%rd2]; ld.global.b64 %rd8, [%rd3];
         fma.rn.f32x2 %rd9, %rd6, %rd7, %rd8; st.global.b64 [%rd4], %rd9; ret;",
    );
    let text = text.replace(".version 8.2", ".version 8.6").replace("sm_90", "sm_100");
    let module = warpsmith_simt::Module::load(&text, &warpsmith_simt::LoadOptions { sm: 100 }).unwrap();
    let machine = warpsmith_simt::Machine::new(warpsmith_simt::MachineConfig { sm: 100, ..Default::default() });
    let instance = machine.instantiate(std::sync::Arc::new(module)).unwrap();
    let rig = Rig { machine, instance };
    let p = [rig.upload(&a), rig.upload(&b), rig.upload(&c), rig.alloc(8 * N as u64)];
    rig.run(1, N as u32, &p);
    let out: Vec<u64> = rig.download(p[3], N);
    for i in 0..N {
        for s in [0, 32] {
            let [x, y, z] = [a[i], b[i], c[i]].map(|v| f((v >> s) as u32));
            assert_eq!((out[i] >> s) as u32, bits(x.mul_add(y, z)));
        }
    }
}

/// Tables of sections 9.7.3.14 and 9.7.3.17 of PTX ISA 9.1.
#[test]
fn gross_approximations_of_f64_are_upper_words() {
    let bits = f64::to_bits;
    let a = [
        bits(f64::NEG_INFINITY),
        bits(-f64::MIN_POSITIVE / 2.0),
        bits(-0.0),
        bits(0.0),
        bits(f64::MIN_POSITIVE / 2.0),
        bits(f64::INFINITY),
        bits(f64::NAN),
    ];
    let (zero, infinite, nan) = (bits(0.0), bits(f64::INFINITY), 0x7fff_ffff_0000_0000);
    let minus = 1 << 63;
    let rcp = op64("rcp.approx.ftz.f64 %d, %a;", &a, &a, &a);
    assert_eq!(rcp, [minus | zero, minus | infinite, minus | infinite, infinite, infinite, zero, nan]);
    let rsqrt = op64("rsqrt.approx.ftz.f64 %d, %a;", &a, &a, &a);
    assert_eq!(rsqrt, [nan, minus | infinite, minus | infinite, infinite, infinite, zero, nan]);
    // Only the upper word of the operand counts; the lower one of the result is zero. 1/1.5 and 1/√2 by hand.
    // A subnormal quotient is flushed.
    let a = [bits(1.5) | 0xffff_ffff, bits(2.0), bits(f64::MAX)];
    let rcp = op64("rcp.approx.ftz.f64 %d, %a;", &a, &a, &a);
    assert_eq!((rcp[0], rcp[2]), (0x3fe5_5555_0000_0000, zero));
    assert_eq!(op64("rsqrt.approx.ftz.f64 %d, %a;", &a, &a, &a)[1], 0x3fe6_a09e_0000_0000);
}

/// Every approximate form that loads is one that reports name, and no exact one is.
#[test]
fn approximate_instructions_are_named() {
    let types = ["f16", "f16x2", "bf16", "bf16x2", "f32", "f64"];
    let mut named = Vec::new();
    for opcode in ["rcp", "div", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh"] {
        for kind in ["approx", "full", "rn"] {
            for ftz in ["", ".ftz"] {
                for ty in types {
                    let instruction = format!("{opcode}.{kind}{ftz}.{ty}");
                    let class = if ty == "f64" {
                        "d"
                    } else if ty.ends_with("16") {
                        "h"
                    } else {
                        "r"
                    };
                    let again = if opcode == "div" { format!(", %{class}") } else { String::new() };
                    let body = format!(
                        ".reg .b64 %d; .reg .b32 %r; .reg .b16 %h;\n{instruction} %{class}, %{class}{again};\nret;"
                    );
                    let text = format!(".version 8.2\n.target sm_90\n.address_size 64\n.func f() {{ {body} }}\n");
                    let text = text + ".visible .entry k() { call f; ret; }\n.visible .entry idle() { ret; }\n";
                    let options = warpsmith_simt::LoadOptions { sm: 90 };
                    let Ok(module) = warpsmith_simt::Module::load(&text, &options) else { continue };
                    let found: Vec<&str> = module.approximations("k").iter().map(|a| a.instruction).collect();
                    if kind == "rn" {
                        assert!(found.is_empty(), "{instruction}");
                    } else {
                        assert_eq!(found, [instruction.as_str()]);
                        named.push(instruction);
                    }
                    assert!(module.approximations("idle").is_empty());
                }
            }
        }
    }
    let mut table: Vec<&str> = warpsmith_simt::approximations().iter().map(|a| a.instruction).collect();
    table.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, table);
}
