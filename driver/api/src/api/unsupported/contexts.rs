//! Green contexts, resources, and attributes of devices that these are not.

use super::P;
use crate::api::api_unsupported;

api_unsupported! {
    rows contexts_rows;
    [cuCtxFromGreenCtx 12040] cuCtxFromGreenCtx(a: P, b: P);
    [cuCtxGetDevResource 12040] cuCtxGetDevResource(a: P, b: P, c: i32);
    [cuCtxRecordEvent 12050] cuCtxRecordEvent(a: P, b: P);
    [cuCtxWaitEvent 12050] cuCtxWaitEvent(a: P, b: P);
    [cuDevResourceGenerateDesc 12040] cuDevResourceGenerateDesc(a: P, b: P, c: u32);
    [cuDevSmResourceSplit 13010] cuDevSmResourceSplit(a: P, b: u32, c: P, d: P, e: u32, f: P);
    [cuDevSmResourceSplitByCount 12040] cuDevSmResourceSplitByCount(a: P, b: P, c: P, d: P, e: u32, f: u32);
    [cuDeviceGetDevResource 12040] cuDeviceGetDevResource(a: i32, b: P, c: i32);
    [cuDeviceGetHostAtomicCapabilities 13000] cuDeviceGetHostAtomicCapabilities(a: P, b: P, c: u32, d: i32);
    [cuDeviceGetP2PAtomicCapabilities 13000] cuDeviceGetP2PAtomicCapabilities(a: P, b: P, c: u32, d: i32, e: i32);
    [cuDeviceSetGraphMemAttribute 11040] cuDeviceSetGraphMemAttribute(a: i32, b: i32, c: P);
    [cuGreenCtxCreate 12040] cuGreenCtxCreate(a: P, b: P, c: i32, d: u32);
    [cuGreenCtxDestroy 12040] cuGreenCtxDestroy(a: P);
    [cuGreenCtxGetDevResource 12040] cuGreenCtxGetDevResource(a: P, b: P, c: i32);
    [cuGreenCtxGetId 12090] cuGreenCtxGetId(a: P, b: P);
    [cuGreenCtxRecordEvent 12040] cuGreenCtxRecordEvent(a: P, b: P);
    [cuGreenCtxStreamCreate 12050] cuGreenCtxStreamCreate(a: P, b: P, c: u32, d: i32);
    [cuGreenCtxWaitEvent 12040] cuGreenCtxWaitEvent(a: P, b: P);
    [cuLaunchCooperativeKernelMultiDevice 9000] cuLaunchCooperativeKernelMultiDevice(a: P, b: u32, c: u32);
    [cuLibraryGetUnifiedFunction 12000] cuLibraryGetUnifiedFunction(a: P, b: P, c: P);
    [cuStreamGetDevResource 13010 | cuStreamGetDevResource_ptsz] cuStreamGetDevResource(a: P, b: P, c: i32);
    [cuStreamGetGreenCtx 12040] cuStreamGetGreenCtx(a: P, b: P);
}
