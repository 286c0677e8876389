//! Elements of memory accesses.

use super::lanes::Lane;

/// An element of a memory access.
pub(crate) trait Elem: Lane {
    fn xor(self, key: u64) -> Self;
    fn raw(self) -> u64;
    fn of(raw: u64) -> Self;
}

macro_rules! elem {
    ($($t:ty)*) => {$(
        impl Elem for $t {
            #[inline(always)]
            fn xor(self, key: u64) -> $t {
                self ^ key as $t
            }
            #[inline(always)]
            fn raw(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn of(raw: u64) -> $t {
                raw as $t
            }
        }
    )*};
}

elem!(u8 u16 u32 u64);
