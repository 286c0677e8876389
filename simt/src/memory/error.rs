//! What can go wrong with memory.

use thiserror::Error;

/// Why a memory operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The device has no room left.
    #[error("out of device memory: {requested} bytes asked for, {used} of {total} in use")]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes in use.
        used: u64,
        /// Bytes in total.
        total: u64,
    },
    /// An allocation of no bytes.
    #[error("an allocation needs at least one byte")]
    ZeroSize,
    /// An alignment that is not a power of two, or is above 64 KiB.
    #[error("alignment {0} is not a power of two up to 65536")]
    BadAlignment(u64),
    /// A fill pattern that is not 1, 2 or 4 bytes long.
    #[error("a fill pattern has 1, 2 or 4 bytes, not {0}")]
    BadPattern(usize),
    /// A free of something that is not the start of a live allocation.
    #[error("{address:#x} is not the start of a live allocation; {nearest}")]
    NotAnAllocation {
        /// The address given.
        address: u64,
        /// What lies there or near.
        nearest: String,
    },
    /// A range that is not inside one live allocation.
    #[error("{bytes} bytes at {address:#x} are not inside one allocation; {nearest}")]
    OutOfBounds {
        /// Start of the range.
        address: u64,
        /// Its length.
        bytes: u64,
        /// What lies there or near.
        nearest: String,
    },
}
