//! Text from a kernel: [`gpu_println!`](crate::gpu_println) and [`gpu_assert!`](crate::gpu_assert).
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! #[kernel(block = 32)]
//! pub unsafe fn shout(x: In<f32>, n: u32) {
//!     let i = thread::global_x();
//!     gpu_assert!(i < n as usize, "thread {} of {}", i, n);
//!     gpu_println!("x[{}] = {:.3}, bits {:#010x}", i, x.at(i), x.at(i).to_bits());
//! }
//! # fn main() {}
//! ```
//!
//! The format is a part of Rust's: `{}` for arguments in order, with `<`, `+`, `#`, `0`, width, precision and `x`, `X`, `o`, `e`,
//! `p` or `?`. It is translated and compared with the types of the arguments when the kernel is compiled; a mistake is a compile
//! error. Arguments, up to 16, are integers, floats (`f16` and `bf16` too), `bool`, raw pointers and `&'static CStr`. On the
//! host, where a helper may be tested, the macros are `print!`, `println!` and `assert!`.
//!
//! Differences from Rust: numbers align to the right, and `{}` of a float gives six significant digits (`%g`).
//!
//! **Where the text goes.** A GPU collects it in a buffer (1 MiB unless the context's `printf` limit says otherwise) that the
//! driver writes to standard output when the stream is synchronised; when the buffer is full, the oldest text is lost. The
//! order of threads is not defined. The software driver writes at once, block after block.
//!
//! **Cost.** A call of a function (8 bytes of local memory per argument there, none in the kernel) where the statement
//! runs; the registers that live across it are saved. Meant for finding faults, not for loops that are to be fast.

mod arguments;
#[cfg(any(target_arch = "nvptx64", test))]
mod format;

pub use arguments::{Arguments, Kind, Printable};

/// The text of one statement.
#[doc(hidden)]
pub trait Template {
    const TEXT: &'static str;
    const NEWLINE: bool;
}

#[cfg(target_arch = "nvptx64")]
#[doc(hidden)]
pub use device::{fail, print};

#[cfg(target_arch = "nvptx64")]
mod device {
    use super::{Arguments, Template, format::c_format};
    use core::marker::PhantomData;

    unsafe extern "C" {
        fn vprintf(format: *const u8, arguments: *const u64) -> i32;
        fn __assertfail(message: *const u8, file: *const u8, line: u32, function: *const u8, char_size: usize) -> !;
    }

    struct Format<T, A, const N: usize>(PhantomData<(T, A)>);

    impl<T: Template, A: Arguments, const N: usize> Format<T, A, N> {
        const BYTES: &'static [u8; N] = &c_format(T::TEXT, T::NEWLINE, A::KINDS);
    }

    /// What `gpu_print!` expands to.
    #[doc(hidden)]
    #[inline(always)]
    pub fn print<T: Template, A: Arguments, const N: usize>(_: T, arguments: A) {
        let format = const { Format::<T, A, N>::BYTES }.as_ptr();
        let a = arguments.words();
        // SAFETY: the format ends with a zero and was made for these arguments.
        unsafe {
            if A::KINDS.len() <= 4 {
                short(format, a[0], a[1], a[2], a[3]);
            } else {
                let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = a;
                long(format, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
            }
        }
    }

    // Functions of their own, so that the arguments' memory is theirs and not the kernel's.
    #[inline(never)]
    unsafe fn short(format: *const u8, a: u64, b: u64, c: u64, d: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            vprintf(format, [a, b, c, d].as_ptr());
        }
    }

    macro_rules! long {
        ($($a:ident)*) => {
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn long(format: *const u8, $($a: u64),*) {
                // SAFETY: the caller's promise.
                unsafe {
                    vprintf(format, [$($a),*].as_ptr());
                }
            }
        };
    }
    long!(a b c d e f g h i j k l m n o p);

    /// What a `gpu_assert!` that fails does.
    #[doc(hidden)]
    #[cold]
    #[inline(always)]
    pub fn fail(message: &'static str, file: &'static str, line: u32, module: &'static str) -> ! {
        // SAFETY: the macro ends the texts with a zero; characters are bytes.
        unsafe { __assertfail(message.as_ptr(), file.as_ptr(), line, module.as_ptr(), 1) }
    }
}

/// Prints text and a new line from a kernel; see [`print`](mod@crate::print) for the format, the cost and where it goes.
#[macro_export]
macro_rules! gpu_println {
    ($($t:tt)*) => { $crate::__gpu_print!(true, println, $($t)*) };
}

/// As [`gpu_println!`](crate::gpu_println), without the new line.
#[macro_export]
macro_rules! gpu_print {
    ($($t:tt)*) => { $crate::__gpu_print!(false, print, $($t)*) };
}

/// Ends the kernel with the condition's text, file and line unless it holds; an optional message with arguments is printed
/// before, as by [`gpu_println!`](crate::gpu_println).
///
/// The launch fails with "device-side assert" on a GPU, which writes the text to standard error and whose context is
/// unusable after; the software driver reports it with block, thread and the host's place. Costs a predicate and a branch,
/// and the texts in device memory. [`device_assert!`](crate::device_assert) costs no text.
#[macro_export]
macro_rules! gpu_assert {
    ($condition:expr $(,)?) => { $crate::__gpu_assert!($condition, stringify!($condition)) };
    ($condition:expr, $($message:tt)+) => {
        $crate::__gpu_assert!($condition, stringify!($condition), $($message)+)
    };
}

#[cfg(target_arch = "nvptx64")]
#[doc(hidden)]
#[macro_export]
macro_rules! __gpu_print {
    ($newline:literal, $host:ident, $text:literal $(, $argument:expr)* $(,)?) => {{
        struct Text;
        impl $crate::print::Template for Text {
            const TEXT: &'static str = $text;
            const NEWLINE: bool = $newline;
        }
        // An argument at most doubles what stands for it; a new line and a zero follow.
        const BYTES: usize = 2 * $text.len() + 2;
        $crate::print::print::<Text, _, BYTES>(Text, ($($argument,)*))
    }};
}

#[cfg(not(target_arch = "nvptx64"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __gpu_print {
    ($newline:literal, $host:ident, $($t:tt)*) => { ::std::$host!($($t)*) };
}

#[cfg(target_arch = "nvptx64")]
#[doc(hidden)]
#[macro_export]
macro_rules! __gpu_assert {
    ($condition:expr, $text:expr $(, $($message:tt)+)?) => {
        if !$condition {
            $($crate::gpu_println!($($message)+);)?
            $crate::print::fail(
                concat!($text, "\0"), concat!(file!(), "\0"), line!(), concat!(module_path!(), "\0"))
        }
    };
}

#[cfg(not(target_arch = "nvptx64"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __gpu_assert {
    ($condition:expr, $text:expr $(, $($message:tt)+)?) => { assert!($condition $(, $($message)+)?) };
}
