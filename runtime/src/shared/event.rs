//! Events that processes share: one makes it, others open it by its handle, and each records it and waits for it.

use crate::device::DeviceInner;
use crate::sys::{self, code, cu};
use crate::{Device, Error, Stream};
use std::fmt;
use std::sync::Arc;
use warpsmith_driver_api::{CUevent, IpcHandle};

/// Bytes of a handle.
const BYTES: usize = 64;

/// Names a [`SharedEvent`] for other processes of the same machine: bytes that any connection may carry, and that mean something as long as
/// the event lives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EventHandle([u8; BYTES]);

impl EventHandle {
    /// Bytes of a handle.
    pub const BYTES: usize = BYTES;

    /// The handle for the other process.
    #[must_use]
    pub fn to_bytes(self) -> [u8; BYTES] {
        self.0
    }

    /// What [`to_bytes`](Self::to_bytes) gave. Bytes that are none are refused where they are opened.
    #[must_use]
    pub fn from_bytes(bytes: [u8; BYTES]) -> EventHandle {
        EventHandle(bytes)
    }
}

impl fmt::Debug for EventHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventHandle").finish_non_exhaustive()
    }
}

/// A point in the work of streams of several processes. Unlike an [`Event`](crate::Event) it has no time, and is recorded again and again, by
/// any of them: who waits for it waits for the last record that was issued by then, and for nothing before the first.
///
/// ```no_run
/// # use warpsmith_runtime::{Device, Error, EventHandle};
/// # fn send(_: &[u8]) {}
/// # fn receive() -> [u8; EventHandle::BYTES] { [0; EventHandle::BYTES] }
/// # fn one(device: &Device) -> Result<(), Error> {
/// // One process makes it, and records it behind its work,
/// let (stream, written) = (device.stream()?, device.shared_event()?);
/// stream.record_shared(&written)?;
/// send(&written.handle()?.to_bytes());
/// # Ok(()) }
/// # fn other(device: &Device) -> Result<(), Error> {
/// // and what follows on a stream of another one comes after that.
/// // SAFETY: the first process keeps the event until this one has ended.
/// let written = unsafe { device.open_event(EventHandle::from_bytes(receive())) }?;
/// device.stream()?.wait_shared(&written)?;
/// # Ok(()) }
/// ```
pub struct SharedEvent {
    raw: CUevent,
    device: Arc<DeviceInner>,
}

impl Device {
    /// Whether processes can share memory and events of this device.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn can_share(&self) -> Result<bool, Error> {
        let device = sys::cust("cuDeviceGet", cust::device::Device::get_device(self.ordinal()))?;
        let mut can = 0;
        // SAFETY: `can` is a live integer; the driver gave out the device.
        unsafe { cu!(cuDeviceGetAttribute(&mut can, sys::DEVICE_IPC_EVENTS, device.as_raw())) }?;
        Ok(can != 0)
    }

    /// A new event that other processes can [open](Device::open_event), not recorded yet.
    ///
    /// # Errors
    /// [`Error::NotShared`] where the device has no such events ([`can_share`](Device::can_share)), and those of the driver.
    pub fn shared_event(&self) -> Result<SharedEvent, Error> {
        self.enter_to_share("Device::shared_event")?;
        let mut raw = CUevent::NULL;
        // SAFETY: `raw` is a live pointer variable.
        unsafe { cu!(cuEventCreate(&mut raw, sys::EVENT_DISABLE_TIMING | sys::EVENT_INTERPROCESS)) }?;
        Ok(SharedEvent { raw, device: self.inner.clone() })
    }

    /// The event of another process that has this [handle](SharedEvent::handle).
    ///
    /// # Errors
    /// [`Error::NotShared`] where the device has no such events, and those of the driver: for bytes that are no handle, for the handle of an
    /// event that is gone, and for one that is this process's own.
    ///
    /// # Safety
    /// The process that made it keeps it for as long as it is used here.
    pub unsafe fn open_event(&self, handle: EventHandle) -> Result<SharedEvent, Error> {
        self.enter_to_share("Device::open_event")?;
        let mut raw = CUevent::NULL;
        let of_driver = IpcHandle { reserved: handle.0.map(|byte| byte as _) };
        // SAFETY: `raw` is a live pointer variable.
        unsafe { cu!(cuIpcOpenEventHandle(&mut raw, of_driver)) }?;
        Ok(SharedEvent { raw, device: self.inner.clone() })
    }

    fn enter_to_share(&self, call: &'static str) -> Result<(), Error> {
        if !self.can_share()? {
            return Err(Error::NotShared { call, device: self.ordinal() });
        }
        self.inner.enter(call)
    }
}

impl SharedEvent {
    /// The handle by which other processes open it. The event has to outlive what they do with it.
    ///
    /// # Errors
    /// Those of the driver: an event that was opened here has none to give.
    pub fn handle(&self) -> Result<EventHandle, Error> {
        self.device.enter("SharedEvent::handle")?;
        let mut handle = IpcHandle { reserved: [0; BYTES] };
        // SAFETY: the event lives; `handle` is a live variable.
        unsafe { cu!(cuIpcGetEventHandle(&mut handle, self.raw)) }?;
        Ok(EventHandle(handle.reserved.map(|byte| byte as u8)))
    }

    /// Whether the last record was passed, whoever issued it; so it is before the first.
    ///
    /// # Errors
    /// Those of the driver: a record that never will be passed, as its process has ended.
    pub fn is_done(&self) -> Result<bool, Error> {
        self.device.enter("SharedEvent::is_done")?;
        // SAFETY: the event lives as long as `self`.
        match unsafe { warpsmith_driver_api::cuEventQuery(self.raw) } {
            code::NOT_READY => Ok(false),
            code => sys::check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits, on the host, until the last record that was issued by now is passed.
    ///
    /// # Errors
    /// As for [`is_done`](Self::is_done).
    pub fn synchronize(&self) -> Result<(), Error> {
        self.device.enter("SharedEvent::synchronize")?;
        // SAFETY: the event lives as long as `self`.
        unsafe { cu!(cuEventSynchronize(self.raw)) }
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        // SAFETY: made or opened here, destroyed here only; the driver keeps what streams still wait for.
        let destroyed = self.device.bind_to_free().and_then(|()| unsafe { cu!(cuEventDestroy_v2(self.raw)) });
        if let Err(error) = destroyed {
            self.device.defer_error(error);
        }
    }
}

impl fmt::Debug for SharedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedEvent").field("raw", &self.raw).finish_non_exhaustive()
    }
}

impl Stream {
    /// Records an event of several processes at this point of the stream's work.
    ///
    /// # Errors
    /// A stream that is being captured, an event of another device, and those of the driver.
    pub fn record_shared(&self, event: &SharedEvent) -> Result<(), Error> {
        const CALL: &str = "Stream::record_shared";
        self.inner.issue(CALL, |stream| {
            self.inner.same_device(CALL, "the event", &event.device)?;
            // SAFETY: stream and event are alive.
            unsafe { cu!(cuEventRecord(event.raw, stream)) }
        })
    }

    /// What follows on this stream comes after the last record of the event that was issued by now, in whatever process.
    ///
    /// # Errors
    /// A stream that is being captured, and those of the driver.
    pub fn wait_shared(&self, event: &SharedEvent) -> Result<(), Error> {
        self.inner.issue("Stream::wait_shared", |stream| {
            // SAFETY: stream and event are alive.
            unsafe { cu!(cuStreamWaitEvent(stream, event.raw, 0)) }
        })
    }
}
