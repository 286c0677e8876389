//! [`Event`]: a point in a stream's work.

use crate::order::Lane;
use crate::sys::{self, cu};
use crate::{DeviceInner, Error};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use warpsmith_driver_api::CUevent;

/// A point in a stream's work that other streams and the host can wait for, and that has a time.
/// [`Stream::record`](crate::Stream::record) makes one.
///
/// ```no_run
/// # use warpsmith_runtime::Device;
/// # let device = Device::open(0)?;
/// # let stream = device.stream()?;
/// let start = stream.record()?;
/// let x = stream.zeros::<f32>(1 << 20)?;
/// let end = stream.record()?;
/// println!("{:.3} ms", start.elapsed_ms(&end)?);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct Event {
    pub(crate) raw: CUevent,
    pub(crate) device: Arc<DeviceInner>,
    /// Whose work it is behind, and how much of it.
    lane: Option<Arc<Lane>>,
    upto: u64,
    /// Somebody else destroys it.
    borrowed: bool,
}

impl Event {
    /// A new event, not recorded yet. The device's context is current.
    pub(crate) fn new(device: &Arc<DeviceInner>, lane: &Arc<Lane>) -> Result<Event, Error> {
        let mut raw = CUevent::NULL;
        // SAFETY: `raw` is a live pointer variable.
        unsafe { cu!(cuEventCreate(&mut raw, 0)) }?;
        Ok(Event { raw, device: device.clone(), lane: Some(lane.clone()), upto: lane.issued(), borrowed: false })
    }

    /// One of somebody else's.
    pub(super) fn borrowed(device: &Arc<DeviceInner>, raw: CUevent) -> Event {
        Event { raw, device: device.clone(), lane: None, upto: 0, borrowed: true }
    }

    /// The work before it has ended.
    fn reached(&self) {
        if let Some(lane) = &self.lane {
            lane.ended(self.upto);
        }
    }

    /// Waits until the stream has got there.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.device.enter("Event::synchronize")?;
        // SAFETY: the event lives as long as `self`.
        unsafe { cu!(cuEventSynchronize(self.raw)) }?;
        self.reached();
        Ok(())
    }

    /// Takes note that what follows on another stream comes after it.
    pub(crate) fn is_before(&self, other: &Lane) {
        if let Some(lane) = &self.lane {
            other.knows(lane.id, self.upto);
        }
    }

    /// Whether the stream has got there.
    pub fn is_done(&self) -> Result<bool, Error> {
        self.device.enter("Event::is_done")?;
        // SAFETY: the event lives as long as `self`.
        match unsafe { warpsmith_driver_api::cuEventQuery(self.raw) } {
            sys::code::NOT_READY => Ok(false),
            code => {
                sys::check("cuEventQuery", code)?;
                self.reached();
                Ok(true)
            }
        }
    }

    /// Milliseconds of device time from this event to a later one. Waits for both.
    pub fn elapsed_ms(&self, later: &Event) -> Result<f32, Error> {
        self.synchronize()?;
        later.synchronize()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive, recorded with times and done.
        unsafe { cu!(cuEventElapsedTime(&mut milliseconds, self.raw, later.raw)) }?;
        Ok(milliseconds)
    }

    /// Device time from this event to a later one. Waits for both.
    pub fn elapsed(&self, later: &Event) -> Result<Duration, Error> {
        let seconds = f64::from(self.elapsed_ms(later)?.max(0.0)) * 1e-3;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        let destroyed = self.device.bind_to_free().and_then(|()| {
            // SAFETY: made by `Event::new`, destroyed here only; the driver keeps what streams
            // still wait for.
            unsafe { cu!(cuEventDestroy_v2(self.raw)) }
        });
        if let Err(error) = destroyed {
            self.device.defer_error(error);
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("raw", &self.raw).finish_non_exhaustive()
    }
}
