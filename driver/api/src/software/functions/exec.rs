//! Instantiated graphs: a copy of the graph's nodes, run in a fixed order.

use std::ffi::c_char;
use std::sync::Arc;

use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::lock::lock;
use crate::software::checks::Caller;
use crate::software::functions::{copy, fill, nodes, objects};
use crate::software::report::report;
use crate::software::rules::capture;
use crate::software::run::{issue, worker};
use crate::software::tables::{
    graph_allocations, graphs,
    objects::{StreamKey, Ticket},
    ops::Op,
    plan::{Exec, Plan},
    queue::{Batch, BatchNode},
    software::{Software, engine, with, with_context},
    state::State,
    work::{Rest, Todo},
};
use crate::types::*;

// CUgraphExecUpdateResult.
const SUCCESS: i32 = 0;
const ERROR: i32 = 1;
const TOPOLOGY_CHANGED: i32 = 2;
const NODE_TYPE_CHANGED: i32 = 3;
const PARAMETERS_CHANGED: i32 = 5;
const UNSUPPORTED_FUNCTION_CHANGE: i32 = 7;

/// UPLOAD and USE_NODE_PRIORITY mean nothing more here; DEVICE_LAUNCH is not to be had.
const KNOWN_FLAGS: u64 = 1 | 2 | 4 | 8;
const AUTO_FREE_ON_LAUNCH: u64 = 1;
const UPLOAD: u64 = 2;
const DEVICE_LAUNCH: u64 = 4;

/// Why a graph cannot be instantiated: the code, the node at fault, and words.
struct InstantiateError(Code, CUgraphNode, String);

fn make(exec: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> Result<(), InstantiateError> {
    let plain = |code| InstantiateError(code, CUgraphNode::NULL, String::new());
    exec.check().map_err(plain)?;
    let mut refusal = None;
    let made = with_context(|state, software, _| {
        let found = graphs::find(state, graph)?;
        if found.capturing {
            return Err(Code::INVALID_VALUE);
        }
        let Some(plan) = Plan::of(found) else {
            refusal = Some(InstantiateError(Code::INVALID_VALUE, CUgraphNode::NULL, "the graph has a cycle".into()));
            return Err(Code::INVALID_VALUE);
        };
        for node in &plan.nodes {
            if let Err(code) = issue::prepare(state, software, &node.op, &mut Vec::new()) {
                let at = CUgraphNode::from_id(node.id);
                let text = "a node refers to a kernel, context or event that no longer exists".to_owned();
                refusal = Some(InstantiateError(code, at, text));
                return Err(code);
            }
        }
        let objects = graphs::find(state, graph)?.objects.clone();
        objects::share(state, &objects);
        let id = state.fresh();
        state.execs.insert(id, Exec { plan: Arc::new(plan), turn: Arc::default(), last: Vec::new(), flags, objects });
        exec.set(CUgraphExec::from_id(id))
    });
    made.map_err(|code| refusal.unwrap_or_else(|| plain(code)))
}

pub(crate) fn instantiate(
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    error_node: Out<CUgraphNode>,
    log: Out<c_char>,
    log_size: usize,
) -> Res {
    make(exec, graph, 0).map_err(|InstantiateError(code, node, text)| {
        error_node.set_if_asked(node);
        if !log.is_null() && log_size > 0 {
            // Nothing to do about a log that cannot be written.
            let _ = log.set_text(&text, log_size);
        }
        code
    })
}

/// What cannot be is a wrong argument, whether or not each flag alone is to be had: a graph that devices launch does not
/// free its memory by itself, as the documentation of the flags says.
fn check_flags(flags: u64) -> Res {
    let exclusive = AUTO_FREE_ON_LAUNCH | DEVICE_LAUNCH;
    if flags & !KNOWN_FLAGS != 0 || flags & exclusive == exclusive {
        return Err(Code::INVALID_VALUE);
    }
    if flags & DEVICE_LAUNCH != 0 {
        report("graphs that kernels launch (CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) are not supported".to_owned());
        return Err(Code::NOT_SUPPORTED);
    }
    Ok(())
}

pub(crate) fn instantiate_with_flags(exec: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> Res {
    check_flags(flags)?;
    make(exec, graph, flags).map_err(|InstantiateError(code, ..)| code)
}

pub(crate) fn instantiate_with_params(
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    params: Out<GraphInstantiateParams>,
) -> Res {
    let mut p = params.get()?;
    check_flags(p.flags)?;
    let made = make(exec, graph, p.flags);
    // 0 success, 1 error, 2 invalid structure.
    (p.result, p.error_node) = match &made {
        Ok(()) => (0, CUgraphNode::NULL),
        Err(InstantiateError(_, node, text)) => (if text.is_empty() { 1 } else { 2 }, *node),
    };
    params.set(p)?;
    made.map_err(|InstantiateError(code, ..)| code)
}

fn find(state: &State, exec: CUgraphExec) -> Res<&Exec> {
    state.execs.get(&exec.id()).ok_or(Code::INVALID_VALUE)
}

pub(crate) fn destroy(exec: CUgraphExec) -> Res {
    let (gone, calls) = with(|state, software| {
        let gone = state.execs.remove(&exec.id()).ok_or(Code::INVALID_VALUE)?;
        let mut calls = objects::release_all(state, &gone.objects);
        // What it refers to is let go of when its last launch is done.
        if let Some(context) = state.queue.context_of(&gone.last)
            && !calls.is_empty()
        {
            state.call_behind(context, gone.last.clone(), std::mem::take(&mut calls), &Caller::here());
            software.changed.notify_all();
        }
        Ok((gone, calls))
    })?;
    drop(gone);
    objects::call(calls);
    Ok(())
}

pub(crate) fn get_flags(exec: CUgraphExec, flags: Out<u64>) -> Res {
    // The upload was the instantiation's.
    with(|state, _| flags.set(find(state, exec)?.flags & !UPLOAD))
}

/// The stream that a graph runs on: not one that captures.
fn eager_stream(state: &mut State, context: u64, stream: CUstream) -> Res<u64> {
    let key = state.stream_key(context, stream)?;
    let owner = state.stream_context(key)?;
    state.check_failed(owner)?;
    capture::eager_only(state, key)?;
    Ok(owner)
}

pub(crate) fn upload(exec: CUgraphExec, stream: CUstream) -> Res {
    with_context(|state, _, context| {
        find(state, exec)?;
        eager_stream(state, context, stream).map(|_| ())
    })
}

pub(crate) fn launch(exec: CUgraphExec, stream: CUstream) -> Res {
    let turn = with_context(|state, _, _| Ok(Arc::clone(&find(state, exec)?.turn)))?;
    let _turn = lock(&turn);
    // Which memory a graph may allocate depends on what was freed in front of it.
    let before = with_context(|state, _, context| {
        let uses_memory = find(state, exec)?.plan.nodes.iter().any(|n| matches!(n.op, Op::Alloc(_) | Op::Free(..)));
        let key = state.stream_key(context, stream)?;
        Ok(if uses_memory { state.queue.before(state.lane(key)) } else { Vec::new() })
    })?;
    engine()?.wait(&before);
    let now = with_context(|state, software, context| {
        let found = find(state, exec)?;
        let (plan, automatic_free) = (Arc::clone(&found.plan), found.flags & AUTO_FREE_ON_LAUNCH != 0);
        let mut before = found.last.clone();
        let owner = eager_stream(state, context, stream)?;
        graph_allocations::check_launch(state, plan.nodes.iter().map(|n| &n.op), automatic_free)?;
        let key = state.stream_key(context, stream)?;
        let batch = batch(state, software, &plan, key)?;
        before.extend(state.queue.before(batch.lane));
        before.retain(|t| !state.queue.is_done(*t));
        if before.is_empty() {
            return Ok(Some(batch));
        }
        worker::ensure(state, software, owner)?;
        let last = state.put(batch, 0, &before, &Caller::here());
        software.changed.notify_all();
        note(state, exec, last);
        Ok(None)
    })?;
    let Some(batch) = now else { return Ok(()) };
    let last = issue::inline(batch)?;
    with(|state, _| {
        note(state, exec, last);
        Ok(())
    })
}

/// Keeps the tasks of a launch for the next one.
fn note(state: &mut State, exec: CUgraphExec, last: Vec<Ticket>) {
    if let Some(exec) = state.execs.get_mut(&exec.id()) {
        exec.last = last;
    }
}

/// The nodes of a plan as a stream runs them.
fn batch(state: &mut State, software: &'static Software, plan: &Plan, key: StreamKey) -> Res<Batch> {
    let mut flat = Vec::with_capacity(plan.order.len());
    flatten(plan, &[], &mut flat);
    let orderings = match state.checks.is_some() {
        true => {
            let nodes: Vec<_> = flat
                .iter()
                .map(|(op, deps)| (issue::describe(state, op), issue::follows(state, op), deps.clone()))
                .collect();
            state.issue_graph(key, &nodes)
        }
        false => Vec::new(),
    };
    let count = flat.len();
    let mut nodes = Vec::with_capacity(count);
    for (at, (op, deps)) in flat.into_iter().enumerate() {
        let mut steps = Vec::new();
        if let Err(code) = issue::prepare(state, software, &op, &mut steps) {
            report(format!(
                "graph launch: node {at} of {count} refers to a kernel, context or event that no longer exists; keep what a \
                 graph uses alive as long as the graph"
            ));
            return Err(code);
        }
        let todos = steps.into_iter().map(|step| Todo { step, ordering: orderings.get(at).cloned() });
        nodes.push(BatchNode { rest: Rest::of(todos), deps, events: issue::event_tickets(state, &op) });
    }
    Ok(Batch { lane: state.lane(key), nodes })
}

/// The operations of a plan in order, each with the places of those it depends on, child graphs in place of their nodes;
/// what has no dependency depends on `entry`. The answer is the places of those that nothing depends on.
fn flatten(plan: &Plan, entry: &[usize], out: &mut Vec<(Op, Vec<usize>)>) -> Vec<usize> {
    // Where each node ends: itself, or the last of a child graph's.
    let mut ends: Vec<Vec<usize>> = vec![Vec::new(); plan.nodes.len()];
    let mut has_dependents = vec![false; plan.nodes.len()];
    for at in &plan.order {
        let Some(node) = plan.nodes.get(*at) else { continue };
        let mut deps: Vec<usize> = Vec::new();
        for dep in &node.deps {
            deps.extend(ends.get(*dep).into_iter().flatten());
            if let Some(seen) = has_dependents.get_mut(*dep) {
                *seen = true;
            }
        }
        if node.deps.is_empty() {
            deps.extend(entry);
        }
        let child = match &node.op {
            Op::Child(graph) if node.enabled => Plan::of(graph),
            _ => None,
        };
        let end = match child {
            Some(child) if !child.nodes.is_empty() => flatten(&child, &deps, out),
            _ => {
                let op = if node.enabled && !matches!(node.op, Op::Child(_)) { node.op.clone() } else { Op::Empty };
                out.push((op, deps));
                vec![out.len() - 1]
            }
        };
        if let Some(place) = ends.get_mut(*at) {
            *place = end;
        }
    }
    let last = ends.into_iter().zip(has_dependents).filter(|(_, followed)| !followed);
    last.flat_map(|(end, _)| end).collect()
}

/// Takes the parameters of a graph of the same shape.
fn update_plan(exec: CUgraphExec, graph: CUgraph) -> Result<(), (i32, CUgraphNode)> {
    let mut outcome = Err((ERROR, CUgraphNode::NULL));
    let done = with_context(|state, _, _| {
        let new = Plan::of(graphs::find(state, graph)?);
        let old = Arc::clone(&find(state, exec)?.plan);
        outcome = merge(state, &old, new);
        Ok(())
    });
    if done.is_err() {
        return Err((ERROR, CUgraphNode::NULL));
    }
    let merged = outcome?;
    with(|state, _| {
        state.execs.get_mut(&exec.id()).ok_or(Code::INVALID_VALUE)?.plan = Arc::new(merged);
        Ok(())
    })
    .map_err(|_| (ERROR, CUgraphNode::NULL))
}

fn merge(state: &State, old: &Plan, new: Option<Plan>) -> Result<Plan, (i32, CUgraphNode)> {
    let new = new.ok_or((ERROR, CUgraphNode::NULL))?;
    if old.nodes.len() != new.nodes.len() {
        return Err((TOPOLOGY_CHANGED, CUgraphNode::NULL));
    }
    let mut merged = old.clone();
    for (to, from) in merged.nodes.iter_mut().zip(&new.nodes) {
        let at = CUgraphNode::from_id(from.id);
        if to.deps != from.deps {
            return Err((TOPOLOGY_CHANGED, at));
        }
        if to.op.node_type() != from.op.node_type() {
            return Err((NODE_TYPE_CHANGED, at));
        }
        compatible(state, &to.op, &from.op).map_err(|why| (why, at))?;
        to.op = from.op.clone();
    }
    Ok(merged)
}

/// Whether an instantiated node may take another's parameters.
fn compatible(state: &State, old: &Op, new: &Op) -> Result<(), i32> {
    match (old, new) {
        (Op::Kernel(a), Op::Kernel(b)) => {
            let context = |f: u64| state.functions.get(&f).map(|f| f.context);
            match (context(a.function), context(b.function)) {
                (_, None) => Err(ERROR),
                (Some(x), Some(y)) if x != y => Err(UNSUPPORTED_FUNCTION_CHANGE),
                _ => Ok(()),
            }
        }
        (Op::Copy(a), Op::Copy(b)) => {
            let same = a.src.device == b.src.device && a.dst.device == b.dst.device;
            if same { Ok(()) } else { Err(PARAMETERS_CHANGED) }
        }
        (Op::Fill(a), Op::Fill(b)) if a.device != b.device => Err(PARAMETERS_CHANGED),
        (Op::Alloc(_), _) | (Op::Free(..), _) => Err(PARAMETERS_CHANGED),
        (Op::Child(a), Op::Child(b)) => {
            let plans = Plan::of(a).zip(Plan::of(b));
            let (a, b) = plans.ok_or(ERROR)?;
            merge(state, &a, Some(b)).map(|_| ()).map_err(|(why, _)| why)
        }
        _ => Ok(()),
    }
}

pub(crate) fn update(exec: CUgraphExec, graph: CUgraph, error_node: Out<CUgraphNode>, result: Out<i32>) -> Res {
    check_handles(exec, graph)?;
    let outcome = update_plan(exec, graph);
    let (code, node) = outcome.err().unwrap_or((SUCCESS, CUgraphNode::NULL));
    error_node.set_if_asked(node);
    result.set_if_asked(code);
    if code == SUCCESS { Ok(()) } else { Err(Code::GRAPH_EXEC_UPDATE_FAILURE) }
}

pub(crate) fn update_v2(exec: CUgraphExec, graph: CUgraph, info: Out<GraphExecUpdateResultInfo>) -> Res {
    check_handles(exec, graph)?;
    let outcome = update_plan(exec, graph);
    let (result, error_node) = outcome.err().unwrap_or((SUCCESS, CUgraphNode::NULL));
    info.set_if_asked(GraphExecUpdateResultInfo { result, error_node, error_from_node: CUgraphNode::NULL });
    if result == SUCCESS { Ok(()) } else { Err(Code::GRAPH_EXEC_UPDATE_FAILURE) }
}

fn check_handles(exec: CUgraphExec, graph: CUgraph) -> Res {
    with_context(|state, _, _| {
        find(state, exec)?;
        if graphs::find(state, graph)?.capturing { Err(Code::INVALID_VALUE) } else { Ok(()) }
    })
}

/// Replaces an instantiated node's operation by a compatible one. The node is named by its handle
/// in the graph that was instantiated.
pub(crate) fn set(exec: CUgraphExec, node: CUgraphNode, op: impl FnOnce(&mut State, &Software) -> Res<Op>) -> Res {
    with_context(|state, software, _| {
        let plan = Arc::clone(&find(state, exec)?.plan);
        let at = place_of(&plan, node)?;
        let op = op(state, software)?;
        let old = plan.nodes.get(at).map(|n| &n.op).ok_or(Code::INVALID_VALUE)?;
        if old.node_type() != op.node_type() || compatible(state, old, &op).is_err() {
            return Err(Code::INVALID_VALUE);
        }
        drop(plan);
        let exec = state.execs.get_mut(&exec.id()).ok_or(Code::INVALID_VALUE)?;
        if let Some(planned) = Arc::make_mut(&mut exec.plan).nodes.get_mut(at) {
            planned.op = op;
        }
        Ok(())
    })
}

fn place_of(plan: &Plan, node: CUgraphNode) -> Res<usize> {
    plan.nodes.iter().position(|n| n.id == node.id()).ok_or(Code::INVALID_VALUE)
}

/// Kernels, copies and fills can be switched off and on.
fn switchable(op: &Op) -> Res {
    if matches!(op, Op::Kernel(_) | Op::Copy(_) | Op::Fill(_)) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

pub(crate) fn set_enabled(exec: CUgraphExec, node: CUgraphNode, enabled: u32) -> Res {
    with_context(|state, _, _| {
        let at = place_of(&find(state, exec)?.plan, node)?;
        let exec = state.execs.get_mut(&exec.id()).ok_or(Code::INVALID_VALUE)?;
        let planned = Arc::make_mut(&mut exec.plan).nodes.get_mut(at).ok_or(Code::INVALID_VALUE)?;
        switchable(&planned.op)?;
        planned.enabled = enabled != 0;
        Ok(())
    })
}

pub(crate) fn get_enabled(exec: CUgraphExec, node: CUgraphNode, enabled: Out<u32>) -> Res {
    with_context(|state, _, _| {
        let plan = &find(state, exec)?.plan;
        let planned = plan.nodes.get(place_of(plan, node)?).ok_or(Code::INVALID_VALUE)?;
        switchable(&planned.op)?;
        enabled.set(u32::from(planned.enabled))
    })
}

pub(crate) fn set_child(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) -> Res {
    set(exec, node, |s, _| Ok(Op::Child(Arc::new(graphs::find(s, child)?.clone()))))
}

pub(crate) fn set_event_record(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> Res {
    set(exec, node, |s, _| nodes::event_op(s, event, Op::EventRecord))
}

pub(crate) fn set_event_wait(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> Res {
    set(exec, node, |s, _| nodes::event_op(s, event, Op::EventWait))
}

pub(crate) fn set_kernel(exec: CUgraphExec, node: CUgraphNode, p: In<KernelNodeParams>) -> Res {
    let p = p.get()?;
    set(exec, node, |s, w| nodes::kernel_op(s, w, &p).map(Op::Kernel))
}

pub(crate) fn set_kernel_v2(exec: CUgraphExec, node: CUgraphNode, p: In<KernelNodeParamsV2>) -> Res {
    let p = nodes::narrow(p)?;
    set(exec, node, |s, w| nodes::kernel_op(s, w, &p).map(Op::Kernel))
}

pub(crate) fn set_memcpy(exec: CUgraphExec, node: CUgraphNode, p: In<Memcpy3D>, context: CUcontext) -> Res {
    let p = p.get()?;
    set(exec, node, |s, w| nodes::not_empty(copy::of_3d(s, w, nodes::context_or_current(s, context)?, &p)?))
}

pub(crate) fn set_memset(exec: CUgraphExec, node: CUgraphNode, p: In<MemsetNodeParams>, context: CUcontext) -> Res {
    let p = p.get()?;
    set(exec, node, |s, w| nodes::not_empty(fill::of_params(s, w, nodes::context_or_current(s, context)?, &p)?))
}

pub(crate) fn set_host(exec: CUgraphExec, node: CUgraphNode, p: In<HostNodeParams>) -> Res {
    let op = nodes::host_op(&p.get()?)?;
    set(exec, node, |_, _| Ok(op))
}
