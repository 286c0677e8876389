//! Block barriers: what they have of the warps that have arrived, and how instructions name them.

/// A block barrier.
#[derive(Clone, Copy, Debug, Default)]
pub struct Barrier {
    /// Warps that have arrived, as a set and counted.
    pub set: u32,
    pub arrived: u32,
    /// Threads expected; 0: all.
    pub expected: u32,
    /// Lanes whose predicate was true, and false, for `bar.red`.
    pub yes: u32,
    pub no: u32,
    /// Warps some of whose lanes have arrived without releasing anything, at the barrier of the cluster.
    pub relaxed: u32,
}

/// A block's barriers: 16 that have numbers, and the one of its cluster.
pub const BARRIERS: usize = 17;
pub const CLUSTER: u32 = 16;

/// The number of a barrier; `None` for that of the cluster.
pub fn numbered(id: u32) -> Option<u32> {
    (id != CLUSTER).then_some(id)
}

/// `bar` operands, packed into `Op::imm`.
pub mod bar {
    pub const SYNC: u64 = 0;
    pub const ARRIVE: u64 = 1;
    pub const RED_POPC: u64 = 2;
    pub const RED_AND: u64 = 3;
    pub const RED_OR: u64 = 4;
    pub const KIND: u64 = 7;
    pub const ALIGNED: u64 = 8;
    pub const COUNT: u64 = 16;
    /// `barrier.cluster.arrive`, or `wait` with [`SYNC`]; it has no operands.
    pub const CLUSTER: u64 = 32;
    /// An arrival that releases nothing.
    pub const RELAXED: u64 = 64;
}
