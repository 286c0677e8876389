//! [`DeviceSlice`]: a borrow of device memory.

use crate::{DeviceAddress, Element};
use core::{
    fmt,
    marker::PhantomData,
    ops::{
        Bound, Index, IndexMut, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
    },
    ptr,
};

/// A run of `T` in device memory. It only exists behind a reference, like `str` or `[T]`.
///
/// `&DeviceSlice<T>` is a device address and a length. Owners of device memory dereference to it;
/// kernels borrow it: `&` to read, `&mut` to write. Since the type is unsized, a slice cannot be
/// copied out of its borrow or swapped with another: what holds one also holds its buffer alive,
/// and two `&mut` never overlap.
///
/// ```
/// # use warpsmith_device::DeviceSlice;
/// # fn f(buffer: &mut DeviceSlice<f32>) {
/// let (head, tail) = buffer.split_at_mut(128).unwrap();
/// let first = &head[..64];
/// assert_eq!(first.address().byte_add(4 * 128), tail.address());
/// # }
/// # f(unsafe { DeviceSlice::from_raw_mut(0x1000, 256) })
/// ```
///
/// # Why this is sound
/// The value behind the reference is a slice of `()` and so zero bytes large: a reference to it
/// has to be non-null and is otherwise free to hold any address. The device address is kept there
/// as an address without provenance. Nothing on the host reads or writes through it, and nothing
/// could: there is no byte that it may reach. A slice of length 0 made from address 0 gets an
/// aligned non-null address instead. Exclusiveness, lifetime and thread rules are those of any
/// `&` and `&mut`; `Send` and `Sync` follow `T`, as they do for `[T]`.
#[repr(transparent)]
pub struct DeviceSlice<T> {
    element: PhantomData<T>,
    units: [()],
}

impl<T> DeviceSlice<T> {
    /// Its elements.
    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its device address. Not an address of the host; of an empty slice it may be any.
    pub fn address(&self) -> DeviceAddress {
        DeviceAddress::new(self.units.as_ptr().addr() as u64)
    }

    /// Its bytes.
    pub fn byte_len(&self) -> usize {
        self.len() * size_of::<T>()
    }
}

impl<T: Element> DeviceSlice<T> {
    /// The slice of `len` elements from device address `address` on.
    ///
    /// # Safety
    /// For the lifetime `'a`: the bytes `address .. address + len * size_of::<T>()` lie in one live
    /// device allocation, `address` is a multiple of `align_of::<T>()`, and nothing writes them
    /// except what is ordered before or after every use of the slice. Address 0 is for length 0.
    pub unsafe fn from_raw<'a>(address: u64, len: usize) -> &'a DeviceSlice<T> {
        let units: *const [()] = ptr::slice_from_raw_parts(ptr::without_provenance(Self::place(address)), len);
        // SAFETY: not null (`place`), and the target is zero bytes large with alignment 1. The
        // cast keeps the length: both types are slices of `()`, one in a transparent struct.
        unsafe { &*(units as *const DeviceSlice<T>) }
    }

    /// The exclusive slice of `len` elements from device address `address` on.
    ///
    /// # Safety
    /// As [`from_raw`](Self::from_raw), and no other slice overlaps it for the lifetime `'a`.
    pub unsafe fn from_raw_mut<'a>(address: u64, len: usize) -> &'a mut DeviceSlice<T> {
        let units: *mut [()] = ptr::slice_from_raw_parts_mut(ptr::without_provenance_mut(Self::place(address)), len);
        // SAFETY: as in `from_raw`; the reference reaches no byte, so it aliases none on the host.
        unsafe { &mut *(units as *mut DeviceSlice<T>) }
    }

    fn place(address: u64) -> usize {
        if address == 0 { align_of::<T>() } else { address as usize }
    }

    /// The empty slice.
    pub fn empty<'a>() -> &'a DeviceSlice<T> {
        // SAFETY: length 0 asks for no memory.
        unsafe { Self::from_raw(0, 0) }
    }

    /// The empty exclusive slice.
    pub fn empty_mut<'a>() -> &'a mut DeviceSlice<T> {
        // SAFETY: length 0 asks for no memory.
        unsafe { Self::from_raw_mut(0, 0) }
    }

    /// The elements of a range, or `None` where the range is not within the slice.
    pub fn get(&self, range: impl RangeBounds<usize>) -> Option<&DeviceSlice<T>> {
        let r = self.resolve(range)?;
        // SAFETY: within this slice, whose borrow the result prolongs.
        Some(unsafe { self.part(r) })
    }

    /// The elements of a range, exclusively, or `None` where the range is not within the slice.
    pub fn get_mut(&mut self, range: impl RangeBounds<usize>) -> Option<&mut DeviceSlice<T>> {
        let r = self.resolve(range)?;
        // SAFETY: within this slice, whose exclusive borrow the result prolongs.
        Some(unsafe { self.part_mut(r) })
    }

    /// The elements before `mid` and those from it on, or `None` if there are fewer.
    pub fn split_at(&self, mid: usize) -> Option<(&DeviceSlice<T>, &DeviceSlice<T>)> {
        Some((self.get(..mid)?, self.get(mid..)?))
    }

    /// The elements before `mid` and those from it on, exclusively, or `None` if there are fewer.
    pub fn split_at_mut(&mut self, mid: usize) -> Option<(&mut DeviceSlice<T>, &mut DeviceSlice<T>)> {
        let len = self.len();
        if mid > len {
            return None;
        }
        // SAFETY: two disjoint parts of this slice, whose exclusive borrow both prolong.
        Some(unsafe { (self.part_mut(0..mid), self.part_mut(mid..len)) })
    }

    /// The same bytes as elements of another type, or `None` if address or length do not fit it.
    pub fn cast<U: Element>(&self) -> Option<&DeviceSlice<U>> {
        let len = self.cast_len::<U>()?;
        // SAFETY: the same bytes under the same borrow; alignment and length were checked, and
        // any bits are a valid element.
        Some(unsafe { DeviceSlice::from_raw(self.address().raw(), len) })
    }

    /// The same bytes as elements of another type, exclusively.
    pub fn cast_mut<U: Element>(&mut self) -> Option<&mut DeviceSlice<U>> {
        let len = self.cast_len::<U>()?;
        // SAFETY: as in `cast`, and the exclusive borrow goes over to the result.
        Some(unsafe { DeviceSlice::from_raw_mut(self.address().raw(), len) })
    }

    fn cast_len<U: Element>(&self) -> Option<usize> {
        let fits = size_of::<U>() != 0
            && self.address().raw().is_multiple_of(align_of::<U>() as u64)
            && self.byte_len().is_multiple_of(size_of::<U>());
        if self.is_empty() {
            return Some(0);
        }
        fits.then(|| self.byte_len() / size_of::<U>())
    }

    fn resolve(&self, range: impl RangeBounds<usize>) -> Option<Range<usize>> {
        let start = match range.start_bound() {
            Bound::Included(&n) => n,
            Bound::Excluded(&n) => n.checked_add(1)?,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&n) => n.checked_add(1)?,
            Bound::Excluded(&n) => n,
            Bound::Unbounded => self.len(),
        };
        (start <= end && end <= self.len()).then_some(start..end)
    }

    /// # Safety
    /// `r` lies within the slice.
    unsafe fn part(&self, r: Range<usize>) -> &DeviceSlice<T> {
        let address = self.address().raw() + (r.start * size_of::<T>()) as u64;
        // SAFETY: a part of this slice (the caller's promise) has this slice's guarantees.
        unsafe { Self::from_raw(address, r.len()) }
    }

    /// # Safety
    /// `r` lies within the slice, and no other part that overlaps it is alive for `'a`, which
    /// this slice's exclusive borrow covers.
    unsafe fn part_mut<'a>(&self, r: Range<usize>) -> &'a mut DeviceSlice<T> {
        let address = self.address().raw() + (r.start * size_of::<T>()) as u64;
        // SAFETY: a part of this slice (the caller's promise) has this slice's guarantees.
        unsafe { Self::from_raw_mut(address, r.len()) }
    }
}

impl<T: Element> fmt::Debug for DeviceSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceSlice").field("address", &self.address()).field("len", &self.len()).finish()
    }
}

macro_rules! index {
    ($($range:ty),*) => { $(
        impl<T: Element> Index<$range> for DeviceSlice<T> {
            type Output = DeviceSlice<T>;
            #[track_caller]
            #[allow(clippy::panic)] // Indexing panics, as it does on `[T]`; `get` does not.
            fn index(&self, range: $range) -> &DeviceSlice<T> {
                match self.get(range.clone()) {
                    Some(part) => part,
                    None => panic!("range {range:?} is not within a device slice of length {}", self.len()),
                }
            }
        }
        impl<T: Element> IndexMut<$range> for DeviceSlice<T> {
            #[track_caller]
            #[allow(clippy::panic)] // Indexing panics, as it does on `[T]`; `get_mut` does not.
            fn index_mut(&mut self, range: $range) -> &mut DeviceSlice<T> {
                let len = self.len();
                match self.get_mut(range.clone()) {
                    Some(part) => part,
                    None => panic!("range {range:?} is not within a device slice of length {len}"),
                }
            }
        }
    )* };
}
index!(Range<usize>, RangeFrom<usize>, RangeTo<usize>, RangeInclusive<usize>, RangeToInclusive<usize>, RangeFull);
