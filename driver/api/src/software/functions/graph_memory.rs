//! Allocation and free nodes. The address of an allocation node is fixed when the node is made; the
//! memory behind it belongs to the graph and its executable copies, and to whoever has it after a
//! launch that allocated and did not free. Between those times it stays mapped, filled with poison.

use std::ffi::c_void;

use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::software::rules::capture;
use crate::software::tables::{
    graph_allocations, graphs,
    objects::StreamKey,
    ops::{GraphAllocation, Op},
    software::{Software, engine, with, with_context},
    state::State,
};
use crate::types::*;

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AllocParams {
    pool: MemPoolProps,
    access: *const MemAccessDesc,
    access_count: usize,
    bytes: usize,
    address: CUdeviceptr,
}

pub(crate) fn alloc_op(software: &Software, p: &mut AllocParams) -> Res<Op> {
    // Pinned memory of a device; the other devices' access is theirs to enable.
    if p.pool.alloc_type != 1 || p.pool.location.kind != 1 {
        return Err(Code::INVALID_VALUE);
    }
    if p.pool.handle_types != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    let allocation = graph_allocations::reserve(software, p.pool.location.id, p.bytes)?;
    p.address = allocation.address;
    Ok(Op::Alloc(allocation))
}

fn alloc_params(allocation: &GraphAllocation) -> AllocParams {
    AllocParams {
        pool: MemPoolProps {
            alloc_type: 1,
            handle_types: 0,
            location: MemLocation { kind: 1, id: allocation.device.ordinal },
            win32_security_attributes: std::ptr::null_mut(),
            reserved: [0; 64],
        },
        access: std::ptr::null(),
        access_count: 0,
        bytes: allocation.bytes as usize,
        address: allocation.address,
    }
}

pub(crate) fn add_alloc(
    node: Out<CUgraphNode>,
    to: CUgraph,
    deps: In<CUgraphNode>,
    count: usize,
    p: Out<c_void>,
) -> Res {
    node.check()?;
    let place = p.cast::<AllocParams>();
    let mut p = place.get()?;
    let deps = deps.list(count)?;
    with(|state, software| {
        graphs::find(state, to)?;
        let op = alloc_op(software, &mut p)?;
        node.set(graphs::add(state, to, &deps, op)?)?;
        place.set(p)
    })
}

pub(crate) fn get_alloc(node: CUgraphNode, p: Out<c_void>) -> Res {
    with(|state, _| match &graphs::node(state, node)?.op {
        Op::Alloc(a) => p.cast::<AllocParams>().set(alloc_params(a)),
        _ => Err(Code::INVALID_VALUE),
    })
}

pub(crate) fn add_free(
    node: Out<CUgraphNode>,
    to: CUgraph,
    deps: In<CUgraphNode>,
    count: usize,
    address: CUdeviceptr,
) -> Res {
    node.check()?;
    let deps = deps.list(count)?;
    with(|state, _| {
        graphs::find(state, to)?;
        let op = graph_allocations::free_op(state, address)?;
        node.set(graphs::add(state, to, &deps, op)?)
    })
}

pub(crate) fn get_free(node: CUgraphNode, address: Out<CUdeviceptr>) -> Res {
    with(|state, _| match &graphs::node(state, node)?.op {
        Op::Free(_, a) => address.set(*a),
        _ => Err(Code::INVALID_VALUE),
    })
}

/// Gives back what graphs keep for later: nothing, since their memory goes with them.
pub(crate) fn trim(device: CUdevice) -> Res {
    engine()?.device(device).map(|_| ())
}

/// Bytes in use (0, 1) and reserved (2, 3), now and at most.
pub(crate) fn get_attribute(device: CUdevice, attribute: i32, value: Out<c_void>) -> Res {
    with_context(|state, software, _| {
        software.device(device)?;
        if !(0..=3).contains(&attribute) {
            return Err(Code::INVALID_VALUE);
        }
        let used: u64 = state.graph_memory.values().filter(|a| a.device.ordinal == device).map(|a| a.bytes).sum();
        value.cast::<u64>().set(used)
    })
}

pub(crate) fn captured_alloc(
    state: &mut State,
    software: &Software,
    capture: u64,
    key: StreamKey,
    device: i32,
    bytes: usize,
) -> Res<u64> {
    let allocation = graph_allocations::reserve(software, device, bytes)?;
    let address = allocation.address;
    capture::add(state, capture, key, Op::Alloc(allocation))?;
    Ok(address)
}
