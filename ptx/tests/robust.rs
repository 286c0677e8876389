//! No text makes the frontend panic, hang or eat memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use std::time::{Duration, Instant};
use warpsmith_ptx as ptx;

const FIXTURES: &[&str] = &[
    include_str!("ptx/forms.ptx"),
    include_str!("ptx/triton_style.ptx"),
    include_str!("ptx/nvcc_sm80_lineinfo.ptx"),
    include_str!("ptx/rustc_sm80.ptx"),
];

fn run(text: &str) {
    for entry in ptx::outline(text).functions.iter().filter(|f| f.is_entry) {
        let constant = |argument, offset, bytes| ptx::KnownBytes { argument, offset, bytes };
        let known = ptx::with_constants(text, entry.name, &[constant(0, 0, &[0xff; 8]), constant(2, 4, &[1; 4])]);
        assert!(known.len() <= 16 * text.len());
    }
    match ptx::parse(text) {
        Ok(module) => {
            let mut found = ptx::isa::check(&module);
            ptx::Diagnostic::attach_text(&mut found, text);
            assert!(found.len() <= ptx::MAX_DIAGNOSTICS);
        }
        Err(found) => {
            assert!(!found.is_empty() && found.len() <= ptx::MAX_DIAGNOSTICS);
            for diagnostic in found {
                assert!(diagnostic.to_string().len() < 2000);
            }
        }
    }
}

/// xorshift64*, so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end
    }
}

#[test]
fn truncated_anywhere() {
    let text = FIXTURES[0];
    for end in (0..text.len()).filter(|&end| text.is_char_boundary(end)) {
        run(&text[..end]);
    }
    // The others, which are longer, at every seventh byte.
    for text in &FIXTURES[1..] {
        for end in (0..text.len()).step_by(7) {
            run(&text[..end]);
        }
    }
}

#[test]
fn without_its_beginning() {
    for text in FIXTURES {
        let head = ".version 8.5\n.target sm_90\n";
        for start in (0..text.len()).step_by(13) {
            run(&format!("{head}{}", &text[start..]));
        }
    }
}

#[test]
fn mutated() {
    const BYTES: &[u8] = b"{}()[]<>;:,.|!@%_+-*/\"\\\n \t#0129afxUdbruE$?&^~=\x00\x7f";
    let mut random = Random(0x5EED);
    for round in 0..3000 {
        let text = FIXTURES[round % FIXTURES.len()];
        // A window keeps rounds short; the header keeps them past the first check.
        let start = random.next(text.len() / 2);
        let mut bytes = b".version 8.5\n.target sm_90\n".to_vec();
        bytes.extend(&text.as_bytes()[start..(start + 4000).min(text.len())]);
        for _ in 0..1 + random.next(12) {
            let at = 27 + random.next(bytes.len() - 27);
            match random.next(4) {
                0 => bytes[at] = BYTES[random.next(BYTES.len())],
                1 => bytes.insert(at, BYTES[random.next(BYTES.len())]),
                2 => {
                    bytes.remove(at);
                }
                _ => {
                    let from = 27 + random.next(bytes.len() - 27);
                    let piece = bytes[from..(from + random.next(60)).min(bytes.len())].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        run(&String::from_utf8_lossy(&bytes));
    }
}

/// Runs on a stack of the size that worker threads have.
fn quickly(name: &str, text: String) {
    let start = Instant::now();
    let length = text.len();
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(move || run(&text)).unwrap();
    assert!(thread.join().is_ok(), "{name} panicked");
    // A bound that only something worse than linear exceeds, however slow the machine.
    let limit = Duration::from_secs(5) + Duration::from_millis(length as u64 / 200);
    assert!(start.elapsed() < limit, "{name} took {:?}", start.elapsed());
}

#[test]
fn deep_huge_and_hostile_texts() {
    let head = ".version 8.5\n.target sm_90\n.address_size 64\n";
    let body =
        |b: &str| format!("{head}.entry k() {{ .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;\n{b}\nret; }}");
    let n = 100_000;
    quickly("blocks", body(&("{".repeat(n) + &"}".repeat(n))));
    quickly("open blocks", body(&"{".repeat(n)));
    quickly("closing braces", body(&"}".repeat(n)));
    quickly("parentheses", body(&format!("mov.u32 %r1, {}1{};", "(".repeat(n), ")".repeat(n))));
    quickly("signs", body(&format!("mov.u32 %r1, {}1;", "-".repeat(n))));
    quickly("negations", body(&format!("mov.u32 %r1, {}1;", "!".repeat(n))));
    quickly("ternaries", body(&format!("mov.u32 %r1, {}1;", "1?1:".repeat(n))));
    quickly("casts", body(&format!("mov.u32 %r1, {}1;", "(.s64)".repeat(n))));
    quickly("sums", body(&format!("mov.u32 %r1, {}1;", "1+".repeat(n))));
    quickly("vectors", body(&format!("mov.u32 {}", "{".repeat(n))));
    quickly("brackets", body(&format!("mov.u32 {}", "[".repeat(n))));
    quickly("long vector", body(&format!("mov.u32 {{{}%r1}}, 1;", "%r1,".repeat(n))));
    quickly("pairs", body(&format!("mov.u32 {}%p1, 1;", "%p1|".repeat(n))));
    quickly("modifiers", body(&format!("mov{} %r1, 1;", ".u32".repeat(n))));
    quickly("guards", body(&"@".repeat(n)));
    quickly("dimensions", format!("{head}.global .b32 a{} = {};", "[1]".repeat(n), "{".repeat(n)));
    quickly("initialiser", format!("{head}.global .b32 a[] = {{{}1}};", "1,".repeat(n)));
    quickly(
        "huge array",
        format!("{head}.global .b8 a[4000000000000000000] = {{1}}; .shared .b8 b[9000000000000000000];"),
    );
    quickly("sparse rows", format!("{head}.global .b32 a[1000000000][1000000000] = {{{{1}},{{2}}}};"));
    quickly("overflowing size", format!("{head}.global .b32 a[9223372036854775807][9223372036854775807];"));
    quickly(
        "overflowing params",
        format!("{head}.entry k({}.param .b8 z[4294967295]) {{}}", ".param .b8 y[4294967295],".repeat(9)),
    );
    quickly("ranges", body(&(0..n / 10).map(|i| format!(".reg .b32 %x{i}_<4000000000>;")).collect::<String>()));
    quickly("numbered names", body(&(0..n / 10).map(|i| format!(".reg .b32 %y{i};")).collect::<String>()));
    quickly("labels", body(&(0..n / 10).map(|i| format!("L{i}: bra L{};\n", i / 2)).collect::<String>()));
    quickly(
        "late labels",
        body(&format!("{}{}L:", "{".repeat(400), "bra L;\n".repeat(n / 10)).replace("L:", &("}".repeat(400) + "L:"))),
    );
    quickly("shadowing", body(&"{ .shared .b32 s; st.shared.b32 [s], %r1; }\n".repeat(n / 10)));
    quickly("one long line", body(&"mov.u32 %r1, %zz; ".repeat(n / 10)));
    quickly("one long bad line", body(&"mov.u32 %r1, ?; ".repeat(n / 10)));
    quickly("long name", body(&format!("mov.u32 %r1, {};", "x".repeat(n * 10))));
    quickly("long number", body(&format!("mov.u32 %r1, {};", "1".repeat(n * 10))));
    quickly("digits in a name", body(&format!("mov.u32 %r{}, 1;", "1".repeat(n * 10))));
    quickly("comment", format!("{head}/*{}", "*".repeat(n * 10)));
    quickly("string", format!("{head}.pragma \"{}", "a".repeat(n * 10)));
    quickly("dots", format!("{head}{}", ".".repeat(n)));
    quickly("semicolons", body(&";".repeat(n)));
    quickly("not PTX", "\u{7f}ELF\u{2}\u{1}".repeat(n));
    quickly("sections", format!("{head}{}", ".section .debug_str {{".repeat(n)));
    quickly(
        "aliases",
        format!("{head}.func f(){{ret;}} .func g(); .alias g, f; .alias f, g; .entry k(){{ call g; ret; }}"),
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in "\\PC{0,200}") {
        run(&text);
        run(&format!(".version 8.5\n.target sm_90\n{text}"));
        run(&format!(".version 8.5\n.target sm_90\n.entry k() {{\n{text}\n}}"));
    }

    #[test]
    fn any_tokens(words in proptest::collection::vec(prop::sample::select(WORDS), 0..60)) {
        run(&format!(".version 8.5\n.target sm_90\n{}", words.join(" ")));
        run(&format!(".version 8.5\n.target sm_90\n.entry k(.param .u64 p) {{ .reg .b32 %r<9>;\n{}\n}}", words.join(" ")));
    }

    /// An integer literal means the same in every base.
    #[test]
    fn integers(value: u64) {
        for text in [format!("{value}"), format!("{value:#x}"), format!("{value:#b}"), format!("0{value:o}"), format!("{value}U")] {
            let module = ptx::parse(&format!(".version 8.5\n.target sm_90\n.global .u64 a = {text};")).unwrap();
            prop_assert_eq!(&module.variables[0].init[..], &value.to_le_bytes()[..]);
        }
    }

    /// Floats keep their bits.
    #[test]
    fn floats(bits: u32, wide in any::<f64>().prop_filter("finite", |v| v.is_finite())) {
        let text = format!(".version 8.5\n.target sm_90\n.global .f32 a = 0f{bits:08X};\n.global .f64 b[2] = {{0d{:016x}, {wide:e}}};", wide.to_bits());
        let module = ptx::parse(&text).unwrap();
        prop_assert_eq!(&module.variables[0].init[..], &bits.to_le_bytes()[..]);
        prop_assert_eq!(&module.variables[1].init[..], &[wide.to_le_bytes(), wide.to_le_bytes()].concat()[..]);
    }
}

const WORDS: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    ":",
    "|",
    "!",
    "@",
    "+",
    "-",
    "<",
    ">",
    "=",
    "?",
    "_",
    "mov",
    "bra",
    "call",
    "brx",
    "ret",
    "%r1",
    "%r2",
    "%r<5>",
    "%tid",
    "%tid.x",
    "L",
    "L:",
    "p",
    "f",
    "5",
    "0x1f",
    "1.5",
    "0f3F800000",
    "0d",
    "\"s\"",
    "generic",
    "WARP_SZ",
    ".reg",
    ".b32",
    ".pred",
    ".v4",
    ".param",
    ".shared",
    ".global",
    ".local",
    ".const",
    ".align",
    ".entry",
    ".func",
    ".visible",
    ".extern",
    ".weak",
    ".alias",
    ".loc",
    ".file",
    ".section",
    ".pragma",
    ".branchtargets",
    ".callprototype",
    ".calltargets",
    ".noreturn",
    ".maxntid",
    ".ptr",
    ".u8",
    ".u64",
    ".f32",
    ".target",
    ".version",
    ".address_size",
    ".uni",
    ".attribute",
    "// c\n",
    "/* c */",
    "\n",
    "%",
    "0xFF(",
];
