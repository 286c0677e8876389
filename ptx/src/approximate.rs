//! Approximations of numbers that a compiler knows.
//!
//! `rsqrt.approx` and its like are as exact as the processor's unit is. An assembler that knows the operand computes the result itself, and
//! exactly, which may be another number in its last bits: so a kernel with constants in it could give other results than the one without.
//! Here the operand of such an instruction gets a word that is zero, which the assembler does not know to be: a parameter, which it loads,
//! compared with the value that it has.

use std::collections::BTreeSet;

use super::ast::{Body, Instruction, Operand, Reg};
use super::constants::KnownBytes;
use super::lexer::{Kind, Lexer};
use super::parse;

/// The text of a module with constants in an entry, in which no approximation is of constants alone. `None` where that cannot be said: the
/// text is none, or a function that may be inlined has such an instruction.
pub fn kept(text: &str, entry: &str, constants: &[KnownBytes<'_>]) -> Option<String> {
    let module = parse(text).ok()?;
    let functions = || module.functions.iter().filter_map(|f| Some((f, f.body.as_ref()?)));
    // What is handed to a function, or comes back, may be known.
    let calls = functions().any(|(f, _)| !f.is_entry);
    let mut at: Vec<(usize, &Body, &Instruction)> = Vec::new();
    let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
    for (function, body) in functions() {
        let found = of_known(body, calls);
        if function.is_entry && function.name != entry || found.is_empty() {
            continue;
        }
        if !function.is_entry {
            return None;
        }
        for instruction in found {
            let line = starts.get((instruction.pos.line as usize).checked_sub(1)?)?;
            at.push((line + (instruction.pos.col as usize).checked_sub(1)?, body, instruction));
        }
    }
    let function = module.functions.iter().find(|f| f.is_entry && f.name == entry)?;
    let (mut kept, mut from) = (String::with_capacity(text.len()), 0);
    for (start, body, instruction) in at {
        let KnownBytes { argument, offset, bytes } = constants.iter().find(|c| !c.bytes.is_empty())?;
        let (name, value) = (&function.params.get(*argument)?.name, bytes.first()?);
        let zero = format!(
            "ld.param.u8 %warpsmith_known, [{name}+{offset}];\n\txor.b32 %warpsmith_known, %warpsmith_known, {value};\n\t"
        );
        let (end, rewritten) = with_zero(text, start, body, instruction)?;
        kept.push_str(text.get(from..start)?);
        kept.push_str(&format!("{{\n\t.reg .b32 %warpsmith_known;\n\t{zero}{rewritten}\n\t}}"));
        from = end;
    }
    kept.push_str(text.get(from..)?);
    Some(kept)
}

/// The instruction at `start` with an operand that is known no more, and where its text ends.
fn with_zero(text: &str, start: usize, body: &Body, instruction: &Instruction) -> Option<(usize, String)> {
    let known = sources(instruction).find_map(register)?;
    let (ty, name) = body.registers.get(known.0 as usize)?;
    let of = text.get(start..)?;
    let (mut lexer, mut place) = (Lexer::new(of), None);
    let end = loop {
        let token = lexer.next();
        match token.kind {
            Kind::Eof => return None,
            Kind::Punct(b';') => break token.end,
            // The last one is the source, also where it is the result's register.
            Kind::Ident if token.text == name => place = Some(token.start..token.end),
            _ => {}
        }
    };
    let place = place?;
    let bits = Some(ty.bits()).filter(|bits| [16, 32, 64].contains(bits))?;
    let widened = match bits {
        32 => format!("or.b32 %warpsmith_opaque, %warpsmith_known, {name};"),
        _ => format!(
            "cvt.u{bits}.u32 %warpsmith_opaque, %warpsmith_known;\n\tor.b{bits} %warpsmith_opaque, %warpsmith_opaque, {name};"
        ),
    };
    let (before, after) = (of.get(..place.start)?, of.get(place.end..end)?);
    Some((start + end, format!(".reg .b{bits} %warpsmith_opaque;\n\t{widened}\n\t{before}%warpsmith_opaque{after}")))
}

/// The approximations in a body whose operands a compiler may know, in their order; `parameters`: it may know those.
fn of_known(body: &Body, parameters: bool) -> Vec<&Instruction> {
    // A register is known if one of its values is: of a loop that is unrolled the first one.
    let mut known: BTreeSet<Reg> = BTreeSet::new();
    loop {
        let before = known.len();
        for instruction in &body.instructions {
            if is_known(instruction, &known, parameters) {
                known.extend(instruction.operands.first().into_iter().flat_map(results));
            }
        }
        if known.len() == before {
            break;
        }
    }
    let approximates = |i: &&Instruction| i.modifiers.iter().any(|m| m == "approx" || m == "full");
    let of = |i: &&Instruction| is_known(i, &known, parameters) && sources(i).any(|s| register(s).is_some());
    body.instructions.iter().filter(approximates).filter(of).collect()
}

/// Whether a compiler that knows these registers may know the result of an instruction.
fn is_known(instruction: &Instruction, known: &BTreeSet<Reg>, parameters: bool) -> bool {
    let loads = instruction.opcode == "ld" && instruction.modifiers.first().is_some_and(|m| m.starts_with("param"));
    // One that it knows may decide: a choice, or an integer that leaves nothing of the other.
    let decides = match instruction.opcode.as_str() {
        "selp" | "slct" => true,
        "and" | "or" | "mul" | "mul24" | "min" | "max" | "shl" | "shr" | "div" | "rem" => {
            instruction.modifiers.last().is_some_and(|ty| ty.starts_with(['b', 'u', 's']))
        }
        _ => false,
    };
    if decides && sources(instruction).filter_map(register).any(|r| known.contains(&r)) {
        return true;
    }
    let mut sources = sources(instruction).peekable();
    let of = |operand: &Operand| match operand {
        Operand::Int(_) | Operand::F32(_) | Operand::F64(_) | Operand::Sink => true,
        Operand::Address(..) => loads && parameters,
        operand => register(operand).is_some_and(|r| known.contains(&r)),
    };
    sources.peek().is_some() && sources.all(of)
}

/// Operands that are read, those of vectors one by one.
fn sources(instruction: &Instruction) -> impl Iterator<Item = &Operand> {
    instruction.operands.iter().skip(1).flat_map(|operand| match operand {
        Operand::Vector(all) => all.iter(),
        one => std::slice::from_ref(one).iter(),
    })
}

fn register(operand: &Operand) -> Option<Reg> {
    match operand {
        Operand::Reg(r) | Operand::Not(r) | Operand::Selected(r, _) => Some(*r),
        Operand::Minus(of) => register(of),
        _ => None,
    }
}

/// The registers that an instruction writes, of its first operand.
fn results(operand: &Operand) -> Vec<Reg> {
    match operand {
        Operand::Reg(r) | Operand::Selected(r, _) => vec![*r],
        Operand::Vector(all) => all.iter().flat_map(results).collect(),
        Operand::Pair(a, b) => results(a).into_iter().chain(results(b)).collect(),
        _ => Vec::new(),
    }
}
