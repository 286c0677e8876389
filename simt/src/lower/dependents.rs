//! How a function lets the launch behind its kernel begin.

use std::ops::Range;

use super::graph::BasicBlock;
use super::operand::P;
use super::proto::Builder;
use crate::program::Dependents;

/// What is known of the function's `griddepcontrol.launch_dependents`, without following calls.
pub(super) fn dependents(b: &Builder<'_>, blocks: &[BasicBlock]) -> Dependents {
    let instruction = |operation: usize| b.body.instructions.get(b.protos[operation].instruction as usize);
    // The first one of each block, and whether all of them stand behind a wait of their block.
    let (mut first, mut behind) = (vec![None; blocks.len()], true);
    for (at, block) in blocks.iter().enumerate() {
        let mut waited = false;
        for operation in block.start..block.end {
            let Some(i) = instruction(operation).filter(|i| i.opcode == "griddepcontrol") else { continue };
            if i.modifiers.iter().any(|word| word == "wait") {
                waited |= b.protos[operation].guard == P::True;
            } else {
                behind &= waited;
                first[at].get_or_insert(operation);
            }
        }
    }
    if first.iter().all(Option::is_none) {
        return Dependents::Unnamed;
    }
    // An end for some threads is in the middle of a block.
    let ends = |mut operations: Range<usize>| {
        operations.any(|o| instruction(o).is_some_and(|i| matches!(&*i.opcode, "ret" | "exit")))
    };
    // Every way comes by one of them before it ends.
    let (mut seen, mut ways, mut any) = (vec![false; blocks.len()], vec![0], false);
    while let Some(at) = ways.pop() {
        if std::mem::replace(&mut seen[at], true) {
            continue;
        }
        let block = &blocks[at];
        behind &= !ends(block.start..first[at].unwrap_or(block.end));
        if first[at].is_some() {
            any = true;
            continue;
        }
        // Nothing begins behind a launch that ends by `trap`.
        let fails = || instruction(block.end - 1).is_some_and(|i| &*i.opcode == "trap");
        behind &= block.successors().next().is_some() || fails();
        ways.extend(block.successors());
    }
    if behind && any { Dependents::BehindWait } else { Dependents::Early }
}
