//! What the devices of each architecture have, after NVIDIA's CUDA C++ Programming Guide (compute
//! capabilities) and the data sheets of one part each.

/// The figures of one architecture.
pub(crate) struct Spec {
    pub sm: u32,
    pub multiprocessors: u32,
    pub max_threads_per_sm: u32,
    pub max_blocks_per_sm: u32,
    pub shared_per_sm: u32,
    pub shared_optin: u32,
    /// Shared memory that the system keeps per block.
    pub shared_reserved: u32,
    pub l2_bytes: u32,
    pub clock_khz: u32,
    pub memory_khz: u32,
    pub bus_bits: u32,
}

const KIB: u32 = 1024;

macro_rules! spec {
    ($sm:literal, $sms:literal, $threads:literal, $blocks:literal, $shared:literal, $optin:literal, $reserved:literal, $l2:literal, $clock:literal, $memory:literal, $bus:literal) => {
        Spec {
            sm: $sm,
            multiprocessors: $sms,
            max_threads_per_sm: $threads,
            max_blocks_per_sm: $blocks,
            shared_per_sm: $shared * KIB,
            shared_optin: $optin * KIB,
            shared_reserved: $reserved * KIB,
            l2_bytes: $l2 * KIB,
            clock_khz: $clock,
            memory_khz: $memory,
            bus_bits: $bus,
        }
    };
}

//     sm   SMs threads blocks  sh/SM optin res  L2 KiB  clock    memory    bus
pub(crate) static ALL: [Spec; 7] = [
    spec!(75, 40, 1024, 16, 64, 64, 0, 4096, 1_590_000, 5_001_000, 256),
    spec!(80, 108, 2048, 32, 164, 163, 1, 40960, 1_410_000, 1_215_000, 5120),
    spec!(86, 84, 1536, 16, 100, 99, 1, 6144, 1_860_000, 9_751_000, 384),
    spec!(89, 128, 1536, 24, 100, 99, 1, 73728, 2_520_000, 10_501_000, 384),
    spec!(90, 132, 2048, 32, 228, 227, 1, 61440, 1_980_000, 3_201_000, 6144),
    spec!(100, 148, 2048, 32, 228, 227, 1, 129024, 1_965_000, 3_996_000, 8192),
    spec!(120, 170, 1536, 24, 100, 99, 1, 98304, 2_407_000, 14_001_000, 512),
];

pub(crate) fn find(sm: u32) -> Option<&'static Spec> {
    ALL.iter().find(|s| s.sm == sm)
}

pub(crate) const MAX_THREADS: u32 = 1024;
pub(crate) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
pub(crate) const MAX_GRID: [u32; 3] = [0x7fff_ffff, 65535, 65535];
pub(crate) const WARP: u32 = 32;
pub(crate) const SHARED_DEFAULT: u32 = 48 * KIB;
pub(crate) const REGISTERS: u32 = 65536;
pub(crate) const CONSTANT: u32 = 64 * KIB;
