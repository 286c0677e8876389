//! Device global memory.
//!
//! **Addresses.** Device addresses are plain 64-bit numbers from a range that no user process can
//! map on x86-64 or AArch64, so dereferencing one on the host faults instead of reading
//! something. Allocations never touch: behind each lies a gap at least as large as the
//! allocation itself (and 64 KiB), and a freed range is never handed out again, so an access that
//! runs out of `A` cannot land in `B`, and a use after free is seen as such. A GPU's driver does hand freed ranges out again, and
//! programs that take an address for the memory that was there once are right here and wrong there: [`Memory::reuse`] makes
//! addresses come again as soon as they can.
//!
//! **Poison.** Fresh memory reads as `0xA5` bytes, not zero. Storage holds every byte XOR `0xA5`:
//! zero pages from the operating system then *are* poison, and memory that nobody touches costs
//! nothing.
//!
//! **Undefined bytes.** With [`Memory::keep_definedness`] on, allocations carry one bit a byte that says whether it has been given a
//! value: 12.5 % more memory, of which the operating system provides only the pages that are touched; and, where undefined data is
//! stored, as much again for where it came from. Copies take both along. Host memory, and memory that was allocated while tracking was off, counts as defined. A launch that is not
//! checked does not follow the bits, so after it everything counts as defined.
//!
//! **Sharing.** A launch works on a snapshot of the allocation table that keeps the storage alive:
//! freeing memory under a running kernel gives stale data, never a dangling access. Storage is
//! only ever touched through raw pointers, never through references, by kernels and copies alike.
//! Copies and launches that touch the same bytes at the same time from several host threads race
//! as they do on a GPU: the bytes read are unspecified, nothing else is affected.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::shadow::Shadow;

mod error;
mod interprocess;
mod observer;
mod table;
#[cfg(test)]
mod tests;

pub use error::MemoryError;
pub use interprocess::Interprocess;
use interprocess::MOVING;
pub use observer::MemoryObserver;
pub use table::{Allocation, AllocationInfo, Nearest, Snapshot, lookup};
use table::{AllocationTable, Backing, Storage, describe, nearest};

/// The byte that fresh memory reads as.
pub const POISON: u8 = 0xA5;
pub(crate) const POISON_KEY: u64 = 0xA5A5_A5A5_A5A5_A5A5;

/// First address of the global range: one past what a 48-bit virtual address space reaches.
const FIRST: u64 = 1 << 48;
const LAST: u64 = 1 << 55;
/// How many memories of a process have ranges of their own; more of them share.
const RANGES: u64 = 16;
const RANGE: u64 = (LAST - FIRST) / RANGES / GRANULE * GRANULE;
const GRANULE: u64 = 64 << 10;
/// Freed ranges that reports remember.
const REMEMBERED: usize = 4096;

/// Numbers that stand for how undefined data came to where it is; what they stand for only their observer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Of the byte; 0 if nothing has been stored there.
    pub number: u32,
    /// Of a store to the same allocation; 0 if no kernel has been seen to store there.
    pub writer: u32,
}

/// The global memory of one device; `Send + Sync`.
pub struct Memory {
    total: u64,
    end: u64,
    shared: Arc<Allocations>,
    /// Other devices' memories that kernels here may reach.
    peers: Mutex<Vec<Arc<Allocations>>>,
    tracking: AtomicBool,
    /// Freed ranges are handed out again.
    reusing: AtomicBool,
}

/// What devices with access to a memory need of it.
#[derive(Default)]
struct Allocations {
    state: Mutex<AllocationTable>,
    observer: OnceLock<Box<dyn MemoryObserver>>,
    /// Some of it is, or was, mapped by other processes.
    interprocess: AtomicBool,
}

impl Allocations {
    fn state(&self) -> MutexGuard<'_, AllocationTable> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.guests != 0 {
            while let Some(at) = state.live.iter().position(Allocation::is_freed_elsewhere) {
                self.drop_guest(&mut state, at);
            }
        }
        state
    }

    fn is_interprocess(&self) -> bool {
        self.interprocess.load(Ordering::Acquire)
    }

    fn mark_interprocess(&self) {
        self.interprocess.store(true, Ordering::Release);
    }

    /// Forgets another process's memory.
    fn drop_guest(&self, state: &mut AllocationTable, at: usize) {
        state.guests -= 1;
        self.removed(state, at);
    }

    /// Takes an allocation out of the table.
    fn removed(&self, state: &mut AllocationTable, at: usize) -> AllocationInfo {
        let entry = Arc::make_mut(&mut state.live).remove(at);
        if let Some(observer) = self.observer.get() {
            observer.freed(entry.base, entry.base.saturating_add(entry.size));
        }
        if state.freed.len() == REMEMBERED {
            state.freed.pop_front();
        }
        let gone = AllocationInfo { base: entry.base, size: entry.size };
        state.freed.push_back(gone);
        gone
    }
}

impl Memory {
    /// Empty memory of `total` bytes.
    ///
    /// The memories of a process have ranges of their own, as devices have under unified addressing:
    /// an address of one is not by chance an address of another.
    pub fn new(total: u64) -> Memory {
        static MEMORIES: AtomicU64 = AtomicU64::new(0);
        let range = MEMORIES.fetch_add(1, Ordering::Relaxed) % RANGES;
        let next = FIRST + range * RANGE;
        let state = Mutex::new(AllocationTable { next, ..AllocationTable::default() });
        Memory {
            total,
            end: next + RANGE,
            shared: Arc::new(Allocations { state, ..Allocations::default() }),
            peers: Mutex::default(),
            tracking: AtomicBool::new(false),
            reusing: AtomicBool::new(false),
        }
    }

    /// Whether allocations from now on carry bits that say which of their bytes are defined. Existing ones stay as
    /// they are.
    pub fn keep_definedness(&self, on: bool) {
        self.tracking.store(on, Ordering::Relaxed);
    }

    /// Whether ranges that are freed from now on are handed out again: each allocation gets the lowest of them that is of its size,
    /// in steps of 64 KiB, so that the same sizes in the same order get the same addresses.
    pub fn reuse(&self, on: bool) {
        self.reusing.store(on, Ordering::Relaxed);
        if !on {
            self.state().spare.clear();
        }
    }

    /// The undefined bytes of a range: the offset of the first in the range, and how many there are. `None` if there are none,
    /// or if that is not known because the memory is not tracked.
    ///
    pub fn undefined(&self, address: u64, bytes: u64) -> Option<(u64, u64)> {
        let state = self.state();
        let entry = lookup(&state.live, address).filter(|e| bytes <= e.size - (address - e.base))?;
        entry.shadow()?.undefined(address - entry.base, bytes)
    }

    /// Where the undefined byte at `address` came from, as far as kernels and the [observer](MemoryObserver) have said.
    pub fn origin(&self, address: u64) -> Option<Origin> {
        let state = self.state();
        let entry = lookup(&state.live, address)?;
        let shadow = entry.shadow()?;
        Some(Origin { number: shadow.story(address - entry.base), writer: shadow.writer() })
    }

    /// Who keeps books about the memory; `make` makes the observer if there is none yet.
    pub fn observed_by(&self, make: impl FnOnce() -> Box<dyn MemoryObserver>) -> &dyn MemoryObserver {
        &**self.shared.observer.get_or_init(make)
    }

    /// Calls `f` with who keeps books about the memory that `address` is in: this one, or a [peer](Memory::set_peers).
    pub fn observed_at<R>(
        &self,
        address: u64,
        make: impl FnOnce() -> Box<dyn MemoryObserver>,
        f: impl FnOnce(&dyn MemoryObserver) -> R,
    ) -> R {
        let home = self.home(address);
        f(&**home.as_ref().unwrap_or(&self.shared).observer.get_or_init(make))
    }

    /// The peer whose allocation holds `address`, unless it is one here.
    fn home(&self, address: u64) -> Option<Arc<Allocations>> {
        let peers = self.peers();
        if peers.is_empty() || lookup(&self.state().live, address).is_some() {
            return None;
        }
        peers.iter().find(|peer| lookup(&peer.state().live, address).is_some()).cloned()
    }

    /// Declares all bytes of all allocations defined.
    pub(crate) fn define_all(&self) {
        if self.tracking.load(Ordering::Relaxed) {
            self.state().live.iter().filter_map(Allocation::shadow).for_each(Shadow::fill);
        }
    }

    fn state(&self) -> MutexGuard<'_, AllocationTable> {
        self.shared.state()
    }

    fn peers(&self) -> MutexGuard<'_, Vec<Arc<Allocations>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates `bytes` poisoned bytes at a multiple of `align` (at least 256).
    pub fn alloc(&self, bytes: u64, align: u64) -> Result<u64, MemoryError> {
        if bytes == 0 {
            return Err(MemoryError::ZeroSize);
        }
        if !align.is_power_of_two() || align > GRANULE {
            return Err(MemoryError::BadAlignment(align));
        }
        let mut state = self.state();
        let full = MemoryError::OutOfMemory { requested: bytes, used: state.used, total: self.total };
        // The driver's granularity: what is charged is rounded up to 512 bytes.
        let Some(charged) = bytes.checked_next_multiple_of(512) else { return Err(full) };
        if charged > self.total.saturating_sub(state.used) {
            return Err(full);
        }
        let slot = bytes.max(GRANULE).next_multiple_of(GRANULE);
        let again = state.spare.iter().find(|(_, room)| **room == slot).map(|(base, _)| *base);
        let base = again.unwrap_or(state.next);
        let Some(next) = slot.checked_mul(2).and_then(|s| base.checked_add(s)).filter(|&n| n <= self.end) else {
            return Err(full);
        };
        let layout = usize::try_from(charged).ok().and_then(|n| Layout::from_size_align(n, 64).ok());
        let Some(layout) = layout else { return Err(full) };
        // SAFETY: the layout has a size of at least 512 bytes.
        let Some(host) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { return Err(full) };
        let mut backing = Backing { host, storage: Storage::Heap(layout), shadow: None };
        if self.tracking.load(Ordering::Relaxed) {
            backing.shadow = Some(Shadow::new(bytes).ok_or(full)?);
        }
        let backing = Arc::new(backing);
        match again.and_then(|base| state.spare.remove(&base)) {
            // Reports tell of what is there now.
            Some(_) => state.freed.retain(|f| f.base != base),
            None => state.next = next,
        }
        state.used += charged;
        // Host mappings lie below, and what was never used before above.
        let at = state.live.partition_point(|e| e.base < base);
        let entry = Allocation { base, size: bytes, key: POISON_KEY, read_only: false, backing };
        Arc::make_mut(&mut state.live).insert(at, entry);
        Ok(base)
    }

    /// Frees the allocation that starts at `base`. Its addresses are never used again, unless [`reuse`](Memory::reuse) is on.
    pub fn free(&self, base: u64) -> Result<(), MemoryError> {
        let mut state = self.state();
        let found = state.live.binary_search_by_key(&base, |e| e.base);
        let found = found.ok().filter(|&i| state.live[i].key == POISON_KEY && !state.live[i].is_guest());
        let Some(at) = found else {
            let nearest = describe(&state, base);
            return Err(MemoryError::NotAnAllocation { address: base, nearest });
        };
        let size = self.shared.removed(&mut state, at).size;
        state.used -= size.next_multiple_of(512);
        if self.reusing.load(Ordering::Relaxed) {
            state.spare.insert(base, size.max(GRANULE).next_multiple_of(GRANULE));
        }
        Ok(())
    }

    /// From now on kernels may only read the allocation that starts at `base`; the host writes it as before.
    pub(crate) fn protect(&self, base: u64) {
        let mut state = self.state();
        if let Ok(at) = state.live.binary_search_by_key(&base, |e| e.base)
            && let Some(entry) = Arc::make_mut(&mut state.live).get_mut(at)
        {
            entry.read_only = true;
        }
    }

    /// Makes `bytes` bytes of host memory accessible to kernels at their host address
    /// (mapped and managed memory). They count neither as used nor as an allocation.
    ///
    /// # Safety
    /// The memory must stay valid until [`unmap_host`](Memory::unmap_host) has returned and no
    /// launch that began before is running, and must be written through raw pointers only.
    pub unsafe fn map_host(&self, host: NonNull<u8>, bytes: u64) -> Result<(), MemoryError> {
        let base = host.as_ptr() as u64;
        if bytes == 0 {
            return Err(MemoryError::ZeroSize);
        }
        let mut state = self.state();
        let at = state.live.partition_point(|e| e.base < base);
        let overlaps = state.live.get(at).is_some_and(|e| e.base - base < bytes)
            || lookup(&state.live, base).is_some()
            || base.checked_add(bytes).is_none_or(|end| end > FIRST);
        if overlaps {
            let nearest = describe(&state, base);
            return Err(MemoryError::OutOfBounds { address: base, bytes, nearest });
        }
        let backing = Arc::new(Backing { host, storage: Storage::Host, shadow: None });
        Arc::make_mut(&mut state.live).insert(at, Allocation { base, size: bytes, key: 0, read_only: false, backing });
        Ok(())
    }

    /// Undoes [`map_host`](Memory::map_host).
    pub fn unmap_host(&self, base: u64) -> Result<(), MemoryError> {
        let mut state = self.state();
        let found = state.live.binary_search_by_key(&base, |e| e.base).ok();
        match found.filter(|&i| state.live[i].key == 0) {
            Some(at) => {
                Arc::make_mut(&mut state.live).remove(at);
                Ok(())
            }
            None => {
                let nearest = describe(&state, base);
                Err(MemoryError::NotAnAllocation { address: base, nearest })
            }
        }
    }

    fn range(&self, address: u64, bytes: u64) -> Result<(Allocation, *mut u8), MemoryError> {
        let state = self.state();
        let entry = lookup(&state.live, address).filter(|e| bytes <= e.size - (address - e.base));
        match entry {
            Some(e) => {
                // SAFETY: the offset is inside the allocation.
                let at = unsafe { e.host().add((address - e.base) as usize) };
                Ok((e.clone(), at))
            }
            None => {
                let nearest = describe(&state, address);
                Err(MemoryError::OutOfBounds { address, bytes, nearest })
            }
        }
    }

    /// Copies device memory to the host.
    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        if out.is_empty() {
            return Ok(());
        }
        let _still = MOVING.read().unwrap_or_else(PoisonError::into_inner);
        let (entry, from) = self.range(address, out.len() as u64)?;
        // SAFETY: `range` checked the source, and the entry keeps it alive; `out` is host memory.
        unsafe { xor_copy(out.as_mut_ptr(), from, out.len(), entry.key) }
        Ok(())
    }

    /// Copies host memory to the device.
    pub fn write(&self, address: u64, src: &[u8]) -> Result<(), MemoryError> {
        if src.is_empty() {
            return Ok(());
        }
        let _still = MOVING.read().unwrap_or_else(PoisonError::into_inner);
        let (entry, to) = self.range(address, src.len() as u64)?;
        // SAFETY: `range` checked the destination, and the entry keeps it alive.
        unsafe { xor_copy(to, src.as_ptr(), src.len(), entry.key) }
        entry.define(address, src.len() as u64);
        Ok(())
    }

    /// Copies `bytes` bytes within the device; the ranges may overlap.
    pub fn copy(&self, dst: u64, src: u64, bytes: u64) -> Result<(), MemoryError> {
        self.copy_to(self, dst, src, bytes)
    }

    /// Copies `bytes` bytes from here to another memory.
    pub fn copy_to(&self, other: &Memory, dst: u64, src: u64, bytes: u64) -> Result<(), MemoryError> {
        if bytes == 0 {
            return Ok(());
        }
        let _still = MOVING.read().unwrap_or_else(PoisonError::into_inner);
        let (from_entry, from) = self.range(src, bytes)?;
        let (to_entry, to) = other.range(dst, bytes)?;
        let n = bytes as usize;
        // SAFETY: both ranges were checked and are kept alive; `copy` allows overlap.
        unsafe {
            std::ptr::copy(from, to, n);
            if from_entry.key != to_entry.key {
                xor_copy(to, to, n, POISON_KEY);
            }
        }
        match (to_entry.shadow(), from_entry.shadow()) {
            (Some(to), Some(from)) => {
                let at = src - from_entry.base;
                // Only where something is missing is there anything to tell.
                let blank =
                    self.shared.observer.get().zip(from.undefined(at, bytes)).map_or(0, |(observer, (first, _))| {
                        let first = self.nearest(src.saturating_add(first));
                        observer.copied(from_entry.base, to_entry.base, &first)
                    });
                to.copy(dst - to_entry.base, from, at, bytes, blank);
            }
            _ => to_entry.define(dst, bytes),
        }
        Ok(())
    }

    /// Writes `count` copies of a pattern of 1, 2 or 4 bytes.
    pub fn fill(&self, address: u64, pattern: &[u8], count: u64) -> Result<(), MemoryError> {
        let word = match *pattern {
            [a] => [a; 8],
            [a, b] => [a, b, a, b, a, b, a, b],
            [a, b, c, d] => [a, b, c, d, a, b, c, d],
            _ => return Err(MemoryError::BadPattern(pattern.len())),
        };
        if count == 0 {
            return Ok(());
        }
        let bytes = count.saturating_mul(pattern.len() as u64);
        let _still = MOVING.read().unwrap_or_else(PoisonError::into_inner);
        let (entry, to) = self.range(address, bytes)?;
        let value = u64::from_le_bytes(word) ^ entry.key;
        let n = bytes as usize;
        // SAFETY: the range was checked; words first, then the tail byte by byte.
        unsafe {
            for i in 0..n / 8 {
                to.add(8 * i).cast::<u64>().write_unaligned(value);
            }
            for i in n / 8 * 8..n {
                to.add(i).write(value.to_le_bytes()[i % 8]);
            }
        }
        entry.define(address, bytes);
        Ok(())
    }

    /// The live allocation that holds `address`.
    pub fn find(&self, address: u64) -> Option<AllocationInfo> {
        let state = self.state();
        lookup(&state.live, address).map(|e| AllocationInfo { base: e.base, size: e.size })
    }

    /// Bytes in use, each allocation rounded up to 512.
    pub fn used(&self) -> u64 {
        self.state().used
    }

    /// Bytes in total.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many allocations are live.
    pub fn live_allocations(&self) -> usize {
        self.state().live.iter().filter(|e| e.key == POISON_KEY).count()
    }

    /// What lies at `address`, or nearest to it, freed memory included.
    pub fn nearest(&self, address: u64) -> Nearest {
        nearest(&self.state(), address)
    }

    /// The same in words.
    pub fn describe(&self, address: u64) -> String {
        describe(&self.state(), address)
    }

    /// Lets kernels here reach the device allocations of these other memories, and of no others.
    pub fn set_peers(&self, peers: &[&Memory]) {
        let others = peers.iter().filter(|p| !Arc::ptr_eq(&p.shared, &self.shared)).map(|p| Arc::clone(&p.shared));
        *self.peers() = others.collect();
    }

    #[doc(hidden)]
    pub fn snapshot(&self) -> Snapshot {
        let own = self.state().live.clone();
        let peers = self.peers();
        if peers.is_empty() {
            return own;
        }
        let mut all = own.as_ref().clone();
        for peer in peers.iter() {
            let live = peer.state().live.clone();
            // Host mappings are in the own table already.
            all.extend(live.iter().filter(|e| e.key == POISON_KEY).cloned());
        }
        all.sort_unstable_by_key(|e| e.base);
        Arc::new(all)
    }
}

/// Copies `n` bytes and flips the bits of `key`, a byte repeated eight times.
///
/// # Safety
/// Both ranges must be valid; they may be equal but not otherwise overlap.
unsafe fn xor_copy(to: *mut u8, from: *const u8, n: usize, key: u64) {
    // SAFETY: by the contract, every offset below `n` is inside both ranges.
    unsafe {
        if key == 0 {
            std::ptr::copy(from, to, n);
            return;
        }
        for i in 0..n / 8 {
            let v = from.add(8 * i).cast::<u64>().read_unaligned();
            to.add(8 * i).cast::<u64>().write_unaligned(v ^ key);
        }
        for i in n / 8 * 8..n {
            to.add(i).write(from.add(i).read() ^ key as u8);
        }
    }
}
