//! The table of allocations, and what lies at an address.

use std::alloc::{Layout, dealloc};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::interprocess::Interprocess;
use crate::shadow::Shadow;

/// A live allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllocationInfo {
    /// First address.
    pub base: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Whose the bytes of an allocation are.
pub(super) enum Storage {
    Heap(Layout),
    /// The host program's.
    Host,
    /// Several processes have them mapped; of a guest another one is the owner.
    Interprocess {
        storage: Arc<dyn Interprocess>,
        guest: bool,
    },
}

/// Storage of one allocation.
pub(super) struct Backing {
    pub host: NonNull<u8>,
    pub storage: Storage,
    /// Which bytes are defined; `None`: all.
    pub shadow: Option<Shadow>,
}

// SAFETY: the storage is plain bytes, reached by raw pointer only; the module documentation says
// what concurrent access means.
unsafe impl Send for Backing {}
// SAFETY: as for Send.
unsafe impl Sync for Backing {}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Storage::Heap(layout) = self.storage {
            // SAFETY: `host` came from `alloc_zeroed` with this layout and is freed once, here.
            unsafe { dealloc(self.host.as_ptr(), layout) }
        }
    }
}

/// An allocation, as the table has it.
#[doc(hidden)]
#[derive(Clone)]
pub struct Allocation {
    pub base: u64,
    pub size: u64,
    /// XOR of stored and visible bytes: `POISON_KEY`, or 0 for host memory.
    pub key: u64,
    /// Kernels may not write there.
    pub read_only: bool,
    pub(super) backing: Arc<Backing>,
}

impl Allocation {
    #[doc(hidden)]
    #[inline]
    pub fn host(&self) -> *mut u8 {
        self.backing.host.as_ptr()
    }

    pub(super) fn is_heap(&self) -> bool {
        matches!(self.backing.storage, Storage::Heap(_))
    }

    fn interprocess(&self) -> Option<(&dyn Interprocess, bool)> {
        match &self.backing.storage {
            Storage::Interprocess { storage, guest } => Some((&**storage, *guest)),
            Storage::Heap(_) | Storage::Host => None,
        }
    }

    /// Whether several processes have it mapped, or could.
    pub fn is_interprocess(&self) -> bool {
        self.interprocess().is_some()
    }

    /// Whether another process may still write there.
    pub fn has_others(&self) -> bool {
        self.interprocess().is_some_and(|(storage, _)| storage.has_others())
    }

    /// Another process's.
    pub(super) fn is_guest(&self) -> bool {
        self.interprocess().is_some_and(|(_, guest)| guest)
    }

    /// Another process's, which has freed it.
    pub(super) fn is_freed_elsewhere(&self) -> bool {
        self.interprocess().is_some_and(|(storage, guest)| guest && storage.is_freed())
    }

    /// Which bytes are defined; `None`: all.
    #[inline]
    pub fn shadow(&self) -> Option<&Shadow> {
        self.backing.shadow.as_ref()
    }

    /// Declares a range, given by address, defined.
    pub(super) fn define(&self, address: u64, bytes: u64) {
        if let Some(shadow) = self.shadow() {
            if bytes == self.size { shadow.fill() } else { shadow.define(address - self.base, bytes) }
        }
    }
}

/// Live allocations sorted by address, as a launch sees them.
pub type Snapshot = Arc<Vec<Allocation>>;

#[doc(hidden)]
#[inline]
pub fn lookup(live: &[Allocation], address: u64) -> Option<&Allocation> {
    let at = live.partition_point(|e| e.base <= address);
    live.get(at.checked_sub(1)?).filter(|e| address - e.base < e.size)
}

#[derive(Default)]
pub(super) struct AllocationTable {
    pub live: Snapshot,
    pub freed: VecDeque<AllocationInfo>,
    pub next: u64,
    /// Freed ranges that are handed out again: first address, and the bytes that an allocation there may have.
    pub spare: BTreeMap<u64, u64>,
    pub used: u64,
    /// How many are other processes'.
    pub guests: usize,
}

/// What lies at an address, or nearest to it; as text, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nearest {
    /// The address.
    pub address: u64,
    /// The allocation; `None` if there is none at all.
    pub allocation: Option<AllocationInfo>,
    /// It has been freed. Such an allocation contains the address.
    pub freed: bool,
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(AllocationInfo { base, size }) = self.allocation else { return f.write_str("no memory is allocated") };
        let address = self.address;
        if address < base {
            return write!(f, "{} bytes before the nearest allocation, {size} bytes at {base:#x}", base - address);
        }
        let at = address - base;
        if self.freed {
            write!(f, "byte {at} of an allocation of {size} bytes at {base:#x} that has been freed")
        } else if at < size {
            write!(f, "byte {at} of the allocation of {size} bytes at {base:#x}, {} before its end", size - at)
        } else {
            write!(f, "{} bytes past the end of the nearest allocation, {size} bytes at {base:#x}", at - size)
        }
    }
}

pub(super) fn nearest(state: &AllocationTable, address: u64) -> Nearest {
    let inside = |i: &AllocationInfo| address >= i.base && address - i.base < i.size;
    if let Some(&freed) = state.freed.iter().rev().find(|a| inside(a)) {
        return Nearest { address, allocation: Some(freed), freed: true };
    }
    let live = state.live.iter().map(|e| AllocationInfo { base: e.base, size: e.size });
    let distance = |i: &AllocationInfo| {
        if address < i.base { i.base - address } else { (address - i.base).saturating_sub(i.size - 1) }
    };
    Nearest { address, allocation: live.min_by_key(distance), freed: false }
}

pub(super) fn describe(state: &AllocationTable, address: u64) -> String {
    nearest(state, address).to_string()
}
