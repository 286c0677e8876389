//! Who is told of what happens to memory between launches.

use std::any::Any;

use super::table::Nearest;

/// Somebody who keeps books about the memory of a device, from one launch to the next.
pub trait MemoryObserver: Any + Send + Sync {
    /// Undefined bytes have been copied within the device, the first of them from `at`, out of the allocation at `from` into that
    /// at `to`: the number that its [origin](super::Memory::origin) has from now on, or 0.
    fn copied(&self, from: u64, to: u64, at: &Nearest) -> u32;
    /// An allocation is gone.
    fn freed(&self, base: u64, end: u64);
}
