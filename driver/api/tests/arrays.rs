//! Shapes of arrays, as the documentation of `cuArray3DCreate` and the technical specifications of the Programming Guide have
//! them; `cust`'s own tests make the same kinds, and ask the device for the limits first.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ptr::null_mut;

use common::*;
use cust::memory::array::{ArrayDescriptor, ArrayFormat, ArrayObject, ArrayObjectFlags};
use warpsmith_driver_api::{ArrayDescriptor3D, cuArray3DCreate_v2, cuArrayDestroy, cuDeviceGetAttribute};

/// The code for an array of 32-bit floats.
fn create([width, height, depth]: [usize; 3], flags: u32) -> i32 {
    let shape = ArrayDescriptor3D { width, height, depth, format: 0x20, channels: 1, flags };
    let mut array = null_mut();
    // SAFETY: live places.
    let code = unsafe { cuArray3DCreate_v2(&mut array, &shape) };
    if code == 0 {
        // SAFETY: the array was made just now.
        ok(unsafe { cuArrayDestroy(array) });
    }
    code
}

const LAYERED: u32 = 1;
const SURFACE: u32 = 2;
const CUBEMAP: u32 = 4;
const GATHER: u32 = 8;

#[test]
fn shapes_have_the_extents_of_their_kind() {
    let _gpu = gpu();
    for (shape, flags) in [
        ([131_072, 0, 0], 0),
        ([32_768, 0, 0], SURFACE),
        ([131_072, 2, 0], SURFACE),
        ([2, 65_536, 0], 0),
        ([4, 4, 16_384], SURFACE),
        // Not as wide as three dimensions may be at most, but deeper: the alternate limits.
        ([1, 1, 32_768], 0),
        ([32_768, 0, 7], LAYERED),
        ([7, 8, 10], LAYERED | SURFACE),
        ([8, 8, 6], CUBEMAP),
        ([8, 8, 30], CUBEMAP | LAYERED),
        ([8, 8, 0], GATHER),
    ] {
        assert_eq!(create(shape, flags), 0, "{shape:?} {flags}");
    }
    for (shape, flags) in [
        ([131_073, 0, 0], 0),
        ([32_769, 0, 0], SURFACE),
        ([2, 65_537, 0], 0),
        ([2, 32_769, 0], GATHER),
        ([1, 1, 32_769], 0),
        ([8193, 1, 16_385], 0),
        ([4, 4, 16_385], SURFACE),
        ([10, 0, 20], 0),
        ([8, 0, 0], LAYERED),
        ([8, 8, 2049], LAYERED),
        ([8, 8, 5], CUBEMAP),
        ([8, 9, 6], CUBEMAP),
        ([8, 8, 10], CUBEMAP | LAYERED),
        ([8, 8, 2052], CUBEMAP | LAYERED),
        ([8, 8, 2], GATHER),
        ([8, 0, 0], GATHER),
        ([8, 8, 0], 0x200),
    ] {
        assert_eq!(create(shape, flags), 1, "{shape:?} {flags}");
    }
    // Sparse arrays.
    assert_eq!(create([8, 8, 0], 0x40), 801);
}

#[test]
fn the_device_says_how_large_arrays_may_be() {
    let _gpu = gpu();
    let of = |attribute| {
        let mut value = 0;
        // SAFETY: a live place.
        ok(unsafe { cuDeviceGetAttribute(&mut value, attribute, 0) });
        value
    };
    // deviceQuery prints these: 1D=(131072), 2D=(131072, 65536), 3D=(16384, 16384, 16384);
    // layered 1D=(32768), 2048 layers, 2D=(32768, 32768), 2048 layers.
    let all: Vec<i32> = (21..30).map(of).collect();
    assert_eq!(all, [131_072, 131_072, 65_536, 16_384, 16_384, 16_384, 32_768, 32_768, 2048]);
    assert_eq!([of(42), of(43)], [32_768, 2048]);
}

#[test]
fn cust_makes_and_fills_arrays() {
    let _gpu = gpu();
    let mut array = ArrayObject::new([3, 2, 0], ArrayFormat::F32, 2).unwrap();
    assert_eq!(array.descriptor().unwrap().dims(), [3, 2, 0]);
    // cust's F32 is a half: CUDA's 16 bits. It counts 4 bytes and refuses by itself what does not fit.
    let layered = ArrayObject::new_layered_cubemap(4, 4, ArrayFormat::F64, 1).unwrap();
    assert_eq!(layered.descriptor().unwrap().dims(), [4, 4, 24]);
    let mut shape = ArrayDescriptor::from_dims_format([4, 4, 0], ArrayFormat::U32);
    shape.set_flags(ArrayObjectFlags::SURFACE_LDST);
    let mut surface = ArrayObject::from_descriptor(&shape).unwrap();
    let values: Vec<u32> = (0..16).collect();
    surface.copy_from(&values).unwrap();
    assert_eq!(surface.as_host_vec::<u32>().unwrap(), values);
    let line: Vec<u8> = (0..9).collect();
    array = ArrayObject::new_1d(9, ArrayFormat::U8, 1).unwrap();
    array.copy_from(&line).unwrap();
    assert_eq!(array.as_host_vec::<u8>().unwrap(), line);
}
