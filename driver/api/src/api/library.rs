//! Libraries and their kernels, which belong to no context.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::api;
use crate::software::functions::library;
use crate::types::*;

api! {
    rows library_rows;
    [cuLibraryLoadData 12000] cuLibraryLoadData(
        library: *mut CUlibrary, code: *const c_void, options: *mut c_int, values: *mut *mut c_void, count: c_uint,
        library_options: *mut c_int, library_values: *mut *mut c_void, library_count: c_uint,
    ) => library::load_data;
    [cuLibraryLoadFromFile 12000] cuLibraryLoadFromFile(
        library: *mut CUlibrary, path: *const c_char, options: *mut c_int, values: *mut *mut c_void, count: c_uint,
        library_options: *mut c_int, library_values: *mut *mut c_void, library_count: c_uint,
    ) => library::load_file;
    [cuLibraryUnload 12000] cuLibraryUnload(library: CUlibrary) => library::unload;
    [cuLibraryGetKernel 12000] cuLibraryGetKernel(
        kernel: *mut CUkernel, library: CUlibrary, name: *const c_char,
    ) => library::get_kernel;
    [cuLibraryGetKernelCount 12040] cuLibraryGetKernelCount(count: *mut c_uint, library: CUlibrary) => library::kernel_count;
    [cuLibraryEnumerateKernels 12040] cuLibraryEnumerateKernels(
        kernels: *mut CUkernel, count: c_uint, library: CUlibrary,
    ) => library::enumerate;
    [cuLibraryGetModule 12000] cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) => library::get_module;
    [cuLibraryGetGlobal 12000] cuLibraryGetGlobal(
        address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char,
    ) => library::get_global;
    [cuLibraryGetManaged 12000] cuLibraryGetManaged(
        address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char,
    ) => library::get_managed;
    [cuKernelGetFunction 12000] cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel) => library::get_function;
    [cuKernelGetLibrary 12050] cuKernelGetLibrary(library: *mut CUlibrary, kernel: CUkernel) => library::of_kernel;
    [cuKernelGetName 12030] cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) => library::kernel_name;
    [cuKernelGetAttribute 12000] cuKernelGetAttribute(
        value: *mut c_int, attribute: c_int, kernel: CUkernel, device: CUdevice,
    ) => library::get_attribute;
    [cuKernelSetAttribute 12000] cuKernelSetAttribute(
        attribute: c_int, value: c_int, kernel: CUkernel, device: CUdevice,
    ) => library::set_attribute;
    [cuKernelSetCacheConfig 12000] cuKernelSetCacheConfig(
        kernel: CUkernel, config: c_int, device: CUdevice,
    ) => library::set_config;
    [cuKernelGetParamInfo 12040] cuKernelGetParamInfo(
        kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize,
    ) => library::param_info;
    [cuKernelGetParamCount 13020] cuKernelGetParamCount(kernel: CUkernel, count: *mut usize) => library::param_count;
}
