//! Whether a function may wait for other blocks in a loop.
//!
//! Such a loop asks memory by a strong load or an atomic operation, and what it is told decides whether it goes round again. How often
//! it does depends on when others answer. A loop around `atom.cas` looks the same, and counts as one.

use super::dataflow::{DefUse, computes, has, mentions, registers};
use crate::ptx::ast::{Body, Instruction, Operand, Reg};

/// `is_entry`: otherwise a caller may have the loop.
pub(super) fn polls(body: &Body, is_entry: bool) -> bool {
    let asking: Vec<usize> = (0..body.instructions.len()).filter(|&at| asks(&body.instructions[at])).collect();
    if asking.is_empty() || !is_entry {
        return !asking.is_empty();
    }
    let flow = DefUse::new(body);
    let loops = loops(body);
    asking.into_iter().any(|at| {
        let mut told: Vec<Reg> = Vec::new();
        if let Some(result) = body.instructions[at].operands.first() {
            registers(result, &mut |r| told.push(r));
        }
        let told = flow.closure(told, passes_on);
        loops.iter().filter(|range| range.contains(&at)).any(|range| {
            body.instructions[range.clone()]
                .iter()
                .any(|i| i.opcode.starts_with("br") && told.iter().any(|&r| decides(i, r)))
        })
    })
}

/// Whether other blocks may have written what it reads, and it says what that was.
fn asks(i: &Instruction) -> bool {
    let near = ["shared", "shared::cta", "cta", "local", "param"].iter().any(|word| has(i, word));
    let strong = ["volatile", "relaxed", "acquire", "mmio"].iter().any(|word| has(i, word));
    !near && (i.opcode == "ld" && strong || i.opcode == "atom" && i.operands.first() != Some(&Operand::Sink))
}

/// Whether its first operand follows from the others.
fn passes_on(i: &Instruction) -> bool {
    computes(i) || ["shfl", "vote", "match", "redux"].contains(&i.opcode.as_str())
}

/// Whether a branch is taken, or where it goes, by a register.
fn decides(branch: &Instruction, r: Reg) -> bool {
    branch.guard.is_some_and(|guard| guard.0 == r) || branch.operands.iter().any(|o| mentions(o, r))
}

/// The instructions from the target of each backward branch to the branch.
fn loops(body: &Body) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    for (at, i) in body.instructions.iter().enumerate() {
        let listed = body.branch_targets.values().filter(|_| i.opcode == "brx").flatten();
        let named = i.operands.iter().filter_map(|o| if let Operand::Label(label) = o { Some(label) } else { None });
        for label in named.chain(listed) {
            if let Some(&(_, to)) = body.labels.get(label.0 as usize).filter(|l| l.1 <= at) {
                found.push(to..at + 1);
            }
        }
    }
    found
}
