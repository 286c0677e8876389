//! The portable handlers give what the vector ones give.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::double_comparisons,
    clippy::precedence,
    clippy::cast_abs_to_unsigned
)]

mod common;

use common::*;
use warpsmith_simt::testing::{Vectors, limit_vectors};

/// What `run` gives with code that is lowered for no more than these vectors. Tests of this file lower code one after the other:
/// there is one.
fn with<T>(most: Vectors, run: impl FnOnce() -> T) -> T {
    limit_vectors(most);
    let result = run();
    limit_vectors(Vectors::Vnni);
    result
}

#[test]
fn both_give_the_same_bits() {
    let three = [
        "add.s32 %d, %a, %b;",
        "mul.hi.s32 %d, %a, %b;",
        "shl.b32 %d, %a, %b;",
        "prmt.b32 %d, %a, %b, %c;",
        "prmt.b32 %d, %a, %b, 0x8c31;",
        "lop3.b32 %d, %a, %b, %c, 0xe8;",
        "fma.rn.f32 %d, %a, %b, %c;",
        "fma.rn.ftz.f32 %d, %a, %b, %c;",
        "min.f32 %d, %a, %b;",
        "max.NaN.f32 %d, %a, %b;",
        "div.rn.f32 %d, %a, %b;",
        "fma.rn.f16x2 %d, %a, %b, %c;",
        "fma.rn.bf16x2 %d, %a, %b, %c;",
        "add.rz.f32 %d, %a, %b;",
        "cvt.rn.f16x2.f32 %d, %a, %b;",
        "cvt.rni.s32.f32 %d, %a;",
        "cvt.rn.f32.u32 %d, %a;",
        "dp4a.s32.u32 %d, %a, %b, %c;",
        "dp4a.s32.s32 %d, %a, %b, %c;",
        "dp4a.u32.u32 %d, %a, %b, %c;",
        "setp.lt.f32 %p1, %a, %b; @%p1 dp4a.u32.s32 %d, %a, %b, %c; @!%p1 mov.b32 %d, %b;",
        "mov.b64 %u1, {%a, %b}; mov.b64 %u2, {%b, %c}; setp.lt.s64 %p1, %u1, %u2; selp.b32 %d, %a, %c, %p1;",
        "popc.b32 %d, %a;",
        "bfe.s32 %d, %a, %b, %c;",
        "setp.lt.f32 %p1, %a, %b; selp.b32 %d, %a, %c, %p1;",
        "rsqrt.approx.f32 %d, %a;",
        "ex2.approx.f32 %d, %a;",
        "ex2.approx.ftz.f32 %d, %a;",
        "add.rn.f16x2 %d, %a, %b;",
        "min.NaN.f16x2 %d, %a, %b;",
        "max.xorsign.abs.bf16x2 %d, %a, %b;",
        "neg.bf16x2 %d, %a;",
        "abs.s32 %d, %a;",
        "and.b32 %t1, %a, 1; setp.eq.u32 %p1, %t1, 0; mov.u32 %d, %c; @%p1 fma.rn.f32 %d, %a, %b, %c;",
        "shfl.sync.bfly.b32 %d, %a, 3, 31, -1;",
        "redux.sync.add.u32 %d, %b, -1;",
        "mov.b64 %u1, {%a, %b}; mul.lo.u64 %u2, %u1, %u1; mov.b64 {%t1, %d}, %u2;",
        "setp.ge.s32 %p1, %a, %b; mov.u32 %d, 0; @%p1 mad.lo.u32 %d, %a, %b, %c;",
    ];
    let mut r = Rng(5);
    let (a, b, c) = (r.f32s(192), r.u32s(192), r.f32s(192));
    for body in three {
        let portable = with(Vectors::Portable, || op32(body, &a, &b, &c));
        for most in Vectors::FASTER {
            assert_eq!(with(most, || op32(body, &a, &b, &c)), portable, "{body} {most:?}");
        }
    }
    let text = module_text(
        ".param .u64 i, .param .u64 o",
        ".shared .align 16 .b8 s[1024]; .reg .b32 %r<20>; .reg .b64 %rd<9>;
         ld.param.u64 %rd1, [i]; ld.param.u64 %rd2, [o]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 16; add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;
         ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd1]; ld.global.v2.u32 {%r6,%r7}, [%rd1]; shl.b32 %r8, %r1, 3; mov.u32 %r9, s; add.u32 %r8, %r8, %r9;
         st.shared.v2.u32 [%r8], {%r7,%r6}; ld.shared.v2.u32 {%r10,%r11}, [%r8]; st.global.v4.u32 [%rd2], {%r5,%r10,%r11,%r2}; ret;",
    );
    let run = || {
        let rig = Rig::new(&text);
        let data: Vec<u32> = (0..400).map(|i| i * 77).collect();
        let (i, o) = (rig.upload(&data), rig.alloc(1600));
        rig.run(1, 100, &[i, o]);
        let out: Vec<u32> = rig.download(o, 400);
        assert!((0..100).all(|t| out[4 * t..][..4] == [data[4 * t + 3], data[4 * t + 1], data[4 * t], data[4 * t]]));
        out
    };
    let portable = with(Vectors::Portable, run);
    for most in Vectors::FASTER {
        assert_eq!(with(most, run), portable, "{most:?}");
    }
    every_half();
    products_of_matrices();
}

/// Of all 65536 numbers of f16; some lanes are not to be written.
fn every_half() {
    let all: Vec<u32> = (0..=0xffff).map(|half| half | half << 19).collect();
    let want: Vec<u32> = (0..=u16::MAX)
        .map(|bits| {
            let value = half::f16::from_bits(bits).to_f32();
            if value.is_nan() { 0x7fff_ffff } else { value.to_bits() }
        })
        .collect();
    let some = "mov.b32 {%h1, %h2}, %a; and.b32 %t1, %a, 5; setp.eq.u32 %p1, %t1, 4; mov.b32 %d, %b; @!%p1 cvt.f32.f16 %d, %h1;";
    for most in [Vectors::Portable].into_iter().chain(Vectors::FASTER) {
        let got = with(most, || op32("mov.b32 {%h1, %h2}, %a; cvt.f32.f16 %d, %h1;", &all, &all, &all));
        assert!(got == want, "{most:?}");
        let got = with(most, || op32(some, &all, &all, &all));
        let kept = |bits: usize| if bits & 5 == 4 { all[bits] } else { want[bits] };
        assert!(got.iter().enumerate().all(|(bits, got)| *got == kept(bits)), "{most:?}");
    }
}

/// Of numbers of any bits, and of ordinary ones.
fn products_of_matrices() {
    let mut random = Rng(11);
    let types = [
        ("m16n8k16", "f32.f16.f16.f32", [4, 2], [0xbfff_bfff, 0x2000_2000]),
        ("m16n8k8", "f32.f16.f16.f32", [2, 1], [0xbfff_bfff, 0x2000_2000]),
        ("m16n8k16", "f32.bf16.bf16.f32", [4, 2], [0x87ff_87ff, 0x3c00_3c00]),
        ("m16n8k4", "f32.tf32.tf32.f32", [2, 1], [0x87ff_ffff, 0x3c00_0000]),
        ("m16n8k8", "f32.tf32.tf32.f32", [4, 2], [0x87ff_ffff, 0x3c00_0000]),
        ("m16n8k32", "f32.e4m3.e5m2.f32", [4, 2], [0xbfbf_bfbf, 0]),
        ("m16n8k32", "f32.e5m2.e4m3.f32", [4, 2], [0xbfbf_bfbf, 0]),
        ("m8n8k16", "s32.s8.u8.s32", [1, 1], [!0, 0]),
        ("m16n8k32", "s32.u8.s8.s32", [4, 2], [!0, 0]),
        ("m16n8k64", "s32.s4.u4.s32", [4, 2], [!0, 0]),
        ("m16n8k256", "s32.b1.b1.s32.xor.popc", [4, 2], [!0, 0]),
    ];
    for (shape, kinds, [na, nb], [keep, set]) in types {
        let nc = if shape.starts_with("m8") { 2 } else { 4 };
        let list = |name: char, n: usize| (0..n).map(|i| format!("%{name}{i}")).collect::<Vec<_>>().join(", ");
        let loads: String = [('a', na, 0), ('b', nb, na), ('c', nc, na + nb)]
            .into_iter()
            .flat_map(|(name, n, from)| {
                (0..n).map(move |i| format!("ld.global.b32 %{name}{i}, [%rd1+{}];\n", 128 * (from + i)))
            })
            .collect();
        let stores: String = (0..nc).map(|i| format!("st.global.b32 [%rd2+{}], %c{i};\n", 128 * i)).collect();
        let c = list('c', nc);
        let text = module_text(
            ".param .u64 i, .param .u64 o",
            &format!(
                ".reg .b32 %a<4>, %b<2>, %c<4>, %t<2>; .reg .b64 %rd<4>;
                 ld.param.u64 %rd1, [i]; ld.param.u64 %rd2, [o]; mov.u32 %t1, %tid.x; mul.wide.u32 %rd3, %t1, 4;
                 add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3; {loads}
                 mma.sync.aligned.{shape}.row.col.{kinds} {{{c}}}, {{{}}}, {{{}}}, {{{c}}}; {stores} ret;",
                list('a', na),
                list('b', nb),
            ),
        );
        // That of numbers of eight bits.
        let text = text.replace(".version 8.2", ".version 8.4");
        for round in 0..6 {
            let mut data: Vec<u32> = (0..(na + nb + nc) * 32).map(|_| random.next() as u32).collect();
            if round > 1 {
                data[..(na + nb) * 32].iter_mut().for_each(|word| *word = *word & keep | set);
                data[(na + nb) * 32..].iter_mut().for_each(|word| *word = *word & 0x83ff_ffff | 0x3c00_0000);
            }
            let run = || {
                let rig = Rig::new(&text);
                let (i, o) = (rig.upload(&data), rig.alloc(512));
                rig.run(1, 32, &[i, o]);
                rig.download::<u32>(o, nc * 32)
            };
            let portable = with(Vectors::Portable, run);
            for most in Vectors::FASTER {
                assert_eq!(with(most, run), portable, "{shape}.{kinds}, {most:?}");
            }
        }
    }
}
