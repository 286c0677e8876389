//! A device: its machine, and what it answers when asked for its attributes.

use std::sync::Mutex;

use warpsmith_arch::{CONSTANT, DEFAULT_SHARED, MAX_BLOCK, MAX_GRID, MAX_THREADS, REGISTERS, WARP};
use warpsmith_simt::Machine;

use crate::software::ipc;
use crate::software::spec::{Spec, array_limit};

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
            115 => 1,                         // memory pools
            125 => u32::from(ipc::SUPPORTED), // events of several processes
            33 => self.ordinal as u32 + 1,
            _ => array_limit(attribute).unwrap_or(0),
        };
        value as i32
    }

    pub fn uuid(&self) -> [u8; 16] {
        let mut bytes = *b"warpsmith-sw\0\0\0\0";
        bytes[12] = self.spec.sm() as u8;
        bytes[15] = self.ordinal as u8;
        bytes
    }

    pub fn pci(&self) -> String {
        format!("0000:{:02x}:00.0", self.ordinal + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::software::spec;

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
