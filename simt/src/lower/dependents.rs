//! How a function lets the launch behind its kernel begin.

use super::behind::Graph;
use super::graph::BasicBlock;
use super::operand::P;
use super::proto::Builder;
use crate::program::Dependents;

/// What is known of the function's `griddepcontrol.launch_dependents`, without following calls.
pub(super) fn dependents(b: &Builder<'_>, blocks: &[BasicBlock]) -> Dependents {
    let instruction = |operation: usize| b.body.instructions.get(b.protos[operation].instruction as usize);
    // Where it stands, by operation and block, and whether it stands behind a wait of its block.
    let mut lets: Vec<(usize, usize, bool)> = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let mut waited = false;
        for operation in block.start..block.end {
            let Some(i) = instruction(operation).filter(|i| i.opcode == "griddepcontrol") else { continue };
            if i.modifiers.iter().any(|word| word == "wait") {
                waited |= b.protos[operation].guard == P::True;
            } else {
                lets.push((operation, at, waited));
            }
        }
    }
    if lets.is_empty() {
        return Dependents::Unnamed;
    }
    let graph = Graph::new(blocks);
    let always = graph.always();
    // An end for some threads is in the middle of a block.
    let ends = |mut operations: std::ops::Range<usize>| {
        operations.any(|o| instruction(o).is_some_and(|i| matches!(&*i.opcode, "ret" | "exit")))
    };
    let passed_by_all = |&(operation, at, _): &(usize, usize, bool)| {
        let before = graph.reached(0, at);
        always.contains(&at)
            && !ends(blocks[at].start..operation)
            && !blocks.iter().zip(before).any(|(block, reached)| reached && ends(block.start..block.end))
    };
    let behind = lets.iter().all(|(.., waited)| *waited) && lets.iter().any(passed_by_all);
    if behind { Dependents::BehindWait } else { Dependents::Early }
}
