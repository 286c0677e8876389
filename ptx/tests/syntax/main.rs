//! The PTX frontend on real texts and on every syntactic form.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use warpsmith_ptx::ast::*;
use warpsmith_ptx::{self as ptx, Diagnostic};

mod declarations;
mod errors;

const FORMS: &str = include_str!("../ptx/forms.ptx");
const TRITON: &str = include_str!("../ptx/triton_style.ptx");
const RUSTC: &str = include_str!("../ptx/rustc_sm80.ptx");
const RUSTC_LOC: &str = include_str!("../ptx/rustc_sm90_loc.ptx");
const NVCC: &str = include_str!("../ptx/nvcc_sm90.ptx");
const NVCC_LINES: &str = include_str!("../ptx/nvcc_sm80_lineinfo.ptx");
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
    for line in include_str!("../ptx/syntax.tsv").lines().filter(|l| !l.starts_with('#')) {
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
