//! Device memory: allocation, and questions about addresses.

use std::ffi::c_void;

use crate::arg::{In, Out, Raw};
use crate::codes::{Code, Res};
use crate::software::report::tell;
use crate::software::rules::capture;
use crate::software::run::issue;
use crate::software::tables::{
    allocations::{self, Found},
    graph_allocations,
    objects::HostKind,
    ranges,
    software::with_context,
    state::State,
};
use crate::types::*;

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
        address.set(allocations::take(state, software, context, bytes, None)?)
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
        address.set(allocations::take(state, software, context, bytes, None)?)?;
        pitch.set(row)
    })
}

pub(crate) fn free(address: CUdeviceptr) -> Res {
    issue::finish_device()?;
    with_context(|state, software, context| {
        capture::unsafe_call(state)?;
        if address == 0 {
            return Ok(());
        }
        if graph_allocations::give_back(state, address) {
            return Ok(());
        }
        match ranges::give_back(state, software, address as usize, HostKind::Managed) {
            Err(_) => allocations::give_back(state, software, context, address, 0).map(tell),
            freed => freed,
        }
    })
}

pub(crate) fn address_range(base: Out<CUdeviceptr>, bytes: Out<usize>, address: CUdeviceptr) -> Res {
    with_context(|state, software, context| {
        let found = allocations::find(state, software, context, address).ok_or(Code::INVALID_VALUE)?;
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
        let found = allocations::find(state, software, context, address).ok_or(Code::INVALID_VALUE)?;
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
        let found = allocations::find(state, software, context, address);
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
        6 | 15 => put(value, 0u32),
        10 => put(value, u32::from(found.exportable)),
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
        allocations::find(state, software, context, address).ok_or(Code::INVALID_VALUE)?;
        if attribute == 6 { Ok(()) } else { Err(Code::INVALID_VALUE) }
    })
}
