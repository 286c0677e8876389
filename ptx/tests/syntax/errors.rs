//! What is wrong is said once, with its line.

use super::*;

#[test]
fn errors_name_line_and_text() {
    let text = in_body("mov.u32 %r1, %q1;\n\tadd.s32 %r1, %r2, oops;");
    let found = errors(&text);
    let shown: Vec<_> = found.iter().map(|d| (d.pos.line, d.message.as_str(), d.line_text.as_str())).collect();
    assert_eq!(
        shown,
        [(13, "Unknown symbol '%q1'", "mov.u32 %r1, %q1;"), (14, "Unknown symbol 'oops'", "\tadd.s32 %r1, %r2, oops;"),]
    );
    assert_eq!(
        found[1].to_string(),
        "line 14; error   : Unknown symbol 'oops'\n    add.s32 %r1, %r2, oops;\n                      ^"
    );
}

#[test]
fn many_errors_in_one_run() {
    let text = in_body(
        "mov.u32 %r1 %r2;\n\
         mov.u32 %r1, ]\n\
         ;\n\
         add.s32 %r1, %r2, %r3\n\
         sub.s32 %r1, %r2, %zz;\n\
         ld.global.v2.b32 {%r1, @}, [%rd1];\n\
         bra NOWHERE;\n\
         .bogus 3;\n\
         mov.f32 %f1, 0f123;\n\
         mov.u32 %r5, %tid.q;",
    );
    let lines: Vec<_> = errors(&text).iter().map(|d| d.pos.line).collect();
    // The missing `;` of line 16 is seen where line 17 begins.
    assert_eq!(lines, [13, 14, 17, 17, 18, 19, 20, 21, 22]);
    let text = format!(
        "{HEAD}.entry a(.param .u64 p,, .param .q8 z) {{ mov.u32 %x, 1; ret; }}\n.global .b33 q;\n.entry b() {{ bra X; }}"
    );
    let messages: Vec<_> = errors(&text).into_iter().map(|d| d.message).collect();
    assert_eq!(messages.len(), 5, "{messages:?}");
    assert!(messages.iter().any(|m| m == "Unknown symbol 'X'"));
}

#[test]
fn one_mistake_is_one_error() {
    for mistake in [
        ".loc 1 1 1",
        ".version 8.5",
        ".global .b32 a",
        ".reg .b32 a;",
        ".bogus 7;",
        "stray",
        ";",
        "}",
        "{ mov.u32 %r1, 5; }",
        ".global .f16 a = 1.5;",
        ".entry z(.param .u64 p,) { ret; }",
        ".entry z() .bogus 5 { bra Z; }",
        ".entry z() { ret; ",
        ".entry z() { { ret; }",
        ".func .func z() { ret; }",
        ".visible z;",
        ".section { .b8 1 }",
        ".file \"a\"",
    ] {
        let found = errors(&format!("{HEAD}\n{mistake}\n.entry k() {{ ret; }}\n"));
        assert_eq!(found.len(), 1, "{mistake}: {}", report(&found));
    }
    for mistake in [
        ".bogus 5;",
        ";",
        "mov.u32 %r1 %r2;",
        "mov.u32 %r1, 5",
        "mov.u32 {%r1, %r2, 5;",
        "@ bra Q;",
        "add.s32 %r1, [;",
        "]",
    ] {
        let found = errors(&in_body(&format!("{mistake}\nmov.u32 %r1, %r2;")));
        assert_eq!(found.len(), 1, "{mistake}: {}", report(&found));
    }
}

#[test]
fn an_unknown_name_is_reported_once() {
    assert_eq!(errors(&in_body("mov.u32 %r1, %q; mov.u32 %r2, %q; mov.u32 %q, %r1;")).len(), 1);
}

#[test]
fn unterminated_things() {
    let first = |text: &str| errors(text).remove(0);
    assert_eq!(first(&in_body("/* no end")).message, "Unterminated comment: no `*/` follows");
    assert_eq!(first(&in_body(".pragma \"x;")).message, "Unterminated string");
    let open = first(&format!("{HEAD}.entry k()\n{{ ret;\n"));
    assert_eq!((open.pos.line, open.message.as_str()), (5, "Unterminated body of 'k': no closing `}`"));
    let next = first(&format!("{HEAD}.entry k()\n{{ ret;\n.visible .entry z() {{ ret; }}"));
    assert_eq!((next.pos.line, next.message.as_str()), (5, "Unterminated body of 'k': no closing `}`"));
    assert_eq!(first(&format!("{HEAD}.section .debug_str {{ .b8 1")).message, "Unterminated section: no closing `}`");
    assert_eq!(first("").message, "Missing .version directive at start of file");
    assert_eq!(first(".version 8.0\n.entry k(){ret;}").message, "Missing .target directive at start of file");
    assert!(first(".version 0.9\n").message.starts_with("Unsupported .version 0.9"));
}

#[test]
fn errors_are_capped() {
    let lines: String = (0..1000).map(|i| format!("mov.u32 %r1, %q{i};\n")).collect();
    assert_eq!(errors(&in_body(&lines)).len(), ptx::MAX_DIAGNOSTICS);
    let lines: String = (0..1000).map(|i| format!("bra L{i};\n")).collect();
    assert_eq!(errors(&in_body(&lines)).len(), ptx::MAX_DIAGNOSTICS);
}

#[test]
fn the_gate_checks_more_than_instructions() {
    let found = |text: &str| -> Vec<String> { ptx::isa::check(&parse(text)).into_iter().map(|d| d.message).collect() };
    let entry = ".entry k() { ret; }";
    assert_eq!(
        found(&format!(".version 7.0\n.target sm_90\n{entry}")),
        ["PTX .version 7.0 does not support .target sm_90"]
    );
    assert_eq!(found(&format!(".version 7.8\n.target sm_91\n{entry}")), ["Unsupported .target 'sm_91'"]);
    assert_eq!(
        found(&format!(".version 99.0\n.target sm_90\n{entry}")),
        ["Unsupported .version 99.0; current version is '9.5'"]
    );
    for (target, first, before) in [
        ("75", "6.3", "6.2"),
        ("80", "7.0", "6.5"),
        ("86", "7.1", "7.0"),
        ("87", "7.4", "7.3"),
        ("89", "7.8", "7.7"),
        ("90", "7.8", "7.7"),
        ("90a", "8.0", "7.8"),
        ("100", "8.6", "8.5"),
        ("100f", "8.8", "8.7"),
        ("120", "8.7", "8.6"),
        ("50", "4.0", "3.2"),
        ("52", "4.1", "4.0"),
        ("70", "6.0", "5.0"),
        ("121a", "8.8", "8.7"),
        ("110", "9.0", "8.8"),
    ] {
        let at = |version: &str| found(&format!(".version {version}\n.target sm_{target}\n{entry}"));
        assert!(at(first).is_empty() && !at(before).is_empty(), "sm_{target}");
    }
    for (declaration, isa, sm) in [
        (".func z() .noreturn { trap; }", "6.4", 30),
        (".entry z() .reqnctapercluster 2 { ret; }", "7.8", 90),
        (".entry z() .reqntid 32 .reqnctapercluster 2 .blocksareclusters { ret; }", "9.0", 90),
        (".entry z() .maxclusterrank 8 { ret; }", "7.8", 90),
        (".global .b128 q;", "8.3", 70),
        (".entry z() { .reg .b128 q; mov.b128 q, q; ret; }", "8.3", 70),
        (".global .b32 b; .global .u64 a = generic(b);", "3.1", 0),
        (".weak .global .b32 b;", "3.1", 0),
        (".weak .func z() { ret; }", "3.1", 0),
        (".common .global .b32 b;", "5.0", 0),
        (".visible .func f() { ret; } .visible .func g(); .alias g, f;", "6.3", 30),
        (".entry z(.param .b8 p[4353]) { ret; }", "8.1", 70),
    ] {
        let messages = found(&format!(".version 2.3\n.target sm_20\n{declaration}"));
        assert!(
            messages.iter().any(|m| m.ends_with(&format!("requires PTX ISA .version {isa} or later"))),
            "{declaration}: {messages:?}"
        );
        let target = format!("requires .target sm_{sm} or higher");
        assert_eq!(messages.iter().any(|m| m.ends_with(&target)), sm > 0, "{declaration}: {messages:?}");
        assert_eq!(found(&format!(".version 9.5\n.target sm_90\n{declaration}")), [""; 0], "{declaration}");
    }
    assert_eq!(
        found(".version 8.5\n.target sm_90\n.entry k(.param .b8 p[32765]) { ret; }"),
        ["Entry function 'k' uses too much parameter space (0x7ffd bytes, 0x7ffc max)."]
    );
}
