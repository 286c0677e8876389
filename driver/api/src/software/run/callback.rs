//! Functions of the host, called as CUDA does: on a thread of the driver's, which must not call CUDA.

use std::ffi::c_void;

use crate::CUstream;
use crate::software::tables::ops::{HostCall, HostFunction};
use crate::software::thread;

/// Calls a host function as CUDA does: on a thread of the driver's, which must not call CUDA.
pub(crate) fn call_host(call: HostCall, status: i32) {
    thread::as_callback(|| {
        let data = std::ptr::with_exposed_provenance_mut::<c_void>(call.user_data);
        match call.function {
            // SAFETY: the caller gave this function for this data, to be called once the stream is here.
            HostFunction::Plain(f) => unsafe { f(data) },
            // SAFETY: as above.
            HostFunction::OfStream(f, stream) => unsafe { f(CUstream::from_id(stream), status, data) },
        }
    });
}

/// Calls a function that tells a caller of the end of something, on another thread, and waits for it.
pub(crate) fn host(call: HostCall) {
    let spawned = std::thread::Builder::new().name("warpsmith host function".into()).spawn(move || call_host(call, 0));
    match spawned {
        Ok(handle) => {
            // A host function that panics aborts at its own boundary; there is no outcome to look at.
            let _ = handle.join();
        }
        Err(_) => call_host(call, 0),
    }
}
