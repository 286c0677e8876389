//! Basic blocks and their layout.
//!
//! Blocks are laid out so that every loop is contiguous and whatever follows it stands behind it:
//! a weak topological order (Bourdoncle), found by strongly connected components, loops within
//! loops. The executor runs the split with the lowest position, so this order makes lanes
//! that leave a loop wait for those that stay.

use super::operand::P;
use super::proto::{Control, Proto};

/// A basic block: operations from `start` to before `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BasicBlock {
    pub start: usize,
    pub end: usize,
    /// Block that control falls into at its end.
    pub next: Option<usize>,
    /// Blocks that it jumps to.
    pub targets: Vec<usize>,
}

impl BasicBlock {
    pub(super) fn successors(&self) -> impl Iterator<Item = usize> + '_ {
        self.targets.iter().copied().chain(self.next)
    }
}

/// Blocks in text order. `labels[l]` is the operation that label `l` stands before.
pub(super) fn blocks(protos: &[Proto], labels: &[usize]) -> Vec<BasicBlock> {
    let n = protos.len();
    let mut leader = vec![false; n + 1];
    leader[0] = true;
    let at = |label: u32| labels.get(label as usize).copied().unwrap_or(n).min(n);
    for (i, p) in protos.iter().enumerate() {
        match &p.kind {
            Control::Plain => continue,
            Control::Jump(l) | Control::Branch(l) => leader[at(l.0)] = true,
            Control::Indexed(ls) => ls.iter().for_each(|l| leader[at(l.0)] = true),
            Control::Stop => {}
        }
        leader[i + 1] = true;
    }
    let starts: Vec<usize> = (0..n).filter(|&i| leader[i]).collect();
    let block_at = |position: usize| starts.binary_search(&position).ok();
    let mut blocks = Vec::with_capacity(starts.len());
    for (b, &start) in starts.iter().enumerate() {
        let end = starts.get(b + 1).copied().unwrap_or(n);
        let fall = (b + 1 < starts.len()).then_some(b + 1);
        let (next, targets) = match &protos[end - 1].kind {
            Control::Plain => (fall, Vec::new()),
            Control::Jump(l) => (None, block_at(at(l.0)).into_iter().collect()),
            Control::Branch(l) => (fall, block_at(at(l.0)).into_iter().collect()),
            Control::Indexed(ls) => (
                fall.filter(|_| protos[end - 1].guard != P::True),
                ls.iter().filter_map(|l| block_at(at(l.0))).collect(),
            ),
            Control::Stop => (None, Vec::new()),
        };
        blocks.push(BasicBlock { start, end, next, targets });
    }
    blocks
}

/// Nesting of loops beyond which inner ones are no longer told apart.
const MAX_NESTING: u32 = 64;

/// The reachable blocks in the order in which to lay them out; the first is block 0.
pub(super) fn layout(blocks: &[BasicBlock]) -> Vec<usize> {
    let mut order = Vec::with_capacity(blocks.len());
    if blocks.is_empty() {
        return order;
    }
    let mut state = Tarjan::new(blocks.len());
    // Task: place a block, or order a region from its entry.
    enum Task {
        Place(usize),
        Region { nodes: Vec<usize>, entry: usize, depth: u32 },
    }
    let all: Vec<usize> = (0..blocks.len()).collect();
    let mut work = vec![Task::Region { nodes: all, entry: 0, depth: 0 }];
    while let Some(item) = work.pop() {
        let (nodes, entry, depth) = match item {
            Task::Place(block) => {
                order.push(block);
                continue;
            }
            Task::Region { nodes, entry, depth } => (nodes, entry, depth),
        };
        // Components come in reverse topological order, which is what a stack wants.
        for component in state.components(blocks, &nodes, entry) {
            let [only] = component.as_slice() else {
                let head = component[component.len() - 1];
                if depth >= MAX_NESTING {
                    work.extend(component.iter().map(|&b| Task::Place(b)));
                    continue;
                }
                let rest: Vec<usize> = component[..component.len() - 1].to_vec();
                // The head first, then what it leads to without going through it again.
                work.push(Task::Region { nodes: rest, entry: head, depth: depth + 1 });
                work.push(Task::Place(head));
                continue;
            };
            work.push(Task::Place(*only));
        }
    }
    order
}

/// Tarjan's algorithm without recursion, restricted to a region.
struct Tarjan {
    region: Vec<u32>,
    current: u32,
    index: Vec<u32>,
    low: Vec<u32>,
    on_stack: Vec<bool>,
}

impl Tarjan {
    fn new(n: usize) -> Tarjan {
        Tarjan { region: vec![0; n], current: 0, index: vec![0; n], low: vec![0; n], on_stack: vec![false; n] }
    }

    /// Strongly connected components of the region that `entry` reaches, in reverse topological order; in each, the block that
    /// was reached first stands last. If `entry` is not one of the nodes, edges into it are ignored.
    fn components(&mut self, blocks: &[BasicBlock], nodes: &[usize], entry: usize) -> Vec<Vec<usize>> {
        self.current += 1;
        for &b in nodes {
            self.region[b] = self.current;
            self.index[b] = 0;
        }
        let inside = nodes.contains(&entry);
        let mut found = Vec::new();
        let mut stack: Vec<usize> = Vec::new();
        let mut counter = 0;
        // A head outside the region only lends its successors.
        let roots: Vec<usize> = if inside { vec![entry] } else { blocks[entry].successors().collect() };
        for root in roots {
            if self.region[root] != self.current || self.index[root] != 0 {
                continue;
            }
            let mut calls: Vec<(usize, usize)> = vec![(root, 0)];
            while let Some(&(b, edge)) = calls.last() {
                if edge == 0 {
                    counter += 1;
                    self.index[b] = counter;
                    self.low[b] = counter;
                    stack.push(b);
                    self.on_stack[b] = true;
                }
                if let Some(last) = calls.last_mut() {
                    last.1 += 1;
                }
                match blocks[b].successors().nth(edge) {
                    Some(next) if self.region[next] != self.current => {}
                    Some(next) if self.index[next] == 0 => calls.push((next, 0)),
                    Some(next) => {
                        if self.on_stack[next] {
                            self.low[b] = self.low[b].min(self.index[next]);
                        }
                    }
                    None => {
                        calls.pop();
                        if let Some(&(parent, _)) = calls.last() {
                            self.low[parent] = self.low[parent].min(self.low[b]);
                        }
                        if self.low[b] == self.index[b] {
                            let from = stack.iter().rposition(|&x| x == b).unwrap_or(0);
                            let mut component = stack.split_off(from);
                            component.iter().for_each(|&x| self.on_stack[x] = false);
                            component.reverse();
                            found.push(component);
                        }
                    }
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[&[usize]]) -> Vec<BasicBlock> {
        edges.iter().map(|e| BasicBlock { start: 0, end: 1, next: None, targets: e.to_vec() }).collect()
    }

    #[test]
    fn loops_stand_before_what_follows() {
        // 0 → 1 (head) → 2 (body) → 1; 1 → 3 (after). The exit is the first successor.
        assert_eq!(layout(&graph(&[&[1], &[3, 2], &[1], &[]])), [0, 1, 2, 3]);
        assert_eq!(layout(&graph(&[&[1], &[2, 3], &[1], &[]])), [0, 1, 2, 3]);
    }

    #[test]
    fn inner_loops_are_contiguous() {
        // 1: outer head, 2: inner head, 3: inner body, 4: outer latch, 5: after.
        let order = layout(&graph(&[&[1], &[5, 2], &[4, 3], &[2], &[1], &[]]));
        assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn joins_stand_behind_both_arms() {
        let order = layout(&graph(&[&[3, 1], &[2], &[], &[2]]));
        assert_eq!(order.last(), Some(&2));
        assert_eq!(order.len(), 4);
    }

    #[test]
    fn unreachable_blocks_are_dropped_and_irreducible_loops_are_kept() {
        assert_eq!(layout(&graph(&[&[2], &[2], &[]])), [0, 2]);
        // A loop with two entries.
        let mut order = layout(&graph(&[&[1, 2], &[2], &[1, 3], &[]]));
        assert_eq!((order[0], order[3]), (0, 3));
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2, 3]);
    }

    #[test]
    fn deep_nests_do_not_overflow() {
        let n = 20_000;
        // A chain of loops within loops.
        let mut edges: Vec<Vec<usize>> = (0..n).map(|i| vec![i + 1]).collect();
        edges.extend((0..n).map(|i| if i + 1 < n { vec![n + i + 1, n - 1 - i] } else { vec![0] }));
        let blocks: Vec<BasicBlock> =
            edges.iter().map(|e| BasicBlock { start: 0, end: 1, next: None, targets: e.clone() }).collect();
        assert_eq!(layout(&blocks).len(), 2 * n);
    }
}
