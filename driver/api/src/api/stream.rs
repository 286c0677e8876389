//! Streams, events, launches and stream capture.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::api;
use crate::software::functions::{capture, event, launch, stream};
use crate::types::*;

api! {
    rows stream_rows;
    [cuStreamCreate 2000] cuStreamCreate(stream: *mut CUstream, flags: c_uint) => stream::create;
    [cuStreamCreateWithPriority 5050] cuStreamCreateWithPriority(
        stream: *mut CUstream, flags: c_uint, priority: c_int,
    ) => stream::create_with_priority;
    [cuStreamDestroy 4000] cuStreamDestroy_v2(stream: CUstream) => stream::destroy;
    [cuStreamGetPriority 5050 | cuStreamGetPriority_ptsz] cuStreamGetPriority(stream: CUstream, priority: *mut c_int) => stream::get_priority;
    [cuStreamGetFlags 5050 | cuStreamGetFlags_ptsz] cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) => stream::get_flags;
    [cuStreamGetId 12000 | cuStreamGetId_ptsz] cuStreamGetId(stream: CUstream, id: *mut c_ulonglong) => stream::get_id;
    [cuStreamGetCtx 9020 | cuStreamGetCtx_ptsz] cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) => stream::get_context;
    [cuStreamGetCtx 12050 | cuStreamGetCtx_v2_ptsz] cuStreamGetCtx_v2(
        stream: CUstream, context: *mut CUcontext, green: *mut *mut c_void,
    ) => stream::get_context_v2;
    [cuStreamGetDevice 12080 | cuStreamGetDevice_ptsz] cuStreamGetDevice(stream: CUstream, device: *mut CUdevice) => stream::get_device;
    [cuStreamGetAttribute 11000 | cuStreamGetAttribute_ptsz] cuStreamGetAttribute(
        stream: CUstream, attribute: c_uint, value: *mut c_void,
    ) => stream::get_attribute;
    [cuStreamSetAttribute 11000 | cuStreamSetAttribute_ptsz] cuStreamSetAttribute(
        stream: CUstream, attribute: c_uint, value: *const c_void,
    ) => stream::set_attribute;
    [cuStreamCopyAttributes 11000 | cuStreamCopyAttributes_ptsz] cuStreamCopyAttributes(to: CUstream, from: CUstream) => stream::copy_attributes;
    [cuStreamDestroy 2000] cuStreamDestroy(stream: CUstream) => stream::destroy;
    [cuEventDestroy 2000] cuEventDestroy(event: CUevent) => event::destroy;
    [cuStreamSynchronize 2000 | cuStreamSynchronize_ptsz] cuStreamSynchronize(stream: CUstream) => stream::synchronize;
    [cuStreamQuery 2000 | cuStreamQuery_ptsz] cuStreamQuery(stream: CUstream) => stream::query;
    [cuStreamWaitEvent 3020 | cuStreamWaitEvent_ptsz] cuStreamWaitEvent(
        stream: CUstream, event: CUevent, flags: c_uint,
    ) => event::wait;
    [cuStreamAddCallback 5000 | cuStreamAddCallback_ptsz] cuStreamAddCallback(
        stream: CUstream, callback: CUstreamCallback, user_data: *mut c_void, flags: c_uint,
    ) => launch::add_callback;

    [cuStreamBeginCapture 10000 | cuStreamBeginCapture_ptsz] cuStreamBeginCapture(stream: CUstream) => capture::begin_v1;
    [cuStreamBeginCapture 10010 | cuStreamBeginCapture_v2_ptsz] cuStreamBeginCapture_v2(stream: CUstream, mode: c_int) => capture::begin;
    [cuStreamEndCapture 10000 | cuStreamEndCapture_ptsz] cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) => capture::end;
    [cuStreamIsCapturing 10000 | cuStreamIsCapturing_ptsz] cuStreamIsCapturing(stream: CUstream, status: *mut c_int) => capture::is_capturing;
    [cuStreamGetCaptureInfo 10010 | cuStreamGetCaptureInfo_ptsz] cuStreamGetCaptureInfo(
        stream: CUstream, status: *mut c_int, id: *mut c_ulonglong,
    ) => capture::info;
    [cuStreamGetCaptureInfo 11030 | cuStreamGetCaptureInfo_v2_ptsz] cuStreamGetCaptureInfo_v2(
        stream: CUstream, status: *mut c_int, id: *mut c_ulonglong, graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode, count: *mut usize,
    ) => capture::info_v2;
    [cuStreamGetCaptureInfo 12030 | cuStreamGetCaptureInfo_v3_ptsz] cuStreamGetCaptureInfo_v3(
        stream: CUstream, status: *mut c_int, id: *mut c_ulonglong, graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode, edges: *mut *const c_void, count: *mut usize,
    ) => capture::info_v3;
    [cuStreamUpdateCaptureDependencies 11030 | cuStreamUpdateCaptureDependencies_ptsz] cuStreamUpdateCaptureDependencies(
        stream: CUstream, dependencies: *mut CUgraphNode, count: usize, flags: c_uint,
    ) => capture::update_dependencies;
    [cuStreamUpdateCaptureDependencies 12030 | cuStreamUpdateCaptureDependencies_v2_ptsz] cuStreamUpdateCaptureDependencies_v2(
        stream: CUstream, dependencies: *mut CUgraphNode, edges: *const GraphEdgeData, count: usize, flags: c_uint,
    ) => capture::update_dependencies_v2;
    [cuStreamBeginCaptureToGraph 12030 | cuStreamBeginCaptureToGraph_ptsz] cuStreamBeginCaptureToGraph(
        stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const GraphEdgeData, count: usize, mode: c_int,
    ) => capture::begin_to_graph;
    [cuThreadExchangeStreamCaptureMode 10010] cuThreadExchangeStreamCaptureMode(mode: *mut c_int) => capture::exchange_mode;

    [cuEventCreate 2000] cuEventCreate(event: *mut CUevent, flags: c_uint) => event::create;
    [cuEventDestroy 4000] cuEventDestroy_v2(event: CUevent) => event::destroy;
    [cuIpcGetEventHandle 4010] cuIpcGetEventHandle(handle: *mut IpcHandle, event: CUevent) => event::ipc_handle;
    [cuIpcOpenEventHandle 4010] cuIpcOpenEventHandle(event: *mut CUevent, handle: IpcHandle) => event::open_ipc_handle;
    [cuEventRecord 2000 | cuEventRecord_ptsz] cuEventRecord(event: CUevent, stream: CUstream) => event::record;
    [cuEventRecordWithFlags 11010 | cuEventRecordWithFlags_ptsz] cuEventRecordWithFlags(
        event: CUevent, stream: CUstream, flags: c_uint,
    ) => event::record_with_flags;
    [cuEventQuery 2000] cuEventQuery(event: CUevent) => event::query;
    [cuEventSynchronize 2000] cuEventSynchronize(event: CUevent) => event::synchronize;
    [cuEventElapsedTime 2000] cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) => event::elapsed;
    [cuEventElapsedTime 12080] cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent) => event::elapsed;

    [cuLaunchKernel 4000 | cuLaunchKernel_ptsz] cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void,
    ) => launch::kernel;
    [cuLaunchKernelEx 11060 | cuLaunchKernelEx_ptsz] cuLaunchKernelEx(
        config: *const LaunchConfig, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void,
    ) => launch::kernel_ex;
    [cuLaunchCooperativeKernel 9000 | cuLaunchCooperativeKernel_ptsz] cuLaunchCooperativeKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: CUstream, parameters: *mut *mut c_void,
    ) => launch::cooperative;
    [cuLaunchHostFunc 10000 | cuLaunchHostFunc_ptsz] cuLaunchHostFunc(
        stream: CUstream, function: CUhostFn, user_data: *mut c_void,
    ) => launch::host_function;
    [cuLaunchHostFunc 13010 | cuLaunchHostFunc_v2_ptsz] cuLaunchHostFunc_v2(
        stream: CUstream, function: CUhostFn, user_data: *mut c_void, mode: c_uint,
    ) => launch::host_function_v2;
}
