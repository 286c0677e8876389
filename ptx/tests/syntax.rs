//! The PTX frontend on real texts and on every syntactic form.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use warpsmith_ptx::ast::*;
use warpsmith_ptx::{self as ptx, Diagnostic};

const FORMS: &str = include_str!("ptx/forms.ptx");
const TRITON: &str = include_str!("ptx/triton_style.ptx");
const RUSTC: &str = include_str!("ptx/rustc_sm80.ptx");
const RUSTC_LOC: &str = include_str!("ptx/rustc_sm90_loc.ptx");
const NVCC: &str = include_str!("ptx/nvcc_sm90.ptx");
const NVCC_LINES: &str = include_str!("ptx/nvcc_sm80_lineinfo.ptx");
const HEAD: &str = ".version 8.5\n.target sm_90\n.address_size 64\n";
const REGS: &str = "\n.visible .entry k(.param .u64 p0)\n{\n.reg .b32 %r<20>;\n.reg .b64 %rd<20>;\n.reg .pred %p<5>;\n\
                    .reg .b16 %h<9>;\n.reg .f32 %f<9>;\n.reg .f64 %d<9>;\n";

fn parse(text: &str) -> Module {
    ptx::parse(text).unwrap_or_else(|e| panic!("{}", report(&e)))
}

fn report(errors: &[Diagnostic]) -> String {
    errors.iter().map(|d| format!("{d}\n")).collect()
}

fn module(declarations: &str) -> String {
    format!("{HEAD}{declarations}\n.visible .entry k(){{ret;}}\n")
}

fn in_body(statements: &str) -> String {
    format!("{HEAD}{REGS}{statements}\nret;\n}}\n")
}

/// The body of a kernel with these statements, its closing `ret` included.
fn body(statements: &str) -> Body {
    parse(&in_body(statements)).functions.remove(0).body.unwrap()
}

/// The operands of the only instruction.
fn operands(instruction: &str) -> (Body, Vec<Operand>) {
    let body = body(instruction);
    assert_eq!(body.instructions.len(), 2, "{instruction}");
    let operands = body.instructions[0].operands.clone();
    (body, operands)
}

fn name_of(body: &Body, operand: &Operand) -> String {
    match operand {
        Operand::Reg(reg) | Operand::Not(reg) => body.registers[reg.0 as usize].1.clone(),
        other => panic!("{other:?} is no register"),
    }
}

fn immediate(text: &str) -> Operand {
    operands(&format!("mov.b64 %rd1, {text};")).1.remove(1)
}

fn variable<'m>(module: &'m Module, name: &str) -> &'m Variable {
    module.variables.iter().find(|v| v.name == name).unwrap_or_else(|| panic!("no variable {name}"))
}

fn function<'m>(module: &'m Module, name: &str) -> &'m Function {
    module.functions.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no function {name}"))
}

fn errors(text: &str) -> Vec<Diagnostic> {
    ptx::parse(text).expect_err(text)
}

#[test]
fn agrees_with_ptxas_on_syntax() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("ptx/syntax.tsv").lines().filter(|l| !l.starts_with('#')) {
        let [verdict, relation, place, text] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let text = text.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\");
        let text = match place {
            "body" => in_body(&text),
            "module" => module(&text),
            _ => text,
        };
        let expected = (verdict == "+") == (relation == "=");
        let found = ptx::parse(&text).map(|m| ptx::isa::check(&m));
        let accepted = found.as_ref().is_ok_and(Vec::is_empty);
        if accepted != expected {
            wrong.push(format!("{line}: {found:?}"));
        }
        count += 1;
    }
    assert!(count > 250);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn real_texts_parse_and_pass_the_gate() {
    for text in [FORMS, TRITON, RUSTC, RUSTC_LOC, NVCC, NVCC_LINES] {
        let module = parse(text);
        assert_eq!(ptx::isa::check(&module), [], "{}", module.target.sm);
        for function in &module.functions {
            let Some(body) = &function.body else { continue };
            for instruction in &body.instructions {
                check_indices(body, &instruction.operands);
                assert!(instruction.guard.is_none_or(|(reg, _)| body.registers[reg.0 as usize].0 == Type::Pred));
                assert!(instruction.loc.is_none_or(|at| (at as usize) < body.locations.len()));
                let line = text.lines().nth(instruction.pos.line as usize - 1).unwrap();
                assert!(line[instruction.pos.col as usize - 1..].trim_start_matches('@').len() > 1);
                assert!(line.contains(&instruction.opcode), "{line} {}", instruction.opcode);
            }
            assert!(body.labels.iter().all(|(_, at)| *at <= body.instructions.len()));
            let mut names: Vec<_> = body.variables.iter().map(|v| &v.name).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), body.variables.len(), "variables of a body have unique names");
        }
    }
}

fn check_indices(body: &Body, operands: &[Operand]) {
    for operand in operands {
        match operand {
            Operand::Reg(reg) | Operand::Not(reg) | Operand::Address(Base::Reg(reg), _) => {
                assert!((reg.0 as usize) < body.registers.len());
            }
            Operand::Label(label) => assert!((label.0 as usize) < body.labels.len()),
            Operand::Vector(items) | Operand::List(items) => check_indices(body, items),
            Operand::Pair(a, b) => check_indices(body, &[(**a).clone(), (**b).clone()]),
            _ => {}
        }
    }
}

#[test]
fn header_of_a_module() {
    let module = parse(FORMS);
    assert_eq!(module.version, (8, 5));
    assert_eq!(module.target, Target { sm: 90, suffix: None, debug: false });
    assert_eq!(module.files[&1], "forms.cu");
    let debug = parse(".version 8.8\n.target sm_100f, debug\n");
    assert_eq!(debug.target, Target { sm: 100, suffix: Some('f'), debug: true });
}

#[test]
fn module_variables() {
    let m = parse(FORMS);
    let dynamic = variable(&m, "dynamic");
    assert_eq!((dynamic.space, dynamic.linkage, dynamic.align), (Space::Shared, Linkage::Extern, 16));
    assert_eq!((&dynamic.dims[..], dynamic.size), (&[0][..], 0));

    let floats: Vec<f32> =
        variable(&m, "coefficients").init.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(floats, [1.5, 1.0, -2.0, 1000.0]);
    assert_eq!(variable(&m, "tentative").linkage, Linkage::Common);
    assert_eq!(variable(&m, "overridable").linkage, Linkage::Weak);
    assert_eq!(variable(&m, "ordered").align, 8);
    let ints = |name: &str| -> Vec<i32> {
        variable(&m, name).init.chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    assert_eq!(ints("second"), [15]);
    assert_eq!(ints("third"), [5, 31]);
    assert_eq!(ints("rows"), [1, 2, 3, 4, 5]);
    assert_eq!((variable(&m, "rows").dims.as_slice(), variable(&m, "rows").size), (&[3, 2][..], 24));
    // As ptxas folds them.
    assert_eq!(ints("folded"), [9, 8, -1, 2, 0, 5]);
    assert_eq!(ints("casts"), [1, 0]);
    let pairs = variable(&m, "pairs");
    assert_eq!((pairs.vector, pairs.align, pairs.size, pairs.init.len()), (2, 8, 16, 16));
    assert_eq!(variable(&m, "text").init, [104, 105, 0]);
    assert_eq!(variable(&m, "text").size, 16);
    let doubles: Vec<f64> =
        variable(&m, "doubles").init.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(doubles, [1.5, 0.5]);
}

#[test]
fn addresses_in_initialisers() {
    let m = parse(FORMS);
    let of = |name: &str| -> Vec<(u64, String, i64, bool)> {
        variable(&m, name).relocations.iter().map(|r| (r.at, r.symbol.clone(), r.addend, r.generic)).collect()
    };
    let text = || "text".to_string();
    assert_eq!(of("addresses"), [(0, text(), 0, false), (8, text(), 4, false), (16, "rows".to_string(), 8, true)]);
    assert_eq!(of("packed"), [(1, text(), 0, false)]);
    assert_eq!(variable(&m, "packed").init, [1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(of("table"), [(0, "actual".to_string(), 0, false), (8, "in_registers".to_string(), 0, false)]);
}

#[test]
fn a_definition_replaces_its_declaration() {
    let m = parse(FORMS);
    assert_eq!(m.functions.iter().filter(|f| f.name == "helper").count(), 1);
    let helper = function(&m, "helper");
    assert!(helper.noreturn && helper.body.is_some());
    assert!(function(&m, "vprintf").body.is_none());
    let m = parse(&module(".extern .global .b32 a; .visible .global .b32 a = 3;"));
    assert_eq!((m.variables.len(), m.variables[0].linkage), (1, Linkage::Visible));
}

#[test]
fn aliases_are_resolved() {
    let text = module(".visible .func f(){ret;} .visible .func g(); .alias g, f; .func h(){ call g; ret; }");
    let m = parse(&text);
    assert_eq!(m.aliases, [("g".to_string(), "f".to_string())]);
    let call = &function(&m, "h").body.as_ref().unwrap().instructions[0];
    assert_eq!(call.operands, [Operand::Symbol("f".to_string(), 0)]);
}

#[test]
fn parameters_of_an_entry() {
    let m = parse(FORMS);
    let entry = function(&m, "forms");
    assert!(entry.is_entry);
    let params: Vec<_> = entry.params.iter().map(|p| (p.offset, p.size, p.align, p.ptr)).collect();
    assert_eq!(
        params,
        [
            (0, 8, 8, Some((Space::Global, 16))),
            (8, 8, 8, Some((Space::Generic, 1))),
            (16, 8, 8, Some((Space::Const, 4))),
            (24, 28, 8, None),
            (52, 4, 4, None),
        ]
    );
    let d = &entry.directives;
    assert_eq!((d.reqntid, d.maxntid), (Some([32, 2, 1]), None));
    assert_eq!((d.minnctapersm, d.maxnreg), (Some(2), Some(64)));
    assert_eq!((d.reqnctapercluster, d.explicitcluster), (Some([2, 1, 1]), true));
}

#[test]
fn parameters_in_registers() {
    let m = parse(FORMS);
    let f = function(&m, "in_registers");
    assert!(f.params.iter().chain(&f.returns).all(|p| p.in_register));
    let names: Vec<_> = f.body.as_ref().unwrap().registers.iter().map(|(_, n)| n.as_str()).collect();
    assert_eq!(names, ["result", "a", "b"]);
}

#[test]
fn registers_exist_on_first_use() {
    let b = body(".reg .b32 %big<4000000000>; mov.u32 %big3999999999, %r7;");
    let names: Vec<_> = b.registers.iter().map(|(ty, n)| (*ty, n.as_str())).collect();
    assert_eq!(names, [(Type::B32, "%big3999999999"), (Type::B32, "%r7")]);
}

#[test]
fn overlapping_ranges_and_long_numbers() {
    let b = body(".reg .b64 %r1<5>; mov.u32 %r19, 1; mov.u64 %rd10, 2;");
    assert_eq!(b.registers, [(Type::B32, "%r19".to_string()), (Type::B64, "%rd10".to_string())]);
    for bad in ["%r20", "%r007", "%r", "%r18446744073709551617", "%r4294967297"] {
        assert_eq!(errors(&in_body(&format!("mov.u32 {bad}, 1;")))[0].message, format!("Unknown symbol '{bad}'"));
    }
}

#[test]
fn immediates() {
    for (text, value) in [
        ("5", 5),
        ("-8", -8),
        ("-1431655765", -1_431_655_765),
        ("0xFFFFFFFFU", 0xFFFF_FFFF),
        ("0xffffffffffffffff", -1),
        ("18446744073709551615", -1),
        ("017", 15),
        ("0b101", 5),
        ("WARP_SZ", 32),
        ("WARP_SZ*2", 64),
        ("(1+2)*3<<1|4", 22),
        ("1?2:3", 2),
        ("~0", -1),
        ("+5", 5),
        ("!0", 1),
        ("!7", 0),
        ("1 && 0", 0),
        ("1 || 0", 1),
        ("-1 < 1U", 0),
        ("-7 / 2", -3),
        ("7 % 4", 3),
        ("0xffffffffffffffff >> 60", 15),
        ("-1 >> 60", -1),
        ("5 ^ 1", 4),
        ("3 >= 3", 1),
        ("3 != 3", 0),
        ("2 == 2 ? 10 : 0 ? 20 : 30", 10),
        ("(.s64)(1.5 + 2.0)", 3),
        ("-9223372036854775808", i64::MIN),
    ] {
        assert_eq!(immediate(text), Operand::Int(value), "{text}");
    }
    assert_eq!(immediate("0f3F800000"), Operand::F32(0x3f80_0000));
    assert_eq!(immediate("0d3FF0000000000000"), Operand::F64(1.0f64.to_bits()));
    assert_eq!(immediate("0dBFF8000000000000"), Operand::F64((-1.5f64).to_bits()));
    for (text, value) in
        [("1.5", 1.5), ("-1.5", -1.5), (".5", 0.5), ("1.", 1.0), ("1e5", 1e5), ("1.5E-3", 1.5e-3), ("1.5*2.0", 3.0)]
    {
        assert_eq!(immediate(text), Operand::F64(f64::to_bits(value)), "{text}");
    }
}

#[test]
fn operand_forms() {
    let (b, o) = operands("ld.global.v4.b32 {%r4, %r5, _, %r6}, [%rd3+16];");
    let Operand::Vector(items) = &o[0] else { panic!("{o:?}") };
    assert_eq!(items.len(), 4);
    assert_eq!((name_of(&b, &items[1]), &items[2]), ("%r5".to_string(), &Operand::Sink));
    assert!(matches!(o[1], Operand::Address(Base::Reg(_), 16)));

    for (text, offset) in
        [("[%rd3+-8]", -8), ("[ %rd3 + 0 ]", 0), ("[%rd3]", 0), ("[%rd3+4*2]", 8), ("[%rd3+0x10]", 16)]
    {
        let (_, o) = operands(&format!("ld.global.b32 %r1, {text};"));
        assert!(matches!(o[1], Operand::Address(Base::Reg(_), at) if at == offset), "{text}");
    }
    let (_, o) = operands("ld.param.u64 %rd1, [p0+4];");
    assert_eq!(o[1], Operand::Address(Base::Symbol("p0".to_string()), 4));
    let (_, o) = operands("ld.local.u32 %r1, [16];");
    assert_eq!(o[1], Operand::Address(Base::Absolute, 16));
    let (_, o) = operands("mov.b64 %rd1, p0;");
    assert_eq!(o[1], Operand::Symbol("p0".to_string(), 0));
    let (_, o) = operands("mov.u32 %r1, %tid.x;");
    assert_eq!(o[1], Operand::Special("tid.x".to_string()));
    for special in ["laneid", "lanemask_lt", "clock64", "pm3_64", "envreg31", "cluster_ctarank"] {
        let (_, o) = operands(&format!("mov.u32 %r1, %{special};"));
        assert_eq!(o[1], Operand::Special(special.to_string()));
    }

    let (b, o) = operands("setp.lt.and.s32 %p1|%p2, %r4, 7, !%p3;");
    let Operand::Pair(first, second) = &o[0] else { panic!("{o:?}") };
    assert_eq!((name_of(&b, first), name_of(&b, second)), ("%p1".to_string(), "%p2".to_string()));
    assert!(matches!(o[3], Operand::Not(_)));
    let (_, o) = operands("elect.sync _|%p1, -1;");
    assert!(matches!(&o[0], Operand::Pair(first, _) if **first == Operand::Sink));

    let (_, o) = operands("prefetch.tensor [%rd2, {%r1, %r2}];");
    let Operand::List(items) = &o[0] else { panic!("{o:?}") };
    assert!(matches!(items[..], [Operand::Address(..), Operand::Vector(_)]));
}

#[test]
fn opcodes_modifiers_and_guards() {
    let b = body("@!%p1 ld .global.L1::no_allocate.v2 .b32 {%r1,%r2}, [%rd1]; @%p2 exit; bar.sync 0;");
    let words = |i: usize| (b.instructions[i].opcode.as_str(), b.instructions[i].modifiers.join(" "));
    assert_eq!(words(0), ("ld", "global L1::no_allocate v2 b32".to_string()));
    assert_eq!(words(1), ("exit", String::new()));
    assert!(b.instructions[0].guard.unwrap().1);
    assert!(!b.instructions[1].guard.unwrap().1);
    assert_eq!(b.instructions[2].guard, None);
}

#[test]
fn vector_registers_become_scalars() {
    let (b, o) = operands(".reg .v4 .f32 v; st.global.v4.f32 [%rd1], v;");
    let Operand::Vector(items) = &o[1] else { panic!("{o:?}") };
    let names: Vec<_> = items.iter().map(|i| name_of(&b, i)).collect();
    assert_eq!(names, ["v.x", "v.y", "v.z", "v.w"]);
    let (b, o) = operands(".reg .v2 .f32 v; mov.f32 v.g, v.x;");
    assert_eq!((name_of(&b, &o[0]), name_of(&b, &o[1])), ("v.y".to_string(), "v.x".to_string()));
}

#[test]
fn inner_blocks_hide_outer_names() {
    let b = body(
        ".shared .b32 s; mov.u32 %r1, s;\n{ .reg .f32 %r1; .shared .b32 s; mov.f32 %r1, 0f00000000; mov.u32 %r2, s; }\nmov.u32 %r1, s;",
    );
    let reg = |i: usize| match &b.instructions[i].operands[0] {
        Operand::Reg(reg) => *reg,
        other => panic!("{other:?}"),
    };
    assert_ne!(reg(0), reg(1));
    assert_eq!(reg(0), reg(3));
    assert_eq!(b.registers[reg(1).0 as usize].0, Type::F32);
    let symbol = |i: usize| b.instructions[i].operands[1].clone();
    assert_eq!(symbol(0), symbol(3));
    let Operand::Symbol(inner, 0) = symbol(2) else { panic!() };
    assert_eq!((b.variables[0].name.as_str(), b.variables[1].name == inner), ("s", true));
    assert_ne!(inner, "s");
}

#[test]
fn sibling_blocks_have_variables_of_their_own() {
    let b = body("{ .param .b32 q; st.param.b32 [q], 1; }\n{ .param .b64 q; st.param.b64 [q], 1; }");
    let names: Vec<_> = b.variables.iter().map(|v| (v.name.as_str(), v.size)).collect();
    assert_eq!(names[0], ("q", 4));
    assert_eq!(names[1].1, 8);
    for (index, (name, _)) in names.iter().enumerate() {
        assert_eq!(b.instructions[index].operands[0], Operand::Address(Base::Symbol((*name).to_string()), 0));
    }
    // A name of module scope is in use too.
    let m = parse(&module(".global .b32 g; .entry z() { .shared .b32 g; ret; }"));
    assert_ne!(function(&m, "z").body.as_ref().unwrap().variables[0].name, "g");
}

#[test]
fn labels_belong_to_their_block() {
    let b = body("bra L;\n{ bra L; L: mov.u32 %r1, 1; bra L; { bra L; } }\nmov.u32 %r2, 2; L:");
    let target = |i: usize| match b.instructions[i].operands[0] {
        Operand::Label(label) => b.labels[label.0 as usize].1,
        _ => panic!(),
    };
    // outer bra, inner bra, mov, inner bra, innermost bra, mov, ret
    assert_eq!([target(0), target(1), target(3), target(4)], [6, 2, 2, 2]);
}

#[test]
fn tables_of_targets_and_prototypes() {
    let b = body("T: .branchtargets A, B; brx.idx %r1, T; A: mov.u32 %r1, 1; B: mov.u32 %r1, 2;");
    let Operand::Label(table) = b.instructions[0].operands[1] else { panic!() };
    let name = &b.labels[table.0 as usize].0;
    let targets: Vec<_> = b.branch_targets[name].iter().map(|l| b.labels[l.0 as usize].1).collect();
    assert_eq!((name.as_str(), targets), ("T", vec![1, 2]));

    let b = body(
        "{ P: .callprototype (.param .b32 _) _ (.param .align 8 .b8 _[28], .param .b64 _) .noreturn; call (%r1), %rd1, (%rd2, 5), P; }\n\
         { P: .callprototype _ (); call %rd1, (), P; }",
    );
    let prototype = |i: usize| match b.instructions[i].operands.last() {
        Some(Operand::Label(label)) => &b.prototypes[&b.labels[label.0 as usize].0],
        other => panic!("{other:?}"),
    };
    let (returns, params) = prototype(0);
    assert_eq!((returns.len(), params[0].size, params[0].align, params[1].offset), (1, 28, 8, 32));
    assert!(prototype(1).0.is_empty() && prototype(1).1.is_empty());
}

#[test]
fn calls() {
    let m = parse(FORMS);
    let b = function(&m, "forms").body.as_ref().unwrap();
    let calls: Vec<_> = b.instructions.iter().filter(|i| i.opcode == "call").collect();
    assert_eq!(calls.len(), 4);
    let [Operand::List(results), Operand::Symbol(callee, 0), Operand::List(arguments)] = &calls[0].operands[..] else {
        panic!("{:?}", calls[0].operands);
    };
    assert_eq!((results.len(), callee.as_str(), arguments.len()), (1, "actual", 1));
    assert_eq!(calls[0].modifiers, ["uni"]);
    assert!(matches!(calls[1].operands[1], Operand::Reg(_)));
    assert_eq!(b.call_targets.values().next().unwrap()[..], ["actual"]);
    assert!(
        matches!(&calls[3].operands[2], Operand::List(items) if matches!(items[..], [Operand::Reg(_), Operand::Int(5)]))
    );
}

#[test]
fn locations_keep_the_inline_chain() {
    let m = parse(TRITON);
    let b = m.functions[0].body.as_ref().unwrap();
    let at = |opcode: &str| {
        let instruction = b.instructions.iter().find(|i| i.opcode == opcode).unwrap();
        &b.locations[instruction.loc.unwrap() as usize]
    };
    let mul = at("mul");
    assert_eq!((mul.file, mul.line, mul.col), (1, 20, 16));
    assert_eq!(mul.comment, "matmul.py:20:16 @[ matmul.py:31:9 @[ run.py:8:1 ] ]");
    assert_eq!(at("ret").comment, "matmul.py:40:4");
    assert_eq!(m.files[&1], "/src/matmul.py");

    let m = parse(NVCC_LINES);
    assert!(m.files.len() > 1);
    assert!(m.functions.iter().filter_map(|f| f.body.as_ref()).any(|b| b.locations.iter().any(|l| l.file > 1)));
    assert!(parse(RUSTC).functions.iter().filter_map(|f| f.body.as_ref()).all(|b| b.locations.is_empty()));
    assert!(parse(RUSTC_LOC).functions.iter().any(|f| f.body.as_ref().is_some_and(|b| b.locations.len() > 3)));
}

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
