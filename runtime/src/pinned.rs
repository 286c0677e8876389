//! [`Pinned`]: page-locked host memory for what changes per step.
//!
//! The device copies from and to it without the host's help, also from within a graph: what a
//! decoder feeds per token is written here, what comes out is read here, and the graph owns it.
//! The host reaches it by copies only, and each waits until the device has finished with it. So
//! there is never a reference into memory that a copy is changing, and nothing is overwritten
//! before it has been read.

use crate::memory::{Dead, lock, unique_id};
use crate::sys::{self, cu};
use crate::{Device, DeviceInner, Error};
use cust::error::CudaError;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard};
use warpsmith_device::Element;
use warpsmith_driver_api::CUevent;

/// Staging memory for a number of elements. The streams of its device may copy from and to it.
///
/// ```no_run
/// # use warpsmith_runtime::{Device, Launcher};
/// # let device = Device::open(0)?;
/// let stream = device.stream()?;
/// let input = device.pinned::<u32>(2)?;
/// let mut cells = stream.zeros::<u32>(2)?;
/// let graph = stream.capture(|scope| scope.write_pinned(&input, &mut cells))?;
/// for position in 0..3 {
///     input.set(&[position, position + 1])?; // Waits for the copy of the step before.
///     graph.launch(&stream)?;
/// }
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct Pinned<T> {
    inner: Arc<PinnedInner>,
    len: usize,
    element: PhantomData<T>,
}

pub struct PinnedInner {
    pub device: Arc<DeviceInner>,
    pub id: u64,
    state: Mutex<PinnedState>,
}

/// The memory and its use by the device.
pub struct PinnedState {
    /// Taken by `drop` alone.
    memory: Option<PinnedMemory>,
    /// The stream of the last use that the host has not waited for.
    used_on: Option<u64>,
    /// Waiting has failed: the device may use the memory for ever.
    lost: bool,
}

/// The address of page-locked memory.
#[derive(Clone, Copy)]
struct Base(*mut u8);

// SAFETY: an address; what reads and writes there holds the lock of its `Pinned`.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

/// The memory, and an event recorded after each use of it.
pub struct PinnedMemory {
    base: Base,
    event: CUevent,
    in_use: bool,
}

impl PinnedMemory {
    /// Waits for the last use and frees.
    pub fn free(self) -> Result<(), Error> {
        if self.in_use {
            // SAFETY: the event is alive: it is destroyed below only. If waiting fails, the memory
            // is leaked, as a copy may still be going on.
            unsafe { cu!(cuEventSynchronize(self.event)) }?;
        }
        // SAFETY: made by `Pinned::new`; `self` is its only owner, and nothing uses it any more.
        unsafe {
            let freed = sys::cust("cuMemFreeHost", cust::memory::cuda_free_locked::<u8>(self.base.0));
            freed.and(cu!(cuEventDestroy_v2(self.event)))
        }
    }
}

impl<T: Element> Pinned<T> {
    pub(crate) fn new(device: &Device, len: usize) -> Result<Pinned<T>, Error> {
        device.inner.enter("Device::pinned")?;
        let bytes = len.checked_mul(size_of::<T>()).filter(|&b| b <= isize::MAX as usize);
        let bytes = bytes.ok_or(Error::OutOfHostMemory { requested: u64::MAX })?;
        let mut event = CUevent::NULL;
        // SAFETY: `event` is a live pointer variable.
        unsafe { cu!(cuEventCreate(&mut event, sys::EVENT_DISABLE_TIMING)) }?;
        // SAFETY: the result is handed to one `PinnedMemory`, which frees it once.
        let allocated = unsafe { cust::memory::cuda_malloc_locked::<u8>(bytes.max(1)) };
        let base = match allocated {
            Ok(base) => base,
            Err(error) => {
                let error = match error {
                    CudaError::OutOfMemory => Error::OutOfHostMemory { requested: bytes as u64 },
                    error => Error::driver("cuMemAllocHost_v2", error as u32 as i32),
                };
                // SAFETY: made above and used by nobody.
                let _ = unsafe { cu!(cuEventDestroy_v2(event)) };
                return Err(error);
            }
        };
        // SAFETY: that many bytes were allocated.
        unsafe { base.write_bytes(0, bytes.max(1)) };
        let memory = PinnedMemory { base: Base(base), event, in_use: false };
        let state = PinnedState { memory: Some(memory), used_on: None, lost: false };
        let inner = Arc::new(PinnedInner { device: device.inner.clone(), id: unique_id(), state: Mutex::new(state) });
        Ok(Pinned { inner, len, element: PhantomData })
    }

    pub(crate) fn inner(&self) -> &Arc<PinnedInner> {
        &self.inner
    }

    /// Its elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A number that no other memory of this process has or will have.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Sets all elements. Waits until the device has finished with the old ones.
    pub fn set(&self, values: &[T]) -> Result<(), Error> {
        let operation = "Pinned::set";
        if values.len() != self.len {
            return Err(Error::SizeMismatch { operation, to: self.len, from: values.len() });
        }
        self.access(operation, |base| {
            // SAFETY: `base` has `len` elements, checked to be as many as `values` has; the device
            // uses none of them, and the lock keeps new uses off. Host slices do not overlap it.
            unsafe { base.copy_from_nonoverlapping(values.as_ptr(), values.len()) }
        })
    }

    /// Sets one element. Waits until the device has finished with the old ones.
    pub fn set_at(&self, index: usize, value: T) -> Result<(), Error> {
        self.check(index, "Pinned::set_at")?;
        // SAFETY: `index` was checked; the device does not use the memory during `access`.
        self.access("Pinned::set_at", |base| unsafe { base.add(index).write(value) })
    }

    /// All elements. Waits until the device has written them.
    pub fn get(&self) -> Result<Vec<T>, Error> {
        let mut values = vec![bytemuck::Zeroable::zeroed(); self.len];
        self.get_into(&mut values)?;
        Ok(values)
    }

    /// All elements, into a slice of that length. Waits until the device has written them.
    pub fn get_into(&self, values: &mut [T]) -> Result<(), Error> {
        let operation = "Pinned::get_into";
        if values.len() != self.len {
            return Err(Error::SizeMismatch { operation, to: values.len(), from: self.len });
        }
        self.access(operation, |base| {
            // SAFETY: as in `set`, in the other direction; any bits are a valid element.
            unsafe { values.as_mut_ptr().copy_from_nonoverlapping(base, values.len()) }
        })
    }

    /// One element. Waits until the device has written it.
    pub fn get_at(&self, index: usize) -> Result<T, Error> {
        self.check(index, "Pinned::get_at")?;
        // SAFETY: `index` was checked; the device does not use the memory during `access`.
        self.access("Pinned::get_at", |base| unsafe { base.add(index).read() })
    }

    /// Runs `f` with the elements, as soon as the device has finished with the old ones. `f` must not touch this memory
    /// by another way: it is locked.
    pub fn with_mut<R>(&self, f: impl FnOnce(&mut [T]) -> R) -> Result<R, Error> {
        self.access("Pinned::with_mut", |base| {
            // SAFETY: `len` elements, all initialised since any bits are a valid element; the device uses none of them,
            // and the lock keeps other uses off while the slice exists.
            f(unsafe { std::slice::from_raw_parts_mut(base, self.len) })
        })
    }

    fn check(&self, index: usize, operation: &'static str) -> Result<(), Error> {
        if index < self.len {
            return Ok(());
        }
        Err(Error::OutOfBounds { operation, index, len: self.len })
    }

    /// Runs `f` while the device does not use the memory.
    fn access<R>(&self, call: &'static str, f: impl FnOnce(*mut T) -> R) -> Result<R, Error> {
        self.inner.device.enter(call)?;
        let mut state = self.inner.lock();
        state.settle(call)?;
        Ok(f(state.memory(call)?.base.0.cast()))
    }
}

impl<T: Element> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("id", &self.inner.id)
            .field("len", &self.len)
            .field("element", &std::any::type_name::<T>())
            .finish()
    }
}

impl PinnedInner {
    pub fn lock(&self) -> MutexGuard<'_, PinnedState> {
        lock(&self.state)
    }

    /// The address, for a copy that is recorded into a graph. The graph holds `self`.
    pub fn address(&self, call: &'static str) -> Result<*mut u8, Error> {
        Ok(self.lock().memory(call)?.base.0)
    }

    /// Issues one use of the memory by a stream.
    pub fn use_on(
        &self,
        call: &'static str,
        stream: &super::stream::StreamInner,
        issue: impl FnOnce(*mut u8) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut state = self.lock();
        state.before_use(call, stream)?;
        issue(state.memory(call)?.base.0)?;
        state.after_use(call, stream)
    }
}

impl PinnedState {
    fn memory(&mut self, call: &'static str) -> Result<&mut PinnedMemory, Error> {
        let lost = self.lost;
        self.memory.as_mut().filter(|_| !lost).ok_or(Error::StagingLost { call })
    }

    /// Waits for the last use.
    fn settle(&mut self, call: &'static str) -> Result<(), Error> {
        let used = self.used_on.is_some();
        let memory = self.memory(call)?;
        if used {
            // SAFETY: the event lives as long as the memory.
            unsafe { cu!(cuEventSynchronize(memory.event)) }?;
            memory.in_use = false;
            self.used_on = None;
        }
        Ok(())
    }

    /// Orders a use on `stream` after the last one on another.
    pub fn before_use(&mut self, call: &'static str, stream: &super::stream::StreamInner) -> Result<(), Error> {
        let elsewhere = self.used_on.is_some_and(|id| id != stream.id);
        let memory = self.memory(call)?;
        if elsewhere {
            // SAFETY: event and stream are alive.
            unsafe { cu!(cuStreamWaitEvent(stream.raw(), memory.event, 0)) }?;
        }
        Ok(())
    }

    /// Takes note of a use that was issued on `stream`.
    pub fn after_use(&mut self, call: &'static str, stream: &super::stream::StreamInner) -> Result<(), Error> {
        let raw = stream.raw();
        let memory = self.memory(call)?;
        // SAFETY: event and stream are alive.
        let recorded = unsafe { cu!(cuEventRecord(memory.event, raw)) };
        if recorded.is_ok() {
            memory.in_use = true;
            self.used_on = Some(stream.id);
        } else {
            // The use is in flight with nothing to wait for: wait for the stream, now.
            // SAFETY: the stream is alive.
            match unsafe { cu!(cuStreamSynchronize(raw)) } {
                Ok(()) => {
                    memory.in_use = false;
                    self.used_on = None;
                }
                Err(_) => self.lost = true,
            }
        }
        recorded
    }
}

impl Drop for PinnedInner {
    fn drop(&mut self) {
        let (memory, lost) = {
            let mut state = lock(&self.state);
            (state.memory.take(), state.lost)
        };
        match memory {
            // A copy may still be going on, for all that is known.
            Some(_) if lost => self.device.defer_error(Error::StagingLost { call: "drop" }),
            Some(memory) => self.device.discard(Dead::Pinned(memory)),
            None => {}
        }
    }
}
