//! Images: what a program gives the driver to load. What can be run of one is PTX text, plain or in a fat binary.

use std::ffi::{CStr, c_char, c_void};

use super::fatbin;
use super::report::report;
use super::tables::software::engine;
use crate::arg::In;
use crate::codes::{Code, Res};

const ELF: [u8; 4] = [0x7f, b'E', b'L', b'F'];
/// `e_machine` of machine code for GPUs, at this byte.
const CUDA: [u8; 2] = [190, 0];
const MACHINE: usize = 18;

/// `__fatBinC_Wrapper_t`: what `nvcc` registers with a program.
#[derive(Clone, Copy)]
#[repr(C)]
struct Wrapper {
    magic: [u8; 4],
    version: i32,
    container: *const c_void,
    /// The name of a file (version 1), or what was linked before (2).
    _more: *const c_void,
}

/// The PTX of an image, which has no length of its own: a NUL ends a text, and fat binaries say their size.
pub(crate) fn at(image: In<c_void>) -> Res<String> {
    let head = head(image)?;
    match head {
        ELF => Err(machine_code("machine code")),
        fatbin::WRAPPER => {
            let container = image.cast::<Wrapper>().get()?.container;
            // SAFETY: the structure's pointer is good if the structure is, by the word of the caller.
            let container = unsafe { crate::arg::Raw::wrap(container) };
            if head_of(container)? == fatbin::MAGIC { of_container(container) } else { Err(Code::INVALID_IMAGE) }
        }
        fatbin::MAGIC => of_container(image),
        [0, ..] => Err(Code::INVALID_IMAGE),
        _ => {
            // SAFETY: not machine code, so a NUL-terminated text, as the API documents.
            let text = unsafe { CStr::from_ptr(image.address().cast::<c_char>()) };
            text.to_str().map(str::to_owned).map_err(|_| Code::INVALID_IMAGE)
        }
    }
}

/// The first bytes, as far as an image has any.
fn head(image: In<c_void>) -> Res<[u8; 4]> {
    if image.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    head_of(image)
}

fn head_of(image: In<c_void>) -> Res<[u8; 4]> {
    let mut head = [0u8; 4];
    for (at, byte) in head.iter_mut().enumerate() {
        // An image is machine code with a header, or text up to a NUL, where this stops.
        *byte = image.cast::<u8>().at(at).map_err(|_| Code::INVALID_IMAGE)?;
        if *byte == 0 {
            break;
        }
    }
    Ok(head)
}

fn of_container(container: In<c_void>) -> Res<String> {
    let size = fatbin::size(container.cast::<[u8; 16]>().get()?)?;
    // SAFETY: not null, and a fat binary is as long as its header says, by the word of the caller; the size is bounded.
    let bytes = unsafe { std::slice::from_raw_parts(container.address().cast::<u8>(), size) };
    fatbin::ptx(bytes, engine()?.sm())
}

/// The PTX of an image of known length; a NUL may end a text before.
pub(crate) fn of_bytes(bytes: &[u8]) -> Res<String> {
    if bytes.starts_with(&ELF) {
        let object = is_object(bytes);
        return Err(machine_code(if object { "a program, library or object file of the host" } else { "a cubin" }));
    }
    if bytes.starts_with(&fatbin::MAGIC) {
        return fatbin::ptx(bytes, engine()?.sm());
    }
    let text = bytes.split(|b| *b == 0).next().filter(|text| !text.is_empty()).ok_or(Code::INVALID_IMAGE)?;
    std::str::from_utf8(text).map(str::to_owned).map_err(|_| Code::INVALID_IMAGE)
}

/// Whether bytes are an object file of the host, which may have fat binaries.
pub(crate) fn is_object(bytes: &[u8]) -> bool {
    bytes.starts_with(&ELF) && bytes.get(MACHINE..MACHINE + CUDA.len()) != Some(&CUDA)
}

pub(crate) fn read(path: &str) -> Res<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        report(format!("{path}: {error}"));
        Code::FILE_NOT_FOUND
    })
}

pub(crate) fn of_file(path: &str) -> Res<String> {
    of_bytes(&read(path)?)
}

pub(crate) fn machine_code(kind: &str) -> Code {
    report(format!("the image is {kind}: the software driver runs PTX, plain or in a fat binary"));
    Code::NO_BINARY_FOR_GPU
}
