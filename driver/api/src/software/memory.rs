//! Device memory: allocation, and questions about addresses.

use std::ffi::c_void;

use super::host::{self, HostKind};
use super::order::OpId;
use super::state::{Allocation, State};
use super::track::AllocationKind;
use super::{Software, capture, graph_memory, run, with_context};
use crate::arg::{In, Out, Raw};
use crate::codes::{Code, Res};
use crate::types::*;

/// What `cuMemAlloc` aligns to.
pub(super) const ALIGN: u64 = 256;

/// Allocates on the context's device and notes whose it is.
/// In a stream's order: by its operation `op`.
pub(super) fn take(
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
/// With an operation of a stream, in that stream's order; else (0) after everything on the device.
pub(super) fn give_back(state: &mut State, software: &Software, context: u64, address: u64, op: OpId) -> Res {
    let here = state.device_of(context)?;
    let mut places = std::iter::once(here).chain(software.devices.iter().map(|d| d.ordinal));
    let device = places.find(|d| state.allocations.contains_key(&(*d, address))).ok_or(Code::INVALID_VALUE)?;
    if let Some(allocation) = state.allocations.remove(&(device, address))
        && let Some(pool) = allocation.pool.and_then(|p| state.pools.get_mut(&p))
    {
        pool.give_back(allocation.bytes);
    }
    if op == 0 {
        state.device_waited(software.device(device)?);
    }
    if let Some(checks) = state.checks.as_mut() {
        checks.freed(address, op);
    }
    software.device(device)?.machine.memory().free(address).map_err(|_| Code::INVALID_VALUE)
}

pub(crate) fn info(free: Out<usize>, total: Out<usize>) -> Res {
    with_context(|state, software, context| {
        let memory = software.device(state.device_of(context)?)?.machine.memory();
        free.set(memory.total().saturating_sub(memory.used()) as usize)?;
        total.set(memory.total() as usize)
    })
}

pub(crate) fn alloc(address: Out<CUdeviceptr>, bytes: usize) -> Res {
    address.check()?;
    with_context(|state, software, context| {
        capture::unsafe_call(state)?;
        address.set(take(state, software, context, bytes, None)?)
    })
}

pub(crate) fn alloc_pitch(
    address: Out<CUdeviceptr>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: u32,
) -> Res {
    address.check()?;
    pitch.check()?;
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(Code::INVALID_VALUE);
    }
    let row = width.checked_next_multiple_of(512).ok_or(Code::INVALID_VALUE)?;
    let bytes = row.checked_mul(height).ok_or(Code::OUT_OF_MEMORY)?;
    with_context(|state, software, context| {
        capture::unsafe_call(state)?;
        address.set(take(state, software, context, bytes, None)?)?;
        pitch.set(row)
    })
}

pub(crate) fn free(address: CUdeviceptr) -> Res {
    run::finish_device()?;
    with_context(|state, software, context| {
        capture::unsafe_call(state)?;
        if address == 0 {
            return Ok(());
        }
        if graph_memory::give_back(state, address) {
            return Ok(());
        }
        match host::give_back(state, software, address as usize, HostKind::Managed) {
            Err(_) => give_back(state, software, context, address, 0),
            freed => freed,
        }
    })
}

/// What lies at an address.
pub(super) struct Found {
    pub base: u64,
    pub bytes: u64,
    /// `None`: host memory, pinned, registered or managed.
    pub device: Option<i32>,
    pub managed: bool,
    pub context: Option<u64>,
    pub pool: Option<u64>,
}

pub(super) fn find(state: &State, software: &Software, context: u64, address: u64) -> Option<Found> {
    if let Some((base, range)) = host::find(state, address as usize) {
        return Some(Found {
            base: base as u64,
            bytes: range.bytes as u64,
            device: None,
            managed: range.kind == HostKind::Managed,
            context: Some(range.context),
            pool: None,
        });
    }
    let here = state.device_of(context).ok()?;
    let places = std::iter::once(here).chain(software.devices.iter().map(|d| d.ordinal));
    for ordinal in places {
        if let Some(found) = software.device(ordinal).ok()?.machine.memory().find(address) {
            let known = state.allocations.get(&(ordinal, found.base));
            return Some(Found {
                base: found.base,
                bytes: known.map_or(found.size, |a| a.bytes),
                device: Some(ordinal),
                managed: false,
                context: known.map(|a| a.context),
                pool: known.and_then(|a| a.pool),
            });
        }
    }
    None
}

pub(crate) fn address_range(base: Out<CUdeviceptr>, bytes: Out<usize>, address: CUdeviceptr) -> Res {
    with_context(|state, software, context| {
        let found = find(state, software, context, address).ok_or(Code::INVALID_VALUE)?;
        base.set_if_asked(found.base);
        bytes.set_if_asked(found.bytes as usize);
        Ok(())
    })
}

pub(crate) fn pointer_attribute(value: Out<c_void>, attribute: i32, address: CUdeviceptr) -> Res {
    with_context(|state, software, context| {
        if value.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let found = find(state, software, context, address).ok_or(Code::INVALID_VALUE)?;
        answer(state, context, &found, value, attribute, address)
    })
}

/// Several at once: what an unknown address does not have is answered as nothing.
pub(crate) fn pointer_attributes(
    count: u32,
    attributes: Out<i32>,
    data: Out<*mut c_void>,
    address: CUdeviceptr,
) -> Res {
    let attributes = attributes.input().list(count as usize)?;
    let places = data.input().list(count as usize)?;
    with_context(|state, software, context| {
        let found = find(state, software, context, address);
        for (attribute, place) in attributes.iter().zip(&places) {
            // SAFETY: the caller gave each attribute a place of its size.
            let place: Out<c_void> = unsafe { Raw::wrap(*place) };
            if place.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            match &found {
                Some(found) => match answer(state, context, found, place, *attribute, address) {
                    Err(Code::INVALID_VALUE) => nothing(place, *attribute)?,
                    other => other?,
                },
                None => nothing(place, *attribute)?,
            }
        }
        Ok(())
    })
}

/// Zero, or no device, of the attribute's size.
fn nothing(place: Out<c_void>, attribute: i32) -> Res {
    match attribute {
        2 | 6 | 8 | 10 | 13 | 15 | 16 => place.cast::<u32>().set(0),
        9 => place.cast::<i32>().set(-2),
        1 | 3 | 4 | 7 | 11 | 12 | 14 | 17..=20 => place.cast::<u64>().set(0),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

fn answer(state: &State, context: u64, found: &Found, value: Out<c_void>, attribute: i32, address: CUdeviceptr) -> Res {
    fn put<T: Copy>(value: Out<c_void>, x: T) -> Res {
        value.cast::<T>().set(x)
    }
    let on_host = found.device.is_none();
    match attribute {
        1 => put(value, CUcontext::from_id(found.context.unwrap_or(context))),
        // Host or device memory.
        2 => put(value, if on_host && !found.managed { 1u32 } else { 2u32 }),
        3 => put(value, address),
        4 if on_host => put(value, address as usize),
        4 => Err(Code::INVALID_VALUE),
        6 | 10 | 15 => put(value, 0u32),
        7 | 20 => put(value, found.base),
        8 => put(value, u32::from(found.managed)),
        9 => put(value, found.device.map_or_else(|| state.device_of(context), Ok)?),
        11 | 19 => put(value, found.base),
        12 | 18 => put(value, found.bytes as usize),
        13 => put(value, 1u32),
        14 => put(value, 0u64),
        16 => put(value, 3u32),
        17 => put(value, found.pool.map_or(CUmemoryPool::NULL, CUmemoryPool::from_id)),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

/// Whether synchronous operations on the memory always wait (6): here they do.
pub(crate) fn set_pointer_attribute(value: In<c_void>, attribute: i32, address: CUdeviceptr) -> Res {
    with_context(|state, software, context| {
        value.cast::<u8>().get()?;
        find(state, software, context, address).ok_or(Code::INVALID_VALUE)?;
        if attribute == 6 { Ok(()) } else { Err(Code::INVALID_VALUE) }
    })
}
