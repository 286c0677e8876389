//! Devices and their attributes.

use std::ffi::c_char;

use warpsmith_arch::{CONSTANT, DEFAULT_SHARED, MAX_BLOCK, MAX_GRID, MAX_THREADS, REGISTERS, WARP};

use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::software::tables::software::engine;
use crate::types::*;

pub(crate) fn get(device: Out<CUdevice>, ordinal: i32) -> Res {
    device.check()?;
    engine()?.device(ordinal)?;
    device.set(ordinal)
}

pub(crate) fn count(count: Out<i32>) -> Res {
    count.set(engine()?.devices.len() as i32)
}

pub(crate) fn name(name: Out<c_char>, len: i32, device: CUdevice) -> Res {
    let device = engine()?.device(device)?;
    name.set_text(&device.name, usize::try_from(len).map_err(|_| Code::INVALID_VALUE)?)
}

pub(crate) fn uuid(uuid: Out<CUuuid>, device: CUdevice) -> Res {
    let bytes = engine()?.device(device)?.uuid().map(|b| b as c_char);
    uuid.set(CUuuid { bytes })
}

pub(crate) fn total_memory(bytes: Out<usize>, device: CUdevice) -> Res {
    bytes.set(engine()?.device(device)?.machine.memory().total() as usize)
}

pub(crate) fn attribute(value: Out<i32>, attribute: i32, device: CUdevice) -> Res {
    let device = engine()?.device(device)?;
    if attribute < 1 {
        return Err(Code::INVALID_VALUE);
    }
    value.set(device.attribute(attribute))
}

pub(crate) fn properties(properties: Out<CUdevprop>, device: CUdevice) -> Res {
    let d = engine()?.device(device)?;
    properties.set(CUdevprop {
        max_threads_per_block: MAX_THREADS as i32,
        max_threads_dim: MAX_BLOCK.map(|n| n as i32),
        max_grid_size: MAX_GRID.map(|n| n as i32),
        shared_mem_per_block: DEFAULT_SHARED as i32,
        total_constant_memory: CONSTANT as i32,
        simd_width: WARP as i32,
        mem_pitch: i32::MAX,
        regs_per_block: REGISTERS as i32,
        clock_rate: (d.spec.gpu.clock_mhz * 1000) as i32,
        texture_align: 512,
    })
}

pub(crate) fn compute_capability(major: Out<i32>, minor: Out<i32>, device: CUdevice) -> Res {
    let (a, b) = engine()?.device(device)?.capability();
    major.check()?;
    minor.set(b)?;
    major.set(a)
}

pub(crate) fn pci_bus_id(id: Out<c_char>, len: i32, device: CUdevice) -> Res {
    let device = engine()?.device(device)?;
    id.set_text(&device.pci(), usize::try_from(len).map_err(|_| Code::INVALID_VALUE)?)
}

pub(crate) fn by_pci_bus_id(device: Out<CUdevice>, id: In<c_char>) -> Res {
    let wanted = id.text()?.to_ascii_lowercase();
    let full = if wanted.matches(':').count() == 1 { format!("0000:{wanted}") } else { wanted };
    let full = if full.contains('.') { full } else { format!("{full}.0") };
    let found = engine()?.devices.iter().find(|d| d.pci() == full).ok_or(Code::INVALID_DEVICE)?;
    device.set(found.ordinal)
}

pub(crate) fn can_access_peer(can: Out<i32>, device: CUdevice, peer: CUdevice) -> Res {
    engine()?.device(device)?;
    engine()?.device(peer)?;
    can.set(i32::from(device != peer))
}

pub(crate) fn p2p_attribute(value: Out<i32>, attribute: i32, device: CUdevice, peer: CUdevice) -> Res {
    engine()?.device(device)?;
    engine()?.device(peer)?;
    if device == peer || !(1..=4).contains(&attribute) {
        return Err(Code::INVALID_VALUE);
    }
    // Performance rank, access, native atomics, access to arrays: all alike, and arrays by copies alone.
    value.set([0, 1, 1, 0].get(attribute as usize - 1).copied().unwrap_or(0))
}
