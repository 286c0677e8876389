//! Moves between registers of two types, which libNVVM's text has and LLVM's has not.
//!
//! To libNVVM a register is `.b32` or `.f32`, and bits that change their type go through a `mov.b32`; rustc's own generator
//! declares all of them `.b32`. ptxas makes nothing of such a move, but counters and projections, which read PTX, would count it.
//! Instructions of type `.b32` take registers of either type (PTX ISA, "Operand size exceeding instruction-type size" and the
//! table of operand types), so the value is written where it is read:
//!
//! ```text
//! prmt.b32 %r66, %r50, %r292, 30288;      prmt.b32 %f70, %r50, %r292, 30288;
//! mov.b32  %f70, %r66;
//! ```
//!
//! Only registers that are written once in a function are touched: each use of such a register sees that one value, whatever
//! the control flow.

use std::collections::{BTreeMap, BTreeSet};

/// Instructions of type `.b32` that look at no bit's meaning.
const UNTYPED: [&str; 11] = ["prmt", "ld", "st", "mov", "shfl", "and", "or", "xor", "not", "lop3", "selp"];
/// Instructions without a result.
const NO_RESULT: [&str; 14] = [
    "st",
    "bar",
    "barrier",
    "bra",
    "brx",
    "ret",
    "exit",
    "trap",
    "red",
    "prefetch",
    "membar",
    "fence",
    "nanosleep",
    "discard",
];

/// An instruction on a line of its own, as far as its registers matter.
struct Instruction<'a> {
    opcode: &'a str,
    guarded: bool,
    written: Vec<&'a str>,
    read: Vec<&'a str>,
}

impl<'a> Instruction<'a> {
    fn is_untyped(&self) -> bool {
        let root = self.opcode.split('.').next().unwrap_or_default();
        self.opcode.ends_with(".b32") && UNTYPED.contains(&root)
    }

    /// A plain move of 32 bits from one register to another of other type: where to, where from.
    fn changes_type(&self) -> Option<(&'a str, &'a str)> {
        let ([to], [from]) = (self.written.as_slice(), self.read.as_slice()) else { return None };
        let differ = class(to).is_some() && class(from).is_some() && class(to) != class(from);
        (self.opcode == "mov.b32" && !self.guarded && differ).then_some((*to, *from))
    }
}

/// The registers that this pass knows: `r` or `f`, both of 32 bits.
fn class(register: &str) -> Option<char> {
    let (class, number) = (register.strip_prefix('%')?.chars().next()?, register.get(2..)?);
    (matches!(class, 'r' | 'f') && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(class)
}

fn registers(text: &str) -> impl Iterator<Item = &str> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '%' | '_' | '$' | '.'));
    text.split(word).filter(|w| w.starts_with('%'))
}

/// What a line does; an error for one that is not a single instruction, with the registers in it.
fn instruction(line: &str) -> Result<Option<Instruction<'_>>, Vec<&str>> {
    let code = line.split("//").next().unwrap_or_default().trim();
    if code.is_empty() || code.starts_with('.') || code.ends_with(':') || !code.contains('%') {
        return Ok(None);
    }
    let odd = || Err(registers(code).collect());
    let Some(body) = code.strip_suffix(';') else { return odd() };
    if body.contains(';') || body.starts_with(['{', '}']) || body.starts_with("call") {
        return odd();
    }
    let (guarded, body) = match body.strip_prefix('@').and_then(|b| b.split_once(char::is_whitespace)) {
        Some((_, rest)) => (true, rest.trim_start()),
        None => (false, body),
    };
    let (opcode, operands) = body.split_once(char::is_whitespace).unwrap_or((body, ""));
    let operands = operands.trim_start();
    let root = opcode.split('.').next().unwrap_or_default();
    // The result is the first operand, or the first group in braces.
    let end = match operands.starts_with('{') {
        true => operands.find('}'),
        false => operands.find(','),
    };
    let (result, rest) = match end {
        Some(end) if !NO_RESULT.contains(&root) && !operands.starts_with('[') => operands.split_at(end),
        _ => ("", operands),
    };
    let guard = code.split(char::is_whitespace).next().filter(|_| guarded).into_iter().flat_map(registers);
    Ok(Some(Instruction {
        opcode,
        guarded,
        written: registers(result).collect(),
        read: registers(rest).chain(guard).collect(),
    }))
}

/// How often a register is written and read in a function.
#[derive(Default)]
struct Uses {
    writes: Vec<usize>,
    reads: Vec<usize>,
    odd: bool,
}

/// Takes out the moves of every function.
pub(crate) fn without_moves(text: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    // libNVVM closes a function, and nothing else, by a brace at the beginning of a line.
    for (i, line) in lines.iter().enumerate() {
        if line.trim_end() == "}" {
            function(&lines[from..=i], &mut out);
            from = i + 1;
        }
    }
    out.extend(lines[from..].iter().copied());
    out
}

fn function(lines: &[&str], out: &mut String) {
    let mut uses: BTreeMap<&str, Uses> = BTreeMap::new();
    let mut instructions: BTreeMap<usize, Instruction<'_>> = BTreeMap::new();
    for (i, line) in lines.iter().enumerate() {
        match instruction(line) {
            Ok(Some(found)) => {
                found.written.iter().for_each(|r| uses.entry(r).or_default().writes.push(i));
                found.read.iter().for_each(|r| uses.entry(r).or_default().reads.push(i));
                instructions.insert(i, found);
            }
            Ok(None) => {}
            Err(registers) => registers.into_iter().for_each(|r| uses.entry(r).or_default().odd = true),
        }
    }
    let once = |register: &str| uses.get(register).filter(|u| u.writes.len() == 1 && !u.odd);
    // Line, and what of it is called what.
    let mut renamed: BTreeMap<usize, Vec<(&str, &str)>> = BTreeMap::new();
    let mut dropped: BTreeSet<usize> = BTreeSet::new();
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    for (i, found) in &instructions {
        let Some((to, from)) = found.changes_type() else { continue };
        let (Some(new), Some(old)) = (once(to), once(from)) else { continue };
        if taken.contains(to) || taken.contains(from) {
            continue;
        }
        let untyped = |at: &usize| instructions.get(at).is_some_and(|other| other.is_untyped() && !other.guarded);
        if old.reads == [*i] && old.writes.iter().all(untyped) {
            // Nothing else reads it: written under its new name.
            renamed.entry(old.writes[0]).or_default().push((from, to));
        } else if new.reads.iter().all(untyped) {
            // Who reads it reads the old one.
            new.reads.iter().for_each(|at| renamed.entry(*at).or_default().push((to, from)));
        } else {
            continue;
        }
        dropped.insert(*i);
        taken.extend([to, from]);
    }
    for (i, line) in lines.iter().enumerate().filter(|(i, _)| !dropped.contains(i)) {
        match renamed.get(&i) {
            Some(names) => out.push_str(&rename(line, names)),
            None => out.push_str(line),
        }
    }
}

/// Replaces whole names.
fn rename(line: &str, names: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('%') {
        let (before, name) = rest.split_at(at);
        let end = name[1..]
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '.')))
            .map_or(name.len(), |e| e + 1);
        let (name, after) = name.split_at(end);
        out.push_str(before);
        out.push_str(names.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new));
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(lines: &str) -> String {
        format!(".visible .entry k()\n{{\n{lines}}}\n")
    }

    #[track_caller]
    fn becomes(from: &str, to: &str) {
        assert_eq!(without_moves(&body(from)), body(to));
    }

    #[test]
    fn a_result_is_written_where_it_is_read() {
        becomes(
            "\t// begin inline asm\n\tprmt.b32 %r66, %r50, %r292, 30288;\n\t// end inline asm\n\tmov.b32 \t%f70, %r66;\n\tadd.rn.f32 \t%f71, %f70, 0fCB000080;\n",
            "\t// begin inline asm\n\tprmt.b32 %f70, %r50, %r292, 30288;\n\t// end inline asm\n\tadd.rn.f32 \t%f71, %f70, 0fCB000080;\n",
        );
        becomes(
            "ld.shared.v4.b32 {%r1,%r2,%r11,%r12}, [%r94];\nmov.b32 %f1, %r1;\nmov.b32 %f2, %r12;\n",
            "ld.shared.v4.b32 {%f1,%r2,%r11,%f2}, [%r94];\n",
        );
    }

    #[test]
    fn a_source_is_read_where_it_is() {
        becomes(
            "add.f32 %f1, %f0, %f0;\nmov.b32 %r1, %f1;\nshfl.sync.bfly.b32 %r2, %r1, %r9, 31, -1;\nmov.b32 %f2, %r2;\nadd.f32 %f3, %f2, %f1;\n",
            "add.f32 %f1, %f0, %f0;\nshfl.sync.bfly.b32 %f2, %f1, %r9, 31, -1;\nadd.f32 %f3, %f2, %f1;\n",
        );
    }

    #[test]
    fn what_is_not_plain_stays() {
        for kept in [
            // Written twice: which one is read depends on the way.
            "prmt.b32 %r1, %r2, %r3, 1;\nmov.b32 %f1, %r1;\nadd.f32 %f1, %f1, %f1;\n",
            "prmt.b32 %r1, %r2, %r3, 1;\n@%p1 prmt.b32 %r1, %r3, %r2, 1;\nmov.b32 %f1, %r1;\n",
            // Under a condition.
            "prmt.b32 %r1, %r2, %r3, 1;\n@%p1 mov.b32 %f1, %r1;\n",
            // Read as a number.
            "add.s32 %r1, %r2, %r3;\nmov.b32 %f1, %r1;\nadd.f32 %f2, %f1, %f1;\n",
            "add.f32 %f1, %f2, %f2;\nmov.b32 %r1, %f1;\nadd.s32 %r2, %r1, %r1;\n",
            "cvt.rn.f16.f32 %rs1, %f3;\nmov.b32 %f1, {%rs1, %rs1};\n",
            // In a text that is not understood.
            "{ .reg .b32 x; mov.b32 x, %r1; }\nprmt.b32 %r1, %r2, %r3, 1;\nmov.b32 %f1, %r1;\n",
            "ld.shared.b64 %rd1, [%r94];\nmov.b64 %fd1, %rd1;\n",
        ] {
            becomes(kept, kept);
        }
        // Registers of another function are others.
        let two = body("prmt.b32 %r1, %r2, %r3, 1;\nmov.b32 %f1, %r1;\n").repeat(2);
        assert_eq!(without_moves(&two), body("prmt.b32 %f1, %r2, %r3, 1;\n").repeat(2));
        assert_eq!(without_moves("no function"), "no function");
    }

    #[test]
    fn a_longer_name_is_another() {
        assert_eq!(
            rename("\tst.shared.b32 [%r1], %r11; // %r1", &[("%r1", "%f5")]),
            "\tst.shared.b32 [%f5], %r11; // %f5"
        );
    }
}
