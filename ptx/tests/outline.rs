//! The outline against what the text says, and against the parser.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use warpsmith_ptx::ast::Space;
use warpsmith_ptx::outline::{outline, outline_by_parts, with_renamed};

#[test]
fn every_form_of_parameter_and_variable() {
    let text = ".visible .entry none\n{\n ret;\n}\n.entry empty()\n{\n}\n\
        .weak .entry k(.param .u8 a, .param .b16 b, .param .f64 c, .param .align 16 .b8 d[32], .param .u64 .ptr .global .align 16 e)\n{ }\n\
        .global .align 8 .u64 ptr = generic(TABLE);\n.shared .v4 .f32 q[2][3];\n.const .f32 pi = 0f40490FDB, e = 0f402DF854;\n\
        .global .u32 list[2] = {1, 2};\n/* .shared .b8 comment[9]; \n*/ .section .debug_macinfo { }\n\t.file\t1 \"a b.rs\"\n";
    let scan = outline(text);
    let names: Vec<_> = scan.functions.iter().map(|f| (f.name, f.params.len(), f.is_entry, f.body.is_some())).collect();
    assert_eq!(names, [("none", 0, true, true), ("empty", 0, true, true), ("k", 5, true, true)]);
    let sizes: Vec<_> = scan.functions[2].params.iter().map(|p| (p.size, p.align)).collect();
    assert_eq!(sizes, [(1, 1), (2, 2), (8, 8), (32, 16), (8, 8)]);
    let variables: Vec<_> = scan.variables.iter().map(|v| (v.space, v.name, v.size, v.align)).collect();
    assert_eq!(
        variables,
        [
            (Space::Global, "ptr", Some(8), 8),
            (Space::Shared, "q", Some(96), 16),
            (Space::Const, "pi", Some(4), 4),
            (Space::Const, "e", Some(4), 4),
            (Space::Global, "list", Some(8), 4),
        ]
    );
}

#[test]
fn opcodes_are_the_first_words_of_statements() {
    let text = ".func f(.param .b32 p) {\n\t.reg .b32 \t%r<6>; .reg .pred %p1;\n\t.loc\t1 2 3, function_name $L__info, inlined_at 1 4 5\n\
        \tld.param.b32 %r1, [p];\n$L1: $L2:\n\t@!%p1 bra $L1;\n\t{ @%p1 st.global.v2.b32 [table+4], {%r1, value}; }\n\
        \tatom.global.add.u32 %r2, [counter], %r1; call.uni (r), help, (a); // bar.sync 0;\n\tmov.u32 %r3, %tid.x; ret;\n}\n";
    let outline = outline(text);
    let body = outline.functions[0].body.as_ref().unwrap();
    let opcodes: Vec<_> = body.opcodes.iter().map(|(opcode, n)| (*opcode, *n)).collect();
    let once = |opcode| (opcode, 1);
    assert_eq!(
        opcodes,
        ["atom.global.add.u32", "bra", "call.uni", "ld.param.b32", "mov.u32", "ret", "st.global.v2.b32"].map(once)
    );
    assert_eq!(body.stored_to.iter().copied().collect::<Vec<_>>(), ["counter", "table"]);
    assert!(["help", "value", "%tid.x", "$L1", "%p1"].iter().all(|name| body.names.contains(name)));
    assert_eq!(outline.items[0].range, 0..text.len() - 1);
}

#[test]
fn whole_names_are_renamed() {
    let names = [("f", "g_1".to_owned()), (".x", "no".to_owned())].into_iter().collect();
    let text = "call f, (ff, f1, %f); // f\n.file 1 \"f\"\n\tmov.f.f32 f, [f+4], $f;";
    assert_eq!(
        with_renamed(text, &names),
        "call g_1, (ff, f1, %f); // f\n.file 1 \"f\"\n\tmov.f.f32 g_1, [g_1+4], $f;"
    );
}

/// The two readings of one text must agree on what both say.
#[test]
fn it_agrees_with_the_parser() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../simt/tests/corpus/ptx");
    let mut compared = 0;
    for file in texts(folder.as_ref()) {
        let text = std::fs::read_to_string(&file).unwrap();
        let Ok(module) = warpsmith_ptx::parse(&text) else { continue };
        let outline = outline(&text);
        let name = file.display();
        assert_eq!(outline.version, Some(module.version), "{name}");
        for parsed in module.functions.iter().filter(|f| f.body.is_some()) {
            let is_same = |f: &&warpsmith_ptx::outline::FunctionOutline<'_>| f.name == parsed.name && f.body.is_some();
            let own = outline.functions.iter().find(is_same).unwrap_or_else(|| panic!("{name}: {}", parsed.name));
            assert_eq!(own.is_entry, parsed.is_entry, "{name}: {}", parsed.name);
            let params = own.params.iter().map(|p| (p.name, p.size, p.align));
            let theirs = parsed.params.iter().map(|p| (p.name.as_str(), u64::from(p.size), u64::from(p.align)));
            if parsed.is_entry {
                assert!(params.eq(theirs), "{name}: parameters of {}: {:?}", parsed.name, parsed.params);
            }
            let body = own.body.as_ref().unwrap();
            let roots = |root: &str| {
                let of = |(opcode, n): (&&str, &u32)| opcode.split('.').next().filter(|r| *r == root).map(|_| *n);
                body.opcodes.iter().filter_map(of).sum::<u32>() as usize
            };
            let parsed_body = parsed.body.as_ref().unwrap();
            // Those that the parser makes of nothing else.
            for root in ["bar", "shfl", "vote", "mma", "ldmatrix", "atom", "ret", "bra"] {
                let theirs = parsed_body.instructions.iter().filter(|i| i.opcode == root).count();
                assert_eq!(roots(root), theirs, "{name}: `{root}` in {}", parsed.name);
            }
            compared += 1;
        }
        for parsed in &module.variables {
            let own = outline
                .variables
                .iter()
                .find(|v| v.name == parsed.name)
                .unwrap_or_else(|| panic!("{name}: {}", parsed.name));
            assert_eq!((own.space, own.align), (parsed.space, u64::from(parsed.align)), "{name}: {}", parsed.name);
            assert!(own.size.is_none_or(|size| size == parsed.size), "{name}: {}: {:?}", parsed.name, own.size);
        }
    }
    assert!(compared > 50, "only {compared} functions were compared");
}

/// However a text is cut, its outline is the same.
#[test]
fn parts_are_the_whole() {
    let mut cut = 0;
    let mut same = |name: &str, text: &str| {
        let whole = format!("{:?}", outline(text));
        for bytes in [0, 1, 100, 3000, usize::MAX] {
            let by_parts = outline_by_parts(text, bytes, |parts| {
                cut += usize::from(parts.len() > 1);
                parts.iter().map(|part| outline(part)).collect()
            });
            assert_eq!(format!("{by_parts:?}"), whole, "{name}, {bytes} bytes");
        }
    };
    for path in texts(concat!(env!("CARGO_MANIFEST_DIR"), "/../simt/tests/corpus/ptx").as_ref()) {
        same(&path.display().to_string(), &std::fs::read_to_string(&path).unwrap());
    }
    // Lines that end no body, and texts that end within one.
    let text = ".version 7.4\n.visible .entry a()\n{\n{\nmov.u32 %r1, %é;\n}\n\tret;\n}\n.extern\n}\n.func f();\n.global .b32 x = 1;\n.visible .entry b()\n{\nret;\n}\n";
    same("blocks", text);
    same("a comment", &text.replacen("ret;\n}\n", "ret; /*\n}\n*/ }\n", 1));
    same("declarations in a comment", ".func a()\n{\nret;\n}\n/*\n}\n.func g();\n*/\n.func b()\n{\nret;\n}\n");
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        same("cut", &text[..end]);
    }
    assert!(cut > 100, "{cut}");
}

fn texts(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => texts(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|e| e == "ptx"))
        .collect()
}

/// Registers by number are the body's own, and are most of its words; whatever else looks like one is a name.
#[test]
fn registers_by_number_are_no_names() {
    let text = "\
.visible .entry k()
{
\t.reg .pred \t%p<3>;
\t.reg .b32 %r<9>, %single;
\t.loc\t1 2 3, function_name $L__info0, inlined_at 1 4 5 // @[ a.rs:1:2 ]
\t@%p1 bra $L1;
\tadd.s32 %r1, %r2, %single;
\tst.global.b32 [%rd7+4], %r8;
\tmov.u32 %r3, %r;
$L1:
\tret;
}
";
    let scan = outline(text);
    let body = scan.functions[0].body.as_ref().unwrap();
    let names: Vec<&str> = body.names.iter().copied().collect();
    assert_eq!(names, ["$L1", "%r", "%rd7", "%single", "add.s32", "bra", "mov.u32", "ret", "st.global.b32"]);
    let opcodes: Vec<&str> = body.opcodes.keys().copied().collect();
    assert_eq!(opcodes, ["add.s32", "bra", "mov.u32", "ret", "st.global.b32"]);
    assert_eq!(body.stored_to.iter().collect::<Vec<_>>(), [&"%rd7"]);
}
