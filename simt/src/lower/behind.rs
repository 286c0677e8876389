//! Where paths that go through a barrier meet those that go around it.
//!
//! A thread that gets to such a place without having been at the barrier has left it out. Threads that leave the kernel before
//! it have not: a barrier counts only threads that have not exited, and programs that return early rely on that. In the code
//! the two differ only if something is done where the paths meet.

use std::collections::HashMap;

use super::graph::BasicBlock;
use super::operand::P;
use super::proto::{Builder, Control};
use crate::exec::barrier::bar;
use crate::note::Mark;

/// Marks by operation of the function: barriers that all threads of the block wait at, and the places behind them. Groups are numbered
/// from `first` on.
pub(super) fn marks(b: &Builder<'_>, blocks: &[BasicBlock], first: u32) -> (HashMap<usize, Vec<Mark>>, u32) {
    let mut marks: HashMap<usize, Vec<Mark>> = HashMap::new();
    let barriers: Vec<(usize, usize)> = barriers(b, blocks);
    if barriers.is_empty() {
        return (marks, first);
    }
    let graph = Graph::new(blocks);
    // Barriers that are left out at one place stand for each other: each thread comes by one of them.
    let mut groups: HashMap<usize, u32> = HashMap::new();
    for (operation, block) in barriers {
        // Around a barrier with a guard leads what follows it.
        let (join, at) = match b.protos[operation].guard {
            P::True => match graph.join(block) {
                Some(join) => (join, blocks[join].start),
                None => continue,
            },
            _ if operation + 1 < blocks[block].end => (block, operation + 1),
            _ => continue,
        };
        if !does_something(b, blocks, &graph, (join, at)) {
            continue;
        }
        let next = first + groups.len() as u32;
        let group = *groups.entry(at).or_insert(next);
        marks.entry(operation).or_default().push(Mark::Barrier(group));
    }
    for (&at, &group) in &groups {
        marks.entry(at).or_default().push(Mark::Behind(group));
    }
    (marks, first + groups.len() as u32)
}

/// Operations that are barriers of the whole block, with their blocks.
fn barriers(b: &Builder<'_>, blocks: &[BasicBlock]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        for i in block.start..block.end {
            let p = &b.protos[i];
            let opcode = b.body.instructions.get(p.instruction as usize).map_or("", |i| i.opcode.as_str());
            // Operands come first; a warp's barrier is a collective.
            let last = b.protos.get(i + 1).is_none_or(|next| next.instruction != p.instruction);
            let warp = p.imm & crate::exec::exchange::COLLECTIVE != 0;
            let waits = p.imm & bar::KIND != bar::ARRIVE && p.imm & (bar::COUNT | bar::CLUSTER) == 0;
            if matches!(opcode, "bar" | "barrier") && last && waits && !warp {
                found.push((i, at));
            }
        }
    }
    found
}

/// Whether anything but the end of the function follows from an operation of a block on.
fn does_something(b: &Builder<'_>, blocks: &[BasicBlock], graph: &Graph, (from, at): (usize, usize)) -> bool {
    let acts = |operations: std::ops::Range<usize>| {
        b.protos[operations].iter().any(|p| {
            let opcode = b.body.instructions.get(p.instruction as usize).map_or("", |i| i.opcode.as_str());
            let acts = ["ld", "ldu", "st", "atom", "red", "cp", "call", "bar", "barrier"];
            p.kind == Control::Plain && acts.contains(&opcode)
        })
    };
    let mut reached = graph.reached(from, usize::MAX);
    reached[from] = false;
    acts(at..blocks[from].end)
        || reached.iter().enumerate().any(|(i, &reached)| reached && acts(blocks[i].start..blocks[i].end))
}

/// Blocks with the edges both ways, and one exit behind all ends.
struct Graph {
    successors: Vec<Vec<usize>>,
    /// The block that every way from a block to the end passes next; the exit's own is the exit.
    next: Vec<usize>,
}

impl Graph {
    fn new(blocks: &[BasicBlock]) -> Graph {
        let exit = blocks.len();
        let mut successors: Vec<Vec<usize>> = blocks.iter().map(|b| b.successors().collect()).collect();
        for list in &mut successors {
            if list.is_empty() {
                list.push(exit);
            }
        }
        successors.push(Vec::new());
        let mut graph = Graph { successors, next: Vec::new() };
        graph.next = graph.postdominators();
        graph
    }

    /// Blocks that control gets to from a block, itself included, without passing another.
    fn reached(&self, from: usize, without: usize) -> Vec<bool> {
        let mut seen = vec![false; self.successors.len()];
        let mut work = vec![from];
        while let Some(block) = work.pop() {
            if block == without || std::mem::replace(&mut seen[block], true) {
                continue;
            }
            work.extend(&self.successors[block]);
        }
        seen.pop();
        seen
    }

    /// Immediate postdominators, by the algorithm of Cooper, Harvey and Kennedy on the reversed graph.
    fn postdominators(&self) -> Vec<usize> {
        let n = self.successors.len();
        let exit = n - 1;
        let mut predecessors = vec![Vec::new(); n];
        for (from, list) in self.successors.iter().enumerate() {
            list.iter().for_each(|&to: &usize| predecessors[to].push(from));
        }
        // Postorder of the reversed graph.
        let (mut number, mut order) = (vec![usize::MAX; n], Vec::new());
        let mut seen = vec![false; n];
        let mut stack = vec![(exit, 0)];
        seen[exit] = true;
        while let Some(top) = stack.last_mut() {
            let (block, edge) = *top;
            top.1 += 1;
            match predecessors[block].get(edge) {
                Some(&before) if !seen[before] => {
                    seen[before] = true;
                    stack.push((before, 0));
                }
                Some(_) => {}
                None => {
                    number[block] = order.len();
                    order.push(block);
                    stack.pop();
                }
            }
        }
        let mut next = vec![usize::MAX; n];
        next[exit] = exit;
        let mut changed = true;
        while changed {
            changed = false;
            for &block in order.iter().rev().skip(1) {
                let mut found = usize::MAX;
                for &to in self.successors[block].iter().filter(|&&to| next[to] != usize::MAX) {
                    found = if found == usize::MAX { to } else { meet(&next, &number, found, to) };
                }
                changed |= found != next[block];
                next[block] = found;
            }
        }
        next
    }

    /// The first block on every way on from a barrier's that ways around it lead to as well; in the same loop, if it is in one.
    fn join(&self, barrier: usize) -> Option<usize> {
        let exit = self.successors.len() - 1;
        let around = self.reached(0, barrier);
        let loops = self.successors[barrier].iter().any(|&s| s != exit && self.reached(s, usize::MAX)[barrier]);
        let mut at = self.next[barrier];
        while at != exit && at != usize::MAX {
            // The head of a loop stands in front of the barrier as well: whoever comes there for the last time need not have left
            // anything out.
            if around[at] && self.reached(0, at)[barrier] {
                return Some(at).filter(|&join| !loops || self.reached(join, usize::MAX)[barrier]);
            }
            at = self.next[at];
        }
        None
    }
}

/// Where the chains of two blocks meet.
fn meet(next: &[usize], number: &[usize], mut a: usize, mut b: usize) -> usize {
    while a != b {
        if number[a] < number[b] {
            a = next[a];
        } else {
            b = next[b];
        }
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[&[usize]]) -> Graph {
        let blocks: Vec<BasicBlock> =
            edges.iter().map(|e| BasicBlock { start: 0, end: 1, next: None, targets: e.to_vec() }).collect();
        Graph::new(&blocks)
    }

    #[test]
    fn paths_meet_behind_a_branch() {
        // 0 → 1 (barrier) → 2, 0 → 2 → end.
        assert_eq!(graph(&[&[1, 2], &[2], &[]]).join(1), Some(2));
        // Nobody gets around it.
        assert_eq!(graph(&[&[1], &[2], &[]]).join(1), None);
        // 1 and 2 are the arms, each with a barrier; 4 is an early end.
        let arms = graph(&[&[1, 2], &[3], &[3], &[], &[]]);
        assert_eq!((arms.join(1), arms.join(2)), (Some(3), Some(3)));
        assert_eq!(graph(&[&[1, 3], &[2], &[], &[]]).join(1), None, "the other way ends");
    }

    #[test]
    fn paths_meet_within_a_loop() {
        // 1: head, 2: barrier, 3: latch, 4: behind.
        assert_eq!(graph(&[&[1], &[2, 3], &[3], &[1, 4], &[]]).join(2), Some(3));
        // The barrier is in the body of a loop that ends early: what follows the loop is no place that it was left out at.
        assert_eq!(graph(&[&[1], &[3, 2], &[1], &[]]).join(2), None);
        // A loop whose barrier some go around, and that ends in its middle.
        assert_eq!(graph(&[&[1], &[5, 2], &[3, 4], &[4], &[1], &[]]).join(3), Some(4));
    }
}
