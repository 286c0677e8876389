//! The driver API on the software engine, called as C would call it: devices, contexts, memory,
//! modules, launches, errors.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use common::*;
use warpsmith_driver_api::*;

/// SAFETY of the calls in this file: every pointer is null on purpose, or to a live value of the
/// type and length that the function documents.
macro_rules! cu {
    ($e:expr) => {{
        // SAFETY: see above.
        unsafe { $e }
    }};
}

#[test]
fn devices_answer_every_attribute() {
    let _gpu = gpu();
    let (mut count, mut device, mut version) = (0, -1, 0);
    ok(cu!(cuDeviceGetCount(&mut count)));
    ok(cu!(cuDeviceGet(&mut device, 0)));
    ok(cu!(cuDriverGetVersion(&mut version)));
    assert_eq!((count, device, version), (1, 0, 13050));
    is(cu!(cuDeviceGet(&mut device, 1)), 101);
    is(cu!(cuDeviceGet(&mut device, -1)), 101);
    for id in 1..150 {
        let mut value = i32::MIN;
        ok(cu!(cuDeviceGetAttribute(&mut value, id, 0)));
        assert!(value >= 0, "attribute {id}");
    }
    let attribute = |id| {
        let mut value = 0;
        ok(cu!(cuDeviceGetAttribute(&mut value, id, 0)));
        value
    };
    // Threads of a block, warp, shared memory and opt-in, capability: an sm_90 device.
    assert_eq!([1, 10, 8, 97, 75, 76].map(attribute), [1024, 32, 49152, 232_448, 9, 0]);
    is(cu!(cuDeviceGetAttribute(null_mut(), 1, 0)), 1);
    let mut name = [1 as c_char; 64];
    ok(cu!(cuDeviceGetName(name.as_mut_ptr(), 64, 0)));
    // SAFETY: just written, NUL-terminated.
    let text = unsafe { CStr::from_ptr(name.as_ptr()) };
    assert_eq!(text.to_str(), Ok("warpsmith software driver (sm_90)"));
    ok(cu!(cuDeviceGetName(name.as_mut_ptr(), 5, 0)));
    // SAFETY: as above.
    assert_eq!(unsafe { CStr::from_ptr(name.as_ptr()) }.to_str(), Ok("warp"));
    let mut bytes = 0;
    ok(cu!(cuDeviceTotalMem_v2(&mut bytes, 0)));
    assert_eq!(bytes, 16 << 30);
    assert_eq!(engine(), Some(Engine::Software { sm: 90, devices: 1 }));
}

#[test]
fn error_strings_end_with_nul() {
    for code in [0, 1, 2, 209, 218, 700, 719, 901, 918, 999] {
        let (mut name, mut text) = (null(), null());
        ok(cu!(cuGetErrorName(code, &mut name)));
        ok(cu!(cuGetErrorString(code, &mut text)));
        // SAFETY: the driver answers static NUL-terminated strings.
        let (name, text) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(text)) };
        assert_eq!(name.to_str(), Ok(result_name(code)));
        assert_eq!(text.to_str(), Ok(result_text(code)));
    }
    let mut text = c"x".as_ptr();
    is(cu!(cuGetErrorString(31337, &mut text)), 1);
    assert!(text.is_null());
    is(cu!(cuGetErrorString(0, null_mut())), 1);
}

#[test]
fn memory_is_bounded_poisoned_and_counted() {
    let _gpu = gpu();
    let (mut free, mut total, mut p) = (0, 0, 0);
    ok(cu!(cuMemGetInfo_v2(&mut free, &mut total)));
    is(cu!(cuMemAlloc_v2(&mut p, 0)), 1);
    is(cu!(cuMemAlloc_v2(&mut p, 1 << 50)), 2);
    is(cu!(cuMemAlloc_v2(null_mut(), 16)), 1);
    let p = alloc(1000);
    assert_eq!(p % 256, 0);
    let mut less = 0;
    ok(cu!(cuMemGetInfo_v2(&mut less, &mut total)));
    assert!(less <= free - 1000);

    let mut out = [0u8; 1001];
    ok(cu!(cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), p, 1000)));
    assert!(out[..1000].iter().all(|b| *b == 0xa5), "fresh memory reads as poison");
    is(cu!(cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), p, 1001)), 1);
    is(cu!(cuMemcpyHtoD_v2(p + 1, out.as_ptr().cast(), 1000)), 1);
    is(cu!(cuMemcpyDtoD_v2(p, p + 900, 200)), 1);
    is(cu!(cuMemcpyHtoD_v2(p, null(), 4)), 1);
    is(cu!(cuMemcpyDtoH_v2(null_mut(), p, 4)), 1);
    is(cu!(cuMemcpyHtoD_v2(p, p as *const c_void, 4)), 1);
    is(cu!(cuMemcpyHtoD_v2(12, out.as_ptr().cast(), 4)), 1);
    ok(cu!(cuMemcpyHtoD_v2(p, null(), 0)));

    ok(cu!(cuMemsetD8_v2(p, 7, 1000)));
    ok(cu!(cuMemsetD16_v2(p, 0x0102, 2)));
    ok(cu!(cuMemsetD32_v2(p + 4, 0xdead_beef, 1)));
    ok(cu!(cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), p, 1000)));
    assert_eq!(out[..9], [2, 1, 2, 1, 0xef, 0xbe, 0xad, 0xde, 7]);
    is(cu!(cuMemsetD32_v2(p + 2, 0, 1)), 1);
    is(cu!(cuMemsetD8_v2(p, 0, 1001)), 1);

    let (mut base, mut size) = (0, 0);
    ok(cu!(cuMemGetAddressRange_v2(&mut base, &mut size, p + 999)));
    assert_eq!((base, size), (p, 1000));
    is(cu!(cuMemFree_v2(p + 256)), 1);
    ok(cu!(cuMemFree_v2(p)));
    is(cu!(cuMemFree_v2(p)), 1);
    is(cu!(cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), p, 4)), 1);
    ok(cu!(cuMemFree_v2(0)));
    ok(cu!(cuMemGetInfo_v2(&mut less, &mut total)));
    assert_eq!(less, free);
}

#[test]
fn rows_and_slices() {
    let _gpu = gpu();
    let (mut p, mut pitch) = (0, 0);
    ok(cu!(cuMemAllocPitch_v2(&mut p, &mut pitch, 10, 3, 4)));
    assert_eq!(pitch, 512);
    ok(cu!(cuMemsetD2D8_v2(p, pitch, 9, 512, 3)));
    let source: Vec<u8> = (0..30).collect();
    let copy = Memcpy2D {
        src_x_in_bytes: 0,
        src_y: 0,
        src_memory_type: 1,
        src_host: source.as_ptr().cast(),
        src_device: 0,
        src_array: null_mut(),
        src_pitch: 10,
        dst_x_in_bytes: 1,
        dst_y: 1,
        dst_memory_type: 2,
        dst_host: null_mut(),
        dst_device: p,
        dst_array: null_mut(),
        dst_pitch: pitch,
        width_in_bytes: 10,
        height: 2,
    };
    ok(cu!(cuMemcpy2D_v2(&copy)));
    let mut out = vec![0u8; 3 * 512];
    ok(cu!(cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), p, out.len())));
    assert!(out[..512].iter().all(|b| *b == 9));
    assert_eq!(out[512], 9);
    assert_eq!(out[513..523], source[..10]);
    assert_eq!(out[1025..1035], source[10..20]);
    assert_eq!(out[1035], 9);
    is(cu!(cuMemcpy2D_v2(&Memcpy2D { height: 3, ..copy })), 1);
    is(cu!(cuMemcpy2D_v2(&Memcpy2D { src_pitch: 9, ..copy })), 1);
    // No such array.
    is(cu!(cuMemcpy2D_v2(&Memcpy2D { dst_memory_type: 3, ..copy })), 400);
    is(cu!(cuMemcpy2D_v2(null())), 1);
}

#[test]
fn host_memory_is_reached_by_kernels() {
    let _gpu = gpu();
    let module = load(PTX);
    let step = function(module, "step");
    let (mut pinned, mut device) = (null_mut(), 0);
    ok(cu!(cuMemHostAlloc(&mut pinned, 64, 2)));
    ok(cu!(cuMemHostGetDevicePointer_v2(&mut device, pinned, 0)));
    // SAFETY: 64 bytes of the driver's.
    unsafe { pinned.cast::<u32>().write(5) };
    ok(launch_step(step, device, CUstream::NULL));
    // SAFETY: as above.
    assert_eq!(unsafe { pinned.cast::<u32>().read() }, 16);
    is(cu!(cuMemFreeHost(pinned.wrapping_byte_add(4))), 1);
    ok(cu!(cuMemFreeHost(pinned)));
    is(cu!(cuMemFreeHost(pinned)), 1);
    is(cu!(cuMemHostAlloc(&mut pinned, 0, 0)), 1);

    let mut own = vec![5u32; 1024];
    let p: *mut c_void = own.as_mut_ptr().cast();
    ok(cu!(cuMemHostRegister_v2(p, 4096, 0)));
    is(cu!(cuMemHostRegister_v2(p, 16, 0)), 712);
    ok(launch_step(step, p as u64, CUstream::NULL));
    ok(cu!(cuMemHostUnregister(p)));
    is(cu!(cuMemHostUnregister(p)), 713);
    assert_eq!(own[..2], [16, 5]);

    let mut managed = 0;
    is(cu!(cuMemAllocManaged(&mut managed, 64, 0)), 1);
    ok(cu!(cuMemAllocManaged(&mut managed, 64, 1)));
    ok(cu!(cuMemsetD32_v2(managed, 2, 16)));
    ok(launch_step(step, managed, CUstream::NULL));
    // SAFETY: managed memory is host memory.
    assert_eq!(unsafe { (managed as *const u32).read() }, 7);
    let mut is_managed = 0u32;
    ok(cu!(cuPointerGetAttribute((&raw mut is_managed).cast(), 8, managed + 4)));
    assert_eq!(is_managed, 1);
    ok(cu!(cuMemFree_v2(managed)));
    is(cu!(cuMemFree_v2(managed)), 1);
}

#[test]
fn pools_allocate_in_stream_order() {
    let _gpu = gpu();
    let s = stream();
    let (mut pool, mut p, mut used) = (CUmemoryPool::NULL, 0, 0u64);
    ok(cu!(cuDeviceGetDefaultMemPool(&mut pool, 0)));
    ok(cu!(cuMemAllocAsync(&mut p, 100, s)));
    ok(cu!(cuMemPoolGetAttribute(pool, 7, (&raw mut used).cast())));
    assert_eq!(used, 100);
    ok(cu!(cuMemsetD8Async(p, 1, 100, s)));
    ok(cu!(cuMemFreeAsync(p, s)));
    is(cu!(cuMemFreeAsync(p, s)), 1);
    ok(cu!(cuMemPoolGetAttribute(pool, 7, (&raw mut used).cast())));
    assert_eq!(used, 0);
    is(cu!(cuMemPoolDestroy(pool)), 1);
    is(cu!(cuMemAllocFromPoolAsync(&mut p, 4, CUmemoryPool::NULL, s)), 1);
    let props = MemPoolProps {
        alloc_type: 1,
        handle_types: 0,
        location: MemLocation { kind: 1, id: 0 },
        win32_security_attributes: null_mut(),
        reserved: [0; 64],
    };
    ok(cu!(cuMemPoolCreate(&mut pool, &props)));
    ok(cu!(cuMemAllocFromPoolAsync(&mut p, 4, pool, s)));
    ok(cu!(cuMemPoolDestroy(pool)));
    is(cu!(cuMemPoolTrimTo(pool, 0)), 1);
    ok(cu!(cuMemFree_v2(p)));
}

#[test]
fn a_kernel_runs_and_is_profiled() {
    let _gpu = gpu();
    let module = load(PTX);
    let add = function(module, "add");
    assert_eq!(add, function(module, "add"), "one handle per kernel");
    let x: Vec<u32> = (0..1000).collect();
    let (x, y) = (upload(&x), alloc(4000));
    software::reset_profile();
    let (k, n) = (5u32, 1000u32);
    ok(launch(add, 8, 128, 0, CUstream::NULL, &[arg(&x), arg(&y), arg(&k), arg(&n)]));
    ok(cu!(cuCtxSynchronize()));
    assert_eq!(download(y, 1000), (5..1005).collect::<Vec<u32>>());
    let profile = software::profile();
    assert_eq!((profile[0].name.as_str(), profile[0].launches), ("add", 1));
    assert_eq!(profile[0].counters.global_load_bytes, 4000);
    assert_eq!(profile[0].counters.global_store_bytes, 4000);

    // The same arguments as one buffer.
    let mut buffer = [0u8; 24];
    buffer[..8].copy_from_slice(&x.to_le_bytes());
    buffer[8..16].copy_from_slice(&y.to_le_bytes());
    buffer[16..20].copy_from_slice(&9u32.to_le_bytes());
    buffer[20..].copy_from_slice(&n.to_le_bytes());
    let mut sizes = [24usize, 20];
    let mut extra: [*mut c_void; 5] = [
        std::ptr::without_provenance_mut(1),
        buffer.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(2),
        sizes.as_mut_ptr().cast(),
        null_mut(),
    ];
    ok(cu!(cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, CUstream::NULL, null_mut(), extra.as_mut_ptr())));
    assert_eq!(download(y, 2), [9, 10]);
    extra[3] = (&raw mut sizes[1]).cast();
    is(cu!(cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, CUstream::NULL, null_mut(), extra.as_mut_ptr())), 1);
    let mut list = [null_mut::<c_void>(); 4];
    is(cu!(cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, CUstream::NULL, list.as_mut_ptr(), extra.as_mut_ptr())), 1);
    is(cu!(cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, CUstream::NULL, null_mut(), null_mut())), 1);
    is(cu!(cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, CUstream::NULL, list.as_mut_ptr(), null_mut())), 1);
}

#[test]
fn launches_beyond_the_limits_are_refused() {
    let _gpu = gpu();
    let module = load(PTX);
    let nothing = function(module, "nothing");
    let at = |grid: [u32; 3], block: [u32; 3], shared| {
        let [gx, gy, gz] = grid;
        let [bx, by, bz] = block;
        cu!(cuLaunchKernel(nothing, gx, gy, gz, bx, by, bz, shared, CUstream::NULL, null_mut(), null_mut()))
    };
    ok(at([1, 1, 1], [1024, 1, 1], 0));
    ok(at([1, 2, 3], [2, 2, 64], 48 << 10));
    for (grid, block) in [
        ([0, 1, 1], [1, 1, 1]),
        ([1, 65536, 1], [1, 1, 1]),
        ([1, 1, 65536], [1, 1, 1]),
        ([0x8000_0000, 1, 1], [1, 1, 1]),
        ([1, 1, 1], [0, 1, 1]),
        ([1, 1, 1], [1025, 1, 1]),
        ([1, 1, 1], [1, 1, 65]),
        ([1, 1, 1], [32, 32, 2]),
        ([1, 1, 1], [u32::MAX, u32::MAX, u32::MAX]),
    ] {
        is(at(grid, block, 0), 1);
    }
    is(at([1, 1, 1], [1, 1, 1], (48 << 10) + 1), 1);
    let bounded = function(module, "bounded");
    ok(launch(bounded, 1, 64, 0, CUstream::NULL, &[]));
    is(launch(bounded, 1, 65, 0, CUstream::NULL, &[]), 1);
    let mut most = 0;
    ok(cu!(cuFuncGetAttribute(&mut most, 0, bounded)));
    assert_eq!(most, 64);

    let shared_last = function(module, "shared_last");
    let p = alloc(4);
    let n = 100_000u32;
    is(launch(shared_last, 1, 1, n, CUstream::NULL, &[arg(&p), arg(&n)]), 1);
    is(cu!(cuFuncSetAttribute(shared_last, 8, 232_449)), 1);
    ok(cu!(cuFuncSetAttribute(shared_last, 8, 100_000)));
    ok(launch(shared_last, 1, 1, n, CUstream::NULL, &[arg(&p), arg(&n)]));
    assert_eq!(download(p, 1), [100_000]);
    is(launch(shared_last, 1, 1, n + 4, CUstream::NULL, &[arg(&p), arg(&n)]), 1);
}

#[test]
fn occupancy_and_attributes() {
    let _gpu = gpu();
    let module = load(PTX);
    let nothing = function(module, "nothing");
    let (mut blocks, mut grid, mut block, mut bytes) = (0, 0, 0, 0);
    ok(cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, nothing, 256, 0)));
    assert_eq!(blocks, 8);
    is(cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, nothing, 0, 0)), 1);
    ok(cu!(cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, nothing, None, 0, 0)));
    assert_eq!((grid, block), (2 * 132, 1024));
    ok(cu!(cuOccupancyAvailableDynamicSMemPerBlock(&mut bytes, nothing, 2, 256)));
    assert_eq!(bytes, 233_472 / 2 - 1024);
    let (mut ptx, mut binary) = (0, 0);
    ok(cu!(cuFuncGetAttribute(&mut ptx, 5, nothing)));
    ok(cu!(cuFuncGetAttribute(&mut binary, 6, nothing)));
    assert_eq!((ptx, binary), (75, 90));
    is(cu!(cuFuncGetAttribute(&mut ptx, 99, nothing)), 1);
    let mut name = null();
    ok(cu!(cuFuncGetName(&mut name, nothing)));
    // SAFETY: the driver's, as long as the function.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"nothing");
    let (mut offset, mut size) = (0, 0);
    ok(cu!(cuFuncGetParamInfo(function(module, "add"), 3, &mut offset, &mut size)));
    assert_eq!((offset, size), (20, 4));
    is(cu!(cuFuncGetParamInfo(nothing, 0, &mut offset, &mut size)), 1);
}

#[test]
fn modules_have_variables_and_logs() {
    let _gpu = gpu();
    let module = load(PTX);
    let (mut p, mut size, mut f) = (0, 0, CUfunction::NULL);
    ok(cu!(cuModuleGetGlobal_v2(&mut p, &mut size, module, c"seven".as_ptr())));
    assert_eq!((download(p, 1), size), (vec![7], 4));
    is(cu!(cuMemFree_v2(p)), 1);
    is(cu!(cuModuleGetGlobal_v2(&mut p, &mut size, module, c"eight".as_ptr())), 500);
    is(cu!(cuModuleGetFunction(&mut f, module, c"eight".as_ptr())), 500);
    is(cu!(cuModuleGetFunction(&mut f, module, null())), 1);
    ok(cu!(cuModuleUnload(module)));
    is(cu!(cuModuleUnload(module)), 400);

    let mut bad = CUmodule::NULL;
    is(cu!(cuModuleLoadData(&mut bad, c"\x7fELF....".as_ptr().cast())), 209);
    is(cu!(cuModuleLoadData(&mut bad, c"".as_ptr().cast())), 200);
    is(cu!(cuModuleLoadData(&mut bad, null())), 1);
    is(cu!(cuModuleLoad(&mut bad, c"/nowhere/k.ptx".as_ptr())), 301);

    let text = CString::new(PTX.replace("mad.lo.s32 %r1, %r1, 3, 1;", "frobnicate.s32 %r1, %r1;")).unwrap();
    let mut log = vec![0u8; 4096];
    let mut options: [c_int; 2] = [5, 6];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), 4096 as *mut c_void];
    let code = cu!(cuModuleLoadDataEx(&mut bad, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()));
    is(code, 218);
    assert_eq!(bad, CUmodule::NULL);
    let log = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
    assert!(log.contains("frobnicate") && log.contains("line 41"), "{log}");
    assert_eq!(values[1] as usize, log.len() + 1);
    assert_eq!(software::last_report().as_deref(), Some(log));
}

#[test]
fn the_linker_gives_an_image_that_loads() {
    let _gpu = gpu();
    let other = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry other() { ret; }\n";
    let (mut link, mut image, mut size) = (CUlinkState::NULL, null_mut(), 0);
    ok(cu!(cuLinkCreate_v2(0, null_mut(), null_mut(), &mut link)));
    for text in [PTX, other] {
        let data = text.as_ptr().cast_mut().cast();
        ok(cu!(cuLinkAddData_v2(link, 1, data, text.len(), c"a".as_ptr(), 0, null_mut(), null_mut())));
    }
    is(cu!(cuLinkAddData_v2(link, 0, std::ptr::without_provenance_mut(1), 0, null(), 0, null_mut(), null_mut())), 200);
    ok(cu!(cuLinkComplete(link, &mut image, &mut size)));
    // SAFETY: the driver said so.
    let copy = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) }.to_vec();
    ok(cu!(cuLinkDestroy(link)));
    is(cu!(cuLinkDestroy(link)), 400);
    let mut module = CUmodule::NULL;
    ok(cu!(cuModuleLoadData(&mut module, copy.as_ptr().cast())));
    function(module, "other");
    function(module, "add");
}

#[test]
fn faults_are_answered_by_later_calls() {
    for (kernel, pointer, expected) in
        [("poke", 0u64, 700), ("poke", 1 << 50, 700), ("poke", 2, 716), ("trapped", 0, 719)]
    {
        let _gpu = gpu();
        let module = load(PTX);
        let f = function(module, kernel);
        let p = alloc(16);
        let target = if pointer == 2 { p + 2 } else { pointer };
        let args = if kernel == "poke" { vec![arg(&target)] } else { Vec::new() };
        ok(launch(f, 1, 1, 0, CUstream::NULL, &args));
        let report = software::last_report().expect("a report");
        assert!(report.contains(kernel), "{report}");
        is(cu!(cuCtxSynchronize()), expected);
        is(cu!(cuMemFree_v2(p)), expected);
        is(cu!(cuStreamSynchronize(CUstream::NULL)), expected);
        is(launch(f, 1, 1, 0, CUstream::NULL, &args), expected);
        let mut q = 0;
        is(cu!(cuMemAlloc_v2(&mut q, 4)), expected);
        // Destroying the context is what clears it.
        ok(cu!(cuDevicePrimaryCtxReset_v2(0)));
        is(cu!(cuMemAlloc_v2(&mut q, 4)), 709);
        let mut context = CUcontext::NULL;
        ok(cu!(cuDevicePrimaryCtxRetain(&mut context, 0)));
        ok(cu!(cuMemAlloc_v2(&mut q, 4)));
        is(cu!(cuMemFree_v2(p)), 1);
    }
}

#[test]
fn contexts_stack_and_die() {
    let gpu = gpu();
    let (mut a, mut b, mut current) = (CUcontext::NULL, CUcontext::NULL, CUcontext::NULL);
    ok(cu!(cuCtxCreate_v2(&mut a, 0, 0)));
    ok(cu!(cuCtxCreate_v2(&mut b, 0, 0)));
    is(cu!(cuCtxCreate_v2(&mut b, 0, 7)), 101);
    is(cu!(cuCtxCreate_v2(&mut b, 0x8000, 0)), 1);
    ok(cu!(cuCtxGetCurrent(&mut current)));
    assert_eq!(current, b);
    let in_b = alloc(64);
    ok(cu!(cuCtxPopCurrent_v2(&mut current)));
    assert_eq!(current, b);
    ok(cu!(cuCtxGetCurrent(&mut current)));
    assert_eq!(current, a);
    // An address is the device's, not the context's.
    let mut word = [0u8; 4];
    ok(cu!(cuMemcpyDtoH_v2(word.as_mut_ptr().cast(), in_b, 4)));
    ok(cu!(cuCtxDestroy_v2(b)));
    is(cu!(cuCtxDestroy_v2(b)), 201);
    is(cu!(cuCtxSetCurrent(b)), 201);
    is(cu!(cuMemcpyDtoH_v2(word.as_mut_ptr().cast(), in_b, 4)), 1);
    // Destroyed while another thread has it.
    let s = stream();
    ok(cu!(cuCtxDestroy_v2(a)));
    is(cu!(cuStreamSynchronize(s)), 400);
    ok(cu!(cuCtxGetCurrent(&mut current)));
    assert_eq!(current, gpu.context);
    is(cu!(cuCtxDestroy_v2(gpu.context)), 201);

    // A thread without a context.
    std::thread::spawn(move || {
        let mut p = 0;
        is(cu!(cuMemAlloc_v2(&mut p, 4)), 201);
        is(cu!(cuCtxPopCurrent_v2(null_mut())), 201);
        ok(cu!(cuCtxPushCurrent_v2(gpu.context)));
        ok(cu!(cuMemAlloc_v2(&mut p, 4)));
        ok(cu!(cuMemFree_v2(p)));
    })
    .join()
    .unwrap();

    let (mut flags, mut active) = (0, 0);
    ok(cu!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active)));
    assert_eq!(active, 1);
    ok(cu!(cuDevicePrimaryCtxRelease_v2(0)));
    is(cu!(cuCtxSynchronize()), 709);
    is(cu!(cuDevicePrimaryCtxRelease_v2(0)), 201);
    is(cu!(cuDevicePrimaryCtxRelease_v2(3)), 101);
}

#[test]
fn invented_stale_and_foreign_handles_are_errors() {
    let _gpu = gpu();
    let module = load(PTX);
    let nothing = function(module, "nothing");
    let (s, e) = (stream(), event());
    let bogus = |at: usize| at as *mut c_void;
    for bad in [3usize, 0x1000, usize::MAX, s.0 as usize + 1, e.0 as usize] {
        is(cu!(cuStreamSynchronize(CUstream(bogus(bad)))), 400);
        is(launch(nothing, 1, 1, 0, CUstream(bogus(bad)), &[]), 400);
        is(cu!(cuStreamDestroy_v2(CUstream(bogus(bad)))), 400);
        is(cu!(cuModuleUnload(CUmodule(bogus(bad)))), 400);
        is(launch(CUfunction(bogus(bad)), 1, 1, 0, s, &[]), 400);
        is(cu!(cuCtxSetCurrent(CUcontext(bogus(bad)))), 201);
        is(cu!(cuGraphDestroy(CUgraph(bogus(bad)))), 1);
        is(cu!(cuGraphLaunch(CUgraphExec(bogus(bad)), s)), 1);
        is(cu!(cuGraphExecDestroy(CUgraphExec(bogus(bad)))), 1);
        is(cu!(cuGraphDestroyNode(CUgraphNode(bogus(bad)))), 1);
    }
    is(cu!(cuEventSynchronize(CUevent(s.0))), 400);
    ok(cu!(cuEventDestroy_v2(e)));
    is(cu!(cuEventDestroy_v2(e)), 400);
    is(cu!(cuEventRecord(e, s)), 400);
    assert_ne!(event(), e, "handles are not used again");
    ok(cu!(cuStreamDestroy_v2(s)));
    is(cu!(cuStreamDestroy_v2(s)), 400);
    ok(cu!(cuModuleUnload(module)));
    is(launch(nothing, 1, 1, 0, CUstream::NULL, &[]), 400);
    is(cu!(cuStreamDestroy_v2(CUstream::NULL)), 400);
}

#[test]
fn streams_and_events() {
    let _gpu = gpu();
    let (s, t, start, stop) = (stream(), blocking_stream(), event(), event());
    let (mut flags, mut priority, mut ms) = (9, 9, -1.0);
    ok(cu!(cuStreamGetFlags(s, &mut flags)));
    assert_eq!(flags, 1);
    let mut urgent = CUstream::NULL;
    ok(cu!(cuStreamCreateWithPriority(&mut urgent, 1, -99)));
    ok(cu!(cuStreamGetPriority(urgent, &mut priority)));
    assert_eq!(priority, -5);
    is(cu!(cuStreamCreate(&mut urgent, 2)), 1);
    is(cu!(cuEventElapsedTime(&mut ms, start, stop)), 400);
    ok(cu!(cuEventRecord(start, s)));
    ok(cu!(cuStreamWaitEvent(t, start, 0)));
    std::thread::sleep(std::time::Duration::from_millis(5));
    ok(cu!(cuEventRecord(stop, t)));
    ok(cu!(cuEventQuery(stop)));
    ok(cu!(cuEventSynchronize(stop)));
    ok(cu!(cuEventElapsedTime(&mut ms, start, stop)));
    assert!((5.0..1000.0).contains(&ms), "{ms}");
    let mut plain = CUevent::NULL;
    ok(cu!(cuEventCreate(&mut plain, 2)));
    ok(cu!(cuEventRecord(plain, s)));
    is(cu!(cuEventElapsedTime(&mut ms, start, plain)), 400);
    is(cu!(cuEventCreate(&mut plain, 64)), 1);
}

extern "C" fn note(data: *mut c_void) {
    let mut p = 0;
    // SAFETY: a live place.
    let code = unsafe { cuMemAlloc_v2(&mut p, 4) };
    // SAFETY: the test gave the address of a live pair.
    unsafe { data.cast::<(i32, u32)>().write((code, std::process::id())) };
}

#[test]
fn host_functions_run_in_order_and_may_not_call_cuda() {
    let _gpu = gpu();
    let s = stream();
    let mut seen = (0, 0);
    ok(cu!(cuLaunchHostFunc(s, Some(note), (&raw mut seen).cast())));
    ok(cu!(cuStreamSynchronize(s)));
    assert_eq!(seen, (800, std::process::id()));
    is(cu!(cuLaunchHostFunc(s, None, null_mut())), 1);
    // The calling thread itself may, afterwards.
    alloc(4);
}

struct Meeting {
    ask: std::sync::mpsc::Sender<()>,
    answer: std::sync::mpsc::Receiver<i32>,
}

extern "C" fn meet(data: *mut c_void) {
    // SAFETY: the test gave the address of a live meeting, which nobody else uses meanwhile.
    let meeting = unsafe { &*data.cast::<Meeting>() };
    let _ = meeting.ask.send(());
    assert_eq!(meeting.answer.recv(), Ok(0));
}

/// A host function that waits for another thread's calls must find the driver free.
#[test]
fn host_functions_hold_no_lock() {
    let gpu = gpu();
    let (module, context) = (load(PTX), gpu.context);
    let step = function(module, "step");
    let (ask, asked) = std::sync::mpsc::channel();
    let (reply, answer) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        asked.recv().unwrap();
        ok(cu!(cuCtxSetCurrent(context)));
        let p = upload(&[1]);
        let code = launch_step(step, p, stream());
        assert_eq!(download(p, 1), [4]);
        reply.send(code).unwrap();
    });
    let mut meeting = Meeting { ask, answer };
    ok(cu!(cuLaunchHostFunc(stream(), Some(meet), (&raw mut meeting).cast())));
    other.join().unwrap();
}

#[test]
fn injected_failures_and_counts() {
    let _gpu = gpu();
    software::reset_call_counts();
    let guard = software::inject_failure(Some("cuMemAlloc_v2"), 1, 2);
    let mut p = 0;
    ok(cu!(cuMemAlloc_v2(&mut p, 4)));
    p = 77;
    is(cu!(cuMemAlloc_v2(&mut p, 4)), 2);
    assert_eq!(p, 77, "an injected failure does nothing");
    assert!(guard.fired());
    ok(cu!(cuMemAlloc_v2(&mut p, 4)));
    assert_eq!(software::call_counts().get("cuMemAlloc_v2"), 3);
    let _unknown = software::inject_failure(None, 0, 719);
    is(cu!(cuCtxSynchronize()), 719);
    ok(cu!(cuCtxSynchronize()));
}

#[test]
fn whatever_is_not_there_says_so() {
    let _gpu = gpu();
    let mut texture = 0u64;
    is(cu!(cuTexObjectCreate((&raw mut texture).cast(), null_mut(), null_mut(), null_mut())), 801);
    assert_eq!(software::last_report().as_deref(), Some("cuTexObjectCreate is not supported by the software driver"));
    is(cu!(cuMulticastCreate(null_mut(), null_mut())), 801);
}

#[test]
fn threads_share_one_device() {
    let gpu = gpu();
    let module = load(PTX);
    let step = function(module, "step");
    let (module_handle, context) = (step, gpu.context);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                ok(cu!(cuCtxSetCurrent(context)));
                let (s, p) = (stream(), upload(&[1]));
                for _ in 0..20 {
                    ok(launch_step(module_handle, p, s));
                }
                ok(cu!(cuStreamSynchronize(s)));
                let expected = (0..20).fold(1u32, |x, _| x.wrapping_mul(3).wrapping_add(1));
                assert_eq!(download(p, 1), [expected]);
                ok(cu!(cuMemFree_v2(p)));
                ok(cu!(cuStreamDestroy_v2(s)));
            });
        }
    });
}
