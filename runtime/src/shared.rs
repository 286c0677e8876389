//! Device memory that kernels of several processes use: the handle of a buffer, and buffers of other processes; and events of several.

mod event;

pub use event::{EventHandle, SharedEvent};

use crate::device::DeviceInner;
use crate::sys::cu;
use crate::{Buffer, Device, Error};
use std::fmt;
use std::sync::Arc;
use warpsmith_device::Element;
use warpsmith_driver_api::IpcHandle;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the one flag that there is, and has to be given.
const LAZY_PEER_ACCESS: u32 = 1;
/// Bytes of the driver's handle.
const OF_DRIVER: usize = 64;

/// Names a [`Buffer`] for other processes of the same machine: bytes that any connection may carry, and that mean something as long as
/// the buffer lives.
///
/// ```no_run
/// # use warpsmith_runtime::{BufferHandle, Device, Error};
/// # fn send(_: &[u8]) {}
/// # fn receive() -> [u8; BufferHandle::BYTES] { [0; BufferHandle::BYTES] }
/// # fn one(device: &Device) -> Result<(), Error> {
/// // One process has the memory,
/// let x = device.stream()?.zeros::<f32>(1024)?;
/// send(&x.handle()?.to_bytes());
/// # Ok(()) }
/// # fn other(device: &Device) -> Result<(), Error> {
/// // and another one uses it.
/// let handle = BufferHandle::from_bytes(receive());
/// // SAFETY: the processes take turns.
/// let x = unsafe { device.open_buffer::<f32>(handle) }?;
/// assert_eq!(x.len(), 1024);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BufferHandle {
    driver: [u8; OF_DRIVER],
    /// Bytes of the buffer.
    bytes: u64,
}

impl BufferHandle {
    /// Bytes of a handle.
    pub const BYTES: usize = OF_DRIVER + size_of::<u64>();

    /// The handle for the other process.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut all = [0; Self::BYTES];
        all[..OF_DRIVER].copy_from_slice(&self.driver);
        all[OF_DRIVER..].copy_from_slice(&self.bytes.to_le_bytes());
        all
    }

    /// What [`to_bytes`](Self::to_bytes) gave. Bytes that are none are refused where they are opened.
    #[must_use]
    pub fn from_bytes(all: [u8; Self::BYTES]) -> BufferHandle {
        let (mut driver, mut bytes) = ([0; OF_DRIVER], [0; size_of::<u64>()]);
        driver.copy_from_slice(&all[..OF_DRIVER]);
        bytes.copy_from_slice(&all[OF_DRIVER..]);
        BufferHandle { driver, bytes: u64::from_le_bytes(bytes) }
    }
}

impl fmt::Debug for BufferHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferHandle").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<T: Element> Buffer<T> {
    /// The handle by which other processes [open](Device::open_buffer) this memory. The buffer has to outlive what they do with it; the
    /// software driver reports memory that is freed while another process has it open.
    ///
    /// # Errors
    /// Those of the driver: memory that other code allocated in a pool has no handle, and only Linux has them.
    pub fn handle(&self) -> Result<BufferHandle, Error> {
        let allocation = self.allocation();
        allocation.device.enter("Buffer::handle")?;
        let mut handle = IpcHandle { reserved: [0; OF_DRIVER] };
        // SAFETY: the buffer's memory lives; `handle` is a live variable.
        unsafe { cu!(cuIpcGetMemHandle(&mut handle, allocation.address)) }?;
        Ok(BufferHandle { driver: handle.reserved.map(|byte| byte as u8), bytes: self.byte_len() as u64 })
    }
}

impl Device {
    /// The buffer of another process that has this [handle](Buffer::handle), as elements of any type that fits. Graphs keep it like any
    /// other; it is closed when its last user is gone.
    ///
    /// # Errors
    /// [`Error::Handle`] where its bytes are no whole number of elements or more than the memory has, [`Error::Owned`] where a buffer of
    /// this device has it open already, and those of the driver: a process cannot open what is its own.
    ///
    /// # Safety
    /// The other process keeps the memory for as long as it is used here, and what processes do to it is ordered: by what they tell one
    /// another on the host, by events, or by kernels with atomics of system scope. What is there is a valid element, as all bits are.
    pub unsafe fn open_buffer<T: Element>(&self, handle: BufferHandle) -> Result<Buffer<T>, Error> {
        const CALL: &str = "Device::open_buffer";
        let element = size_of::<T>().max(1) as u64;
        let refused = |why| Err(Error::Handle { bytes: handle.bytes, why });
        if !handle.bytes.is_multiple_of(element) {
            return refused(format!("which is no whole number of elements of {element}"));
        }
        self.inner.enter(CALL)?;
        let mut address = 0;
        let of_driver = IpcHandle { reserved: handle.driver.map(|byte| byte as _) };
        // SAFETY: `address` is a live variable.
        unsafe { cu!(cuIpcOpenMemHandle_v2(&mut address, of_driver, LAZY_PEER_ACCESS)) }?;
        let opened = Opened { device: self.inner.clone(), address };
        let (mut base, mut all) = (0, 0);
        // SAFETY: both are live variables.
        unsafe { cu!(cuMemGetAddressRange_v2(&mut base, &mut all, address)) }?;
        let there = (base + all as u64).saturating_sub(address);
        if handle.bytes > there {
            return refused(format!("of memory that has {there}"));
        }
        // SAFETY: the driver has mapped it, until `opened` is dropped.
        unsafe { Buffer::from_raw(self, address, (handle.bytes / element) as usize, opened) }
    }
}

/// Memory of another process, closed when it is dropped.
struct Opened {
    device: Arc<DeviceInner>,
    address: u64,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: it was opened here, and all work with it has ended.
        let closed = self.device.bind_to_free().and_then(|()| unsafe { cu!(cuIpcCloseMemHandle(self.address)) });
        if let Err(error) = closed {
            self.device.defer_error(error);
        }
    }
}
