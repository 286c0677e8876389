//! Limits by architecture.

const KIB: u32 = 1024;

/// What the devices of one compute capability have in common. A [target](crate::Target) with a suffix, such as `sm_90a`, has the
/// limits of the architecture without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture {
    /// Its number: 90 for sm_90, which is compute capability 9.0.
    pub sm: u32,
    /// Threads that a multiprocessor holds.
    pub threads: u32,
    /// Blocks that a multiprocessor holds.
    pub blocks: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared: u32,
    /// Bytes of shared memory that a block may opt in to.
    pub shared_optin: u32,
    /// Bytes of shared memory that the driver keeps for each block.
    pub shared_reserved: u32,
    /// Shared memory is allocated to a block in units of so many bytes.
    pub shared_unit: u32,
}

/// A row: number, threads, blocks, KiB of shared memory of a multiprocessor. The rest follows from these.
const fn row(sm: u32, threads: u32, blocks: u32, shared: u32) -> Architecture {
    // The driver keeps 1 KiB for each block from sm_80 on.
    let reserved = if sm >= 80 { 1 } else { 0 };
    let shared_unit = if sm >= 80 { 128 } else { 256 };
    Architecture {
        sm,
        threads,
        blocks,
        shared: shared * KIB,
        shared_optin: (shared - reserved) * KIB,
        shared_reserved: reserved * KIB,
        shared_unit,
    }
}

impl Architecture {
    /// Every architecture with independent thread scheduling, by number.
    pub const ALL: [Architecture; 14] = [
        //  sm threads blocks KiB
        row(70, 2048, 32, 96),
        row(72, 2048, 32, 96),
        row(75, 1024, 16, 64),
        row(80, 2048, 32, 164),
        row(86, 1536, 16, 100),
        row(87, 1536, 16, 164),
        row(88, 1536, 16, 100),
        row(89, 1536, 24, 100),
        row(90, 2048, 32, 228),
        row(100, 2048, 32, 228),
        row(103, 2048, 32, 228),
        row(110, 1536, 24, 228),
        row(120, 1536, 24, 100),
        row(121, 1536, 24, 100),
    ];

    /// The architecture of that number.
    pub fn find(sm: u32) -> Option<&'static Architecture> {
        const { &Architecture::ALL }.iter().find(|a| a.sm == sm)
    }

    /// The newest architecture that is not after `sm`: the one whose code a device of an unlisted number runs. `None` before the
    /// first.
    pub fn up_to(sm: u32) -> Option<&'static Architecture> {
        const { &Architecture::ALL }.iter().rev().find(|a| a.sm <= sm)
    }

    /// Warps that a multiprocessor holds.
    pub const fn warps(&self) -> u32 {
        self.threads / crate::WARP
    }
}
