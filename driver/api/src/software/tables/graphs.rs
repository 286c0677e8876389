//! Look-ups of graphs and their nodes.

use crate::codes::{Code, Res};
use crate::software::tables::{
    ops::{Graph, Node, Op},
    state::State,
};
use crate::types::*;

/// A graph that is not being captured.
pub(crate) fn find(state: &State, graph: CUgraph) -> Res<&Graph> {
    state.graphs.get(&graph.id()).ok_or(Code::INVALID_VALUE)
}

pub(crate) fn find_mut(state: &mut State, graph: CUgraph) -> Res<&mut Graph> {
    state.graphs.get_mut(&graph.id()).ok_or(Code::INVALID_VALUE)
}

pub(crate) fn node(state: &State, node: CUgraphNode) -> Res<&Node> {
    let graph = state.node_owner.get(&node.id()).ok_or(Code::INVALID_VALUE)?;
    state.graphs.get(graph).and_then(|g| g.nodes.get(&node.id())).ok_or(Code::INVALID_VALUE)
}

pub(crate) fn node_mut(state: &mut State, node: CUgraphNode) -> Res<&mut Node> {
    let graph = state.node_owner.get(&node.id()).ok_or(Code::INVALID_VALUE)?;
    state.graphs.get_mut(graph).and_then(|g| g.nodes.get_mut(&node.id())).ok_or(Code::INVALID_VALUE)
}

/// Adds a node that depends on nodes of the same graph.
pub(crate) fn add(state: &mut State, graph: CUgraph, deps: &[CUgraphNode], op: Op) -> Res<CUgraphNode> {
    let found = find(state, graph)?;
    let mut ids: Vec<u64> = Vec::with_capacity(deps.len());
    for dep in deps {
        if !found.nodes.contains_key(&dep.id()) || ids.contains(&dep.id()) {
            return Err(Code::INVALID_VALUE);
        }
        ids.push(dep.id());
    }
    let id = state.fresh();
    find_mut(state, graph)?.nodes.insert(id, Node { op, deps: ids });
    state.node_owner.insert(id, graph.id());
    Ok(CUgraphNode::from_id(id))
}
