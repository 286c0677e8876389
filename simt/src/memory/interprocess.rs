//! Allocations whose storage other processes have mapped, too.
//!
//! Storage comes from whoever knows how processes share memory. An allocation may move into such storage
//! ([`Memory::share`]), and storage of another process may become an allocation here ([`Memory::attach`]). All processes keep
//! bytes XOR the same key, so that what is poison to one is poison to all. What others may write nobody here has seen: it
//! counts as defined. While a process has such an allocation, atomic operations and strong accesses of its kernels are atomic
//! ones of the CPU.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::RwLock;

use super::table::{Backing, Storage, describe, lookup};
use super::{Allocation, GRANULE, Memory, MemoryError, POISON_KEY};

/// Storage that several processes have mapped.
///
/// # Safety
/// [`host`](Interprocess::host) is valid, for as many bytes as the storage is used for and with the same alignment in all processes,
/// until the value is dropped.
pub unsafe trait Interprocess: Send + Sync {
    /// Its first byte.
    fn host(&self) -> NonNull<u8>;
    /// Another process has allocated it and freed it since: nothing may use it any more.
    fn is_freed(&self) -> bool;
    /// Whether another process may still write there.
    fn has_others(&self) -> bool;
}

/// Copies hold it to read, and storage that moves to write.
pub(super) static MOVING: RwLock<()> = RwLock::new(());

impl Memory {
    /// Moves the allocation that starts at `base` into `storage`. Its bytes all count as defined from then on.
    ///
    /// # Safety
    /// The storage has room for the allocation. No launch runs that may reach it, here or on a [peer](Memory::set_peers); those
    /// that [wait](crate::Waiting) may.
    ///
    /// # Errors
    /// [`MemoryError::NotAnAllocation`] if none of this process starts there.
    pub unsafe fn share(&self, base: u64, storage: Arc<dyn Interprocess>) -> Result<(), MemoryError> {
        let _moving = MOVING.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut state = self.state();
        let found = state.live.binary_search_by_key(&base, |e| e.base).ok();
        let Some(at) = found.filter(|&at| state.live[at].is_heap()) else {
            let nearest = describe(&state, base);
            return Err(MemoryError::NotAnAllocation { address: base, nearest });
        };
        let entry = &mut Arc::make_mut(&mut state.live)[at];
        let host = storage.host();
        // SAFETY: the storage has as many bytes, by the contract, and is not the heap's. No copy is under way, and no launch.
        unsafe { std::ptr::copy_nonoverlapping(entry.host(), host.as_ptr(), entry.size as usize) };
        let storage = Storage::Interprocess { storage, guest: false };
        entry.backing = Arc::new(Backing { host, storage, shadow: None });
        self.shared.mark_interprocess();
        Ok(())
    }

    /// Makes storage of another process an allocation here; it does not count as used.
    ///
    /// # Safety
    /// The storage has `bytes` bytes.
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`] if no addresses are left, [`MemoryError::ZeroSize`] for nothing.
    pub unsafe fn attach(&self, storage: Arc<dyn Interprocess>, bytes: u64) -> Result<u64, MemoryError> {
        if bytes == 0 {
            return Err(MemoryError::ZeroSize);
        }
        let mut state = self.state();
        let full = MemoryError::OutOfMemory { requested: bytes, used: state.used, total: self.total };
        let slot = bytes.max(GRANULE).checked_next_multiple_of(GRANULE).and_then(|s| s.checked_mul(2));
        let next = slot.and_then(|s| state.next.checked_add(s)).filter(|&n| n <= self.end);
        let (Some(next), base) = (next, state.next) else { return Err(full) };
        state.next = next;
        let host = storage.host();
        let storage = Storage::Interprocess { storage, guest: true };
        let backing = Arc::new(Backing { host, storage, shadow: None });
        let entry = Allocation { base, size: bytes, key: POISON_KEY, read_only: false, backing };
        let at = state.live.partition_point(|e| e.base < base);
        Arc::make_mut(&mut state.live).insert(at, entry);
        state.guests += 1;
        self.shared.mark_interprocess();
        Ok(base)
    }

    /// Undoes [`attach`](Memory::attach): as a free, but of memory that is another process's. Launches that run keep the storage.
    ///
    /// # Errors
    /// [`MemoryError::NotAnAllocation`] if nothing was attached there, or its owner has freed it.
    pub fn detach(&self, base: u64) -> Result<(), MemoryError> {
        let mut state = self.state();
        let found = state.live.binary_search_by_key(&base, |e| e.base).ok();
        let Some(at) = found.filter(|&at| state.live[at].is_guest()) else {
            let nearest = describe(&state, base);
            return Err(MemoryError::NotAnAllocation { address: base, nearest });
        };
        self.shared.drop_guest(&mut state, at);
        Ok(())
    }

    /// Whether kernels here may reach memory that other processes have mapped, or could at some time.
    pub fn is_interprocess(&self) -> bool {
        self.shared.is_interprocess() || self.peers().iter().any(|peer| peer.is_interprocess())
    }

    /// Whether other processes have the allocation mapped that holds `address`, here or on a [peer](Memory::set_peers).
    pub fn is_interprocess_at(&self, address: u64) -> bool {
        if !self.is_interprocess() {
            return false;
        }
        lookup(&self.snapshot(), address).is_some_and(Allocation::is_interprocess)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::memory::POISON;

    /// What stands for a mapping of two processes: the test is the other one.
    struct Room {
        bytes: Box<[u64]>,
        freed: AtomicBool,
    }

    impl Room {
        fn new() -> Arc<Room> {
            Arc::new(Room { bytes: vec![0; 1000].into_boxed_slice(), freed: AtomicBool::new(false) })
        }
    }

    // SAFETY: the box is as long as the value is there.
    unsafe impl Interprocess for Room {
        fn host(&self) -> NonNull<u8> {
            NonNull::from(&*self.bytes).cast()
        }
        fn is_freed(&self) -> bool {
            self.freed.load(Ordering::Relaxed)
        }
        fn has_others(&self) -> bool {
            true
        }
    }

    #[test]
    fn two_memories_over_one_storage_see_the_same_bytes() {
        let (a, b) = (Memory::new(1 << 20), Memory::new(1 << 20));
        a.keep_definedness(true);
        let p = a.alloc(5000, 256).unwrap();
        a.write(p + 8, &[1, 2, 3]).unwrap();
        assert!(a.undefined(p, 5000).is_some() && !a.is_interprocess());
        let room = Room::new();
        // SAFETY: there are 8000 bytes, and nothing runs.
        unsafe { a.share(p, room.clone()).unwrap() };
        assert_eq!(a.undefined(p, 5000), None, "others may write it");
        // SAFETY: as above.
        let q = unsafe { b.attach(room.clone(), 5000).unwrap() };
        assert!(p != q && a.is_interprocess_at(p + 4999) && b.is_interprocess_at(q) && !b.is_interprocess_at(q + 5000));
        let mut out = [0; 12];
        b.read(q, &mut out).unwrap();
        assert_eq!(out[7..], [POISON, 1, 2, 3, POISON]);
        b.fill(q + 4096, &[7, 8], 2).unwrap();
        a.read(p + 4095, &mut out[..6]).unwrap();
        assert_eq!(out[..6], [POISON, 7, 8, 7, 8, POISON]);
        assert!(b.read(q + 4999, &mut out[..2]).is_err() && a.used() == 5120 && b.used() == 0);
        // What is another process's is not freed here, and not given on.
        assert!(b.free(q).is_err() && a.detach(p).is_err());
        // SAFETY: as above.
        assert!(unsafe { b.share(q, room.clone()) }.is_err() && unsafe { a.share(p, room.clone()) }.is_err());
        a.free(p).unwrap();
        assert_eq!(a.used(), 0);
        b.detach(q).unwrap();
        assert!(b.read(q, &mut out).is_err() && b.detach(q).is_err());
        assert!(b.describe(q).contains("has been freed"), "{}", b.describe(q));
    }

    #[test]
    fn what_its_owner_has_freed_is_no_memory_any_more() {
        let b = Memory::new(1 << 20);
        let room = Room::new();
        // SAFETY: there are 8000 bytes.
        let q = unsafe { b.attach(room.clone(), 8000).unwrap() };
        b.write(q, &[1]).unwrap();
        room.freed.store(true, Ordering::Relaxed);
        assert!(b.write(q, &[1]).is_err() && lookup(&b.snapshot(), q).is_none() && b.find(q).is_none());
        assert!(b.describe(q).contains("has been freed"));
        assert_eq!(Arc::strong_count(&room), 1, "nothing keeps it");
    }
}
