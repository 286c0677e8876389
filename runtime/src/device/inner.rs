//! What a device does for its streams, buffers and modules: its context, its memory, its end.

use super::{CAPTURING, Context, DEFERRED_ERRORS, DeviceInner, MemoryInfo, OPEN};
use crate::Error;
use crate::memory::{Allocation, Dead, Place, lock, unique_id};
use crate::stream::StreamInner;
use crate::sys::{self, cu};
use std::cell::Cell;
use std::sync::{Arc, Mutex, Weak};
use warpsmith_driver_api::{CUcontext, Engine};

impl DeviceInner {
    pub fn is_software(&self) -> bool {
        matches!(self.engine, Engine::Software { .. })
    }

    /// For driver calls that take it.
    pub fn raw_context(&self) -> CUcontext {
        match &self.context {
            Context::Primary(context) => CUcontext(context.as_raw().cast()),
            Context::Borrowed(context) => *context,
        }
    }

    /// Whether handles of the other are handles of this one.
    pub fn shares_context(&self, other: &DeviceInner) -> bool {
        self.raw_context() == other.raw_context()
    }

    /// Makes the context current on the calling thread, unless it is.
    ///
    /// The driver is asked each time, which is one thread-local read of its own: a flag of ours
    /// would miss that other code on the thread has changed the current context.
    pub fn bind(&self) -> Result<(), Error> {
        let ours = self.raw_context();
        let mut current = CUcontext::NULL;
        // SAFETY: `current` is a live pointer variable.
        unsafe { cu!(cuCtxGetCurrent(&mut current)) }?;
        if current == ours {
            return Ok(());
        }
        // SAFETY: the context is retained for as long as `self` lives.
        unsafe { cu!(cuCtxSetCurrent(ours)) }
    }

    /// What every call that is not part of a capture does first.
    pub fn enter(&self, call: &'static str) -> Result<(), Error> {
        if CAPTURING.with(Cell::get) {
            return Err(Error::InsideCapture { call });
        }
        self.bind()?;
        for dead in self.memory.take_overdue() {
            dead.free(self);
        }
        Ok(())
    }

    /// [`bind`](DeviceInner::bind) where nobody can repeat the call: if the driver does not say which context is current,
    /// ours is made it.
    pub fn bind_to_free(&self) -> Result<(), Error> {
        // SAFETY: the context is retained for as long as `self` lives.
        self.bind().or_else(|_| unsafe { cu!(cuCtxSetCurrent(self.raw_context())) })
    }

    /// Waits for all work on the streams of this device.
    ///
    /// They are waited for one by one: to wait for a whole context would void every capture that
    /// another thread makes in it.
    pub fn settle(&self, call: &'static str) -> Result<(), Error> {
        let streams: Vec<_> = lock(&self.streams).iter().filter_map(Weak::upgrade).collect();
        streams.iter().try_for_each(|stream| stream.synchronize(call))
    }

    pub fn memory_info(&self) -> Result<MemoryInfo, Error> {
        let (free, total) = sys::cust("cuMemGetInfo_v2", cust::memory::mem_get_info())?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    /// Allocates; `None` is a size that overflows. The context is current.
    pub(super) fn alloc(this: &Arc<DeviceInner>, bytes: Option<u64>) -> Result<Arc<Allocation>, Error> {
        let exhausted = |requested| match this.memory_info() {
            Ok(MemoryInfo { free, total }) => Error::OutOfMemory { requested, free, total },
            Err(error) => error,
        };
        let Some(bytes) = bytes.filter(|&b| b <= isize::MAX as u64) else {
            return Err(exhausted(u64::MAX));
        };
        // An empty buffer gets a byte, and with it an address of its own.
        let size = usize::try_from(bytes.max(1)).unwrap_or(usize::MAX);
        // SAFETY: the result is handed to one `Allocation`, which frees it once.
        let address = match unsafe { cust::memory::cuda_malloc::<u8>(size) } {
            Ok(pointer) => pointer.as_raw(),
            Err(cust::error::CudaError::OutOfMemory) => return Err(exhausted(bytes)),
            Err(error) => return sys::cust("cuMemAlloc_v2", Err(error)),
        };
        let (bytes, id) = (bytes.max(1), unique_id());
        let uses = Mutex::default();
        let allocation = Arc::new(Allocation { device: this.clone(), address, bytes, id, uses, keeper: None });
        this.memory.remember(&allocation);
        Ok(allocation)
    }

    /// The owner of an argument, checked: not null, within one allocation, of this device.
    /// `None` if nobody here knows the address, such as memory of `cust`'s own buffers.
    pub fn owner(
        &self,
        operation: &'static str,
        argument: &'static str,
        address: u64,
        bytes: u64,
    ) -> Result<Option<Arc<Allocation>>, Error> {
        const FIRST_PAGE: u64 = 4096;
        if address < FIRST_PAGE {
            if bytes == 0 {
                return Ok(None);
            }
            return Err(Error::NullPointer { kernel: operation, argument, address });
        }
        match self.memory.place(address, bytes) {
            Place::Within(owner) => Ok(Some(owner)),
            Place::Beyond { base, size } => Err(Error::OutOfRange { operation, argument, address, bytes, base, size }),
            Place::Unknown if bytes == 0 => Ok(None),
            Place::Unknown => self.foreign_owner(operation, argument, address, bytes),
        }
    }

    fn foreign_owner(
        &self,
        operation: &'static str,
        argument: &'static str,
        address: u64,
        bytes: u64,
    ) -> Result<Option<Arc<Allocation>>, Error> {
        let others: Vec<_> = lock(&OPEN).iter().filter_map(Weak::upgrade).collect();
        for other in others {
            if let Place::Within(owner) = other.memory.place(address, bytes) {
                if other.shares_context(self) {
                    return Ok(Some(owner)); // Another handle of the same device.
                }
                return Err(Error::ForeignDevice {
                    operation,
                    what: argument,
                    owner: other.ordinal,
                    device: self.ordinal,
                });
            }
        }
        Ok(None)
    }

    /// Frees now, or when the capture that goes on has ended. Never fails, never panics.
    pub fn discard(&self, dead: Dead) {
        if let Some(dead) = self.memory.wait(dead) {
            self.free(dead);
        }
    }

    /// A capture has ended: frees what was waiting for that, if it was the last.
    pub fn end_capture(&self) {
        for dead in self.memory.end_capture() {
            self.free(dead);
        }
    }

    fn free(&self, dead: Dead) {
        match self.bind_to_free() {
            Ok(()) => dead.free(self),
            // Without its context the memory cannot be freed; a graph's parts must not be
            // dropped piecemeal either.
            Err(error) => {
                self.memory.put_aside(dead);
                self.defer_error(error);
            }
        }
    }

    /// Takes note of a stream, for as long as it lives.
    pub fn remember_stream(&self, stream: &Arc<StreamInner>) {
        let mut streams = lock(&self.streams);
        streams.retain(|s| s.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// Keeps an error that has nobody to be returned to.
    pub fn defer_error(&self, error: Error) {
        tracing::warn!(device = self.ordinal, %error, "while dropping");
        let mut deferred = lock(&self.deferred);
        if deferred.len() < DEFERRED_ERRORS {
            deferred.push(error);
        }
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        // Modules are unloaded from the current context, which on this thread may be none. If it
        // cannot be made current it is lost, and its modules with it.
        if self.bind_to_free().is_ok() {
            for dead in self.memory.take_overdue() {
                dead.free(self);
            }
        }
    }
}
