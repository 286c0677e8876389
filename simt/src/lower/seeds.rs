//! Weak loads that only seed a compare-and-swap loop.
//!
//! Compilers build atomic operations that the hardware lacks from a loop around `atom.cas`, which starts from a weak load
//! of the same place. The load races with the other threads' swaps, but whatever it reads, the swap finds out. A
//! load counts as such a seed if its value, through moves, arithmetic and predicates, reaches nothing but operands of
//! `atom.cas` at the same address, and comparisons with what such an `atom.cas` has returned.

use std::collections::{HashMap, HashSet};

use crate::ptx::ast::{Base, Body, Instruction, Operand, Reg};

/// Indices of the loads.
pub(super) fn seeds(body: &Body) -> HashSet<usize> {
    let is_cas = |i: &Instruction| i.opcode == "atom" && has(i, "cas");
    if !body.instructions.iter().any(is_cas) {
        return HashSet::new();
    }
    let flow = Flow::new(body);
    let candidates = body.instructions.iter().enumerate().filter(|(_, i)| {
        let plain = !["relaxed", "acquire", "nc", "param", "local", "const"].iter().any(|m| has(i, m));
        i.opcode == "ld" && plain
    });
    candidates.filter(|(at, _)| flow.only_feeds_cas(*at).is_some()).map(|(at, _)| at).collect()
}

fn has(i: &Instruction, word: &str) -> bool {
    i.modifiers.iter().any(|m| m == word)
}

/// Where registers are written and read.
struct Flow<'a> {
    body: &'a Body,
    writes: HashMap<Reg, Vec<usize>>,
    reads: HashMap<Reg, Vec<usize>>,
}

/// Registers of an operand, those of addresses included.
fn registers(operand: &Operand, f: &mut impl FnMut(Reg)) {
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
fn computes(i: &Instruction) -> bool {
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

impl<'a> Flow<'a> {
    fn new(body: &'a Body) -> Flow<'a> {
        let mut flow = Flow { body, writes: HashMap::new(), reads: HashMap::new() };
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
    fn address(&self, operand: &Operand) -> Option<(Base, i64)> {
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

    /// Registers that follow from those, through arithmetic alone.
    fn closure(&self, start: Vec<Reg>) -> HashSet<Reg> {
        let mut known: HashSet<Reg> = start.iter().copied().collect();
        let mut work = start;
        while let Some(r) = work.pop() {
            for &at in self.reads.get(&r).map_or(&[][..], Vec::as_slice) {
                let i = &self.body.instructions[at];
                let is_operand = i.operands.iter().skip(1).any(|o| mentions(o, r));
                if let Some(to) = i.operands.first().filter(|_| computes(i) && is_operand) {
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

    /// `Some` if the value loaded at `at` reaches nothing but compare-and-swaps of its place.
    fn only_feeds_cas(&self, at: usize) -> Option<()> {
        let load = &self.body.instructions[at];
        let place = self.address(load.operands.get(1)?)?;
        let swaps = |i: &Instruction| {
            i.opcode == "atom" && has(i, "cas") && {
                i.operands.get(1).and_then(|a| self.address(a)).is_some_and(|a| a == place)
            }
        };
        let mut returned = Vec::new();
        for i in self.body.instructions.iter().filter(|i| swaps(i)) {
            registers(i.operands.first()?, &mut |r| returned.push(r));
        }
        if returned.is_empty() {
            return None;
        }
        let returned = self.closure(returned);
        let mut tainted: HashSet<Reg> = HashSet::new();
        let mut work = Vec::new();
        registers(load.operands.first()?, &mut |r| work.push(r));
        tainted.extend(&work);
        // A loop passes on what the swap has returned in the register that was loaded first.
        let loaded = self.closure(work.clone());
        let mut swapped = false;
        while let Some(r) = work.pop() {
            for &at in self.reads.get(&r).map_or(&[][..], Vec::as_slice) {
                let i = &self.body.instructions[at];
                if swaps(i) {
                    // As what to compare with or to store, not as the address.
                    let used = i.operands.iter().skip(2).any(|o| mentions(o, r));
                    if !used || i.operands.get(1).is_some_and(|o| mentions(o, r)) {
                        return None;
                    }
                    swapped = true;
                    continue;
                }
                let guarded = i.guard.is_some_and(|g| g.0 == r);
                if !computes(i) || guarded {
                    return None;
                }
                // Whether the swap took place: decided by what the swap has returned.
                let compares = i.opcode == "setp"
                    && i.operands.iter().skip(1).any(|o| {
                        let mut found = false;
                        registers(o, &mut |r| found |= returned.contains(&r) && !loaded.contains(&r));
                        found
                    });
                if compares {
                    continue;
                }
                registers(i.operands.first()?, &mut |r| {
                    if tainted.insert(r) {
                        work.push(r);
                    }
                });
            }
        }
        swapped.then_some(())
    }
}

fn mentions(operand: &Operand, r: Reg) -> bool {
    let mut found = false;
    registers(operand, &mut |x| found |= x == r);
    found
}
