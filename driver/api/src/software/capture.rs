//! Stream capture: work that is recorded into a graph and not run.
//!
//! A capture begins on one stream and spreads to others by events: waiting for an event that was
//! recorded in it brings a stream in, and every such stream must lead back to the first before the
//! end. What CUDA forbids meanwhile is forbidden here with the same codes, and spoils the capture:
//! work from outside (905), two captures that meet (902), the legacy stream beside a blocking one
//! (906), waiting for a stream that only records (900, 907), and calls that may wait inside the
//! driver, such as allocation, by the rules of the capture's and the thread's mode (900).

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;

use super::graph::{self, Graph, Node};
use super::ops::Op;
use super::state::{State, StreamKey};
use super::{thread, with_context};
use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::types::*;

const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

pub(crate) struct Capture {
    pub context: u64,
    pub graph: u64,
    /// Whether the capture made the graph, which then ends with a capture that fails.
    owned: bool,
    origin: StreamKey,
    mode: i32,
    thread: u64,
    spoiled: bool,
    /// The streams that take part, each with the nodes that its next node will depend on.
    streams: HashMap<StreamKey, Vec<u64>>,
    /// What the last question for dependencies was answered with, kept for the asker.
    shown: Vec<CUgraphNode>,
}

/// Marks a capture as failed; it lasts until it is ended.
pub(super) fn invalidate(state: &mut State, capture: u64) {
    if let Some(capture) = state.captures.get_mut(&capture) {
        capture.spoiled = true;
    }
}

fn is_spoiled(state: &State, capture: u64) -> bool {
    state.captures.get(&capture).is_none_or(|c| c.spoiled)
}

/// Where work on a stream goes: into a capture, or (`None`) to the device now.
pub(super) fn target(state: &mut State, key: StreamKey) -> Res<Option<u64>> {
    if let Some(capture) = state.capturing.get(&key).copied() {
        if is_spoiled(state, capture) {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        return Ok(Some(capture));
    }
    if let StreamKey::Legacy(context) = key {
        let met = blocking_captures(state, context);
        if !met.is_empty() {
            met.into_iter().for_each(|c| invalidate(state, c));
            return Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
    }
    Ok(None)
}

/// Captures in a context that the legacy stream would have to wait for.
fn blocking_captures(state: &State, context: u64) -> Vec<u64> {
    let mut found: Vec<u64> = state
        .capturing
        .iter()
        .filter(|(key, _)| state.is_blocking(**key) && state.stream_context(**key) == Ok(context))
        .map(|(_, capture)| *capture)
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Fails if work on the stream would be recorded: what is asked cannot be.
pub(super) fn eager_only(state: &mut State, key: StreamKey) -> Res {
    match target(state, key)? {
        None => Ok(()),
        Some(capture) => {
            invalidate(state, capture);
            Err(Code::STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

/// A call that waits for a stream.
pub(super) fn waits_for(state: &mut State, key: StreamKey) -> Res {
    eager_only(state, key)?;
    unsafe_call(state)
}

/// A call that ends a stream's life.
pub(super) fn destroys(state: &mut State, key: StreamKey) -> Res {
    match state.capturing.get(&key).copied() {
        None => Ok(()),
        Some(capture) => {
            invalidate(state, capture);
            Err(Code::STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

/// A call that waits for a whole context.
pub(super) fn context_sync(state: &mut State, context: u64) -> Res {
    let here: Vec<u64> = state.captures.iter().filter(|(_, c)| c.context == context).map(|(id, _)| *id).collect();
    if here.is_empty() {
        return unsafe_call(state);
    }
    here.into_iter().for_each(|c| invalidate(state, c));
    Err(Code::STREAM_CAPTURE_UNSUPPORTED)
}

/// A call that may wait inside the driver: forbidden to a thread by its own captures, and by other
/// threads' captures in global mode, unless the thread's mode says otherwise.
pub(super) fn unsafe_call(state: &mut State) -> Res {
    if state.captures.is_empty() {
        return Ok(());
    }
    let (me, mode) = (thread::key()?, thread::capture_mode());
    let forbidding: Vec<u64> = state
        .captures
        .iter()
        .filter(|(_, c)| {
            let own = c.thread == me && c.mode != RELAXED;
            let foreign = c.thread != me && c.mode == GLOBAL;
            (mode == GLOBAL && (own || foreign)) || (mode == THREAD_LOCAL && own)
        })
        .map(|(id, _)| *id)
        .collect();
    if forbidding.is_empty() {
        return Ok(());
    }
    let already = forbidding.iter().all(|c| is_spoiled(state, *c));
    forbidding.into_iter().for_each(|c| invalidate(state, c));
    Err(if already { Code::STREAM_CAPTURE_INVALIDATED } else { Code::STREAM_CAPTURE_UNSUPPORTED })
}

/// The nodes that a stream's next node will depend on.
pub(super) fn dependencies(state: &State, capture: u64, key: StreamKey) -> Res<Vec<u64>> {
    let capture = state.captures.get(&capture).ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
    Ok(capture.streams.get(&key).cloned().unwrap_or_default())
}

/// Records an operation as the stream's next node.
pub(super) fn add(state: &mut State, capture: u64, key: StreamKey, op: Op) -> Res {
    let deps = dependencies(state, capture, key)?;
    let node = state.fresh();
    let graph_id = state.captures.get(&capture).map(|c| c.graph).ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
    let graph = state.graphs.get_mut(&graph_id).ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
    graph.nodes.insert(node, Node { op, deps });
    state.node_owner.insert(node, graph_id);
    if let Some(capture) = state.captures.get_mut(&capture) {
        capture.streams.insert(key, vec![node]);
    }
    Ok(())
}

/// A stream waits for an event that was recorded in a capture.
pub(super) fn join(state: &mut State, key: StreamKey, capture: u64, nodes: &[u64]) -> Res {
    if !state.captures.contains_key(&capture) {
        // The capture is over; the event marks nothing that can be waited for.
        if let Some(own) = state.capturing.get(&key).copied() {
            invalidate(state, own);
        }
        return Err(Code::CAPTURED_EVENT);
    }
    if let Some(own) = state.capturing.get(&key).copied()
        && own != capture
    {
        invalidate(state, own);
        invalidate(state, capture);
        return Err(Code::STREAM_CAPTURE_MERGE);
    }
    if is_spoiled(state, capture) {
        return Err(Code::STREAM_CAPTURE_INVALIDATED);
    }
    if matches!(key, StreamKey::Legacy(_)) {
        invalidate(state, capture);
        return Err(Code::STREAM_CAPTURE_IMPLICIT);
    }
    if let Some(found) = state.captures.get_mut(&capture) {
        let deps = found.streams.entry(key).or_default();
        for node in nodes {
            if !deps.contains(node) {
                deps.push(*node);
            }
        }
    }
    state.capturing.insert(key, capture);
    Ok(())
}

/// A stream waits for an event from outside every capture.
pub(super) fn isolated(state: &mut State, key: StreamKey) -> Res {
    match target(state, key)? {
        None => Ok(()),
        Some(capture) => {
            invalidate(state, capture);
            Err(Code::STREAM_CAPTURE_ISOLATION)
        }
    }
}

impl State {
    /// Ends a capture and forgets its graph.
    pub fn drop_capture(&mut self, id: u64) {
        if let Some(capture) = self.captures.remove(&id) {
            self.capturing.retain(|_, c| *c != id);
            if capture.owned {
                self.graphs.remove(&capture.graph);
                self.node_owner.retain(|_, g| *g != capture.graph);
            } else if let Some(graph) = self.graphs.get_mut(&capture.graph) {
                graph.capturing = false;
            }
        }
    }
}

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
                let found = graph::find_mut(state, graph)?;
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
