//! Streams, events, launches and stream capture.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::api;
use crate::software::{capture, event, launch, stream};
use crate::types::*;

api! {
    rows stream_rows;
    [cuStreamCreate 2000] cuStreamCreate(stream: *mut CUstream, flags: c_uint) => stream::create;
    [cuStreamCreateWithPriority 5050] cuStreamCreateWithPriority(
        stream: *mut CUstream, flags: c_uint, priority: c_int,
    ) => stream::create_with_priority;
    [cuStreamDestroy 4000] cuStreamDestroy_v2(stream: CUstream) => stream::destroy;
    [cuStreamGetPriority 5050] cuStreamGetPriority | cuStreamGetPriority_ptsz(stream: CUstream, priority: *mut c_int) => stream::get_priority;
    [cuStreamGetFlags 5050] cuStreamGetFlags | cuStreamGetFlags_ptsz(stream: CUstream, flags: *mut c_uint) => stream::get_flags;
    [cuStreamGetId 12000] cuStreamGetId | cuStreamGetId_ptsz(stream: CUstream, id: *mut c_ulonglong) => stream::get_id;
    [cuStreamGetCtx 9020] cuStreamGetCtx | cuStreamGetCtx_ptsz(stream: CUstream, context: *mut CUcontext) => stream::get_context;
    [cuStreamSynchronize 2000] cuStreamSynchronize | cuStreamSynchronize_ptsz(stream: CUstream) => stream::synchronize;
    [cuStreamQuery 2000] cuStreamQuery | cuStreamQuery_ptsz(stream: CUstream) => stream::synchronize;
    [cuStreamWaitEvent 3020] cuStreamWaitEvent | cuStreamWaitEvent_ptsz(
        stream: CUstream, event: CUevent, flags: c_uint,
    ) => event::wait;
    [cuStreamAddCallback 5000] cuStreamAddCallback | cuStreamAddCallback_ptsz(
        stream: CUstream, callback: CUstreamCallback, user_data: *mut c_void, flags: c_uint,
    ) => launch::add_callback;

    [cuStreamBeginCapture 10000] cuStreamBeginCapture | cuStreamBeginCapture_ptsz(stream: CUstream) => capture::begin_v1;
    [cuStreamBeginCapture 10010] cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: c_int) => capture::begin;
    [cuStreamEndCapture 10000] cuStreamEndCapture | cuStreamEndCapture_ptsz(stream: CUstream, graph: *mut CUgraph) => capture::end;
    [cuStreamIsCapturing 10000] cuStreamIsCapturing | cuStreamIsCapturing_ptsz(stream: CUstream, status: *mut c_int) => capture::is_capturing;
    [cuStreamGetCaptureInfo 10010] cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz(
        stream: CUstream, status: *mut c_int, id: *mut c_ulonglong,
    ) => capture::info;
    [cuStreamGetCaptureInfo 11030] cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz(
        stream: CUstream, status: *mut c_int, id: *mut c_ulonglong, graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode, count: *mut usize,
    ) => capture::info_v2;
    [cuStreamGetCaptureInfo 12030] cuStreamGetCaptureInfo_v3 | cuStreamGetCaptureInfo_v3_ptsz(
        stream: CUstream, status: *mut c_int, id: *mut c_ulonglong, graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode, edges: *mut *const c_void, count: *mut usize,
    ) => capture::info_v3;
    [cuStreamUpdateCaptureDependencies 11030] cuStreamUpdateCaptureDependencies | cuStreamUpdateCaptureDependencies_ptsz(
        stream: CUstream, dependencies: *mut CUgraphNode, count: usize, flags: c_uint,
    ) => capture::update_dependencies;
    [cuThreadExchangeStreamCaptureMode 10010] cuThreadExchangeStreamCaptureMode(mode: *mut c_int) => capture::exchange_mode;

    [cuEventCreate 2000] cuEventCreate(event: *mut CUevent, flags: c_uint) => event::create;
    [cuEventDestroy 4000] cuEventDestroy_v2(event: CUevent) => event::destroy;
    [cuEventRecord 2000] cuEventRecord | cuEventRecord_ptsz(event: CUevent, stream: CUstream) => event::record;
    [cuEventRecordWithFlags 11010] cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz(
        event: CUevent, stream: CUstream, flags: c_uint,
    ) => event::record_with_flags;
    [cuEventQuery 2000] cuEventQuery(event: CUevent) => event::synchronize;
    [cuEventSynchronize 2000] cuEventSynchronize(event: CUevent) => event::synchronize;
    [cuEventElapsedTime 2000] cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) => event::elapsed;
    [cuEventElapsedTime 12080] cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent) => event::elapsed;

    [cuLaunchKernel 4000] cuLaunchKernel | cuLaunchKernel_ptsz(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void,
    ) => launch::kernel;
    [cuLaunchKernelEx 11060] cuLaunchKernelEx | cuLaunchKernelEx_ptsz(
        config: *const LaunchConfig, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void,
    ) => launch::kernel_ex;
    [cuLaunchCooperativeKernel 9000] cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: CUstream, parameters: *mut *mut c_void,
    ) => launch::cooperative;
    [cuLaunchHostFunc 10000] cuLaunchHostFunc | cuLaunchHostFunc_ptsz(
        stream: CUstream, function: CUhostFn, user_data: *mut c_void,
    ) => launch::host_function;
}
