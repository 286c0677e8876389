//! Modules, launches and what stops them.

use super::*;

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
