//! This crate as `libcuda.so.1`: built by cargo, loaded by path, used as a program that knows
//! nothing of it would.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

#[path = "common/built.rs"]
mod built;
#[path = "../api/tests/common/mod.rs"]
mod common;

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use libloading::{Library, Symbol};

macro_rules! symbol {
    ($library:expr, $name:literal, fn($($t:ty),*)) => {{
        // SAFETY: the driver's function of this name has this signature.
        let f: Symbol<'_, unsafe extern "C" fn($($t),*) -> i32> = unsafe { $library.get(concat!($name, "\0").as_bytes()) }.unwrap();
        f
    }};
}

#[test]
fn a_program_that_loads_libcuda() {
    let folder = built::software_cuda();
    for name in ["libcuda.so", "libcuda.so.1"] {
        assert!(folder.join(name).exists(), "{} leads nowhere", folder.join(name).display());
    }
    assert!(!folder.with_file_name("libcuda.so.1").exists(), "cargo puts this folder on the loader's path");
    // The library is another instance than the one linked here, and reads its own environment.
    // SAFETY: no other thread of this test reads the environment meanwhile.
    unsafe { std::env::set_var("WARPSMITH_DRIVER", "software") };
    // SAFETY: the library was just built.
    let library = unsafe { Library::new(folder.join("libcuda.so.1")) }.unwrap();
    let init = symbol!(library, "cuInit", fn(u32));
    let count = symbol!(library, "cuDeviceGetCount", fn(*mut i32));
    let retain = symbol!(library, "cuDevicePrimaryCtxRetain", fn(*mut *mut c_void, i32));
    let set_current = symbol!(library, "cuCtxSetCurrent", fn(*mut c_void));
    let load = symbol!(library, "cuModuleLoadData", fn(*mut *mut c_void, *const c_void));
    let get = symbol!(library, "cuModuleGetFunction", fn(*mut *mut c_void, *mut c_void, *const i8));
    let alloc = symbol!(library, "cuMemAlloc_v2", fn(*mut u64, usize));
    let fill = symbol!(library, "cuMemsetD32_v2", fn(u64, u32, usize));
    let launch = symbol!(
        library,
        "cuLaunchKernel",
        fn(*mut c_void, u32, u32, u32, u32, u32, u32, u32, *mut c_void, *mut *mut c_void, *mut *mut c_void)
    );
    let read = symbol!(library, "cuMemcpyDtoH_v2", fn(*mut c_void, u64, usize));
    let marker = symbol!(library, "warpsmith_software_driver", fn());
    let image = CString::new(common::PTX).unwrap();
    let (mut n, mut context, mut module, mut step, mut p, mut out) =
        (0, null_mut(), null_mut(), null_mut(), 0u64, 0u32);
    // SAFETY: every pointer is to a live value of the documented type.
    unsafe {
        assert_eq!(marker(), 1);
        assert_eq!(count(&mut n), 3, "not initialised");
        assert_eq!(init(0), 0);
        assert_eq!((count(&mut n), n), (0, 1));
        assert_eq!(retain(&mut context, 0), 0);
        assert_eq!(set_current(context), 0);
        assert_eq!(load(&mut module, image.as_ptr().cast()), 0);
        assert_eq!(get(&mut step, module, c"step".as_ptr().cast()), 0);
        assert_eq!(alloc(&mut p, 4), 0);
        assert_eq!(fill(p, 5, 1), 0);
        let mut args = [(&raw mut p).cast::<c_void>()];
        assert_eq!(launch(step, 1, 1, 1, 1, 1, 1, 0, null_mut(), args.as_mut_ptr(), null_mut()), 0);
        assert_eq!(read((&raw mut out).cast(), p, 4), 0);
    }
    assert_eq!(out, 16);
    // The instance that is linked into this test has seen none of it.
    assert_eq!(warpsmith_driver_api::engine(), None);

    // Where the software driver stands in for CUDA's, it is not taken for it.
    // SAFETY: as above.
    unsafe { std::env::set_var("WARPSMITH_CUDA_LIBRARY", folder.join("libcuda.so.1")) };
    let why = warpsmith_driver_api::probe_real().unwrap_err();
    assert!(why.contains("is the software driver itself"), "{why}");
}
