//! What can be printed, as the 64-bit words that `vprintf` reads.

use core::ffi::CStr;

/// Arguments of one statement.
pub const MOST: usize = 16;

/// How an argument is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `i64`.
    Signed,
    /// `u64`.
    Unsigned,
    /// `f64`.
    Float,
    /// An address.
    Pointer,
    /// The address of text that ends with a zero.
    Text,
}

/// A value that a kernel can print.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be printed by a kernel",
    note = "integers, floats, `bool`, raw pointers and `&'static CStr` can: print the parts of a struct or an array"
)]
pub trait Printable: Copy {
    /// How it is read.
    const KIND: Kind;
    /// Its 64 bits.
    fn word(self) -> u64;
}

macro_rules! printable {
    ($($kind:ident, |$v:ident| $word:expr => $($t:ty)*;)*) => { $($(
        impl Printable for $t {
            const KIND: Kind = Kind::$kind;
            #[inline(always)]
            fn word(self) -> u64 { let $v = self; $word }
        }
    )*)* };
}
printable! {
    Signed, |v| v as i64 as u64 => i8 i16 i32 i64 isize;
    Unsigned, |v| v as u64 => u8 u16 u32 u64 usize;
    Float, |v| (v as f64).to_bits() => f32 f64;
    Float, |v| (crate::convert::f16_to_f32(v) as f64).to_bits() => crate::f16;
    Float, |v| (crate::convert::bf16_to_f32(v) as f64).to_bits() => crate::bf16;
    Text, |v| (if v { c"true" } else { c"false" }).as_ptr() as u64 => bool;
    Text, |v| v.as_ptr() as u64 => &'static CStr;
}

impl<T> Printable for *const T {
    const KIND: Kind = Kind::Pointer;
    #[inline(always)]
    fn word(self) -> u64 {
        self as u64
    }
}
impl<T> Printable for *mut T {
    const KIND: Kind = Kind::Pointer;
    #[inline(always)]
    fn word(self) -> u64 {
        self as u64
    }
}

/// Up to 16 values to print, as a tuple.
pub trait Arguments {
    /// How each is read.
    const KINDS: &'static [Kind];
    /// Their words; the rest is zero.
    fn words(self) -> [u64; MOST];
}

macro_rules! tuples {
    () => { tuples!(@); };
    ($first:ident $($t:ident)*) => { tuples!(@ $first $($t)*); tuples!($($t)*); };
    (@ $($t:ident)*) => {
        impl<$($t: Printable),*> Arguments for ($($t,)*) {
            const KINDS: &'static [Kind] = &[$($t::KIND),*];
            #[inline(always)]
            #[allow(non_snake_case, unused_mut, unused_variables, unused_assignments)]
            fn words(self) -> [u64; MOST] {
                let ($($t,)*) = self;
                let (mut words, mut i) = ([0; MOST], 0);
                $(words[i] = $t.word(); i += 1;)*
                words
            }
        }
    };
}
tuples!(A B C D E F G H I J K L M N O P);
