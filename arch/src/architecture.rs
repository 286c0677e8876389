//! Limits by architecture.

const KIB: u32 = 1024;

/// What the devices of one compute capability have in common. A target with a suffix, such as `sm_90a`, has the limits of the
/// architecture without it, and another [PTX version](Architecture::ptx).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture {
    /// Its number: 90 for sm_90, which is compute capability 9.0.
    pub sm: u32,
    /// The lowest version of the PTX ISA that knows it.
    pub isa: (u32, u32),
    /// The same of the target with the suffix `a`, whose features no other architecture has; `None`: there is no such target.
    pub specific_isa: Option<(u32, u32)>,
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

/// A row: number, PTX versions, threads, blocks, KiB of shared memory of a multiprocessor. The rest follows from these.
const fn row(
    sm: u32,
    isa: (u32, u32),
    specific_isa: Option<(u32, u32)>,
    threads: u32,
    blocks: u32,
    shared: u32,
) -> Architecture {
    // The driver keeps 1 KiB for each block from sm_80 on.
    let reserved = if sm >= 80 { 1 } else { 0 };
    let shared_unit = if sm >= 80 { 128 } else { 256 };
    Architecture {
        sm,
        isa,
        specific_isa,
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
        //  sm   PTX      with `a`       threads blocks KiB
        row(70, (6, 0), None, 2048, 32, 96),
        row(72, (6, 1), None, 2048, 32, 96),
        row(75, (6, 3), None, 1024, 16, 64),
        row(80, (7, 0), None, 2048, 32, 164),
        row(86, (7, 1), None, 1536, 16, 100),
        row(87, (7, 4), None, 1536, 16, 164),
        row(88, (9, 0), None, 1536, 16, 100),
        row(89, (7, 8), None, 1536, 24, 100),
        row(90, (7, 8), Some((8, 0)), 2048, 32, 228),
        row(100, (8, 6), Some((8, 6)), 2048, 32, 228),
        row(103, (8, 8), Some((8, 8)), 2048, 32, 228),
        row(110, (9, 0), Some((9, 0)), 1536, 24, 228),
        row(120, (8, 7), Some((8, 7)), 1536, 24, 100),
        row(121, (8, 8), Some((8, 8)), 1536, 24, 100),
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

    /// The lowest version of the PTX ISA that knows a target, such as `sm_80` and `sm_90a`; `None` if none does.
    ///
    /// ```
    /// use warpsmith_arch::Architecture;
    /// assert_eq!(Architecture::ptx("sm_90"), Some((7, 8)));
    /// assert_eq!(Architecture::ptx("sm_90a"), Some((8, 0)));
    /// assert_eq!(Architecture::ptx("sm_80a"), None);
    /// ```
    pub fn ptx(target: &str) -> Option<(u32, u32)> {
        let digits = target.strip_prefix("sm_")?;
        match digits.strip_suffix('a') {
            Some(digits) => Architecture::find(digits.parse().ok()?)?.specific_isa,
            None => Some(Architecture::find(digits.parse().ok()?)?.isa),
        }
    }
}
