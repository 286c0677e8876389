use super::*;

const HEAD: &str = "//\n// Generated\n//\n\n.version 7.4\n.target sm_75\n.address_size 64\n\n";

fn entry(name: &str, body: &str) -> String {
    format!("\t// .globl\t{name}\n.visible .entry {name}(\n\t.param .u64 {name}_param_0\n)\n{{\n{body}\n\tret;\n}}\n")
}

/// The texts of the modules, and that nothing is lost.
fn modules(text: &str) -> Vec<(Vec<String>, String)> {
    let split = split(text, &warpsmith_ptx::outline(text)).unwrap();
    let whole: String = split.pieces.iter().map(|p| &text[p.bytes.clone()]).collect();
    assert_eq!(whole, text);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for piece in &split.pieces {
        assert_eq!(lines[piece.lines.clone()].concat(), text[piece.bytes.clone()]);
    }
    split.modules.iter().enumerate().map(|(i, names)| (names.clone(), module_text(text, &split.pieces, i))).collect()
}

fn names(text: &str) -> Vec<Vec<String>> {
    modules(text).into_iter().map(|(names, _)| names).collect()
}

#[test]
fn each_kernel_gets_what_it_reaches_and_no_more() {
    let text = format!(
        "{HEAD}.shared .align 16 .b8 A[16];\n// @kernel {{\"name\":\"one\",\"x\":1}}\n// @kernel {{\"name\": \"two\"}}\n\
         .shared .align 16 .b8 B[16];\n.func helper()\n;\n.extern .func (.param .b32 r) vprintf\n(\n\t.param .b64 f\n)\n;\n{}{}\
         .func helper()\n{{\n\tmov.u32 %r1, DEEP;\n\tret;\n}}\n.const .align 4 .b8 DEEP[4];\n.const .align 4 .b8 UNUSED[4];\n\
         \t.file\t1 \"a.rs\"\n",
        entry("one", "\tmov.u32 %r1, A;\n\tcall helper;"),
        entry("two", "\tmov.u32 %r1, B;\n\tcall vprintf;"),
    );
    let all = modules(&text);
    assert_eq!(names(&text), [["one"], ["two"]]);
    let has = |module: usize| {
        let parts = [
            "A[16]",
            "\"one\"",
            "\"two\"",
            "B[16]",
            "helper()\n;",
            "vprintf\n",
            ".entry one",
            ".entry two",
            "helper()\n{",
            "DEEP[4]",
            "UNUSED",
            ".file",
            ".version",
            "Generated",
            ".globl\tone",
        ];
        parts.map(|part| u8::from(all[module].1.contains(part)))
    };
    assert_eq!(has(0), [1, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1]);
    assert_eq!(has(1), [0, 0, 1, 1, 0, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0]);
}

#[test]
fn kernels_that_share_memory_of_the_device_stay_together() {
    let three = format!("{}{}{}", entry("a", "\tmov.u64 %rd1, G;"), entry("b", ""), entry("c", "\tcall f;"));
    let with = |global: &str| format!("{HEAD}{global}\n.func f()\n{{\n\tatom.global.add.u32 %r1, [G], 1;\n}}\n{three}");
    assert_eq!(names(&with(".visible .global .align 4 .u32 G;")), [vec!["b"], vec!["a", "c"]]);
    // Shared memory is each launch's own.
    assert_eq!(names(&with(".shared .align 4 .u32 G;")), [["a"], ["b"], ["c"]]);
    // A pointer to it that both follow.
    let text = with(".global .align 4 .u32 H;\n.const .align 8 .u64 G = H;");
    assert_eq!(names(&text), [vec!["b"], vec!["a", "c"]]);
    // A constant of rustc's, and one that LLVM named.
    for constant in ["alloc_0123456789abcdef0123456789abcdef", "anon_$_0123456789abcdef0123456789abcdef_$_12"] {
        let text = with(&format!(".global .align 1 .b8 {constant}[2] = {{1, 2}};"))
            .replace("G;", constant)
            .replace("[G]", constant);
        assert_eq!(names(&text), [["a"], ["b"], ["c"]]);
        assert!(modules(&text)[0].1.contains("{1, 2}") && !modules(&text)[1].1.contains("{1, 2}"));
    }
    for name in ["alloc_0123", "anon_$_0123_$_1", "anon_$_0123456789abcdef0123456789abcdef_$_", "anon"] {
        assert!(!is_constant(name), "{name}: a static that is called so");
    }
}

#[test]
fn chains_of_shared_memory_join_all() {
    let text = format!(
        "{HEAD}.global .u32 G;\n.global .u32 H;\n{}{}{}",
        entry("a", "\tld.global.u32 %r1, [G];"),
        entry("b", "\tst.global.u32 [H], %r1;"),
        entry("c", "\tld.global.u32 %r1, [G];\n\tst.global.u32 [H], %r1;"),
    );
    assert_eq!(names(&text), [["a", "b", "c"]]);
}

#[test]
fn a_directive_that_names_something_takes_it_along() {
    let text = format!("{HEAD}{}{}.func f()\n{{\n}}\n.alias g, f;\n", entry("a", ""), entry("b", ""));
    assert!(modules(&text).iter().all(|(_, text)| text.contains(".func f()") && text.contains(".alias")));
}

#[test]
fn what_stands_on_one_line_stays_together() {
    let text = format!("{HEAD}.shared .b8 A[4]; .shared .b8 B[4];\n{}", entry("a", "\tmov.u32 %r1, B;"));
    assert!(modules(&text)[0].1.contains("A[4]"));
    for text in ["", "\n", "// nothing\n", ".version 7.4\n.target sm_75\n", &format!("{HEAD}// the end")] {
        assert_eq!(modules(text), []);
    }
}
