//! Ranges of host memory that the driver knows: found, mapped for the devices, given back.

use std::alloc::{Layout, dealloc};
use std::ptr::NonNull;

use crate::codes::{Code, Res};
use crate::software::tables::{
    device::Device,
    objects::{HostKind, HostRange},
    software::Software,
    state::State,
};

const PAGE: usize = 4096;

/// The range that holds an address.
pub(crate) fn find(state: &State, address: usize) -> Option<(usize, &HostRange)> {
    let (base, range) = state.host.range(..=address).next_back()?;
    (address - base < range.bytes).then_some((*base, range))
}

pub(crate) fn layout(bytes: usize) -> Res<Layout> {
    Layout::from_size_align(bytes, PAGE).map_err(|_| Code::OUT_OF_MEMORY)
}

pub(crate) fn map(software: &Software, base: NonNull<u8>, bytes: usize) -> Res {
    for (at, device) in software.devices.iter().enumerate() {
        // SAFETY: the memory is the driver's own or, registered, the caller's word; it is unmapped before it is freed.
        let mapped = unsafe { device.machine.memory().map_host(base, bytes as u64) };
        if mapped.is_err() {
            unmap(&software.devices[..at], base);
            return Err(Code::MAP_FAILED);
        }
    }
    Ok(())
}

pub(crate) fn unmap(devices: &[Device], base: NonNull<u8>) {
    for device in devices {
        // Mapped by `map`, so that there is something to undo.
        let _ = device.machine.memory().unmap_host(base.addr().get() as u64);
    }
}

/// Frees a pinned or managed range that starts at `address`.
pub(crate) fn give_back(state: &mut State, software: &Software, address: usize, kind: HostKind) -> Res {
    let range = state.host.get(&address).filter(|r| r.kind == kind).ok_or(Code::INVALID_VALUE)?;
    let layout = layout(range.bytes)?;
    let base = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(address)).ok_or(Code::INVALID_VALUE)?;
    if let Some(checks) = state.checks.as_mut() {
        checks.freed(address as u64, 0);
    }
    state.host.remove(&address);
    unmap(software.devices, base);
    // SAFETY: the table said that `take` allocated it with this layout; it is no longer in the table.
    unsafe { dealloc(base.as_ptr(), layout) };
    Ok(())
}
