//! What allocation and free nodes do to the tables when they are made and when they run.

use std::sync::Arc;

use crate::codes::{Code, Res};
use crate::software::tables::{
    allocations,
    ops::{Graph, GraphAllocation, Op},
    software::Software,
    state::State,
};

/// Memory for an allocation node on a device.
pub(crate) fn reserve(software: &Software, device: i32, bytes: usize) -> Res<Arc<GraphAllocation>> {
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let device = software.device(device)?;
    let address = device.machine.memory().alloc(bytes as u64, allocations::ALIGN).map_err(|_| Code::OUT_OF_MEMORY)?;
    Ok(Arc::new(GraphAllocation { device, address, bytes: bytes as u64 }))
}

/// The allocation node that an address belongs to, in any graph.
fn of_address(state: &State, address: u64) -> Option<i32> {
    let nodes = state.graphs.values().flat_map(|g| g.nodes.values());
    nodes
        .filter_map(|n| match &n.op {
            Op::Alloc(a) if a.address == address => Some(a.device.ordinal),
            _ => None,
        })
        .next()
        .or_else(|| state.graph_memory.keys().find(|(_, a)| *a == address).map(|(device, _)| *device))
}

/// The operation that frees what an allocation node gave.
pub(crate) fn free_op(state: &State, address: u64) -> Res<Op> {
    of_address(state, address).map(|device| Op::Free(device, address)).ok_or(Code::INVALID_VALUE)
}

/// Takes a live allocation of a graph out of its owner's hands; the answer says whether it was one.
pub(crate) fn give_back(state: &mut State, address: u64) -> bool {
    let key = state.graph_memory.keys().find(|(_, a)| *a == address).copied();
    let gone = key.and_then(|key| state.graph_memory.remove(&key));
    if let Some(gone) = &gone {
        gone.poison();
    }
    gone.is_some()
}

/// An allocation node runs.
pub(crate) fn run_alloc(state: &mut State, allocation: Arc<GraphAllocation>) {
    allocation.poison();
    state.graph_memory.insert((allocation.device.ordinal, allocation.address), allocation);
}

/// A free node runs.
pub(crate) fn run_free(state: &mut State, device: i32, address: u64) {
    if let Some(gone) = state.graph_memory.remove(&(device, address)) {
        gone.poison();
    }
}

/// Whether a graph allocates or frees: such a graph is not cloned and is no child.
pub(crate) fn uses_memory(graph: &Graph) -> bool {
    graph.nodes.values().any(|n| matches!(n.op, Op::Alloc(_) | Op::Free(..)))
}

/// A launch may allocate only what nobody has; with automatic free it takes that back first.
pub(crate) fn check_launch<'a>(state: &mut State, ops: impl Iterator<Item = &'a Op>, automatic_free: bool) -> Res {
    for op in ops {
        if let Op::Alloc(allocation) = op
            && state.graph_memory.contains_key(&(allocation.device.ordinal, allocation.address))
        {
            if !automatic_free {
                return Err(Code::INVALID_VALUE);
            }
            give_back(state, allocation.address);
        }
    }
    Ok(())
}
