//! Graphics, external memory and semaphores, and what belongs to other parts of a system.

use super::P;
use crate::api::api_unsupported;

api_unsupported! {
    rows interop_rows;
    [cuCheckpointOperationComplete 13040] cuCheckpointOperationComplete(a: P);
    [cuCheckpointProcessCheckpoint 12080] cuCheckpointProcessCheckpoint(a: i32, b: P);
    [cuCheckpointProcessGetRestoreThreadId 12080] cuCheckpointProcessGetRestoreThreadId(a: i32, b: P);
    [cuCheckpointProcessGetState 12080] cuCheckpointProcessGetState(a: i32, b: P);
    [cuCheckpointProcessLock 12080] cuCheckpointProcessLock(a: i32, b: P);
    [cuCheckpointProcessRestore 12080] cuCheckpointProcessRestore(a: i32, b: P);
    [cuCheckpointProcessUnlock 12080] cuCheckpointProcessUnlock(a: i32, b: P);
    [cuCoredumpDeregisterCompleteCallback 13020] cuCoredumpDeregisterCompleteCallback(a: P);
    [cuCoredumpDeregisterStartCallback 13020] cuCoredumpDeregisterStartCallback(a: P);
    [cuCoredumpGetAttribute 12010] cuCoredumpGetAttribute(a: i32, b: P, c: P);
    [cuCoredumpGetAttributeGlobal 12010] cuCoredumpGetAttributeGlobal(a: i32, b: P, c: P);
    [cuCoredumpRegisterCompleteCallback 13020] cuCoredumpRegisterCompleteCallback(a: P, b: P, c: P);
    [cuCoredumpRegisterStartCallback 13020] cuCoredumpRegisterStartCallback(a: P, b: P, c: P);
    [cuCoredumpSetAttribute 12010] cuCoredumpSetAttribute(a: i32, b: P, c: P);
    [cuCoredumpSetAttributeGlobal 12010] cuCoredumpSetAttributeGlobal(a: i32, b: P, c: P);
    [cuDestroyExternalMemory 10000] cuDestroyExternalMemory(a: P);
    [cuDestroyExternalSemaphore 10000] cuDestroyExternalSemaphore(a: P);
    [cuDeviceGetCliqueCount 13040] cuDeviceGetCliqueCount(a: P, b: i32);
    [cuDeviceGetCliqueInfo 13040] cuDeviceGetCliqueInfo(a: P, b: P, c: i32);
    [cuDeviceGetFabricClusterUuid 13040] cuDeviceGetFabricClusterUuid(a: P, b: i32);
    [cuDeviceGetLuid 10000] cuDeviceGetLuid(a: P, b: P, c: i32);
    [cuDeviceGetNvSciSyncAttributes 10020] cuDeviceGetNvSciSyncAttributes(a: P, b: i32, c: i32);
    [cuDeviceRegisterAsyncNotification 12040] cuDeviceRegisterAsyncNotification(a: i32, b: P, c: P, d: P);
    [cuDeviceUnregisterAsyncNotification 12040] cuDeviceUnregisterAsyncNotification(a: i32, b: P);
    [cuExternalMemoryGetMappedBuffer 10000] cuExternalMemoryGetMappedBuffer(a: P, b: P, c: P);
    [cuExternalMemoryGetMappedMipmappedArray 10000] cuExternalMemoryGetMappedMipmappedArray(a: P, b: P, c: P);
    [cuGraphicsResourceGetMappedMipmappedArray 5000] cuGraphicsResourceGetMappedMipmappedArray(a: P, b: P);
    [cuGraphicsResourceGetMappedPointer 3020] cuGraphicsResourceGetMappedPointer_v2(a: P, b: P, c: P);
    [cuGraphicsResourceSetMapFlags 6050] cuGraphicsResourceSetMapFlags_v2(a: P, b: u32);
    [cuImportExternalMemory 10000] cuImportExternalMemory(a: P, b: P);
    [cuImportExternalSemaphore 10000] cuImportExternalSemaphore(a: P, b: P);
    [cuLogsCurrent 12090] cuLogsCurrent(a: P, b: u32);
    [cuLogsDumpToFile 12090] cuLogsDumpToFile(a: P, b: P, c: u32);
    [cuLogsDumpToMemory 12090] cuLogsDumpToMemory(a: P, b: P, c: P, d: u32);
    [cuLogsRegisterCallback 12090] cuLogsRegisterCallback(a: P, b: P, c: P);
    [cuLogsUnregisterCallback 12090] cuLogsUnregisterCallback(a: P);
    [cuSignalExternalSemaphoresAsync 10000 | cuSignalExternalSemaphoresAsync_ptsz] cuSignalExternalSemaphoresAsync(a: P, b: P, c: u32, d: P);
    [cuWaitExternalSemaphoresAsync 10000 | cuWaitExternalSemaphoresAsync_ptsz] cuWaitExternalSemaphoresAsync(a: P, b: P, c: u32, d: P);
}
