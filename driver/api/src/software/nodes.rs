//! Nodes of graphs: made, read and changed by kind.

use std::ffi::c_void;
use std::sync::Arc;

use super::ops::{HostCall, HostFunction, Kernel, Op};
use super::state::State;
use super::{Software, copy, fill, graph, launch, with};
use crate::arg::{In, Out, Raw};
use crate::codes::{Code, Res};
use crate::types::*;

/// Reads what a new node depends on, makes its operation, and adds it.
fn add(
    node: Out<CUgraphNode>,
    to: CUgraph,
    deps: In<CUgraphNode>,
    count: usize,
    make: impl FnOnce(&State, &Software) -> Res<Op>,
) -> Res {
    node.check()?;
    let deps = deps.list(count)?;
    with(|state, software| {
        graph::find(state, to)?;
        let op = make(state, software)?;
        node.set(graph::add(state, to, &deps, op)?)
    })
}

/// The operation of kernel parameters, checked as a launch is.
pub(super) fn kernel_op(state: &State, software: &Software, p: &KernelNodeParams) -> Res<Kernel> {
    // SAFETY: the caller of the API vouches for the lists of arguments that its structure names.
    let (list, extra): (Out<*mut c_void>, Out<*mut c_void>) = unsafe { (p.kernel_params.wrap(), p.extra.wrap()) };
    launch::checked(state, software, p.func, p.grid, p.block, p.shared_mem_bytes, list.input(), extra.input())
}

/// Version 2 adds a kernel handle, which this driver does not have.
pub(super) fn narrow(p: In<KernelNodeParamsV2>) -> Res<KernelNodeParams> {
    let p = p.get()?;
    if p.v1.func == CUfunction::NULL && !p.kern.is_null() { Err(Code::NOT_SUPPORTED) } else { Ok(p.v1) }
}

pub(crate) fn add_kernel(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    deps: In<CUgraphNode>,
    count: usize,
    p: In<KernelNodeParams>,
) -> Res {
    let p = p.get()?;
    add(node, graph, deps, count, |s, w| kernel_op(s, w, &p).map(Op::Kernel))
}

pub(crate) fn add_kernel_v2(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    deps: In<CUgraphNode>,
    count: usize,
    p: In<KernelNodeParamsV2>,
) -> Res {
    let p = narrow(p)?;
    add(node, graph, deps, count, |s, w| kernel_op(s, w, &p).map(Op::Kernel))
}

fn kernel_params(node: CUgraphNode) -> Res<KernelNodeParams> {
    with(|state, _| match &graph::node(state, node)?.op {
        Op::Kernel(k) => Ok(KernelNodeParams {
            func: CUfunction::from_id(k.function),
            grid: k.grid,
            block: k.block,
            shared_mem_bytes: k.shared,
            kernel_params: k.params.list(),
            extra: std::ptr::null_mut(),
        }),
        _ => Err(Code::INVALID_VALUE),
    })
}

pub(crate) fn get_kernel(node: CUgraphNode, p: Out<KernelNodeParams>) -> Res {
    p.set(kernel_params(node)?)
}

pub(crate) fn get_kernel_v2(node: CUgraphNode, p: Out<KernelNodeParamsV2>) -> Res {
    let v1 = kernel_params(node)?;
    p.set(KernelNodeParamsV2 { v1, kern: std::ptr::null_mut(), ctx: CUcontext::NULL })
}

/// Replaces a node's operation by one of the same kind.
fn set(node: CUgraphNode, kind: i32, make: impl FnOnce(&State, &Software) -> Res<Op>) -> Res {
    with(|state, software| {
        if graph::node(state, node)?.op.node_type() != kind {
            return Err(Code::INVALID_VALUE);
        }
        let op = make(state, software)?;
        graph::node_mut(state, node)?.op = op;
        Ok(())
    })
}

pub(crate) fn set_kernel(node: CUgraphNode, p: In<KernelNodeParams>) -> Res {
    let p = p.get()?;
    set(node, 0, |s, w| kernel_op(s, w, &p).map(Op::Kernel))
}

pub(crate) fn set_kernel_v2(node: CUgraphNode, p: In<KernelNodeParamsV2>) -> Res {
    let p = narrow(p)?;
    set(node, 0, |s, w| kernel_op(s, w, &p).map(Op::Kernel))
}

/// The context that a copy or fill node names, or the thread's.
pub(super) fn context_or_current(state: &State, context: CUcontext) -> Res<u64> {
    if context == CUcontext::NULL {
        return state.usable_context();
    }
    state.live_context(context.id()).map_err(|_| Code::INVALID_CONTEXT)?;
    Ok(context.id())
}

/// A copy or fill of nothing is no copy or fill node.
pub(super) fn not_empty(op: Op) -> Res<Op> {
    if matches!(op, Op::Empty) { Err(Code::INVALID_VALUE) } else { Ok(op) }
}

pub(crate) fn add_memcpy(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    deps: In<CUgraphNode>,
    count: usize,
    p: In<Memcpy3D>,
    context: CUcontext,
) -> Res {
    let p = p.get()?;
    add(node, graph, deps, count, |s, w| not_empty(copy::of_3d(s, w, context_or_current(s, context)?, &p)?))
}

pub(crate) fn get_memcpy(node: CUgraphNode, p: Out<Memcpy3D>) -> Res {
    with(|state, _| match &graph::node(state, node)?.op {
        Op::Copy(c) => p.set(copy::to_3d(c)),
        _ => Err(Code::INVALID_VALUE),
    })
}

pub(crate) fn set_memcpy(node: CUgraphNode, p: In<Memcpy3D>) -> Res {
    let p = p.get()?;
    set(node, 1, |s, w| not_empty(copy::of_3d(s, w, s.usable_context()?, &p)?))
}

pub(crate) fn add_memset(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    deps: In<CUgraphNode>,
    count: usize,
    p: In<MemsetNodeParams>,
    context: CUcontext,
) -> Res {
    let p = p.get()?;
    add(node, graph, deps, count, |s, w| not_empty(fill::of_params(s, w, context_or_current(s, context)?, &p)?))
}

pub(crate) fn get_memset(node: CUgraphNode, p: Out<MemsetNodeParams>) -> Res {
    with(|state, _| match &graph::node(state, node)?.op {
        Op::Fill(f) => p.set(fill::to_params(f)),
        _ => Err(Code::INVALID_VALUE),
    })
}

pub(crate) fn set_memset(node: CUgraphNode, p: In<MemsetNodeParams>) -> Res {
    let p = p.get()?;
    set(node, 2, |s, w| not_empty(fill::of_params(s, w, s.usable_context()?, &p)?))
}

pub(super) fn host_op(p: &HostNodeParams) -> Res<Op> {
    let function = HostFunction::Plain(p.function.ok_or(Code::INVALID_VALUE)?);
    Ok(Op::Host(HostCall { function, user_data: p.user_data.expose_provenance() }))
}

pub(crate) fn add_host(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    deps: In<CUgraphNode>,
    count: usize,
    p: In<HostNodeParams>,
) -> Res {
    let op = host_op(&p.get()?)?;
    add(node, graph, deps, count, |_, _| Ok(op))
}

pub(crate) fn get_host(node: CUgraphNode, p: Out<HostNodeParams>) -> Res {
    with(|state, _| match &graph::node(state, node)?.op {
        Op::Host(HostCall { function: HostFunction::Plain(f), user_data }) => {
            p.set(HostNodeParams { function: Some(*f), user_data: std::ptr::with_exposed_provenance_mut(*user_data) })
        }
        _ => Err(Code::INVALID_VALUE),
    })
}

pub(crate) fn set_host(node: CUgraphNode, p: In<HostNodeParams>) -> Res {
    let op = host_op(&p.get()?)?;
    set(node, 3, |_, _| Ok(op))
}

pub(crate) fn add_empty(node: Out<CUgraphNode>, graph: CUgraph, deps: In<CUgraphNode>, count: usize) -> Res {
    add(node, graph, deps, count, |_, _| Ok(Op::Empty))
}

pub(crate) fn add_child(
    node: Out<CUgraphNode>,
    to: CUgraph,
    deps: In<CUgraphNode>,
    count: usize,
    child: CUgraph,
) -> Res {
    // A copy as it is now; what happens to the child later does not reach it.
    add(node, to, deps, count, |s, _| {
        if child == to {
            return Err(Code::INVALID_VALUE);
        }
        Ok(Op::Child(Arc::new(graph::find(s, child)?.clone())))
    })
}

pub(crate) fn add_event_record(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    deps: In<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> Res {
    add(node, graph, deps, count, |s, _| {
        s.events.get(&event.id()).map(|_| Op::EventRecord(event.id())).ok_or(Code::INVALID_HANDLE)
    })
}

pub(crate) fn add_event_wait(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    deps: In<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> Res {
    add(node, graph, deps, count, |s, _| {
        s.events.get(&event.id()).map(|_| Op::EventWait(event.id())).ok_or(Code::INVALID_HANDLE)
    })
}
