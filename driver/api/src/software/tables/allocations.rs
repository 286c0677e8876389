//! Device memory: taken, given back, and found by address.

use crate::codes::{Code, Res};
use crate::software::ipc;
use crate::software::tables::{
    objects::{Allocation, HostKind},
    order::OpId,
    ranges,
    records::AllocationKind,
    software::Software,
    state::State,
};

/// What `cuMemAlloc` aligns to.
pub(crate) const ALIGN: u64 = 256;

/// Allocates on the context's device and notes whose it is.
/// In a stream's order: by its operation `op`.
pub(crate) fn take(
    state: &mut State,
    software: &Software,
    context: u64,
    bytes: usize,
    pool: Option<(u64, OpId)>,
) -> Res<u64> {
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let device = software.device(state.device_of(context)?)?;
    let memory = device.machine.memory();
    let address = memory.alloc(bytes as u64, ALIGN).map_err(|_| Code::OUT_OF_MEMORY)?;
    let bytes = bytes as u64;
    if let Some(checks) = state.checks.as_mut() {
        let (kind, op) = pool.map_or((AllocationKind::Device, 0), |(_, op)| (AllocationKind::Pool, op));
        checks.allocated(address, bytes, kind, context, op);
    }
    let pool = pool.map(|(id, _)| id);
    state.allocations.insert((device.ordinal, address), Allocation { context, bytes, pool });
    Ok(address)
}

/// Frees what [`take`] gave out: on the context's device, or where else it is.
/// With an operation of a stream, in that stream's order; else (0) after everything on the device. The answer is what the host is to
/// be told.
pub(crate) fn give_back(
    state: &mut State,
    software: &Software,
    context: u64,
    address: u64,
    op: OpId,
) -> Res<Option<String>> {
    let here = state.device_of(context)?;
    let mut places = std::iter::once(here).chain(software.devices.iter().map(|d| d.ordinal));
    let device = places.find(|d| state.allocations.contains_key(&(*d, address))).ok_or(Code::INVALID_VALUE)?;
    if let Some(allocation) = state.allocations.remove(&(device, address))
        && let Some(pool) = allocation.pool.and_then(|p| state.pools.get_mut(&p))
    {
        pool.give_back(allocation.bytes);
    }
    let told = retract(state, device, address);
    if op == 0 {
        state.device_waited(software.device(device)?);
    }
    if let Some(checks) = state.checks.as_mut() {
        checks.freed(address, op);
    }
    software.device(device)?.machine.memory().free(address).map_err(|_| Code::INVALID_VALUE)?;
    Ok(told)
}

/// Memory that other processes may have open is freed: they lose it. What the host is to be told, if one has it open.
#[must_use = "to be told"]
pub(crate) fn retract(state: &mut State, device: i32, address: u64) -> Option<String> {
    let segment = state.exported.remove(&(device, address))?;
    segment.free();
    let text = || {
        format!(
            "memory at {address:#x}, {} bytes, was freed while another process had it open: what that does with it is undefined \
             on a GPU, and an illegal address here; it has to call cuIpcCloseMemHandle first",
            segment.bytes()
        )
    };
    segment.others().then(text)
}

/// What lies at an address.
pub(crate) struct Found {
    pub base: u64,
    pub bytes: u64,
    /// `None`: host memory, pinned, registered or managed.
    pub device: Option<i32>,
    pub managed: bool,
    pub context: Option<u64>,
    pub pool: Option<u64>,
    /// Whether other processes may open it.
    pub exportable: bool,
}

pub(crate) fn find(state: &State, software: &Software, context: u64, address: u64) -> Option<Found> {
    if let Some((base, range)) = ranges::find(state, address as usize) {
        return Some(Found {
            base: base as u64,
            bytes: range.bytes as u64,
            device: None,
            managed: range.kind == HostKind::Managed,
            context: Some(range.context),
            pool: None,
            exportable: false,
        });
    }
    let here = state.device_of(context).ok()?;
    let places = std::iter::once(here).chain(software.devices.iter().map(|d| d.ordinal));
    for ordinal in places {
        if let Some(found) = software.device(ordinal).ok()?.machine.memory().find(address) {
            let known = state.allocations.get(&(ordinal, found.base));
            let opened = state.opened.get(&(ordinal, found.base));
            return Some(Found {
                base: found.base,
                bytes: known.map_or(found.size, |a| a.bytes),
                device: Some(ordinal),
                managed: false,
                context: known.map(|a| a.context).or(opened.map(|o| o.context)),
                pool: known.and_then(|a| a.pool),
                exportable: ipc::SUPPORTED && known.is_some_and(|a| a.pool.is_none()),
            });
        }
    }
    None
}
