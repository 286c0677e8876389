//! [`Stream`]: launches and copies, in order.
//!
//! A stream of ours is non-blocking: it is not ordered with the null stream, which this crate
//! never uses. With other streams it is ordered by [`Stream::wait`], and by the memory that both use: what one stream wrote or
//! reads, another one waits for before it reads or writes it, without being told. Every copy is issued on it.
//! Copies from and to ordinary host memory wait until they are done, since the borrow of that
//! memory ends with the call; [`Pinned`] memory is for copies that do not wait.

use crate::launch::{LaunchCode, Owners, Prepared, launchers};
use crate::memory::{lock, unique_id};
use crate::ops::{self, Pattern};
use crate::order::{Lane, Use};
use crate::profile::{Profile, Profiler};
use crate::sys::{self, cu};
use crate::{Buffer, Device, DeviceInner, Error, Event, Pinned, findings};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use warpsmith_device::{AnyKernel, Confined, Contract, DeviceSlice, Element};
use warpsmith_driver_api::CUstream;

/// A queue of work on a device. It may be used from several threads; each call is one step of it.
///
/// Dropping a stream waits for its work: afterwards nothing uses memory or code on its behalf.
///
/// ```no_run
/// # use warpsmith_runtime::Device;
/// # let device = Device::open(0)?;
/// let (a, b) = (device.stream()?, device.stream()?);
/// let (mut x, mut y) = (a.zeros::<u32>(3)?, b.zeros::<u32>(3)?);
/// a.fill(&mut x, 1)?;
/// b.copy(&x, &mut y)?; // Waits on the device for the fill: both use `x`.
/// let filled = a.record()?;
/// b.wait(&filled)?; // All that follows on `b` comes after what is on `a` so far.
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// A clone is another handle of the same stream: what is issued through either is one order of work, and the stream lives
/// until the last of them is dropped.
#[derive(Clone)]
pub struct Stream {
    pub(crate) inner: Arc<StreamInner>,
}

pub struct StreamInner {
    pub device: Arc<DeviceInner>,
    pub id: u64,
    raw: CUstream,
    /// The order of its work and that of other streams.
    pub lane: Arc<Lane>,
    /// Somebody else destroys it.
    borrowed: bool,
    /// Read by every call for as long as it uses the stream; written to begin and end a capture.
    state: RwLock<State>,
    launches: AtomicU64,
    copies: AtomicU64,
    profiler: Mutex<Option<Profiler>>,
}

/// What a stream is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It takes work.
    Open,
    /// It is being captured.
    Capturing,
    /// A capture could not be ended.
    Lost,
}

impl Stream {
    pub(crate) fn new(device: &Device) -> Result<Stream, Error> {
        let device = &device.inner;
        device.enter("Device::stream")?;
        let mut raw = CUstream::NULL;
        // SAFETY: `raw` is a live pointer variable.
        unsafe { cu!(cuStreamCreateWithPriority(&mut raw, sys::STREAM_NON_BLOCKING, 0)) }?;
        Ok(Stream::of(device, raw, false))
    }

    pub(super) fn of(device: &Arc<DeviceInner>, raw: CUstream, borrowed: bool) -> Stream {
        let id = unique_id();
        let inner = StreamInner {
            device: device.clone(),
            id,
            raw,
            lane: Lane::new(id, raw, device.raw_context()),
            borrowed,
            state: RwLock::new(State::Open),
            launches: AtomicU64::new(0),
            copies: AtomicU64::new(0),
            profiler: Mutex::new(None),
        };
        let inner = Arc::new(inner);
        device.remember_stream(&inner);
        Stream { inner }
    }

    /// Its device.
    pub fn device(&self) -> Device {
        Device { inner: self.inner.device.clone() }
    }

    /// How many kernels were launched on it, those of graphs not included.
    pub fn launches(&self) -> u64 {
        self.inner.launches.load(Ordering::Relaxed)
    }

    /// How many copies and fills were issued on it, those of graphs not included.
    pub fn copies(&self) -> u64 {
        self.inner.copies.load(Ordering::Relaxed)
    }

    /// Launches a kernel. Its contract, the limits of the device and the match of program and
    /// loaded code are checked before; an error means that nothing was launched.
    ///
    /// A kernel that follows addresses in device memory does not compile here:
    ///
    /// ```compile_fail,E0277
    /// # use gpu_kernels::sampling::sample::*;
    /// # use warpsmith_runtime::{Buffer, Error, Stream};
    /// # fn f(s: Stream, logits: Buffer<f32>, params: Buffer<Sampling>, mut work: Buffer<u64>) -> Result<(), Error> {
    /// s.launch(SampleWeigh { logits: &logits, params: &params, work: &mut work, n: 32, stride: 32, slice: 1024 })?;
    /// # Ok(()) }
    /// ```
    pub fn launch<K: Contract + Confined>(&self, kernel: K) -> Result<(), Error> {
        // SAFETY: it follows no address.
        unsafe { self.launch_unchecked(kernel) }
    }

    /// Launches a kernel, also one that follows addresses in device memory. The rest is checked as [`Stream::launch`] does.
    ///
    /// # Safety
    /// That of [`launch_unchecked`](warpsmith_device::Launcher::launch_unchecked).
    pub unsafe fn launch_unchecked<K: Contract>(&self, kernel: K) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_any(&kernel) }
    }

    /// # Safety
    /// As for `launch_unchecked`.
    unsafe fn launch_any(&self, kernel: &dyn AnyKernel) -> Result<(), Error> {
        self.inner.issue("Stream::launch", |stream| {
            let mut launch = Prepared::new(&self.inner.device, kernel, LaunchCode::General, Owners::Any)?;
            let owners = std::mem::take(&mut launch.owners);
            self.inner.behind(&owners, || {
                self.inner.timed(launch.name, || {
                    // SAFETY: the stream is alive, and `issue` has made its context current.
                    unsafe { launch.enqueue(stream) }
                })
            })?;
            self.inner.launches.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Memory for `len` elements, zeroed on this stream.
    pub fn zeros<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        let mut buffer = self.device().alloc(len)?;
        self.fill(&mut buffer, bytemuck::Zeroable::zeroed())?;
        Ok(buffer)
    }

    /// A copy of `values` in device memory. Waits for the copy.
    pub fn upload<T: Element>(&self, values: &[T]) -> Result<Buffer<T>, Error> {
        let mut buffer = self.device().alloc(values.len())?;
        self.write(&mut buffer, values)?;
        Ok(buffer)
    }

    /// Copies `values` to the device. Waits for the copy.
    pub fn write<T: Element>(&self, to: &mut DeviceSlice<T>, values: &[T]) -> Result<(), Error> {
        const OPERATION: &str = "Stream::write";
        ops::same_length(OPERATION, to.len(), values.len())?;
        self.inner.issue(OPERATION, |stream| {
            let target = ops::target(&self.inner.device, OPERATION, "to", to, Owners::Any)?;
            self.inner.copied(values.is_empty(), &[target], || {
                // SAFETY: both ranges have `byte_len` bytes, and `values` stays borrowed until the
                // stream has been waited for.
                unsafe { cu!(cuMemcpyHtoDAsync_v2(to.address().raw(), values.as_ptr().cast(), to.byte_len(), stream)) }
            })?;
            if values.is_empty() { Ok(()) } else { self.inner.wait() }
        })
    }

    /// The elements of a slice, after all work on this stream so far. Waits for it.
    pub fn read<T: Element>(&self, from: &DeviceSlice<T>) -> Result<Vec<T>, Error> {
        let mut values = vec![bytemuck::Zeroable::zeroed(); from.len()];
        match self.read_into(from, &mut values) {
            Ok(()) => Ok(values),
            Err(error) => {
                // If waiting has failed, a copy into the memory may still be under way.
                if matches!(error, Error::Driver { .. }) {
                    std::mem::forget(values);
                }
                Err(error)
            }
        }
    }

    /// Copies device memory to `values`, after all work on this stream so far. Waits for it.
    pub fn read_into<T: Element>(&self, from: &DeviceSlice<T>, values: &mut [T]) -> Result<(), Error> {
        const OPERATION: &str = "Stream::read";
        ops::same_length(OPERATION, values.len(), from.len())?;
        self.inner.issue(OPERATION, |stream| {
            let source = ops::source(&self.inner.device, OPERATION, "from", from, Owners::Any)?;
            self.inner.copied(values.is_empty(), &[source], || {
                let to = values.as_mut_ptr().cast();
                // SAFETY: both ranges have `byte_len` bytes; any bits are a valid element; `values`
                // stays borrowed until the stream has been waited for.
                unsafe { cu!(cuMemcpyDtoHAsync_v2(to, from.address().raw(), from.byte_len(), stream)) }
            })?;
            if values.is_empty() { Ok(()) } else { self.inner.wait() }
        })?;
        findings()
    }

    /// Copies between device slices of one length. Does not wait.
    pub fn copy<T: Element>(&self, from: &DeviceSlice<T>, to: &mut DeviceSlice<T>) -> Result<(), Error> {
        const OPERATION: &str = "Stream::copy";
        ops::same_length(OPERATION, to.len(), from.len())?;
        self.inner.issue(OPERATION, |stream| {
            let source = ops::source(&self.inner.device, OPERATION, "from", from, Owners::Any)?;
            let target = ops::target(&self.inner.device, OPERATION, "to", to, Owners::Any)?;
            self.inner.copied(from.is_empty(), &[source, target], || {
                // SAFETY: two borrowed slices of one length; `&mut` keeps them apart.
                unsafe { cu!(cuMemcpyDtoDAsync_v2(to.address().raw(), from.address().raw(), to.byte_len(), stream)) }
            })
        })
    }

    /// Sets every element; see [`Launcher::fill`](crate::Launcher::fill) for the values that are possible. Does not wait.
    pub fn fill<T: Element>(&self, to: &mut DeviceSlice<T>, value: T) -> Result<(), Error> {
        const OPERATION: &str = "Stream::fill";
        let pattern = Pattern::of(&value)?;
        self.inner.issue(OPERATION, |stream| {
            let target = ops::target(&self.inner.device, OPERATION, "to", to, Owners::Any)?;
            self.inner.copied(to.byte_len() == 0, &[target], || {
                // SAFETY: the slice is borrowed exclusively and aligned for its elements, each of
                // which is a whole number of patterns.
                unsafe { pattern.fill(to.address().raw(), to.byte_len(), stream) }
            })
        })
    }

    /// Copies staging memory to the device. Does not wait.
    pub fn write_pinned<T: Element>(&self, from: &Pinned<T>, to: &mut DeviceSlice<T>) -> Result<(), Error> {
        const OPERATION: &str = "Stream::write_pinned";
        ops::same_length(OPERATION, to.len(), from.len())?;
        self.copy_from_pinned(OPERATION, from, to)
    }

    /// Copies the first `to.len()` elements of staging memory to the device, as [`Stream::write_pinned`] does all.
    pub fn write_pinned_part<T: Element>(&self, from: &Pinned<T>, to: &mut DeviceSlice<T>) -> Result<(), Error> {
        const OPERATION: &str = "Stream::write_pinned_part";
        if to.len() > from.len() {
            return Err(Error::SizeMismatch { operation: OPERATION, to: to.len(), from: from.len() });
        }
        self.copy_from_pinned(OPERATION, from, to)
    }

    fn copy_from_pinned<T: Element>(
        &self,
        operation: &'static str,
        from: &Pinned<T>,
        to: &mut DeviceSlice<T>,
    ) -> Result<(), Error> {
        self.inner.issue(operation, |stream| {
            let target = ops::target(&self.inner.device, operation, "to", to, Owners::Any)?;
            self.inner.same_device(operation, "staging memory", &from.inner().device)?;
            self.inner.copied(to.is_empty(), &[target], || {
                from.inner().use_on(operation, &self.inner, |base| {
                    // SAFETY: both have `byte_len` bytes at least; the staging memory is not touched by
                    // the host until the copy is done.
                    unsafe { cu!(cuMemcpyHtoDAsync_v2(to.address().raw(), base.cast(), to.byte_len(), stream)) }
                })
            })
        })
    }

    /// Copies device memory to staging memory. Does not wait; [`Pinned::get`] does.
    pub fn read_pinned<T: Element>(&self, from: &DeviceSlice<T>, to: &Pinned<T>) -> Result<(), Error> {
        const OPERATION: &str = "Stream::read_pinned";
        ops::same_length(OPERATION, to.len(), from.len())?;
        self.inner.issue(OPERATION, |stream| {
            let source = ops::source(&self.inner.device, OPERATION, "from", from, Owners::Any)?;
            self.inner.same_device(OPERATION, "staging memory", &to.inner().device)?;
            self.inner.copied(from.is_empty(), &[source], || {
                to.inner().use_on(OPERATION, &self.inner, |base| {
                    // SAFETY: as in `write_pinned`, in the other direction.
                    unsafe { cu!(cuMemcpyDtoHAsync_v2(base.cast(), from.address().raw(), from.byte_len(), stream)) }
                })
            })
        })
    }

    /// Waits for all work on this stream. While checks are on, their findings are errors here: see [`findings`].
    pub fn synchronize(&self) -> Result<(), Error> {
        self.inner.synchronize("Stream::synchronize")?;
        findings()
    }

    /// An event at this point of the stream's work.
    pub fn record(&self) -> Result<Event, Error> {
        self.inner.issue("Stream::record", |_| self.inner.record())
    }

    /// What follows on this stream comes after `event`.
    pub fn wait(&self, event: &Event) -> Result<(), Error> {
        self.inner.issue("Stream::wait", |stream| {
            // SAFETY: stream and event are alive.
            unsafe { cu!(cuStreamWaitEvent(stream, event.raw, 0)) }?;
            event.is_before(&self.inner.lane);
            Ok(())
        })
    }

    /// Device time of what `work` issues on this stream, between two events. Waits for it.
    pub fn device_time(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<Duration, Error> {
        let start = self.record()?;
        work()?;
        let end = self.record()?;
        self.synchronize()?;
        start.elapsed(&end)
    }

    /// Runs `f` and measures each launch on this stream meanwhile, with events around it. Waits
    /// for the work at the end. Graph launches are measured as a whole.
    pub fn profile<R>(&self, f: impl FnOnce(&Stream) -> Result<R, Error>) -> Result<(R, Profile), Error> {
        struct Restore<'a>(&'a StreamInner, Option<Profiler>);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                *lock(&self.0.profiler) = self.1.take();
            }
        }
        let before = lock(&self.inner.profiler).replace(Profiler::default());
        let restore = Restore(&self.inner, before);
        let result = f(self)?;
        let profiler = lock(&self.inner.profiler).take().unwrap_or_default();
        drop(restore);
        self.synchronize()?;
        Ok((result, profiler.finish()?))
    }
}

impl StreamInner {
    pub fn raw(&self) -> CUstream {
        self.raw
    }

    pub fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` with the stream's handle, with the context current, and not while a capture of
    /// the stream goes on.
    pub fn issue<R>(&self, call: &'static str, f: impl FnOnce(CUstream) -> Result<R, Error>) -> Result<R, Error> {
        self.device.enter(call)?;
        self.issue_bound(call, f)
    }

    /// The same for calls that have made the context current themselves, such as those of `drop`.
    pub fn issue_bound<R>(&self, call: &'static str, f: impl FnOnce(CUstream) -> Result<R, Error>) -> Result<R, Error> {
        let state = self.state();
        match *state {
            State::Open => f(self.raw),
            State::Capturing => Err(Error::StreamCapturing { call }),
            State::Lost => Err(Error::StreamLost { call }),
        }
    }

    pub fn synchronize(&self, call: &'static str) -> Result<(), Error> {
        self.issue(call, |_| self.wait())
    }

    /// Waits for what was issued so far. The state is held, and the context current.
    pub fn wait(&self) -> Result<(), Error> {
        let issued = self.lane.issued();
        // SAFETY: the stream is alive for the length of the call.
        unsafe { cu!(cuStreamSynchronize(self.raw)) }?;
        self.lane.ended(issued);
        Ok(())
    }

    /// Issues an operation behind what used its memory on other streams. The state is held, and the context current.
    fn behind<'a>(
        &self,
        uses: impl IntoIterator<Item = &'a Use>,
        operation: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        // SAFETY: `issue` has seen that the stream is open, and has made its context current.
        unsafe { self.lane.issue(self.raw, uses, operation) }
    }

    /// An event at this point. The context is current.
    fn record(&self) -> Result<Event, Error> {
        let event = Event::new(&self.device, &self.lane)?;
        // SAFETY: stream and event are alive.
        unsafe { cu!(cuEventRecord(event.raw, self.raw)) }?;
        Ok(event)
    }

    /// Runs `issue` between two events if the stream is being profiled.
    pub fn timed(&self, name: &'static str, issue: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        if lock(&self.profiler).is_none() {
            return issue();
        }
        let start = self.record()?;
        issue()?;
        let end = self.record()?;
        if let Some(profiler) = lock(&self.profiler).as_mut() {
            profiler.add(name, start, end);
        }
        Ok(())
    }

    /// Issues and counts a copy behind what used its memory on other streams, unless it is empty.
    pub fn copied(
        &self,
        empty: bool,
        owners: &[Option<Use>],
        f: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !empty {
            self.behind(owners.iter().flatten(), f)?;
            self.copies.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    pub fn same_device(&self, operation: &'static str, what: &'static str, owner: &DeviceInner) -> Result<(), Error> {
        if owner.shares_context(&self.device) {
            return Ok(());
        }
        let (owner, device) = (owner.ordinal, self.device.ordinal);
        Err(Error::ForeignDevice { operation, what, owner, device })
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        let destroyed = self.device.bind_to_free().and_then(|()| {
            // SAFETY: made by `Stream::new`, destroyed here only; or borrowed, and alive by the promise of who lent it.
            unsafe {
                let waited = cu!(cuStreamSynchronize(self.raw));
                self.lane.close();
                if self.borrowed { waited } else { waited.and(cu!(cuStreamDestroy_v2(self.raw))) }
            }
        });
        if let Err(error) = destroyed {
            self.device.defer_error(error);
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("device", &self.inner.device.ordinal)
            .field("launches", &self.launches())
            .field("copies", &self.copies())
            .finish()
    }
}

launchers!(Stream => Stream, &Stream => Stream);
