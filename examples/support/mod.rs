//! What the examples on the bare driver API begin with.

use std::ffi::CStr;

use warpsmith::driver::*;

/// An error that names the call.
pub fn ok(call: &str, code: CUresult) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("{call}: {} ({code})", result_name(code))) }
}

/// The first device's context, which is current from then on, and a module in it. Prints the engine.
pub fn start(ptx: &CStr) -> Result<(CUcontext, CUmodule), String> {
    let (mut device, mut context, mut module) = (0, CUcontext::NULL, CUmodule::NULL);
    // SAFETY: out-pointers are to live variables, and the image is a C string.
    unsafe {
        ok("cuInit", cuInit(0))?;
        println!("engine: {}", engine().map(|e| e.to_string()).unwrap_or_default());
        ok("cuDeviceGet", cuDeviceGet(&mut device, 0))?;
        ok("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&mut context, device))?;
        ok("cuCtxSetCurrent", cuCtxSetCurrent(context))?;
        ok("cuModuleLoadData", cuModuleLoadData(&mut module, ptx.as_ptr().cast()))?;
    }
    Ok((context, module))
}

/// A kernel of a module.
pub fn function(module: CUmodule, name: &CStr) -> Result<CUfunction, String> {
    let mut function = CUfunction::NULL;
    // SAFETY: the out-pointer is to a live variable, and the name is a C string.
    ok("cuModuleGetFunction", unsafe { cuModuleGetFunction(&mut function, module, name.as_ptr()) })?;
    Ok(function)
}
