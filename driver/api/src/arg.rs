//! From the raw arguments of an `extern "C"` function to values that safe code can use.
//!
//! A pointer argument becomes an [`Out`] or an [`In`] at the boundary, once. Making one is the only
//! unsafe step: the maker vouches for what the driver API demands of its callers, that a non-null
//! pointer is valid for the access which the function documents, for the duration of the call.
//! Null pointers are found by every access and answer `CUDA_ERROR_INVALID_VALUE`.

use std::ffi::{CStr, c_char};

use crate::codes::{Code, Res};
use crate::types::*;

/// A raw argument and its checked counterpart.
///
/// # Safety
/// `wrap` may only be called with an argument that fulfils the driver API's demands on callers.
pub(crate) unsafe trait Raw: Copy {
    type Safe;
    unsafe fn wrap(self) -> Self::Safe;
}

/// A place for a result.
pub(crate) struct Out<T>(*mut T);
/// A place to read from.
pub(crate) struct In<T>(*const T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}
impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T> Out<T> {
    /// No place: the value is not wanted.
    pub fn null() -> Self {
        Out(std::ptr::null_mut())
    }
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
    pub fn address(self) -> *mut T {
        self.0
    }
    /// The same place, for a value whose type another argument names.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
    /// As a place to read from: the API uses `T *` for arrays that it only reads.
    pub fn input(self) -> In<T> {
        In(self.0)
    }
}
impl<T: Copy> Out<T> {
    /// Fails on null without writing.
    pub fn check(self) -> Res {
        if self.0.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }
    pub fn set(self, value: T) -> Res {
        self.check()?;
        // SAFETY: not null, and valid for one write by the contract of `Raw::wrap`.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }
    /// Writes if the caller wants the value.
    pub fn set_if_asked(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, and valid for one write by the contract of `Raw::wrap`.
            unsafe { self.0.write_unaligned(value) };
        }
    }
    pub fn get(self) -> Res<T> {
        self.input().get()
    }
    /// Writes element `i` of an array that the caller said is longer than `i`.
    pub fn set_at(self, i: usize, value: T) -> Res {
        self.check()?;
        // SAFETY: not null, and an array of more than `i` elements as the API documents.
        unsafe { self.0.add(i).write_unaligned(value) };
        Ok(())
    }
}
impl<T: Copy> In<T> {
    pub fn get(self) -> Res<T> {
        self.at(0)
    }
    /// Element `i` of an array that the caller said is longer than `i`.
    pub fn at(self, i: usize) -> Res<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, and an array of more than `i` elements as the API documents.
        Ok(unsafe { self.0.add(i).read_unaligned() })
    }
    /// The first `n` elements.
    pub fn list(self, n: usize) -> Res<Vec<T>> {
        if n == 0 {
            return Ok(Vec::new());
        }
        // A count that no array can have is a wrong argument, not a reason to abort.
        if n > (isize::MAX as usize) / size_of::<T>().max(1) / 4 {
            return Err(Code::INVALID_VALUE);
        }
        (0..n).map(|i| self.at(i)).collect()
    }
}
impl<T> In<T> {
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
    pub fn address(self) -> *const T {
        self.0
    }
    /// The same place, for a value whose type another argument names.
    pub fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }
}
impl In<c_char> {
    /// The C string at this place; invalid UTF-8 answers `CUDA_ERROR_INVALID_VALUE`.
    pub fn text(self) -> Res<String> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, and a NUL-terminated string as the API documents.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| Code::INVALID_VALUE)
    }
}
impl Out<c_char> {
    /// Copies as much of `text` as fits into `len` bytes, always NUL-terminated.
    pub fn set_text(self, text: &str, len: usize) -> Res {
        if len == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let kept = text.as_bytes().iter().take(len - 1);
        for (i, byte) in kept.clone().enumerate() {
            self.set_at(i, *byte as c_char)?;
        }
        self.set_at(kept.len(), 0)
    }
}

// SAFETY: the wrapper is made under the contract of `wrap` alone.
unsafe impl<T> Raw for *mut T {
    type Safe = Out<T>;
    unsafe fn wrap(self) -> Out<T> {
        Out(self)
    }
}
// SAFETY: as above.
unsafe impl<T> Raw for *const T {
    type Safe = In<T>;
    unsafe fn wrap(self) -> In<T> {
        In(self)
    }
}

macro_rules! plain {
    ($($t:ty),* $(,)?) => {$(
        // SAFETY: a plain value carries no demand on the caller.
        unsafe impl Raw for $t {
            type Safe = $t;
            unsafe fn wrap(self) -> $t {
                self
            }
        }
    )*};
}
plain!(
    i32,
    u8,
    u16,
    u32,
    u64,
    usize,
    MemLocation,
    CUcontext,
    CUmodule,
    CUfunction,
    CUstream,
    CUevent,
    CUgraph,
    CUgraphNode,
    CUgraphExec,
    CUmemoryPool,
    CUlinkState,
    CUlibrary,
    CUkernel,
    CUuserObject,
    IpcHandle,
    CUhostFn,
    CUstreamCallback,
    CUoccupancyB2DSize
);
