//! Copies from and to one-dimensional arrays.

use std::ffi::c_void;

use crate::arg::{In, Out};
use crate::codes::Res;
use crate::software::functions::{array, copy};
use crate::software::tables::{ops::Place, state::State};
use crate::types::*;

/// A linear range in the first row of a one-dimensional array.
fn line(s: &State, array: *mut c_void, offset: usize, bytes: usize) -> Res<Place> {
    array::find(s, array)?.place([offset, 0, 0], [bytes, 1, 1])
}

pub(crate) fn to_host(dst: Out<c_void>, array: Out<c_void>, offset: usize, bytes: usize) -> Res {
    let (to, array) = (dst.address().expose_provenance(), array.address());
    copy::sync(bytes, &|s, _, _| Ok(copy::linear(copy::on_host(to)?, line(s, array, offset, bytes)?, bytes)))
}

pub(crate) fn from_host(array: Out<c_void>, offset: usize, src: In<c_void>, bytes: usize) -> Res {
    let (from, array) = (src.address().expose_provenance(), array.address());
    copy::sync(bytes, &|s, _, _| Ok(copy::linear(line(s, array, offset, bytes)?, copy::on_host(from)?, bytes)))
}

pub(crate) fn to_device(dst: CUdeviceptr, array: Out<c_void>, offset: usize, bytes: usize) -> Res {
    let array = array.address();
    copy::sync(bytes, &|s, w, c| {
        Ok(copy::linear(copy::on_device(s, w, c, dst, bytes)?, line(s, array, offset, bytes)?, bytes))
    })
}

pub(crate) fn from_device(array: Out<c_void>, offset: usize, src: CUdeviceptr, bytes: usize) -> Res {
    let array = array.address();
    copy::sync(bytes, &|s, w, c| {
        Ok(copy::linear(line(s, array, offset, bytes)?, copy::on_device(s, w, c, src, bytes)?, bytes))
    })
}

pub(crate) fn to_array(dst: Out<c_void>, dst_offset: usize, src: Out<c_void>, src_offset: usize, bytes: usize) -> Res {
    let (dst, src) = (dst.address(), src.address());
    copy::sync(bytes, &|s, _, _| {
        Ok(copy::linear(line(s, dst, dst_offset, bytes)?, line(s, src, src_offset, bytes)?, bytes))
    })
}

pub(crate) fn to_host_async(
    dst: Out<c_void>,
    array: Out<c_void>,
    offset: usize,
    bytes: usize,
    stream: CUstream,
) -> Res {
    let (to, array) = (dst.address().expose_provenance(), array.address());
    copy::on_stream(stream, bytes, &|s, _, _| {
        Ok(copy::linear(copy::on_host(to)?, line(s, array, offset, bytes)?, bytes))
    })
}

pub(crate) fn from_host_async(
    array: Out<c_void>,
    offset: usize,
    src: In<c_void>,
    bytes: usize,
    stream: CUstream,
) -> Res {
    let (from, array) = (src.address().expose_provenance(), array.address());
    copy::on_stream(stream, bytes, &|s, _, _| {
        Ok(copy::linear(line(s, array, offset, bytes)?, copy::on_host(from)?, bytes))
    })
}
