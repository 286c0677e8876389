//! A value as 32-bit words, which is what shuffles and votes move.

use crate::Element;

/// Words of the largest value: 128 bytes.
pub(crate) const MOST: usize = 32;

/// Words that a `T` takes, the last of which may be partly filled.
pub(crate) const fn count<T>() -> usize {
    assert!(size_of::<T>() <= 4 * MOST, "a collective moves values of up to 128 bytes");
    size_of::<T>().div_ceil(4)
}

/// The bytes of `v`, in order; what is left over is zero. Registers after inlining.
#[inline(always)]
pub(crate) fn split<T: Element>(v: T) -> [u32; MOST] {
    const { count::<T>() };
    let mut words = [0u32; MOST];
    // SAFETY: an element has no padding, and the assertion above keeps its bytes within the array.
    unsafe {
        core::ptr::copy_nonoverlapping((&raw const v).cast::<u8>(), words.as_mut_ptr().cast::<u8>(), size_of::<T>())
    };
    words
}

/// The value of these bytes.
#[inline(always)]
pub(crate) fn join<T: Element>(words: [u32; MOST]) -> T {
    const { count::<T>() };
    // SAFETY: every bit pattern of the size is a valid element, and the array is long enough.
    unsafe { words.as_ptr().cast::<T>().read_unaligned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::F32x4;

    #[test]
    fn values_go_through_words_and_back() {
        assert_eq!(split(0x0102_0304_0506_0708u64)[..3], [0x0506_0708, 0x0102_0304, 0]);
        assert_eq!((count::<u8>(), count::<[u8; 5]>(), count::<F32x4>()), (1, 2, 4));
        assert_eq!(join::<[u16; 3]>(split([1u16, 2, 3])), [1, 2, 3]);
        assert_eq!(join::<f64>(split(-0.1f64)), -0.1);
        assert_eq!(split([0xffu8; 5])[..3], [!0, 0xff, 0]);
    }
}
