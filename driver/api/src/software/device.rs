//! Devices and their attributes.

use std::ffi::c_char;
use std::sync::Mutex;

use warpsmith_simt::Machine;

use super::engine;
use super::spec::{Spec, array_limit};
use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::types::*;
use warpsmith_arch::{CONSTANT, DEFAULT_SHARED, MAX_BLOCK, MAX_GRID, MAX_THREADS, REGISTERS, WARP};

pub(crate) struct Device {
    pub ordinal: i32,
    pub spec: Spec,
    pub machine: Machine,
    pub name: String,
    /// Held by the kernel that runs.
    pub order: Mutex<()>,
}

impl Device {
    pub fn new(ordinal: i32, spec: Spec, machine: Machine) -> Device {
        let name = format!("warpsmith software driver (sm_{})", spec.sm());
        Device { ordinal, spec, machine, name, order: Mutex::new(()) }
    }

    /// Compute capability.
    pub fn capability(&self) -> (i32, i32) {
        (self.spec.sm() as i32 / 10, self.spec.sm() as i32 % 10)
    }

    /// An attribute; those that say nothing of a device such as this are 0.
    pub fn attribute(&self, attribute: i32) -> i32 {
        let s = self.spec;
        let value: u32 = match attribute {
            1 => MAX_THREADS,
            2..=4 => MAX_BLOCK[attribute as usize - 2],
            5..=7 => MAX_GRID[attribute as usize - 5],
            8 => DEFAULT_SHARED,
            9 => CONSTANT,
            10 => WARP,
            11 => i32::MAX as u32,
            12 | 82 => REGISTERS,
            13 => s.gpu.clock_mhz * 1000,
            14 | 30 => 512, // alignment of textures and surfaces
            16 => s.gpu.multiprocessors,
            19 => 1, // mapped host memory
            31 => 1, // concurrent kernels
            36 => s.gpu.memory_khz,
            37 => s.gpu.bus_bits,
            38 => s.gpu.l2_kib * 1024,
            39 => s.arch.threads,
            41 => 1, // unified addressing
            51 => 32,
            75 => s.sm() / 10,
            76 => s.sm() % 10,
            78..=80 => 1, // stream priorities, L1 caches
            81 => s.arch.shared,
            83 => 1, // managed memory
            87 => match s.sm() {
                80 | 90 | 100 => 2,
                75 => 32,
                _ => 64,
            },
            89..=91 => 1, // concurrent managed access, compute preemption, host pointers of registered memory
            95 => 1,      // cooperative launch
            97 => s.arch.shared_optin,
            99 => 1, // host registration
            106 => s.arch.blocks,
            111 => s.arch.shared_reserved,
            115 => 1, // memory pools
            33 => self.ordinal as u32 + 1,
            _ => array_limit(attribute).unwrap_or(0),
        };
        value as i32
    }

    fn uuid(&self) -> [u8; 16] {
        let mut bytes = *b"warpsmith-sw\0\0\0\0";
        bytes[12] = self.spec.sm() as u8;
        bytes[15] = self.ordinal as u8;
        bytes
    }

    fn pci(&self) -> String {
        format!("0000:{:02x}:00.0", self.ordinal + 1)
    }
}

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

#[cfg(test)]
mod tests {
    use super::super::spec;
    use super::*;

    #[test]
    fn attributes_agree_with_the_programming_guide() {
        // Programming Guide, "Technical specifications per compute capability": threads, blocks, shared memory
        // per multiprocessor, and per block at most.
        for (sm, threads, blocks, per_sm, per_block) in [
            (75, 1024, 16, 65536, 65536),
            (80, 2048, 32, 167_936, 166_912),
            (86, 1536, 16, 102_400, 101_376),
            (89, 1536, 24, 102_400, 101_376),
            (90, 2048, 32, 233_472, 232_448),
            (100, 2048, 32, 233_472, 232_448),
            (120, 1536, 24, 102_400, 101_376),
        ] {
            let spec = spec::find(sm).unwrap();
            let device = Device::new(0, spec, Machine::new(warpsmith_simt::MachineConfig::default()));
            assert_eq!(device.attribute(39), threads, "sm_{sm}");
            assert_eq!(device.attribute(106), blocks, "sm_{sm}");
            assert_eq!(device.attribute(81), per_sm, "sm_{sm}");
            assert_eq!(device.attribute(97), per_block, "sm_{sm}");
            assert_eq!((device.attribute(75), device.attribute(76)), device.capability());
            assert!((1..200).all(|id| device.attribute(id) >= 0));
        }
    }
}
