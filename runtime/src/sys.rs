//! The driver functions that the runtime calls itself, with results as integers.
//!
//! Each is declared once, in [`warpsmith_driver_api`], which defines it. Why they are not those of `cust` is told by the page of
//! this crate.

use crate::Error;
use std::ffi::{c_int, c_uint};

/// Not ordered with the null stream.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// No driver call of any thread breaks the capture, or is refused because of it.
pub const CAPTURE_MODE_RELAXED: c_int = 2;
/// The stream captures nothing.
pub const CAPTURE_STATUS_NONE: c_int = 0;
/// An event for order only, which is cheaper to record than one with a time.
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// An event that other processes open.
pub const EVENT_INTERPROCESS: c_uint = 4;
/// `CUfunction_attribute`: how much dynamic shared memory a launch may ask for.
pub const FUNCTION_MAX_DYNAMIC_SHARED: c_int = 8;
/// `CUdevice_attribute`: shared memory of one block, if the function opted in.
pub const DEVICE_SHARED_OPTIN: c_int = 97;
/// `CUdevice_attribute`: processes can share memory and events.
pub const DEVICE_IPC_EVENTS: c_int = 125;
/// `CUlaunchAttributeID`: all blocks at the same time.
pub const LAUNCH_COOPERATIVE: c_uint = 2;
/// `CUlaunchAttributeID`: while the launch before it ends.
pub const LAUNCH_PROGRAMMATIC: c_uint = 6;
/// `CUmemorytype`: an address of host memory.
pub const MEMORY_TYPE_HOST: c_uint = 1;
/// `CUmemorytype`: an address of device memory.
pub const MEMORY_TYPE_DEVICE: c_uint = 2;
/// `CUjitInputType`: what the linker is given is PTX.
pub const JIT_INPUT_PTX: c_int = 1;
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
    /// Nothing leads from one device to the other.
    pub const PEER_ACCESS_UNSUPPORTED: i32 = 217;
    /// A device has access already.
    pub const PEER_ACCESS_ALREADY_ENABLED: i32 = 704;
    /// A device has access to as many others as it can.
    pub const TOO_MANY_PEERS: i32 = 711;
    /// A handle that the driver does not know.
    pub const INVALID_HANDLE: i32 = 400;
    /// An event or a stream has not got there yet.
    pub const NOT_READY: i32 = 600;
    /// What `cust` and a clamping driver make of a code that they do not know.
    pub const UNKNOWN: i32 = 999;
}

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
        $crate::sys::check(stringify!($function), warpsmith_driver_api::$function($($argument),*))
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
