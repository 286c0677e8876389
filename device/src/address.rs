//! [`DeviceAddress`]: a device address as data.

use core::fmt;

/// A device address that lies in device memory or in an argument, for a kernel to follow: the field of an
/// [`Element`](crate::Element) that says where other memory is.
///
/// A launch borrows the buffers among its arguments; what an address leads to it knows nothing of. So a kernel that takes
/// elements with such a field is not [`Confined`](crate::launch::Confined), and `launch` refuses it at compile time: it takes
/// `launch_unchecked`, which is `unsafe`, and whose caller sees to the memory. `DeviceSlice::address` gives no other type.
///
/// ```
/// # use warpsmith_device::{DeviceAddress, DeviceSlice, prelude::*};
/// /// Where a list goes on.
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Link {
///     next: DeviceAddress,
/// }
///
/// # let buffer = unsafe { DeviceSlice::<u32>::from_raw(0x1000, 8) };
/// assert!(!Link { next: buffer.address() }.next.is_null());
/// assert_eq!(buffer.address().byte_add(4).raw(), 0x1004);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct DeviceAddress(u64);

crate::element::transparent_bits!(DeviceAddress, u64, 0b11);

impl DeviceAddress {
    /// The address of nothing.
    pub const NULL: DeviceAddress = DeviceAddress(0);

    /// Whether it is the address of nothing.
    #[inline(always)]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The number. What is done with it is no longer seen by the types: a kernel that follows numbers out of plain integers
    /// breaks what `#[kernel]` promises for it.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The address so many bytes further on.
    #[inline(always)]
    #[must_use]
    pub const fn byte_add(self, bytes: u64) -> DeviceAddress {
        DeviceAddress(self.0.wrapping_add(bytes))
    }

    /// As a pointer, on the device.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub const fn ptr<T>(self) -> *mut T {
        self.0 as *mut T
    }

    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) const fn new(raw: u64) -> DeviceAddress {
        DeviceAddress(raw)
    }
}

impl fmt::Debug for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::LowerHex for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}
