//! Nodes of graphs: made, read and changed by kind.

use std::ffi::c_void;
use std::sync::Arc;

use crate::arg::{In, Out, Raw};
use crate::codes::{Code, Res};
use crate::software::functions::{copy, fill, launch, library, objects};
use crate::software::tables::{
    graph_allocations, graphs,
    ops::{HostCall, HostFunction, Kernel, Op},
    software::{Software, with},
    state::State,
};
use crate::types::*;

/// Reads what a new node depends on, makes its operation, and adds it.
fn add(
    node: Out<CUgraphNode>,
    to: CUgraph,
    deps: In<CUgraphNode>,
    count: usize,
    make: impl FnOnce(&mut State, &Software) -> Res<Op>,
) -> Res {
    node.check()?;
    let deps = deps.list(count)?;
    with(|state, software| {
        graphs::find(state, to)?;
        let op = make(state, software)?;
        node.set(graphs::add(state, to, &deps, op)?)
    })
}

/// The operation of kernel parameters, checked as a launch is: a grid without blocks answers `CUDA_ERROR_INVALID_VALUE` when
/// the node is added or changed, as it does when it is launched. Programs that run on NVIDIA's driver count with that and
/// put an empty node in its place (Kokkos: `create_parallel_launch_graph_node`).
pub(crate) fn kernel_op(state: &mut State, software: &Software, p: &KernelNodeParams) -> Res<Kernel> {
    // SAFETY: the caller of the API vouches for the lists of arguments that its structure names.
    let (list, extra): (Out<*mut c_void>, Out<*mut c_void>) = unsafe { (p.kernel_params.wrap(), p.extra.wrap()) };
    let function = match state.kernels.contains_key(&p.func.id()) {
        true => library::resolve(state, software, state.usable_context()?, p.func)?,
        false => p.func,
    };
    launch::checked(state, software, function, p.grid, p.block, p.shared_mem_bytes, list.input(), extra.input())
}

/// Version 2 adds a library's kernel, and the context in which it is a function.
pub(crate) fn narrow(p: In<KernelNodeParamsV2>) -> Res<KernelNodeParams> {
    let p = p.get()?;
    with(|state, software| narrow_in(state, software, &p))
}

pub(crate) fn narrow_in(state: &mut State, software: &Software, p: &KernelNodeParamsV2) -> Res<KernelNodeParams> {
    if p.v1.func != CUfunction::NULL || p.kern.is_null() {
        return Ok(p.v1);
    }
    let context = context_or_current(state, p.ctx)?;
    let func = library::function_in(state, software, context, CUkernel(p.kern))?;
    Ok(KernelNodeParams { func: CUfunction::from_id(func), ..p.v1 })
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
    with(|state, _| match &graphs::node(state, node)?.op {
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
fn set(node: CUgraphNode, kind: i32, make: impl FnOnce(&mut State, &Software) -> Res<Op>) -> Res {
    with(|state, software| {
        if graphs::node(state, node)?.op.node_type() != kind {
            return Err(Code::INVALID_VALUE);
        }
        let op = make(state, software)?;
        graphs::node_mut(state, node)?.op = op;
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
pub(crate) fn context_or_current(state: &State, context: CUcontext) -> Res<u64> {
    if context == CUcontext::NULL {
        return state.usable_context();
    }
    state.live_context(context.id()).map_err(|_| Code::INVALID_CONTEXT)?;
    Ok(context.id())
}

/// A copy or fill of nothing is no copy or fill node.
pub(crate) fn not_empty(op: Op) -> Res<Op> {
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
    with(|state, _| match &graphs::node(state, node)?.op {
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
    with(|state, _| match &graphs::node(state, node)?.op {
        Op::Fill(f) => p.set(fill::to_params(f)),
        _ => Err(Code::INVALID_VALUE),
    })
}

pub(crate) fn set_memset(node: CUgraphNode, p: In<MemsetNodeParams>) -> Res {
    let p = p.get()?;
    set(node, 2, |s, w| not_empty(fill::of_params(s, w, s.usable_context()?, &p)?))
}

pub(crate) fn host_op(p: &HostNodeParams) -> Res<Op> {
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
    with(|state, _| match &graphs::node(state, node)?.op {
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
    add(node, to, deps, count, |s, _| if child == to { Err(Code::INVALID_VALUE) } else { child_op(s, child, Some(to)) })
}

/// A copy of a graph as it is now, for a node of `to`; what happens to the graph later does not reach it.
pub(crate) fn child_op(state: &mut State, child: CUgraph, to: Option<CUgraph>) -> Res<Op> {
    let child = graphs::find(state, child)?;
    if child.capturing || graph_allocations::uses_memory(child) {
        return Err(Code::INVALID_VALUE);
    }
    let copy = Arc::new(child.clone());
    if let Some(to) = to {
        objects::share(state, &copy.objects);
        let objects = &mut graphs::find_mut(state, to)?.objects;
        for (object, count) in &copy.objects {
            *objects.entry(*object).or_insert(0) += count;
        }
    }
    Ok(Op::Child(copy))
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

pub(crate) fn get_event_record(node: CUgraphNode, event: Out<CUevent>) -> Res {
    with(|state, _| match &graphs::node(state, node)?.op {
        Op::EventRecord(id) => event.set(CUevent::from_id(*id)),
        _ => Err(Code::INVALID_VALUE),
    })
}

pub(crate) fn get_event_wait(node: CUgraphNode, event: Out<CUevent>) -> Res {
    with(|state, _| match &graphs::node(state, node)?.op {
        Op::EventWait(id) => event.set(CUevent::from_id(*id)),
        _ => Err(Code::INVALID_VALUE),
    })
}

/// The operation of an event node, if there is such an event.
pub(crate) fn event_op(state: &State, event: CUevent, make: fn(u64) -> Op) -> Res<Op> {
    state.events.get(&event.id()).map(|_| make(event.id())).ok_or(Code::INVALID_HANDLE)
}

pub(crate) fn set_event_record(node: CUgraphNode, event: CUevent) -> Res {
    set(node, 7, |s, _| event_op(s, event, Op::EventRecord))
}

pub(crate) fn set_event_wait(node: CUgraphNode, event: CUevent) -> Res {
    set(node, 6, |s, _| event_op(s, event, Op::EventWait))
}

fn kernel_mut(state: &mut State, node: CUgraphNode) -> Res<&mut Kernel> {
    match &mut graphs::node_mut(state, node)?.op {
        Op::Kernel(kernel) => Ok(kernel),
        _ => Err(Code::INVALID_VALUE),
    }
}

pub(crate) fn get_attribute(node: CUgraphNode, attribute: u32, value: Out<c_void>) -> Res {
    with(|state, _| {
        let set = kernel_mut(state, node)?.attributes.get(&attribute).copied();
        value.cast::<[u32; 16]>().set(set.unwrap_or([0; 16]))
    })
}

pub(crate) fn set_attribute(node: CUgraphNode, attribute: u32, value: In<c_void>) -> Res {
    let value: In<[u32; 16]> = value.cast();
    let value = value.get()?;
    // Access window, cooperative, cluster of one block, priority, memory domains.
    match (attribute, value) {
        (1 | 2 | 8 | 9 | 10, _) | (4, [1, 1, 1, ..]) => {}
        _ => return Err(Code::NOT_SUPPORTED),
    }
    with(|state, _| {
        kernel_mut(state, node)?.attributes.insert(attribute, value);
        Ok(())
    })
}

pub(crate) fn copy_attributes(to: CUgraphNode, from: CUgraphNode) -> Res {
    with(|state, _| {
        let attributes = kernel_mut(state, from)?.attributes.clone();
        kernel_mut(state, to)?.attributes = attributes;
        Ok(())
    })
}
