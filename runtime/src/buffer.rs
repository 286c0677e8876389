//! [`Buffer`]: owned device memory.

use crate::memory::Allocation;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use warpsmith_device::{DeviceSlice, Element};

/// Device memory for a number of elements. Dereferences to [`DeviceSlice`], which launches and
/// copies take: `&buffer` to read, `&mut buffer` to write, `&buffer[..n]` for a part.
///
/// Dropping it frees the memory, unless a graph that was captured with it still exists: the graph
/// owns it too, and the last owner frees it. It may be dropped while work that uses it is still
/// queued, since the driver waits for that, and inside a capture, since freeing is then put off.
///
/// ```no_run
/// # use warpsmith_runtime::Device;
/// # let device = Device::open(0)?;
/// let stream = device.stream()?;
/// let mut x = stream.zeros::<f32>(1024)?;
/// stream.fill(&mut x[..512], 1.0)?;
/// assert_eq!(stream.read(&x[511..513])?, [1.0, 0.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// A slice does not outlive its buffer, and cannot be copied out of it:
///
/// ```compile_fail,E0505
/// # fn f(x: warpsmith_runtime::Buffer<u32>, stream: &warpsmith_runtime::Stream) -> Result<(), warpsmith_runtime::Error> {
/// let part = &x[..4];
/// drop(x);
/// stream.read(part)?;
/// # Ok(()) }
/// ```
/// ```compile_fail,E0277
/// # fn f(x: warpsmith_runtime::Buffer<u32>) {
/// let slice = *x;
/// # }
/// ```
///
/// A launch cannot read what it writes:
///
/// ```compile_fail,E0502
/// # use gpu_kernels::elementwise::ResidualAdd;
/// # fn f(mut x: warpsmith_runtime::Buffer<f32>, stream: &warpsmith_runtime::Stream) -> Result<(), warpsmith_runtime::Error> {
/// stream.launch(ResidualAdd { x: &x, residual: &x, y: &mut x, n: 4 })?;
/// # Ok(()) }
/// ```
pub struct Buffer<T> {
    allocation: Arc<Allocation>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    pub(crate) fn new(allocation: Arc<Allocation>, len: usize) -> Buffer<T> {
        Buffer { allocation, len, element: PhantomData }
    }

    pub(crate) fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// A number that no other buffer of this process has or will have. It belongs to the memory:
    /// what is keyed by it never meets another buffer at the same address.
    pub fn id(&self) -> u64 {
        self.allocation.id
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = DeviceSlice<T>;

    fn deref(&self) -> &DeviceSlice<T> {
        // SAFETY: the allocation has `len` elements, is aligned to 256 bytes and lives as long as
        // `self`; writers of the slice need `&mut self`.
        unsafe { DeviceSlice::from_raw(self.allocation.address, self.len) }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut DeviceSlice<T> {
        // SAFETY: as in `deref`, and `&mut self` is the only way to a slice of this allocation
        // for the borrow's lifetime. (Graphs write to it when they are launched, which is ordered
        // by the stream like any other work.)
        unsafe { DeviceSlice::from_raw_mut(self.allocation.address, self.len) }
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("id", &self.allocation.id)
            .field("address", &format_args!("{:#x}", self.allocation.address))
            .field("len", &self.len)
            .field("element", &std::any::type_name::<T>())
            .finish()
    }
}
