//! Functions that the software engine does not have, up to CUDA 13.5: each exists, forwards to NVIDIA's driver
//! where that one answers, and is `CUDA_ERROR_NOT_SUPPORTED` with a report of its name otherwise.
//!
//! Arguments have their types as the ABI passes them, no more: pointers and handles are addresses.

mod contexts;
mod first_abi;
mod interop;
mod streams;
mod texture;
mod virtual_memory;

pub use contexts::*;
pub use first_abi::*;
pub use interop::*;
pub use streams::*;
pub use texture::*;
pub use virtual_memory::*;

/// A pointer or a handle.
type P = *mut std::ffi::c_void;

pub(super) fn all_rows(rows: &mut Vec<super::Row>) {
    contexts::contexts_rows(rows);
    first_abi::first_abi_rows(rows);
    interop::interop_rows(rows);
    streams::streams_rows(rows);
    texture::texture_rows(rows);
    virtual_memory::virtual_memory_rows(rows);
}
