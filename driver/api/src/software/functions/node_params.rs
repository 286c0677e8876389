//! Nodes of any kind through one structure, `CUgraphNodeParams`: the kind, then 232 bytes that mean
//! what the kind says.

use crate::arg::{In, Out, Raw};
use crate::codes::{Code, Res};
use crate::software::functions::{
    copy, exec, fill, graph,
    graph_memory::{self, AllocParams},
    nodes,
};
use crate::software::tables::{
    graph_allocations, graphs,
    ops::Op,
    software::{Software, with},
    state::State,
};
use crate::types::*;

/// `CUDA_EVENT_RECORD_NODE_PARAMS` and its kin: one handle first.
type RawHandle = u64;

/// Reads the parameters of a kind.
fn payload<T: Copy>(p: &GraphNodeParams) -> T {
    const { assert!(size_of::<T>() <= size_of::<[u64; 29]>() && align_of::<T>() <= 8) };
    // SAFETY: `T` is one of the API's C structures, no larger than the area; every field of it is an integer, a raw
    // pointer or an `Option` of a function pointer that the caller of the API vouches for.
    unsafe { std::ptr::from_ref(&p.parameters).cast::<T>().read() }
}

fn store<T: Copy>(p: &mut GraphNodeParams, value: T) {
    const { assert!(size_of::<T>() <= size_of::<[u64; 29]>() && align_of::<T>() <= 8) };
    // SAFETY: as in `payload`: the area is large and aligned enough.
    unsafe { std::ptr::from_mut(&mut p.parameters).cast::<T>().write(value) }
}

/// The operation that a structure describes. An allocation's address is answered in it.
fn op(state: &mut State, software: &Software, p: &mut GraphNodeParams) -> Res<Op> {
    match p.kind {
        0 => {
            let kernel: KernelNodeParamsV2 = payload(p);
            let kernel = nodes::narrow_in(state, software, &kernel)?;
            nodes::kernel_op(state, software, &kernel).map(Op::Kernel)
        }
        1 => {
            let m: MemcpyNodeParams = payload(p);
            if m.flags != 0 {
                return Err(Code::INVALID_VALUE);
            }
            let context = nodes::context_or_current(state, m.context)?;
            nodes::not_empty(copy::of_3d(state, software, context, &m.copy)?)
        }
        2 => {
            let m: MemsetNodeParamsV2 = payload(p);
            let context = nodes::context_or_current(state, m.context)?;
            nodes::not_empty(fill::of_params(state, software, context, &m.v1)?)
        }
        3 => nodes::host_op(&payload(p)),
        4 => nodes::child_op(state, CUgraph::from_id(payload::<RawHandle>(p)), None),
        5 => Ok(Op::Empty),
        6 => nodes::event_op(state, CUevent::from_id(payload::<RawHandle>(p)), Op::EventWait),
        7 => nodes::event_op(state, CUevent::from_id(payload::<RawHandle>(p)), Op::EventRecord),
        10 => {
            let mut alloc: AllocParams = payload(p);
            let op = graph_memory::alloc_op(software, &mut alloc)?;
            store(p, alloc);
            Ok(op)
        }
        11 => graph_allocations::free_op(state, payload(p)),
        // External semaphores, batches, conditions: not here.
        8 | 9 | 12..=32 => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn read(place: Out<GraphNodeParams>) -> Res<GraphNodeParams> {
    let p = place.get()?;
    if p.reserved0 != [0; 3] || p.reserved2 != 0 { Err(Code::INVALID_VALUE) } else { Ok(p) }
}

pub(crate) fn add(
    node: Out<CUgraphNode>,
    to: CUgraph,
    deps: In<CUgraphNode>,
    count: usize,
    place: Out<GraphNodeParams>,
) -> Res {
    // SAFETY: null is a list without data.
    let none: In<GraphEdgeData> = unsafe { std::ptr::null::<GraphEdgeData>().wrap() };
    add_v2(node, to, deps, none, count, place)
}

pub(crate) fn add_v2(
    node: Out<CUgraphNode>,
    to: CUgraph,
    deps: In<CUgraphNode>,
    edges: In<GraphEdgeData>,
    count: usize,
    place: Out<GraphNodeParams>,
) -> Res {
    node.check()?;
    graph::ordinary(edges, count)?;
    let deps = deps.list(count)?;
    let mut p = read(place)?;
    with(|state, software| {
        graphs::find(state, to)?;
        if p.kind == 4 && payload::<RawHandle>(&p) == to.id() {
            return Err(Code::INVALID_VALUE);
        }
        let op = match p.kind {
            4 => nodes::child_op(state, CUgraph::from_id(payload::<RawHandle>(&p)), Some(to))?,
            _ => op(state, software, &mut p)?,
        };
        let allocates = matches!(op, Op::Alloc(_));
        node.set(graphs::add(state, to, &deps, op)?)?;
        if allocates { place.set(p) } else { Ok(()) }
    })
}

pub(crate) fn set(node: CUgraphNode, place: Out<GraphNodeParams>) -> Res {
    let mut p = read(place)?;
    with(|state, software| {
        let kind = graphs::node(state, node)?.op.node_type();
        // What a node allocates or frees is fixed with it.
        if kind != p.kind || matches!(kind, 10 | 11) {
            return Err(Code::INVALID_VALUE);
        }
        let op = op(state, software, &mut p)?;
        graphs::node_mut(state, node)?.op = op;
        Ok(())
    })
}

pub(crate) fn set_in_exec(exec: CUgraphExec, node: CUgraphNode, place: Out<GraphNodeParams>) -> Res {
    let mut p = read(place)?;
    if matches!(p.kind, 10 | 11) {
        return Err(Code::INVALID_VALUE);
    }
    exec::set(exec, node, |state, software| op(state, software, &mut p))
}
