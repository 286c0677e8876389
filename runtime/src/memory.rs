//! Who owns which device memory, and when it is given back.
//!
//! Every allocation is one [`Allocation`] behind an `Arc`: a [`Buffer`](super::Buffer) holds one,
//! and each graph that uses it holds another. The device knows its allocations by address, which
//! is how a launch finds the owner of a slice. The memory is freed when the last owner goes. While
//! any stream of the device is being captured it is only put aside, and freed when the capture
//! ends: inside a capture, the driver forbids to free in most modes. What the driver could not free is put aside as well,
//! until the next call that enters the device.

use crate::device::DeviceInner;
use crate::graph::GraphParts;
use crate::order::Uses;
use crate::pinned::PinnedMemory;
use crate::sys;
use cust::memory::DevicePointer;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A number that no other object of this process has or will have.
pub fn unique_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Locks; a panic of another holder is no reason to fail, since no lock here guards an invariant
/// across a call into foreign code.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One allocation of device memory.
pub struct Allocation {
    pub device: Arc<DeviceInner>,
    pub address: u64,
    pub bytes: u64,
    pub id: u64,
    /// The streams that used it last.
    pub uses: Mutex<Uses>,
    /// Frees it, where that is not for us to do.
    pub keeper: Option<Box<dyn Keeper>>,
}

/// What owns memory that was not allocated here, and frees it when it is dropped.
pub trait Keeper: Send + Sync {}

impl<T: Send + Sync> Keeper for T {}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.device.memory.forget(self.address);
        self.device.discard(match self.keeper.take() {
            None => Dead::Memory { address: self.address, tried: false },
            Some(keeper) => Dead::Kept(std::mem::take(&mut *lock(&self.uses)), keeper),
        });
    }
}

/// What waits for the end of a capture to be freed.
pub enum Dead {
    /// Device memory, and whether the driver has refused to free it before.
    Memory { address: u64, tried: bool },
    /// Device memory of somebody else, with those who used it here.
    Kept(Uses, Box<dyn Keeper>),
    /// Staging memory.
    Pinned(PinnedMemory),
    /// An executable graph and what it owns.
    Graph(GraphParts),
}

impl Dead {
    /// Frees it. Failures go to the device's list: there is nobody to return them to. Memory that could not be freed is
    /// kept for one more try, unless the device is lost.
    pub fn free(self, device: &DeviceInner) {
        let freed = match self {
            Dead::Memory { address, tried } => {
                // SAFETY: the address came from `cuda_malloc` and its only owner was the
                // `Allocation` that has just been dropped. The driver waits for the work that
                // still uses the memory before it frees it.
                let freed = unsafe { cust::memory::cuda_free::<u8>(DevicePointer::from_raw(address)) };
                let freed = sys::cust("cuMemFree_v2", freed);
                if freed.as_ref().is_err_and(|error| !tried && !error.is_device_lost()) {
                    device.memory.put_aside(Dead::Memory { address, tried: true });
                }
                freed
            }
            Dead::Kept(uses, keeper) => match uses.settle() {
                Ok(()) => {
                    drop(keeper);
                    Ok(())
                }
                // The device may still use the memory, for all that is known: it is never freed.
                Err(error) => {
                    std::mem::forget(keeper);
                    Err(error)
                }
            },
            Dead::Pinned(memory) => memory.free(),
            Dead::Graph(parts) => return parts.destroy(),
        };
        if let Err(error) = freed {
            device.defer_error(error);
        }
    }
}

/// The allocations of a device, and the dead that wait for the end of a capture.
#[derive(Default)]
pub struct Memory {
    owners: Mutex<BTreeMap<u64, Weak<Allocation>>>,
    waiting: Mutex<Waiting>,
    /// What could not be freed when it should have been.
    overdue: Mutex<Vec<Dead>>,
    /// Whether there is any: asked at every call.
    is_overdue: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    captures: usize,
    dead: Vec<Dead>,
}

/// What is known about an address.
pub enum Place {
    /// In an allocation, and the whole range is.
    Within(Arc<Allocation>),
    /// It starts in an allocation and reaches beyond its end.
    Beyond { base: u64, size: u64 },
    /// In no allocation of this device.
    Unknown,
}

impl Memory {
    /// Takes note of a new allocation.
    pub fn remember(&self, allocation: &Arc<Allocation>) {
        lock(&self.owners).insert(allocation.address, Arc::downgrade(allocation));
    }

    fn forget(&self, address: u64) {
        lock(&self.owners).remove(&address);
    }

    /// The owner of `bytes` bytes from `address` on.
    pub fn place(&self, address: u64, bytes: u64) -> Place {
        // The guard is dropped before the `Arc` can be: dropping the last one takes this lock.
        let owner = lock(&self.owners).range(..=address).next_back().and_then(|(_, o)| o.upgrade());
        match owner {
            Some(o) if address - o.address < o.bytes => {
                if bytes <= o.bytes - (address - o.address) {
                    Place::Within(o)
                } else {
                    Place::Beyond { base: o.address, size: o.bytes }
                }
            }
            _ => Place::Unknown,
        }
    }

    /// How many allocations are alive.
    pub fn live(&self) -> usize {
        lock(&self.owners).len()
    }

    /// A capture begins: from now on the dead wait.
    pub fn begin_capture(&self) {
        lock(&self.waiting).captures += 1;
    }

    /// A capture has ended. Returns the dead if it was the last.
    #[must_use]
    pub fn end_capture(&self) -> Vec<Dead> {
        let mut waiting = lock(&self.waiting);
        waiting.captures = waiting.captures.saturating_sub(1);
        if waiting.captures == 0 { std::mem::take(&mut waiting.dead) } else { Vec::new() }
    }

    /// Whether any stream of the device is being captured.
    pub fn capturing(&self) -> bool {
        lock(&self.waiting).captures > 0
    }

    /// Keeps what could not be freed now.
    pub fn put_aside(&self, dead: Dead) {
        lock(&self.overdue).push(dead);
        self.is_overdue.store(true, Ordering::Release);
    }

    /// What was put aside, to be freed again; nothing while a capture goes on.
    #[must_use]
    pub fn take_overdue(&self) -> Vec<Dead> {
        if !self.is_overdue.load(Ordering::Acquire) || self.capturing() {
            return Vec::new();
        }
        self.is_overdue.store(false, Ordering::Release);
        std::mem::take(&mut lock(&self.overdue))
    }

    /// Puts `dead` aside if a capture is going on, else gives it back to be freed now.
    pub fn wait(&self, dead: Dead) -> Option<Dead> {
        let mut waiting = lock(&self.waiting);
        if waiting.captures == 0 {
            return Some(dead);
        }
        waiting.dead.push(dead);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_aside_waits_until_every_capture_has_ended() {
        let memory = Memory::default();
        assert!(memory.take_overdue().is_empty());
        memory.begin_capture();
        memory.begin_capture();
        memory.put_aside(Dead::Memory { address: 64, tried: true });
        assert!(memory.take_overdue().is_empty(), "two captures go on");
        assert!(memory.end_capture().is_empty());
        assert!(memory.take_overdue().is_empty(), "one capture goes on");
        assert!(memory.end_capture().is_empty());
        assert!(matches!(memory.take_overdue()[..], [Dead::Memory { address: 64, tried: true }]));
        assert!(memory.take_overdue().is_empty(), "it is taken once");
    }
}
