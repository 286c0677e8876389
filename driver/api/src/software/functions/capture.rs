//! Stream capture: begun, asked for and ended. What is legal meanwhile is in `rules::capture`.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;

use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::software::functions::graph;
use crate::software::rules::capture::{GLOBAL, RELAXED, THREAD_LOCAL, blocking_captures, is_spoiled, target};
use crate::software::tables::{
    graphs,
    objects::{Capture, StreamKey},
    ops::Graph,
    software::with_context,
    state::State,
};
use crate::software::thread;
use crate::types::*;

pub(crate) fn begin_v1(stream: CUstream) -> Res {
    begin(stream, GLOBAL)
}

pub(crate) fn begin(stream: CUstream, mode: i32) -> Res {
    start(stream, mode, None)
}

/// Captures into a graph that exists; the first nodes depend on those given.
pub(crate) fn begin_to_graph(
    stream: CUstream,
    graph: CUgraph,
    deps: In<CUgraphNode>,
    edges: In<GraphEdgeData>,
    count: usize,
    mode: i32,
) -> Res {
    graph::ordinary(edges, count)?;
    let deps = deps.list(count)?.into_iter().map(CUgraphNode::id).collect();
    start(stream, mode, Some((graph, deps)))
}

fn start(stream: CUstream, mode: i32, into: Option<(CUgraph, Vec<u64>)>) -> Res {
    if !matches!(mode, GLOBAL | THREAD_LOCAL | RELAXED) {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|state, _, context| {
        let key = state.stream_key(context, stream)?;
        let owner = state.stream_context(key)?;
        state.check_failed(owner)?;
        if matches!(key, StreamKey::Legacy(_)) {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if state.capturing.contains_key(&key) {
            return Err(Code::ILLEGAL_STATE);
        }
        let owned = into.is_none();
        let (graph, deps) = match into {
            None => {
                let graph = state.fresh();
                state.graphs.insert(graph, Graph::of_capture());
                (graph, Vec::new())
            }
            Some((graph, deps)) => {
                let found = graphs::find_mut(state, graph)?;
                if found.capturing || deps.iter().any(|d| !found.nodes.contains_key(d)) {
                    return Err(Code::INVALID_VALUE);
                }
                found.capturing = true;
                (graph.id(), deps)
            }
        };
        let id = state.fresh();
        let capture = Capture {
            context: owner,
            graph,
            owned,
            origin: key,
            mode,
            thread: thread::key()?,
            spoiled: false,
            streams: HashMap::from([(key, deps)]),
            shown: Vec::new(),
        };
        state.captures.insert(id, capture);
        state.capturing.insert(key, id);
        Ok(())
    })
}

pub(crate) fn end(stream: CUstream, out: Out<CUgraph>) -> Res {
    out.check()?;
    out.set(CUgraph::NULL)?;
    with_context(|state, _, context| {
        let key = state.stream_key(context, stream)?;
        let id = state.capturing.get(&key).copied().ok_or(Code::ILLEGAL_STATE)?;
        let capture = state.captures.get(&id).ok_or(Code::ILLEGAL_STATE)?;
        if capture.origin != key {
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != thread::key()? {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let failure = if capture.spoiled {
            Some(Code::STREAM_CAPTURE_INVALIDATED)
        } else if !is_joined(state, capture) {
            Some(Code::STREAM_CAPTURE_UNJOINED)
        } else {
            None
        };
        if let Some(code) = failure {
            state.drop_capture(id);
            return Err(code);
        }
        let graph = capture.graph;
        state.captures.remove(&id);
        state.capturing.retain(|_, c| *c != id);
        state.graphs.get_mut(&graph).ok_or(Code::STREAM_CAPTURE_INVALIDATED)?.capturing = false;
        out.set(CUgraph::from_id(graph))
    })
}

/// Whether every stream's last nodes lead to the first stream's last nodes.
fn is_joined(state: &State, capture: &Capture) -> bool {
    let Some(graph) = state.graphs.get(&capture.graph) else { return false };
    let mut reached: HashSet<u64> = HashSet::new();
    let mut open: Vec<u64> = capture.streams.get(&capture.origin).cloned().unwrap_or_default();
    while let Some(node) = open.pop() {
        if reached.insert(node) {
            open.extend(graph.nodes.get(&node).into_iter().flat_map(|n| n.deps.iter().copied()));
        }
    }
    capture.streams.values().flatten().all(|node| reached.contains(node))
}

pub(crate) fn is_capturing(stream: CUstream, status: Out<i32>) -> Res {
    status.check()?;
    with_context(|state, _, context| {
        let key = state.stream_key(context, stream)?;
        status.set(status_of(state, key)?)
    })
}

/// 0 none, 1 active, 2 invalidated.
fn status_of(state: &State, key: StreamKey) -> Res<i32> {
    if let StreamKey::Legacy(context) = key {
        return if blocking_captures(state, context).is_empty() { Ok(0) } else { Err(Code::STREAM_CAPTURE_IMPLICIT) };
    }
    Ok(match state.capturing.get(&key) {
        None => 0,
        Some(capture) if is_spoiled(state, *capture) => 2,
        Some(_) => 1,
    })
}

pub(crate) fn info(stream: CUstream, status: Out<i32>, id: Out<u64>) -> Res {
    info_v2(stream, status, id, Out::null(), Out::null(), Out::null())
}

pub(crate) fn info_v3(
    stream: CUstream,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<CUgraph>,
    dependencies: Out<*const CUgraphNode>,
    edges: Out<*const c_void>,
    count: Out<usize>,
) -> Res {
    // Every edge is an ordinary one.
    edges.set_if_asked(std::ptr::null());
    info_v2(stream, status, id, graph, dependencies, count)
}

pub(crate) fn info_v2(
    stream: CUstream,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<CUgraph>,
    dependencies: Out<*const CUgraphNode>,
    count: Out<usize>,
) -> Res {
    status.check()?;
    with_context(|state, _, context| {
        let key = state.stream_key(context, stream)?;
        let found = status_of(state, key)?;
        status.set(found)?;
        let capture = state.capturing.get(&key).copied().filter(|_| found == 1);
        if let Some((capture_id, capture)) = capture.and_then(|c| Some((c, state.captures.get_mut(&c)?))) {
            let nodes = capture.streams.get(&key).map(Vec::as_slice).unwrap_or_default();
            capture.shown = nodes.iter().map(|n| CUgraphNode::from_id(*n)).collect();
            id.set_if_asked(capture_id);
            graph.set_if_asked(CUgraph::from_id(capture.graph));
            dependencies.set_if_asked(capture.shown.as_ptr());
            count.set_if_asked(capture.shown.len());
        }
        Ok(())
    })
}

pub(crate) fn update_dependencies(stream: CUstream, nodes: Out<CUgraphNode>, count: usize, flags: u32) -> Res {
    let nodes: In<CUgraphNode> = nodes.input();
    let nodes: Vec<u64> = nodes.list(count)?.into_iter().map(CUgraphNode::id).collect();
    // 0 adds, 1 replaces.
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|state, _, context| {
        let key = state.stream_key(context, stream)?;
        let id = target(state, key)?.ok_or(Code::ILLEGAL_STATE)?;
        let graph = state.captures.get(&id).map(|c| c.graph).ok_or(Code::ILLEGAL_STATE)?;
        if nodes.iter().any(|n| state.node_owner.get(n) != Some(&graph)) {
            return Err(Code::INVALID_VALUE);
        }
        let deps = state.captures.get_mut(&id).and_then(|c| c.streams.get_mut(&key)).ok_or(Code::ILLEGAL_STATE)?;
        if flags == 1 {
            deps.clear();
        }
        for node in nodes {
            if !deps.contains(&node) {
                deps.push(node);
            }
        }
        Ok(())
    })
}

pub(crate) fn update_dependencies_v2(
    stream: CUstream,
    nodes: Out<CUgraphNode>,
    edges: In<GraphEdgeData>,
    count: usize,
    flags: u32,
) -> Res {
    graph::ordinary(edges, count)?;
    update_dependencies(stream, nodes, count, flags)
}

pub(crate) fn exchange_mode(mode: Out<i32>) -> Res {
    let new = mode.get()?;
    if !matches!(new, GLOBAL | THREAD_LOCAL | RELAXED) {
        return Err(Code::INVALID_VALUE);
    }
    mode.set(thread::capture_mode())?;
    thread::set_capture_mode(new);
    Ok(())
}
