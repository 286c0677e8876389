//! Stream capture: work that is recorded into a graph and not run.
//!
//! A capture begins on one stream and spreads to others by events: waiting for an event that was
//! recorded in it brings a stream in, and every such stream must lead back to the first before the
//! end. What CUDA forbids meanwhile is forbidden here with the same codes, and spoils the capture:
//! work from outside (905), two captures that meet (902), the legacy stream beside a blocking one
//! (906), waiting for a stream that only records (900, 907), and calls that may wait inside the
//! driver, such as allocation, by the rules of the capture's and the thread's mode (900).

use crate::codes::{Code, Res};
use crate::software::tables::{
    objects::StreamKey,
    ops::{Node, Op},
    state::State,
};
use crate::software::thread;

pub(crate) const GLOBAL: i32 = 0;
pub(crate) const THREAD_LOCAL: i32 = 1;
pub(crate) const RELAXED: i32 = 2;

/// Marks a capture as failed; it lasts until it is ended.
pub(crate) fn invalidate(state: &mut State, capture: u64) {
    if let Some(capture) = state.captures.get_mut(&capture) {
        capture.spoiled = true;
    }
}

pub(crate) fn is_spoiled(state: &State, capture: u64) -> bool {
    state.captures.get(&capture).is_none_or(|c| c.spoiled)
}

/// Where work on a stream goes: into a capture, or (`None`) to the device now.
pub(crate) fn target(state: &mut State, key: StreamKey) -> Res<Option<u64>> {
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
pub(crate) fn blocking_captures(state: &State, context: u64) -> Vec<u64> {
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
pub(crate) fn eager_only(state: &mut State, key: StreamKey) -> Res {
    match target(state, key)? {
        None => Ok(()),
        Some(capture) => {
            invalidate(state, capture);
            Err(Code::STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

/// A call that waits for a stream.
pub(crate) fn waits_for(state: &mut State, key: StreamKey) -> Res {
    eager_only(state, key)?;
    unsafe_call(state)
}

/// A call that ends a stream's life.
pub(crate) fn destroys(state: &mut State, key: StreamKey) -> Res {
    match state.capturing.get(&key).copied() {
        None => Ok(()),
        Some(capture) => {
            invalidate(state, capture);
            Err(Code::STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

/// A call that waits for a whole context.
pub(crate) fn context_sync(state: &mut State, context: u64) -> Res {
    let here: Vec<u64> = state.captures.iter().filter(|(_, c)| c.context == context).map(|(id, _)| *id).collect();
    if here.is_empty() {
        return unsafe_call(state);
    }
    here.into_iter().for_each(|c| invalidate(state, c));
    Err(Code::STREAM_CAPTURE_UNSUPPORTED)
}

/// A call that may wait inside the driver: forbidden to a thread by its own captures, and by other
/// threads' captures in global mode, unless the thread's mode says otherwise.
pub(crate) fn unsafe_call(state: &mut State) -> Res {
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
pub(crate) fn dependencies(state: &State, capture: u64, key: StreamKey) -> Res<Vec<u64>> {
    let capture = state.captures.get(&capture).ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
    Ok(capture.streams.get(&key).cloned().unwrap_or_default())
}

/// Records an operation as the stream's next node.
pub(crate) fn add(state: &mut State, capture: u64, key: StreamKey, op: Op) -> Res {
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
pub(crate) fn join(state: &mut State, key: StreamKey, capture: u64, nodes: &[u64]) -> Res {
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
pub(crate) fn isolated(state: &mut State, key: StreamKey) -> Res {
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
