//! GPUs by their data sheets.

use crate::Architecture;

/// Results of a multiprocessor a clock.
///
/// Scalar ones are those of the table "Throughput of Native Arithmetic Instructions"; multiply-adds of tensor cores those of
/// dense matrices on a data sheet, divided by twice the multiprocessors and the boost clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Additions, multiplications or fused multiply-adds of f32.
    pub fp32: u32,
    /// The same of f64.
    pub fp64: u32,
    /// Special functions: reciprocals, roots, exponentials, logarithms, sines.
    pub special: u32,
    /// Multiply-adds of f16 on tensor cores.
    pub tensor_f16: u32,
    /// Multiply-adds of 8-bit integers on tensor cores.
    pub tensor_int8: u32,
    /// Multiply-adds of single bits on tensor cores. Published for sm_80 alone: sm_90 is taken to be like it, and others in
    /// proportion to 8-bit integers. 0: there is no such instruction, and the assembler makes it of others.
    pub tensor_b1: u32,
}

const fn rates(scalar: [u32; 2], tensor: [u32; 3]) -> Rates {
    let ([fp32, fp64], [tensor_f16, tensor_int8, tensor_b1]) = (scalar, tensor);
    Rates { fp32, fp64, special: 16, tensor_f16, tensor_int8, tensor_b1 }
}

const SM75: Rates = rates([64, 2], [512, 1024, 8192]);
const SM80: Rates = rates([64, 32], [1024, 2048, 16384]);
const SM86: Rates = rates([128, 2], [512, 1024, 8192]);
const SM89: Rates = rates([128, 2], [512, 1024, 8192]);
const SM90: Rates = rates([128, 64], [2048, 4096, 16384]);
const SM100: Rates = rates([128, 64], [4096, 8192, 0]);
const SM120: Rates = rates([128, 2], [512, 1024, 0]);

impl Rates {
    /// Of sm_90, to which others are compared.
    pub const SM90: Rates = SM90;
}

/// A GPU on paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpu {
    /// In small letters, without its maker's name.
    pub name: &'static str,
    /// As its maker calls it.
    pub title: &'static str,
    /// Architecture.
    pub sm: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Boost clock in MHz.
    pub clock_mhz: u32,
    /// Memory bandwidth in GB/s (10^9).
    pub bandwidth: f64,
    /// Memory clock in kHz, as the driver tells it: two transfers each.
    pub memory_khz: u32,
    /// Width of the memory interface in bits.
    pub bus_bits: u32,
    /// KiB of the second cache.
    pub l2_kib: u32,
    /// Per multiprocessor and clock.
    pub rates: Rates,
}

macro_rules! gpu {
    ($name:literal, $title:literal, $sm:literal, $sms:literal, $clock:literal, $bandwidth:literal, $memory:literal, $bus:literal, $l2:literal, $rates:ident) => {
        Gpu {
            name: $name,
            title: $title,
            sm: $sm,
            multiprocessors: $sms,
            clock_mhz: $clock,
            bandwidth: $bandwidth,
            memory_khz: $memory,
            bus_bits: $bus,
            l2_kib: $l2,
            rates: $rates,
        }
    };
}

impl Gpu {
    /// The known ones, by architecture.
    pub const ALL: [Gpu; 11] = [
        //    name       title                     sm   SMs  MHz   GB/s    memory     bus   L2
        gpu!("t4", "NVIDIA T4", 75, 40, 1590, 320.0, 5_001_000, 256, 4096, SM75),
        gpu!("a100", "NVIDIA A100 SXM 80 GB", 80, 108, 1410, 2039.0, 1_593_000, 5120, 40960, SM80),
        gpu!("a10", "NVIDIA A10", 86, 72, 1695, 600.0, 6_251_000, 384, 6144, SM86),
        gpu!("rtx3090", "GeForce RTX 3090", 86, 82, 1695, 936.0, 9_751_000, 384, 6144, SM86),
        gpu!("l4", "NVIDIA L4", 89, 58, 2040, 300.0, 6_251_000, 192, 49152, SM89),
        gpu!("l40s", "NVIDIA L40S", 89, 142, 2520, 864.0, 9_001_000, 384, 98304, SM89),
        gpu!("rtx4090", "GeForce RTX 4090", 89, 128, 2520, 1008.0, 10_501_000, 384, 73728, SM89),
        gpu!("h100", "NVIDIA H100 SXM", 90, 132, 1980, 3350.0, 2_619_000, 5120, 51200, SM90),
        gpu!("h200", "NVIDIA H200 SXM", 90, 132, 1980, 4800.0, 3_201_000, 6144, 61440, SM90),
        gpu!("b200", "NVIDIA B200", 100, 148, 1965, 8000.0, 3_996_000, 8192, 129_024, SM100),
        gpu!("rtx5090", "GeForce RTX 5090", 120, 170, 2407, 1792.0, 14_001_000, 512, 98304, SM120),
    ];

    /// Those that stand for their architectures: one each.
    const STANDING: [&str; 7] = ["t4", "a100", "rtx3090", "rtx4090", "h200", "b200", "rtx5090"];

    /// The GPU of that [name](Gpu::name).
    pub fn find(name: &str) -> Option<&'static Gpu> {
        const { &Gpu::ALL }.iter().find(|g| g.name == name)
    }

    /// The GPU that stands for an architecture; `None` for one of which none is known.
    pub fn of(sm: u32) -> Option<&'static Gpu> {
        const { &Gpu::ALL }.iter().find(|g| g.sm == sm && Gpu::STANDING.contains(&g.name))
    }

    /// Those that stand for their architectures, by architecture.
    pub fn standing() -> impl Iterator<Item = &'static Gpu> {
        const { &Gpu::ALL }.iter().filter(|g| Gpu::STANDING.contains(&g.name))
    }

    /// Its architecture's limits; `None` for a number that no architecture has.
    pub fn architecture(&self) -> Option<&'static Architecture> {
        Architecture::find(self.sm)
    }
}
