//! The small print of the ISA, instruction by instruction. Expected values come from the ISA's text (quoted) or from a
//! computation by hand that is shown; none from our own output.

#![allow(clippy::unwrap_used, clippy::panic, clippy::precedence)]

mod common;

use common::*;
use std::sync::Arc;
use warpsmith_simt::{Instance, Launch, LoadOptions, Machine, MachineConfig, Module, approximations};

/// Runs one instruction on one set of operands: `%a %b %c` in, `%d` out, on sm_100.
fn blackwell(regs: &str, body: &str, a: &[u64], bytes: u32) -> Vec<u64> {
    let text = format!(
        ".version 8.8\n.target sm_100\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out) {{
         .reg .b64 %rd<9>; .reg .b32 %t; {regs}
         ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; mov.u32 %t, %tid.x;
         mul.wide.u32 %rd3, %t, {bytes}; add.u64 %rd1, %rd1, %rd3; mul.wide.u32 %rd3, %t, 8; add.u64 %rd2, %rd2, %rd3;
         {body} ret; }}"
    );
    let module = Module::load(&text, &LoadOptions { sm: 100 }).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let machine = Machine::new(MachineConfig { sm: 100, threads: 1, ..MachineConfig::default() });
    let instance: Instance = machine.instantiate(Arc::new(module)).unwrap();
    let rig = Rig { machine, instance };
    let threads = (8 * a.len() as u32 / bytes).max(1);
    let (input, out) = (rig.upload(a), rig.upload(&vec![0u64; threads as usize]));
    let params: Vec<u8> = [input, out].iter().flat_map(|p| p.to_le_bytes()).collect();
    rig.machine
        .launch(&rig.instance, "k", &Launch::new([1, 1, 1], [threads, 1, 1]), &params)
        .unwrap_or_else(|f| panic!("{f}"));
    rig.download(out, threads as usize)
}

fn one32(body: &str, a: u32, b: u32, c: u32) -> u32 {
    op32(body, &[a], &[b], &[c])[0]
}

#[test]
fn shifts_beyond_the_width() {
    // "Shift amounts greater than the register width N are clamped to N"; shr.s32 fills with the sign.
    assert_eq!(one32("shl.b32 %d, %a, %b;", 1, 32, 0), 0);
    assert_eq!(one32("shl.b32 %d, %a, %b;", 1, 0xffff_ffff, 0), 0);
    assert_eq!(one32("shr.u32 %d, %a, %b;", 0x8000_0000, 33, 0), 0);
    assert_eq!(one32("shr.s32 %d, %a, %b;", 0x8000_0000, 64, 0), 0xffff_ffff);
    // shf: ".wrap" takes the amount modulo 32, ".clamp" the minimum with 32.
    assert_eq!(one32("shf.l.wrap.b32 %d, %a, %b, %c;", 0x1234_5678, 0x9abc_def0, 36), 0xabcd_ef01);
    assert_eq!(one32("shf.l.clamp.b32 %d, %a, %b, %c;", 0x1234_5678, 0x9abc_def0, 36), 0x1234_5678);
    assert_eq!(one32("shf.r.clamp.b32 %d, %a, %b, %c;", 0x1234_5678, 0x9abc_def0, 40), 0x9abc_def0);
}

#[test]
fn fields_at_the_edges() {
    // bfe: "pos = b & 0xff; len = c & 0xff"; beyond the most significant bit a signed field is filled with the sign.
    assert_eq!(one32("bfe.s32 %d, %a, %b, %c;", 0x8000_0000, 28, 8), 0xffff_fff8);
    assert_eq!(one32("bfe.s32 %d, %a, %b, %c;", 0x8000_0000, 40, 8), 0xffff_ffff);
    assert_eq!(one32("bfe.u32 %d, %a, %b, %c;", 0xffff_ffff, 0x104, 0x108), 0xff);
    assert_eq!(one32("bfe.s32 %d, %a, %b, %c;", 0xffff_ffff, 4, 0), 0);
    // bfi: "if (pos > msb) no bits are inserted"; a length of 0 gives b.
    assert_eq!(one32("bfi.b32 %d, %a, %b, %c, 8;", 0xff, 0, 28), 0xf000_0000);
    assert_eq!(one32("bfi.b32 %d, %a, %b, %c, 8;", 0xff, 7, 32), 7);
    assert_eq!(one32("bfi.b32 %d, %a, %b, %c, 0;", 0xff, 7, 3), 7);
    // bfind: "0xffffffff if no non-sign bit was found".
    assert_eq!(one32("bfind.u32 %d, %a;", 0, 0, 0), 0xffff_ffff);
    assert_eq!(one32("bfind.s32 %d, %a;", 0xffff_ffff, 0, 0), 0xffff_ffff);
    assert_eq!(one32("bfind.s32 %d, %a;", 0xffff_fff0, 0, 0), 3);
    assert_eq!(one32("bfind.shiftamt.u32 %d, %a;", 1, 0, 0), 31);
    // Bit counts of 64 bits are 32-bit values.
    assert_eq!(map3(".b64", ".b32", "clz.b64 %d, %a;", &[1], &[0], &[0]), [63]);
    assert_eq!(map3(".b64", ".b32", "popc.b64 %d, %a;", &[u64::MAX], &[0], &[0]), [64]);
    assert_eq!(map3(".b64", ".b32", "bfind.u64 %d, %a;", &[1 << 40], &[0], &[0]), [40]);
    // szext: "sign- or zero-extends an N-bit value"; bmsk: "mask of b bits from bit a".
    assert_eq!(one32("szext.wrap.s32 %d, %a, %b;", 0xfff8, 4, 0), 0xffff_fff8);
    assert_eq!(one32("szext.clamp.u32 %d, %a, %b;", 0xfff8, 40, 0), 0xfff8);
    assert_eq!(one32("bmsk.clamp.b32 %d, %a, %b;", 28, 8, 0), 0xf000_0000);
    assert_eq!(one32("bmsk.wrap.b32 %d, %a, %b;", 36, 4, 0), 0xf0);
    // fns: the third set bit from bit 4 up, the first downwards, none.
    assert_eq!(one32("fns.b32 %d, %a, %b, %c;", 0x0000_0f50, 4, 3), 8);
    assert_eq!(one32("fns.b32 %d, %a, %b, %c;", 0x0000_0f50, 7, 0xffff_ffff), 6);
    assert_eq!(one32("fns.b32 %d, %a, %b, %c;", 0x0000_0050, 8, 1), 0xffff_ffff);
}

#[test]
fn permutations_and_tables() {
    // prmt: the most significant bit of a selector replicates the sign of its byte.
    assert_eq!(one32("prmt.b32 %d, %a, %b, %c;", 0x8011_2233, 0x4455_66f7, 0x0000_cb84), 0xffff_00f7);
    assert_eq!(one32("prmt.b32.f4e %d, %a, %b, %c;", 0x0302_0100, 0x0706_0504, 2), 0x0504_0302);
    assert_eq!(one32("prmt.b32.b4e %d, %a, %b, %c;", 0x0302_0100, 0x0706_0504, 1), 0x0607_0001);
    assert_eq!(one32("prmt.b32.rc8 %d, %a, %b, %c;", 0x0302_0100, 0x0706_0504, 2), 0x0202_0202);
    assert_eq!(one32("prmt.b32.ecl %d, %a, %b, %c;", 0x0302_0100, 0x0706_0504, 2), 0x0302_0202);
    assert_eq!(one32("prmt.b32.ecr %d, %a, %b, %c;", 0x0302_0100, 0x0706_0504, 2), 0x0202_0100);
    assert_eq!(one32("prmt.b32.rc16 %d, %a, %b, %c;", 0x0302_0100, 0x0706_0504, 1), 0x0302_0302);
    // lop3: "immLut = F(0xF0, 0xCC, 0xAA)".
    let lut = 0xf0u32 & 0xcc | !0xf0u32 & 0xaa & 0xff;
    let body = format!("lop3.b32 %d, %a, %b, %c, {};", lut & 0xff);
    assert_eq!(one32(&body, 0xffff_0000, 0x1234_5678, 0x9abc_def0), 0x1234_def0);
}

#[test]
fn division_by_zero_and_overflow() {
    // Unspecified by the ISA; ptxas' code for sm_90 gives all ones. The least integer by -1 wraps.
    for (op, ty) in [("div", "s32"), ("div", "u32"), ("rem", "s32"), ("rem", "u32")] {
        assert_eq!(one32(&format!("{op}.{ty} %d, %a, %b;"), 7, 0, 0), 0xffff_ffff, "{op}.{ty}");
    }
    assert_eq!(one32("div.s32 %d, %a, %b;", 0x8000_0000, 0xffff_ffff, 0), 0x8000_0000);
    assert_eq!(one32("rem.s32 %d, %a, %b;", 0x8000_0000, 0xffff_ffff, 0), 0);
    assert_eq!(op64("div.s64 %d, %a, %b;", &[1 << 63], &[u64::MAX], &[0]), [1 << 63]);
    assert_eq!(one32("abs.s32 %d, %a;", 0x8000_0000, 0, 0), 0x8000_0000);
    assert_eq!(one32("add.sat.s32 %d, %a, %b;", 0x7fff_ffff, 1, 0), 0x7fff_ffff);
    assert_eq!(one32("sub.sat.s32 %d, %a, %b;", 0x8000_0000, 1, 0), 0x8000_0000);
    // mad.hi.sat.s32 saturates the sum of the upper half and c.
    assert_eq!(one32("mad.hi.sat.s32 %d, %a, %b, %c;", 0x7fff_ffff, 0x7fff_ffff, 0x7fff_ffff), 0x7fff_ffff);
    // mul24.hi: bits 47 to 16 of the product of 24-bit operands.
    assert_eq!(one32("mul24.hi.u32 %d, %a, %b;", 0xff80_0000, 0xff80_0000, 0), 0x4000_0000);
    assert_eq!(one32("mul24.lo.s32 %d, %a, %b;", 0x00ff_ffff, 3, 0), (-3i32) as u32);
    assert_eq!(one32("sad.s32 %d, %a, %b, %c;", 0xffff_ffff, 4, 10), 15);
    // dp4a: four bytes' products and c; dp2a: two halves of a with two bytes of b.
    assert_eq!(one32("dp4a.s32.u32 %d, %a, %b, %c;", 0xff02_0304, 0xff01_0101, 1), (1 - 255 + 9) as u32);
    assert_eq!(one32("dp2a.lo.s32.u32 %d, %a, %b, %c;", 0xffff_0003, 0x0000_02ff, 1), (1 + 765 - 2) as u32);
    assert_eq!(one32("dp2a.hi.u32.u32 %d, %a, %b, %c;", 0x0001_0003, 0x02ff_0000, 1), 1 + 765 + 2);
}

#[test]
fn conversions_at_the_edges() {
    let f = f32::to_bits;
    // Out of range: the nearest value of the type; NaN: 0.
    assert_eq!(one32("cvt.rzi.s32.f32 %d, %a;", f(3e9), 0, 0), 0x7fff_ffff);
    assert_eq!(one32("cvt.rzi.s32.f32 %d, %a;", f(f32::NAN), 0, 0), 0);
    assert_eq!(one32("cvt.rzi.u32.f32 %d, %a;", f(-1.0), 0, 0), 0);
    assert_eq!(one32("cvt.rni.s32.f32 %d, %a;", f(2.5), 0, 0), 2);
    assert_eq!(one32("cvt.rni.s32.f32 %d, %a;", f(-3.5), 0, 0), (-4i32) as u32);
    assert_eq!(one32("cvt.rmi.s32.f32 %d, %a;", f(-0.5), 0, 0), 0xffff_ffff);
    assert_eq!(one32("cvt.rpi.f32.f32 %d, %a;", f(-0.5), 0, 0), 0x8000_0000);
    assert_eq!(one32("cvt.sat.s8.s32 %d, %a;", 300, 0, 0), 127);
    assert_eq!(one32("cvt.sat.u8.s32 %d, %a;", 0xffff_ffff, 0, 0), 0);
    assert_eq!(one32("cvt.sat.u32.s32 %d, %a;", 0xffff_fff0, 0, 0), 0);
    // "Sources are truncated to the type": the low byte, extended by its own sign.
    assert_eq!(one32("cvt.s32.s8 %d, %a;", 0x1280, 0, 0), 0xffff_ff80);
    assert_eq!(map3(".b32", ".b64", "cvt.u64.s8 %d, %a;", &[0x80], &[0], &[0]), [0xffff_ffff_ffff_ff80]);
    // .sat of a float: [0, 1], NaN gives +0.
    assert_eq!(one32("cvt.sat.f32.f32 %d, %a;", f(1.5), 0, 0), f(1.0));
    assert_eq!(one32("cvt.sat.f32.f32 %d, %a;", f(f32::NAN), 0, 0), 0);
    // cvt.pack: the first source goes above the second; with narrow types c's low bits above both.
    assert_eq!(one32("cvt.pack.sat.s16.s32 %d, %a, %b;", 70_000, (-70_000i32) as u32, 0), 0x7fff_8000);
    assert_eq!(one32("cvt.pack.sat.u8.s32.b32 %d, %a, %b, %c;", 300, 0xffff_ffff, 0x1234_5678), 0x5678_ff00);
    assert_eq!(one32("cvt.pack.sat.s4.s32.b32 %d, %a, %b, %c;", 300, (-300i32) as u32, 0x1234_5678), 0x3456_7878);
    assert_eq!(one32("cvt.pack.sat.u2.s32.b32 %d, %a, %b, %c;", 300, 1, 0x1234_5678), 0x2345_678d);
    // f16x2: "a goes to the upper half".
    assert_eq!(one32("cvt.rn.f16x2.f32 %d, %a, %b;", f(1.0), f(2.0), 0), 0x3c00_4000);
    assert_eq!(one32("cvt.rn.relu.bf16x2.f32 %d, %a, %b;", f(-1.0), f(2.0), 0), 0x0000_4000);
    // tf32 rounds ties away from zero with .rna: 1 + 2^-11 is a tie at 10 bits of fraction.
    assert_eq!(one32("cvt.rna.tf32.f32 %d, %a;", 0x3f80_1000, 0, 0) & !0x1fff, 0x3f80_2000);
}

#[test]
fn signs_zeros_and_nan() {
    let f = f32::to_bits;
    // copysign: "the sign bit of a onto the magnitude of b".
    assert_eq!(one32("copysign.f32 %d, %a, %b;", f(-1.0), f(3.0), 0), f(-3.0));
    // testp: the classes of numbers.
    for (property, x, want) in [
        ("finite", f(1.0), 1),
        ("finite", f(f32::INFINITY), 0),
        ("infinite", f(f32::NEG_INFINITY), 1),
        ("number", f(f32::INFINITY), 1),
        ("notanumber", 0xffc0_0000, 1),
        ("normal", 0x0040_0000, 0),
        ("subnormal", 0x8040_0000, 1),
        ("subnormal", 0, 0),
    ] {
        assert_eq!(
            one32(&format!("testp.{property}.f32 %p1, %a; selp.b32 %d, 1, 0, %p1;"), x, 0, 0),
            want,
            "{property}"
        );
    }
    // "+0.0 > -0.0"; without .NaN the operand that is a number, with it the canonical NaN; both NaN: canonical.
    assert_eq!(one32("max.f32 %d, %a, %b;", 0x8000_0000, 0, 0), 0);
    assert_eq!(one32("min.f32 %d, %a, %b;", 0, 0x8000_0000, 0), 0x8000_0000);
    assert_eq!(one32("max.f32 %d, %a, %b;", 0xffc0_1234, f(1.0), 0), f(1.0));
    assert_eq!(one32("max.NaN.f32 %d, %a, %b;", 0xffc0_1234, f(1.0), 0), 0x7fff_ffff);
    assert_eq!(one32("min.f32 %d, %a, %b;", 0x7fc0_0001, 0xffc0_0002, 0), 0x7fff_ffff);
    assert_eq!(one32("min.xorsign.abs.f32 %d, %a, %b;", f(-2.0), f(3.0), 0), f(-2.0));
    assert_eq!(one32("max.xorsign.abs.f32 %d, %a, %b;", f(-2.0), f(-3.0), 0), f(3.0));
    // The same of two halves: -2 and 3, -2 and -3 (f16: 2 is 0x4000, 3 is 0x4200).
    assert_eq!(one32("max.xorsign.abs.f16x2 %d, %a, %b;", 0xc000_c000, 0x4200_c200, 0), 0xc200_4200);
    assert_eq!(one32("min.NaN.xorsign.abs.f16x2 %d, %a, %b;", 0xc000_fe00, 0x4200_c200, 0), 0xc000_7fff);
    // NaN results are canonical.
    assert_eq!(one32("add.f32 %d, %a, %b;", 0xffc0_1234, f(1.0), 0), 0x7fff_ffff);
    assert_eq!(one32("mul.f32 %d, %a, %b;", f(f32::INFINITY), 0, 0), 0x7fff_ffff);
    assert_eq!(one32("sqrt.rn.f32 %d, %a;", f(-1.0), 0, 0), 0x7fff_ffff);
    assert_eq!(one32("add.f16x2 %d, %a, %b;", 0x7e00_3c00, 0x3c00_3c00, 0), 0x7fff_4000);
    // .ftz keeps the sign of what it flushes; .sat maps NaN to +0 and clamps to [0, 1].
    assert_eq!(one32("add.ftz.f32 %d, %a, %b;", 0x8000_0001, 0x8000_0001, 0), 0x8000_0000);
    assert_eq!(one32("mul.rn.ftz.f32 %d, %a, %b;", f(1e-30), f(-1e-10), 0), 0x8000_0000);
    assert_eq!(one32("fma.rn.sat.f32 %d, %a, %b, %c;", f(f32::NAN), f(1.0), 0), 0);
    assert_eq!(one32("add.sat.f32 %d, %a, %b;", f(-3.0), f(1.0), 0), 0);
    // Unordered comparisons are true if an operand is NaN.
    for (name, want) in [("lt", 0), ("ltu", 1), ("ne", 0), ("neu", 1), ("num", 0), ("nan", 1)] {
        let body = format!("setp.{name}.f32 %p1, %a, %b; selp.b32 %d, 1, 0, %p1;");
        assert_eq!(one32(&body, f(f32::NAN), f(1.0), 0), want, "{name}");
    }
}

#[test]
fn fused_products_round_once() {
    // f16: 1.0009765625² = 1.00195407867431640625; minus 1.001953125 leaves 2^-20 = 0x0010 exactly; an intermediate
    // rounding would give 0. bf16: 1.0078125² = 1.01568603515625; minus 1.015625 leaves 2^-14 = 0x3880.
    assert_eq!(one32("fma.rn.f16x2 %d, %a, %b, %c;", 0x3c01, 0x3c01, 0xbc02), 0x0010);
    assert_eq!(one32("fma.rn.bf16x2 %d, %a, %b, %c;", 0x3f81, 0x3f81, 0xbf82), 0x3880);
    // A tie that a tiny addend decides: 1.0625² = 1.12890625 lies between 0x3f90 and 0x3f91 of bf16.
    assert_eq!(one32("fma.rn.bf16x2 %d, %a, %b, %c;", 0x3f88, 0x3f88, 0x0001), 0x3f91);
    assert_eq!(one32("fma.rn.bf16x2 %d, %a, %b, %c;", 0x3f88, 0x3f88, 0x8001), 0x3f90);
    // f32: (1 + 2^-12)² - (1 + 2^-11) = 2^-24.
    let f = f32::to_bits;
    assert_eq!(one32("fma.rn.f32 %d, %a, %b, %c;", 0x3f80_0800, 0x3f80_0800, 0xbf80_1000), f(2f32.powi(-24)));
    // Directed: 1 + 2^-30 up and down; to zero from both sides.
    let tiny = f(2f32.powi(-30));
    assert_eq!(one32("add.rp.f32 %d, %a, %b;", f(1.0), tiny, 0), 0x3f80_0001);
    assert_eq!(one32("add.rm.f32 %d, %a, %b;", f(1.0), tiny, 0), 0x3f80_0000);
    assert_eq!(one32("add.rz.f32 %d, %a, %b;", f(-1.0), tiny, 0), 0xbf7f_ffff);
    assert_eq!(one32("fma.rp.f32 %d, %a, %b, %c;", f(1.0), tiny, f(1.0)), 0x3f80_0001);
}

#[test]
fn arithmetic_of_blackwell() {
    let f = |x: f32| u64::from(x.to_bits());
    let regs = ".reg .b32 %a, %b, %c, %d; .reg .b16 %h, %g; .reg .b64 %w<4>;";
    let load = "ld.global.b32 %a, [%rd1]; ld.global.b32 %b, [%rd1+8]; ld.global.b32 %c, [%rd1+16]; cvt.u16.u32 %h, %a; cvt.u16.u32 %g, %b;";
    let go = |body: &str, a: u64, b: u64, c: u64| {
        blackwell(regs, &format!("{load} {body} st.global.b32 [%rd2], %d;"), &[a, b, c], 24)[0] as u32
    };
    // Mixed precision: the half is widened exactly, the sum rounded once. 0x3c01 is 1 + 2^-10.
    assert_eq!(go("add.f32.f16 %d, %h, %c;", 0x3c01, 0, f(1.0)), (2.0f32 + 2f32.powi(-10)).to_bits());
    assert_eq!(go("sub.rn.f32.bf16 %d, %h, %c;", 0x4040, 0, f(1.0)), 2f32.to_bits());
    assert_eq!(go("add.rz.sat.f32.f16 %d, %h, %c;", 0x3c00, 0, f(1.0)), 1f32.to_bits());
    // (1 + 2^-10)² - (1 + 2^-9) = 2^-20.
    assert_eq!(go("fma.rn.f32.f16 %d, %h, %g, %c;", 0x3c01, 0x3c01, f(-1.001_953_1)), 2f32.powi(-20).to_bits());
    assert_eq!(go("add.rp.f32.f16 %d, %h, %c;", 0x3c00, 0, f(2f32.powi(-30))), 0x3f80_0001);
    // Three inputs.
    assert_eq!(go("min.f32 %d, %a, %b, %c;", f(1.0), f(-2.0), f(f32::NAN)), (-2f32).to_bits());
    assert_eq!(go("max.NaN.f32 %d, %a, %b, %c;", f(1.0), f(-2.0), f(f32::NAN)), 0x7fff_ffff);
    assert_eq!(go("max.abs.f32 %d, %a, %b, %c;", f(1.0), f(-2.0), f(0.5)), 2f32.to_bits());
    assert_eq!(go("min.ftz.abs.f32 %d, %a, %b, %c;", f(1.0), f(-2.0), 0x8000_0001), 0);
    // Two f32 at once, in every rounding: 1 + 2^-30 and -1 - 2^-30.
    let pair = |low: f32, high: f32| f(low) | f(high) << 32;
    let tiny = 2f32.powi(-30);
    for (round, low, high) in [
        ("rn", 0x3f80_0000, 0xbf80_0000),
        ("rz", 0x3f80_0000, 0xbf80_0000),
        ("rm", 0x3f80_0000, 0xbf80_0001),
        ("rp", 0x3f80_0001, 0xbf80_0000u64),
    ] {
        let body = format!(
            "ld.global.b64 %w1, [%rd1]; ld.global.b64 %w2, [%rd1+8]; ld.global.b64 %w3, [%rd1+16];
             add.{round}.f32x2 %w0, %w1, %w2; st.global.b64 [%rd2], %w0;"
        );
        let got = blackwell(regs, &body, &[pair(1.0, -1.0), pair(tiny, -tiny), 0], 24)[0];
        assert_eq!(got, low | high << 32, "{round}");
        let body =
            body.replace(&format!("add.{round}.f32x2 %w0, %w1, %w2"), &format!("fma.{round}.f32x2 %w0, %w1, %w2, %w3"));
        let got = blackwell(regs, &body, &[pair(1.0, 1.0), pair(tiny, -tiny), pair(1.0, -1.0)], 24)[0];
        assert_eq!(got, low | high << 32, "fma {round}");
    }
}

#[test]
fn vectors_of_atomics_and_128_bits() {
    let rig = Rig::new(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 out) {
         .reg .b64 %rd<20>; .reg .b32 %r<20>; .reg .f32 %f<20>; .reg .b16 %h<20>; .reg .b128 %q<5>;
         ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [out];
         mov.b32 %f1, 0f3F800000; mov.b32 %f2, 0f40000000;
         atom.global.add.v2.f32 {%f3, %f4}, [%rd1], {%f1, %f2};
         red.global.add.v4.f32 [%rd1+16], {%f1, %f2, %f1, %f2};
         mov.b32 %r1, 0x3c004000; atom.global.v2.f16x2.max.noftz {%r2, %r3}, [%rd1+8], {%r1, %r1};
         mov.b16 %h1, 0x3f80; red.global.add.noftz.v2.bf16 [%rd1+32], {%h1, %h1};
         st.global.v2.f32 [%rd2], {%f3, %f4};
         // exch and cas of 128 bits.
         mov.b64 %rd5, 5; mov.b64 %rd6, 6; mov.b128 %q1, {%rd5, %rd6};
         atom.global.exch.b128 %q2, [%rd1+48], %q1;
         mov.b128 {%rd7, %rd8}, %q2; st.global.v2.b64 [%rd2+16], {%rd7, %rd8};
         atom.global.cas.b128 %q3, [%rd1+48], %q2, %q2;
         atom.global.cas.b128 %q3, [%rd1+48], %q1, %q2;
         st.global.b128 [%rd2+32], %q3;
         ld.global.b128 %q4, [%rd1]; mov.b128 {%r4, %r5, %r6, %r7}, %q4; st.global.v4.b32 [%rd2+48], {%r4, %r5, %r6, %r7};
         ret; }",
    );
    let mut data = vec![0u32; 32];
    data[0] = 10f32.to_bits();
    data[1] = 20f32.to_bits();
    data[2] = 0x4400_3c00;
    data[3] = 0x0000_7e00;
    data[8] = 0x4000_3f80;
    data[12..16].copy_from_slice(&[1, 2, 3, 4]);
    let (p, out) = (rig.upload(&data), rig.upload(&[0u32; 32]));
    rig.run(1, 1, &[p, out]);
    let (got, out): (Vec<u32>, Vec<u32>) = (rig.download(p, 32), rig.download(out, 32));
    assert_eq!(got[..2], [11f32.to_bits(), 22f32.to_bits()]);
    // max of (4, 1) and (1, 2); of (0, NaN) and (1, 2).
    assert_eq!(got[2..4], [0x4400_4000, 0x3c00_4000]);
    assert_eq!(got[4..8], [1f32, 2.0, 1.0, 2.0].map(f32::to_bits));
    // bf16: 2 + 1 and 1 + 1.
    assert_eq!(got[8], 0x4040_4000);
    assert_eq!(got[12..16], [1, 2, 3, 4], "exchanged, and swapped back");
    assert_eq!(out[..2], [10f32.to_bits(), 20f32.to_bits()]);
    assert_eq!(out[4..8], [1, 2, 3, 4]);
    assert_eq!(out[8..12], [5, 0, 6, 0]);
    assert_eq!(out[12..16], [11f32.to_bits(), 22f32.to_bits(), 0x4400_4000, 0x3c00_4000]);
    // The ISA: atom.add.f32 flushes subnormals in global memory, not in shared memory; inc and dec wrap at b.
    let rig = Rig::new(&module_text(
        ".param .u64 p",
        ".shared .align 4 .b32 s; .reg .b64 %rd<3>; .reg .b32 %r<9>; .reg .f32 %f<9>;
         ld.param.u64 %rd1, [p]; mov.b32 %f1, 0f00000001; st.shared.f32 [s], %f1; st.global.f32 [%rd1], %f1;
         red.shared.add.f32 [s], %f1; red.global.add.f32 [%rd1], %f1; ld.shared.b32 %r1, [s]; st.global.b32 [%rd1+4], %r1;
         atom.global.inc.u32 %r2, [%rd1+8], 5; atom.global.inc.u32 %r2, [%rd1+8], 5;
         atom.global.dec.u32 %r2, [%rd1+12], 5; atom.global.dec.u32 %r2, [%rd1+16], 5; ret;",
    ));
    let p = rig.upload(&[9u32, 9, 4, 0, 9]);
    rig.run(1, 1, &[p]);
    assert_eq!(rig.download::<u32>(p, 5), [0, 2, 0, 5, 5]);
}

#[test]
fn reductions_of_floats() {
    // redux.f32: minimum or maximum over the warp; NaN lanes do not count, or all with .NaN; .abs compares magnitudes.
    let text = |op: &str| {
        format!(
            ".version 8.6\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 p) {{
             .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .f32 %f<4>;
             ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
             ld.global.f32 %f1, [%rd1]; redux.sync.{op}.f32 %f2, %f1, 0xffffffff; st.global.f32 [%rd1], %f2; ret; }}"
        )
    };
    let run = |op: &str, nan: bool| {
        let module = Module::load(&text(op), &LoadOptions { sm: 100 }).unwrap_or_else(|e| panic!("{e}"));
        let machine = Machine::new(MachineConfig { sm: 100, threads: 1, ..MachineConfig::default() });
        let instance = machine.instantiate(Arc::new(module)).unwrap();
        let rig = Rig { machine, instance };
        let mut x: Vec<f32> = (0..32).map(|i| i as f32 - 20.5).collect();
        if nan {
            x[7] = f32::NAN;
        }
        let p = rig.upload(&x);
        rig.run(1, 32, &[p]);
        let got: Vec<u32> = rig.download(p, 32);
        assert!(got.iter().all(|&v| v == got[0]));
        got[0]
    };
    assert_eq!(run("min", false), (-20.5f32).to_bits());
    assert_eq!(run("max", true), 10.5f32.to_bits());
    assert_eq!(run("max.abs", false), 20.5f32.to_bits());
    assert_eq!(run("min.abs", true), 0.5f32.to_bits());
    assert_eq!(run("max.NaN", true), 0x7fff_ffff);
    assert_eq!(run("max.abs.NaN", false), 20.5f32.to_bits());
}

#[test]
fn shuffles_take_lanes_modulo_32() {
    // "b … lane index modulo 32".
    let got = run_warp("mov.u32 %r2, 33; shfl.sync.idx.b32 %r3, %r1, %r2, 31, -1;");
    assert!(got.iter().all(|&v| v == 1));
    let got = run_warp("mov.u32 %r2, 34; shfl.sync.down.b32 %r3, %r1, %r2, 31, -1;");
    assert!(got.iter().enumerate().all(|(t, &v)| v == if t < 30 { t as u32 + 2 } else { t as u32 }));
}

fn run_warp(body: &str) -> Vec<u32> {
    let rig = Rig::new(&module_text(
        ".param .u64 p",
        &format!(
            ".reg .b64 %rd<4>; .reg .b32 %r<9>; ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
             add.u64 %rd1, %rd1, %rd2; {body} st.global.u32 [%rd1], %r3; ret;"
        ),
    ));
    let p = rig.upload(&[0u32; 32]);
    rig.run(1, 32, &[p]);
    rig.download(p, 32)
}

#[test]
fn approximations_lie_within_their_bounds() {
    // The bounds of the ISA, against f64 arithmetic of the host.
    let table = approximations();
    for name in ["rcp.approx.f32", "sin.approx.f32", "ex2.approx.f32", "tanh.approx.f16x2"] {
        assert!(table.iter().any(|a| a.instruction == name && !a.bound.is_empty() && !a.computed.is_empty()), "{name}");
    }
    let mut r = Rng(5);
    let xs: Vec<u32> = (0..2000).map(|_| ((r.next() % 2000) as f32 / 100.0 - 10.0).to_bits()).collect();
    let zero = vec![0; xs.len()];
    type Case = (&'static str, fn(f64) -> f64, fn(f64, f64) -> f64, f64);
    let relative: fn(f64, f64) -> f64 = |got, want| ((got - want) / want).abs();
    let absolute: fn(f64, f64) -> f64 = |got, want| (got - want).abs();
    let cases: [Case; 8] = [
        ("rcp.approx.f32 %d, %a;", |x| 1.0 / x, relative, 2f64.powi(-23)),
        ("sqrt.approx.f32 %d, %a;", f64::sqrt, relative, 2f64.powi(-23)),
        ("rsqrt.approx.f32 %d, %a;", |x| 1.0 / x.sqrt(), relative, 2f64.powf(-22.9)),
        ("sin.approx.f32 %d, %a;", f64::sin, absolute, 2f64.powf(-14.7)),
        ("cos.approx.f32 %d, %a;", f64::cos, absolute, 2f64.powf(-14.7)),
        ("lg2.approx.f32 %d, %a;", f64::log2, absolute, 2f64.powi(-21)),
        ("ex2.approx.f32 %d, %a;", f64::exp2, relative, 2f64.powi(-22)),
        ("tanh.approx.f32 %d, %a;", f64::tanh, relative, 2f64.powi(-11)),
    ];
    for (body, exact, error, bound) in cases {
        for (&x, got) in xs.iter().zip(op32(body, &xs, &zero, &zero)) {
            let want = exact(f32::from_bits(x).into());
            let got = f64::from(f32::from_bits(got));
            if want.is_finite() && want != 0.0 {
                assert!(error(got, want) <= bound, "{body} {} gives {got}, not {want}", f32::from_bits(x));
            }
        }
    }
}
