//! Host memory that the driver knows: pinned, registered and managed. Kernels reach all of it at
//! its host address, on every device.

use std::alloc::{alloc, dealloc};
use std::ffi::c_void;
use std::ptr::NonNull;

use warpsmith_simt::POISON;

use crate::arg::Out;
use crate::codes::{Code, Res};
use crate::software::rules::capture;
use crate::software::run::issue;
use crate::software::tables::{
    objects::{HostKind, HostRange},
    ranges,
    records::AllocationKind,
    software::{Software, with_context},
    state::State,
};
use crate::types::*;

fn take(
    state: &mut State,
    software: &Software,
    context: u64,
    bytes: usize,
    flags: u32,
    kind: HostKind,
) -> Res<NonNull<u8>> {
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    capture::unsafe_call(state)?;
    let layout = ranges::layout(bytes)?;
    // SAFETY: the layout is not empty.
    let base = NonNull::new(unsafe { alloc(layout) }).ok_or(Code::OUT_OF_MEMORY)?;
    // SAFETY: the range was just allocated. What nobody wrote is to be seen as that.
    unsafe { base.write_bytes(POISON, bytes) };
    if let Err(code) = ranges::map(software, base, bytes) {
        // SAFETY: allocated above with this layout.
        unsafe { dealloc(base.as_ptr(), layout) };
        return Err(code);
    }
    if let Some(checks) = state.checks.as_mut() {
        let kind = if kind == HostKind::Managed { AllocationKind::Managed } else { AllocationKind::Pinned };
        checks.allocated(base.addr().get() as u64, bytes as u64, kind, context, 0);
    }
    state.host.insert(base.as_ptr().expose_provenance(), HostRange { bytes, flags, kind, context });
    Ok(base)
}

pub(crate) fn alloc_with_flags(pointer: Out<*mut c_void>, bytes: usize, flags: u32) -> Res {
    pointer.check()?;
    // PORTABLE, DEVICEMAP, WRITECOMBINED.
    if flags & !7 != 0 {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|state, software, context| {
        let base = take(state, software, context, bytes, flags, HostKind::Pinned)?;
        pointer.set(base.as_ptr().cast())
    })
}

pub(crate) fn alloc_pinned(pointer: Out<*mut c_void>, bytes: usize) -> Res {
    alloc_with_flags(pointer, bytes, 0)
}

pub(crate) fn alloc_managed(address: Out<CUdeviceptr>, bytes: usize, flags: u32) -> Res {
    address.check()?;
    // GLOBAL or HOST.
    if flags != 1 && flags != 2 {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|state, software, context| {
        let base = take(state, software, context, bytes, flags, HostKind::Managed)?;
        address.set(base.addr().get() as u64)
    })
}

pub(crate) fn free(pointer: Out<c_void>) -> Res {
    issue::finish_all()?;
    with_context(|state, software, _| {
        capture::unsafe_call(state)?;
        ranges::give_back(state, software, pointer.address().addr(), HostKind::Pinned)
    })
}

pub(crate) fn flags(flags: Out<u32>, pointer: Out<c_void>) -> Res {
    with_context(|state, _, _| {
        let (_, range) = ranges::find(state, pointer.address().addr()).ok_or(Code::INVALID_VALUE)?;
        flags.set(range.flags)
    })
}

pub(crate) fn device_pointer(address: Out<CUdeviceptr>, pointer: Out<c_void>, flags: u32) -> Res {
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|state, _, _| {
        let host = pointer.address().addr();
        ranges::find(state, host).ok_or(Code::INVALID_VALUE)?;
        address.set(host as u64)
    })
}

pub(crate) fn register(pointer: Out<c_void>, bytes: usize, flags: u32) -> Res {
    let base = NonNull::new(pointer.address().cast::<u8>()).ok_or(Code::INVALID_VALUE)?;
    // PORTABLE, DEVICEMAP, IOMEMORY, READ_ONLY.
    if bytes == 0 || flags & !15 != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let address = base.as_ptr().expose_provenance();
    let end = address.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
    with_context(|state, software, context| {
        capture::unsafe_call(state)?;
        let before = state.host.range(..end).next_back();
        if before.is_some_and(|(start, range)| start + range.bytes > address) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        ranges::map(software, base, bytes)?;
        if let Some(checks) = state.checks.as_mut() {
            checks.allocated(address as u64, bytes as u64, AllocationKind::Registered, context, 0);
        }
        state.host.insert(address, HostRange { bytes, flags, kind: HostKind::Registered, context });
        Ok(())
    })
}

pub(crate) fn unregister(pointer: Out<c_void>) -> Res {
    let base = NonNull::new(pointer.address().cast::<u8>()).ok_or(Code::INVALID_VALUE)?;
    issue::finish_all()?;
    with_context(|state, software, _| {
        capture::unsafe_call(state)?;
        let address = base.addr().get();
        match state.host.get(&address) {
            Some(range) if range.kind == HostKind::Registered => {}
            _ => return Err(Code::HOST_MEMORY_NOT_REGISTERED),
        }
        if let Some(checks) = state.checks.as_mut() {
            checks.freed(address as u64, 0);
        }
        state.host.remove(&address);
        ranges::unmap(software.devices, base);
        Ok(())
    })
}

fn managed(state: &State, address: CUdeviceptr, bytes: usize) -> Res {
    let (base, range) = ranges::find(state, address as usize).ok_or(Code::INVALID_VALUE)?;
    let fits = range.bytes - (address as usize - base) >= bytes;
    if range.kind == HostKind::Managed && bytes > 0 && fits { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

pub(crate) fn advise(address: CUdeviceptr, bytes: usize, advice: i32, device: CUdevice) -> Res {
    with_context(|state, software, _| {
        if !(1..=6).contains(&advice) {
            return Err(Code::INVALID_VALUE);
        }
        // The CPU, -1, is a place too.
        if device != -1 {
            software.device(device)?;
        }
        managed(state, address, bytes)
    })
}

pub(crate) fn advise_v2(address: CUdeviceptr, bytes: usize, advice: i32, location: MemLocation) -> Res {
    advise(address, bytes, advice, device_of(location))
}

fn device_of(location: MemLocation) -> CUdevice {
    if location.kind == 1 { location.id } else { -1 }
}

pub(crate) fn prefetch(address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream) -> Res {
    with_context(|state, software, context| {
        let key = state.stream_key(context, stream)?;
        if device != -1 {
            software.device(device)?;
        }
        managed(state, address, bytes)?;
        capture::eager_only(state, key)
    })
}

pub(crate) fn prefetch_v2(
    address: CUdeviceptr,
    bytes: usize,
    location: MemLocation,
    flags: u32,
    stream: CUstream,
) -> Res {
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    prefetch(address, bytes, device_of(location), stream)
}

pub(crate) fn attach(stream: CUstream, address: CUdeviceptr, _bytes: usize, flags: u32) -> Res {
    with_context(|state, _, context| {
        let key = state.stream_key(context, stream)?;
        if !matches!(flags, 1 | 2 | 4) {
            return Err(Code::INVALID_VALUE);
        }
        managed(state, address, 1)?;
        capture::eager_only(state, key)
    })
}
