//! Elements of tensors, which arithmetic sees as f32: one body makes the kernels of f32, f16 and bf16.

use warpsmith_device::{
    convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, pack_bf16x2, pack_f16x2, unpack_bf16x2, unpack_f16x2},
    prelude::*,
};

/// An element.
pub trait Real: Element {
    /// As f32, exactly.
    fn widen(self) -> f32;
    /// The nearest to `v`, of two the even one: infinite past the largest, NaN of NaN.
    fn narrow(v: f32) -> Self;
    /// The two elements at an address.
    ///
    /// # Safety
    /// Both are there; the address is a multiple of their size.
    unsafe fn load2(from: *const Self) -> [f32; 2];
}

/// An element of which `N` are loaded and stored at once, 16 bytes an access.
pub trait Wide<const N: usize>: Real {
    /// The elements at an address.
    ///
    /// # Safety
    /// All are there; the address is a multiple of 16.
    unsafe fn load(from: *const Self) -> [f32; N];
    /// Writes elements to an address.
    ///
    /// # Safety
    /// As for [`load`](Self::load), and no other thread touches them meanwhile.
    unsafe fn store(to: *mut Self, v: [f32; N]);
}

impl Real for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
    #[inline(always)]
    fn narrow(v: f32) -> f32 {
        v
    }
    #[inline(always)]
    unsafe fn load2(from: *const f32) -> [f32; 2] {
        // SAFETY: the caller's promise.
        unsafe { (*from.cast::<F32x2>()).0 }
    }
}

impl Wide<4> for f32 {
    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { (*from.cast::<F32x4>()).0 }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: [f32; 4]) {
        // SAFETY: the caller's promise.
        unsafe { *to.cast::<F32x4>() = F32x4(v) }
    }
}

/// Beside 16 bytes of smaller elements: two accesses.
impl Wide<8> for f32 {
    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 8] {
        // SAFETY: the caller's promise.
        let [[a, b, c, d], [e, f, g, h]]: [[f32; 4]; 2] =
            unsafe { [Wide::<4>::load(from), Wide::<4>::load(from.add(4))] };
        [a, b, c, d, e, f, g, h]
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, [a, b, c, d, e, f, g, h]: [f32; 8]) {
        // SAFETY: the caller's promise.
        unsafe {
            Wide::<4>::store(to, [a, b, c, d]);
            Wide::<4>::store(to.add(4), [e, f, g, h]);
        }
    }
}

macro_rules! of_16_bits {
    ($($T:ident: $widen:ident $narrow:ident $unpack:ident $pack:ident;)*) => { $(
        impl Real for $T {
            #[inline(always)]
            fn widen(self) -> f32 {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(v: f32) -> $T {
                $narrow(v)
            }
            #[inline(always)]
            unsafe fn load2(from: *const $T) -> [f32; 2] {
                // SAFETY: the caller's promise.
                let (a, b) = $unpack(unsafe { *from.cast::<u32>() });
                [a, b]
            }
        }

        impl Wide<8> for $T {
            #[inline(always)]
            unsafe fn load(from: *const $T) -> [f32; 8] {
                // SAFETY: the caller's promise.
                let [(a, b), (c, d), (e, f), (g, h)] = unsafe { *from.cast::<U32x4>() }.0.map($unpack);
                [a, b, c, d, e, f, g, h]
            }
            #[inline(always)]
            unsafe fn store(to: *mut $T, [a, b, c, d, e, f, g, h]: [f32; 8]) {
                let words = [$pack(a, b), $pack(c, d), $pack(e, f), $pack(g, h)];
                // SAFETY: the caller's promise.
                unsafe { *to.cast::<U32x4>() = U32x4(words) }
            }
        }
    )* };
}

of_16_bits! {
    f16: f16_to_f32 f32_to_f16 unpack_f16x2 pack_f16x2;
    bf16: bf16_to_f32 f32_to_bf16 unpack_bf16x2 pack_bf16x2;
}
