//! What the driver keeps for kernels that print or allocate: who takes the text, and the heap.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::memory::Memory;

/// Takes what kernels print.
pub(crate) type Printer = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// What `cudaLimitMallocHeapSize` is by default.
const HEAP: u64 = 8 << 20;

/// What a device provides to its kernels beyond executing them.
pub(crate) struct Services {
    pub(super) memory: Arc<Memory>,
    pub printer: RwLock<Printer>,
    heap: Mutex<Heap>,
}

struct Heap {
    limit: u64,
    used: u64,
    blocks: HashMap<u64, u64>,
}

impl Services {
    pub(crate) fn new(memory: Arc<Memory>) -> Services {
        let print = |text: &[u8]| {
            let mut out = std::io::stdout().lock();
            // Nobody listens: as on a GPU, the text is lost.
            let _ = out.write_all(text).and_then(|()| out.flush());
        };
        let heap = Heap { limit: HEAP, used: 0, blocks: HashMap::new() };
        Services { memory, printer: RwLock::new(Arc::new(print)), heap: Mutex::new(heap) }
    }

    pub(crate) fn set_heap_limit(&self, bytes: u64) {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner).limit = bytes;
    }

    pub(super) fn print(&self, text: &[u8]) {
        let printer = Arc::clone(&self.printer.read().unwrap_or_else(PoisonError::into_inner));
        printer(text);
    }

    /// The address of new memory, or 0.
    pub(super) fn allocate(&self, bytes: u64) -> u64 {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes == 0 || bytes > heap.limit.saturating_sub(heap.used) {
            return 0;
        }
        match self.memory.alloc(bytes, 16) {
            Ok(address) => {
                heap.used += bytes;
                heap.blocks.insert(address, bytes);
                address
            }
            Err(_) => 0,
        }
    }

    /// Whether there was such memory.
    pub(super) fn release(&self, address: u64) -> bool {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bytes) = heap.blocks.remove(&address) else { return false };
        heap.used -= bytes;
        self.memory.free(address).is_ok()
    }
}
