//! Device and host memory, copies, fills, pools.

use std::ffi::{c_int, c_uint, c_void};

use super::api;
use crate::software::functions::{array, array_copy, copy, fill, host, ipc, memory, pool};
use crate::types::*;

api! {
    rows memory_rows;
    [cuMemGetInfo 3020] cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => memory::info;
    [cuMemAlloc 3020] cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) => memory::alloc;
    [cuMemAllocPitch 3020] cuMemAllocPitch_v2(
        address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint,
    ) => memory::alloc_pitch;
    [cuMemFree 3020] cuMemFree_v2(address: CUdeviceptr) => memory::free;
    [cuMemGetAddressRange 3020] cuMemGetAddressRange_v2(
        base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr,
    ) => memory::address_range;
    [cuPointerGetAttribute 4000] cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: CUdeviceptr) => memory::pointer_attribute;

    [cuPointerGetAttributes 7000] cuPointerGetAttributes(
        count: c_uint, attributes: *mut c_int, data: *mut *mut c_void, address: CUdeviceptr,
    ) => memory::pointer_attributes;
    [cuPointerSetAttribute 6000] cuPointerSetAttribute(
        value: *const c_void, attribute: c_int, address: CUdeviceptr,
    ) => memory::set_pointer_attribute;

    [cuIpcGetMemHandle 4010] cuIpcGetMemHandle(handle: *mut IpcHandle, address: CUdeviceptr) => ipc::get_mem_handle;
    [cuIpcOpenMemHandle 4010] cuIpcOpenMemHandle(
        address: *mut CUdeviceptr, handle: IpcHandle, flags: c_uint,
    ) => ipc::open_mem_handle;
    [cuIpcOpenMemHandle 11000] cuIpcOpenMemHandle_v2(
        address: *mut CUdeviceptr, handle: IpcHandle, flags: c_uint,
    ) => ipc::open_mem_handle;
    [cuIpcCloseMemHandle 4010] cuIpcCloseMemHandle(address: CUdeviceptr) => ipc::close_mem_handle;

    [cuMemAllocHost 3020] cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize) => host::alloc_pinned;
    [cuMemHostAlloc 2020] cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) => host::alloc_with_flags;
    [cuMemFreeHost 2000] cuMemFreeHost(pointer: *mut c_void) => host::free;
    [cuMemHostGetFlags 2030] cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) => host::flags;
    [cuMemHostGetDevicePointer 3020] cuMemHostGetDevicePointer_v2(
        address: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint,
    ) => host::device_pointer;
    [cuMemHostRegister 4000] cuMemHostRegister(pointer: *mut c_void, bytes: usize, flags: c_uint) => host::register;
    [cuMemHostRegister 6050] cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) => host::register;
    [cuMemAllocManaged 6000] cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint) => host::alloc_managed;
    [cuMemAdvise 8000] cuMemAdvise(address: CUdeviceptr, bytes: usize, advice: c_int, device: CUdevice) => host::advise;
    [cuMemAdvise 12020] cuMemAdvise_v2(address: CUdeviceptr, bytes: usize, advice: c_int, location: MemLocation) => host::advise_v2;
    [cuMemPrefetchAsync 8000 | cuMemPrefetchAsync_ptsz] cuMemPrefetchAsync(
        address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream,
    ) => host::prefetch;
    [cuMemPrefetchAsync 12020 | cuMemPrefetchAsync_v2_ptsz] cuMemPrefetchAsync_v2(
        address: CUdeviceptr, bytes: usize, location: MemLocation, flags: c_uint, stream: CUstream,
    ) => host::prefetch_v2;
    [cuStreamAttachMemAsync 6000 | cuStreamAttachMemAsync_ptsz] cuStreamAttachMemAsync(
        stream: CUstream, address: CUdeviceptr, bytes: usize, flags: c_uint,
    ) => host::attach;
    [cuMemHostUnregister 4000] cuMemHostUnregister(pointer: *mut c_void) => host::unregister;

    [cuMemAllocAsync 11020 | cuMemAllocAsync_ptsz] cuMemAllocAsync(
        address: *mut CUdeviceptr, bytes: usize, stream: CUstream,
    ) => pool::alloc_async;
    [cuMemFreeAsync 11020 | cuMemFreeAsync_ptsz] cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) => pool::free_async;
    [cuMemAllocFromPoolAsync 11020 | cuMemAllocFromPoolAsync_ptsz] cuMemAllocFromPoolAsync(
        address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream,
    ) => pool::alloc_from_pool_async;
    [cuDeviceGetDefaultMemPool 11020] cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) => pool::default;
    [cuDeviceGetMemPool 11020] cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice) => pool::current;
    [cuDeviceSetMemPool 11020] cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) => pool::set_current;
    [cuMemPoolCreate 11020] cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const MemPoolProps) => pool::create;
    [cuMemPoolDestroy 11020] cuMemPoolDestroy(pool: CUmemoryPool) => pool::destroy;
    [cuMemPoolTrimTo 11020] cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) => pool::trim;
    [cuMemPoolSetAttribute 11020] cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void) => pool::set_attribute;
    [cuMemPoolGetAttribute 11020] cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void) => pool::get_attribute;
    [cuMemPoolSetAccess 11020] cuMemPoolSetAccess(pool: CUmemoryPool, list: *const MemAccessDesc, count: usize) => pool::set_access;
    [cuMemPoolGetAccess 11020] cuMemPoolGetAccess(flags: *mut c_int, pool: CUmemoryPool, location: *mut MemLocation) => pool::get_access;
    [cuMemGetDefaultMemPool 13000] cuMemGetDefaultMemPool(
        pool: *mut CUmemoryPool, location: *mut MemLocation, kind: c_int,
    ) => pool::default_at;
    [cuMemGetMemPool 13000] cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut MemLocation, kind: c_int) => pool::current_at;
    [cuMemSetMemPool 13000] cuMemSetMemPool(location: *mut MemLocation, kind: c_int, pool: CUmemoryPool) => pool::set_current_at;

    [cuArrayCreate 3020] cuArrayCreate_v2(array: *mut *mut c_void, shape: *const ArrayDescriptor) => array::create;
    [cuArrayGetDescriptor 3020] cuArrayGetDescriptor_v2(shape: *mut ArrayDescriptor, array: *mut c_void) => array::get_descriptor;
    [cuArray3DCreate 3020] cuArray3DCreate_v2(array: *mut *mut c_void, shape: *const ArrayDescriptor3D) => array::create_3d;
    [cuArray3DGetDescriptor 3020] cuArray3DGetDescriptor_v2(shape: *mut ArrayDescriptor3D, array: *mut c_void) => array::get_descriptor_3d;
    [cuArrayDestroy 2000] cuArrayDestroy(array: *mut c_void) => array::destroy;
    [cuMemcpyAtoH 3020 | cuMemcpyAtoH_v2_ptds] cuMemcpyAtoH_v2(dst: *mut c_void, array: *mut c_void, offset: usize, bytes: usize) => array_copy::to_host;
    [cuMemcpyHtoA 3020 | cuMemcpyHtoA_v2_ptds] cuMemcpyHtoA_v2(array: *mut c_void, offset: usize, src: *const c_void, bytes: usize) => array_copy::from_host;
    [cuMemcpyAtoD 3020 | cuMemcpyAtoD_v2_ptds] cuMemcpyAtoD_v2(dst: CUdeviceptr, array: *mut c_void, offset: usize, bytes: usize) => array_copy::to_device;
    [cuMemcpyDtoA 3020 | cuMemcpyDtoA_v2_ptds] cuMemcpyDtoA_v2(array: *mut c_void, offset: usize, src: CUdeviceptr, bytes: usize) => array_copy::from_device;
    [cuMemcpyAtoA 3020 | cuMemcpyAtoA_v2_ptds] cuMemcpyAtoA_v2(
        dst: *mut c_void, dst_offset: usize, src: *mut c_void, src_offset: usize, bytes: usize,
    ) => array_copy::to_array;
    [cuMemcpyAtoHAsync 3020 | cuMemcpyAtoHAsync_v2_ptsz] cuMemcpyAtoHAsync_v2(
        dst: *mut c_void, array: *mut c_void, offset: usize, bytes: usize, stream: CUstream,
    ) => array_copy::to_host_async;
    [cuMemcpyHtoAAsync 3020 | cuMemcpyHtoAAsync_v2_ptsz] cuMemcpyHtoAAsync_v2(
        array: *mut c_void, offset: usize, src: *const c_void, bytes: usize, stream: CUstream,
    ) => array_copy::from_host_async;
    [cuMemcpy3DPeer 4000 | cuMemcpy3DPeer_ptds] cuMemcpy3DPeer(copy: *const Memcpy3D) => copy::peer_3d;
    [cuMemcpy3DPeerAsync 4000 | cuMemcpy3DPeerAsync_ptsz] cuMemcpy3DPeerAsync(copy: *const Memcpy3D, stream: CUstream) => copy::peer_3d_async;
    [cuMemcpyBatchAsync 12080 | cuMemcpyBatchAsync_ptsz] cuMemcpyBatchAsync(
        dst: *mut CUdeviceptr, src: *mut CUdeviceptr, sizes: *mut usize, count: usize, attributes: *mut c_void,
        indices: *mut usize, attribute_count: usize, failed: *mut usize, stream: CUstream,
    ) => copy::batch_v1;
    [cuMemcpyBatchAsync 13000 | cuMemcpyBatchAsync_v2_ptsz] cuMemcpyBatchAsync_v2(
        dst: *mut CUdeviceptr, src: *mut CUdeviceptr, sizes: *mut usize, count: usize, attributes: *mut c_void,
        indices: *mut usize, attribute_count: usize, stream: CUstream,
    ) => copy::batch;

    [cuMemcpy 4000 | cuMemcpy_ptds] cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) => copy::any;
    [cuMemcpyAsync 4000 | cuMemcpyAsync_ptsz] cuMemcpyAsync(
        dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream,
    ) => copy::any_async;
    [cuMemcpyPeer 4000 | cuMemcpyPeer_ptds] cuMemcpyPeer(
        dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize,
    ) => copy::peer;
    [cuMemcpyPeerAsync 4000 | cuMemcpyPeerAsync_ptsz] cuMemcpyPeerAsync(
        dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize, stream: CUstream,
    ) => copy::peer_async;
    [cuMemcpyHtoD 3020 | cuMemcpyHtoD_v2_ptds] cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize) => copy::htod;
    [cuMemcpyDtoH 3020 | cuMemcpyDtoH_v2_ptds] cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize) => copy::dtoh;
    [cuMemcpyDtoD 3020 | cuMemcpyDtoD_v2_ptds] cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) => copy::dtod;
    [cuMemcpyHtoDAsync 3020 | cuMemcpyHtoDAsync_v2_ptsz] cuMemcpyHtoDAsync_v2(
        dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream,
    ) => copy::htod_async;
    [cuMemcpyDtoHAsync 3020 | cuMemcpyDtoHAsync_v2_ptsz] cuMemcpyDtoHAsync_v2(
        dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream,
    ) => copy::dtoh_async;
    [cuMemcpyDtoDAsync 3020 | cuMemcpyDtoDAsync_v2_ptsz] cuMemcpyDtoDAsync_v2(
        dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream,
    ) => copy::dtod_async;
    [cuMemcpy2D 3020 | cuMemcpy2D_v2_ptds] cuMemcpy2D_v2(copy: *const Memcpy2D) => copy::copy_2d;
    [cuMemcpy2DUnaligned 3020 | cuMemcpy2DUnaligned_v2_ptds] cuMemcpy2DUnaligned_v2(copy: *const Memcpy2D) => copy::copy_2d;
    [cuMemcpy2DAsync 3020 | cuMemcpy2DAsync_v2_ptsz] cuMemcpy2DAsync_v2(copy: *const Memcpy2D, stream: CUstream) => copy::copy_2d_async;
    [cuMemcpy3D 3020 | cuMemcpy3D_v2_ptds] cuMemcpy3D_v2(copy: *const Memcpy3D) => copy::copy_3d;
    [cuMemcpy3DAsync 3020 | cuMemcpy3DAsync_v2_ptsz] cuMemcpy3DAsync_v2(copy: *const Memcpy3D, stream: CUstream) => copy::copy_3d_async;

    [cuMemsetD8 3020 | cuMemsetD8_v2_ptds] cuMemsetD8_v2(dst: CUdeviceptr, value: u8, count: usize) => fill::d8;
    [cuMemsetD16 3020 | cuMemsetD16_v2_ptds] cuMemsetD16_v2(dst: CUdeviceptr, value: u16, count: usize) => fill::d16;
    [cuMemsetD32 3020 | cuMemsetD32_v2_ptds] cuMemsetD32_v2(dst: CUdeviceptr, value: u32, count: usize) => fill::d32;
    [cuMemsetD8Async 3020 | cuMemsetD8Async_ptsz] cuMemsetD8Async(
        dst: CUdeviceptr, value: u8, count: usize, stream: CUstream,
    ) => fill::d8_async;
    [cuMemsetD16Async 3020 | cuMemsetD16Async_ptsz] cuMemsetD16Async(
        dst: CUdeviceptr, value: u16, count: usize, stream: CUstream,
    ) => fill::d16_async;
    [cuMemsetD32Async 3020 | cuMemsetD32Async_ptsz] cuMemsetD32Async(
        dst: CUdeviceptr, value: u32, count: usize, stream: CUstream,
    ) => fill::d32_async;
    [cuMemsetD2D8 3020 | cuMemsetD2D8_v2_ptds] cuMemsetD2D8_v2(
        dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize,
    ) => fill::rows8;
    [cuMemsetD2D16 3020 | cuMemsetD2D16_v2_ptds] cuMemsetD2D16_v2(
        dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize,
    ) => fill::rows16;
    [cuMemsetD2D32 3020 | cuMemsetD2D32_v2_ptds] cuMemsetD2D32_v2(
        dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize,
    ) => fill::rows32;
    [cuMemsetD2D8Async 3020 | cuMemsetD2D8Async_ptsz] cuMemsetD2D8Async(
        dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream,
    ) => fill::rows8_async;
    [cuMemsetD2D16Async 3020 | cuMemsetD2D16Async_ptsz] cuMemsetD2D16Async(
        dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream,
    ) => fill::rows16_async;
    [cuMemsetD2D32Async 3020 | cuMemsetD2D32Async_ptsz] cuMemsetD2D32Async(
        dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream,
    ) => fill::rows32_async;
}
