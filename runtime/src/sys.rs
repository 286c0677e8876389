//! The driver functions that this crate calls itself, with results as integers.
//!
//! `cust::sys` declares the same functions with a Rust `enum` for the result and for several
//! out-parameters. A driver newer than that enum may answer a code that it lacks, which would be
//! undefined behaviour, so every function for which `cust` has no sound wrapper is declared here
//! with plain integers. The definitions are in `warpsmith-driver`, which forwards to the engine.

use crate::Error;
use cust::sys::{
    CUDA_KERNEL_NODE_PARAMS_st, CUDA_MEMCPY3D_st, CUDA_MEMSET_NODE_PARAMS_st, CUctx_st, CUevent_st, CUfunc_st,
    CUgraph_st, CUgraphExec_st, CUgraphNode_st, CUmod_st, CUstream_st,
};
use std::ffi::{c_int, c_uint, c_void};

/// Not ordered with the null stream.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// No driver call of any thread breaks the capture, or is refused because of it.
pub const CAPTURE_MODE_RELAXED: c_int = 2;
/// The stream captures nothing.
pub const CAPTURE_STATUS_NONE: c_int = 0;
/// An event for order only, which is cheaper to record than one with a time.
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CUfunction_attribute`: how much dynamic shared memory a launch may ask for.
pub const FUNCTION_MAX_DYNAMIC_SHARED: c_int = 8;
/// `CUdevice_attribute`: shared memory of one block, if the function opted in.
pub const DEVICE_SHARED_OPTIN: c_int = 97;
/// `CUlaunchAttributeID`: all blocks at the same time.
pub const LAUNCH_COOPERATIVE: c_uint = 2;
/// `CUlaunchAttributeID`: while the launch before it ends.
pub const LAUNCH_PROGRAMMATIC: c_uint = 6;
/// `CUjit_option`s of `cuModuleLoadDataEx`.
pub const JIT_ERROR_LOG_BUFFER: c_int = 5;
/// Bytes of the buffer above.
pub const JIT_ERROR_LOG_BUFFER_SIZE_BYTES: c_int = 6;

/// Codes that this crate tells apart.
pub mod code {
    /// Device memory is exhausted.
    pub const OUT_OF_MEMORY: i32 = 2;
    /// The driver is older than the code.
    pub const UNSUPPORTED_PTX_VERSION: i32 = 222;
    /// A context that the driver does not know.
    pub const INVALID_CONTEXT: i32 = 201;
    /// A handle that the driver does not know.
    pub const INVALID_HANDLE: i32 = 400;
    /// An event or a stream has not got there yet.
    pub const NOT_READY: i32 = 600;
    /// What `cust` and a clamping driver make of a code that they do not know.
    pub const UNKNOWN: i32 = 999;
}

/// `CUlaunchAttribute`.
#[repr(C)]
pub struct LaunchAttribute {
    pub id: c_uint,
    pub padding: [u8; 4],
    /// A union of 64 bytes; a flag is in the first four.
    pub value: [u32; 16],
}

/// `CUlaunchConfig`.
#[repr(C)]
pub struct LaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub dynamic_shared: c_uint,
    pub stream: *mut CUstream_st,
    pub attributes: *const LaunchAttribute,
    pub count: c_uint,
}

unsafe extern "C" {
    pub fn cuCtxGetCurrent(context: *mut *mut CUctx_st) -> i32;
    pub fn cuCtxSetCurrent(context: *mut CUctx_st) -> i32;
    pub fn cuCtxGetDevice(device: *mut c_int) -> i32;
    pub fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> i32;

    pub fn cuModuleLoadDataEx(
        module: *mut *mut CUmod_st,
        image: *const c_void,
        options: c_uint,
        names: *mut c_int,
        values: *mut *mut c_void,
    ) -> i32;
    pub fn cuModuleUnload(module: *mut CUmod_st) -> i32;
    pub fn cuFuncSetAttribute(function: *mut CUfunc_st, attribute: c_int, value: c_int) -> i32;
    pub fn cuLaunchKernel(
        function: *mut CUfunc_st,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        dynamic_shared: c_uint,
        stream: *mut CUstream_st,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> i32;
    pub fn cuLaunchCooperativeKernel(
        function: *mut CUfunc_st,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        dynamic_shared: c_uint,
        stream: *mut CUstream_st,
        params: *mut *mut c_void,
    ) -> i32;
    pub fn cuLaunchKernelEx(
        config: *const LaunchConfig,
        function: *mut CUfunc_st,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> i32;
    pub fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: *mut CUfunc_st,
        threads: c_int,
        dynamic_shared: usize,
    ) -> i32;

    pub fn cuStreamCreateWithPriority(stream: *mut *mut CUstream_st, flags: c_uint, priority: c_int) -> i32;
    pub fn cuStreamGetCtx(stream: *mut CUstream_st, context: *mut *mut CUctx_st) -> i32;
    pub fn cuStreamDestroy_v2(stream: *mut CUstream_st) -> i32;
    pub fn cuStreamSynchronize(stream: *mut CUstream_st) -> i32;
    pub fn cuStreamWaitEvent(stream: *mut CUstream_st, event: *mut CUevent_st, flags: c_uint) -> i32;
    pub fn cuStreamBeginCapture_v2(stream: *mut CUstream_st, mode: c_int) -> i32;
    pub fn cuStreamEndCapture(stream: *mut CUstream_st, graph: *mut *mut CUgraph_st) -> i32;
    pub fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> i32;
    pub fn cuStreamIsCapturing(stream: *mut CUstream_st, status: *mut c_int) -> i32;

    pub fn cuEventCreate(event: *mut *mut CUevent_st, flags: c_uint) -> i32;
    pub fn cuEventDestroy_v2(event: *mut CUevent_st) -> i32;
    pub fn cuEventRecord(event: *mut CUevent_st, stream: *mut CUstream_st) -> i32;
    pub fn cuEventQuery(event: *mut CUevent_st) -> i32;
    pub fn cuEventSynchronize(event: *mut CUevent_st) -> i32;
    pub fn cuEventElapsedTime(milliseconds: *mut f32, start: *mut CUevent_st, end: *mut CUevent_st) -> i32;

    pub fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut CUstream_st) -> i32;
    pub fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut CUstream_st) -> i32;
    pub fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut CUstream_st) -> i32;
    pub fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: *mut CUstream_st) -> i32;
    pub fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: *mut CUstream_st) -> i32;
    pub fn cuMemsetD32Async(to: u64, value: c_uint, count: usize, stream: *mut CUstream_st) -> i32;

    pub fn cuGraphCreate(graph: *mut *mut CUgraph_st, flags: c_uint) -> i32;
    pub fn cuGraphAddKernelNode(
        node: *mut *mut CUgraphNode_st,
        graph: *mut CUgraph_st,
        follows: *const *mut CUgraphNode_st,
        count: usize,
        launch: *const CUDA_KERNEL_NODE_PARAMS_st,
    ) -> i32;
    pub fn cuGraphKernelNodeSetAttribute(node: *mut CUgraphNode_st, attribute: c_uint, value: *const [u32; 16]) -> i32;
    pub fn cuGraphAddMemcpyNode(
        node: *mut *mut CUgraphNode_st,
        graph: *mut CUgraph_st,
        follows: *const *mut CUgraphNode_st,
        count: usize,
        copy: *const CUDA_MEMCPY3D_st,
        context: *mut CUctx_st,
    ) -> i32;
    pub fn cuGraphAddMemsetNode(
        node: *mut *mut CUgraphNode_st,
        graph: *mut CUgraph_st,
        follows: *const *mut CUgraphNode_st,
        count: usize,
        fill: *const CUDA_MEMSET_NODE_PARAMS_st,
        context: *mut CUctx_st,
    ) -> i32;
    pub fn cuGraphGetNodes(graph: *mut CUgraph_st, nodes: *mut *mut CUgraphNode_st, count: *mut usize) -> i32;
    pub fn cuGraphDestroy(graph: *mut CUgraph_st) -> i32;
    pub fn cuGraphInstantiateWithFlags(exec: *mut *mut CUgraphExec_st, graph: *mut CUgraph_st, flags: u64) -> i32;
    pub fn cuGraphExecDestroy(exec: *mut CUgraphExec_st) -> i32;
    pub fn cuGraphExecUpdate(
        exec: *mut CUgraphExec_st,
        graph: *mut CUgraph_st,
        error_node: *mut *mut CUgraphNode_st,
        result: *mut c_int,
    ) -> i32;
    pub fn cuGraphUpload(exec: *mut CUgraphExec_st, stream: *mut CUstream_st) -> i32;
    pub fn cuGraphLaunch(exec: *mut CUgraphExec_st, stream: *mut CUstream_st) -> i32;

}

/// An opaque handle of the driver.
pub struct Handle<T>(pub *mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Handle<T> {}

// SAFETY: a handle is a token that only the driver follows, and the driver API may be called with
// any handle from any thread. (Launching one executable graph from two threads at a time is the
// exception, and `Graph` holds a lock for it.)
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above; nothing is reached through a shared handle but by the driver.
unsafe impl<T> Sync for Handle<T> {}

/// A driver function's answer as a `Result`.
pub fn check(call: &'static str, code: i32) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(Error::driver(call, code)) }
}

/// The answer of a wrapper of `cust`'s as a `Result`.
pub fn cust<T>(call: &'static str, result: cust::error::CudaResult<T>) -> Result<T, Error> {
    result.map_err(|error| Error::driver(call, error as u32 as i32))
}

/// Calls a driver function by name and turns its answer into a `Result`. Belongs in `unsafe`.
macro_rules! cu {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::sys::check(
            stringify!($function),
            $crate::sys::$function($($argument),*),
        )
    };
}
pub(crate) use cu;

/// Runs something that loads code, while which no capture of the process, ours or another's, stands in its way.
///
/// A thread is in the mode that refuses such calls while anybody captures in it; that is meant for what would break
/// captures, which the loading of a module does not.
pub fn relaxed<R>(f: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    let mut mode = CAPTURE_MODE_RELAXED;
    // SAFETY: `mode` is a live integer, of a mode that there is, and afterwards the one that was.
    unsafe { cu!(cuThreadExchangeStreamCaptureMode(&mut mode)) }?;
    let result = f();
    // SAFETY: as before.
    let restored = unsafe { cu!(cuThreadExchangeStreamCaptureMode(&mut mode)) };
    result.and_then(|value| restored.map(|()| value))
}
