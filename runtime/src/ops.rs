//! Copies and fills: their checks, and their driver calls, shared by streams and captures.

use crate::launch::Owners;
use crate::order::Use;
use crate::sys::cu;
use crate::{DeviceInner, Error};
use warpsmith_device::{DeviceSlice, Element};
use warpsmith_driver_api::CUstream;

/// Checks the lengths of a copy.
pub fn same_length(operation: &'static str, to: usize, from: usize) -> Result<(), Error> {
    if to == from { Ok(()) } else { Err(Error::SizeMismatch { operation, to, from }) }
}

/// The owner of a slice that is read, checked as for a launch.
pub fn source<T: Element>(
    device: &DeviceInner,
    operation: &'static str,
    argument: &'static str,
    slice: &DeviceSlice<T>,
    accept: Owners,
) -> Result<Option<Use>, Error> {
    let address = slice.address().raw();
    let owner = device.owner(operation, argument, address, slice.byte_len() as u64)?;
    if owner.is_none() && accept == Owners::Known && !slice.is_empty() {
        return Err(Error::UnknownOwner { operation, argument, address });
    }
    Ok(owner.map(|owner| (owner, false)))
}

/// The owner of a slice that is written.
pub fn target<T: Element>(
    device: &DeviceInner,
    operation: &'static str,
    argument: &'static str,
    slice: &DeviceSlice<T>,
    accept: Owners,
) -> Result<Option<Use>, Error> {
    Ok(source(device, operation, argument, slice, accept)?.map(|(owner, _)| (owner, true)))
}

/// The shortest pattern that a value repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    Byte(u8),
    Half(u16),
    Word(u32),
}

impl Pattern {
    pub fn of<T: Element>(value: &T) -> Result<Pattern, Error> {
        let bytes = bytemuck::bytes_of(value);
        let repeats = |n: usize| bytes.len().is_multiple_of(n) && bytes.chunks_exact(n).all(|c| c == &bytes[..n]);
        match bytes {
            [] => Ok(Pattern::Byte(0)),
            &[a, ..] if repeats(1) => Ok(Pattern::Byte(a)),
            &[a, b, ..] if repeats(2) => Ok(Pattern::Half(u16::from_ne_bytes([a, b]))),
            &[a, b, c, d, ..] if repeats(4) => Ok(Pattern::Word(u32::from_ne_bytes([a, b, c, d]))),
            _ => Err(Error::FillPattern { bytes: bytes.len() }),
        }
    }

    /// Fills `bytes` bytes from `address` on.
    ///
    /// # Safety
    /// The range is device memory that the stream's work may write, a whole number of patterns,
    /// and aligned to the pattern; the stream is alive and its context current.
    pub unsafe fn fill(self, address: u64, bytes: usize, stream: CUstream) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Pattern::Byte(v) => cu!(cuMemsetD8Async(address, v, bytes, stream)),
                Pattern::Half(v) => cu!(cuMemsetD16Async(address, v, bytes / 2, stream)),
                Pattern::Word(v) => cu!(cuMemsetD32Async(address, v, bytes / 4, stream)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_device::U32x4;

    #[test]
    fn the_shortest_pattern_is_taken() {
        assert_eq!(Pattern::of(&0.0f64).unwrap(), Pattern::Byte(0));
        assert_eq!(Pattern::of(&-1i64).unwrap(), Pattern::Byte(0xff));
        assert_eq!(Pattern::of(&0x1234u16).unwrap(), Pattern::Half(0x1234));
        assert_eq!(Pattern::of(&0x1234_1234u32).unwrap(), Pattern::Half(0x1234));
        assert_eq!(Pattern::of(&1.0f32).unwrap(), Pattern::Word(0x3f80_0000));
        assert_eq!(Pattern::of(&U32x4([7; 4])).unwrap(), Pattern::Word(7));
        assert_eq!(Pattern::of(&[1u8, 1, 1]).unwrap(), Pattern::Byte(1));
    }

    #[test]
    fn what_no_driver_function_repeats_is_refused() {
        for error in [Pattern::of(&1.0f64), Pattern::of(&1u64)].map(Result::unwrap_err) {
            assert!(matches!(error, Error::FillPattern { bytes: 8 }));
        }
        assert!(matches!(Pattern::of(&[1u8, 2, 3]), Err(Error::FillPattern { bytes: 3 })));
        assert!(matches!(Pattern::of(&U32x4([1, 2, 3, 4])), Err(Error::FillPattern { bytes: 16 })));
    }
}
