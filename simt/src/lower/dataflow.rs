//! Where the registers of a function are written and read, and what follows from what.

use std::collections::{HashMap, HashSet};

use crate::ptx::ast::{Base, Body, Instruction, Operand, Reg};

pub(super) fn has(i: &Instruction, word: &str) -> bool {
    i.modifiers.iter().any(|m| m == word)
}

/// Where registers are written and read.
pub(super) struct DefUse<'a> {
    pub body: &'a Body,
    pub writes: HashMap<Reg, Vec<usize>>,
    pub reads: HashMap<Reg, Vec<usize>>,
}

/// Registers of an operand, those of addresses included.
pub(super) fn registers(operand: &Operand, f: &mut impl FnMut(Reg)) {
    match operand {
        Operand::Reg(r) | Operand::Not(r) | Operand::Address(Base::Reg(r), _) => f(*r),
        Operand::Vector(list) | Operand::List(list) => list.iter().for_each(|o| registers(o, f)),
        Operand::Pair(a, b) => {
            registers(a, f);
            registers(b, f);
        }
        _ => {}
    }
}

/// Instructions whose first operand is their destination and that do nothing else.
pub(super) fn computes(i: &Instruction) -> bool {
    let opcodes = [
        "mov", "add", "sub", "mul", "mad", "fma", "and", "or", "xor", "not", "neg", "abs", "min", "max", "shl", "shr",
        "shf", "lop3", "prmt", "bfe", "bfi", "cvt", "selp", "setp", "set", "slct", "div", "rem", "cnot", "copysign",
        "testp", "mul24", "mad24", "popc", "clz", "brev", "rcp", "sqrt", "sad", "addc", "subc", "madc",
    ];
    opcodes.contains(&i.opcode.as_str())
}

/// Whether the first operand is a destination.
fn has_destination(i: &Instruction) -> bool {
    computes(i) || ["ld", "ldu", "atom", "cvta", "shfl", "vote", "match", "activemask"].contains(&i.opcode.as_str())
}

impl<'a> DefUse<'a> {
    pub(super) fn new(body: &'a Body) -> DefUse<'a> {
        let mut flow = DefUse { body, writes: HashMap::new(), reads: HashMap::new() };
        for (at, i) in body.instructions.iter().enumerate() {
            let from = usize::from(has_destination(i));
            for operand in &i.operands[..from.min(i.operands.len())] {
                registers(operand, &mut |r| flow.writes.entry(r).or_default().push(at));
            }
            for operand in i.operands.get(from..).unwrap_or_default() {
                registers(operand, &mut |r| flow.reads.entry(r).or_default().push(at));
            }
            if let Some((guard, _)) = i.guard {
                flow.reads.entry(guard).or_default().push(at);
            }
        }
        flow
    }

    /// An address with copies and conversions of its register undone.
    pub(super) fn address(&self, operand: &Operand) -> Option<(Base, i64)> {
        let Operand::Address(base, offset) = operand else { return None };
        let mut base = base.clone();
        for _ in 0..8 {
            let Base::Reg(r) = &base else { break };
            let Some([at]) = self.writes.get(r).map(Vec::as_slice) else { break };
            let i = &self.body.instructions[*at];
            let copies = i.guard.is_none() && (i.opcode == "cvta" || i.opcode == "mov");
            match i.operands.get(1).filter(|_| copies) {
                Some(Operand::Reg(from)) => base = Base::Reg(*from),
                Some(Operand::Symbol(name, 0)) => base = Base::Symbol(name.clone()),
                _ => break,
            }
        }
        Some((base, *offset))
    }

    /// Registers that follow from those, through instructions of one kind alone, such as [`computes`].
    pub(super) fn closure(&self, start: Vec<Reg>, through: impl Fn(&Instruction) -> bool) -> HashSet<Reg> {
        let mut known: HashSet<Reg> = start.iter().copied().collect();
        let mut work = start;
        while let Some(r) = work.pop() {
            for &at in self.reads.get(&r).map_or(&[][..], Vec::as_slice) {
                let i = &self.body.instructions[at];
                let is_operand = i.operands.iter().skip(1).any(|o| mentions(o, r));
                if let Some(to) = i.operands.first().filter(|_| through(i) && is_operand) {
                    registers(to, &mut |r| {
                        if known.insert(r) {
                            work.push(r);
                        }
                    });
                }
            }
        }
        known
    }
}

pub(super) fn mentions(operand: &Operand, r: Reg) -> bool {
    let mut found = false;
    registers(operand, &mut |x| found |= x == r);
    found
}
