//! The CUDA driver API: the real one where there is one, else a software one.
//!
//! Every `cu*` function here is an exported C function. Linked into a program (this crate as a
//! Rust library), it takes the place of `libcuda.so.1`, so that the program starts on a machine
//! without a driver; loaded by one (this crate as a shared library with the name `libcuda.so.1`),
//! it runs programs that know nothing of it.
//!
//! At [`cuInit`] one engine is chosen for the process: NVIDIA's driver, each of whose functions is
//! looked up when it is first called, or the software engine, which runs PTX on the CPU. See
//! [`select`], [`engine`] and the variable `WARPSMITH_DRIVER`. Functions beyond CUDA's are in
//! [`software`].
//!
//! What holds on both engines: no call unwinds; result codes that CUDA 11.4 did not have become 999
//! (see [`last_raw_result`]); calls are counted, and can be made to fail; a call after the end of
//! the process answers `CUDA_ERROR_DEINITIALIZED`.
//!
//! ```
//! use warpsmith_driver_api::{Choice, Engine, cuInit, cuDeviceGetCount};
//!
//! warpsmith_driver_api::select(Choice::Software)?;
//! let mut devices = 0;
//! // SAFETY: the pointer is to a live integer.
//! let codes = unsafe { (cuInit(0), cuDeviceGetCount(&mut devices)) };
//! assert_eq!((codes, devices), ((0, 0), 1));
//! assert_eq!(warpsmith_driver_api::engine(), Some(Engine::Software { sm: 90, devices: 1 }));
//! # Ok::<(), warpsmith_driver_api::SelectError>(())
//! ```

mod api;
mod arg;
mod codes;
mod engine;
mod instrument;
mod lock;
mod refused;
pub mod software;
mod teardown;
mod types;

pub use api::*;
pub use codes::{result_name, result_text};
pub use engine::{
    Choice, Engine, RealProbe, SelectError, engine, init_error, init_quietly, other_driver, probe_real, probe_settings,
    select, why_not_cuda,
};
pub use instrument::last_raw_result;
pub use types::*;

/// Marks this library, so that it does not take itself for NVIDIA's. 2 while it forwards to NVIDIA's driver, else 1.
#[unsafe(no_mangle)]
pub extern "C" fn warpsmith_software_driver() -> i32 {
    match engine() {
        Some(Engine::Cuda { .. }) => engine::FORWARDED,
        _ => engine::SOFTWARE,
    }
}

/// The address of an exported function by its full name, such as `cuMemAlloc_v2`.
pub fn exported(name: &str) -> Option<*const std::ffi::c_void> {
    api::lookup(name)
}
