//! Memory of devices and of the host, and pools.

use super::*;

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
