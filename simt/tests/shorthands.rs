//! Shorthands of PTX and what registers of several elements do: subscripts, sums as operands, vectors, parameters in
//! registers; results of `set`; conversions to bytes that clamp.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Rig, load_error, module_text};
use half::f16;

/// The words that a body leaves at `[%rd1]`, of which `input` is what was there before.
fn words(body: &str, input: &[u32], n: usize) -> Vec<u32> {
    let text = format!(
        ".reg .b64 %rd<20>; .reg .b32 %r<20>; .reg .b16 %h<20>; .reg .f32 %f<9>; .reg .pred %p<9>;
         ld.param.u64 %rd1, [out]; {body} ret;"
    );
    run(&module_text(".param .u64 out", &text), input, n)
}

fn run(text: &str, input: &[u32], n: usize) -> Vec<u32> {
    let rig = Rig::new(text);
    let mut data = input.to_vec();
    data.resize(n.max(input.len()), 0);
    let out = rig.upload(&data);
    rig.run(1, 1, &[out]);
    rig.download(out, n)
}

/// A subscript counts elements of the fundamental type, whatever the dimensions; a register is taken as unsigned.
#[test]
fn subscripts_are_places_of_elements() {
    let body = ".local .align 4 .b8 bytes[16]; .shared .u32 shared[8]; .global .u32 global[4] = {5, 6, 7, 8}; .const .u16 halves[4] = {1, 2, 3, 4};
        ld.global.u32 %r9, [%rd1];
        st.local.u32 bytes[4], 77; ld.local.u32 %r1, [bytes+4]; ld.local.u8 %r2, bytes[4];
        mov.u64 %rd2, bytes[0]; mov.u64 %rd3, bytes[8]; sub.u64 %rd4, %rd3, %rd2; cvt.u32.u64 %r3, %rd4;
        st.shared.u32 shared[%r9], 31; ld.shared.u32 %r4, shared[2]; mov.u32 %r5, shared[%r9+1]; mov.u32 %r6, shared; sub.u32 %r5, %r5, %r6;
        ld.global.u32 %r7, global[%r9+1]; ld.const.u16 %r8, halves[3];
        st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4}; st.global.v4.u32 [%rd1+16], {%r5, %r7, %r8, 0};";
    assert_eq!(words(body, &[2], 8), [77, 77, 8, 31, 12, 8, 4, 0]);
    assert!(load_error(&module_text("", ".local .u32 x; .reg .u64 a; mov.u64 a, x[1]; ret;")).contains("non-array"));
}

/// A load or store without a space takes that of the symbol in its address; `[x+0]` is `[x]`.
#[test]
fn symbols_imply_their_space() {
    let body = ".local .u32 mine[2]; .shared .u32 ours[2]; .global .u32 all[2];
        st.u32 [mine+4], 1; st.u32 [ours+0], 2; st.u32 [all+4], 3; red.add.u32 [all+4], 10; atom.add.u32 %r4, [ours], 20;
        ld.u32 %r1, [mine+4]; ld.u32 %r2, [ours]; ld.u32 %r3, [all+4]; st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};";
    assert_eq!(words(body, &[], 4), [1, 22, 13, 2]);
}

/// `%r1+4` where a source may stand; the sum wraps in the register's width.
#[test]
fn sums_are_sources() {
    let body = "ld.global.u32 %r1, [%rd1]; add.u32 %r2, %r1 + 4, %r1+-1; mad.lo.u32 %r3, %r1+1, %r1+2, %r1+3;
        mov.u16 %h1, 0xffff; mov.u16 %h2, %h1+2; cvt.u32.u16 %r4, %h2; cvt.u64.u32 %rd2, %r1; st.global.u64 [%rd1+16], %rd2 + 1;
        st.global.v4.u32 [%rd1], {%r2, %r3, %r4, %r1};";
    assert_eq!(words(body, &[10], 6), [23, 145, 1, 10, 11, 0]);
    assert!(load_error(&module_text("", ".reg .u32 a; mov.u32 a+1, 2; ret;")).contains("Result register required"));
}

/// All sources of a vector `mov` are read before anything is written.
#[test]
fn vectors_move_at_once() {
    let body = ".reg .v4 .u16 v<3>; .reg .v2 .b32 w<2>;
        mov.b64 v0, 0x0004000300020001; mov.v4.u16 v2, v0; mov.v4.u16 v2, {v2.w, v2.x, v2.y, v2.z}; mov.b64 %rd2, v2;
        ld.global.v2.b32 w1, [%rd1]; mov.v2.b32 w1, {w1.y, w1.x}; mov.v2.b32 {%r1, _}, 9; mov.v2.b32 w0, {w1.y, %r1};
        st.global.u64 [%rd1], %rd2; st.global.v2.b32 [%rd1+8], w1; st.global.v2.b32 [%rd1+16], w0;";
    assert_eq!(words(body, &[100, 200], 6), [1 << 16 | 4, 3 << 16 | 2, 200, 100, 100, 9]);
    let body = ".reg .v4 .u32 t; mov.v4.u32 t, %ntid; st.global.v4.u32 [%rd1], t;";
    assert_eq!(words(body, &[], 4), [1, 1, 1, 1]);
}

/// Vectors and predicates pass as parameters in registers; a function may return several values.
#[test]
fn parameters_in_registers() {
    let text = ".version 8.2\n.target sm_90\n.address_size 64
        .func (.reg .v2 .u32 o) swap (.reg .v2 .u32 i) { mov.v2.u32 o, {i.y, i.x}; ret; }
        .func (.reg .u32 a, .reg .u64 b, .reg .pred c) three (.reg .u32 x, .reg .v4 .f32 f) {
          .reg .f32 s; add.f32 s, f.x, f.y; add.f32 s, s, f.z; add.f32 s, s, f.w; cvt.rzi.u32.f32 a, s;
          mul.wide.u32 b, x, 0x80000000; setp.gt.u32 c, x, 3; ret; }
        .func (.reg .u32 o) bytes (.reg .v4 .u16 i) {
          .reg .u32 t<4>; cvt.u32.u16 t0, i.x; cvt.u32.u16 t1, i.w; shl.b32 t1, t1, 16; or.b32 o, t0, t1; ret; }
        .visible .entry k(.param .u64 out) {
          .reg .b64 %rd<4>; .reg .b32 %r<9>; .reg .pred %p, %q; .reg .v2 .u32 v; .reg .v4 .f32 f; .reg .v4 .u16 h;
          ld.param.u64 %rd1, [out]; ld.global.v2.u32 v, [%rd1]; call (v), swap, (v); st.global.v2.u32 [%rd1], v;
          mov.v4.f32 f, {0f3f800000, 0f40000000, 0f40400000, 0f40800000};
          call (%r1, %rd2, %p), three, (5, f); call (_, _, %q), three, (2, f);
          selp.u32 %r2, 1, 0, %p; selp.u32 %r3, 1, 0, %q;
          mov.v4.u16 h, {1, 2, 3, 4}; call (%r4), bytes, (h);
          st.global.v2.u32 [%rd1+8], {%r1, %r2}; st.global.u64 [%rd1+16], %rd2; st.global.v2.u32 [%rd1+24], {%r3, %r4}; ret; }";
    assert_eq!(run(text, &[7, 8], 8), [8, 7, 10, 1, 0x8000_0000, 2, 0, 4 << 16 | 1]);
}

fn pair(low: f16, high: f16) -> u32 {
    u32::from(low.to_bits()) | u32::from(high.to_bits()) << 16
}

/// Results of `set`: all bits or none for integers, halves of their own for packed sources, 1.0 for floats. The first line is
/// what ZLUDA's suite expects.
#[test]
fn set_has_a_result_of_every_type() {
    let (nan, h) = (f16::NAN, f16::from_f32);
    let input = [
        pair(nan, nan),
        pair(h(3.5), f16::NEG_INFINITY),
        pair(h(-0.0), h(0.0)),
        pair(h(1.0), h(2.0)),
        pair(h(2.0), h(1.0)),
    ];
    let body = "ld.global.v2.u16 {%h1, %h2}, [%rd1]; ld.global.u32 %r1, [%rd1+4]; ld.global.u32 %r2, [%rd1+8];
        ld.global.u32 %r3, [%rd1+12]; ld.global.u32 %r4, [%rd1+16];
        set.gtu.u32.f16 %r5, %h1, %h2; set.gtu.u32.f16x2 %r6, %r1, %r2;
        set.lt.u32.f16x2 %r7, %r3, %r4; set.lt.f16x2.f16x2 %r8, %r3, %r4;
        mov.b32 {%h3, %h4}, %r3; set.lt.u16.f16 %h5, %h3, %h4; set.gt.s16.f16 %h6, %h3, %h4; mov.b32 %r9, {%h5, %h6};
        set.lt.f16.f16 %h7, %h3, %h4; set.eq.bf16.u32 %h8, %r3, %r3; mov.b32 %r10, {%h7, %h8}; set.ne.f32.u64 %f1, %rd1, 0;
        setp.gt.u32 %p1, %r3, 0; set.lt.xor.s32.f16 %r11, %h3, %h4, %p1;
        st.global.v4.u32 [%rd1], {%r5, %r6, %r7, %r8}; st.global.v4.b32 [%rd1+16], {%r9, %r10, %f1, %r11};";
    let wanted = [u32::MAX, 0xffff, 0xffff, 0x3c00, 0xffff, 0x3f80_3c00, 1f32.to_bits(), 0];
    assert_eq!(words(body, &input, 8), wanted);
}

/// `.relu` makes negative numbers zero before they saturate; NaN stays NaN.
#[test]
fn conversions_to_bytes_clamp_at_zero() {
    let input = [-3.5f32, 448.5, f32::NAN, -0.125, -1e9, 0.40625].map(f32::to_bits);
    let body = "ld.global.v2.f32 {%f1, %f2}, [%rd1]; ld.global.v2.f32 {%f3, %f4}, [%rd1+8]; ld.global.v2.f32 {%f5, %f6}, [%rd1+16];
        cvt.rn.satfinite.relu.e4m3x2.f32 %h1, %f1, %f2; cvt.rn.satfinite.relu.e4m3x2.f32 %h2, %f3, %f4; mov.b32 %r1, {%h1, %h2};
        cvt.rn.satfinite.relu.e5m2x2.f32 %h3, %f5, %f6; cvt.rn.satfinite.e5m2x2.f32 %h4, %f5, %f6; mov.b32 %r2, {%h3, %h4};
        cvt.rn.f16x2.f32 %r4, %f1, %f6; cvt.rn.satfinite.relu.e4m3x2.f16x2 %h5, %r4; cvt.rn.satfinite.e4m3x2.f16x2 %h6, %r4;
        mov.b32 %r3, {%h5, %h6}; st.global.v2.u32 [%rd1], {%r1, %r2}; st.global.u32 [%rd1+8], %r3;";
    // 448 is 0x7e and 0.40625 is 0x2d in e4m3, 0.4375 (to even) 0x36 and 0.375 to 0.40625 is 0x36 or 0x37 in e5m2.
    let half_way = 0x36;
    let wanted = [0x7f00_007e, 0xfb << 24 | half_way << 16 | half_way, 0xc62d_002d];
    assert_eq!(words(body, &input, 3), wanted);
}
