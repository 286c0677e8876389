//! Constants in the place of parameters.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use warpsmith_ptx::{KnownBytes, parse, with_constants as with};

/// The text with parameters of these values.
fn with_constants(text: &str, kernel: &str, known: &[(usize, &[u8])]) -> String {
    let known: Vec<_> =
        known.iter().map(|(argument, bytes)| KnownBytes { argument: *argument, offset: 0, bytes }).collect();
    with(text, kernel, &known)
}

const HEAD: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

/// An entry `k` of these parameters, with every kind of register.
fn entry(parameters: &str, body: &str) -> String {
    format!(
        "{HEAD}.visible .entry k({parameters})\n.maxntid 32, 1, 1\n{{\n\t.reg .b16 %rs<9>;\n\t.reg .b32 %r<9>, %x;\n\t.reg .f32 %f<9>;\n\
         \t.reg .b64 %rd<9>;\n\t.reg .pred %p<3>;\n{body}\tret;\n}}\n"
    )
}

/// What becomes of the lines of a body.
fn body(parameters: &str, lines: &str, constants: &[(usize, &[u8])]) -> String {
    let known = with_constants(&entry(parameters, lines), "k", constants);
    parse(&known).unwrap_or_else(|problems| panic!("{problems:?}\n{known}"));
    let (head, rest) = known.split_once("\t.reg .pred %p<3>;\n").unwrap();
    assert_eq!(head, entry(parameters, lines).split_once("\t.reg .pred").unwrap().0);
    rest.strip_suffix("\tret;\n}\n").unwrap().to_owned()
}

#[test]
fn a_load_of_each_type_is_the_number_in_the_width_of_its_register() {
    let one = |ty: &str, register: &str, value: &[u8]| {
        let line = format!("\tld.param.{ty} \t{register}, [p];\n");
        let got = body(&format!(".param .{ty} p"), &line, &[(0, value)]);
        got.trim().trim_end_matches(';').to_owned()
    };
    assert_eq!(one("u32", "%r1", &7u32.to_le_bytes()), "mov.b32 %r1, 0x7");
    assert_eq!(one("b32", "%x", &u32::MAX.to_le_bytes()), "mov.b32 %x, 0xffffffff");
    assert_eq!(one("f32", "%f2", &1.5f32.to_le_bytes()), "mov.b32 %f2, 0x3fc00000");
    assert_eq!(one("u64", "%rd1", &(u64::MAX - 1).to_le_bytes()), "mov.b64 %rd1, 0xfffffffffffffffe");
    assert_eq!(one("f64", "%rd1", &1f64.to_le_bytes()), "mov.b64 %rd1, 0x3ff0000000000000");
    assert_eq!(one("u16", "%rs1", &[0x34, 0x12]), "mov.b16 %rs1, 0x1234");
    // A register may be wider than what is loaded, which is then extended by its sign or by zeros.
    assert_eq!(one("u32", "%rd3", &u32::MAX.to_le_bytes()), "mov.b64 %rd3, 0xffffffff");
    assert_eq!(one("s32", "%rd3", &u32::MAX.to_le_bytes()), "mov.b64 %rd3, 0xffffffffffffffff");
    assert_eq!(one("s32", "%rd3", &7u32.to_le_bytes()), "mov.b64 %rd3, 0x7");
    assert_eq!(one("u8", "%rs1", &[0x80]), "mov.b16 %rs1, 0x80");
    assert_eq!(one("s8", "%rs1", &[0x80]), "mov.b16 %rs1, 0xff80");
    assert_eq!(one("s8", "%r1", &[0x80]), "mov.b32 %r1, 0xffffff80");
}

#[test]
fn parameters_are_meant_by_their_number() {
    let parameters = ".param .u64 .ptr .global .align 16 a, .param .align 8 .b8 b[16], .param .u32 c, .param .f32 d";
    let lines =
        "\tld.param.u64 %rd1, [a];\n\tld.param.u32 %r1, [c];\n\tld.param.f32 %f1, [d];\n\tld.param.u32 %r2, [b+8];\n";
    let known = body(parameters, lines, &[(3, &[0, 0, 0x80, 0x3f]), (2, &[5, 0, 0, 0])]);
    let want =
        "\tld.param.u64 %rd1, [a];\n\tmov.b32 %r1, 0x5;\n\tmov.b32 %f1, 0x3f800000;\n\tld.param.u32 %r2, [b+8];\n";
    assert_eq!(known, want);
    assert_eq!(body(parameters, lines, &[(4, &[1; 4])]), lines, "there is no such parameter");
}

#[test]
fn a_part_of_a_parameter_is_that_part_of_its_value() {
    let value = 0x0807_0605_0403_0201u64.to_le_bytes();
    let lines = "\tld.param.u32 %r1, [p+4];\n\tld.param.u16 %rs1, [p + 2];\n\tld.param.u8 %r2, [p+7];\n";
    let want = "\tmov.b32 %r1, 0x8070605;\n\tmov.b16 %rs1, 0x403;\n\tmov.b32 %r2, 0x8;\n";
    assert_eq!(body(".param .u64 p", lines, &[(0, &value)]), want);
    // Of a struct some fields may be known.
    let fields = "\tld.param.u32 %r1, [p];\n\tld.param.u32 %r2, [p+4];\n\tld.param.u64 %rd1, [p];\n\tld.param.u32 %r3, [p+8];\n\tld.param.u16 %rs1, [p+10];\n";
    let text = entry(".param .align 8 .b8 p[16]", fields);
    let piece = |offset, bytes| KnownBytes { argument: 0, offset, bytes };
    let known = with(&text, "k", &[piece(4, &[1, 0, 0, 0]), piece(8, &[2, 0])]);
    assert_eq!(known, text.replace("ld.param.u32 %r2, [p+4]", "mov.b32 %r2, 0x1"));
    let known = with(&text, "k", &[piece(8, &[2, 0, 3, 0])]);
    assert!(known.contains("mov.b32 %r3, 0x30002;\n\tmov.b16 %rs1, 0x3;\n"), "{known}");
    // What lies behind it is no part of it.
    let behind = "\tld.param.u32 %r1, [p+4];\n";
    assert_eq!(body(".param .align 4 .b8 p[8]", behind, &[(0, &[1, 2, 3, 4])]), behind);
}

#[test]
fn guards_stand_and_everything_stays_on_its_line() {
    let lines = "\t.loc 1 2 3, function_name $L__info, inlined_at 1 4 5\n\t@%p1 ld.param.u32 %r1, [p]; // ld.param.u32 %r2, [p];\n\
                 \tld.param::entry.u32\n\t\t%r2,\n\t\t[p];\n";
    let known = with_constants(&entry(".param .u32 p", lines), "k", &[(0, &[9, 0, 0, 0])]);
    assert!(
        known.contains("inlined_at 1 4 5\n\t@%p1 mov.b32 %r1, 0x9; // ld.param.u32 %r2, [p];\n\tmov.b32 %r2, 0x9;\n")
    );
    let one = "\t@%p1 ld.param.u32 %r1, [p];\n";
    let (before, after) =
        (entry(".param .u32 p", one), with_constants(&entry(".param .u32 p", one), "k", &[(0, &[9; 4])]));
    assert_eq!(before.lines().count(), after.lines().count());
}

#[test]
fn what_is_no_plain_number_stays() {
    let all = [
        "\tld.param.v2.u32 {%r1, %r2}, [p];\n",
        "\tmov.b64 %rd1, p;\n",
        "\tld.global.u32 %r1, [p];\n",
        "\tld.param.u32 %r1, [q];\n",
        // Wider than the register, which is none.
        "\tld.param.u64 %r1, [p];\n",
        "\tld.param.u32 %unknown, [p];\n",
        "\tld.param.pred %p1, [p];\n",
        "\tst.param.u32 [p], %r1;\n",
    ];
    for line in all {
        let text = entry(".param .u64 p", line);
        assert_eq!(with_constants(&text, "k", &[(0, &[1; 8])]), text);
    }
}

#[test]
fn arguments_of_a_call_may_be_called_like_a_parameter() {
    let lines =
        "\tld.param.u32 %r1, [p];\n\t{\n\t.param .b32 p;\n\tst.param.b32 [p], %r2;\n\tld.param.b32 %r3, [p];\n\t}\n";
    let want = lines.replacen("ld.param.u32 %r1, [p]", "mov.b32 %r1, 0x2", 1);
    assert_eq!(body(".param .u32 p", lines, &[(0, &[2, 0, 0, 0])]), want);
}

#[test]
fn other_entries_and_functions_keep_their_loads() {
    let one = |kernel: &str, load: &str| {
        format!(".entry {kernel}(.param .u32 p)\n{{\n\t.reg .b32 %r<2>;\n\t{{ {load}; }}\n\tret;\n}}\n")
    };
    let load = "ld.param.u32 %r1, [p]";
    let function = ".func f(.param .u32 p)\n{\n\t.reg .b32 %r<2>;\n\tld.param.u32 %r1, [p];\n\tret;\n}\n";
    let declared = ".extern .entry k(.param .u32 other);\n";
    let text = format!("{HEAD}{declared}{function}{}{}{}", one("kk", load), one("k", load), one("l", load));
    let want =
        format!("{HEAD}{declared}{function}{}{}{}", one("kk", load), one("k", "mov.b32 %r1, 0x1"), one("l", load));
    assert_eq!(with_constants(&text, "k", &[(0, &[1, 0, 0, 0])]), want);
    assert_eq!(with_constants(&text, "none", &[(0, &[1, 0, 0, 0])]), text);
    assert_eq!(with_constants(&text, "k", &[]), text);
}

#[test]
fn texts_that_end_early_are_as_they_were() {
    let text = entry(".param .u32 p", "\tld.param.u32 %r1, [p];\n");
    for end in 0..text.len() - 2 {
        let cut = &text[..end];
        assert_eq!(with_constants(cut, "k", &[(0, &[1; 4])]), cut);
    }
    assert_ne!(with_constants(&text, "k", &[(0, &[1; 4])]), text);
}

/// The lines of a body with constants, blanks aside.
fn lines(parameters: &str, of: &str, constants: &[(usize, &[u8])]) -> Vec<String> {
    body(parameters, of, constants).lines().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty()).collect()
}

#[test]
fn no_approximation_is_of_constants_alone() {
    let known = lines(
        ".param .u64 x, .param .u32 n",
        "\tld.param.u32 %r1, [n];\n\tcvt.rn.f32.u32 %f1, %r1;\n\t@%p1 rsqrt.approx.ftz.f32 %f1, %f1;\n",
        &[(1, &[128, 0, 0, 0])],
    );
    assert_eq!(
        known,
        [
            "mov.b32 %r1, 0x80;",
            "cvt.rn.f32.u32 %f1, %r1;",
            "{",
            ".reg .b32 %warpsmith_known;",
            "ld.param.u8 %warpsmith_known, [n+0];",
            "xor.b32 %warpsmith_known, %warpsmith_known, 128;",
            ".reg .b32 %warpsmith_opaque;",
            "or.b32 %warpsmith_opaque, %warpsmith_known, %f1;",
            "@%p1 rsqrt.approx.ftz.f32 %f1, %warpsmith_opaque;",
            "}",
        ]
    );
}

#[test]
fn an_operand_is_known_by_what_it_may_be() {
    let n = ".param .u64 x, .param .u32 n, .param .f32 f";
    let known: [(usize, &[u8]); 2] = [(1, &[3, 0, 0, 0]), (2, &[0, 0, 0, 0x40])];
    let head =
        "\tld.param.u32 %r1, [n];\n\tld.param.f32 %f1, [f];\n\tld.param.u64 %rd1, [x];\n\tld.global.f32 %f2, [%rd1];\n";
    let kept = |more: &str| body(n, &format!("{head}{more}"), &known).contains("%warpsmith_opaque");
    for approximates in [
        "\tex2.approx.ftz.f32 %f3, %f1;\n",
        "\tmul.f32 %f4, %f1, 0f3FB8AA3B;\n\tadd.f32 %f4, %f4, %f1;\n\tlg2.approx.f32 %f3, %f4;\n",
        "\tdiv.full.f32 %f3, 0f3F800000, %f1;\n",
        "\tdiv.approx.f32 %f3, %f1, 0f40400000;\n",
        "\tsin.approx.f32 %f3, %f1;\n",
        // One of two values of it, whichever is chosen.
        "\tselp.f32 %f4, %f1, 0f3F800000, %p1;\n\trcp.approx.f32 %f3, %f4;\n",
        // The one of them that a condition chooses which is known, or one that leaves nothing of the other.
        "\tsetp.eq.u32 %p1, %r1, 3;\n\tselp.f32 %f4, %f2, %f1, %p1;\n\trcp.approx.f32 %f3, %f4;\n",
        "\tsetp.eq.u32 %p1, %r1, 3;\n\tselp.f32 %f4, 0f40400000, %f2, %p1;\n\trcp.approx.f32 %f3, %f4;\n",
        "\tmov.u32 %r2, %tid.x;\n\tmul.lo.u32 %r2, %r2, %r1;\n\tcvt.rn.f32.u32 %f4, %r2;\n\tex2.approx.f32 %f3, %f4;\n",
        "\tmov.f32 %f4, %f2;\n\t@%p1 mov.f32 %f4, %f1;\n\tsqrt.approx.f32 %f3, %f4;\n",
        // Counted in a loop that may be unrolled.
        "\tmov.b32 %r2, 0;\nL:\n\tcvt.rn.f32.u32 %f4, %r2;\n\tex2.approx.f32 %f3, %f4;\n\tadd.u32 %r2, %r2, 1;\n\
         \tsetp.lt.u32 %p1, %r2, %r1;\n\t@%p1 bra L;\n",
        "\tmov.b64 {%r3, %r4}, %rd2;\n\tmov.b32 %r3, %r1;\n\ttanh.approx.f16x2 %r5, %r3;\n",
        "\tcvt.u16.u32 %rs1, %r1;\n\tex2.approx.f16 %rs2, %rs1;\n",
        "\tcvt.rn.f64.u32 %rd3, %r1;\n\trcp.approx.ftz.f64 %rd4, %rd3;\n",
    ] {
        assert!(kept(approximates), "{approximates}");
    }
    for exact in [
        "\tex2.approx.ftz.f32 %f3, %f2;\n",
        "\tsub.f32 %f4, %f2, %f1;\n\tex2.approx.f32 %f3, %f4;\n",
        "\tdiv.approx.f32 %f3, %f1, %f2;\n",
        "\tmul.f32 %f4, %f2, %f1;\n\tex2.approx.f32 %f3, %f4;\n",
        "\tmov.u32 %r2, %tid.x;\n\tand.b32 %r2, %r2, 7;\n\tcvt.rn.f32.u32 %f4, %r2;\n\tex2.approx.f32 %f3, %f4;\n",
        "\trsqrt.approx.f32 %f3, 0f40400000;\n",
        "\tsqrt.rn.f32 %f3, %f1;\n\tdiv.rn.f32 %f3, 0f3F800000, %f3;\n",
        "\tmov.u32 %r2, %tid.x;\n\tadd.u32 %r2, %r2, %r1;\n\tcvt.rn.f32.u32 %f4, %r2;\n\tlg2.approx.f32 %f3, %f4;\n",
    ] {
        assert!(!kept(exact), "{exact}");
    }
}

#[test]
fn where_a_function_may_approximate_a_constant_the_text_stays() {
    let function = |body: &str| {
        format!(
            ".func (.param .f32 r) f(.param .f32 a)\n{{\n\t.reg .f32 %f<3>;\n\tld.param.f32 %f1, [a];\n{body}\tret;\n}}\n"
        )
    };
    let kernel = entry(".param .u32 p", "\tld.param.u32 %r1, [p];\n").replace(HEAD, "");
    let text = |body: &str| format!("{HEAD}{}{kernel}", function(body));
    let exact = text("\tmul.f32 %f2, %f1, %f1;\n");
    assert_ne!(with_constants(&exact, "k", &[(0, &[1; 4])]), exact);
    let approximate = text("\trcp.approx.f32 %f2, %f1;\n");
    assert_eq!(with_constants(&approximate, "k", &[(0, &[1; 4])]), approximate);
}
