//! Graphs: nodes, their dependencies, and what can be asked of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_char;
use std::fmt::Write as _;

use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::software::functions::objects;
use crate::software::tables::{
    graph_allocations, graphs,
    ops::{Graph, Node, Op},
    software::with,
};
use crate::types::*;

pub(crate) fn create(graph: Out<CUgraph>, flags: u32) -> Res {
    graph.check()?;
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    with(|state, _| {
        let id = state.fresh();
        state.graphs.insert(id, Graph::default());
        graph.set(CUgraph::from_id(id))
    })
}

pub(crate) fn destroy(graph: CUgraph) -> Res {
    let (gone, calls) = with(|state, _| {
        if graphs::find(state, graph)?.capturing {
            return Err(Code::INVALID_VALUE);
        }
        let gone = state.graphs.remove(&graph.id()).ok_or(Code::INVALID_VALUE)?;
        for node in gone.nodes.keys() {
            state.node_owner.remove(node);
        }
        let calls = objects::release_all(state, &gone.objects);
        Ok((gone, calls))
    })?;
    drop(gone);
    objects::call(calls);
    Ok(())
}

pub(crate) fn clone(clone: Out<CUgraph>, original: CUgraph) -> Res {
    clone.check()?;
    with(|state, _| {
        let from = graphs::find(state, original)?.clone();
        if graph_allocations::uses_memory(&from) {
            return Err(Code::NOT_SUPPORTED);
        }
        let id = state.fresh();
        let mut names = HashMap::new();
        for node in from.nodes.keys() {
            names.insert(*node, state.fresh());
        }
        let renamed = |old: &u64| names.get(old).copied();
        let nodes: BTreeMap<u64, Node> = from
            .nodes
            .iter()
            .filter_map(|(old, n)| {
                Some((renamed(old)?, Node { op: n.op.clone(), deps: n.deps.iter().filter_map(renamed).collect() }))
            })
            .collect();
        for node in nodes.keys() {
            state.node_owner.insert(*node, id);
        }
        objects::share(state, &from.objects);
        state.graphs.insert(id, Graph { nodes, capturing: false, clone_of: names, objects: from.objects });
        clone.set(CUgraph::from_id(id))
    })
}

pub(crate) fn find_in_clone(out: Out<CUgraphNode>, original: CUgraphNode, clone: CUgraph) -> Res {
    with(|state, _| {
        let graph = graphs::find(state, clone)?;
        let id = graph.clone_of.get(&original.id()).ok_or(Code::INVALID_VALUE)?;
        graph.nodes.get(id).ok_or(Code::INVALID_VALUE)?;
        out.set(CUgraphNode::from_id(*id))
    })
}

/// Answers a list: its length if there is no array, else as much as the array holds.
fn list(items: &[u64], array: Out<CUgraphNode>, count: Out<usize>) -> Res {
    if array.is_null() {
        return count.set(items.len());
    }
    let room = count.get()?;
    for i in 0..room.min(items.len()) {
        array.set_at(i, items.get(i).map_or(CUgraphNode::NULL, |id| CUgraphNode::from_id(*id)))?;
    }
    for i in items.len()..room {
        array.set_at(i, CUgraphNode::NULL)?;
    }
    count.set(room.min(items.len()))
}

pub(crate) fn get_nodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) -> Res {
    let items: Vec<u64> = with(|state, _| Ok(graphs::find(state, graph)?.nodes.keys().copied().collect()))?;
    list(&items, nodes, count)
}

pub(crate) fn get_root_nodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) -> Res {
    let items: Vec<u64> = with(|state, _| {
        Ok(graphs::find(state, graph)?.nodes.iter().filter(|(_, n)| n.deps.is_empty()).map(|(id, _)| *id).collect())
    })?;
    list(&items, nodes, count)
}

pub(crate) fn get_edges(graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, count: Out<usize>) -> Res {
    let edges: Vec<(u64, u64)> = with(|state, _| {
        let graph = graphs::find(state, graph)?;
        Ok(graph.nodes.iter().flat_map(|(id, n)| n.deps.iter().map(move |d| (*d, *id))).collect())
    })?;
    if from.is_null() != to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let (froms, tos): (Vec<u64>, Vec<u64>) = edges.into_iter().unzip();
    if from.is_null() {
        return count.set(froms.len());
    }
    let room = count.get()?;
    list(&froms, from, count)?;
    count.set(room)?;
    list(&tos, to, count)
}

pub(crate) fn get_dependencies(of: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) -> Res {
    let items = with(|state, _| Ok(graphs::node(state, of)?.deps.clone()))?;
    list(&items, nodes, count)
}

pub(crate) fn get_dependents(of: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) -> Res {
    let items: Vec<u64> = with(|state, _| {
        let graph = state.node_owner.get(&of.id()).and_then(|g| state.graphs.get(g)).ok_or(Code::INVALID_VALUE)?;
        Ok(graph.nodes.iter().filter(|(_, n)| n.deps.contains(&of.id())).map(|(id, _)| *id).collect())
    })?;
    list(&items, nodes, count)
}

fn edges(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize, add: bool) -> Res {
    let (from, to) = (from.list(count)?, to.list(count)?);
    with(|state, _| {
        let graph = graphs::find_mut(state, graph)?;
        // All or none: look first.
        let mut seen = BTreeSet::new();
        for (f, t) in from.iter().zip(&to) {
            let target = graph.nodes.get(&t.id()).filter(|_| f != t).ok_or(Code::INVALID_VALUE)?;
            let exists = target.deps.contains(&f.id());
            if !graph.nodes.contains_key(&f.id()) || exists == add || !seen.insert((f.id(), t.id())) {
                return Err(Code::INVALID_VALUE);
            }
        }
        for (f, t) in from.iter().zip(&to) {
            if let Some(target) = graph.nodes.get_mut(&t.id()) {
                if add {
                    target.deps.push(f.id());
                } else {
                    target.deps.retain(|d| *d != f.id());
                }
            }
        }
        Ok(())
    })
}

pub(crate) fn add_dependencies(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) -> Res {
    edges(graph, from, to, count, true)
}

pub(crate) fn remove_dependencies(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) -> Res {
    edges(graph, from, to, count, false)
}

pub(crate) fn node_type(of: CUgraphNode, kind: Out<i32>) -> Res {
    with(|state, _| kind.set(graphs::node(state, of)?.op.node_type()))
}

pub(crate) fn destroy_node(gone: CUgraphNode) -> Res {
    with(|state, _| {
        let id = gone.id();
        let owner = state.node_owner.get(&id).copied().ok_or(Code::INVALID_VALUE)?;
        let graph = state.graphs.get_mut(&owner).ok_or(Code::INVALID_VALUE)?;
        if graph.capturing {
            return Err(Code::INVALID_VALUE);
        }
        if graph.nodes.get(&id).is_some_and(|n| matches!(n.op, Op::Alloc(_) | Op::Free(..))) {
            return Err(Code::NOT_SUPPORTED);
        }
        graph.nodes.remove(&id);
        for node in graph.nodes.values_mut() {
            node.deps.retain(|d| *d != id);
        }
        state.node_owner.remove(&id);
        Ok(())
    })
}

pub(crate) fn dot(graph: CUgraph, path: In<c_char>, _flags: u32) -> Res {
    let path = path.text()?;
    let text = with(|state, _| {
        let graph = graphs::find(state, graph)?;
        let mut text = String::from("digraph graph_1 {\n");
        for (at, (id, node)) in graph.nodes.iter().enumerate() {
            let label = match &node.op {
                Op::Kernel(k) => {
                    let name = state.functions.get(&k.function).map_or("(unloaded kernel)", |f| &f.name);
                    format!("{name}<<<{:?}, {:?}, {}>>>", k.grid, k.block, k.shared)
                }
                Op::Copy(c) => format!("memcpy {} B", c.width * c.height * c.depth),
                Op::Fill(f) => format!("memset {} x {}", f.width, f.height),
                Op::Host(_) => "host".to_owned(),
                Op::Empty => "empty".to_owned(),
                Op::Child(_) => "graph".to_owned(),
                Op::EventRecord(_) => "event record".to_owned(),
                Op::EventWait(_) => "event wait".to_owned(),
                Op::Alloc(a) => format!("mem alloc {} B", a.bytes),
                Op::Free(..) => "mem free".to_owned(),
            };
            let _ = writeln!(text, "  \"{id}\" [label=\"{at}: {label}\"];");
            for dep in &node.deps {
                let _ = writeln!(text, "  \"{dep}\" -> \"{id}\";");
            }
        }
        text.push_str("}\n");
        Ok(text)
    })?;
    std::fs::write(path, text).map_err(|_| Code::OPERATING_SYSTEM)
}

/// Ordinary edges are all there are.
pub(crate) fn ordinary(edges: In<GraphEdgeData>, count: usize) -> Res {
    if edges.is_null() {
        return Ok(());
    }
    let same = edges.list(count)?.iter().all(|e| *e == GraphEdgeData::default());
    if same { Ok(()) } else { Err(Code::NOT_SUPPORTED) }
}

/// Answers ordinary edges for as many as the list beside has.
fn answer_edges(edges: Out<GraphEdgeData>, count: Out<usize>) -> Res {
    if !edges.is_null() {
        for at in 0..count.get()? {
            edges.set_at(at, GraphEdgeData::default())?;
        }
    }
    Ok(())
}

pub(crate) fn get_edges_v2(
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    edges: Out<GraphEdgeData>,
    count: Out<usize>,
) -> Res {
    get_edges(graph, from, to, count)?;
    if from.is_null() { Ok(()) } else { answer_edges(edges, count) }
}

pub(crate) fn get_dependencies_v2(
    of: CUgraphNode,
    nodes: Out<CUgraphNode>,
    edges: Out<GraphEdgeData>,
    count: Out<usize>,
) -> Res {
    get_dependencies(of, nodes, count)?;
    if nodes.is_null() { Ok(()) } else { answer_edges(edges, count) }
}

pub(crate) fn get_dependents_v2(
    of: CUgraphNode,
    nodes: Out<CUgraphNode>,
    edges: Out<GraphEdgeData>,
    count: Out<usize>,
) -> Res {
    get_dependents(of, nodes, count)?;
    if nodes.is_null() { Ok(()) } else { answer_edges(edges, count) }
}

pub(crate) fn add_dependencies_v2(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    data: In<GraphEdgeData>,
    count: usize,
) -> Res {
    ordinary(data, count)?;
    edges(graph, from, to, count, true)
}

pub(crate) fn remove_dependencies_v2(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    data: In<GraphEdgeData>,
    count: usize,
) -> Res {
    ordinary(data, count)?;
    edges(graph, from, to, count, false)
}

pub(crate) fn containing(of: CUgraphNode, graph: Out<CUgraph>) -> Res {
    with(|state, _| {
        graphs::node(state, of)?;
        graph.set(state.node_owner.get(&of.id()).map_or(CUgraph::NULL, |g| CUgraph::from_id(*g)))
    })
}
