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

/// The largest arrays under textures and surfaces (Programming Guide, technical specifications; the same from compute capability
/// 7.5 to 12): device attributes from this one on, and their values.
const ARRAYS: [(i32, &[u32]); 16] = [
    (TEXTURE_1D, &[131_072]),
    (TEXTURE_2D, &[131_072, 65_536]),
    (TEXTURE_3D, &[16_384, 16_384, 16_384]),
    (TEXTURE_2D_LAYERED, &[32_768, 32_768, 2048]),
    (TEXTURE_1D_LAYERED, &[32_768, 2048]),
    (TEXTURE_2D_GATHER, &[32_768, 32_768]),
    (TEXTURE_3D_ALTERNATE, &[8192, 8192, 32_768]),
    (TEXTURE_CUBEMAP, &[32_768]),
    (TEXTURE_CUBEMAP_LAYERED, &[32_768, 2046]),
    (SURFACE_1D, &[32_768]),
    (SURFACE_2D, &[131_072, 65_536]),
    (SURFACE_3D, &[16_384, 16_384, 16_384]),
    (SURFACE_1D_LAYERED, &[32_768, 2048]),
    (SURFACE_2D_LAYERED, &[32_768, 32_768, 2048]),
    (SURFACE_CUBEMAP, &[32_768]),
    (SURFACE_CUBEMAP_LAYERED, &[32_768, 2046]),
];

pub(crate) const TEXTURE_1D: i32 = 21;
pub(crate) const TEXTURE_2D: i32 = 22;
pub(crate) const TEXTURE_3D: i32 = 24;
pub(crate) const TEXTURE_2D_LAYERED: i32 = 27;
pub(crate) const TEXTURE_1D_LAYERED: i32 = 42;
pub(crate) const TEXTURE_2D_GATHER: i32 = 45;
pub(crate) const TEXTURE_3D_ALTERNATE: i32 = 47;
pub(crate) const TEXTURE_CUBEMAP: i32 = 52;
pub(crate) const TEXTURE_CUBEMAP_LAYERED: i32 = 53;
pub(crate) const SURFACE_1D: i32 = 55;
pub(crate) const SURFACE_2D: i32 = 56;
pub(crate) const SURFACE_3D: i32 = 58;
pub(crate) const SURFACE_1D_LAYERED: i32 = 61;
pub(crate) const SURFACE_2D_LAYERED: i32 = 63;
pub(crate) const SURFACE_CUBEMAP: i32 = 66;
pub(crate) const SURFACE_CUBEMAP_LAYERED: i32 = 67;

/// The limits of one kind of array: of width, height and depth, or of width and layers, as far as it has them.
pub(crate) fn array_limits(kind: i32) -> &'static [u32] {
    ARRAYS.iter().find(|(first, _)| *first == kind).map_or(&[], |(_, most)| most)
}

/// The value of an attribute that is one of these limits.
pub(crate) fn array_limit(attribute: i32) -> Option<u32> {
    ARRAYS.iter().find_map(|(first, most)| most.get(usize::try_from(attribute - first).ok()?).copied())
}

pub(crate) const MAX_THREADS: u32 = 1024;
pub(crate) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
pub(crate) const MAX_GRID: [u32; 3] = [0x7fff_ffff, 65535, 65535];
pub(crate) const WARP: u32 = 32;
pub(crate) const SHARED_DEFAULT: u32 = 48 * KIB;
pub(crate) const REGISTERS: u32 = 65536;
pub(crate) const CONSTANT: u32 = 64 * KIB;
