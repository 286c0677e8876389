//! Memory of several processes: handles of it, and memory of others by theirs.

use std::sync::Arc;

use crate::arg::Out;
use crate::codes::{Code, Res};
use crate::lock::lock;
use crate::software::ipc::{self, Handle, Kind, Refusal, Segment};
use crate::software::report::report;
use crate::software::run::issue;
use crate::software::tables::{
    allocations,
    objects::Opened,
    records::AllocationKind,
    software::{engine, with_context},
    state::State,
};
use crate::types::*;

/// The one flag that `cuIpcOpenMemHandle` has, and asks for.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// Says why, and answers with the code.
pub(super) fn refused(refusal: Refusal) -> Code {
    report(refusal.why);
    refusal.code
}

/// The handle of the allocation that an address is in. With the first its storage moves to where other processes can get at it.
pub(crate) fn get_mem_handle(handle: Out<IpcHandle>, address: CUdeviceptr) -> Res {
    handle.check()?;
    if let Some(known) = with_context(|state, _, context| exported(state, context, address))? {
        return handle.set(known);
    }
    // No kernel runs while it moves; those that wait look for it anew.
    let _still: Vec<_> = engine()?.devices.iter().map(|device| lock(&device.order)).collect();
    with_context(|state, software, context| {
        if let Some(known) = exported(state, context, address)? {
            return handle.set(known);
        }
        let found = allocations::find(state, software, context, address).ok_or(Code::INVALID_VALUE)?;
        let ordinal = found.device.ok_or(Code::INVALID_VALUE)?;
        let memory = software.device(ordinal)?.machine.memory();
        let segment = Arc::new(Segment::new(Kind::Memory, found.bytes).map_err(refused)?);
        // SAFETY: it has room for as many bytes, and the locks keep kernels from running.
        unsafe { memory.share(found.base, Arc::clone(&segment) as _) }.map_err(|_| Code::INVALID_VALUE)?;
        let bytes = segment.handle().bytes();
        state.exported.insert((ordinal, found.base), segment);
        handle.set(bytes)
    })
}

/// The handle that an allocation has already.
fn exported(state: &State, context: u64, address: CUdeviceptr) -> Res<Option<IpcHandle>> {
    if !ipc::SUPPORTED {
        return Err(Code::NOT_SUPPORTED);
    }
    let found = allocations::find(state, engine()?, context, address);
    let found = found.filter(|f| f.exportable).ok_or(Code::INVALID_VALUE)?;
    let place = (found.device.ok_or(Code::INVALID_VALUE)?, found.base);
    Ok(state.exported.get(&place).map(|segment| segment.handle().bytes()))
}

/// Makes another process's memory accessible on the context's device.
pub(crate) fn open_mem_handle(address: Out<CUdeviceptr>, handle: IpcHandle, flags: u32) -> Res {
    address.check()?;
    if !ipc::SUPPORTED {
        return Err(Code::NOT_SUPPORTED);
    }
    if flags != LAZY_ENABLE_PEER_ACCESS {
        return Err(Code::INVALID_VALUE);
    }
    with_context(|state, software, context| {
        let handle = Handle::of(&handle, Kind::Memory).ok_or(Code::INVALID_VALUE)?;
        let ordinal = state.device_of(context)?;
        let mut here = state.opened.iter_mut().filter(|((device, _), _)| *device == ordinal);
        if let Some((place, opened)) = here.find(|(_, o)| o.segment.handle() == handle && !o.segment.freed()) {
            if opened.context != context {
                // One context of a device at a time.
                return Err(Code::INVALID_CONTEXT);
            }
            opened.count += 1;
            return address.set(place.1);
        }
        let segment = Arc::new(Segment::open(&handle).map_err(refused)?);
        let bytes = segment.bytes();
        let memory = software.device(ordinal)?.machine.memory();
        // SAFETY: it has so many bytes.
        let base = unsafe { memory.attach(Arc::clone(&segment) as _, bytes) }.map_err(|_| Code::MAP_FAILED)?;
        state.opened.insert((ordinal, base), Opened { context, count: 1, segment });
        if let Some(checks) = state.checks.as_mut() {
            checks.allocated(base, bytes, AllocationKind::Interprocess, context, 0);
        }
        address.set(base)
    })
}

/// Undoes an [`open_mem_handle`]; with the last one the memory is gone from here, when what uses it is done.
pub(crate) fn close_mem_handle(address: CUdeviceptr) -> Res {
    let find = |state: &State, context: u64| {
        let mut all = state.opened.iter().filter(|((_, base), o)| *base == address && o.context == context);
        all.next().map(|(place, opened)| (*place, opened.count)).ok_or(Code::INVALID_VALUE)
    };
    let (_, count) = with_context(|state, _, context| find(state, context))?;
    if count == 1 {
        issue::finish_device()?;
    }
    with_context(|state, software, context| {
        let (place, count) = find(state, context)?;
        if count > 1 {
            if let Some(opened) = state.opened.get_mut(&place) {
                opened.count -= 1;
            }
            return Ok(());
        }
        state.opened.remove(&place);
        let device = software.device(place.0)?;
        state.device_waited(device);
        if let Some(checks) = state.checks.as_mut() {
            checks.freed(address, 0);
        }
        // Its owner may have freed it: then it is gone already.
        let _ = device.machine.memory().detach(address);
        Ok(())
    })
}
