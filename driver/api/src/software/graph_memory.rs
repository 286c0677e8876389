//! Allocation and free nodes. The address of an allocation node is fixed when the node is made; the
//! memory behind it belongs to the graph and its executable copies, and to whoever has it after a
//! launch that allocated and did not free. Between those times it stays mapped, filled with poison.

use std::ffi::c_void;
use std::sync::Arc;

use warpsmith_simt::POISON;

use super::ops::Op;
use super::state::State;
use super::{Software, capture, engine, graph, memory, with, with_context};
use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::types::*;

/// Memory that nodes of a graph allocate and free.
pub(super) struct GraphAllocation {
    pub device: i32,
    pub address: u64,
    pub bytes: u64,
}

impl Drop for GraphAllocation {
    fn drop(&mut self) {
        if let Ok(device) = engine().and_then(|e| e.device(self.device)) {
            // Allocated by `reserve`, and freed here alone.
            let _ = device.machine.memory().free(self.address);
        }
    }
}

impl GraphAllocation {
    fn poison(&self) {
        if let Ok(device) = engine().and_then(|e| e.device(self.device)) {
            // The whole of a live allocation: nothing to refuse.
            let _ = device.machine.memory().fill(self.address, &[POISON], self.bytes);
        }
    }
}

/// Memory for an allocation node on a device.
pub(super) fn reserve(software: &Software, device: i32, bytes: usize) -> Res<Arc<GraphAllocation>> {
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let memory = software.device(device)?.machine.memory();
    let address = memory.alloc(bytes as u64, memory::ALIGN).map_err(|_| Code::OUT_OF_MEMORY)?;
    Ok(Arc::new(GraphAllocation { device, address, bytes: bytes as u64 }))
}

/// The allocation node that an address belongs to, in any graph.
fn of_address(state: &State, address: u64) -> Option<i32> {
    let nodes = state.graphs.values().flat_map(|g| g.nodes.values());
    nodes
        .filter_map(|n| match &n.op {
            Op::Alloc(a) if a.address == address => Some(a.device),
            _ => None,
        })
        .next()
        .or_else(|| state.graph_memory.keys().find(|(_, a)| *a == address).map(|(device, _)| *device))
}

/// The operation that frees what an allocation node gave.
pub(super) fn free_op(state: &State, address: u64) -> Res<Op> {
    of_address(state, address).map(|device| Op::Free(device, address)).ok_or(Code::INVALID_VALUE)
}

/// Takes a live allocation of a graph out of its owner's hands; the answer says whether it was one.
pub(super) fn give_back(state: &mut State, address: u64) -> bool {
    let key = state.graph_memory.keys().find(|(_, a)| *a == address).copied();
    let gone = key.and_then(|key| state.graph_memory.remove(&key));
    if let Some(gone) = &gone {
        gone.poison();
    }
    gone.is_some()
}

/// An allocation node runs.
pub(super) fn run_alloc(state: &mut State, allocation: Arc<GraphAllocation>) {
    allocation.poison();
    state.graph_memory.insert((allocation.device, allocation.address), allocation);
}

/// A free node runs.
pub(super) fn run_free(state: &mut State, device: i32, address: u64) {
    if let Some(gone) = state.graph_memory.remove(&(device, address)) {
        gone.poison();
    }
}

/// Whether a graph allocates or frees: such a graph is not cloned and is no child.
pub(super) fn uses_memory(graph: &graph::Graph) -> bool {
    graph.nodes.values().any(|n| matches!(n.op, Op::Alloc(_) | Op::Free(..)))
}

/// A launch may allocate only what nobody has; with automatic free it takes that back first.
pub(super) fn check_launch<'a>(state: &mut State, ops: impl Iterator<Item = &'a Op>, automatic_free: bool) -> Res {
    for op in ops {
        if let Op::Alloc(allocation) = op
            && state.graph_memory.contains_key(&(allocation.device, allocation.address))
        {
            if !automatic_free {
                return Err(Code::INVALID_VALUE);
            }
            give_back(state, allocation.address);
        }
    }
    Ok(())
}

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

pub(super) fn alloc_op(software: &Software, p: &mut AllocParams) -> Res<Op> {
    // Pinned memory of a device; the other devices' access is theirs to enable.
    if p.pool.alloc_type != 1 || p.pool.location.kind != 1 {
        return Err(Code::INVALID_VALUE);
    }
    if p.pool.handle_types != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    let allocation = reserve(software, p.pool.location.id, p.bytes)?;
    p.address = allocation.address;
    Ok(Op::Alloc(allocation))
}

fn alloc_params(allocation: &GraphAllocation) -> AllocParams {
    AllocParams {
        pool: MemPoolProps {
            alloc_type: 1,
            handle_types: 0,
            location: MemLocation { kind: 1, id: allocation.device },
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
        graph::find(state, to)?;
        let op = alloc_op(software, &mut p)?;
        node.set(graph::add(state, to, &deps, op)?)?;
        place.set(p)
    })
}

pub(crate) fn get_alloc(node: CUgraphNode, p: Out<c_void>) -> Res {
    with(|state, _| match &graph::node(state, node)?.op {
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
        graph::find(state, to)?;
        let op = free_op(state, address)?;
        node.set(graph::add(state, to, &deps, op)?)
    })
}

pub(crate) fn get_free(node: CUgraphNode, address: Out<CUdeviceptr>) -> Res {
    with(|state, _| match &graph::node(state, node)?.op {
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
        let used: u64 = state.graph_memory.values().filter(|a| a.device == device).map(|a| a.bytes).sum();
        value.cast::<u64>().set(used)
    })
}

pub(super) fn captured_alloc(
    state: &mut State,
    software: &Software,
    capture: u64,
    key: super::state::StreamKey,
    device: i32,
    bytes: usize,
) -> Res<u64> {
    let allocation = reserve(software, device, bytes)?;
    let address = allocation.address;
    capture::add(state, capture, key, Op::Alloc(allocation))?;
    Ok(address)
}
