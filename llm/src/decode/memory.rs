//! Where a workspace's buffers come from: a device, or nothing but a sum.

use super::weights::padded;
use std::cell::Cell;
use warpsmith_device::Element;
use warpsmith_runtime::{Buffer, Error, Stream};

/// Where a workspace's buffers come from.
pub(super) trait Memory {
    /// `len` elements.
    type Buffer<T: Element>;
    /// Why there is no buffer.
    type Error;

    /// A buffer of `count` times `each` elements.
    fn buffer<T: Element>(&self, each: usize, count: usize) -> Result<Self::Buffer<T>, Self::Error>;

    /// The same, with every bit zero.
    fn zeros<T: Element>(&self, each: usize, count: usize) -> Result<Self::Buffer<T>, Self::Error>;
}

/// Memory of its device.
impl Memory for Stream {
    type Buffer<T: Element> = Buffer<T>;
    type Error = Error;

    fn buffer<T: Element>(&self, each: usize, count: usize) -> Result<Buffer<T>, Error> {
        self.device().alloc(each.saturating_mul(count))
    }

    fn zeros<T: Element>(&self, each: usize, count: usize) -> Result<Buffer<T>, Error> {
        Stream::zeros(self, each.saturating_mul(count))
    }
}

/// No memory: the sum of the bytes that a device would give.
#[derive(Debug, Default)]
pub(super) struct Measured(Cell<u64>);

impl Measured {
    /// The sum.
    pub fn bytes(&self) -> u64 {
        self.0.get()
    }
}

/// More bytes than a number holds.
#[derive(Debug)]
pub(super) struct TooMany;

impl Memory for Measured {
    type Buffer<T: Element> = ();
    type Error = TooMany;

    fn buffer<T: Element>(&self, each: usize, count: usize) -> Result<(), TooMany> {
        let elements = (each as u64).checked_mul(count as u64);
        let bytes = elements.and_then(|n| n.checked_mul(size_of::<T>() as u64)).filter(|n| *n <= u64::MAX - 511);
        // An empty buffer has an address of its own, and so a byte.
        self.0.set(bytes.and_then(|n| self.0.get().checked_add(padded(n.max(1)))).ok_or(TooMany)?);
        Ok(())
    }

    fn zeros<T: Element>(&self, each: usize, count: usize) -> Result<(), TooMany> {
        self.buffer::<T>(each, count)
    }
}
