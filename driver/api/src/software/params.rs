//! A kernel's arguments, copied out of the caller's memory into the layout that its PTX declares.

use std::ffi::c_void;

use warpsmith_simt::KernelInfo;

use crate::arg::In;
use crate::codes::{Code, Res};

// CU_LAUNCH_PARAM_*.
const END: usize = 0;
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;
/// The most bytes of parameters that any kernel may have.
const MOST: usize = 32_764;

pub(crate) struct Params {
    /// The parameter block; its elements are as aligned as any parameter needs.
    block: Vec<u128>,
    len: usize,
    /// Where each parameter lies in `block`, for callers that ask a graph node.
    pointers: Vec<*mut c_void>,
}

// SAFETY: the pointers lead into `block`, which nothing writes after construction.
unsafe impl Send for Params {}
// SAFETY: as above.
unsafe impl Sync for Params {}

impl Params {
    /// From `kernelParams` or `extra`, of which a kernel with parameters needs exactly one.
    pub fn read(info: &KernelInfo, list: In<*mut c_void>, extra: In<*mut c_void>) -> Res<Params> {
        let len = info.param_bytes as usize;
        let mut bytes = vec![0u8; len];
        match (list.is_null(), extra.is_null()) {
            (false, false) => return Err(Code::INVALID_VALUE),
            (true, true) if !info.params.is_empty() => return Err(Code::INVALID_VALUE),
            (true, true) => {}
            (false, true) => {
                for (i, param) in info.params.iter().enumerate() {
                    let from = list.at(i)?.cast_const().cast::<u8>();
                    if from.addr() < 4096 {
                        // Null, or the value where its address belongs.
                        return Err(Code::INVALID_VALUE);
                    }
                    let (at, size) = (param.offset as usize, param.size as usize);
                    let to = bytes.get_mut(at..at + size).ok_or(Code::INVALID_VALUE)?;
                    // SAFETY: the caller vouches for one readable argument per parameter, each of the declared size.
                    unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), size) };
                }
            }
            (true, false) => {
                let (from, given) = buffer(extra)?;
                let needed = info.params.iter().map(|p| p.offset as usize + p.size as usize).max().unwrap_or(0);
                if given < needed || given > MOST || (from.is_null() && needed > 0) {
                    return Err(Code::INVALID_VALUE);
                }
                let size = needed.min(len);
                if size > 0 {
                    // SAFETY: the caller vouches for `given` readable bytes, of which `size` are at most all.
                    unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), size) };
                }
            }
        }
        Ok(Params::new(info, &bytes))
    }

    fn new(info: &KernelInfo, bytes: &[u8]) -> Params {
        let mut block: Vec<u128> = bytes
            .chunks(16)
            .map(|chunk| {
                let mut word = [0u8; 16];
                word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
                u128::from_ne_bytes(word)
            })
            .collect();
        let base = block.as_mut_ptr().cast::<u8>();
        let pointers = info.params.iter().map(|p| base.wrapping_add(p.offset as usize).cast()).collect();
        Params { block, len: bytes.len(), pointers }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `block` holds `len` bytes or more, all initialised; any bytes are valid u8.
        unsafe { std::slice::from_raw_parts(self.block.as_ptr().cast::<u8>(), self.len) }
    }

    /// As `kernelParams`; valid as long as the arguments are kept.
    pub fn list(&self) -> *mut *mut c_void {
        if self.pointers.is_empty() { std::ptr::null_mut() } else { self.pointers.as_ptr().cast_mut() }
    }
}

/// The buffer that an `extra` list names: `{POINTER, p, SIZE, &n, END}` in any order.
fn buffer(extra: In<*mut c_void>) -> Res<(*const u8, usize)> {
    let (mut from, mut size) = (None, None);
    // Two options and the end at most; a longer list is not one that means something.
    for i in 0..4 {
        match extra.at(2 * i)?.addr() {
            END => break,
            BUFFER_POINTER => from = Some(extra.at(2 * i + 1)?.cast_const().cast::<u8>()),
            BUFFER_SIZE => {
                let place = extra.at(2 * i + 1)?.cast_const().cast::<usize>();
                if place.addr() < 4096 {
                    return Err(Code::INVALID_VALUE);
                }
                // SAFETY: the option is followed by the address of a size, as the API documents.
                size = Some(unsafe { place.read_unaligned() });
            }
            _ => return Err(Code::INVALID_VALUE),
        }
    }
    from.zip(size).ok_or(Code::INVALID_VALUE)
}
