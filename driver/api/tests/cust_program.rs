//! A program written against `cust`, linked with this crate in place of the CUDA driver.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ffi::CStr;

use cust::memory::{AsyncCopyDestination, DeviceBuffer, LockedBuffer, UnifiedBuffer};
use cust::prelude::*;
use warpsmith_driver_api as driver;

/// Every symbol that cust 0.3.2 references, read off its source.
const CUST: &str = "cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuArrayDestroy cuCtxCreate_v2 cuCtxDestroy_v2 \
cuCtxGetApiVersion cuCtxGetCacheConfig cuCtxGetCurrent cuCtxGetDevice cuCtxGetFlags cuCtxGetLimit \
cuCtxGetSharedMemConfig cuCtxGetStreamPriorityRange cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuCtxSetCacheConfig \
cuCtxSetCurrent cuCtxSetLimit cuCtxSetSharedMemConfig cuCtxSynchronize cuDestroyExternalMemory cuDeviceGet \
cuDeviceGetAttribute cuDeviceGetCount cuDeviceGetName cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 \
cuDevicePrimaryCtxRetain cuDevicePrimaryCtxSetFlags_v2 cuDeviceTotalMem_v2 cuDriverGetVersion cuEventCreate \
cuEventDestroy_v2 cuEventElapsedTime cuEventQuery cuEventRecord cuEventSynchronize \
cuExternalMemoryGetMappedBuffer cuFuncGetAttribute cuFuncSetCacheConfig cuFuncSetSharedMemConfig \
cuGetErrorString cuGraphAddKernelNode cuGraphCreate cuGraphDebugDotPrint cuGraphDestroy cuGraphGetEdges \
cuGraphGetNodes cuGraphKernelNodeGetParams cuGraphNodeGetType cuImportExternalMemory cuInit cuLaunchHostFunc \
cuLaunchKernel cuLinkAddData_v2 cuLinkComplete cuLinkCreate_v2 cuLinkDestroy cuMemAdvise cuMemAllocAsync \
cuMemAllocHost_v2 cuMemAllocManaged cuMemAlloc_v2 cuMemFreeAsync cuMemFreeHost cuMemFree_v2 cuMemGetInfo_v2 \
cuMemPrefetchAsync cuMemcpy2D_v2 cuMemcpyAtoH_v2 cuMemcpyDtoDAsync_v2 cuMemcpyDtoD_v2 cuMemcpyDtoHAsync_v2 \
cuMemcpyDtoH_v2 cuMemcpyHtoA_v2 cuMemcpyHtoDAsync_v2 cuMemcpyHtoD_v2 cuMemsetD16Async cuMemsetD16_v2 \
cuMemsetD32Async cuMemsetD32_v2 cuMemsetD8Async cuMemsetD8_v2 cuModuleGetFunction cuModuleGetGlobal_v2 \
cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleUnload cuOccupancyAvailableDynamicSMemPerBlock \
cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxPotentialBlockSize cuStreamCreateWithPriority \
cuStreamDestroy_v2 cuStreamGetFlags cuStreamGetPriority cuStreamSynchronize cuStreamWaitEvent \
cuSurfObjectCreate cuSurfObjectDestroy cuSurfObjectGetResourceDesc cuTexObjectCreate cuTexObjectDestroy \
cuTexObjectGetResourceDesc cuTexObjectGetResourceViewDesc cuGetErrorName";

/// What this project's host crate uses beyond them.
const BEYOND: &str = "cuStreamCreate cuStreamQuery cuStreamBeginCapture cuStreamBeginCapture_v2 cuStreamEndCapture \
cuStreamIsCapturing cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v2 cuThreadExchangeStreamCaptureMode \
cuGraphInstantiate cuGraphInstantiate_v2 cuGraphInstantiateWithFlags cuGraphLaunch cuGraphUpload \
cuGraphExecDestroy cuGraphExecUpdate cuGraphExecKernelNodeSetParams cuGraphKernelNodeSetParams cuGraphClone \
cuGraphAddMemcpyNode cuGraphAddMemsetNode cuGraphAddHostNode cuGraphAddEmptyNode cuGraphAddChildGraphNode \
cuGraphAddDependencies cuGraphNodeGetDependencies cuGraphGetRootNodes cuGraphDestroyNode cuFuncSetAttribute \
cuMemHostAlloc cuMemHostGetDevicePointer_v2 cuMemHostRegister_v2 cuMemHostUnregister cuPointerGetAttribute \
cuLaunchCooperativeKernel cuDeviceGetUuid cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuMemPoolCreate \
cuMemPoolDestroy cuMemPoolTrimTo cuMemPoolSetAttribute cuMemPoolGetAttribute cuMemAllocFromPoolAsync \
cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxPotentialBlockSizeWithFlags \
cuEventRecordWithFlags cuProfilerStart cuProfilerStop cuDeviceCanAccessPeer cuDeviceComputeCapability \
cuMemGetAddressRange_v2 cuModuleGetLoadingMode cuMemcpy cuMemcpyAsync cuGetProcAddress cuGetProcAddress_v2";

#[test]
fn every_symbol_is_there() {
    for name in CUST.split_whitespace().chain(BEYOND.split_whitespace()) {
        let address = driver::exported(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert!(!address.is_null());
        let c_name = std::ffi::CString::new(name).unwrap();
        let mut found = std::ptr::null_mut();
        // SAFETY: a NUL-terminated name and a live place.
        let code = unsafe { driver::cuGetProcAddress(c_name.as_ptr(), &mut found, 13000, 0) };
        // A name that is a base name answers the newest ABI.
        assert!(code == 0 && !found.is_null(), "{name}");
    }
}

#[test]
fn a_cust_program_runs() {
    let _turn = common::gpu();
    let context = cust::quick_init().expect("quick_init");
    let device = Device::get_device(0).unwrap();
    assert_eq!(device.name().unwrap(), "warpsmith software driver (sm_90)");
    assert_eq!(device.get_attribute(cust::device::DeviceAttribute::WarpSize).unwrap(), 32);
    assert_eq!(cust::CudaApiVersion::get().unwrap().major(), 13);

    let module = Module::from_ptx(common::PTX, &[]).unwrap();
    let stream = Stream::new(StreamFlags::DEFAULT, None).unwrap();
    let x = DeviceBuffer::from_slice(&(0..100u32).collect::<Vec<_>>()).unwrap();
    let y = DeviceBuffer::<u32>::zeroed(100).unwrap();
    let add = module.get_function("add").unwrap();
    let (start, stop) = (Event::new(EventFlags::DEFAULT).unwrap(), Event::new(EventFlags::DEFAULT).unwrap());
    start.record(&stream).unwrap();
    // SAFETY: the arguments are those of the kernel.
    unsafe { launch!(add<<<4, 32, 0, stream>>>(x.as_device_ptr(), y.as_device_ptr(), 7u32, 100u32)).unwrap() };
    stop.record(&stream).unwrap();
    stream.synchronize().unwrap();
    assert!(stop.elapsed_time_f32(&start).unwrap() >= 0.0);
    assert_eq!(y.as_host_vec().unwrap(), (7..107).collect::<Vec<u32>>());
    assert_eq!(add.get_attribute(cust::function::FunctionAttribute::PtxVersion).unwrap(), 75);
    let (grid, block) = add.suggested_launch_configuration(0, 0.into()).unwrap();
    assert!(grid > 0 && block == 1024);

    let mut pinned = LockedBuffer::new(&0u32, 100).unwrap();
    // SAFETY: both buffers outlive the synchronisation.
    unsafe { y.async_copy_to(&mut *pinned, &stream).unwrap() };
    stream.synchronize().unwrap();
    assert_eq!(pinned[99], 106);

    let mut unified = UnifiedBuffer::new(&3u32, 1).unwrap();
    let step = module.get_function("step").unwrap();
    // SAFETY: as above.
    unsafe { launch!(step<<<1, 1, 0, stream>>>(unified.as_unified_ptr())).unwrap() };
    stream.synchronize().unwrap();
    assert_eq!(unified[0], 10);
    unified[0] = 1;

    let (send, receive) = std::sync::mpsc::channel();
    stream.add_callback(Box::new(move || send.send(42).unwrap())).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(receive.recv(), Ok(42));

    let seven = module.get_global::<u32>(c"seven").unwrap();
    let mut value = 0u32;
    seven.copy_to(&mut value).unwrap();
    assert_eq!(value, 7);
    drop((x, y, pinned, unified, stream));
    // The module outlives the context that it was loaded in: dropping it late must not crash.
    drop(context);
}

#[test]
fn the_cust_linker_and_errors() {
    let _turn = common::gpu();
    let _context = cust::quick_init().unwrap();
    let mut linker = cust::link::Linker::new().unwrap();
    linker.add_ptx(common::PTX).unwrap();
    let image = linker.complete().unwrap();
    let module = Module::from_cubin(&image, &[]).unwrap();
    module.get_function("step").unwrap();
    let error = Module::from_ptx("not PTX at all", &[]).unwrap_err();
    assert_eq!(error, cust::error::CudaError::InvalidPtx);
    assert_eq!(error.to_string(), format!("{:?}", c"a PTX JIT compilation failed"));
    let missing = module.get_function("missing").err();
    assert_eq!(missing, Some(cust::error::CudaError::NotFound));
    assert!(DeviceBuffer::<u32>::zeroed(1 << 45).is_err());
    let _: &CStr = c"";
}
