//! From code to a module of the driver.
//!
//! Machine code that the program carries goes first, where there is any for the device; then what the driver compiled in an earlier
//! process, which is [kept on disk](crate::code_cache); then the PTX. Code that the driver refuses is told as a `tracing` warning,
//! and the next in this order is loaded: which kernels there are does not depend on it, only how long their first use takes.

use crate::Error;
use crate::code_cache::CodeCache;
use crate::image::{KernelImage, Modules};
use crate::sys::{self, cu};
use cust::module::Module;
use std::ffi::{CString, c_void};
use warpsmith_driver_api::CUmodule;

/// The code of a module, in every form in which there is some.
pub struct ModuleCode<'a> {
    pub image: &'a KernelImage,
    pub modules: &'a Modules,
    /// Which one of them.
    pub number: usize,
    /// The kernels in it.
    pub kernels: &'a [&'a str],
}

impl ModuleCode<'_> {
    /// Loads it into the current context; of PTX the one with lines or without.
    pub fn load(&self, cache: Option<&CodeCache>, with_lines: bool) -> Result<Module, Error> {
        if let Some((target, cubin)) = self.modules.cubin(self.number)? {
            match Module::from_cubin(cubin, &[]) {
                Ok(module) => return Ok(module),
                Err(error) => self.refused("machine code of the program", target, error),
            }
        }
        self.load_text(cache, &self.modules.text(self.number, with_lines)?)
    }

    /// Loads such a text of it.
    pub fn load_text(&self, cache: Option<&CodeCache>, text: &str) -> Result<Module, Error> {
        let (library, sm) = (self.image.library(), self.modules.sm);
        if text.contains('\0') {
            return Err(self.image.refuse(format!("its code for sm_{sm} holds a zero byte")));
        }
        if let Some(cache) = cache
            && let Some(code) = cache.code(text)
        {
            match Module::from_cubin(code, &[]) {
                Ok(module) => return Ok(module),
                Err(error) => {
                    self.refused("compiled code of the cache", &format!("sm_{sm}"), error);
                    cache.forget(text);
                }
            }
        }
        Module::from_ptx(text, &[]).map_err(|error| {
            // `cust` has no option for the compiler's log: try again, to hear the reason.
            let source = Box::new(with_versions(with_log(load_error(error), text), text));
            Error::ModuleLoad { library: library.into(), sm, source }
        })
    }

    fn refused(&self, what: &str, target: &str, error: cust::error::CudaError) {
        let (library, kernels, error) = (self.image.library(), self.kernels, load_error(error));
        tracing::warn!(library, ?kernels, target, %error, "{what} is refused by the driver: PTX is loaded in its place");
    }
}

fn load_error(error: cust::error::CudaError) -> Error {
    Error::driver("cuModuleLoadDataEx", error as u32 as i32)
}

/// Says which versions meet, where the driver is older than the code.
fn with_versions(error: Error, ptx: &str) -> Error {
    match error {
        Error::Driver { call, code, name, text, detail: None, hint } if code == sys::code::UNSUPPORTED_PTX_VERSION => {
            let isa =
                ptx.lines().find_map(|l| l.trim().strip_prefix(".version")).map_or("of an unknown version", str::trim);
            let needed = cuda_of(isa).map_or_else(String::new, |cuda| format!(", which came with CUDA {cuda}"));
            let installed = warpsmith_driver_api::engine().map_or_else(String::new, |e| format!("; installed is {e}"));
            let detail = Some(format!("the code is PTX ISA {isa}{needed}{installed}"));
            Error::Driver { call, code, name, text, detail, hint }
        }
        other => other,
    }
}

/// The CUDA that brought a version of the PTX ISA. Source: PTX ISA, release notes.
fn cuda_of(isa: &str) -> Option<String> {
    let (major, minor) = isa.split_once('.')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(match (major, minor) {
        (6, 0..=2) => format!("9.{minor}"),
        (6, 3..=5) => format!("10.{}", minor - 3),
        (7, 0..=8) => format!("11.{minor}"),
        (8, 0..=5) => format!("12.{minor}"),
        (8, 6..=8) => format!("12.{}", minor + 1),
        (9, _) => format!("13.{minor}"),
        _ => return None,
    })
}

/// Loads `ptx` once more for the compiler's log, and adds that to `error`.
fn with_log(error: Error, ptx: &str) -> Error {
    const LOG_BYTES: usize = 16 * 1024;
    let Ok(text) = CString::new(ptx) else { return error };
    let mut log = vec![0u8; LOG_BYTES];
    let mut names = [sys::JIT_ERROR_LOG_BUFFER, sys::JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The driver takes numbers in the place of pointers here.
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG_BYTES)];
    let mut module = CUmodule::NULL;
    // SAFETY: the image is a C string; two options with two values; the log buffer has the size
    // that is given and outlives the call.
    let again = unsafe {
        cu!(cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 2, names.as_mut_ptr(), values.as_mut_ptr()))
    };
    if again.is_ok() {
        // The first failure had another reason than the code; it stands.
        // SAFETY: the module was loaded just now and nothing of it is used.
        let _ = unsafe { cu!(cuModuleUnload(module)) };
    }
    let log = String::from_utf8_lossy(&log);
    let log = log.split('\0').next().unwrap_or_default().trim();
    match error {
        Error::Driver { call, code, name, text, detail, hint } if !log.is_empty() => {
            let detail = detail.or_else(|| Some(log.to_owned()));
            Error::Driver { call, code, name, text, detail, hint }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
