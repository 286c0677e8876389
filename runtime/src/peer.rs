//! Several devices: access of one's kernels to the memory of another, and copies between them.

use crate::launch::Owners;
use crate::memory::Place;
use crate::order::Use;
use crate::sys::{self, code, cu};
use crate::{Capture, Device, DeviceInner, Error, Stream, ops};
use std::sync::Arc;
use warpsmith_device::{DeviceSlice, Element};

impl Device {
    /// Whether kernels of this device can reach the memory of another one. `false` for the device itself.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn can_access(&self, peer: &Device) -> Result<bool, Error> {
        Device::reaches(self.ordinal(), peer.ordinal())
    }

    /// The same by ordinals, of devices that need not be open. Starts the engine.
    ///
    /// # Errors
    /// Those of the driver, which knows no others than `0..Device::count()`.
    pub fn reaches(device: u32, peer: u32) -> Result<bool, Error> {
        Device::count()?;
        let handle = |ordinal: u32| {
            let found = cust::device::Device::get_device(ordinal);
            Ok::<_, Error>(sys::cust("cuDeviceGet", found)?.as_raw())
        };
        let mut can = 0;
        let (device, peer) = (handle(device)?, handle(peer)?);
        // SAFETY: `can` is a live integer; the driver gave out both devices.
        unsafe { cu!(cuDeviceCanAccessPeer(&mut can, device, peer)) }?;
        Ok(can != 0)
    }

    /// Lets kernels of this device reach the memory of `peer`, all of it, until the process ends; not the other way round. Once it
    /// is so, or where both are one device, there is nothing to do. Copies between devices need no access.
    ///
    /// # Errors
    /// [`Error::NoPeerAccess`] where nothing leads from one to the other, and those of the driver.
    pub fn enable_peer(&self, peer: &Device) -> Result<(), Error> {
        const CALL: &str = "Device::enable_peer";
        if self.inner.shares_context(&peer.inner) {
            return Ok(());
        }
        if !self.can_access(peer)? {
            return Err(Error::NoPeerAccess { device: self.ordinal(), peer: peer.ordinal() });
        }
        self.inner.enter(CALL)?;
        // SAFETY: the peer's context is alive, and that of this device current.
        match unsafe { cu!(cuCtxEnablePeerAccess(peer.inner.raw_context(), 0)) } {
            Err(Error::Driver { code: code::PEER_ACCESS_ALREADY_ENABLED, .. }) => Ok(()),
            Err(Error::Driver { code: code::PEER_ACCESS_UNSUPPORTED | code::TOO_MANY_PEERS, .. }) => {
                Err(Error::NoPeerAccess { device: self.ordinal(), peer: peer.ordinal() })
            }
            enabled => enabled,
        }
    }
}

/// The buffer that a slice is of, on whichever device.
fn owner<T: Element>(
    here: &DeviceInner,
    operation: &'static str,
    argument: &'static str,
    slice: &DeviceSlice<T>,
    writes: bool,
) -> Result<Option<Use>, Error> {
    if slice.is_empty() {
        return Ok(None);
    }
    let (address, bytes) = (slice.address().raw(), slice.byte_len() as u64);
    for device in here.others() {
        if let Place::Within(owner) = device.memory.place(address, bytes) {
            return Ok(Some((owner, writes)));
        }
    }
    ops::source(here, operation, argument, slice, Owners::Known).map(|found| found.map(|(owner, _)| (owner, writes)))
}

/// Issues a copy between the buffers of two devices, or of one.
fn enqueue(
    stream: warpsmith_driver_api::CUstream,
    to: (&Use, u64),
    from: (&Use, u64),
    bytes: usize,
) -> Result<(), Error> {
    let context = |(owner, _): &Use| owner.device.raw_context();
    // SAFETY: both ranges are within live allocations, and each context is its allocation's.
    unsafe { cu!(cuMemcpyPeerAsync(to.1, context(to.0), from.1, context(from.0), bytes, stream)) }
}

impl Stream {
    /// Copies between slices of one length of any two devices, with or without access between them. Does not wait. It comes after
    /// what used either on other streams, also those of the other device, and they wait for it.
    ///
    /// # Errors
    /// Slices of different lengths or of no buffer, and those of the driver.
    pub fn copy_peer<T: Element>(&self, from: &DeviceSlice<T>, to: &mut DeviceSlice<T>) -> Result<(), Error> {
        const OPERATION: &str = "Stream::copy_peer";
        ops::same_length(OPERATION, to.len(), from.len())?;
        self.inner.issue(OPERATION, |stream| {
            let source = owner(&self.inner.device, OPERATION, "from", from, false)?;
            let target = owner(&self.inner.device, OPERATION, "to", to, true)?;
            let Some((source, target)) = source.zip(target) else { return Ok(()) };
            let (ends, bytes) = ((from.address().raw(), to.address().raw()), to.byte_len());
            self.inner.copied(false, &[Some(source.clone()), Some(target.clone())], || {
                enqueue(stream, (&target, ends.1), (&source, ends.0), bytes)
            })
        })
    }
}

impl Capture<'_> {
    /// Records a copy between slices of one length of any two devices. The graph keeps both buffers.
    ///
    /// # Errors
    /// As for [`Stream::copy_peer`].
    pub fn copy_peer<T: Element>(&mut self, from: &DeviceSlice<T>, to: &mut DeviceSlice<T>) -> Result<(), Error> {
        const OPERATION: &str = "Capture::copy_peer";
        self.record(|stream, recorded| {
            ops::same_length(OPERATION, to.len(), from.len())?;
            let source = owner(&stream.device, OPERATION, "from", from, false)?;
            let target = owner(&stream.device, OPERATION, "to", to, true)?;
            let Some((source, target)) = source.zip(target) else { return Ok(()) };
            let (ends, bytes) = ((from.address().raw(), to.address().raw()), to.byte_len());
            recorded.copied([Some(source.clone()), Some(target.clone())], false, || {
                enqueue(stream.raw(), (&target, ends.1), (&source, ends.0), bytes)
            })
        })
    }
}

impl DeviceInner {
    /// Devices with contexts of their own, as far as they are open.
    fn others(&self) -> Vec<Arc<DeviceInner>> {
        crate::device::open().into_iter().filter(|other| !other.shares_context(self)).collect()
    }
}
