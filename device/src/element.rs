//! Plain data that may cross between host and device, and the types that both sides share.
//!
//! [`Element`] is the one bound for buffer elements and by-value kernel arguments. Sizes and
//! alignments are the same on both sides: 64-bit little-endian hosts only.

#[cfg(not(target_arch = "nvptx64"))]
pub use half::{bf16, f16};

#[cfg(target_arch = "nvptx64")]
pub use primitive::Half as f16;

/// The primitive under another name, so that `f16` can be exported on both sides.
#[cfg(target_arch = "nvptx64")]
mod primitive {
    /// A half-precision number.
    pub type Half = f16;
}

/// A bfloat16 value: the upper half of an `f32`.
#[cfg(target_arch = "nvptx64")]
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct bf16(u16);

#[cfg(target_arch = "nvptx64")]
impl bf16 {
    /// The value with these bits.
    #[inline(always)]
    pub const fn from_bits(bits: u16) -> bf16 {
        bf16(bits)
    }
    /// Its bits.
    #[inline(always)]
    pub const fn to_bits(self) -> u16 {
        self.0
    }
}

#[cfg(target_arch = "nvptx64")]
mod operators {
    use super::bf16;
    use crate::convert::{bf16_to_f32, f32_to_bf16};
    use core::{cmp, ops};

    macro_rules! operators {
        ($($trait:ident $method:ident $operator:tt;)*) => { $(
            impl ops::$trait for bf16 {
                type Output = bf16;
                /// In `f32`, rounded: for one operation that is rounding once.
                #[inline(always)]
                fn $method(self, other: bf16) -> bf16 {
                    f32_to_bf16(bf16_to_f32(self) $operator bf16_to_f32(other))
                }
            }
        )* };
    }
    operators! { Add add +; Sub sub -; Mul mul *; Div div /; }

    impl ops::Neg for bf16 {
        type Output = bf16;
        #[inline(always)]
        fn neg(self) -> bf16 {
            bf16(self.0 ^ 0x8000)
        }
    }
    impl PartialEq for bf16 {
        #[inline(always)]
        fn eq(&self, other: &bf16) -> bool {
            bf16_to_f32(*self) == bf16_to_f32(*other)
        }
    }
    impl PartialOrd for bf16 {
        #[inline(always)]
        fn partial_cmp(&self, other: &bf16) -> Option<cmp::Ordering> {
            bf16_to_f32(*self).partial_cmp(&bf16_to_f32(*other))
        }
    }
}

/// Makes a `#[repr(transparent)]` tuple struct of plain bits an element, of shared memory as well.
macro_rules! transparent_element {
    ($name:ident, $bits:ident) => {
        crate::element::transparent_bits!($name, $bits, 0);
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: a number.
        unsafe impl crate::element::Plain for $name {}
    };
}
pub(crate) use transparent_element;

/// The same for what may be an address, of which some words vary.
macro_rules! transparent_bits {
    ($name:ident, $bits:ident, $varies:expr) => {
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: a transparent wrapper of plain bits, for which zero is valid.
        unsafe impl bytemuck::Zeroable for $name {}
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: a transparent wrapper of plain bits: no padding, all bits valid.
        unsafe impl bytemuck::Pod for $name {}
        // SAFETY: a transparent wrapper of plain bits: no padding, all bits valid.
        unsafe impl crate::Element for $name {
            #[cfg(not(target_arch = "nvptx64"))]
            const VARIES: u32 = $varies;
        }
        #[cfg(target_arch = "nvptx64")]
        impl crate::shared::SharedElement for $name {
            #[inline(always)]
            unsafe fn load(address: u32) -> $name {
                // SAFETY: the caller's promise.
                $name(unsafe { <$bits as crate::shared::SharedElement>::load(address) })
            }
            #[inline(always)]
            unsafe fn store(address: u32, v: $name) {
                // SAFETY: the caller's promise.
                unsafe { <$bits as crate::shared::SharedElement>::store(address, v.0) }
            }
        }
    };
}
pub(crate) use transparent_bits;

/// Plain data: what a device buffer holds and what a kernel takes by value.
///
/// Implemented for `u8`…`u64`, `i8`…`i64`, `f32`, `f64`, [`struct@f16`], [`bf16`], the vector types
/// ([`U32x2`], [`U32x4`], [`F32x2`], [`F32x4`]) and arrays of elements. For a struct,
/// `#[derive(Clone, Copy, Element)]` on `#[repr(C)]` checks the rules.
///
/// # Safety
/// Every bit pattern of the size is a valid value, there is no padding, the layout is the same in
/// every build (`repr(C)` or `repr(transparent)`), and there are no pointers into host memory.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a kernel argument or a buffer element",
    label = "not plain data that the GPU and the host lay out alike",
    note = "use an integer, `f32`, `f64`, `f16`, `bf16`, an array of these, or a `#[repr(C)]` struct of them with `#[derive(Clone, Copy, Element)]`"
)]
#[cfg(not(target_arch = "nvptx64"))]
pub unsafe trait Element: Copy + bytemuck::Pod + 'static {
    /// Its words of four bytes, a bit for each, in which something differs between launches that are otherwise alike: a launch's own code
    /// does not have them as constants. Addresses do, and fields that `#[derive(Element)]` finds marked with `#[varies]`. Nor are words behind the
    /// first 32 constants.
    const VARIES: u32 = 0;
}

/// [`Element::VARIES`] of a field at an offset of a struct; `all`: of each of its bytes.
#[cfg(not(target_arch = "nvptx64"))]
pub const fn varying<T: Element>(offset: usize, all: bool) -> u32 {
    let (mut varies, mut byte) = (0, 0);
    while byte < size_of::<T>() && offset + byte < 128 {
        if all || byte >= 128 || T::VARIES >> (byte / 4) & 1 == 1 {
            varies |= 1 << ((offset + byte) / 4);
        }
        byte += 1;
    }
    varies
}

/// An [`Element`] in which no [`DeviceAddress`](crate::DeviceAddress) lies: a kernel that takes nothing else reaches the
/// buffers of its arguments and no other memory.
///
/// `#[derive(Element)]` implements it for a struct all of whose fields have it.
///
/// # Safety
/// No kernel takes any of its bits for an address.
#[diagnostic::on_unimplemented(
    message = "`{Self}` may be an address: a kernel that takes elements with addresses follows them to memory that its launch does not borrow",
    label = "not checked by `launch`: what the addresses lead to",
    note = "`unsafe {{ … .launch_unchecked(…) }}` takes it; its caller keeps that memory alive and apart from what else is written",
    note = "a kernel that only carries the addresses along says so: `#[kernel(…, addresses = \"ignored\")]`"
)]
#[cfg(not(target_arch = "nvptx64"))]
pub unsafe trait Plain: Element {}

/// Plain data: what a device buffer holds and what a kernel takes by value.
///
/// # Safety
/// Every bit pattern of the size is a valid value, there is no padding, and the layout is the
/// same in every build (`repr(C)` or `repr(transparent)`).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a kernel argument or a buffer element",
    label = "not plain data that the GPU and the host lay out alike",
    note = "use an integer, `f32`, `f64`, `f16`, `bf16`, an array of these, or a `#[repr(C)]` struct of them with `#[derive(Clone, Copy, Element)]`"
)]
#[cfg(target_arch = "nvptx64")]
pub unsafe trait Element: Copy + 'static {}

macro_rules! elements {
    ($($t:ty),* $(,)?) => { $(
        // SAFETY: a primitive number (or a transparent wrapper of one): no padding, all bits valid.
        unsafe impl Element for $t {}
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: a number.
        unsafe impl Plain for $t {}
    )* };
}
elements!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, f16, bf16);

// SAFETY: an array has the size of its elements laid one after the other, and they are elements.
unsafe impl<T: Element, const N: usize> Element for [T; N] {
    #[cfg(not(target_arch = "nvptx64"))]
    const VARIES: u32 = if T::VARIES == 0 { 0 } else { u32::MAX };
}
#[cfg(not(target_arch = "nvptx64"))]
// SAFETY: its elements hold no addresses.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

macro_rules! vectors {
    ($($(#[$doc:meta])* $name:ident = [$t:ty; $n:literal], $align:literal;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[repr(C, align($align))]
        pub struct $name(pub [$t; $n]);

        const _: () = assert!(size_of::<$name>() == $align && $n * size_of::<$t>() == $align);
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the assertion above: the array fills the struct, and zero is valid for it.
        unsafe impl bytemuck::Zeroable for $name {}
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the assertion above: no padding; the array's elements are plain numbers.
        unsafe impl bytemuck::Pod for $name {}
        // SAFETY: the assertion above: no padding; the array's elements are plain numbers.
        unsafe impl Element for $name {}
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: numbers.
        unsafe impl Plain for $name {}
    )* };
}
vectors! {
    /// Two words, loaded and stored as one 64-bit access.
    U32x2 = [u32; 2], 8;
    /// Four words, loaded and stored as one 128-bit access.
    U32x4 = [u32; 4], 16;
    /// Two floats, loaded and stored as one 64-bit access.
    F32x2 = [f32; 2], 8;
    /// Four floats, loaded and stored as one 128-bit access.
    F32x4 = [f32; 4], 16;
}
